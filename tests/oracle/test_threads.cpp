// SPDX-License-Identifier: MIT
#include <atomic>
#include <vector>

#include <minfer/threads.h>

#include "catch.h"

namespace minfer::test {
namespace {

TEST_CASE("parallel_for covers every index once, whatever the threads and pieces") {
  for (const unsigned threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    CHECK(pool.size() == threads);
    for (const std::size_t n : {0, 1, 5, 64, 1000}) {
      for (const std::size_t grain : {1, 3, 64, 5000}) {
        std::vector<std::atomic<int>> seen(n);
        pool.parallel_for(n, grain, [&](std::size_t begin, std::size_t end) {
          for (std::size_t i = begin; i < end; ++i) ++seen[i];
        });
        for (const auto& count : seen) REQUIRE(count == 1);
      }
    }
  }
}

TEST_CASE("a pool serves many short loops, and results are there when it returns") {
  ThreadPool pool(3);
  std::size_t total = 0;
  for (std::size_t round = 0; round < 2000; ++round) {
    std::vector<std::size_t> squares(17);
    pool.parallel_for(17, 2, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) squares[i] = i * round;
    });
    for (const std::size_t square : squares) total += square;
  }
  CHECK(total == 136u * 1999u * 2000u / 2u);
}

TEST_CASE("a pool of no given size has a thread a core") {
  CHECK(ThreadPool(0).size() >= 1);
}

}  // namespace
}  // namespace minfer::test
