// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace minfer {

/// CPUs that may work for this process at once: those of its affinity, within the quota of its
/// control groups (v2 and v1). tools/cli/build.py has the same rule, for builds and `doctor`.
/// @param root  where /proc and /sys are, for tests
unsigned usable_cpus(const std::string& root = "");

/// A team of threads that share loops. Which thread does what never shows in a result: pieces are
/// dealt as threads come for them, so every piece's work must be independent of the others'.
class ThreadPool {
 public:
  /// @param threads how many work at a loop, the caller among them; 0: usable_cpus()
  /// @throws std::runtime_error when the system does not let it have that many
  explicit ThreadPool(unsigned threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  unsigned size() const;

  /// Calls body(begin, end) for pieces of at most `grain` that cover [0, n), and returns when all
  /// are done. The body must not throw, and must not use the pool itself. @pre grain > 0
  template <class Body>
  void parallel_for(std::size_t n, std::size_t grain, const Body& body) {
    if (size() == 1 || n <= grain) {
      if (n > 0) body(std::size_t{0}, n);
      return;
    }
    run({n, grain, &body, [](const void* b, std::size_t begin, std::size_t end) {
           (*static_cast<const Body*>(b))(begin, end);
         }});
  }

 private:
  struct Loop {
    std::size_t n, grain;
    const void* body;
    void (*call)(const void* body, std::size_t begin, std::size_t end);
  };
  struct Impl;
  void run(const Loop& loop);
  std::unique_ptr<Impl> impl_;
};

}  // namespace minfer
