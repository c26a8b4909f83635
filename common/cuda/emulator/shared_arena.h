// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/emulator/site.h"

namespace minfer::emulator {

/// One declaration of static shared memory: a static object beside it, and so one for every
/// instantiation of a template.
class SharedVariable {
 public:
  constexpr SharedVariable(const char* name, std::size_t bytes, std::size_t alignment,
                           Site site = Site::here())
      : name(name), bytes(bytes), alignment(alignment), site(site) {}

  /// A small number that no other variable has.
  int id() {
    const int known = id_.load(std::memory_order_relaxed);
    return known >= 0 ? known : assign_id();
  }

  const char* const name;
  const std::size_t bytes;
  const std::size_t alignment;
  const Site site;

 private:
  int assign_id();

  std::atomic<int> id_{-1};
};

/// The shared memory of one CTA.
///
/// Every static variable and the dynamic array is a block of exactly its size between two poisoned
/// gaps, so that AddressSanitizer sees an access outside of it, by name or through a pointer. A
/// block is kept for the next CTA, and can't be accessed in between. Blocks are aligned as their
/// type asks (8 bytes at the least) and no better, for UBSan to see a wider access that the
/// declaration does not allow. At a CTA's start all bytes are 0xff: NaN as float or half, -1 as
/// integer.
class SharedArena {
 public:
  /// Begins a CTA with `dynamic_bytes` of dynamic shared memory.
  void begin(std::size_t dynamic_bytes);

  /// Ends the CTA: nothing of it may be accessed any more.
  void end();

  /// The dynamic shared memory, aligned to 16 bytes.
  void* dynamic() const { return dynamic_.begin; }

  /// This CTA's instance of `variable`.
  /// @throws Fault (through fail()) if the CTA's static shared memory exceeds 48 KiB
  void* variable(SharedVariable& variable) {
    const auto id = static_cast<std::size_t>(variable.id());
    const bool has_begun = id < blocks_.size() && blocks_[id].generation == generation_;
    return has_begun ? blocks_[id].begin : begin_variable(variable, id);
  }

  /// A block as it lies in memory, with a gap of kGap bytes on each side.
  struct Place {
    const char* begin = nullptr;
    std::size_t bytes = 0;
    bool is_begun = false;  // it belongs to the CTA that runs
  };

  static constexpr std::size_t kGap = 4096;

  /// The block that an address lies in or beside; a null one for any other address.
  Place around(const void* address) const;

  /// The blocks that belong to the CTA that runs.
  std::vector<Place> places() const;

  /// What an address close to this CTA's shared memory is, for a message: "4 bytes after shared
  /// variable tile of 128 bytes (softmax.cu:12)"; empty for any other address.
  std::string describe(const void* address) const;

 private:
  struct Free {
    void operator()(char* memory) const;
  };

  struct Block {
    std::unique_ptr<char, Free> memory;
    char* begin = nullptr;
    std::size_t bytes = 0;
    std::uint64_t generation = 0;  // the CTA that has begun it last
    const SharedVariable* variable = nullptr;
  };

  void* begin_variable(SharedVariable& variable, std::size_t id);
  static void allocate(Block& block, std::size_t bytes, std::size_t alignment);
  static bool is_around(const Block& block, const void* address);
  static std::string describe(const Block& block, const void* address);

  Block dynamic_;
  std::vector<Block> blocks_;  // by SharedVariable::id()
  std::size_t static_bytes_ = 0;
  std::uint64_t generation_ = 0;
};

/// The running CTA's instance of `variable`. Called from device code only.
void* shared_variable(SharedVariable& variable);

/// The running CTA's dynamic shared memory. Called from device code only.
void* dynamic_shared();

}  // namespace minfer::emulator
