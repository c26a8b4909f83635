// SPDX-License-Identifier: MIT
//
// Device and page-locked memory. Both are the host's: each allocation is a heap block of its own,
// so AddressSanitizer finds what is accessed beyond it or after it was freed. Fresh memory is
// filled with 0xff, which is a NaN as float or half.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/emulator/device_memory.h"
#include "cuda/emulator/observer.h"
#include "cuda/emulator/sanitizer.h"
#include "cuda/emulator/settings.h"
#include "cuda/emulator/stream.h"

namespace minfer::emulator {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr int kUninitialized = 0xff;
constexpr std::size_t kMargin = 64 << 10;  // beside a block, where an observer is to see mistakes

/// Allocations of one kind, by address.
class Allocations {
 public:
  /// A new block, or nullptr if `limit` or the host's memory is exhausted.
  void* allocate(std::size_t bytes, std::size_t limit) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (bytes > limit || used_ > limit - bytes) return nullptr;
    const std::size_t margin = observer == nullptr ? 0 : kMargin;
    void* allocated = nullptr;
    if (posix_memalign(&allocated, kAlignment, bytes + 2 * margin) != 0) return nullptr;
    char* memory = static_cast<char*>(allocated) + margin;
    std::memset(memory, kUninitialized, bytes);
    const auto begin = reinterpret_cast<std::uintptr_t>(memory);
    blocks_[begin] = {begin, bytes, margin, {}};
    used_ += bytes;
    return memory;
  }

  /// Gives a block back; false if `pointer` is not the start of one.
  bool release(void* pointer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = blocks_.find(reinterpret_cast<std::uintptr_t>(pointer));
    if (found == blocks_.end()) return false;
    used_ -= found->second.bytes;
    std::free(static_cast<char*>(pointer) - found->second.margin);
    blocks_.erase(found);
    return true;
  }

  /// How many bytes there are from `pointer` to the end of the block that holds it; 0 if none does.
  std::size_t bytes_from(const void* pointer) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    const auto after = blocks_.upper_bound(address);
    if (after == blocks_.begin()) return 0;
    const DeviceBlock& block = std::prev(after)->second;
    return address - block.begin < block.bytes ? block.bytes - (address - block.begin) : 0;
  }

  /// Notes that no kernel may touch [begin, begin + bytes), which lies in one block.
  void forbid(const void* begin, std::size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto address = reinterpret_cast<std::uintptr_t>(begin);
    DeviceBlock& block = std::prev(blocks_.upper_bound(address))->second;
    block.gaps.push_back({address - block.begin, bytes});
  }

  std::vector<DeviceBlock> all() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<DeviceBlock> result;
    for (const auto& [begin, block] : blocks_) result.push_back(block);
    return result;
  }

  /// What an address within or close to a block is, for a message; empty for any other.
  std::string describe(const void* pointer) const {
    constexpr std::size_t kNear = 4096;
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    std::size_t nearest = kNear;
    std::string result;
    const auto consider = [&](std::size_t distance, const char* relation, std::size_t bytes) {
      if (distance >= nearest) return;
      nearest = distance;
      result = std::to_string(distance) + " bytes " + relation + " " + std::to_string(bytes) +
               " bytes of device memory";
    };
    const auto after = blocks_.upper_bound(address);
    if (after != blocks_.end()) consider(after->first - address, "before", after->second.bytes);
    if (after == blocks_.begin()) return result;
    const DeviceBlock& block = std::prev(after)->second;
    const std::size_t offset = address - block.begin;
    if (offset < block.bytes) return describe_within(block, offset);
    consider(offset - block.bytes, "after", block.bytes);
    return result;
  }

  std::size_t used() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return used_;
  }

 private:
  static std::string describe_within(const DeviceBlock& block, std::size_t offset) {
    std::size_t array = 0;  // where the one begins that the next gap ends
    for (const DeviceBlock::Gap& gap : block.gaps) {
      if (offset < gap.begin) break;
      if (offset - gap.begin < gap.bytes) {
        return std::to_string(offset - gap.begin) + " bytes after an array of " +
               std::to_string(gap.begin - array) + " bytes in device memory";
      }
      array = gap.begin + gap.bytes;
    }
    return std::to_string(offset) + " bytes into device memory";
  }

  mutable std::mutex mutex_;
  std::map<std::uintptr_t, DeviceBlock> blocks_;
  std::size_t used_ = 0;
};

