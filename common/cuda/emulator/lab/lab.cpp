// SPDX-License-Identifier: MIT
#include "cuda/emulator/lab/lab.h"

#include <link.h>

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <utility>

#include "cuda/emulator/fault.h"
#include "cuda/emulator/worker.h"

namespace minfer::emulator {
namespace {

constexpr std::size_t kSector = 32;
constexpr std::size_t kBank = 4;
constexpr std::size_t kBanks = 32;
constexpr std::size_t kWidest = 16;  // bytes that an instruction moves for a thread

class LookAway {
 public:
  LookAway() { is_looking = false; }
  ~LookAway() { is_looking = true; }
  LookAway(const LookAway&) = delete;
  LookAway& operator=(const LookAway&) = delete;
};

/// The largest power of two that divides n; 0 for 0.
std::size_t lowest_bit(std::size_t n) {
  return n & (~n + 1);
}

/// Where the program lies in memory: what its return addresses have to be taken relative to.
std::uintptr_t load_address() {
  std::uintptr_t result = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        *static_cast<std::uintptr_t*>(out) = info->dlpi_addr;
        return 1;  // the first is the program
      },
      &result);
  return result;
}

/// The return addresses from `frame` up to the kernel's own.
Places places_of(void* frame, const Thread& thread) {
  constexpr std::size_t kDeepest = 24;
  Places result;
  auto at = static_cast<void**>(frame);
  while (at < thread.kernel_caller && result.size() < kDeepest) {
    result.push_back(reinterpret_cast<std::uintptr_t>(at[1]));
    at = static_cast<void**>(at[0]);
  }
  return result;
}

const char* verb(Kind kind) {
  return kind == Kind::read || kind == Kind::atomic_read ? "reads " : "writes ";
}

std::string describe_outside(const Thread& thread, const void* address, std::size_t bytes,
                             Kind kind) {
  std::string place = thread.cta->shared.describe(address);
  if (place.empty()) place = describe_device_memory(address);
  return verb(kind) + std::to_string(bytes) + " bytes at " + place;
}

/// How many passes shared memory takes for lanes that access `unit` bytes each, and how many it
/// would take if no two words were in one bank: of 8 bytes half a warp at a time, of 16 a quarter.
std::pair<std::uint64_t, std::uint64_t> passes(const std::vector<std::uint64_t>& addresses,
                                               std::uint32_t lanes, std::size_t unit) {
  const std::size_t words = std::max<std::size_t>(1, unit / kBank);
  const std::size_t at_once = kWarpSize / words;
  std::uint64_t taken = 0, least = 0;
  for (std::size_t first = 0; first < kWarpSize; first += at_once) {
    std::vector<std::uint64_t> touched;
    for (std::size_t lane = first; lane < first + at_once; ++lane) {
      if ((lanes >> lane & 1u) == 0) continue;
      for (std::size_t w = 0; w < words; ++w) touched.push_back(addresses[lane] / kBank + w);
    }
    if (touched.empty()) continue;
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    std::array<std::uint64_t, kBanks> in_bank{};
    for (const std::uint64_t word : touched) ++in_bank[word % kBanks];
    taken += *std::max_element(in_bank.begin(), in_bank.end());
    least += 1;
  }
  return {taken, least};
}

}  // namespace

bool is_looking = false;

Lab::Lab(Choose choose) : choose_(std::move(choose)) {
  observer = this;
}

Lab::~Lab() {
  observer = nullptr;
}

// ---------------------------------------------------------------------------- accesses

