// SPDX-License-Identifier: MIT
#include <minfer/logits_hash.h>

#include <xxhash.h>

#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <new>
#include <stdexcept>

namespace minfer {

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "logits are hashed as they lie in memory, which must be little-endian"
#endif

void require_finite(std::uint32_t position, const float* logits, std::size_t n) {
  // x - x is 0 for every finite number and NaN for the others; summed first, looked for after,
  // because the sum vectorizes and the search is never needed.
  float probe = 0;
  for (std::size_t i = 0; i < n; ++i) probe += logits[i] - logits[i];
  if (probe == 0) return;
  std::size_t i = 0;
  while (logits[i] - logits[i] == 0) ++i;
  throw std::runtime_error("position " + std::to_string(position) + ": the logit of token " +
                           std::to_string(i) + " is " +
                           (std::isnan(logits[i]) ? "NaN" : "infinite") +
                           ", where a finite number was expected");
}

struct LogitsHash::Impl {
  Impl() : state(XXH64_createState()) {
    if (!state) throw std::bad_alloc();
    XXH64_reset(state, 0);
  }
  ~Impl() { XXH64_freeState(state); }
  XXH64_state_t* state;
};

LogitsHash::LogitsHash() : impl_(std::make_unique<Impl>()) {}
LogitsHash::~LogitsHash() = default;

void LogitsHash::add(std::uint32_t position, const float* logits, std::size_t n) {
  require_finite(position, logits, n);
  XXH64_update(impl_->state, logits, n * sizeof(float));
  ++rows_;
}

std::uint64_t LogitsHash::value() const {
  return XXH64_digest(impl_->state);
}

std::string LogitsHash::hex() const {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, value());
  return text;
}

}  // namespace minfer
