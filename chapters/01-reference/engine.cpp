// SPDX-License-Identifier: MIT
#include "oracle/engine.h"

namespace minfer {

EngineInfo engine_info() {
  return oracle::engine_info(MINFER_PROGRAM);
}

std::unique_ptr<Engine> make_engine(const Model& model, const EngineOptions& options) {
  return std::make_unique<oracle::OracleEngine>(model, options);
}

}  // namespace minfer
