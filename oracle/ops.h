// SPDX-License-Identifier: MIT
//
// The model's operations in fp32 on the CPU: the definition that every kernel is checked against,
// each under the kernel's name.
//
// Activations are dense and row-major, one row a token: x is [T, n] for a batch of T tokens. A
// token's result has the same bits in any batch, with any number of threads and on every machine,
// because each value is summed in the order of dot() (oracle/lanes.h) and no token sees another but
// through the KV cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include <minfer/argmax.h>
#include <minfer/gguf/model.h>
#include <minfer/rope.h>
#include <minfer/span.h>
#include <minfer/threads.h>

namespace minfer::oracle {

/// y[t] = table[ids[t]]: the embedding rows, dequantized.
/// @param[in]  table [n_vocab, d] any type that quant.h reads
/// @param[out] y     [T, d] f32
/// @pre every id is a row of the table
void embed(const Matrix& table, Span<const Token> ids, float* y);

/// y[t][i] = x[t][i] / sqrt(mean(x[t]^2) + eps) * weight[i].
/// @param[in]  x      [T, n] f32
/// @param[in]  weight [n] f32
/// @param[out] y      [T, n] f32; may be x
void rmsnorm(const float* x, const float* weight, float eps, std::size_t n_tokens, std::size_t n,
             float* y);

/// y[t] = W x[t] (+ bias), weights dequantized on the fly: for one token as a matrix-vector
/// product, for several as a matrix product that dequantizes each row once. Both sum a row as dot()
/// does.
/// @param[in]  w    [M, K] any type that quant.h reads, K % 32 == 0
/// @param[in]  bias [M] f32, added last; may be null
/// @param[in]  x    [T, K] f32
/// @param[out] y    [T, M] f32
void gemv(const Matrix& w, const float* bias, const float* x, std::size_t n_tokens, float* y,
          ThreadPool& pool);

/// Rotary position embedding in place, NEOX pairing: element i turns with element i + head_dim/2 by
/// the angle position * base^(-2i/head_dim).
/// @param[in,out] x [T, n_heads, head_dim] f32; token t stands at position first_position + t
void rope(float* x, const RopeTable& table, std::uint32_t first_position, std::size_t n_tokens,
          std::size_t n_heads);

/// Causal grouped-query attention: y[t][h] = sum_s p[s] v[s][h / group], s <= first_position + t,
/// with p = softmax(q[t][h] . k[s][h / group] / sqrt(head_dim)).
/// @param[in]  q       [T, n_heads, head_dim] f32, rotated
/// @param[in]  k_cache [>= first_position + T, n_kv_heads, head_dim] f32, rotated
/// @param[in]  v_cache same shape
/// @param[out] y       [T, n_heads, head_dim] f32
void attention(const AttentionShape& shape, const float* q, const float* k_cache,
               const float* v_cache, std::uint32_t first_position, std::size_t n_tokens, float* y,
               ThreadPool& pool);

/// p[i] = e^(p[i] - max) / sum over i < n, in place.
/// @param[in,out] p [n] f32, n > 0
void softmax(float* p, std::size_t n);

/// y[i] = silu(gate[i]) * up[i], silu(x) = x / (1 + e^-x).
/// @param[out] y [n] f32; may be gate or up
void swiglu(const float* gate, const float* up, std::size_t n, float* y);

/// x[i] += y[i]: the residual connection.
void add(float* x, const float* y, std::size_t n);

/// The prediction: largest logit, lowest id among equals, lead over the second (minfer/argmax.h).
using minfer::argmax;

}  // namespace minfer::oracle
