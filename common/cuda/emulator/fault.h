// SPDX-License-Identifier: MIT
#pragma once

#include <stdexcept>
#include <string>

#include "cuda/emulator/site.h"
#include "cuda/emulator/vector_types.h"

namespace minfer::emulator {

/// A mistake in a kernel, thrown by the launch that ran it. Its text is one line that names the
/// kernel, the block, the thread and what happened.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Ends the running grid with a Fault that says `what`, and does not return to the kernel. Called
/// from device code only. What the grid's threads have on their stacks is not destroyed.
[[noreturn]] void fail(std::string what);

/// Makes an access of a kernel to no memory at all a fault of the kernel, from now on, whatever the
/// program has done with SIGSEGV. (AddressSanitizer, where it is in use, sees to that itself.)
void report_bad_accesses();

/// "(x,y,z)".
std::string to_string(uint3 index);

/// "file.cu:12", without the file's folders.
std::string to_string(Site site);

/// The name of the function at `address` as C++ writes it, from the program's symbol table; an
/// address in hexadecimal where that was stripped.
std::string function_name(const void* address);

}  // namespace minfer::emulator
