// SPDX-License-Identifier: MIT
//
// What the kernel is given: pointers to device memory.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <minfer/engine.h>
#include <minfer/gguf/quant.h>
#include <minfer/token.h>

#include "cuda/reduce.h"
#include "quantize.cuh"
#include "ring.cuh"

namespace minfer {

/// The embedding, as it is in the file.
struct Table {
  TensorType type;
  const std::byte* data;

  /// Value i of a row of n.
  __device__ float value(Token row, std::uint32_t i, std::uint32_t n) const {
    const std::uint64_t first = static_cast<std::uint64_t>(row) * n;
    switch (type) {
      case TensorType::kF32:
        return of<float>(first, i);
      case TensorType::kF16:
        return of<F16>(first, i);
      case TensorType::kBF16:
        return of<BF16>(first, i);
      case TensorType::kQ4_0:
        return of<BlockQ4_0>(first, i);
      case TensorType::kQ4_1:
        return of<BlockQ4_1>(first, i);
      case TensorType::kQ5_0:
        return of<BlockQ5_0>(first, i);
      case TensorType::kQ8_0:
        return of<BlockQ8_0>(first, i);
      case TensorType::kQ4_K:
        return of<BlockQ4_K>(first, i);
      case TensorType::kQ6_K:
        return of<BlockQ6_K>(first, i);
    }
    return NAN;
  }

 private:
  template <class Block>
  __device__ float of(std::uint64_t first, std::uint32_t i) const {
    return element(reinterpret_cast<const Block*>(data) + first / kBlockElements<Block>, i);
  }
};

/// What attention to some positions leaves: with other positions' it makes the whole.
/// @why A softmax over all positions is a sum of those over some, each weighted by how far its
/// largest score is below the largest of all.
struct Partials {
  float* output;         ///< [T, n_heads, chunks, head_dim], not yet divided
  float* max;            ///< [T, n_heads, chunks], the largest score
  float* total;          ///< [T, n_heads, chunks], of the weights
  std::uint32_t* done;   ///< [T, n_heads] chunks that have left theirs: 0 between layers
  std::uint32_t chunks;  ///< of the whole context
};

/// What does not change: weights and tables.
struct DeviceModel {
  PackedWeights packed;
  Table embedding;           ///< [n_vocab, d_model]
  const float* attn_norm;    ///< [n_layers, d_model]
  const float* bias;         ///< [n_layers, d_q + 2 d_kv]
  const float* ffn_norm;     ///< [n_layers, d_model]
  const float* output_norm;  ///< [d_model]
  const float* cosines;      ///< [context, head_dim/2]
  const float* sines;        ///< [context, head_dim/2]
  std::uint32_t n_layers, n_tokens, context;
  float eps;
};

/// What a step writes. T is kMaxTokens; a step of one token has the first of each.
template <class S>
struct Workspace {
  float* x;  ///< [T, d_model], the residual stream
  float* q;  ///< [T, d_q]
  float* k;  ///< [n_layers, context, d_kv], rotated
  float* v;  ///< [n_layers, context, d_kv]
  Partials partials;
  Int8<S::kQ>* attended;               ///< [1]
  Int8<S::kFf>* hidden;                ///< [1]
  Int8Tokens<S::kQ>* attended_tokens;  ///< [1], in steps of several tokens
  Int8Tokens<S::kFf>* hidden_tokens;   ///< [1]
  float* logits;                       ///< [T, n_tokens]
  Top2* best;                          ///< [CTAs, T], in steps of one token [CTAs]
  unsigned* arrived;                   ///< [1], of the grid's barrier
  unsigned* stops;                     ///< [1], what the first CTA has seen of Request::stop
};

/// A prediction in transit to the host, all at once; kNothing until it is there.
inline constexpr std::uint64_t kNothing =
    ~std::uint64_t{0} - 1;  // the id -2, of which there is none
__device__ inline std::uint64_t packed(Token id, float margin) {
  return static_cast<std::uint64_t>(bits_from_float(margin)) << 32 | static_cast<std::uint32_t>(id);
}

/// What is to be done: steps of a token each, or of several that are all given. The first take the
/// tokens that are given, those behind them what the one before has predicted.
struct Request {
  const Token* given;  ///< [n_given]
  std::uint32_t n_given, n_steps;
  std::uint32_t step_tokens;      ///< of each step but the last, which may have fewer
  std::uint32_t first_predicted;  ///< the first token behind which there is a prediction
  std::uint32_t position;         ///< of the first step
  bool keeps_logits;              ///< of the last step
  std::uint64_t* predictions;     ///< out, from the first predicted on, the host's memory
  const unsigned* stop;           ///< [1], the host's memory: not 0, and no step follows
};

}  // namespace minfer
