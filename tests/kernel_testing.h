// SPDX-License-Identifier: MIT
//
// What the tests of the chapters' kernels share: data, matrices, comparison, and the grids of the
// hidden tests, [exhaustive].
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include <minfer/gguf/model.h>
#include <minfer/gguf/quant.h>
#include <minfer/math.h>

#include "catch.h"
#include "cuda/buffer.h"
#include "cuda/check.h"
#include "cuda/step.h"
#include "cuda/stream.h"

namespace minfer {

/// Pseudo-random numbers, the same everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 2654435769u + 1) {}
  std::uint32_t bits() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>(state_ >> 33);
  }
  /// In [-1, 1).
  float value() { return static_cast<float>(bits() % 65536) / 32768.0f - 1.0f; }
  std::vector<float> values(std::size_t n) {
    std::vector<float> v(n);
    for (float& x : v) x = value();
    return v;
  }

 private:
  std::uint64_t state_;
};

template <class T>
DeviceBuffer<T> to_device(const std::vector<T>& host) {
  DeviceBuffer<T> buffer(host.size());
  buffer.upload(host.data(), host.size());
  CUDA_CHECK(cudaDeviceSynchronize());
  return buffer;
}

template <class T>
std::vector<T> to_host(const Stream& stream, const DeviceBuffer<T>& buffer) {
  std::vector<T> host(buffer.size());
  buffer.download(host.data(), host.size(), stream);
  return host;
}

/// A step of n tokens at a position, which adds up what its launches say that they move.
class TestStep {
 public:
  explicit TestStep(std::uint32_t n_tokens, std::uint32_t position = 0,
                    const std::vector<Token>& ids = {})
      : input_(1) {
    StepInput input = {position, {}};
    std::copy(ids.begin(), ids.end(), input.ids);
    input_.upload(&input, 1);
    CUDA_CHECK(cudaDeviceSynchronize());
    step_ = {stream_, input_.data(), n_tokens};
  }
  operator const Step&() const { return step_; }
  const Stream& stream() const { return stream_; }
  StepInput input() const { return to_host(stream_, input_).at(0); }
  /// What the launches moved so far.
  std::uint64_t moved() const { return traffic_.at(step_.n_tokens); }
  std::uint64_t moved_at(std::uint64_t n_positions) const { return traffic_.at(n_positions); }

 private:
  Stream stream_;
  DeviceBuffer<StepInput> input_;
  Step step_ = {};
  TrafficSum traffic_;
};

constexpr std::uint32_t kSteps[] = {1, 3};       ///< tokens
constexpr std::uint32_t kBatches[] = {1, 3, 8};  ///< tokens, of what takes them all at once

/// Row t of y, [T, n], is what `launch_row(step, row, t)` leaves in a row of its own.
template <class LaunchRow>
void require_same_bits_alone(const std::vector<float>& y, std::uint32_t n_tokens,
                             LaunchRow launch_row) {
  const std::size_t n = y.size() / n_tokens;
  for (std::uint32_t t = 0; t < n_tokens; ++t) {
    const TestStep step(1);
    DeviceBuffer<float> alone(n);
    launch_row(step, alone.data(), t);
    REQUIRE(to_host(step.stream(), alone) ==
            std::vector<float>(y.begin() + t * n, y.begin() + (t + 1) * n));
  }
}

/// Every value within `tolerance` of the largest: what another order of the same sums may do.
inline void require_close(const std::vector<float>& found, const std::vector<float>& expected,
                          float tolerance) {
  REQUIRE(found.size() == expected.size());
  float largest = 0, difference = 0;
  bool finite = true;
  for (std::size_t i = 0; i < found.size(); ++i) {
    finite = finite && std::isfinite(found[i]) && std::isfinite(expected[i]);
    largest = std::max(largest, std::fabs(expected[i]));
    difference = std::max(difference, std::fabs(found[i] - expected[i]));
  }
  REQUIRE(finite);
  REQUIRE(difference <= tolerance * largest);
}

/// Every sum within `tolerance` of what its terms add up to without their signs, [n]: a sum that
/// cancels to nearly nothing keeps the error of its terms.
inline void require_sums_close(const std::vector<float>& found, const std::vector<float>& expected,
                               const std::vector<double>& magnitudes, double tolerance) {
  REQUIRE(found.size() == expected.size());
  REQUIRE(found.size() == magnitudes.size());
  double worst = 0;
  bool finite = true;
  for (std::size_t i = 0; i < found.size(); ++i) {
    finite = finite && std::isfinite(found[i]) && std::isfinite(expected[i]);
    const double difference = std::fabs(double(found[i]) - double(expected[i]));
    if (difference > 0) worst = std::max(worst, difference / magnitudes[i]);
  }
  REQUIRE(finite);
  REQUIRE(worst <= tolerance);
}

/// A block whose values are of the size of weights.
inline void randomize(float& block, Random& random) {
  block = random.value();
}
inline void randomize(F16& block, Random& random) {
  block.bits = half_from_float(random.value());
}
inline void randomize(BF16& block, Random& random) {
  block.bits = static_cast<std::uint16_t>(bits_from_float(random.value()) >> 16);
}
template <class Block>
void randomize(Block& block, Random& random) {
  auto* bytes = reinterpret_cast<std::uint8_t*>(&block);
  for (std::size_t i = 0; i < sizeof block; ++i)
    bytes[i] = static_cast<std::uint8_t>(random.bits());
  block.d = half_from_float(0.01f * random.value());
  if constexpr (std::is_same_v<Block, BlockQ4_1>) block.m = half_from_float(random.value());
  if constexpr (std::is_same_v<Block, BlockQ4_K>)
    block.dmin = half_from_float(0.01f * random.value());
}

