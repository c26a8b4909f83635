// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace minfer {

/// Times `repetitions` passes of all threads reading a buffer once, after one pass untimed: the
/// rate at which this CPU's memory can stream, which bounds a CPU engine as chapter 00's roofline
/// bounds a GPU. The buffer must be larger than the caches to say that.
/// @param threads 0: usable_cpus()
/// @return nanoseconds, one value a pass
std::vector<std::int64_t> time_memory_reads(std::size_t bytes, unsigned threads,
                                            unsigned repetitions);

}  // namespace minfer
