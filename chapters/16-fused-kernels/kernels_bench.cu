// SPDX-License-Identifier: MIT
//
// Times every kernel on the shapes of a model, with what its launch says that it moves:
//   kernels_bench D_MODEL D_FF HEADS KV_HEADS HEAD_DIM HEAD_TYPE POSITION
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include <minfer/gguf/quant.h>

#include "attention.cuh"
#include "cuda/bench.h"
#include "fused.cuh"
#include "gemv.cuh"
#include "head.cuh"
#include "kernels.cuh"

namespace minfer {
namespace {

constexpr std::uint32_t kTokens = 151665;

class ModelBench {
 public:
  ModelBench(std::uint32_t d_model, std::uint32_t d_ff, const AttentionShape& shape,
             std::uint32_t position)
      : d_model_(d_model),
        d_ff_(d_ff),
        shape_(shape),
        context_(position + 1),
        in_(sizeof(float) * (d_ff + kTokens)),
        out_(sizeof(float) * (d_ff + kTokens)),
        input_(1),
        bench_(context_) {
    const StepInput input = {position, {}};
    input_.upload(&input, 1);
    CUDA_CHECK(cudaDeviceSynchronize());
  }

  void run(TensorType head) {
    qkv();
    attention();
    add_gemv("o", shape_.d_q());
    gate_up();
    add_gemv("down", d_ff_);
    gemv("head in fp32", {head, kTokens, d_model_});
    gemv_q8_0("head", kTokens, d_model_);
    gemv_q4_0_int16("head", kTokens, d_model_);
    vectors();
  }

 private:
  Step step() const { return {bench_.stream(), input_.data(), 1}; }

  void gemv(const std::string& what, Matrix w) {
    const ColdData weights(w.bytes());
    bench_.run(std::string("gemv ") + type_name(w.type) + " " + what, weights.copies(),
               [&](std::size_t i) {
                 w.data = weights.as<std::byte>(i);
                 launch_gemv(step(), out_.as<float>(0), w, in_.as<float>(0));
               });
  }

  /// Activations; what they are does not matter.
  QuantizedVector quantized(const ColdData& data) const {
    return {data.as<std::int8_t>(0), data.as<float>(1), data.as<std::int32_t>(2)};
  }
  Int16Vector in_int16() const {
    return {in_.as<std::int8_t>(0), in_.as<float>(1), in_.as<std::int32_t>(2)};
  }

  /// Times `launch(w)` with a matrix that it finds in memory.
  template <class Launch>
  void run_q4_0(const std::string& kernel, std::uint32_t rows, std::uint32_t cols, Launch launch) {
    MatrixQ4_0 w = {rows, cols, nullptr, nullptr};
    const ColdData weights(w.bytes());
    bench_.run(kernel, weights.copies(), [&](std::size_t i) {
      w.q = weights.as<uint4>(i);
      w.d = reinterpret_cast<std::uint16_t*>(w.q + std::size_t(rows) * (cols / 32));
      launch(w);
    });
  }

  void qkv() {
    const ColdData table(4 * context_ * shape_.head_dim / 2);
    const float *x = in_.as<float>(0), *angles = table.as<float>(0);
    float* out = out_.as<float>(0);
    const KvRows rows = {out + shape_.d_q(), out + shape_.d_q() + shape_.d_kv(), shape_.d_kv(),
                         false};
    run_q4_0("qkv", shape_.d_q() + 2 * shape_.d_kv(), d_model_, [&](const MatrixQ4_0& w) {
      launch_qkv(step(), out, rows, w, x, x, x, angles, angles, shape_, 1e-6f);
    });
  }

  void gate_up() {
    const float* x = in_.as<float>(0);
    run_q4_0("gate_up", 2 * d_ff_, d_model_,
             [&](const MatrixQ4_0& w) { launch_gate_up(step(), quantized(out_), w, x, x, 1e-6f); });
  }

  void add_gemv(const std::string& what, std::uint32_t cols) {
    run_q4_0("add_gemv " + what, d_model_, cols, [&](const MatrixQ4_0& w) {
      launch_add_gemv(step(), out_.as<float>(0), w, quantized(in_));
    });
  }

