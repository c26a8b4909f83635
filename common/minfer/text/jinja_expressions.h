// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace minfer {

/// What a Jinja chat template can print: its `{{ ... }}` expressions, in order.
///
/// minfer runs no templates. It reads one to see whether it is ChatML, and which default system
/// message it has; that takes no more than its expressions.
struct JinjaExpressions {
  /// Each expression as a sum of terms: string literals as they read when printed, neighbours put
  /// together; a message's role and content as kRole and kContent; anything else as kOther.
  std::vector<std::string> expressions;
  /// Something stands between the tags that would be printed as it is.
  bool prints_text_between_tags = false;

  // Bytes that no UTF-8 text holds.
  static constexpr const char* kRole = "\xFF role";
  static constexpr const char* kContent = "\xFF content";
  static constexpr const char* kOther = "\xFF other";
};

/// Reads the expressions out of a template. What is not well-formed reads as kOther.
JinjaExpressions read_jinja_expressions(std::string_view source);

}  // namespace minfer
