// SPDX-License-Identifier: MIT
//
// Blocks of quantized weights as lanes of fp32: the arithmetic of element_of(), and its bits
// (tests/oracle compares them), kept in registers where the dot product wants it. A second
// definition, for its speed: with element_of() in its place the 0.5B makes 4 tokens/s on one core
// instead of 12 (Intel Xeon, g++ 12).
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <minfer/gguf/quant.h>
#include <minfer/math.h>

#include "oracle/lanes.h"

namespace minfer::oracle {

/// 32 values of a type without blocks.
template <class T>
struct Run {
  T values[32];
};
/// What a row of this type consists of: blocks of a multiple of 32 values.
template <class Block>
using Chunk = std::conditional_t<kBlockElements<Block> == 1, Run<Block>, Block>;

/// Groups of 32 values in a chunk.
template <class C>
inline constexpr int kGroups = kBlockElements<C> / 32;

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

inline void decode(const BlockQ4_K& block, int group, F32x8 (&w)[4]) {
  const ScaleMin packed = scale_and_min(block, group);
  const F32x8 d = broadcast(from_f16(block.d) * static_cast<float>(packed.scale));
  const F32x8 m = broadcast(from_f16(block.dmin) * static_cast<float>(packed.min));
  for (int j = 0; j < 4; ++j) {
    const Bytes8 pairs = load_bytes(block.qs + 32 * (group / 2) + 8 * j) >> (4 * (group % 2));
    w[j] = sub(mul(d, floats(pairs & in_each_byte(0x0f))), m);
  }
}

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

inline void decode(const Run<float>& run, int /*group*/, F32x8 (&w)[4]) {
  for (int j = 0; j < 4; ++j) w[j] = load(run.values + 8 * j);
}

inline void decode(const Run<F16>& run, int /*group*/, F32x8 (&w)[4]) {
  for (int j = 0; j < 4; ++j) w[j] = from_f16(&run.values[8 * j].bits);
}

inline void decode(const Run<BF16>& run, int /*group*/, F32x8 (&w)[4]) {
  float values[32];
  for (int i = 0; i < 32; ++i) values[i] = element_of(run.values[i], 0);
  for (int j = 0; j < 4; ++j) w[j] = load(values + 8 * j);
}

}  // namespace minfer::oracle
