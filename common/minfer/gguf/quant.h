// SPDX-License-Identifier: MIT
//
// The types of a file's tensors: how their blocks lie in memory, and what value each element has,
// for host and device. Formulas have the operations and the order of the `gguf` package's, which
// are ggml's (two multiplications are not one multiplication by a product); tests compare the bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include <minfer/math.h>

namespace minfer {

/// Tensor element types, with GGUF's own numbers. Only these are read.
enum class TensorType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ6_K = 14,
  kBF16 = 30,
};

/// What a block of a type holds: `elements` values in `bytes` bytes (1 and the type's size for the
/// plain types).
struct BlockShape {
  std::uint32_t elements;
  std::uint32_t bytes;
};

/// The name as llama.cpp and the gguf package print it: "Q4_0", "F32", ...
const char* type_name(TensorType type);
BlockShape block_shape(TensorType type);
/// Bytes of a row of `n` elements. @pre n % block_shape(type).elements == 0
std::uint64_t row_bytes(TensorType type, std::uint64_t n);

/// An fp16 number as a file stores it.
struct F16 {
  std::uint16_t bits;
};
/// A bfloat16 number as a file stores it.
struct BF16 {
  std::uint16_t bits;
};

/// 32 values: value[i] = d * (q[i] - 8); q[i] is the low nibble of qs[i] for i < 16, the high one
/// of qs[i - 16] for the rest.
struct BlockQ4_0 {
  std::uint16_t d;  ///< fp16 bits
  std::uint8_t qs[16];
};
/// 32 values: value[i] = d * q[i] + m; nibbles as in BlockQ4_0.
struct BlockQ4_1 {
  std::uint16_t d;  ///< fp16 bits
  std::uint16_t m;  ///< fp16 bits
  std::uint8_t qs[16];
};
/// 32 values: value[i] = d * (q[i] - 16); q's fifth bit is bit i of qh.
struct BlockQ5_0 {
  std::uint16_t d;  ///< fp16 bits
  std::uint8_t qh[4];
  std::uint8_t qs[16];
};
/// 32 values: value[i] = d * qs[i].
struct BlockQ8_0 {
  std::uint16_t d;  ///< fp16 bits
  std::int8_t qs[32];
};
/// 256 values in 8 sub-blocks of 32: value = d * scale[j] * q - dmin * min[j].
struct BlockQ4_K {
  std::uint16_t d;     ///< fp16 bits
  std::uint16_t dmin;  ///< fp16 bits
  std::uint8_t scales[12];
  std::uint8_t qs[128];
};
/// 256 values in 16 sub-blocks of 16: value = d * scale[j] * (q - 32).
struct BlockQ6_K {
  std::uint8_t ql[128];
  std::uint8_t qh[64];
  std::int8_t scales[16];
  std::uint16_t d;  ///< fp16 bits
};

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22 &&
                  sizeof(BlockQ8_0) == 34 && sizeof(BlockQ4_K) == 144 && sizeof(BlockQ6_K) == 210,
              "block structures are the file's own layout");

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

/// Scale and minimum of one of a block's eight sub-blocks of 32.
struct ScaleMin {
  int scale, min;
};
/// Both are six bits, packed in 12 bytes: those of the first four sub-blocks in the low six bits of
/// bytes 0-3 and 4-7, those of the last four with their low nibbles in bytes 8-11 and their two
/// high bits in what the first eight bytes have left.
MINFER_HD inline ScaleMin scale_and_min(const BlockQ4_K& block, std::uint32_t sub) {
  const std::uint8_t* s = block.scales;
  return {sub < 4 ? s[sub] & 63 : (s[sub + 4] & 15) | (s[sub - 4] >> 6) << 4,
          sub < 4 ? s[sub + 4] & 63 : (s[sub + 4] >> 4) | (s[sub] >> 6) << 4};
}

/// Sub-blocks 2k and 2k+1 are the low and the high nibbles of the same 32 bytes.
MINFER_HD inline float element_of(const BlockQ4_K& block, std::uint32_t i) {
  const std::uint32_t sub = i / 32;
  const ScaleMin packed = scale_and_min(block, sub);
  const int q = (block.qs[i / 64 * 32 + i % 32] >> (sub % 2 * 4)) & 15;
  const float d = float_from_half(block.d) * static_cast<float>(packed.scale);
  const float m = float_from_half(block.dmin) * static_cast<float>(packed.min);
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

/// f(`data` as a pointer to the blocks that `type` names).
template <class F>
auto visit_blocks(TensorType type, const std::byte* data, F&& f) {
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
  throw std::invalid_argument("visit_blocks: not a tensor type that is read");
}

/// out[0..n) = the row's values, exactly as the `gguf` package's `quants.dequantize` gives them.
/// @param[in]  row  n values of `type`, row_bytes(type, n) bytes
/// @param[out] out  [n] f32
/// @pre n % block_shape(type).elements == 0
void dequantize_row(TensorType type, const std::byte* row, std::uint64_t n, float* out);

/// Quantizes a row, with the same bytes as the `gguf` package's `quants.quantize` on x86-64. One
/// thing is not the package's to say: a NaN in a block of Q8_0 makes the scale 0x7e00, whatever its
/// payload.
/// @param[in]  x    [n] f32
/// @param[out] row  row_bytes(type, n) bytes
/// @pre type is Q4_0 or Q8_0, n % 32 == 0
void quantize_row(TensorType type, const float* x, std::uint64_t n, std::byte* row);

}  // namespace minfer
