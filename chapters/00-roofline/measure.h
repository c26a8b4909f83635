// SPDX-License-Identifier: MIT
//
// How fast this GPU reads its memory, measured in ways that are right and in one that is not.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "cuda/device.h"
#include "stream.h"

namespace minfer {

/// What one launch reads in the benchmark that misleads: the nibbles of one 8960 x 1536 matrix.
inline constexpr std::size_t kMisleadingBytes = std::size_t{8960} * 1536 / 2;

/// What is to be measured.
struct MeasureOptions {
  std::size_t buffer_bytes = 0;  ///< 0: chosen by choose_buffer_bytes()
  int repeat = 10;               ///< timed passes of each measurement
};

/// Timed passes over `bytes` bytes, in the order in which they ran.
struct Timing {
  std::size_t bytes = 0;
  std::vector<float> milliseconds;

  double best_gb_per_s() const;
  double median_gb_per_s() const;
  double median_milliseconds() const;
};

/// One launch, `ctas_per_sm` CTAs on every SM.
struct SweepRow {
  int ctas_per_sm = 0;
  int loads_in_flight = 0;
  Timing timing;
};

/// One launch, on some SMs only.
struct SmRow {
  int sms = 0;
  Timing timing;
};

/// The same bytes in many launches.
struct LaunchRow {
  std::size_t bytes_per_launch = 0;
  std::size_t launches = 0;
  Timing timing;

  double microseconds_per_launch() const;
  /// What of that the bytes themselves don't explain, at `gb_per_s`.
  double microseconds_beyond_bytes(double gb_per_s) const;
};

struct Measurements {
  Device device;
  std::size_t memory_bytes = 0;
  std::size_t buffer_bytes = 0;
  int runtime_version = 0;
  int driver_version = 0;
  std::vector<SweepRow> sweep;
  std::vector<SmRow> by_sms;
  std::vector<LaunchRow> by_launch;

  /// The row of the highest median: the roofline is its median.
  const SweepRow& best() const;
};

/// Told before each part of the work, for a progress line.
using Progress = std::function<void(const std::string& what)>;

/// Measures everything. Every pass's sum is compared with what the buffer is known to hold.
/// @throws CudaError @throws std::runtime_error if a sum is wrong
Measurements measure(const MeasureOptions& options, const Progress& progress);

}  // namespace minfer
