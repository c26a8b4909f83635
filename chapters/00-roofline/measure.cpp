// SPDX-License-Identifier: MIT
#include "measure.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <stdexcept>

#include "cuda/buffer.h"
#include "cuda/event.h"
#include "cuda/stream.h"

namespace minfer {
namespace {

constexpr std::size_t kWord = sizeof(uint4);
constexpr std::size_t kSmallestBuffer = std::size_t{768} << 20;
constexpr float kShortestPass = 2.0f;  // ms: what a launch costs, some us, is then below 0.5 %

/// The buffer, with a tail that is read to push the rest out of the L2 cache, and the clock.
class Bench {
 public:
  Bench(const Device& device, std::size_t bytes)
      : device_(device),
        words_(bytes / kWord),
        flush_words_(2 * device.l2_bytes / kWord),
        buffer_(words_ + flush_words_, "the buffer that is read"),
        sums_(static_cast<std::size_t>(device.sm_count) * kMostCtasAnSm, "sums") {
    fill_pattern(buffer_.data(), buffer_.size(), 0, stream_);
  }

  std::size_t bytes() const { return words_ * kWord; }

  /// Times `repeat` passes over the first `bytes`, in launches of `bytes_per_launch`, each pass
  /// from a cold L2 cache; one pass before them is not counted.
  Timing time(const StreamShape& shape, std::size_t bytes, std::size_t bytes_per_launch,
              int repeat) {
    const std::size_t words = bytes / kWord;
    const std::size_t step = bytes_per_launch / kWord;
    Timing timing;
    timing.bytes = words * kWord;
    for (int pass = -1; pass < repeat; ++pass) {
      flush_l2();
      begin_.record(stream_);
      for (std::size_t first = 0; first < words; first += step) {
        stream_read(sums_.data(), buffer_.data() + first, std::min(step, words - first), shape,
                    stream_);
      }
      end_.record(stream_);
      end_.synchronize();
      if (pass >= 0) timing.milliseconds.push_back(end_.milliseconds_since(begin_));
      const std::size_t last = (words - 1) / step * step;
      check(shape, last, words - last);
    }
    return timing;
  }

  Timing time(const StreamShape& shape, std::size_t bytes, int repeat) {
    return time(shape, bytes, bytes, repeat);
  }

 private:
  static constexpr int kMostCtasAnSm = 32;

  void flush_l2() {
    stream_read(sums_.data(), buffer_.data() + words_, flush_words_, {device_.sm_count, 8, false},
                stream_);
  }

  /// Compares what the last launch has summed up, of `count` words from `first` on.
  void check(const StreamShape& shape, std::size_t first, std::size_t count) {
    std::vector<std::uint32_t> sums(static_cast<std::size_t>(shape.ctas));
    sums_.download(sums.data(), sums.size(), stream_);
    const std::uint32_t found = std::accumulate(sums.begin(), sums.end(), std::uint32_t{0});
    const std::uint32_t expected = pattern_sum(4 * (first + count)) - pattern_sum(4 * first);
    if (found == expected) return;
    throw std::runtime_error("the words read add up to " + std::to_string(found) + "; expected " +
                             std::to_string(expected) +
                             ": the GPU's memory or this program is faulty");
  }

