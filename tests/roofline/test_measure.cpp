// SPDX-License-Identifier: MIT
// What is computed from the measured times, and that every measurement is made.
#include "measure.h"

#include <cmath>
#include <string>
#include <vector>

#include "catch.h"
#include "report.h"

#if __has_include(<nlohmann/json.hpp>)
#include <nlohmann/json.hpp>
#define MINFER_HAVE_JSON 1
#endif

namespace {

using minfer::Measurements;
using minfer::Timing;

Timing timing(std::size_t bytes, std::vector<float> milliseconds) {
  Timing result;
  result.bytes = bytes;
  result.milliseconds = std::move(milliseconds);
  return result;
}

bool near(double found, double expected, double tolerance = 1e-4) {
  return std::fabs(found - expected) <= tolerance;
}

/// A machine of 100 GB/s on which a launch costs 20 us beyond its bytes.
Measurements made_up() {
  Measurements m;
  m.device.name = "A \"GPU\"\t\\";
  m.device.compute_major = 8;
  m.device.compute_minor = 7;
  m.device.sm_count = 8;
  m.device.l2_bytes = 4 << 20;
  m.memory_bytes = 8000000000;
  m.buffer_bytes = 800000000;
  m.runtime_version = 12060;
  m.driver_version = 13000;
  m.sweep.push_back({1, 2, timing(800000000, {20, 16, 10})});
  m.sweep.push_back({4, 8, timing(800000000, {8, 8.25f, 7.75f})});
  m.by_sms.push_back({2, timing(800000000, {16, 16, 16})});
  m.by_launch.push_back({4000000, 200, timing(800000000, {12, 12, 12})});
  return m;
}

}  // namespace

TEST_CASE("a timing's speed is that of its median and of its shortest pass") {
  CHECK(near(timing(100000000, {4, 1, 2}).median_gb_per_s(), 50));
  CHECK(near(timing(100000000, {4, 1, 2}).best_gb_per_s(), 100));
  CHECK(near(timing(100000000, {4, 1, 2, 3}).median_milliseconds(), 2.5));
}

TEST_CASE("the roofline is the highest median, not the luckiest pass") {
  Measurements m = made_up();
  CHECK(&m.best() == &m.sweep[1]);
  m.sweep[0].timing = timing(800000000, {20, 16, 1});
  CHECK(&m.best() == &m.sweep[1]);
}

TEST_CASE("a launch's time is told apart from its bytes'") {
  const minfer::LaunchRow row = made_up().by_launch.front();
  CHECK(near(row.microseconds_per_launch(), 60));
  CHECK(near(row.microseconds_beyond_bytes(100), 20));
}

TEST_CASE("the trap reads what it read where it was fallen into: 6.88 MB a launch") {
  CHECK(minfer::kMisleadingBytes == 6881280);
  // 75.2 GB/s were reported of it and 101 of the memory: the launch took 91.5 us, the bytes 68.1.
  const double reported = 75.2;
  const minfer::LaunchRow row{
      minfer::kMisleadingBytes, 1,
      timing(minfer::kMisleadingBytes,
             {static_cast<float>(minfer::kMisleadingBytes / reported / 1e6)})};
  CHECK(near(row.microseconds_per_launch(), 91.5, 0.05));
  CHECK(near(row.microseconds_beyond_bytes(101), 23.4, 0.05));
}

TEST_CASE("the report for a person has the figures") {
  const std::string text = human_report(made_up());
  CHECK_THAT(text, ContainsSubstring("sm_87, 8 SMs, 4.2 MB of L2; buffer of 800 MB"));
  CHECK_THAT(text, ContainsSubstring("100.0     103.2  <- the roofline"));
  CHECK_THAT(text, ContainsSubstring("50.0        50.0%"));
  CHECK_THAT(text,
             ContainsSubstring("66.7        66.7%         60.0                       20.0\n"));
  CHECK_THAT(text, ContainsSubstring("roofline: 100.0 GB/s (median; best pass 103.2)"));
}

#if defined(MINFER_HAVE_JSON)
TEST_CASE("the report for a program is JSON with every sample") {
  const auto json = nlohmann::json::parse(json_report(made_up(), "roofline --json"));
  CHECK(json["machine"]["gpu"] == "A \"GPU\"\t\\");
  CHECK(json["machine"]["compute_capability"] == "8.7");
  CHECK(json["machine"]["cuda_runtime"] == "12.6");
  CHECK(json["invocation"] == "roofline --json");
  CHECK(json["roofline"]["gb_per_s_median"] == 100);
  CHECK(json["one_launch"].size() == 2);
  CHECK(json["one_launch"][0]["milliseconds"] == std::vector<float>{20, 16, 10});
  CHECK(json["by_sms"][0]["sms"] == 2);
  CHECK(json["by_launch"][0]["launches"] == 200);
  CHECK(json["by_launch"][0]["bytes_per_launch"] == 4000000);
}
#endif

TEST_CASE("every measurement is made, and every pass is right") {
  minfer::MeasureOptions options;
  options.buffer_bytes = 2 * minfer::kMisleadingBytes + 16;
  options.repeat = 2;
  int steps = 0;
  const Measurements m = minfer::measure(options, [&](const std::string&) { ++steps; });
  CHECK(steps == 4);
  CHECK(m.buffer_bytes == options.buffer_bytes);
  REQUIRE(m.sweep.size() >= minfer::kLoadsInFlight.size());
  for (const auto& row : m.sweep) {
    CHECK(row.timing.milliseconds.size() == 2);
    CHECK(row.timing.bytes == options.buffer_bytes);
  }
  CHECK(m.by_sms.front().sms == 1);
  CHECK(m.by_sms.back().sms == m.device.sm_count);
  std::vector<std::size_t> launches;
  for (const auto& row : m.by_launch) launches.push_back(row.launches);
  CHECK(launches == std::vector<std::size_t>{9, 5, 3, 2, 1});
}
