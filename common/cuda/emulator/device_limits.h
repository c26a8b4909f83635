// SPDX-License-Identifier: MIT
//
// What the emulated device is: the limits of compute capability 8.7 (Jetson Orin), from the CUDA
// C++ Programming Guide's table of technical specifications. Only the number of SMs and the memory
// can be set. With as many SMs as an H200 it has an H200's shared memory: what a kernel does with
// it would be tried on no other machine.
#pragma once

#include <cstddef>

namespace minfer::emulator {

inline constexpr int kComputeCapabilityMajor = 8;
inline constexpr int kComputeCapabilityMinor = 7;
inline constexpr unsigned kWarpSize = 32;
inline constexpr unsigned kThreadsPerBlock = 1024;
inline constexpr unsigned kThreadsPerSm = 1536;
inline constexpr unsigned kBlocksPerSm = 16;
inline constexpr unsigned kBlockExtentZ = 64;
inline constexpr unsigned kGridExtentX = 2147483647;
inline constexpr unsigned kGridExtentYZ = 65535;
inline constexpr std::size_t kStaticSharedBytes = 48 << 10;   // dynamic too, unless opted in
inline constexpr std::size_t kReservedSharedBytes = 1 << 10;  // the system's, in every block
inline constexpr std::size_t kParameterBytes = 4096;

constexpr std::size_t shared_bytes_per_sm(int sm_count) {
  constexpr int kSmsOfH200 = 132;
  return std::size_t{sm_count < kSmsOfH200 ? 164u : 228u} << 10;
}
constexpr std::size_t opt_in_shared_bytes(int sm_count) {
  return shared_bytes_per_sm(sm_count) - kReservedSharedBytes;
}

}  // namespace minfer::emulator
