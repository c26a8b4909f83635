// SPDX-License-Identifier: MIT
#include <sched.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <minfer/threads.h>

#include "catch.h"

namespace minfer::test {
namespace {

/// A folder with a /proc and a /sys that say what a test wants.
class Root {
 public:
  explicit Root(const std::vector<std::pair<std::string, std::string>>& files) {
    std::string name = (std::filesystem::temp_directory_path() / "minfer-root-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
    for (const auto& [file, text] : files) {
      std::filesystem::create_directories((path_ / file).parent_path());
      std::ofstream(path_ / file) << text;
    }
  }
  ~Root() { std::filesystem::remove_all(path_); }
  unsigned usable() const { return usable_cpus(path_.string()); }

 private:
  std::filesystem::path path_;
};

TEST_CASE("the CPUs that may be used are those of the affinity, within the quotas of all groups") {
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  const unsigned all = static_cast<unsigned>(CPU_COUNT(&before));
  CHECK(Root({}).usable() == all);
  CHECK(usable_cpus() <= all);

  const std::string v2 = "0::/a/b\n",
                    v1 = "3:cpuset:/\n2:cpu,cpuacct:/a/b\n1:name=systemd:/\n0::/a\n";
  const std::string group = "proc/self/cgroup", fs = "sys/fs/cgroup/";
  CHECK(Root({{group, v2}, {fs + "a/b/cpu.max", "max 100000\n"}}).usable() == all);
  CHECK(Root({{group, v2}, {fs + "a/b/cpu.max", "100000 100000\n"}}).usable() == 1);
  CHECK(Root({{group, v2}, {fs + "a/cpu.max", "199999 100000\n"}}).usable() == 1);  // of one above
  CHECK(Root({{group, v2}, {fs + "cpu.max", "1000 100000\n"}}).usable() == 1);  // as in a container
  CHECK(Root({{group, v2}, {fs + "cpu.max", "999900000 100000\n"}}).usable() == all);
  CHECK(Root({{group, v2}, {fs + "a/cpu/cpu.max", "100000 100000\n"}}).usable() ==
        all);  // no one's
  const auto quota = [&](const std::string& folder, const std::string& text) {
    return Root({{group, v1},
                 {fs + folder + "/cpu.cfs_quota_us", text},
                 {fs + folder + "/cpu.cfs_period_us", "50000\n"}})
        .usable();
  };
  CHECK(quota("cpu/a/b", "-1\n") == all);
  CHECK(quota("cpu/a/b", "50000\n") == 1);
  CHECK(quota("cpu", "99999\n") == 1);
  CHECK(quota("cpuset", "50000\n") == all);
  CHECK(Root({{group, "none\n\n:\n"}}).usable() == all);

  std::thread pinned([&] {  // another thread, whose affinity goes with it
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
    }
    if (sched_setaffinity(0, sizeof one, &one) == 0) CHECK(usable_cpus() == 1);
  });
  pinned.join();
}

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
