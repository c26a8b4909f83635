// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include <minfer/engine.h>
#include <minfer/gguf/model.h>

namespace minfer {

/// What this engine is called and which options it honours.
EngineInfo engine_info();

/// The engine of this chapter. @throws FileError @throws CudaError @throws std::runtime_error
std::unique_ptr<Engine> make_engine(const Model& model, const EngineOptions& options);

}  // namespace minfer
