// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cuda/emulator/vector_types.h"

namespace minfer::emulator {

/// A kernel with a copy of its arguments: what a launch needs, and a graph keeps.
class KernelCall {
 public:
  virtual ~KernelCall() = default;
  /// Runs the kernel's body as the current thread.
  virtual void run_thread() const = 0;
  /// The kernel's address.
  virtual const void* function() const = 0;
};

/// How a kernel is launched.
struct GridShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;  // dynamic shared memory of a CTA
  bool cooperative = false;      // all CTAs run at once, and may wait for each other

  std::uint64_t blocks() const { return std::uint64_t{grid.x} * grid.y * grid.z; }
  std::uint64_t threads_per_block() const { return std::uint64_t{block.x} * block.y * block.z; }
};

/// A grid that is being run: what its workers share.
class Grid {
 public:
  /// @param seed shuffles the order in which blocks are begun
  Grid(const KernelCall& call, const GridShape& shape, int workers,
       std::optional<std::uint64_t> seed, std::uint64_t spin_limit);

  /// The next block that no worker has begun, or nothing.
  std::optional<uint3> next_block();

  /// Ends the grid with a fault: the first one counts.
  void stop(std::string fault);
  bool stopped() const { return stopped_.load(std::memory_order_relaxed); }
  /// What stop() was told, or an empty string.
  const std::string& fault() const { return fault_; }

  /// A worker's account of itself, for the others to tell a deadlock from a long wait.
  struct Activity {
    std::atomic<std::uint64_t> progress{0};    // events that others may have waited for
    std::atomic<std::uint64_t> idle_spins{0};  // spins since its last such event
    std::atomic<bool> finished{false};
  };
  std::vector<Activity>& activities() { return activities_; }

  const KernelCall& call;
  const GridShape shape;
  const std::optional<std::uint64_t> seed;
  const std::uint64_t spin_limit;

 private:
  uint3 block_index(std::uint64_t number) const;

  std::atomic<std::uint64_t> next_{0};
  std::vector<std::uint32_t> order_;  // empty: as they come
  std::atomic<bool> stopped_{false};
  std::mutex fault_mutex_;
  std::string fault_;
  std::vector<Activity> activities_;
};

/// Runs a grid to its end, on as many workers as the settings say.
/// @throws Fault if a kernel makes a mistake
void run_grid(const KernelCall& call, const GridShape& shape);

/// Makes the next launch the first one again: each launch shuffles its own way, by the seed and the
/// number of launches before it.
void restart_schedule();

}  // namespace minfer::emulator
