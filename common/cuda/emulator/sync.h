// SPDX-License-Identifier: MIT
//
// Barriers, fences, and what else orders threads.
#pragma once

#include "cuda/emulator/hooks.h"

using MinferSite = ::minfer::emulator::Site;

inline void __syncthreads(MinferSite site = MinferSite::here()) {
  minfer::emulator::arrive_at_barrier("__syncthreads", false, site);
}

inline int __syncthreads_count(int predicate, MinferSite site = MinferSite::here()) {
  return static_cast<int>(
      minfer::emulator::arrive_at_barrier("__syncthreads_count", predicate != 0, site));
}

inline int __syncthreads_or(int predicate, MinferSite site = MinferSite::here()) {
  return minfer::emulator::arrive_at_barrier("__syncthreads_or", predicate != 0, site) != 0;
}

inline int __syncthreads_and(int predicate, MinferSite site = MinferSite::here()) {
  const unsigned true_count =
      minfer::emulator::arrive_at_barrier("__syncthreads_and", predicate != 0, site);
  return true_count == blockDim.x * blockDim.y * blockDim.z;
}

inline void __syncwarp(unsigned mask = 0xffffffffu, MinferSite site = MinferSite::here()) {
  --minfer::emulator::arrive_in_warp("__syncwarp", mask, nullptr, 0, site).unread;
}

inline void __threadfence() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  minfer::emulator::preempt();
}
inline void __threadfence_block() {
  __threadfence();
}
inline void __threadfence_system() {
  __threadfence();
}

inline void __nanosleep(unsigned /*nanoseconds*/, MinferSite site = MinferSite::here()) {
  minfer::emulator::spin(site);
}

/// Counts switches between threads instead of cycles: the same number in every run with one seed.
inline long long clock64() {
  return static_cast<long long>(minfer::emulator::ticks());
}

[[noreturn]] inline void __trap() {
  minfer::emulator::fail("__trap() is called");
}
