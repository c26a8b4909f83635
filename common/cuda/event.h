// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "cuda/check.h"

namespace minfer {

/// A point in a stream's work, and the time when it was reached.
class Event {
 public:
  explicit Event(unsigned flags = cudaEventDefault) {
    CUDA_CHECK(cudaEventCreateWithFlags(&event_, flags));
  }
  ~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }

  cudaEvent_t get() const { return event_; }
  operator cudaEvent_t() const { return event_; }

  void record(cudaStream_t stream) { CUDA_CHECK(cudaEventRecord(event_, stream)); }
  /// Where `stream` is captured: becomes part of the graph, whose every launch records it anew,
  /// with its time.
  void record_in_graph(cudaStream_t stream) {
    CUDA_CHECK(cudaEventRecordWithFlags(event_, stream, cudaEventRecordExternal));
  }
  void synchronize() const { CUDA_CHECK(cudaEventSynchronize(event_)); }

  /// Milliseconds from `begin` to this event, on the GPU's clock. Both must have been reached.
  float milliseconds_since(const Event& begin) const {
    float result = 0;
    CUDA_CHECK(cudaEventElapsedTime(&result, begin.event_, event_));
    return result;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace minfer
