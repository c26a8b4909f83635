// SPDX-License-Identifier: MIT
//
// Times every kernel on the shapes of a model, with its traffic:
//   kernels_bench D_MODEL D_FF HEADS KV_HEADS HEAD_DIM HEAD_TYPE POSITION
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include <minfer/gguf/quant.h>

#include "cuda/bench.h"
#include "kernels.cuh"

namespace minfer {
namespace {

constexpr std::uint32_t kTokens = 151665;

/// A matrix without a tensor behind it; `data` is set for each launch.
Matrix matrix(TensorType type, std::uint32_t rows, std::uint32_t cols) {
  Matrix m;
  m.type = type;
  m.rows = rows;
  m.cols = cols;
  return m;
}

class ModelBench {
 public:
  ModelBench(std::uint32_t d_model, std::uint32_t d_ff, const AttentionShape& shape,
             std::uint32_t position)
      : d_model_(d_model),
        d_ff_(d_ff),
        shape_(shape),
        position_(position),
        in_(sizeof(float) * (d_ff + kTokens)),
        out_(sizeof(float) * (d_ff + kTokens)) {}

  void run(TensorType head) {
    const auto d_q = static_cast<std::uint32_t>(shape_.d_q());
    const auto d_kv = static_cast<std::uint32_t>(shape_.d_kv());
    gemv("q", matrix(TensorType::kQ4_0, d_q, d_model_));
    gemv("k or v", matrix(TensorType::kQ4_0, d_kv, d_model_));
    gemv("o", matrix(TensorType::kQ4_0, d_model_, d_q));
    gemv("gate or up", matrix(TensorType::kQ4_0, d_ff_, d_model_));
    gemv("down", matrix(TensorType::kQ4_0, d_model_, d_ff_));
    gemv("head", matrix(head, kTokens, d_model_));
    attention();
    vectors();
  }

 private:
  void gemv(const std::string& what, Matrix w) {
    const ColdData weights(w.bytes());
    bench_.run(std::string("gemv ") + type_name(w.type) + " " + what,
               gemv_traffic(w.bytes(), w.rows, w.cols), weights.copies(), [&](std::size_t i) {
                 w.data = weights.as<std::byte>(i);
                 launch_gemv(bench_.stream(), out_.as<float>(0), w, in_.as<float>(0));
               });
  }

  void attention() {
    const ColdData k(4 * shape_.d_kv() * shape_.context), v(4 * shape_.d_kv() * shape_.context);
    const ColdData scores(4 * std::size_t(shape_.n_heads) * shape_.context);
    bench_.run(
        "attention", attention_traffic(shape_, position_ + 1), k.copies(), [&](std::size_t i) {
          launch_attention(bench_.stream(), out_.as<float>(0), scores.as<float>(0),
                           in_.as<float>(0), k.as<float>(i), v.as<float>(i), position_, shape_);
        });
  }

  void vectors() {
    float *x = in_.as<float>(0), *y = out_.as<float>(0);
    bench_.run("rmsnorm", rmsnorm_traffic(d_model_), 0,
               [&](std::size_t) { launch_rmsnorm(bench_.stream(), y, x, x, d_model_, 1e-6f); });
    bench_.run("add", add_traffic(d_model_), 0,
               [&](std::size_t) { launch_add(bench_.stream(), y, x, d_model_); });
    bench_.run("swiglu", swiglu_traffic(d_ff_), 0,
               [&](std::size_t) { launch_swiglu(bench_.stream(), y, x, d_ff_); });
    const DeviceBuffer<Prediction> prediction(1);
    bench_.run("argmax", argmax_traffic(kTokens), 0,
               [&](std::size_t) { launch_argmax(bench_.stream(), prediction.data(), x, kTokens); });
  }

  std::uint32_t d_model_, d_ff_;
  AttentionShape shape_;
  std::uint32_t position_;
  ColdData in_, out_;
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
    const AttentionShape shape = {number(3), number(4), number(5), position + 1};
    const bool q6_k = std::strcmp(argv[6], "Q6_K") == 0;
    ModelBench(number(1), number(2), shape, position)
        .run(q6_k ? TensorType::kQ6_K : TensorType::kQ8_0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kernels_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
