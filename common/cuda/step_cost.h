// SPDX-License-Identifier: MIT
//
// What each kernel of a decode step costs.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <minfer/engine.h>
#include <minfer/gguf/quant.h>

#include "cuda/event.h"
#include "cuda/graph.h"
#include "cuda/launch.h"
#include "cuda/stream.h"

namespace minfer {

/// Does nothing: what its launch takes, any launch takes.
/// @launch{grid 1\, block 32}
/// @traffic{none}
/// @why{Timed as the kernels of a step are\, it is what an event and a launch cost by themselves.}
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

/// short_kernel_name() of a kernel that is a template over a tensor's blocks.
inline std::string kernel_of_blocks(const char* kernel, TensorType type) {
  const bool plain = type == TensorType::kF32;
  return std::string(kernel) + "<" + (plain ? "float" : type_name(type)) + ">";
}

/// What a step's kernels move, put together launch by launch from their traffic functions.
class StepTraffic {
 public:
  /// Adds launches of a kernel that move `bytes` each. @param kernel its short_kernel_name()
  void add(const std::string& kernel, std::uint64_t bytes, std::uint32_t launches = 1) {
    KernelCost& cost = find(kernel);
    cost.launches += launches;
    cost.bytes += launches * bytes;
  }
  /// The kernels so far, without times, in the order of their first launches.
  const std::vector<KernelCost>& kernels() const { return kernels_; }
  /// A kernel's entry, made where there is none.
  KernelCost& find(const std::string& kernel) {
    for (KernelCost& cost : kernels_) {
      if (cost.kernel == kernel) return cost;
    }
    kernels_.push_back({kernel, 0, 0, {}});
    return kernels_.back();
  }

 private:
  std::vector<KernelCost> kernels_;
};

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
  std::size_t size() const { return kernels_.size(); }
  std::string name(std::size_t i) const { return short_kernel_name(kernel_name(kernels_[i])); }
  /// Of the i-th launch in the last run: from the event before it to its own.
  double microseconds(std::size_t i) const {
    return 1e3 * double{events_[i].milliseconds_since(i == 0 ? begin_ : events_[i - 1])};
  }

 private:
  class Observer final : public LaunchObserver {
   public:
    explicit Observer(TimedGraph& graph) : graph_(graph) {}
    void launched(const void* kernel, cudaStream_t stream) override {
      graph_.kernels_.push_back(kernel);
      graph_.events_.emplace_back();
      graph_.events_.back().record_in_graph(stream);
    }

   private:
    TimedGraph& graph_;
  };

  cudaStream_t stream_;
  Event begin_;
  std::vector<Event> events_;         // one a launch
  std::vector<const void*> kernels_;  // likewise
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
/// @param traffic  of the step: its kernels and their launches have to be those that are found
/// @throws std::logic_error where they are not
template <class Step>
StepCost time_step(cudaStream_t stream, std::uint32_t passes, const StepTraffic& traffic,
                   Step&& step) {
  TimedGraph graph(stream, step);
  StepTraffic found;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < graph.size(); ++i) {
    names.push_back(graph.name(i));
    found.add(names.back(), 0);
  }
  for (const KernelCost& given : traffic.kernels()) {
    KernelCost& cost = found.find(given.kernel);
    cost.bytes = given.bytes;
    cost.us.assign(passes, 0);
    if (cost.launches == given.launches) continue;
    throw std::logic_error("the traffic of a step has " + std::to_string(given.launches) +
                           " launches of " + given.kernel + ", the step " +
                           std::to_string(cost.launches));
  }
  if (found.kernels().size() != traffic.kernels().size()) {
    throw std::logic_error("a step has " + std::to_string(found.kernels().size()) +
                           " kernels, its traffic " + std::to_string(traffic.kernels().size()));
  }
  graph.run();  // the first one is slower: it warms up
  for (std::uint32_t pass = 0; pass < passes; ++pass) {
    graph.run();
    for (std::size_t i = 0; i < graph.size(); ++i) {
      found.find(names[i]).us[pass] += graph.microseconds(i);
    }
  }
  return {found.kernels(), time_empty_kernel(stream, passes)};
}

}  // namespace minfer
