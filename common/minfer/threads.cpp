// SPDX-License-Identifier: MIT
#include <minfer/threads.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace minfer {
namespace {

/// How often a waiting thread looks before it sleeps: some tens of microseconds, which is how long
/// the serial work between two loops of a decode step takes. Sleeping at once cost 8 % of the 0.5B
/// model's decode speed, ten times as many looks cost as much on a busy machine.
constexpr int kSpins = 4000;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Signals are for the main thread: one that waits for input must be the one that is interrupted.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

unsigned usable_cpus(const std::string& root) {
  cpu_set_t affinity;
  long long count = std::max(1u, std::thread::hardware_concurrency());
  if (sched_getaffinity(0, sizeof affinity, &affinity) == 0) count = CPU_COUNT(&affinity);
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // NUMBER:CONTROLLERS:PATH, v2 has none
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = ',' + line.substr(first + 1, second - first - 1) + ',';
    const bool v2 = controllers == ",,";
    if (!v2 && controllers.find(",cpu,") == std::string::npos) continue;
    const std::string mount = root + "/sys/fs/cgroup" + (v2 ? "" : "/cpu");
    std::string path = line.substr(second + 1);
    for (std::size_t end = path.size(); end != std::string::npos; end = path.rfind('/')) {
      path.erase(end);
      long long quota = 0,
                period = 0;  // 0 where there is no limit ("max"), or the group isn't seen
      if (v2) {
        std::ifstream(mount + path + "/cpu.max") >> quota >> period;
      } else {
        std::ifstream(mount + path + "/cpu.cfs_quota_us") >> quota;
        std::ifstream(mount + path + "/cpu.cfs_period_us") >> period;
      }
      if (quota > 0 && period > 0) count = std::min(count, std::max(1LL, quota / period));
    }
  }
  return static_cast<unsigned>(count);
}

struct ThreadPool::Impl {
  explicit Impl(unsigned threads) {
    const SignalsBlocked blocked;  // the new threads inherit the mask
    workers.reserve(threads);
    try {
      for (unsigned i = 1; i < threads; ++i) workers.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      end_workers();
      throw std::runtime_error("cannot start " + std::to_string(threads) +
                               " threads: " + error.what());
    }
  }

  ~Impl() { end_workers(); }

  void end_workers() {
    stop = true;
    generation.fetch_add(1);
    notify();
    for (std::thread& worker : workers) worker.join();
  }

  /// Takes pieces of the current loop until none is left.
  void take_pieces() {
    const Loop mine = loop;  // on a cache line that nobody writes
    for (;;) {
      const std::size_t begin = next.fetch_add(mine.grain);
      if (begin >= mine.n) return;
      mine.call(mine.body, begin, std::min(begin + mine.grain, mine.n));
    }
  }

  /// Waits until done() holds: spinning first, then asleep on `wake`, which whoever makes it true
  /// notifies with the mutex taken in between.
  template <class Done>
  void wait_until(const Done& done) {
    for (int i = 0; i < kSpins; ++i) {
      if (done()) return;
      pause_briefly();
    }
    std::unique_lock<std::mutex> lock(mutex);
    wake.wait(lock, done);
  }

  void notify() {
    { const std::lock_guard<std::mutex> lock(mutex); }
    wake.notify_all();
  }

  /// Enters the current loop, unless it is closed already. @return whether `loop` may be read
  bool enter() {
    unsigned seen = state.load();
    while (seen & kOpen) {
      if (state.compare_exchange_weak(seen, seen + 1)) return true;
    }
    return false;
  }

  void work() {
    for (unsigned seen = 0;;) {
      wait_until([&] { return generation.load() != seen; });
      seen = generation.load();
      if (stop) return;
      if (!enter()) continue;
      take_pieces();
      if (state.fetch_sub(1) == 1) notify();  // closed, and this was the last one inside
    }
  }

  /// The caller does not wait for workers that never came: on a busy machine a thread may get its
  /// core only after the others have done all there was.
  void run(const Loop& new_loop) {
    loop = new_loop;
    next.store(0);
    state.store(kOpen);
    generation.fetch_add(1);
    notify();
    take_pieces();
    state.fetch_and(~kOpen);
    wait_until([&] { return state.load() == 0; });
  }

  static constexpr unsigned kOpen = 1u << 31;

  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<unsigned> generation{0};  ///< counts loops; a change is the signal to look
  std::atomic<unsigned> state{0};       ///< kOpen while workers may enter, plus how many are inside
  std::atomic<std::size_t> next{0};     ///< first index nobody has taken
  Loop loop{};                          ///< changed only while it is closed and nobody is inside
  std::atomic<bool> stop{false};
};

ThreadPool::ThreadPool(unsigned threads) {
  impl_ = std::make_unique<Impl>(threads == 0 ? usable_cpus() : threads);
}

ThreadPool::~ThreadPool() = default;

unsigned ThreadPool::size() const {
  return static_cast<unsigned>(impl_->workers.size()) + 1;
}

void ThreadPool::run(const Loop& loop) {
  impl_->run(loop);
}

}  // namespace minfer
