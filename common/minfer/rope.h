// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

namespace minfer {

/// The functions the RoPE table is made with: fixed sequences of IEEE double operations, so that a
/// table has the same bits whatever the C library, compiler and processor.
namespace exact {

/// base^exponent. @pre base > 0, and base^exponent is a normal number. Error below 0.6 ulp.
double pow(double base, double exponent);
/// Cosine and sine. @pre 0 <= angle <= 2^20. Error below 1 ulp, zeros' neighbourhood included.
double cos(double angle);
double sin(double angle);

}  // namespace exact

/// Cosines and sines of rotary position embedding for positions 0 .. n_positions-1: angle i of a
/// position is position * base^(-2i / head_dim), i < head_dim / 2, rounded to fp32 once at the end.
class RopeTable {
 public:
  /// @pre head_dim even, 0 < n_positions <= 2^20, base >= 1
  RopeTable(std::uint32_t head_dim, double base, std::uint32_t n_positions);

  std::uint32_t head_dim() const { return head_dim_; }
  std::uint32_t n_positions() const { return n_positions_; }
  /// [head_dim / 2] f32 of one position. @pre position < n_positions()
  const float* cos(std::uint32_t position) const { return cos_.data() + row(position); }
  const float* sin(std::uint32_t position) const { return sin_.data() + row(position); }

  /// The whole tables, [n_positions, head_dim / 2] f32: what a GPU engine uploads.
  const std::vector<float>& cos_table() const { return cos_; }
  const std::vector<float>& sin_table() const { return sin_; }

 private:
  std::size_t row(std::uint32_t position) const { return std::size_t{position} * (head_dim_ / 2); }
  std::uint32_t head_dim_;
  std::uint32_t n_positions_;
  std::vector<float> cos_, sin_;
};

}  // namespace minfer
