// SPDX-License-Identifier: MIT
//
// One element of a quantized row, for kernels: the same bits as dequantize_row() on the host, from
// the same operations in the same order. A kernel is a template over the block type, and
// visit_blocks() picks the instance for a matrix read from a file.
#pragma once

#include <cstddef>
#include <cstdint>

#include <minfer/gguf/quant.h>
#include <minfer/math.h>

namespace minfer {

/// An fp16 number as a file stores it.
struct F16 {
  std::uint16_t bits;
};
/// A bfloat16 number as a file stores it.
struct BF16 {
  std::uint16_t bits;
};

/// Values that one block holds.
template <class Block>
inline constexpr std::uint32_t kBlockElements = 32;
template <>
inline constexpr std::uint32_t kBlockElements<float> = 1;
template <>
inline constexpr std::uint32_t kBlockElements<F16> = 1;
template <>
inline constexpr std::uint32_t kBlockElements<BF16> = 1;
template <>
inline constexpr std::uint32_t kBlockElements<BlockQ4_K> = 256;
template <>
inline constexpr std::uint32_t kBlockElements<BlockQ6_K> = 256;

/// Element i of a block.
MINFER_HD inline float element_of(const float& block, std::uint32_t) {
  return block;
}

MINFER_HD inline float element_of(const F16& block, std::uint32_t) {
  return float_from_half(block.bits);
}

MINFER_HD inline float element_of(const BF16& block, std::uint32_t) {
  return float_from_bits(static_cast<std::uint32_t>(block.bits) << 16);
}

MINFER_HD inline float element_of(const BlockQ4_0& block, std::uint32_t i) {
  const int q = (block.qs[i % 16] >> (i / 16 * 4)) & 15;
  return float_from_half(block.d) * static_cast<float>(q - 8);
}

MINFER_HD inline float element_of(const BlockQ4_1& block, std::uint32_t i) {
  const int q = (block.qs[i % 16] >> (i / 16 * 4)) & 15;
  return float_from_half(block.d) * static_cast<float>(q) + float_from_half(block.m);
}

MINFER_HD inline float element_of(const BlockQ5_0& block, std::uint32_t i) {
  const int low = (block.qs[i % 16] >> (i / 16 * 4)) & 15;
  const int high = (block.qh[i / 8] >> (i % 8)) & 1;
  return float_from_half(block.d) * static_cast<float>((low | high << 4) - 16);
}

MINFER_HD inline float element_of(const BlockQ8_0& block, std::uint32_t i) {
  return float_from_half(block.d) * static_cast<float>(block.qs[i]);
}

/// The 6-bit scales and minima of the 8 sub-blocks are packed in 12 bytes: those of the first four
/// in the low six bits of bytes 0-3 and 4-7, those of the last four with their low nibbles in bytes
/// 8-11 and their two high bits in what the first eight bytes have left.
MINFER_HD inline float element_of(const BlockQ4_K& block, std::uint32_t i) {
  const std::uint32_t sub = i / 32;
  const std::uint8_t* s = block.scales;
  const int scale = sub < 4 ? s[sub] & 63 : (s[sub + 4] & 15) | (s[sub - 4] >> 6) << 4;
  const int min = sub < 4 ? s[sub + 4] & 63 : (s[sub + 4] >> 4) | (s[sub] >> 6) << 4;
  const int q = (block.qs[i / 64 * 32 + i % 32] >> (sub % 2 * 4)) & 15;
  const float d = float_from_half(block.d) * static_cast<float>(scale);
  const float m = float_from_half(block.dmin) * static_cast<float>(min);
  return d * static_cast<float>(q) - m;
}

/// Each half of 128 elements has 64 bytes of low nibbles and 32 bytes that hold two high bits for
/// each of its four runs of 32.
MINFER_HD inline float element_of(const BlockQ6_K& block, std::uint32_t i) {
  const std::uint32_t half = i / 128, run = i / 32 % 4, lane = i % 32;
  const int low = (block.ql[half * 64 + run % 2 * 32 + lane] >> (run / 2 * 4)) & 15;
  const int high = (block.qh[half * 32 + lane] >> (run * 2)) & 3;
  const float d = float_from_half(block.d) * static_cast<float>(block.scales[i / 16]);
  return d * static_cast<float>((low | high << 4) - 32);
}

/// Element i of a row of blocks.
template <class Block>
MINFER_HD inline float element(const Block* row, std::uint32_t i) {
  return element_of(row[i / kBlockElements<Block>], i % kBlockElements<Block>);
}

/// Calls f with `data` as a pointer to the blocks that `type` names.
template <class F>
void visit_blocks(TensorType type, const std::byte* data, F&& f) {
  switch (type) {
    case TensorType::kF32:
      return f(reinterpret_cast<const float*>(data));
    case TensorType::kF16:
      return f(reinterpret_cast<const F16*>(data));
    case TensorType::kBF16:
      return f(reinterpret_cast<const BF16*>(data));
    case TensorType::kQ4_0:
      return f(reinterpret_cast<const BlockQ4_0*>(data));
    case TensorType::kQ4_1:
      return f(reinterpret_cast<const BlockQ4_1*>(data));
    case TensorType::kQ5_0:
      return f(reinterpret_cast<const BlockQ5_0*>(data));
    case TensorType::kQ8_0:
      return f(reinterpret_cast<const BlockQ8_0*>(data));
    case TensorType::kQ4_K:
      return f(reinterpret_cast<const BlockQ4_K*>(data));
    case TensorType::kQ6_K:
      return f(reinterpret_cast<const BlockQ6_K*>(data));
  }
}

}  // namespace minfer
