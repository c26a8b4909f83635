// SPDX-License-Identifier: MIT
//
// Every formula here has the operations and the order of the `gguf` package's, which are ggml's:
// two multiplications are not one multiplication by a product, and rounding differs between the
// two quantizers. Bits are compared with the package in the tests.
#include <minfer/gguf/quant.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include <minfer/math.h>

namespace minfer {
namespace {

void dequantize(const BlockQ4_0& block, float* out) {
  const float d = float_from_half(block.d);
  for (int i = 0; i < 16; ++i) out[i] = d * static_cast<float>((block.qs[i] & 15) - 8);
  for (int i = 0; i < 16; ++i) out[16 + i] = d * static_cast<float>((block.qs[i] >> 4) - 8);
}

void dequantize(const BlockQ4_1& block, float* out) {
  const float d = float_from_half(block.d);
  const float m = float_from_half(block.m);
  for (int i = 0; i < 16; ++i) out[i] = d * static_cast<float>(block.qs[i] & 15) + m;
  for (int i = 0; i < 16; ++i) out[16 + i] = d * static_cast<float>(block.qs[i] >> 4) + m;
}

void dequantize(const BlockQ5_0& block, float* out) {
  const float d = float_from_half(block.d);
  std::uint32_t high_bits;
  std::memcpy(&high_bits, block.qh, sizeof high_bits);
  for (int i = 0; i < 16; ++i) {
    const int low = (block.qs[i] & 15) | static_cast<int>((high_bits >> i & 1) << 4);
    const int high = (block.qs[i] >> 4) | static_cast<int>((high_bits >> (i + 16) & 1) << 4);
    out[i] = d * static_cast<float>(low - 16);
    out[16 + i] = d * static_cast<float>(high - 16);
  }
}

void dequantize(const BlockQ8_0& block, float* out) {
  const float d = float_from_half(block.d);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(block.qs[i]);
}

/// Scale and minimum of sub-block j, 6 bits each: those of the first four lie in the low bits of
/// scales[0..4) and scales[4..8); the others' low nibbles in scales[8..12), and their two high bits
/// above the first four's.
struct ScaleMin {
  std::uint8_t scale;
  std::uint8_t min;
};
ScaleMin scale_min(const std::uint8_t* scales, int j) {
  if (j < 4) {
    return {static_cast<std::uint8_t>(scales[j] & 63),
            static_cast<std::uint8_t>(scales[j + 4] & 63)};
  }
  const std::uint8_t low_nibbles = scales[j + 4];
  return {static_cast<std::uint8_t>((low_nibbles & 15) | (scales[j - 4] >> 6) << 4),
          static_cast<std::uint8_t>((low_nibbles >> 4) | (scales[j] >> 6) << 4)};
}

/// Sub-blocks 2k and 2k+1 are the low and the high nibbles of qs[32k .. 32k+32).
void dequantize(const BlockQ4_K& block, float* out) {
  const float d = float_from_half(block.d);
  const float dmin = float_from_half(block.dmin);
  for (int j = 0; j < 8; ++j) {
    const auto [scale, min] = scale_min(block.scales, j);
    const float sub_d = d * static_cast<float>(scale);
    const float sub_min = dmin * static_cast<float>(min);
    const std::uint8_t* qs = block.qs + j / 2 * 32;
    const int shift = j % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      out[j * 32 + i] = sub_d * static_cast<float>(qs[i] >> shift & 15) - sub_min;
    }
  }
}

/// Each half of 128 values has 64 bytes of low nibbles and 32 bytes of high bit pairs. Its quarter
/// k takes the nibbles of ql[k%2 * 32 ..], low ones for k < 2, and bits 2k and 2k+1 of qh.
void dequantize(const BlockQ6_K& block, float* out) {
  const float d = float_from_half(block.d);
  for (int quarter = 0; quarter < 8; ++quarter) {
    const int half = quarter / 4;
    const int k = quarter % 4;
    const std::uint8_t* ql = block.ql + half * 64 + k % 2 * 32;
    const std::uint8_t* qh = block.qh + half * 32;
    for (int i = 0; i < 32; ++i) {
      const float sub_d = d * static_cast<float>(block.scales[quarter * 2 + i / 16]);
      const int q = (ql[i] >> k / 2 * 4 & 15) | (qh[i] >> k * 2 & 3) << 4;
      out[quarter * 32 + i] = sub_d * static_cast<float>(q - 32);
    }
  }
}

template <class Block>
void dequantize_blocks(const std::byte* row, std::uint64_t n, std::uint32_t elements, float* out) {
  for (std::uint64_t i = 0; i < n / elements; ++i) {
    Block block;  // a copy: `row` may be unaligned
    std::memcpy(&block, row + i * sizeof block, sizeof block);
    dequantize(block, out + i * elements);
  }
}

void dequantize_f16(const std::byte* row, std::uint64_t n, float* out) {
  for (std::uint64_t i = 0; i < n; ++i) {
    std::uint16_t half;
    std::memcpy(&half, row + i * sizeof half, sizeof half);
    out[i] = float_from_half(half);
  }
}

void dequantize_bf16(const std::byte* row, std::uint64_t n, float* out) {
  for (std::uint64_t i = 0; i < n; ++i) {
    std::uint16_t high_half;
    std::memcpy(&high_half, row + i * sizeof high_half, sizeof high_half);
    out[i] = float_from_bits(static_cast<std::uint32_t>(high_half) << 16);
  }
}

/// 1/d, and 0 for a block of zeros. For the least denormals it is infinite, as in the package.
float reciprocal(float d) {
  return d == 0.0f ? 0.0f : 1.0f / d;
}

/// A number that was scaled into 0..255 or -127..127, as an integer; what overflowed on the way is
/// 0, which is what x86-64's conversion leaves in the low byte.
int to_int(float x) {
  return x > -256.0f && x < 256.0f ? static_cast<int>(x) : 0;
}

/// The value of the greatest magnitude, with its sign: the first of them, or the first NaN.
float extreme(const float* x) {
  float found = x[0];
  for (int i = 1; i < 32 && found == found; ++i) {
    if (std::fabs(x[i]) > std::fabs(found) || x[i] != x[i]) found = x[i];
  }
  return found;
}

/// The extreme becomes exactly -8: the other end of the range is 7 steps away only. Halves round
/// up, since 8.5 is added and the fraction dropped.
BlockQ4_0 quantize_q4_0(const float* x) {
  const float d = extreme(x) / -8.0f;
  const float r = reciprocal(d);
  BlockQ4_0 block;
  block.d = half_from_float(d);
  for (int i = 0; i < 16; ++i) {
    const int low = std::min(to_int(x[i] * r + 8.5f), 15);
    const int high = std::min(to_int(x[i + 16] * r + 8.5f), 15);
    block.qs[i] = static_cast<std::uint8_t>(low | high << 4);
  }
  return block;
}

/// Halves round away from zero.
BlockQ8_0 quantize_q8_0(const float* x) {
  const float d = std::fabs(extreme(x)) / 127.0f;
  const float r = reciprocal(d);
  BlockQ8_0 block;
  block.d = half_from_float(d);
  for (int i = 0; i < 32; ++i) {
    const float q = x[i] * r;
    const float magnitude = std::fabs(q);
    const float whole = std::floor(magnitude);
    const float rounded = whole + std::floor(2.0f * (magnitude - whole));
    block.qs[i] = static_cast<std::int8_t>(to_int(std::copysign(rounded, q)));
  }
  return block;
}

template <class Block, class Quantize>
void quantize_blocks(const float* x, std::uint64_t n, std::byte* row, Quantize quantize) {
  for (std::uint64_t i = 0; i < n / 32; ++i) {
    const Block block = quantize(x + i * 32);
    std::memcpy(row + i * sizeof block, &block, sizeof block);
  }
}

}  // namespace