void Lab::access(std::uintptr_t address, std::size_t bytes, Kind kind, void* frame,
                 std::size_t unit) {
  const Thread* running = Worker::running();
  if (running == nullptr) return;
  const Thread& thread = *running;
  const Stack& stack = thread.fiber.stack;
  if (address - reinterpret_cast<std::uintptr_t>(stack.bottom) < stack.bytes) return;
  Space space = Space::shared;
  std::uintptr_t begin = 0;
  bool is_inside = false;
  const SharedArena::Place place =
      thread.cta->shared.around(reinterpret_cast<const void*>(address));
  if (place.begin != nullptr) {
    begin = reinterpret_cast<std::uintptr_t>(place.begin);
    is_inside = place.is_begun && address >= begin && address + bytes <= begin + place.bytes;
  } else {
    const auto after = std::upper_bound(
        blocks_.begin(), blocks_.end(), address,
        [](std::uintptr_t at, const DeviceBlock& b) { return at < b.begin - b.margin; });
    if (after == blocks_.begin()) return;
    const DeviceBlock& block = *std::prev(after);
    if (address >= block.begin + block.bytes + block.margin) return;
    space = Space::global;
    begin = block.begin;
    is_inside = address >= begin && address + bytes <= begin + block.bytes;
    const auto gap =
        std::upper_bound(block.gaps.begin(), block.gaps.end(), address + bytes - 1 - begin,
                         [](std::size_t at, const DeviceBlock::Gap& g) { return at < g.begin; });
    if (is_inside && gap != block.gaps.begin()) {
      is_inside = address - begin >= std::prev(gap)->begin + std::prev(gap)->bytes;
    }
  }
  if (!is_inside) stop(address, bytes, kind, frame);
  const LookAway away;
  const std::uint32_t which = access_at(kind, space, bytes, unit, frame, thread);
  if (task_ == Task::count) {
    note(thread, which, space == Space::shared ? address - begin : address);
    return;
  }
  const bool is_atomic = kind == Kind::atomic || kind == Kind::atomic_read;
  const bool is_write = kind == Kind::write || kind == Kind::atomic;
  races_->access(thread, address, bytes, which, is_write, is_atomic);
  if (is_atomic) races_->synchronize(thread, address, true, is_write);
}

void Lab::stop(std::uintptr_t address, std::size_t bytes, Kind kind, void* frame) {
  const Thread& thread = Worker::current()->thread();
  stopped_at_ = places_of(frame, thread);
  fail(describe_outside(thread, reinterpret_cast<const void*>(address), bytes, kind));
}

/// The number of an access, from where it is written.
std::uint32_t Lab::access_at(Kind kind, Space space, std::size_t bytes, std::size_t unit,
                             void* frame, const Thread& thread) {
  std::uint64_t hash = bytes * 8 + static_cast<unsigned>(kind) * 2 + static_cast<unsigned>(space);
  for (auto at = static_cast<void**>(frame); at < thread.kernel_caller;
       at = static_cast<void**>(at[0])) {
    hash = (hash ^ reinterpret_cast<std::uintptr_t>(at[1])) * 0x9e3779b97f4a7c15u;
  }
  const auto [found, is_new] =
      by_hash_.try_emplace(hash, static_cast<std::uint32_t>(report_->accesses.size()));
  if (is_new) {
    report_->accesses.push_back(
        {places_of(frame, thread), kind, space, static_cast<std::uint32_t>(bytes), {}});
    units_.push_back(unit);
  }
  return found->second;
}

// ---------------------------------------------------------------------------- counting

/// Adds a lane's access to a warp instruction. Lanes run one after the other here; what they would
/// do together is told by how often each has come to the access since all of them last met: where a
/// warp does not diverge, all come to it the same number of times.
void Lab::note(const Thread& thread, std::uint32_t access, std::uint64_t address) {
  WarpLog& log = logs_[thread.warp];
  if (access >= log.pending.size()) log.pending.resize(access + 1);
  Pending& pending = log.pending[access];
  if (pending.requests.empty()) log.touched.push_back(access);
  const std::uint32_t time = pending.times[thread.lane()]++;
  if (time >= pending.requests.size()) pending.requests.emplace_back();
  Request& request = pending.requests[time];
  request.lanes |= 1u << thread.lane();
  request.address[thread.lane()] = address;
}

