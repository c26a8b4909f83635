// SPDX-License-Identifier: MIT
#include <minfer/program/memory_reads.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include <minfer/threads.h>

namespace minfer {
namespace {

/// Sums words in lanes that a compiler turns into vectors.
/// @param[in] words [n]
std::uint64_t sum(const std::uint64_t* words, std::size_t n) {
  constexpr std::size_t kLanes = 32;
  std::uint64_t lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += words[i + lane];
  }
  std::uint64_t total = 0;
  for (; i < n; ++i) total += words[i];
  for (const std::uint64_t lane : lanes) total += lane;
  return total;
}

}  // namespace

std::vector<std::int64_t> time_memory_reads(std::size_t bytes, unsigned threads,
                                            unsigned repetitions) {
  constexpr std::size_t kPieceWords = std::size_t{1} << 17;  // 1 MiB
  const std::vector<std::uint64_t> words(std::max<std::size_t>(bytes / 8, 1), 1);
  ThreadPool pool(threads);
  std::vector<std::int64_t> times;
  for (unsigned pass = 0; pass <= repetitions; ++pass) {
    std::atomic<std::uint64_t> total{0};
    const auto start = std::chrono::steady_clock::now();
    pool.parallel_for(words.size(), kPieceWords, [&](std::size_t begin, std::size_t end) {
      total += sum(words.data() + begin, end - begin);
    });
    const std::chrono::nanoseconds taken = std::chrono::steady_clock::now() - start;
    // The sum is looked at, so that no compiler can leave the reads out.
    if (pass > 0 && total == words.size()) times.push_back(taken.count());
  }
  return times;
}

}  // namespace minfer
