// SPDX-License-Identifier: MIT
#include <minfer/gguf/quant.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <minfer/math.h>

namespace minfer {
namespace {

template <class Block>
void dequantize_blocks(const std::byte* row, std::uint64_t n, float* out) {
  constexpr std::uint32_t kElements = kBlockElements<Block>, kRun = std::min(kElements, 16u);
  for (const float* end = out + n; out != end; out += kElements, row += sizeof(Block)) {
    Block block;  // a copy: `row` may be unaligned
    std::memcpy(&block, row, sizeof block);
    // Where the compiler knows what run it is, a run of 16 has one scale and one nibble.
#pragma GCC unroll 16
    for (std::uint32_t first = 0; first < kElements; first += kRun) {
      for (std::uint32_t i = 0; i < kRun; ++i) out[first + i] = element_of(block, first + i);
    }
  }
}

// Rounding differs between the two quantizers, as in the package.

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

/// A scale's fp16 bits. A NaN keeps its sign and the high bits of its payload, as in the package:
/// half_from_float() gives the one that a GPU gives.
std::uint16_t scale_bits(float d) {
  const std::uint32_t bits = bits_from_float(d);
  if (d == d) return half_from_float(d);
  return static_cast<std::uint16_t>((bits >> 16 & 0x8000u) | 0x7e00u | (bits >> 13 & 0x3ffu));
}

/// The extreme becomes exactly -8: the other end of the range is 7 steps away only. Halves round
/// up, since 8.5 is added and the fraction dropped.
BlockQ4_0 quantize_q4_0(const float* x) {
  const float d = extreme(x) / -8.0f;
  const float r = reciprocal(d);
  BlockQ4_0 block;
  block.d = scale_bits(d);
  for (int i = 0; i < 16; ++i) {
    const int low = std::min(to_int(x[i] * r + 8.5f), 15);
    const int high = std::min(to_int(x[i + 16] * r + 8.5f), 15);
    block.qs[i] = static_cast<std::uint8_t>(low | high << 4);
  }
  return block;
}

/// Halves round away from zero. Which NaN the package's maximum keeps depends on the
/// processor's vectors: here it is none.
BlockQ8_0 quantize_q8_0(const float* x) {
  const float most = std::fabs(extreme(x));
  const float d = most == most ? most / 127.0f : float_from_bits(kNanBits);
  const float r = reciprocal(d);
  BlockQ8_0 block;
  block.d = scale_bits(d);
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
  return visit_blocks(type, nullptr, [](const auto* blocks) -> BlockShape {
    using Block = std::decay_t<decltype(*blocks)>;
    return {kBlockElements<Block>, sizeof(Block)};
  });
}

std::uint64_t row_bytes(TensorType type, std::uint64_t n) {
  const auto [elements, bytes] = block_shape(type);
  return n / elements * bytes;
}

void dequantize_row(TensorType type, const std::byte* row, std::uint64_t n, float* out) {
  visit_blocks(type, row, [&](const auto* blocks) {
    dequantize_blocks<std::decay_t<decltype(*blocks)>>(row, n, out);
  });
}

void quantize_row(TensorType type, const float* x, std::uint64_t n, std::byte* row) {
  if (type == TensorType::kQ4_0) return quantize_blocks<BlockQ4_0>(x, n, row, quantize_q4_0);
  if (type == TensorType::kQ8_0) return quantize_blocks<BlockQ8_0>(x, n, row, quantize_q8_0);
  throw std::invalid_argument(std::string("quantize_row: ") + type_name(type) +
                              ", expected Q4_0 or Q8_0");
}

}  // namespace minfer