Allocations& device_memory() {
  static Allocations instance;
  return instance;
}

Allocations& host_memory() {
  static Allocations instance;
  return instance;
}

bool is_device(const void* pointer) {
  return device_memory().bytes_from(pointer) > 0;
}

/// Whether a range that begins in device memory also ends in the same block.
bool fits(const void* pointer, std::size_t bytes) {
  const std::size_t available = device_memory().bytes_from(pointer);
  return available == 0 || bytes <= available;  // 0: host memory, or a __device__ variable
}

cudaError_t check_copy(const void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return cudaSuccess;
  if (to == nullptr || from == nullptr) return cudaErrorInvalidValue;
  if (!fits(to, bytes) || !fits(from, bytes)) return cudaErrorInvalidValue;
  const bool from_host = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost;
  const bool to_host = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost;
  if ((from_host && is_device(from)) || (to_host && is_device(to))) return cudaErrorInvalidValue;
  return cudaSuccess;
}

cudaError_t allocate(Allocations& allocations, void** pointer, std::size_t bytes,
                     std::size_t limit) {
  if (is_capturing()) return remember(cudaErrorStreamCaptureUnsupported);
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  *pointer = allocations.allocate(bytes, limit);
  return remember(*pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t release(Allocations& allocations, void* pointer) {
  if (is_capturing()) return remember(cudaErrorStreamCaptureUnsupported);
  const bool ok = pointer == nullptr || allocations.release(pointer);
  return remember(ok ? cudaSuccess : cudaErrorInvalidValue);
}

}  // namespace

std::vector<DeviceBlock> device_blocks() {
  return device_memory().all();
}

void forbid(void* begin, std::size_t bytes) {
  poison(begin, bytes);
  device_memory().forbid(begin, bytes);
}

std::string describe_device_memory(const void* pointer) {
  return device_memory().describe(pointer);
}

cudaError_t copy_symbol(void* symbol, std::size_t size, void* host, std::size_t bytes,
                        std::size_t offset, bool to_symbol, cudaStream_t stream, bool async) {
  if (!async && is_capturing()) return remember(cudaErrorStreamCaptureUnsupported);
  if (offset > size || bytes > size - offset) return remember(cudaErrorInvalidValue);
  char* variable = static_cast<char*>(symbol) + offset;
  return issue(stream, [=] {
    std::memcpy(to_symbol ? variable : host, to_symbol ? host : variable, bytes);
  });
}

}  // namespace minfer::emulator

using namespace minfer::emulator;

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  if (settings().failing_allocations > 0) {
    --settings().failing_allocations;
    return remember(cudaErrorMemoryAllocation);
  }
  return allocate(device_memory(), pointer, bytes, settings().memory_bytes);
}

cudaError_t cudaFree(void* pointer) {
  return release(device_memory(), pointer);
}

cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  return allocate(host_memory(), pointer, bytes, SIZE_MAX / 2);
}

cudaError_t cudaMallocHost(void** pointer, std::size_t bytes, unsigned flags) {
  return cudaHostAlloc(pointer, bytes, flags);
}

cudaError_t cudaFreeHost(void* pointer) {
  return release(host_memory(), pointer);
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  if (host_memory().bytes_from(host) == 0) return remember(cudaErrorInvalidValue);
  *device = host;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  const std::size_t used = device_memory().used();
  *total_bytes = settings().memory_bytes;
  *free_bytes = used < *total_bytes ? *total_bytes - used : 0;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const cudaError_t error = check_copy(to, from, bytes, kind);
  if (error != cudaSuccess || bytes == 0) return remember(error);
  return issue(stream, [=] { std::memmove(to, from, bytes); });
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (is_capturing()) return remember(cudaErrorStreamCaptureUnsupported);
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (!fits(to, bytes)) return remember(cudaErrorInvalidValue);
  if (bytes == 0) return cudaSuccess;
  return issue(stream, [=] { std::memset(to, value, bytes); });
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  if (is_capturing()) return remember(cudaErrorStreamCaptureUnsupported);
  return cudaMemsetAsync(to, value, bytes, nullptr);
}
