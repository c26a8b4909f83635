// SPDX-License-Identifier: MIT
//
// Shuffles, votes and reductions within a warp. __activemask() is left out on purpose: which lanes
// happen to run together is not a property of the program.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/emulator/hooks.h"
#include "cuda/emulator/sync.h"

namespace minfer::emulator {

/// The lane that a shuffle reads, from the first and the last lane of the caller's section.
template <class T, class Source>
T shuffle(const char* operation, unsigned mask, T value, int width, MinferSite site,
          Source source) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                "shuffles move numbers of 32 or 64 bits");
  const WarpExchange<T> exchange(operation, mask, value, site);
  const int own = static_cast<int>(lane());
  const int first = own & ~(width - 1);
  const int from = source(own, first, first + width - 1);
  return exchange[static_cast<unsigned>(from)];
}

/// Combines what the lanes of `mask` bring, in the order of the lanes.
template <class T, class Combine>
T reduce(const char* operation, unsigned mask, T value, MinferSite site, Combine combine) {
  const WarpExchange<T> exchange(operation, mask, value, site);
  unsigned rest = exchange.mask();
  T result = exchange[static_cast<unsigned>(__builtin_ctz(rest))];
  for (rest &= rest - 1; rest != 0; rest &= rest - 1) {
    result = combine(result, exchange[static_cast<unsigned>(__builtin_ctz(rest))]);
  }
  return result;
}

inline unsigned ballot(const char* operation, unsigned mask, bool predicate, MinferSite site) {
  const unsigned own = predicate ? 1u << lane() : 0u;
  return reduce(operation, mask, own, site, [](unsigned a, unsigned b) { return a | b; });
}

}  // namespace minfer::emulator

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              MinferSite site = MinferSite::here()) {
  return minfer::emulator::shuffle(
      "__shfl_sync", mask, value, width, site,
      [&](int, int first, int) { return first + (source & (width - 1)); });
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 MinferSite site = MinferSite::here()) {
  return minfer::emulator::shuffle("__shfl_up_sync", mask, value, width, site,
                                   [&](int own, int first, int) {
                                     const int from = own - static_cast<int>(delta);
                                     return from < first ? own : from;
                                   });
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   MinferSite site = MinferSite::here()) {
  return minfer::emulator::shuffle("__shfl_down_sync", mask, value, width, site,
                                   [&](int own, int, int last) {
                                     const int from = own + static_cast<int>(delta);
                                     return from > last ? own : from;
                                   });
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                  MinferSite site = MinferSite::here()) {
  return minfer::emulator::shuffle("__shfl_xor_sync", mask, value, width, site,
                                   [&](int own, int, int last) {
                                     const int from = own ^ lane_mask;
                                     return from > last ? own : from;
                                   });
}

inline unsigned __ballot_sync(unsigned mask, int predicate, MinferSite site = MinferSite::here()) {
  return minfer::emulator::ballot("__ballot_sync", mask, predicate != 0, site);
}

inline int __any_sync(unsigned mask, int predicate, MinferSite site = MinferSite::here()) {
  return minfer::emulator::ballot("__any_sync", mask, predicate != 0, site) != 0;
}

inline int __all_sync(unsigned mask, int predicate, MinferSite site = MinferSite::here()) {
  return minfer::emulator::ballot("__all_sync", mask, predicate != 0, site) == mask;
}

/// The lanes of `mask` that bring the same value as the caller.
template <class T>
unsigned __match_any_sync(unsigned mask, T value, MinferSite site = MinferSite::here()) {
  const minfer::emulator::WarpExchange<T> exchange("__match_any_sync", mask, value, site);
  unsigned result = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (exchange.has(lane) && exchange[lane] == value) result |= 1u << lane;
  }
  return result;
}

#define MINFER_EMULATOR_REDUCE(name, type, expression)                                             \
  inline type name(unsigned mask, type value, MinferSite site = MinferSite::here()) {              \
    return minfer::emulator::reduce(#name, mask, value, site,                                      \
                                    [](type a, type b) { return static_cast<type>(expression); }); \
  }
MINFER_EMULATOR_REDUCE(__reduce_add_sync, unsigned, a + b)
MINFER_EMULATOR_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
MINFER_EMULATOR_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
MINFER_EMULATOR_REDUCE(__reduce_and_sync, unsigned, a& b)
MINFER_EMULATOR_REDUCE(__reduce_or_sync, unsigned, a | b)
MINFER_EMULATOR_REDUCE(__reduce_xor_sync, unsigned, a ^ b)
MINFER_EMULATOR_REDUCE(__reduce_add_sync, int, static_cast<unsigned>(a) + static_cast<unsigned>(b))
MINFER_EMULATOR_REDUCE(__reduce_min_sync, int, a < b ? a : b)
MINFER_EMULATOR_REDUCE(__reduce_max_sync, int, a > b ? a : b)
#undef MINFER_EMULATOR_REDUCE
