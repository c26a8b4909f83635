// SPDX-License-Identifier: MIT
//
// The lm_head: a quarter of the 1.5B's bytes in one matrix, in the format that LMHEAD names.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include <minfer/gguf/quant.h>

#include "gemv.cuh"

namespace minfer {

/// d = max |x| / 32512 over each run of 32, q = x / d rounded to nearest, half to even: an int16 as
/// two int8, q = 256 * high + low.
/// @pre n % 32 == 0
/// @why With int8 activations the head overturns 3 of 1174 predictions, all near ties, with these
/// none. A step 256 times finer costs no byte of W. 32512 is 127 * 256: above 32639 a value's high
/// byte is no int8.
__global__ void quantize_int16(std::int8_t* q,  ///< out [T, n/4, 2, 4], as Int16Vector has it
                               float* d,        ///< out [T, n/32]
                               const float* x,  ///< [T, n]
                               std::uint32_t n) {
  constexpr std::int32_t kLargest = 127 * 256;
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;  // the whole warp
  const std::uint32_t first = blockIdx.y * n, at = first + i;
  const float scale = warp_max(fabsf(x[at])) / static_cast<float>(kLargest);
  const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
  const std::int32_t value = round_half_even_to_int(x[at] * inverse, -kLargest, kLargest);
  const auto low = static_cast<std::int8_t>(value);
  std::int8_t* word = q + 2 * first + 8 * interleaved_word(i / 32, i % 32 / 4, n / 32);
  word[i % 4] = static_cast<std::int8_t>((value - low) / 256);
  word[i % 4 + 4] = low;
  const bool has_nan = __any_sync(0xffffffffu, x[at] != x[at]);  // as in quantize
  if (i % 32 == 0) d[at / 32] = has_nan ? NAN : scale;
}

inline void launch_quantize_int16(const Step& s, const Int16Vector& y, const float* x,
                                  std::uint32_t n) {
  launch(quantize_int16, thread_a_value(n, s), kThreads, 0,
         Traffic{s.n_tokens * (6ull * n + n / 8)}, s.stream, y.q, y.d, x, n);
}

/// y[t] = W x[t] with W in int8 and x in int16, one warp a row, a lane a block.
/// @pre K % 32 == 0
/// @why Nothing is unpacked, and what a warp loads lies together: a word of W each, 128 bytes, and
/// the two of x that it meets. Were a row's blocks one after the other, such a load would touch 1024
/// bytes to use an eighth of them. On an H200 the 1.5B's head takes 71 us, as Q6_K in fp32 397.
__global__ void gemv_q8_0(float* y,                  ///< out [T, M]
                          const std::int8_t* W_q,    ///< [M, K], as MatrixQ8_0 has it
                          const std::uint16_t* W_d,  ///< [M, K/32] fp16
                          const std::int8_t* x_q,    ///< [T, K/4, 2, 4], as Int16Vector has it
                          const float* x_d,          ///< [T, K/32]
                          std::uint32_t M, std::uint32_t K) {
  const std::uint32_t m = blockIdx.x * kWarps + threadIdx.x / 32, t = blockIdx.y;
  const std::uint32_t lane = threadIdx.x % 32;
  if (m >= M) return;  // the whole warp
  const int* row = reinterpret_cast<const int*>(W_q + std::size_t(m) * K);
  const int2* x = reinterpret_cast<const int2*>(x_q + t * 2 * K);
  x_d += t * (K / 32);
  float sum = 0;
  for (std::uint32_t b = lane; b < K / 32; b += 32) {
    int high = 0, low = 0;
    for (std::uint32_t i = 0; i < 8; ++i) {
      const std::uint32_t word = interleaved_word(b, i, K / 32);
      high = __dp4a(row[word], x[word].x, high);
      low = __dp4a(row[word], x[word].y, low);
    }
    const float d = float_from_half(W_d[std::size_t(m) * (K / 32) + b]);
    sum = fmaf(d * x_d[b], static_cast<float>(256 * high + low), sum);
  }
  sum = warp_sum(sum);
  if (lane == 0) y[t * M + m] = sum;
}

inline void launch_gemv_q8_0(const Step& s, float* y, const MatrixQ8_0& W, const Int16Vector& x) {
  const std::uint64_t K = W.cols;
  launch(gemv_q8_0, warp_a_row(W.rows, s), kThreads, 0,
         Traffic{W.bytes() + s.n_tokens * (2 * K + K / 8 + 4ull * W.rows)}, s.stream, y, W.q, W.d,
         x.q, x.d, W.rows, W.cols);
}

/// The lm_head in one of its formats.
class Head {
 public:
  virtual ~Head() = default;
  /// logits[t] = W x[t]. @param x  [T, d_model]
  virtual void launch(const Step& s, float* logits, const float* x) const = 0;
  /// That a step reads.
  virtual std::uint64_t bytes() const = 0;
};

/// LMHEAD=0: the file's head, in fp32.
class HeadOfFile final : public Head {
 public:
  HeadOfFile(Arena& arena, const Model& model, const Matrix& token_embedding)
      : w_(model.tied() ? model.lm_head() : upload(arena, model, model.lm_head())) {
    if (model.tied()) w_.data = token_embedding.data;
  }
  void launch(const Step& s, float* logits, const float* x) const override {
    launch_gemv(s, logits, w_, x);
  }
  std::uint64_t bytes() const override { return w_.bytes(); }

