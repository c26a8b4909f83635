// SPDX-License-Identifier: MIT
#pragma once

#include <functional>

#include "cuda/emulator/runtime_api.h"

namespace minfer::emulator {

/// Does `work` now, or, if `stream` is being captured, each time its graph is launched.
cudaError_t issue(cudaStream_t stream, std::function<void()> work);

/// True while any stream is being captured: calls that wait for the device are errors then.
bool is_capturing();

/// Makes `error` the last error of this host thread, unless it is cudaSuccess, and returns it.
cudaError_t remember(cudaError_t error);

}  // namespace minfer::emulator
