// SPDX-License-Identifier: MIT
// Grids, memory, barriers, atomics: what kernels may rely on, on a GPU and in the emulator.
#include <cstring>
#include <numeric>

#include "catch.h"
#include "features.h"

using namespace minfer;
using namespace minfer::features;

namespace {

bool equal(uint3 a, uint3 b) {
  return a.x == b.x && a.y == b.y && a.z == b.z;
}

}  // namespace

TEST_CASE("threads and blocks are numbered in three dimensions, x first") {
  const std::vector<std::pair<dim3, dim3>> shapes = {{dim3(1), dim3(1)},
                                                     {dim3(5), dim3(33)},
                                                     {dim3(3, 2), dim3(8, 4)},
                                                     {dim3(2, 3, 4), dim3(5, 3, 2)},
                                                     {dim3(1, 1, 3), dim3(1, 1, 64)},
                                                     {dim3(2), dim3(1024)}};
  for (const auto& [grid, block] : shapes) {
    const auto places = features::places(grid, block);
    std::size_t i = 0;
    bool ok = true;
    for (unsigned bz = 0; bz < grid.z; ++bz)
      for (unsigned by = 0; by < grid.y; ++by)
        for (unsigned bx = 0; bx < grid.x; ++bx)
          for (unsigned tz = 0; tz < block.z; ++tz)
            for (unsigned ty = 0; ty < block.y; ++ty)
              for (unsigned tx = 0; tx < block.x; ++tx) {
                const Place& p = places.at(i++);
                ok = ok && equal(p.thread, {tx, ty, tz}) && equal(p.block, {bx, by, bz}) &&
                     equal(p.block_dim, block) && equal(p.grid_dim, grid);
              }
    CHECK(ok);
    CHECK(i == places.size());
  }
}

TEST_CASE("static shared memory is one array a block") {
  const unsigned rows = 70, cols = 45;
  std::vector<float> in(rows * cols);
  std::iota(in.begin(), in.end(), 0.5f);
  const auto out = transpose(in, rows, cols);
  bool ok = true;
  for (unsigned r = 0; r < rows; ++r)
    for (unsigned c = 0; c < cols; ++c) ok = ok && out[c * rows + r] == in[r * cols + c];
  CHECK(ok);
}

TEST_CASE("dynamic shared memory, also more than 48 KB, and more with the static alone") {
  constexpr std::size_t kAll = (48 << 10) / sizeof(int);
  for (const std::size_t n : {std::size_t{1}, std::size_t{1000}, kAll, std::size_t{20000}}) {
    std::vector<int> in(n);
    std::iota(in.begin(), in.end(), 7);
    auto expected = in;
    std::reverse(expected.begin(), expected.end());
    CHECK(reverse(in) == expected);
  }
}

TEST_CASE("constants and device variables are set and read by their names") {
  std::vector<int> table(kTableSize);
  std::iota(table.begin(), table.end(), -3);
  auto expected = table;
  for (int& value : expected) value += 1000;
  CHECK(add_constants(table, 1000) == expected);
  CHECK(count_blocks(100) == 4950);
  CHECK(count_blocks(3) == 3);
}

TEST_CASE("parameters of all sizes arrive") {
  Parameters p{{1, 2, 3, 4, 5}, 2.25};
  CHECK(parameters('a', p, 0.5f, -(1ll << 40)) ==
        std::vector<double>{97, 51, 2.25, 0.5, -1099511627776.0});
}

TEST_CASE("a barrier counts, and joins by or and by and") {
  CHECK(barrier_votes(128, 0) == std::array<int, 3>{0, 0, 0});
  CHECK(barrier_votes(128, 1) == std::array<int, 3>{1, 1, 0});
  CHECK(barrier_votes(100, 99) == std::array<int, 3>{99, 1, 0});
  CHECK(barrier_votes(256, 256) == std::array<int, 3>{256, 1, 1});
}

TEST_CASE("what is written before a barrier is read after it") {
  for (const unsigned n : {32u, 96u, 256u}) {
    std::vector<int> values(n);
    for (unsigned i = 0; i < n; ++i) values[i] = static_cast<int>(i % 3);
    for (int round = 0; round < 9; ++round) {
      auto next = values;
      for (unsigned i = 0; i < n; ++i) next[i] = values[(i + 1) % n] + values[(i + n - 1) % n];
      values = next;
    }
    CHECK(relax(n, 9) == values);
  }
}

TEST_CASE("atomics lose nothing") {
  const unsigned blocks = 7, threads = 96, n = blocks * threads;
  const auto result = atomics(blocks, threads);
  const unsigned sum = n * (n - 1) / 2;
  unsigned exclusive = 0;
  for (unsigned i = 0; i < n; ++i) exclusive ^= i;
  CHECK(result[0] == sum);
  CHECK(result[1] == 0u - sum);
  CHECK(result[2] == 5);
  CHECK(result[3] == n - 1);
  CHECK(result[4] == 0xffffff00u);
  CHECK(result[5] == 0xffffu);
  CHECK(result[6] == exclusive);
  CHECK(result[7] == n % 10);              // 0, 1, ... 9, 0, ...
  CHECK(result[8] == (10 - n % 10) % 10);  // 0, 9, 8, ... 0, 9, ...
  CHECK(result[9] == 77);
  CHECK(result[10] >= 1);
  CHECK(result[10] <= n);
  CHECK(result[11] == std::uint64_t{n} << 32);
  CHECK(result[12] == (std::uint64_t{1} << 40) + n - 1);
}

TEST_CASE("all blocks of a cooperative grid meet at its barrier") {
  const unsigned threads = 64, rounds = 20;
  const int largest = std::min(largest_grid(threads), 300);
  for (const int blocks : {1, 2, largest}) {
    std::vector<unsigned> values(static_cast<std::size_t>(blocks));
    std::iota(values.begin(), values.end(), 1u);
    for (unsigned round = 0; round < rounds; ++round) {
      const unsigned sum = std::accumulate(values.begin(), values.end(), 0u);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = sum % 1000003u + static_cast<unsigned>(i);
      }
    }
    CHECK(grid_rounds(blocks, threads, rounds) == values);
  }
}

TEST_CASE("the last block sees what the others have written before a fence") {
  CHECK(last_block_sum(200) == 199u * 200 * 399 / 6);
}
