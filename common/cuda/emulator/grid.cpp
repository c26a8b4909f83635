// SPDX-License-Identifier: MIT
#include "cuda/emulator/grid.h"

#include <algorithm>
#include <condition_variable>
#include <numeric>
#include <thread>
#include <utility>

#include "cuda/emulator/fault.h"
#include "cuda/emulator/observer.h"
#include "cuda/emulator/random.h"
#include "cuda/emulator/settings.h"
#include "cuda/emulator/worker.h"

namespace minfer::emulator {

Grid::Grid(const KernelCall& call, const GridShape& shape, int workers,
           std::optional<std::uint64_t> seed, std::uint64_t spin_limit)
    : call(call),
      shape(shape),
      seed(seed),
      spin_limit(spin_limit),
      activities_(static_cast<std::size_t>(workers)) {
  if (!seed) return;
  Random random(*seed);
  order_.resize(shape.blocks());
  std::iota(order_.begin(), order_.end(), 0u);
  for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.below(i)]);
}

uint3 Grid::block_index(std::uint64_t number) const {
  const auto x = static_cast<unsigned>(number % shape.grid.x);
  const auto y = static_cast<unsigned>(number / shape.grid.x % shape.grid.y);
  const auto z = static_cast<unsigned>(number / shape.grid.x / shape.grid.y);
  return {x, y, z};
}

std::optional<uint3> Grid::next_block() {
  const std::uint64_t number = next_.fetch_add(1, std::memory_order_relaxed);
  if (number >= shape.blocks()) return std::nullopt;
  return block_index(order_.empty() ? number : order_[number]);
}

void Grid::stop(std::string fault) {
  const std::lock_guard<std::mutex> lock(fault_mutex_);
  if (fault_.empty()) fault_ = std::move(fault);
  stopped_.store(true);
}

namespace {

/// The workers, one in the thread that launches and one in each of as many more as were ever
/// needed.
class WorkerPool {
 public:
  static WorkerPool& instance() {
    static WorkerPool pool;
    return pool;
  }

  ~WorkerPool() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      closing_ = true;
    }
    begin_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  /// Runs `grid` on workers 0 to workers-1, and returns when all have finished.
  void run(Grid& grid, unsigned workers) {
    const std::lock_guard<std::mutex> one_grid_at_a_time(run_mutex_);
    while (threads_.size() + 1 < workers) {
      const unsigned number = static_cast<unsigned>(threads_.size()) + 1;
      threads_.emplace_back([this, number] { serve(number); });
    }
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      grid_ = &grid;
      helpers_ = workers - 1;
      running_ = workers - 1;
      ++round_;
    }
    if (workers > 1) begin_.notify_all();
    caller_.run(grid, 0);
    std::unique_lock<std::mutex> lock(mutex_);
    end_.wait(lock, [this] { return running_ == 0; });
    grid_ = nullptr;
  }

  /// Tells launches apart, so that the same seed does not shuffle each of them alike.
  std::uint64_t count_launch() { return launches_++; }
  void restart_count() { launches_ = 0; }

 private:
  void serve(unsigned number) {
    Worker worker;
    std::uint64_t served = 0;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      begin_.wait(lock, [&] { return closing_ || (round_ != served && grid_ != nullptr); });
      if (closing_) return;
      served = round_;
      if (number > helpers_) continue;
      Grid& grid = *grid_;
      lock.unlock();
      worker.run(grid, number);
      lock.lock();
      if (--running_ == 0) end_.notify_one();
    }
  }

  std::mutex run_mutex_;
  std::mutex mutex_;
  std::condition_variable begin_;
  std::condition_variable end_;
  Grid* grid_ = nullptr;
  std::uint64_t round_ = 0;
  unsigned helpers_ = 0;  // beside the caller, in this round
  unsigned running_ = 0;  // of them, those that have not finished
  bool closing_ = false;
  std::atomic<std::uint64_t> launches_{0};
  std::vector<std::thread> threads_;
  Worker caller_;
};

/// Waking another worker takes some 20 us, so a small grid is run by the caller alone.
constexpr std::uint64_t kThreadsWorthWaking = 4096;

unsigned workers_for(const GridShape& shape, const Settings& settings, bool is_observed) {
  const std::uint64_t threads = shape.blocks() * shape.threads_per_block();
  if (settings.seed || is_observed || threads < kThreadsWorthWaking) return 1;
  return static_cast<unsigned>(
      std::min<std::uint64_t>(static_cast<std::uint64_t>(settings.workers), shape.blocks()));
}

}  // namespace

Observer* observer = nullptr;

void restart_schedule() {
  WorkerPool::instance().restart_count();
}

void run_grid(const KernelCall& call, const GridShape& shape) {
  const Settings& current = settings();
  WorkerPool& pool = WorkerPool::instance();
  const std::uint64_t launch = pool.count_launch();
  std::optional<std::uint64_t> seed;
  if (current.seed) seed = Random(Random(*current.seed).next() + launch).next();
  const bool is_observed = observer != nullptr && observer->launch_begins(call, shape);
  const unsigned workers = workers_for(shape, current, is_observed);
  Grid grid(call, shape, static_cast<int>(workers), seed, current.spin_limit);
  report_bad_accesses();
  pool.run(grid, workers);
  if (is_observed) observer->launch_ends();
  if (!grid.fault().empty()) throw Fault(grid.fault());
}

}  // namespace minfer::emulator
