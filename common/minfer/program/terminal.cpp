// SPDX-License-Identifier: MIT
#include <minfer/program/terminal.h>

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace minfer {
namespace {

// A signal handler can reach nothing but what is static.
volatile sig_atomic_t interrupts = 0;
constexpr int kPatience = 3;
constexpr int kStatusInterrupted = 130;

extern "C" void count_interrupt(int) {
  interrupts = interrupts + 1;
  if (interrupts >= kPatience) _exit(kStatusInterrupted);
}

[[noreturn]] void fail_input() {
  throw std::runtime_error(std::string("cannot read standard input: ") + std::strerror(errno));
}

}  // namespace

void write_output(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EPIPE) {
      throw ReaderGone{};
    } else if (errno != EINTR) {
      throw OutputError(std::string("cannot write standard output: ") + std::strerror(errno));
    }
  }
}

void report_file_size_limit() {
  signal(SIGXFSZ, SIG_IGN);  // write() fails with EFBIG instead
}

std::string read_all_input() {
  std::string text;
  char chunk[1 << 16];
  for (;;) {
    const ssize_t got = ::read(STDIN_FILENO, chunk, sizeof chunk);
    if (got > 0) {
      text.append(chunk, static_cast<std::size_t>(got));
    } else if (got == 0) {
      return text;
    } else if (errno != EINTR || InterruptGuard::requested()) {
      fail_input();
    }
  }
}

InterruptGuard::InterruptGuard() {
  struct sigaction action = {};
  action.sa_handler = count_interrupt;  // no SA_RESTART: a read() that waits is to return
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

InterruptGuard::~InterruptGuard() {
  signal(SIGINT, SIG_DFL);
  clear();
}

bool InterruptGuard::requested() {
  return interrupts > 0;
}
void InterruptGuard::clear() {
  interrupts = 0;
}

namespace {

void mask_sigint(int how) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  pthread_sigmask(how, &set, nullptr);
}

}  // namespace

SigintBlock::SigintBlock() {
  mask_sigint(SIG_BLOCK);
}
SigintBlock::~SigintBlock() {
  mask_sigint(SIG_UNBLOCK);
}

namespace {

/// Waits until standard input has something to read, or Ctrl-C was pressed. SIGINT is let through
/// nowhere but inside ppoll(): one that came just before a plain read() would be slept over.
void wait_for_input() {
  const SigintBlock blocked;
  sigset_t waiting;
  pthread_sigmask(SIG_SETMASK, nullptr, &waiting);
  sigdelset(&waiting, SIGINT);
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  if (!InterruptGuard::requested()) ppoll(&input, 1, nullptr, &waiting);
}

}  // namespace

LineReader::Result LineReader::read(std::string& line) {
  for (;;) {
    const std::size_t newline = buffer_.find('\n');
    if (newline != std::string::npos) {
      line = buffer_.substr(0, newline);
      buffer_.erase(0, newline + 1);
      return Result::kLine;
    }
    wait_for_input();
    if (InterruptGuard::requested()) {
      buffer_.clear();  // the terminal drops the line as well
      return Result::kInterrupted;
    }
    char chunk[4096];
    const ssize_t got = ::read(STDIN_FILENO, chunk, sizeof chunk);
    if (got > 0) {
      buffer_.append(chunk, static_cast<std::size_t>(got));
    } else if (got == 0) {
      if (buffer_.empty()) return Result::kEnd;
      line.swap(buffer_);
      buffer_.clear();
      return Result::kLine;
    } else if (errno != EINTR) {
      fail_input();
    }
  }
}

}  // namespace minfer
