// SPDX-License-Identifier: MIT
//
// The lab: what each line of a kernel asks of memory, and which of its accesses race.
//
// Kernels that are compiled with `-fsanitize=thread` call a function before every load and store
// (calls.cpp has them, in place of that sanitizer's own library). It knows the address; the
// emulator knows the thread; and the return addresses on the thread's stack say the line, and the
// lines that have called it. Here they are only counted: tools/minfer_tools/lab.py makes lines of
// them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "cuda/emulator/device_memory.h"
#include "cuda/emulator/lab/races.h"
#include "cuda/emulator/observer.h"

namespace minfer::emulator {

/// Where an access is written, from the innermost: return addresses, the last one in the kernel.
using Places = std::vector<std::uintptr_t>;

enum class Kind : std::uint8_t { read, write, atomic_read, atomic };
enum class Space : std::uint8_t { global, shared };

/// What the requests of one place add up to.
struct Counts {
  std::uint64_t requests = 0;    ///< warp instructions
  std::uint64_t sectors = 0;     ///< of 32 bytes that they touch; global memory
  std::uint64_t needed = 0;      ///< that their bytes would fill
  std::uint64_t bytes = 0;       ///< that they ask for, each once a request
  std::uint64_t wavefronts = 0;  ///< passes that shared memory takes
  std::uint64_t conflicts = 0;   ///< of those, what bank conflicts cost
};

/// One access of the source.
struct Access {
  Places places;
  Kind kind;
  Space space;
  std::uint32_t bytes;  ///< of a thread
  Counts counts;
};

/// A barrier or a warp operation of the source.
struct Meeting {
  const char* operation;
  Site site;
  bool is_barrier;
  std::uint64_t count;  ///< times that a block has passed it, or a warp has done it
};

/// What is counted, or checked, in the launches of one kernel.
struct LaunchReport {
  std::string kernel;
  GridShape shape;
  std::vector<Access> accesses;
  std::vector<Meeting> meetings;
  std::vector<Race> races;  ///< indices into accesses
};

/// While this is set, accesses are looked at: by the one worker that runs what is observed. What
/// the lab itself does is not looked at, though it shares inline functions with the kernels.
extern bool is_looking;

/// Observes launches while it lives. One at a time.
class Lab final : public Observer {
 public:
  /// What is to be done with a launch.
  enum class Task { nothing, name, count, check };
  using Choose = std::function<Task(const KernelCall& call)>;

  /// `choose` is asked at every launch.
  explicit Lab(Choose choose);
  ~Lab() override;
  Lab(const Lab&) = delete;
  Lab& operator=(const Lab&) = delete;

  /// One a launch that was not passed over.
  const std::vector<LaunchReport>& reports() const { return reports_; }
  /// Where the access is written that a launch was stopped for; empty if none was.
  const Places& stopped_at() const { return stopped_at_; }

  /// Writes all of it as JSON; `fault` is what a launch has thrown.
  void print(std::FILE* file, const std::string& fault = {}) const;

  /// The current thread is about to access memory. `frame` is that of the function that the kernel
  /// has called to say so, and `unit` a number of bytes that divides the address.
  void access(std::uintptr_t address, std::size_t bytes, Kind kind, void* frame, std::size_t unit);

  bool launch_begins(const KernelCall& call, const GridShape& shape) override;
  void launch_ends() override;
  void block_begins(Cta& cta) override;
  void block_ends(Cta& cta) override;
  void barrier_passed(Cta& cta, const char* operation, Site site) override;
  void lanes_met(Thread& last, std::uint32_t mask, const char* operation, Site site) override;

 private:
  /// A warp instruction: what its lanes access, of those that have come to it so far.
  struct Request {
    std::uint32_t lanes = 0;
    std::array<std::uint64_t, kWarpSize> address;
  };
  /// An access by a warp: its lanes come to it one after the other, each any number of times.
  struct Pending {
    std::array<std::uint32_t, kWarpSize> times{};
    std::vector<Request> requests;
  };
  struct WarpLog {
    std::vector<Pending> pending;        // by access
    std::vector<std::uint32_t> touched;  // those that are not empty
  };

  std::uint32_t access_at(Kind kind, Space space, std::size_t bytes, std::size_t unit, void* frame,
                          const Thread& thread);
  void note(const Thread& thread, std::uint32_t access, std::uint64_t address);
  void flush(const Warp& warp);
  void flush_all(Cta& cta);
  void count(std::uint32_t access, const Request& request);
  void meet(const char* operation, Site site, bool is_barrier);
  [[noreturn]] void stop(std::uintptr_t address, std::size_t bytes, Kind kind, void* frame);

  Choose choose_;
  Task task_ = Task::nothing;
  std::vector<LaunchReport> reports_;
  Places stopped_at_;

  // Of the launch that is running.
  LaunchReport* report_ = nullptr;
  std::vector<DeviceBlock> blocks_;
  std::vector<std::size_t> units_;                            // by access
  std::unordered_map<std::uint64_t, std::uint32_t> by_hash_;  // accesses, by places
  std::unordered_map<const Warp*, WarpLog> logs_;
  std::unique_ptr<RaceCheck> races_;
};

}  // namespace minfer::emulator
