// SPDX-License-Identifier: MIT
//
// The model's operations once more, in double, written from the papers' formulas and not from the
// oracle: what the oracle is checked against. Slow and short.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include <minfer/gguf/model.h>
#include <minfer/gguf/quant.h>

namespace minfer::test {

using Vec = std::vector<double>;

/// Numbers that are the same everywhere: SplitMix64, which is addressed by a counter.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// Uniform in [-scale, scale), with 24 bits.
  float number(float scale = 1) {
    return scale * (static_cast<float>(next() >> 40) * 0x1p-23f - 1.0f);
  }
  std::vector<float> numbers(std::size_t n, float scale = 1) {
    std::vector<float> values(n);
    for (float& value : values) value = number(scale);
    return values;
  }

 private:
  std::uint64_t state_;
};

inline Vec as_double(const float* x, std::size_t n) {
  return Vec(x, x + n);
}

/// The matrix's values, [rows * cols].
inline std::vector<float> dequantized(const Matrix& w) {
  std::vector<float> values(std::size_t{w.rows} * w.cols);
  for (std::size_t r = 0; r < w.rows; ++r) {
    dequantize_row(w.type, w.data + r * row_bytes(w.type, w.cols), w.cols, &values[r * w.cols]);
  }
  return values;
}

inline Vec plain_gemv(const Matrix& w, const float* bias, const Vec& x) {
  const std::vector<float> values = dequantized(w);
  Vec y(w.rows);
  for (std::size_t r = 0; r < w.rows; ++r) {
    for (std::size_t k = 0; k < w.cols; ++k) y[r] += values[r * w.cols + k] * x[k];
    if (bias) y[r] += bias[r];
  }
  return y;
}

inline Vec plain_rmsnorm(const Vec& x, const float* weight, double eps) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  Vec y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    y[i] = x[i] / std::sqrt(squares / static_cast<double>(x.size()) + eps) * weight[i];
  }
  return y;
}

/// Turns pairs (i, i + head_dim/2) of each head as complex numbers.
inline void plain_rope(Vec& x, std::size_t head_dim, double base, double position) {
  for (std::size_t h = 0; h < x.size(); h += head_dim) {
    for (std::size_t i = 0; i < head_dim / 2; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
      const double angle = position * std::pow(base, exponent);
      const double re = x[h + i], im = x[h + i + head_dim / 2];
      x[h + i] = re * std::cos(angle) - im * std::sin(angle);
      x[h + i + head_dim / 2] = re * std::sin(angle) + im * std::cos(angle);
    }
  }
}

/// One token's attention over keys[s], values[s], s from 0 to its own position.
inline Vec plain_attention(const Vec& q, const std::vector<Vec>& keys,
                           const std::vector<Vec>& values, std::size_t n_heads,
                           std::size_t n_kv_heads, std::size_t head_dim) {
  Vec y(q.size());
  for (std::size_t h = 0; h < n_heads; ++h) {
    const std::size_t kv = h / (n_heads / n_kv_heads) * head_dim;
    Vec p(keys.size());
    double total = 0;
    for (std::size_t s = 0; s < keys.size(); ++s) {
      double score = 0;
      for (std::size_t i = 0; i < head_dim; ++i) score += q[h * head_dim + i] * keys[s][kv + i];
      p[s] = std::exp(score / std::sqrt(static_cast<double>(head_dim)));
      total += p[s];
    }
    for (std::size_t s = 0; s < keys.size(); ++s) {
      for (std::size_t i = 0; i < head_dim; ++i) {
        y[h * head_dim + i] += p[s] / total * values[s][kv + i];
      }
    }
  }
  return y;
}

inline double plain_silu(double x) {
  return x / (1 + std::exp(-x));
}

/// The logits of every position, by the plain operations, one token after the other.
inline std::vector<Vec> plain_logits(const Model& model, const std::vector<std::int32_t>& ids) {
  const ModelConfig& c = model.config();
  const std::vector<float> embedding = dequantized(model.token_embedding());
  std::vector<std::vector<Vec>> keys(c.n_layers), values(c.n_layers);
  std::vector<Vec> logits;
  for (std::size_t position = 0; position < ids.size(); ++position) {
    Vec x = as_double(&embedding[static_cast<std::size_t>(ids[position]) * c.d_model], c.d_model);
    for (std::size_t l = 0; l < c.n_layers; ++l) {
      const LayerWeights& w = model.layers()[l];
      const Vec h = plain_rmsnorm(x, w.attn_norm, c.rms_eps);
      Vec q = plain_gemv(w.w_q, w.b_q, h), k = plain_gemv(w.w_k, w.b_k, h);
      plain_rope(q, c.head_dim, c.rope_base, static_cast<double>(position));
      plain_rope(k, c.head_dim, c.rope_base, static_cast<double>(position));
      keys[l].push_back(k);
      values[l].push_back(plain_gemv(w.w_v, w.b_v, h));
      const Vec heads = plain_attention(q, keys[l], values[l], c.n_heads, c.n_kv_heads, c.head_dim);
      const Vec out = plain_gemv(w.w_o, nullptr, heads);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] += out[i];
      const Vec g = plain_rmsnorm(x, w.ffn_norm, c.rms_eps);
      Vec gate = plain_gemv(w.w_gate, nullptr, g);
      const Vec up = plain_gemv(w.w_up, nullptr, g);
      for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = plain_silu(gate[i]) * up[i];
      const Vec down = plain_gemv(w.w_down, nullptr, gate);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] += down[i];
    }
    Vec row =
        plain_gemv(model.lm_head(), nullptr, plain_rmsnorm(x, model.output_norm(), c.rms_eps));
    row.resize(c.n_tokens);
    logits.push_back(row);
  }
  return logits;
}

}  // namespace minfer::test
