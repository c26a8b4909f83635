// SPDX-License-Identifier: MIT
//
// Launching kernels, checked, on a GPU or in the emulator.
#pragma once

#include <cuda_runtime.h>
#include <cxxabi.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cuda/check.h"
#include "cuda/device.h"

namespace minfer {

/// What a kernel may use of shared memory without opting in.
inline constexpr std::size_t kDefaultSharedBytes = 48 << 10;

/// The name of a kernel, as C++ writes it.
inline std::string kernel_name(const void* kernel) {
  const char* mangled = nullptr;
  if (cudaFuncGetName(&mangled, kernel) != cudaSuccess || mangled == nullptr) {
    cudaGetLastError();
    return "(unknown)";
  }
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(mangled, nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : mangled;
}

/// "kernel K, grid (8,1,1), block (256,1,1), 1024 bytes of dynamic shared memory".
inline std::string describe_launch(const void* kernel, dim3 grid, dim3 block,
                                   std::size_t shared_bytes) {
  const auto text = [](dim3 d) {
    return "(" + std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z) + ")";
  };
  return "kernel " + kernel_name(kernel) + ", grid " + text(grid) + ", block " + text(block) +
         ", " + std::to_string(shared_bytes) + " bytes of dynamic shared memory";
}

/// Throws a CudaError that describes the launch, unless `error` is cudaSuccess.
inline void check_launch(cudaError_t error, const void* kernel, dim3 grid, dim3 block,
                         std::size_t shared_bytes) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw CudaError(error, describe_launch(kernel, grid, block, shared_bytes) + ": " +
                             cudaGetErrorName(error) + cuda_error_hint(error));
}

/// What a launch has to move at least, each array counted once: it is stated where the kernel is
/// launched, and known from there to whoever times it.
struct Traffic {
  std::uint64_t bytes = 0;
  std::uint64_t bytes_a_position = 0;  ///< besides, for each position of the context

  constexpr std::uint64_t at(std::uint64_t n_positions) const {
    return bytes + bytes_a_position * n_positions;
  }
};

/// Is told of every launch that its thread makes while it lives; of two, the younger.
class LaunchObserver {
 public:
  LaunchObserver() : outer_(std::exchange(active(), this)) {}
  virtual ~LaunchObserver() { active() = outer_; }
  LaunchObserver(const LaunchObserver&) = delete;
  LaunchObserver& operator=(const LaunchObserver&) = delete;

  /// Called right behind the launch of `kernel` on `stream`, so that what it issues there follows.
  virtual void launched(const void* kernel, const Traffic& traffic, cudaStream_t stream) = 0;

  /// This thread's; null where there is none.
  static LaunchObserver*& active() {
    thread_local LaunchObserver* observer = nullptr;
    return observer;
  }

 private:
  LaunchObserver* outer_;
};

/// Adds up what the launches move that are made while it lives.
class TrafficSum final : public LaunchObserver {
 public:
  void launched(const void*, const Traffic& traffic, cudaStream_t) override {
    sum_.bytes += traffic.bytes;
    sum_.bytes_a_position += traffic.bytes_a_position;
  }
  std::uint64_t at(std::uint64_t n_positions) const { return sum_.at(n_positions); }

 private:
  Traffic sum_;
};

/// Lets `kernel` use `shared_bytes` of dynamic shared memory, if with its static shared memory that
/// is more than it may by default.
template <class... P>
void allow_shared_bytes(void (*kernel)(P...), std::size_t shared_bytes) {
  if (shared_bytes == 0) return;
  const void* address = reinterpret_cast<const void*>(kernel);
  cudaFuncAttributes attributes;
  CUDA_CHECK(cudaFuncGetAttributes(&attributes, address));
  const std::size_t static_bytes = attributes.sharedSizeBytes;
  if (static_bytes + shared_bytes <= kDefaultSharedBytes) return;
  int id = 0;
  CUDA_CHECK(cudaGetDevice(&id));
  const auto limit =
      static_cast<std::size_t>(device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, id));
  if (static_bytes + shared_bytes > limit) {
    throw CudaError(cudaErrorInvalidValue,
                    "kernel " + kernel_name(address) + ": " + std::to_string(shared_bytes) +
                        " bytes of dynamic shared memory asked for; this GPU has " +
                        std::to_string(limit - static_bytes) + " for a block");
  }
  CUDA_CHECK(cudaFuncSetAttribute(address, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(shared_bytes)));
}

#if !defined(MINFER_EMULATOR)
/// Whether `kernel` was compiled for GPUs where it may begin early, and so with its
/// wait_for_previous_kernel().
inline bool can_begin_early(const void* kernel) {
  cudaFuncAttributes attributes;
  CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel));
  return attributes.ptxVersion >= 90;
}
#endif

