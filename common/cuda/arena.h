// SPDX-License-Identifier: MIT
//
// Device memory for many arrays, taken where they are declared.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <minfer/gguf/model.h>

#include "cuda/buffer.h"
#include "cuda/device.h"
#if defined(MINFER_EMULATOR)
#include "cuda/emulator/device_memory.h"
#endif

namespace minfer {

/// One allocation that arrays are taken from, each where it is declared. The declarations run
/// twice: an arena made without a size hands out null and adds up, one made with that sum hands out
/// memory. Placed does both.
class Arena {
 public:
  Arena() = default;
  explicit Arena(std::size_t bytes) : memory_(bytes, "arena"), is_placed_(true) {}

  /// An array of these extents, the last one innermost; null while only sizes are added up.
  template <class T, class... Extents>
  T* take(Extents... extents) {
    const std::size_t bytes = (sizeof(T) * ... * static_cast<std::size_t>(extents));
    const std::size_t begin = used_;
    used_ += (bytes + kGap + kAlignment - 1) / kAlignment * kAlignment;
    if (!is_placed_) return nullptr;
    std::byte* memory = memory_.data() + begin;
#if defined(MINFER_EMULATOR)
    emulator::forbid(memory + bytes, used_ - begin - bytes);
#endif
    return reinterpret_cast<T*>(memory);
  }

  /// An array of n elements with the host's values.
  template <class T>
  const T* upload(const T* host, std::size_t n) {
    T* device = take<T>(n);
    if (is_placed_) copy(device, host, n);
    return device;
  }

  template <class T>
  const T* upload(const std::vector<T>& host) {
    return upload(host.data(), host.size());
  }

  /// Fills what was taken. @pre is_placed()
  template <class T>
  void copy(T* device, const T* host, std::size_t n) const {
    CUDA_CHECK(cudaMemcpy(device, host, n * sizeof(T), cudaMemcpyHostToDevice));
  }
  template <class T>
  void copy(T* device, const std::vector<T>& host) const {
    copy(device, host.data(), host.size());
  }

  /// Whether take() hands out memory.
  bool is_placed() const {
    return is_placed_;
  }
  std::size_t used() const {
    return used_;
  }

 private:
  static constexpr std::size_t kAlignment = 256;
#if defined(MINFER_EMULATOR)
  static constexpr std::size_t kGap = 64;  // that no kernel may touch
#else
  static constexpr std::size_t kGap = 0;
#endif

  DeviceBuffer<std::byte> memory_;
  std::size_t used_ = 0;
  bool is_placed_ = false;
};

/// Copies a matrix, still quantized, and gives its pages of the file back.
inline Matrix upload(Arena& arena, const Model& model, Matrix m) {
  m.data = arena.upload(m.data, m.bytes());
  if (arena.is_placed()) model.release(m);
  return m;
}

/// The lm_head likewise; where it is the token embedding itself, that is there already.
inline Matrix upload_head(Arena& arena, const Model& model, const Matrix& token_embedding) {
  Matrix head = model.lm_head();
  if (!model.tied()) return upload(arena, model, head);
  head.data = token_embedding.data;
  return head;
}

/// A T whose arrays are in device memory. T is an aggregate that begins with an Arena&, from which
/// its members take what they need. What it is made of besides it may look at only then.
template <class T>
class Placed {
 public:
  /// @param what  needs the memory, for an error: "the model with a context of 4096 tokens"
  /// @param args  what T has behind the arena
  /// @throws std::runtime_error with both numbers when the GPU has less memory, before any is taken
  template <class... Args>
  explicit Placed(const std::string& what, const Args&... args)
      : arena_(measured(what, args...)), value_{arena_, args...} {
    CUDA_CHECK(cudaDeviceSynchronize());  // what was uploaded has arrived
  }

  const T& operator*() const { return value_; }
  const T* operator->() const { return &value_; }

 private:
  template <class... Args>
  static std::size_t measured(const std::string& what, const Args&... args) {
    Arena arena;
    T{arena, args...};
    // Where GPU and CPU share memory, what is not free may be the page cache, which gives way.
    const DeviceMemory memory = DeviceMemory::current();
    const std::size_t available = Device::current().is_integrated ? memory.total : memory.free;
    if (arena.used() <= available) return arena.used();
    throw std::runtime_error("GPU memory: " + what + " needs " + mebibytes(arena.used()) +
                             ", but the GPU has " + mebibytes(available) +
                             " (a smaller context needs less: -c)");
  }

  Arena arena_;
  T value_;
};

}  // namespace minfer