/// A matrix of random blocks, on the host and on the device.
struct TestMatrix {
  TestMatrix(TensorType type, std::uint32_t rows, std::uint32_t cols, Random& random)
      : bytes(rows * row_bytes(type, cols)) {
    visit_blocks(type, bytes.data(), [&](const auto* blocks) {
      using Block = std::decay_t<decltype(*blocks)>;
      for (std::size_t i = 0; i < bytes.size(); i += sizeof(Block)) {
        Block block;
        randomize(block, random);
        std::memcpy(bytes.data() + i, &block, sizeof block);
      }
    });
    device_bytes = to_device(bytes);
    host.type = device.type = type;
    host.rows = device.rows = rows;
    host.cols = device.cols = cols;
    host.data = bytes.data();
    device.data = device_bytes.data();
  }

  std::vector<std::byte> bytes;
  DeviceBuffer<std::byte> device_bytes;
  Matrix host, device;
};

/// What the terms of each row's sum in W x[t] add up to without their signs, [T, rows].
inline std::vector<double> magnitudes(const Matrix& w, const std::vector<float>& x) {
  std::vector<double> sums(x.size() / w.cols * w.rows, 0.0);
  std::vector<float> row(w.cols);
  for (std::uint32_t m = 0; m < w.rows; ++m) {
    dequantize_row(w.type, w.data + m * row_bytes(w.type, w.cols), w.cols, row.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      sums[i / w.cols * w.rows + m] += std::fabs(double(row[i % w.cols]) * x[i]);
    }
  }
  return sums;
}

/// Activations of very different sizes, one run of zeros among them.
inline std::vector<float> activations(std::uint32_t n, Random& random) {
  std::vector<float> x = random.values(n);
  for (std::uint32_t i = 0; i < n; ++i) x[i] *= std::ldexp(1.0f, int(i / 32 % 9) * 4 - 16);
  if (n > 32) std::fill(x.begin() + 32, x.begin() + 64, 0.0f);
  return x;
}

/// The quantization of activations as it is defined, on the host.
struct HostQuantized {
  explicit HostQuantized(const std::vector<float>& x) : q(x.size()), d(x.size() / 32) {
    for (std::size_t run = 0; run < d.size(); ++run) {
      float largest = 0;
      for (std::size_t i = run * 32; i < run * 32 + 32; ++i)
        largest = max_f32(largest, std::fabs(x[i]));
      d[run] = largest / 127.0f;
      const float inverse = d[run] > 0 ? 1.0f / d[run] : 0.0f;
      for (std::size_t i = run * 32; i < run * 32 + 32; ++i) {
        q[i] = static_cast<std::int8_t>(round_half_even_to_int(x[i] * inverse, -127, 127));
      }
    }
  }
  std::vector<float> values() const {
    std::vector<float> x(q.size());
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = d[i / 32] * static_cast<float>(q[i]);
    return x;
  }
  std::vector<std::int8_t> q;
  std::vector<float> d;
};

constexpr TensorType kTypes[] = {TensorType::kF32,  TensorType::kF16,  TensorType::kBF16,
                                 TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ5_0,
                                 TensorType::kQ8_0, TensorType::kQ4_K, TensorType::kQ6_K};

struct Shape {
  std::uint32_t rows, cols;
};

constexpr Shape kShapes[] = {{1, 32}, {5, 96}, {131, 896}, {6, 1536}, {3, 4864}, {2, 8960}};

/// The next multiple of the type's block: rows are whole blocks.
inline std::uint32_t whole_blocks(TensorType type, std::uint32_t n) {
  const std::uint32_t elements = block_shape(type).elements;
  return (n + elements - 1) / elements * elements;
}

// ------------------------------------------------------------------------------ [exhaustive]

#ifdef MINFER_EMULATOR
inline constexpr std::uint64_t kSeeds = 1;  // minutes each
#else
inline constexpr std::uint64_t kSeeds = 4;
#endif

/// Calls test(random) for each seed.
template <class Test>
void for_each_seed(Test&& test) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    INFO("seed " << seed);
    Random random(1000 + seed);
    test(random);
  }
}

/// The multiples of `step` up to 2,080, then the real models' d_ff: 0.5B, 1.5B, 3B.
inline std::vector<std::uint32_t> all_widths(std::uint32_t step) {
  std::vector<std::uint32_t> widths;
  for (std::uint32_t n = step; n <= 2080; n += step) widths.push_back(n);
  for (const std::uint32_t n : {4864u, 8960u, 11008u}) widths.push_back(n);
  return widths;
}

/// Every width, with few rows; then rows around the numbers that blocks of 4, 8, 32 and 128 share.
inline std::vector<Shape> all_shapes() {
  std::vector<Shape> shapes;
  for (const std::uint32_t cols : all_widths(32)) {
    for (const std::uint32_t rows : {1u, 2u, 3u, 5u}) shapes.push_back({rows, cols});
  }
  for (std::uint32_t rows = 1; rows <= 131; ++rows) {
    for (const std::uint32_t cols : {32u, 96u, 256u}) shapes.push_back({rows, cols});
  }
  return shapes;
}

}  // namespace minfer
