// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>

#include "cuda/emulator/runtime_api.h"

namespace minfer::emulator {

/// Does `work` now, or, if `stream` is being captured, each time its graph is launched.
cudaError_t issue(cudaStream_t stream, std::function<void()> work);

/// True while any stream is being captured: calls that wait for the device are errors then.
bool is_capturing();

/// What an address within or close to device memory is, for a message; empty for any other.
std::string describe_device_memory(const void* pointer);

/// Makes `error` the last error of this host thread, unless it is cudaSuccess, and returns it.
cudaError_t remember(cudaError_t error);

}  // namespace minfer::emulator
