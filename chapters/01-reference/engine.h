// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include <minfer/engine.h>
#include <minfer/gguf/model.h>

namespace minfer {

/// What the command line is to know of this chapter's engine.
EngineInfo engine_info();

/// Makes the engine. The model must outlive it. @throws std::runtime_error when it can't run here
std::unique_ptr<Engine> make_engine(const Model& model, const EngineOptions& options);

}  // namespace minfer
