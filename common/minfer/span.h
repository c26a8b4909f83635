// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <vector>

namespace minfer {

/// A borrowed run of `size()` elements (C++20's std::span, as far as this project needs it).
template <class T>
class Span {
 public:
  constexpr Span() = default;
  constexpr Span(T* data, std::size_t size) : data_(data), size_(size) {}
  /// Borrows a whole vector; the vector must outlive the span.
  template <class U>
  Span(const std::vector<U>& v) : data_(v.data()), size_(v.size()) {}
  template <class U>
  Span(std::vector<U>& v) : data_(v.data()), size_(v.size()) {}

  constexpr T* data() const { return data_; }
  constexpr std::size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr T& operator[](std::size_t i) const { return data_[i]; }
  constexpr T* begin() const { return data_; }
  constexpr T* end() const { return data_ + size_; }
  /// The elements from `first` on, `count` of them.
  constexpr Span subspan(std::size_t first, std::size_t count) const {
    return Span(data_ + first, count);
  }
  /// Splits off the first `most` elements, or all if they are fewer, and keeps the others.
  constexpr Span take_front(std::size_t most) {
    const Span front(data_, most < size_ ? most : size_);
    data_ += front.size_;
    size_ -= front.size_;
    return front;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace minfer
