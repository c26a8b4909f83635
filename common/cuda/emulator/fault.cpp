// SPDX-License-Identifier: MIT
//
// How mistakes are reported: faults that the emulator finds itself, assertions in kernels, accesses
// to no memory at all, and what AddressSanitizer finds.
#include "cuda/emulator/fault.h"

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "cuda/emulator/device_memory.h"
#include "cuda/emulator/sanitizer.h"
#include "cuda/emulator/worker.h"

namespace minfer::emulator {

std::string to_string(uint3 index) {
  return "(" + std::to_string(index.x) + "," + std::to_string(index.y) + "," +
         std::to_string(index.z) + ")";
}

std::string to_string(Site site) {
  const char* slash = std::strrchr(site.file, '/');
  return std::string(slash == nullptr ? site.file : slash + 1) + ":" + std::to_string(site.line);
}

void fail(std::string what) {
  Worker::current()->fail(std::move(what));
}

namespace {

std::string describe_assertion(const char* expression, Site site) {
  return "assertion at " + to_string(site) + " does not hold: " + expression;
}

#if defined(MINFER_EMULATOR_ASAN)
std::string describe_access(Worker& worker) {
  const void* address = __asan_get_report_address();
  std::string place = worker.cta().shared.describe(address);
  if (place.empty()) place = describe_device_memory(address);
  if (place.empty()) place = "an address that is no device memory";
  const bool is_write = __asan_get_report_access_type() != 0;
  return worker.whereabouts() + ": " + (is_write ? "writes " : "reads ") +
         std::to_string(__asan_get_report_access_size()) + " bytes at " + place;
}
#else
std::string describe_bad_address(const void* address) {
  constexpr std::uintptr_t kFirstPage = 4096;
  if (reinterpret_cast<std::uintptr_t>(address) < kFirstPage)
    return "reads or writes at a null pointer";
  char text[64];
  std::snprintf(text, sizeof text, "reads or writes at %p, where no memory is", address);
  return text;
}

struct sigaction before;  // what SIGSEGV did until a kernel ran

void on_bad_access(int, siginfo_t* info, void*) {
  if (Worker::current() != nullptr) fail(describe_bad_address(info->si_addr));
  sigaction(SIGSEGV, &before, nullptr);  // not a kernel's: it comes again, and takes its course
}
#endif

}  // namespace

void report_bad_accesses() {
#if !defined(MINFER_EMULATOR_ASAN)
  struct sigaction ours = {}, old;
  ours.sa_sigaction = on_bad_access;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER;  // fail() does not return
  sigaction(SIGSEGV, &ours, &old);
  if (old.sa_sigaction != on_bad_access) before = old;
#endif
}

}  // namespace minfer::emulator

/// What assert() calls when it does not hold. The C library has one, which knows nothing of
/// kernels; a program's own comes first.
extern "C" [[noreturn]] void __assert_fail(const char* expression, const char* file, unsigned line,
                                           const char* function) noexcept {
  using namespace minfer::emulator;
  if (Worker::current() != nullptr) {
    fail(describe_assertion(expression, {file, static_cast<int>(line)}));
  }
  std::fprintf(stderr, "%s:%u: %s: Assertion `%s' failed.\n", file, line, function, expression);
  std::abort();
}

#if defined(MINFER_EMULATOR_ASAN)
/// AddressSanitizer calls this before it reports an error.
extern "C" void __asan_on_error() {
  using namespace minfer::emulator;
  Worker* worker = Worker::current();
  if (worker == nullptr) return;
  std::fprintf(stderr, "emulator: %s\n", describe_access(*worker).c_str());
}
#endif