  Device device_;
  std::size_t words_;
  std::size_t flush_words_;
  DeviceBuffer<uint4> buffer_;
  DeviceBuffer<std::uint32_t> sums_;
  Stream stream_;
  Event begin_;
  Event end_;
};

/// 768 MiB or four times the L2 cache, whichever is more; and where the GPU reads that in less than
/// kShortestPass, as much as takes it so long, if half of the free memory is enough for that.
std::size_t choose_buffer_bytes(const Device& device) {
  const std::size_t base = std::max(kSmallestBuffer, 4 * device.l2_bytes);
  Bench probe(device, base);
  const float taken = static_cast<float>(
      probe.time({4 * device.sm_count, 8, false}, base, 3).median_milliseconds());
  if (taken >= kShortestPass) return base;
  const auto wanted = static_cast<std::size_t>(static_cast<double>(base) * kShortestPass / taken);
  const std::size_t affordable = DeviceMemory::current().free / 2 + base / 2;
  const std::size_t mebibyte = std::size_t{1} << 20;
  return std::max(base, std::min(wanted, affordable) / mebibyte * mebibyte);
}

std::vector<SweepRow> measure_sweep(Bench& bench, const Device& device, int repeat) {
  std::vector<SweepRow> rows;
  for (const int loads : kLoadsInFlight) {
    const int fit = ctas_that_fit_an_sm(loads);
    for (const int ctas : {1, 2, 4, 6, 8}) {
      if (ctas > fit) continue;
      const StreamShape shape{ctas * device.sm_count, loads, false};
      rows.push_back({ctas, loads, bench.time(shape, bench.bytes(), repeat)});
    }
  }
  return rows;
}

/// A CTA an SM; fewer SMs read a smaller part of the buffer, so that none takes long.
std::vector<SmRow> measure_by_sms(Bench& bench, const Device& device, int repeat) {
  std::vector<int> counts;
  for (int sms = 1; sms < device.sm_count; sms *= 2) counts.push_back(sms);
  counts.push_back(device.sm_count);
  std::vector<SmRow> rows;
  const std::size_t least =
      std::min(bench.bytes(), std::max(std::size_t{256} << 20, 4 * device.l2_bytes));
  for (const int sms : counts) {
    const std::size_t share =
        bench.bytes() / kWord / static_cast<std::size_t>(device.sm_count) * kWord;
    const std::size_t bytes = std::max(
        least, sms == device.sm_count ? bench.bytes() : share * static_cast<std::size_t>(sms));
    rows.push_back({sms, bench.time({sms, 16, true}, bytes, repeat)});
  }
  return rows;
}

std::vector<LaunchRow> measure_by_launch(Bench& bench, const StreamShape& shape, int repeat) {
  std::vector<LaunchRow> rows;
  const std::size_t bytes = std::min(bench.bytes(), kSmallestBuffer);
  for (std::size_t each = kMisleadingBytes / 4; each < bytes; each *= 2) {
    rows.push_back({each, (bytes + each - 1) / each, bench.time(shape, bytes, each, repeat)});
  }
  rows.push_back({bytes, 1, bench.time(shape, bytes, repeat)});
  return rows;
}

double gb_per_s(std::size_t bytes, double milliseconds) {
  return static_cast<double>(bytes) / milliseconds / 1e6;
}

}  // namespace

double Timing::best_gb_per_s() const {
  return gb_per_s(bytes, *std::min_element(milliseconds.begin(), milliseconds.end()));
}

double Timing::median_milliseconds() const {
  std::vector<float> sorted = milliseconds;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle]
                                : (double{sorted[middle - 1]} + sorted[middle]) / 2;
}

double Timing::median_gb_per_s() const {
  return gb_per_s(bytes, median_milliseconds());
}

double LaunchRow::microseconds_per_launch() const {
  return timing.median_milliseconds() * 1e3 / static_cast<double>(launches);
}

double LaunchRow::microseconds_beyond_bytes(double gb_per_s) const {
  const double bytes = static_cast<double>(timing.bytes) / static_cast<double>(launches);
  return microseconds_per_launch() - bytes / gb_per_s / 1e3;
}

const SweepRow& Measurements::best() const {
  return *std::max_element(sweep.begin(), sweep.end(), [](const SweepRow& a, const SweepRow& b) {
    return a.timing.median_gb_per_s() < b.timing.median_gb_per_s();
  });
}

Measurements measure(const MeasureOptions& options, const Progress& progress) {
  Measurements result;
  result.device = Device::current();
  result.memory_bytes = DeviceMemory::current().total;
  CUDA_CHECK(cudaRuntimeGetVersion(&result.runtime_version));
  CUDA_CHECK(cudaDriverGetVersion(&result.driver_version));

  progress("choosing the buffer");
  const std::size_t bytes =
      options.buffer_bytes != 0 ? options.buffer_bytes : choose_buffer_bytes(result.device);
  Bench bench(result.device, bytes);
  result.buffer_bytes = bench.bytes();
  progress("one launch: CTAs an SM, loads in flight");
  result.sweep = measure_sweep(bench, result.device, options.repeat);
  progress("one launch: on some SMs only");
  result.by_sms = measure_by_sms(bench, result.device, options.repeat);
  progress("many launches");
  const SweepRow& best = result.best();
  const StreamShape shape{best.ctas_per_sm * result.device.sm_count, best.loads_in_flight, false};
  result.by_launch = measure_by_launch(bench, shape, options.repeat);
  return result;
}

}  // namespace minfer