/// When a kernel begins.
enum class Begin {
  kBehind,  ///< when the one before it on its stream has ended
  kEarly,   ///< on sm_90 and newer, when that one's blocks have called let_next_kernel_begin(), or
            ///< ended; what it leaves may be touched behind wait_for_previous_kernel() alone
};

/// Launches `kernel<<<grid, block, shared_bytes, stream>>>(args...)`, which moves `traffic`.
/// @throws CudaError if the launch is refused (or, on a GPU, if earlier work has failed by now)
template <class... P, class... A>
void launch(Begin begin, void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes,
            const Traffic& traffic, cudaStream_t stream, A&&... args) {
  static_assert(sizeof...(P) == sizeof...(A), "one argument for each parameter of the kernel");
  allow_shared_bytes(kernel, shared_bytes);
  const void* address = reinterpret_cast<const void*>(kernel);
#if defined(MINFER_EMULATOR)
  (void)begin;  // here a kernel begins when the one before it has ended
  const cudaError_t error = emulator::launch_kernel(
      std::make_shared<emulator::TypedCall<P...>>(kernel, std::forward<A>(args)...),
      {grid, block, shared_bytes, false}, stream);
#else
  cudaLaunchConfig_t config = {grid, block, shared_bytes, stream, nullptr, 0};
  cudaLaunchAttribute attribute;
  if (begin == Begin::kEarly && can_begin_early(address)) {
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
  }
  const cudaError_t error =
      cudaLaunchKernelEx(&config, kernel, static_cast<P>(std::forward<A>(args))...);
#endif
  check_launch(error, address, grid, block, shared_bytes);
  if (LaunchObserver* observer = LaunchObserver::active()) {
    observer->launched(address, traffic, stream);
  }
}

/// The same, of a kernel that begins behind the one before it.
template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes,
            const Traffic& traffic, cudaStream_t stream, A&&... args) {
  launch(Begin::kBehind, kernel, grid, block, shared_bytes, traffic, stream,
         std::forward<A>(args)...);
}

/// The same, of a kernel whose traffic nobody asks for.
template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes,
            cudaStream_t stream, A&&... args) {
  launch(kernel, grid, block, shared_bytes, Traffic{}, stream, std::forward<A>(args)...);
}

/// How many CTAs of `kernel` the GPU can run at once: the largest cooperative grid.
template <class... P>
int cooperative_grid_limit(void (*kernel)(P...), int block_threads, std::size_t shared_bytes) {
  allow_shared_bytes(kernel, shared_bytes);
  int id = 0;
  int per_sm = 0;
  CUDA_CHECK(cudaGetDevice(&id));
  CUDA_CHECK(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel, block_threads, shared_bytes));
  return per_sm * device_attribute(cudaDevAttrMultiProcessorCount, id);
}

/// Launches a grid whose CTAs all run at once, and so may wait for each other.
/// @throws CudaError if the GPU can't run so many CTAs at once; both numbers are in the text
template <class... P, class... A>
void launch_cooperative(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes,
                        cudaStream_t stream, A&&... args) {
  static_assert(sizeof...(P) == sizeof...(A), "one argument for each parameter of the kernel");
  const void* address = reinterpret_cast<const void*>(kernel);
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  const int threads = static_cast<int>(block.x * block.y * block.z);
  const int limit = cooperative_grid_limit(kernel, threads, shared_bytes);
  if (blocks > static_cast<std::uint64_t>(limit)) {
    throw CudaError(
        cudaErrorCooperativeLaunchTooLarge,
        describe_launch(address, grid, block, shared_bytes) + ": " + std::to_string(blocks) +
            " blocks must run at once, but this GPU has room for " + std::to_string(limit));
  }
#if defined(MINFER_EMULATOR)
  const cudaError_t error = emulator::launch_kernel(
      std::make_shared<emulator::TypedCall<P...>>(kernel, std::forward<A>(args)...),
      {grid, block, shared_bytes, true}, stream);
#else
  std::tuple<std::decay_t<P>...> values(static_cast<P>(std::forward<A>(args))...);
  const cudaError_t error = std::apply(
      [&](auto&... value) {
        void* pointers[] = {static_cast<void*>(&value)..., nullptr};
        return cudaLaunchCooperativeKernel(address, grid, block, pointers, shared_bytes, stream);
      },
      values);
#endif
  check_launch(error, address, grid, block, shared_bytes);
  if (LaunchObserver* observer = LaunchObserver::active()) {
    observer->launched(address, Traffic{}, stream);
  }
}

}  // namespace minfer