 private:
  Matrix w_;
};

/// LMHEAD=8: requantized to Q8_0, with int16 activations.
class HeadQ8_0 final : public Head {
 public:
  HeadQ8_0(Arena& arena, const Model& model)
      : w_{model.lm_head().rows, model.lm_head().cols,
           arena.take<std::int8_t>(model.lm_head().rows, model.lm_head().cols),
           arena.take<std::uint16_t>(model.lm_head().rows, model.lm_head().cols / 32)},
        x_{arena.take<std::int8_t>(kMaxTokens, 2 * w_.cols),
           arena.take<float>(kMaxTokens, w_.cols / 32)} {
    if (!arena.is_placed()) return;
    fill(model.lm_head());
    if (model.lm_head().tensor) model.file().release(*model.lm_head().tensor);
  }
  void launch(const Step& s, float* logits, const float* x) const override {
    launch_quantize_int16(s, x_, x, w_.cols);
    launch_gemv_q8_0(s, logits, w_, x_);
  }
  std::uint64_t bytes() const override { return w_.bytes(); }

 private:
  void fill(const Matrix& head) {
    constexpr std::uint32_t kRows = 256;  // at a time
    const std::uint32_t cols = w_.cols, n_blocks = cols / 32;
    std::vector<float> values(cols);
    std::vector<BlockQ8_0> blocks(n_blocks);
    std::vector<std::int8_t> q(std::size_t(kRows) * cols);
    std::vector<std::uint16_t> d(std::size_t(kRows) * n_blocks);
    for (std::uint32_t first = 0; first < w_.rows; first += kRows) {
      const std::uint32_t n = std::min(kRows, w_.rows - first);
      for (std::uint32_t r = 0; r < n; ++r) {
        const std::byte* row = head.data + (first + r) * row_bytes(head.type, cols);
        if (head.type == TensorType::kQ8_0) {
          std::memcpy(blocks.data(), row, n_blocks * sizeof(BlockQ8_0));
        } else {
          dequantize_row(head.type, row, cols, values.data());
          quantize_row(TensorType::kQ8_0, values.data(), cols,
                       reinterpret_cast<std::byte*>(blocks.data()));
        }
        for (std::uint32_t b = 0; b < n_blocks; ++b) {
          for (std::uint32_t i = 0; i < 8; ++i) {
            const std::size_t word = interleaved_word(b, i, n_blocks);
            std::memcpy(&q[std::size_t(r) * cols + 4 * word], blocks[b].qs + 4 * i, 4);
          }
          d[std::size_t(r) * n_blocks + b] = blocks[b].d;
        }
      }
      const auto copy = [](void* to, const void* from, std::size_t bytes) {
        CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
      };
      copy(w_.q + std::size_t(first) * cols, q.data(), std::size_t(n) * cols);
      copy(w_.d + std::size_t(first) * n_blocks, d.data(), std::size_t(n) * n_blocks * sizeof d[0]);
    }
  }

  MatrixQ8_0 w_;
  Int16Vector x_;
};

inline EngineOption head_option() {
  return {"LMHEAD", {0, 8}, "lm_head: 0 the file's, in fp32; 8 Q8_0 (default)"};
}

/// @param token_embedding  on the device: what a tied head is
inline std::unique_ptr<Head> make_head(Arena& arena, const Model& model,
                                       const Matrix& token_embedding, int format) {
  if (format == 0) return std::make_unique<HeadOfFile>(arena, model, token_embedding);
  return std::make_unique<HeadQ8_0>(arena, model);
}

}  // namespace minfer
