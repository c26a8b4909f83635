// SPDX-License-Identifier: MIT
#include <minfer/program/line_editor.h>

#include <unistd.h>

#include <utility>

#if defined(MINFER_LIBEDIT)
#include <histedit.h>
#include <signal.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>

#include <minfer/program/terminal.h>
#include <minfer/text/utf8.h>
#endif

namespace minfer {

#if defined(MINFER_LIBEDIT)

namespace {

constexpr int kLinesKept = 1000;
volatile sig_atomic_t must_redraw = 0;

extern "C" void note_redraw(int) {
  must_redraw = 1;
}

}  // namespace

struct LineEditor::Impl {
  explicit Impl(const char* shown) : prompt(shown), lines(history_init()) {
    std::setlocale(LC_CTYPE, "C.UTF-8");  // what is typed is UTF-8, as all of this program's text
    editor = el_init("minfer", stdin, stderr, stderr);
    HistEvent event;
    history(lines, &event, H_SETSIZE, kLinesKept);
    el_set(editor, EL_CLIENTDATA, this);
    el_set(
        editor, EL_PROMPT, +[](EditLine* of) { return const_cast<char*>(impl_of(of).prompt); });
    el_set(
        editor, EL_GETCFN, +[](EditLine* of, wchar_t* c) { return impl_of(of).get(c); });
    el_set(editor, EL_HIST, history, lines);
    el_set(editor, EL_EDITOR, "emacs");
    constexpr const char* kKeys[][2] = {{"^I", "ed-insert"},
                                        {"^R", "em-inc-search-prev"},
                                        {"^W", "ed-delete-prev-word"},
                                        {"\\e[1;5C", "em-next-word"},
                                        {"\\e[1;5D", "ed-prev-word"}};
    for (const auto& [key, function] : kKeys) el_set(editor, EL_BIND, key, function, nullptr);
    el_source(editor, nullptr);
    el_set(editor, EL_SETTY, "-x", "-icanon", "-echo", nullptr);  // between two lines
    struct sigaction action = {};
    action.sa_handler = note_redraw;
    sigemptyset(&action.sa_mask);
    sigaction(SIGCONT, &action, nullptr);
    sigaction(SIGWINCH, &action, nullptr);
  }
  ~Impl() {
    signal(SIGCONT, SIG_DFL);
    signal(SIGWINCH, SIG_DFL);
    el_end(editor);
    history_end(lines);
  }

  static Impl& impl_of(EditLine* editor) {
    Impl* impl = nullptr;
    el_get(editor, EL_CLIENTDATA, &impl);
    return *impl;
  }

  /// One character of standard input: 1, 0 at its end, -1 on Ctrl-C or SIGTERM.
  int get(wchar_t* character) {
    for (;;) {
      const Utf8Char found =
          bytes.empty() ? Utf8Char{0, 0, Utf8Char::Kind::kTruncated} : read_utf8(bytes, 0);
      if (found.kind != Utf8Char::Kind::kTruncated) {
        bytes.erase(0, found.size);
        *character = static_cast<wchar_t>(found.code_point);
        return 1;
      }
      const bool ready = wait_for_input();
      if (must_redraw) redraw();
      if (InterruptGuard::requested()) {
        bytes.clear();
        return -1;
      }
      char byte;
      if (ready && ::read(STDIN_FILENO, &byte, 1) <= 0) return 0;
      if (ready) bytes += byte;
    }
  }

  /// After the window's size changed, or the program was stopped, which gave the terminal away.
  void redraw() {
    must_redraw = 0;
    el_set(editor, EL_PREP_TERM, 0);
    el_set(editor, EL_PREP_TERM, 1);
    el_resize(editor);
    el_set(editor, EL_REFRESH);
  }

  const char* prompt;
  History* lines;
  EditLine* editor;
  std::string bytes;  // of a character that is not whole yet
};

std::unique_ptr<LineEditor> LineEditor::make(const char* prompt) {
  const char* type = std::getenv("TERM");
  const bool can_move = type && std::string(type) != "" && std::string(type) != "dumb";
  if (!can_move || !isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) return nullptr;
  auto impl = std::make_unique<Impl>(prompt);
  if (impl->editor == nullptr) return nullptr;
  return std::unique_ptr<LineEditor>(new LineEditor(std::move(impl)));
}

bool LineEditor::read(std::string& line) {
  int size = 0;
  const char* text = el_gets(impl_->editor, &size);
  if (text == nullptr || size <= 0) return false;
  HistEvent event;
  if (size > 1) history(impl_->lines, &event, H_ENTER, text);
  line.assign(text, static_cast<std::size_t>(size));
  if (line.back() == '\n') line.pop_back();
  return true;
}

#else

struct LineEditor::Impl {};

std::unique_ptr<LineEditor> LineEditor::make(const char*) {
  return nullptr;
}

bool LineEditor::read(std::string&) {
  return false;
}

#endif

LineEditor::LineEditor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LineEditor::~LineEditor() = default;

}  // namespace minfer
