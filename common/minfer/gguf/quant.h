// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

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

/// out[0..n) = the row's values, exactly as the `gguf` package's `quants.dequantize` gives them.
/// @param[in]  row  n values of `type`, row_bytes(type, n) bytes
/// @param[out] out  [n] f32
/// @pre n % block_shape(type).elements == 0
void dequantize_row(TensorType type, const std::byte* row, std::uint64_t n, float* out);

/// Quantizes a row, with the same bytes as the `gguf` package's `quants.quantize`.
/// @param[in]  x    [n] f32
/// @param[out] row  row_bytes(type, n) bytes
/// @pre type is Q4_0 or Q8_0, n % 32 == 0
void quantize_row(TensorType type, const float* x, std::uint64_t n, std::byte* row);

}  // namespace minfer
