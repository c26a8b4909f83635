// SPDX-License-Identifier: MIT
#include "engine.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include <minfer/error.h>
#include <minfer/rope.h>

#include "cuda/allocate.h"
#include "cuda/check.h"
#include "cuda/device.h"
#include "cuda/step_cost.h"
#include "kernels.cuh"

namespace minfer {
namespace {

/// Calls f(pointer, bytes, tensor) for every array of the weights; tensor is null for a vector and
/// for what was requantized in memory. A tied head is no array of its own.
template <class F>
void for_each_array(DeviceWeights& w, const ModelConfig& c, F f) {
  const auto matrix = [&](Matrix& m) { f(m.data, m.bytes(), m.tensor); };
  const auto vector = [&](const float*& v, std::uint64_t n) { f(v, 4 * n, nullptr); };
  matrix(w.token_embedding);
  for (LayerWeights& layer : w.layers) {
    vector(layer.attn_norm, c.d_model);
    matrix(layer.w_q);
    matrix(layer.w_k);
    matrix(layer.w_v);
    vector(layer.b_q, c.d_q());
    vector(layer.b_k, c.d_kv());
    vector(layer.b_v, c.d_kv());
    matrix(layer.w_o);
    vector(layer.ffn_norm, c.d_model);
    matrix(layer.w_gate);
    matrix(layer.w_up);
    matrix(layer.w_down);
  }
  vector(w.output_norm, c.d_model);
  if (w.lm_head_q8_0.rows > 0) {
    const std::uint64_t n = std::uint64_t(w.lm_head_q8_0.rows) * w.lm_head_q8_0.cols;
    f(w.lm_head_q8_0.q, n, nullptr);
    f(w.lm_head_q8_0.d, n / 32 * 2, nullptr);
  } else if (!w.tied) {
    matrix(w.lm_head);
  }
}

/// Calls f(pointer, elements) for every array of the workspace.
template <class F>
void for_each_array(Workspace& w, const ModelConfig& c, std::uint64_t context, F f) {
  f(w.cosines, context * c.head_dim / 2);
  f(w.sines, context * c.head_dim / 2);
  f(w.k_cache, c.n_layers * context * c.d_kv());
  f(w.v_cache, c.n_layers * context * c.d_kv());
  f(w.x, c.d_model);
  f(w.normed, c.d_model);
  f(w.q, c.d_q());
  f(w.k, c.d_kv());
  f(w.v, c.d_kv());
  f(w.scores, c.n_heads * context);
  f(w.attended, c.d_q());
  f(w.gate, c.d_ff);
  f(w.up, c.d_ff);
  f(w.projected, c.d_model);
  const std::uint64_t longest = std::max({c.d_model, c.d_q(), c.d_ff});
  f(w.quantized.q, longest);
  f(w.quantized.d, longest / 32);
  f(w.head_input.q, 2 * c.d_model);
  f(w.head_input.d, c.d_model / 32);
  f(w.logits, c.n_tokens);
  f(w.prediction, 1);
  f(w.ids, context + 1);
  f(w.position, 1);
}

/// Every allocation and every array of the arena begins on such a boundary.
constexpr std::uint64_t kAlignment = 256;

constexpr std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// @throws FileError unless heads are of a size that the attention kernels are written for
void check_head_dim(const Model& model) {
  const std::uint32_t head_dim = model.config().head_dim;
  if (head_dim == 32 || head_dim == 64 || head_dim == 128) return;
  throw FileError(model.file().path(),
                  "head_dim is " + std::to_string(head_dim) + ", expected 32, 64 or 128");
}

/// @throws std::runtime_error with both numbers when the GPU has less memory than is needed
void check_memory(std::uint64_t needed, std::uint32_t context) {
  // Where GPU and CPU share memory, what is not free may be the page cache, which gives way.
  const DeviceMemory memory = DeviceMemory::current();
  const std::uint64_t available = Device::current().is_integrated ? memory.total : memory.free;
  if (needed <= available) return;
  throw std::runtime_error("GPU memory: the model with a context of " + std::to_string(context) +
                           " tokens needs " + mebibytes(needed) + ", but the GPU has " +
                           mebibytes(available) + " (a smaller context needs less: -c)");
}

/// What the kernels of one step move. @param n positions, the step's included
StepTraffic step_traffic(const DeviceWeights& weights, const ModelConfig& c, std::uint64_t n) {
  const AttentionShape shape = {c.n_heads, c.n_kv_heads, c.head_dim, c.context_length};
  StepTraffic t;
  const Matrix& table = weights.token_embedding;
  t.add(kernel_of_blocks("embed", table.type),
        embed_traffic(row_bytes(table.type, table.cols), table.cols));
  for (const LayerWeights& w : weights.layers) {
    t.add("rmsnorm", rmsnorm_traffic(c.d_model), 2);
    for (const Matrix* W : {&w.w_q, &w.w_k, &w.w_v, &w.w_o, &w.w_gate, &w.w_up, &w.w_down}) {
      t.add("gemv_q4_0", gemv_q4_0_traffic(W->rows, W->cols));
    }
    t.add("quantize", quantize_traffic(c.d_model), 2);
    t.add("quantize", quantize_traffic(c.d_q()));
    t.add("quantize", quantize_traffic(c.d_ff));
    t.add("add", add_traffic(c.d_q()));
    t.add("add", add_traffic(c.d_kv()), 2);
    t.add("add", add_traffic(c.d_model), 2);
    t.add("rope", rope_traffic(c.n_heads, c.head_dim));
    t.add("rope", rope_traffic(c.n_kv_heads, c.head_dim));
    t.add("append_kv", append_kv_traffic(c.d_kv()));
    t.add("attention", attention_traffic(shape, n));
    t.add("swiglu", swiglu_traffic(c.d_ff));
  }
  t.add("advance", advance_traffic());
  t.add("rmsnorm", rmsnorm_traffic(c.d_model));
  const Matrix& head = weights.lm_head;
  if (weights.lm_head_q8_0.rows > 0) {
    t.add("quantize_int16", quantize_int16_traffic(head.cols));
    t.add("gemv_q8_0", gemv_q8_0_traffic(head.rows, head.cols));
  } else {
    t.add(kernel_of_blocks("gemv", head.type), gemv_traffic(head.bytes(), head.rows, head.cols));
  }
  t.add("argmax", argmax_traffic(c.n_tokens));
  return t;
}

}  // namespace

EngineInfo engine_info() {
  EngineInfo info;
  info.name = MINFER_PROGRAM;
  info.options = {{"LMHEAD", {0, 8}, "the lm_head: 0 the file's, in fp32; 8 Q8_0, in integers"}};
  info.requantizes = true;
  return info;
}

std::unique_ptr<Engine> make_engine(const Model& model, const EngineOptions& options) {
  return std::make_unique<GpuEngine>(model, options);
}

GpuEngine::GpuEngine(const Model& model, const EngineOptions& options)
    : config_(model.config()), context_(options.context), weight_bytes_(model.bytes_per_token()) {
  check_head_dim(model);
  weights_.token_embedding = model.token_embedding();
  weights_.layers = model.layers();
  weights_.output_norm = model.output_norm();
  weights_.lm_head = model.lm_head();
  weights_.lm_head.rows = config_.n_tokens;
  weights_.tied = model.tied();

  if (options.value("LMHEAD", 8) == 8) {
    weights_.lm_head_q8_0.rows = config_.n_tokens;
    weights_.lm_head_q8_0.cols = config_.d_model;
    weight_bytes_ += row_bytes(TensorType::kQ8_0, config_.d_model) * config_.n_tokens;
    weight_bytes_ -= weights_.lm_head.bytes();
  }
  allocate();
  upload(model);
  truncate(0);

  consume_ = Graph::capture(stream_, [&] { forward(); });
  decode_ = Graph::capture(stream_, [&] {
    forward();
    predict();
  });
}

void GpuEngine::allocate() {
  std::uint64_t weight_bytes = 0, workspace_bytes = 0;
  for_each_array(weights_, config_, [&](auto*&, std::uint64_t bytes, const Tensor*) {
    weight_bytes += aligned(bytes);
  });
  for_each_array(work_, config_, context_, [&](const auto* pointer, std::uint64_t n) {
    workspace_bytes += aligned(n * sizeof *pointer);
  });
  check_memory(weight_bytes + workspace_bytes, context_);

  weights_.arena = DeviceBuffer<std::byte>(weight_bytes);
  for_each_array(work_, config_, context_, [&](auto*& pointer, std::uint64_t n) {
    work_.storage.emplace_back(n * sizeof *pointer);
    pointer = reinterpret_cast<std::decay_t<decltype(pointer)>>(work_.storage.back().data());
  });
}

void GpuEngine::upload(const Model& model) {
  std::uint64_t offset = 0;
  for_each_array(weights_, config_, [&](auto*& pointer, std::uint64_t bytes, const Tensor* tensor) {
    std::byte* target = weights_.arena.data() + offset;
    if (pointer) to_device(target, reinterpret_cast<const std::byte*>(pointer), bytes);
    pointer = reinterpret_cast<std::decay_t<decltype(pointer)>>(target);
    if (tensor) model.file().release(*tensor);
    offset += aligned(bytes);
  });
  if (weights_.tied) weights_.lm_head.data = weights_.token_embedding.data;
  if (weights_.lm_head_q8_0.rows > 0) {
    upload_head(model.lm_head());
    if (model.lm_head().tensor) model.file().release(*model.lm_head().tensor);
  }
  const RopeTable table(config_.head_dim, config_.rope_base, context_);
  to_device(work_.cosines, table.cos_table().data(), table.cos_table().size());
  to_device(work_.sines, table.sin_table().data(), table.sin_table().size());
}

void GpuEngine::upload_head(const Matrix& head) {
  constexpr std::uint32_t kRows = 256;  // at a time
  const MatrixQ8_0& target = weights_.lm_head_q8_0;
  const std::uint32_t n_blocks = head.cols / 32;
  std::vector<float> values(head.cols);
  std::vector<BlockQ8_0> blocks(n_blocks);
  std::vector<std::int8_t> q(std::size_t(kRows) * head.cols);
  std::vector<std::uint16_t> d(std::size_t(kRows) * n_blocks);
  for (std::uint32_t first = 0; first < target.rows; first += kRows) {
    const std::uint32_t n = std::min(kRows, target.rows - first);
    for (std::uint32_t r = 0; r < n; ++r) {
      const std::byte* row = head.data + (first + r) * row_bytes(head.type, head.cols);
      if (head.type == TensorType::kQ8_0) {
        std::memcpy(blocks.data(), row, n_blocks * sizeof(BlockQ8_0));
      } else {
        dequantize_row(head.type, row, head.cols, values.data());
        quantize_row(TensorType::kQ8_0, values.data(), head.cols,
                     reinterpret_cast<std::byte*>(blocks.data()));
      }
      for (std::uint32_t b = 0; b < n_blocks; ++b) {
        for (std::uint32_t i = 0; i < 8; ++i) {
          const std::size_t word = interleaved_word(b, i, n_blocks);
          std::memcpy(&q[std::size_t(r) * head.cols + 4 * word], blocks[b].qs + 4 * i, 4);
        }
        d[std::size_t(r) * n_blocks + b] = blocks[b].d;
      }
    }
    to_device(target.q + std::size_t(first) * head.cols, q.data(), std::size_t(n) * head.cols);
    to_device(target.d + std::size_t(first) * n_blocks, d.data(), std::size_t(n) * n_blocks);
  }
}

template <class T>
void GpuEngine::to_device(T* device, const T* host, std::size_t n) {
  CUDA_CHECK(cudaMemcpyAsync(device, host, n * sizeof(T), cudaMemcpyHostToDevice, stream_));
  stream_.synchronize();
}

template <class T>
void GpuEngine::to_host(T* host, const T* device, std::size_t n) {
  CUDA_CHECK(cudaMemcpyAsync(host, device, n * sizeof(T), cudaMemcpyDeviceToHost, stream_));
  stream_.synchronize();
}

void GpuEngine::fetch_prediction() {
  to_host(&prediction_, work_.prediction, 1);
  if (prediction_.id < 0) throw std::runtime_error("the logits are not numbers: damaged weights?");
}

std::string GpuEngine::describe() const {
  return engine_info().name + " (" + Device::current().name + ")";
}

void GpuEngine::truncate(std::uint32_t position) {
  position_ = position;
  to_device(work_.position, &position_, 1);
}

void GpuEngine::step(const Graph& graph) {
  graph.launch(stream_);
  ++position_;
}

void GpuEngine::prefill(Span<const Token> ids) {
  to_device(work_.ids + position_, ids.data(), ids.size());
  for (std::size_t i = 1; i < ids.size(); ++i) step(consume_);
  step(decode_);
  fetch_prediction();
}

std::uint32_t GpuEngine::decode(std::uint32_t n, const TokenSink& sink) {
  for (std::uint32_t emitted = 0; emitted < n; ++emitted) {
    if (emitted > 0) {
      if (position_ == context_) return emitted;
      step(decode_);
      fetch_prediction();
    }
    if (!sink(prediction_.id)) return emitted + 1;
  }
  return n;
}

void GpuEngine::force(Span<const Token> ids, const LogitsSink& sink) {
  std::vector<float> logits(config_.n_tokens);
  for (const Token id : ids) {
    to_device(work_.ids + position_, &id, 1);
    step(decode_);
    fetch_prediction();
    to_host(logits.data(), work_.logits, logits.size());
    sink(position_ - 1, logits.data());
  }
}

std::uint64_t GpuEngine::bytes_per_token(std::uint32_t position) const {
  return weight_bytes_ + 8 * (position + std::uint64_t{1}) * config_.n_layers * config_.d_kv();
}

std::optional<StepCost> GpuEngine::time_kernels(std::uint32_t passes) {
  const std::uint32_t position = position_;
  const StepTraffic traffic = step_traffic(weights_, config_, position + 1);
  StepCost cost = time_step(stream_, passes, traffic, [&] {
    forward();
    predict();
  });
  truncate(position);
  return cost;
}

void GpuEngine::forward() {
  launch_embed(stream_, work_.x, weights_.token_embedding, work_.ids, work_.position);
  for (std::uint32_t layer = 0; layer < config_.n_layers; ++layer) {
    attention_block(weights_.layers[layer], layer);
    feed_forward_block(weights_.layers[layer]);
  }
  launch_advance(stream_, work_.position);
}

void GpuEngine::attention_block(const LayerWeights& w, std::uint32_t layer) {
  const ModelConfig& c = config_;
  const std::size_t cache = std::size_t(layer) * context_ * c.d_kv();
  const AttentionShape shape = {c.n_heads, c.n_kv_heads, c.head_dim, context_};

  launch_rmsnorm(stream_, work_.normed, work_.x, w.attn_norm, c.d_model, c.rms_eps);
  launch_quantize(stream_, work_.quantized, work_.normed, c.d_model);
  launch_gemv_q4_0(stream_, work_.q, w.w_q, work_.quantized);
  launch_gemv_q4_0(stream_, work_.k, w.w_k, work_.quantized);
  launch_gemv_q4_0(stream_, work_.v, w.w_v, work_.quantized);
  launch_add(stream_, work_.q, w.b_q, c.d_q());
  launch_add(stream_, work_.k, w.b_k, c.d_kv());
  launch_add(stream_, work_.v, w.b_v, c.d_kv());
  launch_rope(stream_, work_.q, work_.cosines, work_.sines, work_.position, c.n_heads, c.head_dim);
  launch_rope(stream_, work_.k, work_.cosines, work_.sines, work_.position, c.n_kv_heads,
              c.head_dim);
  launch_append_kv(stream_, work_.k_cache + cache, work_.v_cache + cache, work_.k, work_.v,
                   work_.position, c.d_kv());
  launch_attention(stream_, work_.attended, work_.scores, work_.q, work_.k_cache + cache,
                   work_.v_cache + cache, work_.position, shape);
  launch_quantize(stream_, work_.quantized, work_.attended, c.d_q());
  launch_gemv_q4_0(stream_, work_.projected, w.w_o, work_.quantized);
  launch_add(stream_, work_.x, work_.projected, c.d_model);
}

void GpuEngine::feed_forward_block(const LayerWeights& w) {
  const ModelConfig& c = config_;
  launch_rmsnorm(stream_, work_.normed, work_.x, w.ffn_norm, c.d_model, c.rms_eps);
  launch_quantize(stream_, work_.quantized, work_.normed, c.d_model);
  launch_gemv_q4_0(stream_, work_.gate, w.w_gate, work_.quantized);
  launch_gemv_q4_0(stream_, work_.up, w.w_up, work_.quantized);
  launch_swiglu(stream_, work_.gate, work_.up, c.d_ff);
  launch_quantize(stream_, work_.quantized, work_.gate, c.d_ff);
  launch_gemv_q4_0(stream_, work_.projected, w.w_down, work_.quantized);
  launch_add(stream_, work_.x, work_.projected, c.d_model);
}

void GpuEngine::predict() {
  launch_rmsnorm(stream_, work_.normed, work_.x, weights_.output_norm, config_.d_model,
                 config_.rms_eps);
  if (weights_.lm_head_q8_0.rows > 0) {
    launch_quantize_int16(stream_, work_.head_input, work_.normed, config_.d_model);
    launch_gemv_q8_0(stream_, work_.logits, weights_.lm_head_q8_0, work_.head_input);
  } else {
    launch_gemv(stream_, work_.logits, weights_.lm_head, work_.normed);
  }
  launch_argmax(stream_, work_.prediction, work_.ids, work_.position, work_.logits,
                config_.n_tokens);
}

}  // namespace minfer