  void gemv_q4_0_int16(const std::string& what, std::uint32_t rows, std::uint32_t cols) {
    run_q4_0("gemv_q4_0_int16 " + what, rows, cols, [&](const MatrixQ4_0& w) {
      launch_gemv_q4_0_int16(step(), out_.as<float>(0), w, in_int16());
    });
  }

  void gemv_q8_0(const std::string& what, std::uint32_t rows, std::uint32_t cols) {
    const std::size_t n = std::size_t(rows) * cols;
    const ColdData q(n), d(n / 32 * 2);
    bench_.run("gemv_q8_0 " + what, q.copies(), [&](std::size_t i) {
      launch_gemv_q8_0(step(), out_.as<float>(0),
                       {rows, cols, q.as<std::int8_t>(i), d.as<std::uint16_t>(i)}, in_int16());
    });
  }

  void attention() {
    const ColdData k(4 * shape_.d_kv() * context_), v(4 * shape_.d_kv() * context_);
    const std::uint32_t chunks = launched_chunks(context_);
    const ColdData parts(4 * shape_.n_heads * chunks * (shape_.head_dim + 2));
    const Partials partials = {parts.as<float>(0), parts.as<float>(0) + shape_.d_q() * chunks,
                               parts.as<float>(0) + (shape_.d_q() + shape_.n_heads) * chunks};
    bench_.run("attention", k.copies(), [&](std::size_t i) {
      launch_attention(step(), quantized(out_), partials, in_.as<float>(0),
                       KvLayerF32{k.as<float>(i), v.as<float>(i), shape_.d_kv()}, shape_, chunks);
    });
    bench_.run("attention int8", k.copies(), [&](std::size_t i) {
      const KvLayerQ8 layer = {k.as<std::int8_t>(i),   v.as<std::int8_t>(i), k.as<std::uint16_t>(i),
                               v.as<std::uint16_t>(i), shape_.d_kv(),        shape_.n_kv_heads};
      launch_attention(step(), quantized(out_), partials, in_.as<float>(0), layer, shape_, chunks);
    });
  }

  void vectors() {
    float *x = in_.as<float>(0), *y = out_.as<float>(0);
    bench_.run("rmsnorm", 0,
               [&](std::size_t) { launch_rmsnorm(step(), y, x, x, d_model_, 1e-6f); });
    bench_.run("quantize_int16", 0, [&](std::size_t) {
      launch_quantize_int16(step(),
                            {out_.as<std::int8_t>(0), out_.as<float>(1), out_.as<std::int32_t>(2)},
                            x, d_model_);
    });
    const DeviceBuffer<Prediction> prediction(1);
    const DeviceBuffer<Top2> best(kArgmaxBlocks);
    DeviceBuffer<std::uint32_t> done(1);
    done.zero(bench_.stream());
    bench_.run("argmax", 0, [&](std::size_t) {
      launch_argmax(step(), prediction.data(), {best.data(), done.data()}, x, kTokens, 0);
    });
  }

  std::uint32_t d_model_, d_ff_;
  AttentionShape shape_;
  std::uint32_t context_;
  ColdData in_, out_;
  DeviceBuffer<StepInput> input_;
  KernelBench bench_;
};

}  // namespace
}  // namespace minfer

int main(int argc, char** argv) {
  using namespace minfer;
  if (argc != 8) {
    std::fprintf(stderr, "usage: %s D_MODEL D_FF HEADS KV_HEADS HEAD_DIM HEAD_TYPE POSITION\n",
                 argv[0]);
    return 2;
  }
  try {
    const auto number = [&](int i) { return static_cast<std::uint32_t>(std::atoi(argv[i])); };
    const std::uint32_t position = number(7);
    const AttentionShape shape = {number(3), number(4), number(5)};
    const bool q6_k = std::strcmp(argv[6], "Q6_K") == 0;
    ModelBench(number(1), number(2), shape, position)
        .run(q6_k ? TensorType::kQ6_K : TensorType::kQ8_0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kernels_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
