// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace minfer {

/// @throws std::runtime_error naming the position when a logit is NaN or infinite
/// @param[in] logits [n] f32
void require_finite(std::uint32_t position, const float* logits, std::size_t n);

/// The fingerprint of an engine's numerics: XXH64, seed 0, over logits under teacher forcing.
///
/// Of n ids of which the first k are the prompt, the hashed rows are those of positions k-1 .. n-1,
/// in order: each prediction from the prompt's last token on, the last one (after the last id)
/// included, n-k+1 rows in all. A row is the n_tokens logits of the real tokens, UNUSED rows left
/// out, each as four little-endian bytes of fp32. No header, no separators. +0 and -0 differ.
class LogitsHash {
 public:
  LogitsHash();
  ~LogitsHash();
  LogitsHash(const LogitsHash&) = delete;
  LogitsHash& operator=(const LogitsHash&) = delete;

  /// Adds a row. @param[in] logits [n] f32 @throws std::runtime_error as require_finite() does
  void add(std::uint32_t position, const float* logits, std::size_t n);
  std::size_t rows() const { return rows_; }
  std::uint64_t value() const;
  /// The value as 16 hexadecimal digits, as it is printed and committed.
  std::string hex() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::size_t rows_ = 0;
};

}  // namespace minfer