const char* type_name(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return "F32";
    case TensorType::kF16:
      return "F16";
    case TensorType::kQ4_0:
      return "Q4_0";
    case TensorType::kQ4_1:
      return "Q4_1";
    case TensorType::kQ5_0:
      return "Q5_0";
    case TensorType::kQ8_0:
      return "Q8_0";
    case TensorType::kQ4_K:
      return "Q4_K";
    case TensorType::kQ6_K:
      return "Q6_K";
    case TensorType::kBF16:
      return "BF16";
  }
  return "unknown";
}

BlockShape block_shape(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return {1, 4};
    case TensorType::kF16:
      return {1, 2};
    case TensorType::kBF16:
      return {1, 2};
    case TensorType::kQ4_0:
      return {32, sizeof(BlockQ4_0)};
    case TensorType::kQ4_1:
      return {32, sizeof(BlockQ4_1)};
    case TensorType::kQ5_0:
      return {32, sizeof(BlockQ5_0)};
    case TensorType::kQ8_0:
      return {32, sizeof(BlockQ8_0)};
    case TensorType::kQ4_K:
      return {256, sizeof(BlockQ4_K)};
    case TensorType::kQ6_K:
      return {256, sizeof(BlockQ6_K)};
  }
  throw std::invalid_argument("block_shape: not a tensor type that is read");
}

std::uint64_t row_bytes(TensorType type, std::uint64_t n) {
  const auto [elements, bytes] = block_shape(type);
  return n / elements * bytes;
}

void dequantize_row(TensorType type, const std::byte* row, std::uint64_t n, float* out) {
  switch (type) {
    case TensorType::kF32:
      std::memcpy(out, row, n * sizeof(float));
      return;
    case TensorType::kF16:
      return dequantize_f16(row, n, out);
    case TensorType::kBF16:
      return dequantize_bf16(row, n, out);
    case TensorType::kQ4_0:
      return dequantize_blocks<BlockQ4_0>(row, n, 32, out);
    case TensorType::kQ4_1:
      return dequantize_blocks<BlockQ4_1>(row, n, 32, out);
    case TensorType::kQ5_0:
      return dequantize_blocks<BlockQ5_0>(row, n, 32, out);
    case TensorType::kQ8_0:
      return dequantize_blocks<BlockQ8_0>(row, n, 32, out);
    case TensorType::kQ4_K:
      return dequantize_blocks<BlockQ4_K>(row, n, 256, out);
    case TensorType::kQ6_K:
      return dequantize_blocks<BlockQ6_K>(row, n, 256, out);
  }
  throw std::invalid_argument("dequantize_row: not a tensor type that is read");
}

void quantize_row(TensorType type, const float* x, std::uint64_t n, std::byte* row) {
  if (type == TensorType::kQ4_0) return quantize_blocks<BlockQ4_0>(x, n, row, quantize_q4_0);
  if (type == TensorType::kQ8_0) return quantize_blocks<BlockQ8_0>(x, n, row, quantize_q8_0);
  throw std::invalid_argument(std::string("quantize_row: ") + type_name(type) +
                              ", expected Q4_0 or Q8_0");
}

}  // namespace minfer