void Lab::count(std::uint32_t access, const Request& request) {
  Access& what = report_->accesses[access];
  std::uint64_t bits = units_[access];
  for (std::uint32_t rest = request.lanes; rest != 0; rest &= rest - 1) {
    bits |= request.address[static_cast<unsigned>(__builtin_ctz(rest))];
  }
  const std::size_t unit = std::min(lowest_bit(bits), kWidest);
  std::vector<std::uint64_t> addresses(kWarpSize);
  for (std::size_t piece = 0; piece < what.bytes; piece += unit) {
    std::vector<std::uint64_t> each;
    for (unsigned lane = 0; lane < kWarpSize; ++lane) {
      addresses[lane] = request.address[lane] + piece;
      if ((request.lanes >> lane & 1u) != 0) each.push_back(addresses[lane]);
    }
    std::sort(each.begin(), each.end());
    each.erase(std::unique(each.begin(), each.end()), each.end());
    Counts& counts = what.counts;
    const std::uint64_t bytes = each.size() * unit;
    counts.requests += 1;
    counts.bytes += bytes;
    if (what.space == Space::shared) {
      const auto [taken, least] = passes(addresses, request.lanes, unit);
      counts.wavefronts += taken;
      counts.conflicts += taken - least;
      continue;
    }
    for (std::uint64_t& address : each) address /= kSector;
    each.erase(std::unique(each.begin(), each.end()), each.end());
    counts.sectors += each.size();
    counts.needed += (bytes + kSector - 1) / kSector;
  }
}

/// Counts what a warp's lanes have done since they last met.
void Lab::flush(const Warp& warp) {
  const auto log = logs_.find(&warp);
  if (log == logs_.end()) return;
  for (const std::uint32_t access : log->second.touched) {
    Pending& pending = log->second.pending[access];
    for (const Request& request : pending.requests) count(access, request);
    pending.requests.clear();
    pending.times = {};
  }
  log->second.touched.clear();
}

void Lab::flush_all(Cta& cta) {
  for (std::size_t i = 0; i < cta.size(); i += kWarpSize) flush(*cta.threads()[i].warp);
}

void Lab::meet(const char* operation, Site site, bool is_barrier) {
  for (Meeting& meeting : report_->meetings) {
    if (meeting.site.line != site.line || std::strcmp(meeting.site.file, site.file) != 0) continue;
    if (std::strcmp(meeting.operation, operation) != 0) continue;
    ++meeting.count;
    return;
  }
  report_->meetings.push_back({operation, site, is_barrier, 1});
}

// ---------------------------------------------------------------------------- what is observed

bool Lab::launch_begins(const KernelCall& call, const GridShape& shape) {
  task_ = choose_(call);
  if (task_ == Task::nothing) return false;
  reports_.push_back({function_name(call.function()), shape, {}, {}, {}});
  if (task_ == Task::name) {
    task_ = Task::nothing;
    return false;
  }
  report_ = &reports_.back();
  blocks_ = device_blocks();
  units_.clear();
  by_hash_.clear();
  logs_.clear();
  races_ = std::make_unique<RaceCheck>();
  is_looking = true;
  return true;
}

void Lab::launch_ends() {
  is_looking = false;
  if (task_ == Task::check) report_->races = races_->races();
  task_ = Task::nothing;
  races_.reset();
}

void Lab::block_begins(Cta& cta) {
  if (task_ != Task::check) return;
  const LookAway away;
  races_->block_begins(cta);
}

void Lab::block_ends(Cta& cta) {
  if (task_ == Task::nothing) return;
  const LookAway away;
  if (task_ == Task::count) flush_all(cta);
  if (task_ == Task::check) races_->block_ends(cta);
}

void Lab::barrier_passed(Cta& cta, const char* operation, Site site) {
  if (task_ == Task::nothing) return;
  const LookAway away;
  meet(operation, site, true);
  if (task_ == Task::count) flush_all(cta);
  if (task_ == Task::check) races_->barrier_passed(cta);
}

void Lab::lanes_met(Thread& last, std::uint32_t mask, const char* operation, Site site) {
  if (task_ == Task::nothing) return;
  const LookAway away;
  meet(operation, site, false);
  const bool are_all = mask == (last.warp->exists & ~last.warp->exited);
  if (task_ == Task::count && are_all) flush(*last.warp);
  const bool orders_memory = std::strcmp(operation, "__syncwarp") == 0;
  if (task_ == Task::check && orders_memory) races_->lanes_met(last, mask);
}

