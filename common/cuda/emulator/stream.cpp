// SPDX-License-Identifier: MIT
//
// Streams, events and graphs. Work is done as it is issued, so a stream is only a place to be
// captured from, an event a time, and a graph a list of work in the order of its capture, which is
// a valid order whatever streams it came from.
#include "cuda/emulator/stream.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

struct CUgraph_st {
  std::vector<std::function<void()>> nodes;
};

struct CUgraphExec_st {
  std::vector<std::function<void()>> nodes;
};

/// A capture: begun in one stream, joined by those that wait for an event of it.
struct Capture {
  cudaStream_t origin = nullptr;
  std::vector<cudaStream_t> streams;
  std::unique_ptr<CUgraph_st> graph;
};

struct CUstream_st {
  std::shared_ptr<Capture> capture;
};

struct CUevent_st {
  std::chrono::steady_clock::time_point time;
  bool is_recorded = false;
  std::weak_ptr<Capture> capture;  // the one that it was recorded in
};

namespace minfer::emulator {
namespace {

std::atomic<int> captures{0};

std::shared_ptr<Capture> capture_of(cudaStream_t stream) {
  return stream == nullptr ? nullptr : stream->capture;
}

}  // namespace

bool is_capturing() {
  return captures.load() > 0;
}

cudaError_t issue(cudaStream_t stream, std::function<void()> work) {
  if (const auto capture = capture_of(stream)) {
    capture->graph->nodes.push_back(std::move(work));
  } else {
    work();
  }
  return cudaSuccess;
}

}  // namespace minfer::emulator

using minfer::emulator::capture_of;
using minfer::emulator::captures;
using minfer::emulator::is_capturing;
using minfer::emulator::remember;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (stream == nullptr) return remember(cudaErrorInvalidResourceHandle);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (capture_of(stream) != nullptr) return remember(cudaErrorStreamCaptureUnsupported);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return cudaStreamSynchronize(stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::shared_ptr<Capture> capture = event->capture.lock();
  if (capture == nullptr || capture == capture_of(stream)) return cudaSuccess;
  if (stream == nullptr || stream->capture != nullptr) {
    return remember(cudaErrorStreamCaptureIsolation);
  }
  stream->capture = capture;
  capture->streams.push_back(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream == nullptr || stream->capture != nullptr) {
    return remember(cudaErrorStreamCaptureUnsupported);
  }
  stream->capture = std::make_shared<Capture>();
  stream->capture->origin = stream;
  stream->capture->streams = {stream};
  stream->capture->graph = std::make_unique<CUgraph_st>();
  ++captures;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::shared_ptr<Capture> capture = capture_of(stream);
  if (capture == nullptr || capture->origin != stream) {
    return remember(cudaErrorStreamCaptureUnmatched);
  }
  for (cudaStream_t member : capture->streams) member->capture = nullptr;
  *graph = capture->graph.release();
  --captures;
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status =
      capture_of(stream) == nullptr ? cudaStreamCaptureStatusNone : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::shared_ptr<Capture> capture = capture_of(stream);
  event->capture = capture;
  event->time = std::chrono::steady_clock::now();
  event->is_recorded = capture == nullptr;
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  if (flags != cudaEventRecordExternal) return cudaEventRecord(event, stream);
  // Part of the graph: recorded at each of its launches.
  return minfer::emulator::issue(stream, [event] { cudaEventRecord(event, nullptr); });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return remember(event->capture.expired() ? cudaSuccess : cudaErrorStreamCaptureUnsupported);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return cudaEventSynchronize(event);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (!begin->is_recorded || !end->is_recorded) return remember(cudaErrorInvalidResourceHandle);
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new CUgraphExec_st{graph->nodes};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return minfer::emulator::issue(stream, [nodes = exec->nodes] {
    for (const auto& node : nodes) node();
  });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  if (nodes == nullptr) {
    *count = graph->nodes.size();
    return cudaSuccess;
  }
  *count = std::min(*count, graph->nodes.size());
  for (std::size_t i = 0; i < *count; ++i) {
    nodes[i] = reinterpret_cast<cudaGraphNode_t>(&graph->nodes[i]);
  }
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}
