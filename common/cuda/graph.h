// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>

#include "cuda/check.h"

namespace minfer {

/// Work recorded once and launched as one piece.
class Graph {
 public:
  Graph() = default;

  /// Records what `work()` issues on `stream`, which is not executed. Arguments of kernels are
  /// recorded by value; the memory that they point to is read at each launch.
  /// What `work` throws passes through. @throws CudaError if it does what can't be recorded
  template <class Work>
  static Graph capture(cudaStream_t stream, Work&& work) {
    // Thread-local: what other threads do to the device meanwhile is their affair.
    CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    cudaGraph_t recorded = nullptr;
    try {
      work();
    } catch (...) {
      if (cudaStreamEndCapture(stream, &recorded) == cudaSuccess && recorded != nullptr) {
        cudaGraphDestroy(recorded);
      }
      cudaGetLastError();
      throw;
    }
    CUDA_CHECK(cudaStreamEndCapture(stream, &recorded));
    return Graph(recorded);
  }

  /// Issues the recorded work on `stream`.
  void launch(cudaStream_t stream) const { CUDA_CHECK(cudaGraphLaunch(exec_.get(), stream)); }

  /// How many kernels, copies and the like were recorded.
  std::size_t nodes() const { return nodes_; }

 private:
  explicit Graph(cudaGraph_t recorded) {
    const std::unique_ptr<CUgraph_st, Destroy> graph(recorded);
    CUDA_CHECK(cudaGraphGetNodes(recorded, nullptr, &nodes_));
    cudaGraphExec_t exec = nullptr;
    CUDA_CHECK(cudaGraphInstantiate(&exec, recorded, 0));
    exec_.reset(exec);
  }

  struct Destroy {
    void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
    void operator()(cudaGraphExec_t exec) const { cudaGraphExecDestroy(exec); }
  };

  std::unique_ptr<CUgraphExec_st, Destroy> exec_;
  std::size_t nodes_ = 0;
};

}  // namespace minfer