// ---------------------------------------------------------------------------- the report

namespace {

/// Names of functions and files, in quotes.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

/// What stands before each element of a JSON array.
const char* comma(bool& is_first) {
  return std::exchange(is_first, false) ? "" : ",";
}

void print(std::FILE* file, const Places& places) {
  static const std::uintptr_t base = load_address();
  bool is_first = true;
  std::fprintf(file, "[");
  for (const std::uintptr_t place : places) {
    std::fprintf(file, "%s%" PRIuPTR, comma(is_first), place - base);
  }
  std::fprintf(file, "]");
}

void print(std::FILE* file, dim3 extent) {
  std::fprintf(file, "[%u,%u,%u]", extent.x, extent.y, extent.z);
}

void print(std::FILE* file, const Access& access) {
  constexpr const char* kKinds[] = {"read", "write", "atomic_read", "atomic"};
  const Counts& c = access.counts;
  std::fprintf(file, "{\"space\":\"%s\",\"kind\":\"%s\",\"size\":%u,",
               access.space == Space::shared ? "shared" : "global",
               kKinds[static_cast<int>(access.kind)], access.bytes);
  std::fprintf(file, "\"requests\":%" PRIu64 ",\"sectors\":%" PRIu64 ",\"needed\":%" PRIu64,
               c.requests, c.sectors, c.needed);
  std::fprintf(file, ",\"bytes\":%" PRIu64 ",\"wavefronts\":%" PRIu64 ",\"conflicts\":%" PRIu64,
               c.bytes, c.wavefronts, c.conflicts);
  std::fprintf(file, ",\"places\":");
  print(file, access.places);
  std::fprintf(file, "}");
}

void print(std::FILE* file, const Race& race) {
  std::fprintf(file, "{\"first\":%u,\"second\":%u,\"blocks\":[", race.first, race.second);
  print(file, dim3(race.first_block));
  std::fprintf(file, ",");
  print(file, dim3(race.second_block));
  std::fprintf(file, "],\"threads\":[%u,%u]}", race.first_thread, race.second_thread);
}

void print(std::FILE* file, const LaunchReport& report) {
  std::fprintf(file, "{\"kernel\":%s,\"grid\":", quoted(report.kernel).c_str());
  print(file, report.shape.grid);
  std::fprintf(file, ",\"block\":");
  print(file, report.shape.block);
  std::fprintf(file, ",\"dynamic_shared_bytes\":%zu,\"accesses\":[", report.shape.shared_bytes);
  bool is_first = true;
  for (const Access& access : report.accesses) {
    std::fprintf(file, "%s\n  ", comma(is_first));
    print(file, access);
  }
  std::fprintf(file, "],\"meetings\":[");
  is_first = true;
  for (const Meeting& meeting : report.meetings) {
    std::fprintf(
        file,
        "%s\n  {\"operation\":%s,\"file\":%s,\"line\":%d,\"barrier\":%s,\"count\":%" PRIu64 "}",
        comma(is_first), quoted(meeting.operation).c_str(), quoted(meeting.site.file).c_str(),
        meeting.site.line, meeting.is_barrier ? "true" : "false", meeting.count);
  }
  std::fprintf(file, "],\"races\":[");
  is_first = true;
  for (const Race& race : report.races) {
    std::fprintf(file, "%s\n  ", comma(is_first));
    print(file, race);
  }
  std::fprintf(file, "]}");
}

}  // namespace

void Lab::print(std::FILE* file, const std::string& fault) const {
  std::fprintf(file, "{\"fault\":%s,\"stopped_at\":", quoted(fault).c_str());
  emulator::print(file, stopped_at_);
  std::fprintf(file, ",\"launches\":[");
  bool is_first = true;
  for (const LaunchReport& report : reports_) {
    std::fprintf(file, "%s\n ", comma(is_first));
    emulator::print(file, report);
  }
  std::fprintf(file, "]}\n");
}

}  // namespace minfer::emulator
