// SPDX-License-Identifier: MIT
#include "report.h"

#include <cstdarg>
#include <cstdio>
#include <string>

namespace minfer {
namespace {

/// printf into a string; every line here is far shorter than the buffer.
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(text, sizeof text, pattern, arguments);
  va_end(arguments);
  return text;
}

double megabytes(std::size_t bytes) {
  return static_cast<double>(bytes) / 1e6;
}

// ---------------------------------------------------------------------------- for a person

std::string sweep_table(const Measurements& measured) {
  std::string text =
      "One launch over the whole buffer\n"
      "  CTAs an SM  loads in flight  median GB/s  max GB/s\n";
  for (const SweepRow& row : measured.sweep) {
    text += format("%12d %16d %12.1f %9.1f%s\n", row.ctas_per_sm, row.loads_in_flight,
                   row.timing.median_gb_per_s(), row.timing.best_gb_per_s(),
                   &row == &measured.best() ? "  <- the roofline" : "");
  }
  return text;
}

std::string sm_table(const Measurements& measured) {
  const double roofline = measured.best().timing.median_gb_per_s();
  std::string text =
      "One launch, one CTA on each of some SMs\n"
      "         SMs      median GB/s  of roofline\n";
  for (const SmRow& row : measured.by_sms) {
    const double speed = row.timing.median_gb_per_s();
    text += format("%12d %16.1f %11.1f%%\n", row.sms, speed, 100 * speed / roofline);
  }
  return text;
}

std::string launch_table(const Measurements& measured) {
  const double roofline = measured.best().timing.median_gb_per_s();
  std::string text =
      "The same bytes in many launches\n"
      "   MB a launch      median GB/s  of roofline  us a launch  us not explained by bytes\n";
  for (const LaunchRow& row : measured.by_launch) {
    const double speed = row.timing.median_gb_per_s();
    text += format("%14.2f %16.1f %11.1f%% %12.1f %26.1f%s\n", megabytes(row.bytes_per_launch),
                   speed, 100 * speed / roofline, row.microseconds_per_launch(),
                   row.microseconds_beyond_bytes(roofline),
                   row.bytes_per_launch == kMisleadingBytes ? "  <- misleads" : "");
  }
  return text;
}

// ---------------------------------------------------------------------------- for a program

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      result += format("\\u%04x", c);
    } else {
      result += c;
    }
  }
  return result + "\"";
}

std::string samples(const Timing& timing) {
  std::string text;
  for (const float ms : timing.milliseconds) text += format("%s%.9g", text.empty() ? "" : ", ", ms);
  return format("\"bytes\": %zu, \"gb_per_s_median\": %.6g, \"gb_per_s_max\": %.6g, ", timing.bytes,
                timing.median_gb_per_s(), timing.best_gb_per_s()) +
         "\"milliseconds\": [" + text + "]";
}

std::string shape(const SweepRow& row) {
  return format("\"ctas_per_sm\": %d, \"threads_per_cta\": %d, \"loads_in_flight\": %d, ",
                row.ctas_per_sm, kStreamThreads, row.loads_in_flight);
}

/// `"name": [ {...}, ... ]`, a row a line.
template <class Row, class Text>
std::string array(const char* name, const std::vector<Row>& rows, Text text) {
  std::string result = format(",\n  \"%s\": [", name);
  for (const Row& row : rows) {
    result += (&row == &rows.front() ? "\n    {" : ",\n    {") + text(row) + "}";
  }
  return result + "\n  ]";
}

std::string machine(const Measurements& measured) {
  const Device& device = measured.device;
  return "  \"machine\": {\"gpu\": " + quoted(device.name) +
         format(
             ", \"compute_capability\": \"%d.%d\", \"sm_count\": %d, \"l2_bytes\": %zu, "
             "\"memory_bytes\": %zu, \"cuda_runtime\": \"%s\", \"cuda_driver\": \"%s\"}",
             device.compute_major, device.compute_minor, device.sm_count, device.l2_bytes,
             measured.memory_bytes, cuda_version_text(measured.runtime_version).c_str(),
             cuda_version_text(measured.driver_version).c_str());
}

}  // namespace

std::string human_report(const Measurements& measured) {
  const Device& device = measured.device;
  const SweepRow& best = measured.best();
  return format(
             "%s, sm_%d%d, %d SMs, %.1f MB of L2; buffer of %.0f MB, L2 cold before each pass\n\n",
             device.name.c_str(), device.compute_major, device.compute_minor, device.sm_count,
             megabytes(device.l2_bytes), megabytes(measured.buffer_bytes)) +
         sweep_table(measured) + "\n" + sm_table(measured) + "\n" + launch_table(measured) +
         format("\nroofline: %.1f GB/s (median; best pass %.1f)\n", best.timing.median_gb_per_s(),
                best.timing.best_gb_per_s());
}

std::string json_report(const Measurements& measured, const std::string& invocation) {
  const SweepRow& best = measured.best();
  return "{\n  \"benchmark\": \"roofline\",\n" + machine(measured) +
         ",\n  \"invocation\": " + quoted(invocation) +
         format(",\n  \"buffer_bytes\": %zu,\n  \"roofline\": {", measured.buffer_bytes) +
         shape(best) + samples(best.timing) + "}" +
         array("one_launch", measured.sweep,
               [](const SweepRow& row) { return shape(row) + samples(row.timing); }) +
         array("by_sms", measured.by_sms,
               [](const SmRow& row) {
                 return format("\"sms\": %d, ", row.sms) + samples(row.timing);
               }) +
         array("by_launch", measured.by_launch,
               [](const LaunchRow& row) {
                 return format("\"bytes_per_launch\": %zu, \"launches\": %zu, ",
                               row.bytes_per_launch, row.launches) +
                        samples(row.timing);
               }) +
         "\n}\n";
}

}  // namespace minfer
