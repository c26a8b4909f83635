// SPDX-License-Identifier: MIT
#include "oracle/ops.h"

#include <cmath>
#include <vector>

#include <minfer/gguf/quant.h>
#include <minfer/math.h>

#include "oracle/lanes.h"

namespace minfer::oracle {

void embed(const Matrix& table, Span<const Token> ids, float* y) {
  const std::uint64_t bytes = row_bytes(table.type, table.cols);
  for (std::size_t t = 0; t < ids.size(); ++t) {
    const std::byte* row = table.data + static_cast<std::uint64_t>(ids[t]) * bytes;
    dequantize_row(table.type, row, table.cols, y + t * table.cols);
  }
}

void rmsnorm(const float* x, const float* weight, float eps, std::size_t n_tokens, std::size_t n,
             float* y) {
  for (std::size_t t = 0; t < n_tokens; ++t, x += n, y += n) {
    const float mean = dot(x, x, n) / static_cast<float>(n);
    const float scale = 1.0f / std::sqrt(mean + eps);
    for (std::size_t i = 0; i < n; ++i) y[i] = x[i] * scale * weight[i];
  }
}

void rope(float* x, const RopeTable& table, std::uint32_t first_position, std::size_t n_tokens,
          std::size_t n_heads) {
  const std::size_t half = table.head_dim() / 2;
  for (std::size_t t = 0; t < n_tokens; ++t) {
    const float* cos = table.cos(first_position + t);
    const float* sin = table.sin(first_position + t);
    for (std::size_t h = 0; h < n_heads; ++h, x += 2 * half) {
      for (std::size_t i = 0; i < half; ++i) {
        const float a = x[i];
        const float b = x[i + half];
        x[i] = a * cos[i] - b * sin[i];
        x[i + half] = a * sin[i] + b * cos[i];
      }
    }
  }
}

void softmax(float* p, std::size_t n) {
  float max = p[0];
  for (std::size_t i = 1; i < n; ++i) max = max_f32(max, p[i]);
  for (std::size_t i = 0; i < n; ++i) p[i] = exp_f32(p[i] - max);
  const float total = sum(p, n);
  for (std::size_t i = 0; i < n; ++i) p[i] /= total;
}

namespace {

/// y[d] = sum_s p[s] v[s][d] over s < n in ascending order, fused.
/// @param[in] v n rows of head_dim floats, `stride` floats apart
void weighted_sum(const float* p, const float* v, std::size_t n, std::size_t stride,
                  std::size_t head_dim, float* y) {
  std::size_t d = 0;
  for (; d + kLanes <= head_dim; d += kLanes) {
    F32x8 sums[4] = {broadcast(0), broadcast(0), broadcast(0), broadcast(0)};
    for (std::size_t s = 0; s < n; ++s) {
      const F32x8 weight = broadcast(p[s]);
      for (int j = 0; j < 4; ++j) sums[j] = fma(weight, load(v + s * stride + d + 8 * j), sums[j]);
    }
    for (int j = 0; j < 4; ++j) store(y + d + 8 * j, sums[j]);
  }
  for (; d < head_dim; ++d) {
    y[d] = 0;
    for (std::size_t s = 0; s < n; ++s) y[d] = std::fmaf(p[s], v[s * stride + d], y[d]);
  }
}

}  // namespace

void attention(const AttentionShape& shape, const float* q, const float* k_cache,
               const float* v_cache, std::uint32_t first_position, std::size_t n_tokens, float* y,
               ThreadPool& pool) {
  const std::size_t d = shape.head_dim;
  const std::size_t group = shape.group();
  const std::size_t stride = shape.d_kv();  // from one position to the next
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));

  pool.parallel_for(n_tokens * shape.n_heads, 1, [&](std::size_t begin, std::size_t end) {
    std::vector<float> p(first_position + n_tokens);
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t t = i / shape.n_heads;
      const std::size_t kv_head = i % shape.n_heads / group;
      const std::size_t n = first_position + t + 1;  // causal: itself and everything before
      const float* k = k_cache + kv_head * d;
      const float* v = v_cache + kv_head * d;
      for (std::size_t s = 0; s < n; ++s) p[s] = dot(q + i * d, k + s * stride, d) * scale;
      softmax(p.data(), n);
      weighted_sum(p.data(), v, n, stride, d, y + i * d);
    }
  });
}

void swiglu(const float* gate, const float* up, std::size_t n, float* y) {
  for (std::size_t i = 0; i < n; ++i) y[i] = silu_f32(gate[i]) * up[i];
}

void add(float* x, const float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] += y[i];
}

}  // namespace minfer::oracle
