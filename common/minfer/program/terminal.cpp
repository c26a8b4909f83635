// SPDX-License-Identifier: MIT
#include <minfer/program/terminal.h>

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <minfer/error.h>
#include <minfer/program/exit_status.h>

namespace minfer {
namespace {

// A signal handler can reach nothing but what is static.
volatile sig_atomic_t interrupts = 0;
volatile sig_atomic_t terminations = 0;
volatile sig_atomic_t is_edited = 0;
termios settings_before;  // the terminal's, while it is edited
constexpr int kPatience = 3;

extern "C" void count_interrupt(int signal) {
  if (signal == SIGTERM) terminations = 1;
  interrupts = interrupts + 1;
  if (interrupts < kPatience) return;
  if (is_edited) tcsetattr(STDIN_FILENO, TCSANOW, &settings_before);
  _exit(signal == SIGTERM ? kTerminated : kInterrupted);
}

void mask_interrupts(int how) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(how, &set, nullptr);
}

[[noreturn]] void fail_input() {
  throw std::runtime_error(std::string("cannot read standard input: ") + std::strerror(errno));
}

void write_bytes(std::string_view text) {
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

}  // namespace

void write_output(std::string_view text) {
  if (isatty(STDOUT_FILENO)) return write_bytes(shown_text(text));
  write_bytes(text);
}

void report_file_size_limit() {
  signal(SIGXFSZ, SIG_IGN);  // write() fails with EFBIG instead
}

InterruptGuard::InterruptGuard() {
  struct sigaction action = {};
  action.sa_handler = count_interrupt;  // no SA_RESTART: a read() that waits is to return
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

InterruptGuard::~InterruptGuard() {
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  clear();
}

bool InterruptGuard::requested() {
  return interrupts > 0 || terminated();
}
bool InterruptGuard::terminated() {
  return terminations > 0;
}
void InterruptGuard::clear() {
  interrupts = 0;
}

InterruptBlock::InterruptBlock() {
  mask_interrupts(SIG_BLOCK);
}
InterruptBlock::~InterruptBlock() {
  mask_interrupts(SIG_UNBLOCK);
}

/// Signals are let through nowhere but inside ppoll(): one that came just before a plain read()
/// would be slept over.
bool wait_for_input() {
  const InterruptBlock blocked;
  sigset_t waiting;
  pthread_sigmask(SIG_SETMASK, nullptr, &waiting);
  sigdelset(&waiting, SIGINT);
  sigdelset(&waiting, SIGTERM);
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  return !InterruptGuard::requested() && ppoll(&input, 1, nullptr, &waiting) > 0;
}

std::string read_all_input() {
  std::string text;
  char chunk[1 << 16];
  for (;;) {
    const bool ready = wait_for_input();
    if (InterruptGuard::requested()) throw Interrupted{};
    if (!ready) continue;
    const ssize_t got = ::read(STDIN_FILENO, chunk, sizeof chunk);
    if (got == 0) return text;
    if (got < 0 && errno != EINTR) fail_input();
    text.append(chunk, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  }
}

LineReader::LineReader(const char* prompt) : prompt_(isatty(STDIN_FILENO) ? prompt : nullptr) {
  if (tcgetattr(STDIN_FILENO, &settings_before) == 0) editor_ = LineEditor::make(prompt);
  is_edited = editor_ != nullptr;
}

LineReader::~LineReader() {
  editor_.reset();
  is_edited = 0;
}

LineReader::Result LineReader::read(std::string& line) {
  Result result = Result::kLine;
  if (!editor_) {
    result = read_unedited(line);
  } else if (!editor_->read(line)) {
    result = InterruptGuard::requested() ? Result::kInterrupted : Result::kEnd;
  }
  if (result == Result::kLine && !line.empty() && line.back() == '\r') line.pop_back();
  return result;
}

LineReader::Result LineReader::read_unedited(std::string& line) {
  constexpr std::size_t kTerminalsLine = 4095;
  if (prompt_) std::fputs(prompt_, stderr);
  for (;;) {
    const std::size_t newline = buffer_.find('\n');
    if (newline != std::string::npos) {
      line = buffer_.substr(0, newline);
      buffer_.erase(0, newline + 1);
      return prompt_ && line.size() >= kTerminalsLine ? Result::kCut : Result::kLine;
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
