// SPDX-License-Identifier: MIT
#include <minfer/threads.h>

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace minfer {
namespace {

/// How often a waiting thread looks before it sleeps: some tens of microseconds, which is how long
/// the serial work between two loops of a decode step takes. Sleeping at once cost a third of the
/// 0.5B model's decode speed; spinning for good would take the core from whoever else needs it.
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

struct ThreadPool::Impl {
  explicit Impl(unsigned threads) {
    const SignalsBlocked blocked;  // the new threads inherit the mask
    for (unsigned i = 1; i < threads; ++i) workers.emplace_back([this] { work(); });
  }

  ~Impl() {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      stop = true;
      generation.fetch_add(1);
    }
    wake.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  /// Takes pieces of the current loop until none is left.
  void take_pieces() {
    for (;;) {
      const std::size_t begin = next.fetch_add(loop.grain);
      if (begin >= loop.n) return;
      loop.call(loop.body, begin, std::min(begin + loop.grain, loop.n));
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

  void work() {
    unsigned seen = 0;
    for (;;) {
      wait_until([&] { return generation.load() != seen; });
      ++seen;
      if (stop) return;
      take_pieces();
      if (busy.fetch_sub(1) == 1) notify();
    }
  }

  void notify() {
    { const std::lock_guard<std::mutex> lock(mutex); }
    wake.notify_all();
  }

  void run(const Loop& new_loop) {
    loop = new_loop;
    next.store(0);
    busy.store(static_cast<unsigned>(workers.size()));
    generation.fetch_add(1);  // publishes the three stores above
    notify();
    take_pieces();
    wait_until([&] { return busy.load() == 0; });
  }

  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<unsigned> generation{0};  ///< counts loops; a change is the signal to begin
  std::atomic<unsigned> busy{0};        ///< workers that are not yet done with the current loop
  std::atomic<std::size_t> next{0};     ///< first index nobody has taken
  Loop loop{};
  bool stop = false;  ///< written before, read after a change of `generation`
};

ThreadPool::ThreadPool(unsigned threads) {
  if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
  impl_ = std::make_unique<Impl>(threads);
}

ThreadPool::~ThreadPool() = default;

unsigned ThreadPool::size() const {
  return static_cast<unsigned>(impl_->workers.size()) + 1;
}

void ThreadPool::run(const Loop& loop) {
  impl_->run(loop);
}

}  // namespace minfer
