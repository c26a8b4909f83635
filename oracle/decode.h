// SPDX-License-Identifier: MIT
//
// Blocks of quantized weights as lanes of fp32: the arithmetic of dequantize_row(), and its bits
// (tests/oracle compares them), kept in registers where the dot product wants it.
#pragma once

#include <cstdint>
#include <cstring>

#include <minfer/gguf/quant.h>
#include <minfer/math.h>

#include "oracle/lanes.h"

namespace minfer::oracle {

/// 32 values of a type without blocks, so that every type has blocks of a multiple of 32.
struct RunF32 {
  float values[32];
};
struct RunF16 {
  std::uint16_t values[32];
};
struct RunBF16 {
  std::uint16_t values[32];
};

/// Eight bytes at once: nibbles and bit fields are unpacked in 64-bit words.
using Bytes8 = std::uint64_t;

/// `mask` in each of eight bytes.
constexpr Bytes8 in_each_byte(std::uint8_t mask) {
  return 0x0101010101010101u * mask;
}

inline Bytes8 load_bytes(const std::uint8_t* p) {
  Bytes8 bytes;
  std::memcpy(&bytes, p, sizeof bytes);
  return bytes;
}

/// Eight unsigned bytes below 128 as floats.
inline F32x8 floats(Bytes8 bytes) {
  std::int8_t b[8];
  std::memcpy(b, &bytes, sizeof b);
  return from_i8(b);
}

/// Groups of 32 values in a block of this type.
template <class Block>
inline constexpr int kGroups = 1;
template <>
inline constexpr int kGroups<BlockQ4_K> = 8;
template <>
inline constexpr int kGroups<BlockQ6_K> = 8;

/// w[j] = values 8j .. 8j+7 of the block's group.
///
/// d * (q - 8) is computed as q * d - 8d in one fused operation: an fp16 scale times a small
/// integer has at most 16 bits, so either way is exact. It is an instruction less, and a tenth of
/// the speed.
inline void decode(const BlockQ4_0& block, int /*group*/, F32x8 (&w)[4]) {
  const float scale = from_f16(block.d);
  const F32x8 d = broadcast(scale);
  const F32x8 offset = broadcast(-8.0f * scale);
  for (int j = 0; j < 2; ++j) {
    const Bytes8 pairs = load_bytes(block.qs + 8 * j);
    w[j] = fma(floats(pairs & in_each_byte(0x0f)), d, offset);
    w[j + 2] = fma(floats((pairs >> 4) & in_each_byte(0x0f)), d, offset);
  }
}

inline void decode(const BlockQ4_1& block, int /*group*/, F32x8 (&w)[4]) {
  const F32x8 d = broadcast(from_f16(block.d));
  const F32x8 m = broadcast(from_f16(block.m));
  for (int j = 0; j < 2; ++j) {
    const Bytes8 pairs = load_bytes(block.qs + 8 * j);
    w[j] = add(mul(d, floats(pairs & in_each_byte(0x0f))), m);
    w[j + 2] = add(mul(d, floats((pairs >> 4) & in_each_byte(0x0f))), m);
  }
}

/// Bit i of `bits` as 16 in byte i: the fifth bit of a five-bit number.
inline Bytes8 fifth_bits(std::uint8_t bits) {
  const Bytes8 each_in_its_byte = in_each_byte(bits) & 0x8040201008040201u;
  const Bytes8 in_the_top = each_in_its_byte + in_each_byte(0x7f);  // 0x80 or more if it was set
  return (in_the_top & in_each_byte(0x80)) >> 3;
}

inline void decode(const BlockQ5_0& block, int /*group*/, F32x8 (&w)[4]) {
  const float scale = from_f16(block.d);
  const F32x8 d = broadcast(scale);
  const F32x8 offset = broadcast(-16.0f * scale);
  for (int j = 0; j < 2; ++j) {
    const Bytes8 pairs = load_bytes(block.qs + 8 * j);
    const Bytes8 low = (pairs & in_each_byte(0x0f)) | fifth_bits(block.qh[j]);
    const Bytes8 high = ((pairs >> 4) & in_each_byte(0x0f)) | fifth_bits(block.qh[j + 2]);
    w[j] = fma(floats(low), d, offset);
    w[j + 2] = fma(floats(high), d, offset);
  }
}

inline void decode(const BlockQ8_0& block, int /*group*/, F32x8 (&w)[4]) {
  const F32x8 d = broadcast(from_f16(block.d));
  for (int j = 0; j < 4; ++j) w[j] = mul(d, from_i8(block.qs + 8 * j));
}

/// Scale and minimum of a sub-block: six bits each, the first four plain, the upper two bits of the
/// others kept in the tops of the first eight bytes.
inline void scale_and_min(const BlockQ4_K& block, int group, int& scale, int& min) {
  const std::uint8_t* s = block.scales;
  if (group < 4) {
    scale = s[group] & 63;
    min = s[group + 4] & 63;
  } else {
    scale = (s[group + 4] & 15) | (s[group - 4] >> 6) << 4;
    min = (s[group + 4] >> 4) | (s[group] >> 6) << 4;
  }
}

/// Groups 2i and 2i+1 are the low and the high nibbles of the same 32 bytes.
inline void decode(const BlockQ4_K& block, int group, F32x8 (&w)[4]) {
  int scale, min;
  scale_and_min(block, group, scale, min);
  const F32x8 d = broadcast(from_f16(block.d) * static_cast<float>(scale));
  const F32x8 m = broadcast(from_f16(block.dmin) * static_cast<float>(min));
  for (int j = 0; j < 4; ++j) {
    const Bytes8 pairs = load_bytes(block.qs + 32 * (group / 2) + 8 * j) >> (4 * (group % 2));
    w[j] = sub(mul(d, floats(pairs & in_each_byte(0x0f))), m);
  }
}

/// Each half of the block (128 values) has 64 bytes of nibbles and 32 of upper bits. Its quarter q
/// takes bits 2q and 2q+1 of all 32, and nibbles of 32 bytes: the low ones for q < 2, else the
/// high.
inline void decode(const BlockQ6_K& block, int group, F32x8 (&w)[4]) {
  const float d = from_f16(block.d);
  const F32x8 offset = broadcast(32.0f);
  const int half = group / 4, quarter = group % 4;
  const std::uint8_t* nibbles = block.ql + 64 * half + 32 * (quarter % 2);
  const std::uint8_t* uppers = block.qh + 32 * half;
  for (int j = 0; j < 4; ++j) {
    const Bytes8 low = (load_bytes(nibbles + 8 * j) >> (4 * (quarter / 2))) & in_each_byte(0x0f);
    const Bytes8 high = (load_bytes(uppers + 8 * j) >> (2 * quarter)) & in_each_byte(0x03);
    const F32x8 scale = broadcast(d * static_cast<float>(block.scales[2 * group + j / 2]));
    w[j] = mul(scale, sub(floats(low | high << 4), offset));
  }
}

inline void decode(const RunF32& run, int /*group*/, F32x8 (&w)[4]) {
  for (int j = 0; j < 4; ++j) w[j] = load(run.values + 8 * j);
}

inline void decode(const RunF16& run, int /*group*/, F32x8 (&w)[4]) {
  for (int j = 0; j < 4; ++j) w[j] = from_f16(run.values + 8 * j);
}

inline void decode(const RunBF16& run, int /*group*/, F32x8 (&w)[4]) {
  float values[32];
  for (int i = 0; i < 32; ++i) values[i] = float_from_bits(std::uint32_t(run.values[i]) << 16);
  for (int j = 0; j < 4; ++j) w[j] = load(values + 8 * j);
}

}  // namespace minfer::oracle
