// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace minfer {

/// What a file that is not GGUF is instead, as far as its first bytes tell, and what helps: the
/// end of a message that begins with the file's path.
/// @param head  the file's first 64 bytes, or all it has
std::string describe_foreign_file(std::string_view head, std::uint64_t file_size);

}  // namespace minfer
