// SPDX-License-Identifier: MIT
//
// What each kernel of a decode step costs.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <minfer/engine.h>

#include "cuda/event.h"
#include "cuda/graph.h"
#include "cuda/launch.h"
#include "cuda/stream.h"

namespace minfer {

/// Does nothing: what its launch takes, any launch takes.
/// @why Timed as the kernels of a step are, it is what an event and a launch cost by themselves.
template <class = void>
__global__ void empty_kernel() {}

/// A kernel's name without return type, namespaces and parameters: "rmsnorm". Of a template's
/// arguments, what its blocks are stands there as the type's name, "gemv<Q4_0>", and numbers do
/// not.
inline std::string short_kernel_name(std::string name) {
  for (const char* noise : {"(anonymous namespace)::", "minfer::", "void ", "Block"}) {
    const std::string word = noise;
    for (std::size_t at = name.find(word); at != std::string::npos; at = name.find(word, at)) {
      name.erase(at, word.size());
    }
  }
  name.resize(std::min(name.find('(', 1), name.size()));
  const std::size_t bracket = name.find('<');
  const bool numbers = bracket + 1 < name.size() && std::isdigit(name[bracket + 1]);
  return name.substr(0, numbers ? bracket : name.size());
}

/// Kernels as a graph, with an event behind each: the GPU goes from one to the next by itself, and
/// no launch of the host is between the events.
class TimedGraph {
 public:
  /// Records what `work()` launches on `stream`.
  template <class Work>
  TimedGraph(cudaStream_t stream, Work&& work) : stream_(stream) {
    graph_ = Graph::capture(stream, [&] {
      const Observer observer(*this);
      begin_.record_in_graph(stream);
      work();
    });
  }

  /// Runs the kernels and waits for them.
  void run() {
    graph_.launch(stream_);
    CUDA_CHECK(cudaStreamSynchronize(stream_));
  }
  std::size_t size() const { return launches_.size(); }
  std::string name(std::size_t i) const {
    return short_kernel_name(kernel_name(launches_[i].kernel));
  }
  const Traffic& traffic(std::size_t i) const { return launches_[i].traffic; }
  /// Of the i-th launch in the last run: from the event before it to its own.
  double microseconds(std::size_t i) const {
    return 1e3 *
           double{launches_[i].end.milliseconds_since(i == 0 ? begin_ : launches_[i - 1].end)};
  }

 private:
  struct Launch {
    const void* kernel;
    Traffic traffic;
    Event end;
  };

  class Observer final : public LaunchObserver {
   public:
    explicit Observer(TimedGraph& graph) : graph_(graph) {}
    void launched(const void* kernel, const Traffic& traffic, cudaStream_t stream) override {
      graph_.launches_.push_back({kernel, traffic, Event()});
      graph_.launches_.back().end.record_in_graph(stream);
    }

   private:
    TimedGraph& graph_;
  };

  cudaStream_t stream_;
  Event begin_;
  std::vector<Launch> launches_;
  Graph graph_;
};

/// An empty kernel's time between its events, a value a pass.
inline std::vector<double> time_empty_kernel(cudaStream_t stream, std::uint32_t passes) {
  constexpr int kLaunches = 100;
  TimedGraph graph(stream, [&] {
    for (int i = 0; i < kLaunches; ++i) launch(empty_kernel<>, 1, 32, 0, stream);
  });
  std::vector<double> result;
  graph.run();  // the first one is slower: it warms up
  while (result.size() < passes) {
    graph.run();
    double sum = 0;
    for (std::size_t i = 0; i < graph.size(); ++i) sum += graph.microseconds(i);
    result.push_back(sum / kLaunches);
  }
  return result;
}

/// Times the kernels of a step, which `step()` launches on `stream`: once to warm up, then `passes`
/// times, every time the same launches.
/// @param n_positions  of the context, the step's own included: what its traffic depends on
template <class Step>
StepCost time_step(cudaStream_t stream, std::uint32_t passes, std::uint64_t n_positions,
                   Step&& step) {
  TimedGraph graph(stream, step);
  StepCost cost;
  std::vector<std::size_t> entries;  // the kernel of each launch
  for (std::size_t i = 0; i < graph.size(); ++i) {
    std::size_t entry = 0;
    while (entry < cost.kernels.size() && cost.kernels[entry].kernel != graph.name(i)) ++entry;
    if (entry == cost.kernels.size()) {
      cost.kernels.push_back({graph.name(i), 0, 0, std::vector<double>(passes, 0.0)});
    }
    cost.kernels[entry].launches += 1;
    cost.kernels[entry].bytes += graph.traffic(i).at(n_positions);
    entries.push_back(entry);
  }
  graph.run();  // the first one is slower: it warms up
  for (std::uint32_t pass = 0; pass < passes; ++pass) {
    graph.run();
    for (std::size_t i = 0; i < graph.size(); ++i) {
      cost.kernels[entries[i]].us[pass] += graph.microseconds(i);
    }
  }
  cost.empty_us = time_empty_kernel(stream, passes);
  return cost;
}

}  // namespace minfer
