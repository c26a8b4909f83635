// SPDX-License-Identifier: MIT
//
// CUDA's built-in vector types, with the sizes and alignments that CUDA gives them: a load through
// a misaligned pointer to one of them is a fault on a GPU, and for UBSan here.
#pragma once

#define MINFER_EMULATOR_VECTOR(scalar, name, align1, align2, align3, align4) \
  struct alignas(align1) name##1 {                                           \
    scalar x;                                                                \
  };                                                                         \
  struct alignas(align2) name##2 {                                           \
    scalar x, y;                                                             \
  };                                                                         \
  struct alignas(align3) name##3 {                                           \
    scalar x, y, z;                                                          \
  };                                                                         \
  struct alignas(align4) name##4 {                                           \
    scalar x, y, z, w;                                                       \
  };                                                                         \
  constexpr name##1 make_##name##1(scalar x) {                               \
    return {x};                                                              \
  }                                                                          \
  constexpr name##2 make_##name##2(scalar x, scalar y) {                     \
    return {x, y};                                                           \
  }                                                                          \
  constexpr name##3 make_##name##3(scalar x, scalar y, scalar z) {           \
    return {x, y, z};                                                        \
  }                                                                          \
  constexpr name##4 make_##name##4(scalar x, scalar y, scalar z, scalar w) { \
    return {x, y, z, w};                                                     \
  }

MINFER_EMULATOR_VECTOR(signed char, char, 1, 2, 1, 4)
MINFER_EMULATOR_VECTOR(unsigned char, uchar, 1, 2, 1, 4)
MINFER_EMULATOR_VECTOR(short, short, 2, 4, 2, 8)
MINFER_EMULATOR_VECTOR(unsigned short, ushort, 2, 4, 2, 8)
MINFER_EMULATOR_VECTOR(int, int, 4, 8, 4, 16)
MINFER_EMULATOR_VECTOR(unsigned int, uint, 4, 8, 4, 16)
MINFER_EMULATOR_VECTOR(float, float, 4, 8, 4, 16)
MINFER_EMULATOR_VECTOR(long long, longlong, 8, 16, 8, 16)
MINFER_EMULATOR_VECTOR(unsigned long long, ulonglong, 8, 16, 8, 16)
MINFER_EMULATOR_VECTOR(double, double, 8, 16, 8, 16)
#undef MINFER_EMULATOR_VECTOR

/// The extent of a grid or a block; what is not given is 1.
struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x_ = 1, unsigned int y_ = 1, unsigned int z_ = 1)
      : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
