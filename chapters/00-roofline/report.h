// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "measure.h"

namespace minfer {

/// The measurements as tables for a person.
std::string human_report(const Measurements& measured);

/// The measurements as one JSON object, every sample in it.
/// @param invocation the command line that made them
std::string json_report(const Measurements& measured, const std::string& invocation);

}  // namespace minfer
