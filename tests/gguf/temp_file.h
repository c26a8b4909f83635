// SPDX-License-Identifier: MIT
#pragma once

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace minfer::test {

/// A folder that is gone, with all that is directly in it, when the test is done.
class TempDir {
 public:
  TempDir() {
    const char* base = getenv("TMPDIR");
    std::string pattern = std::string(base ? base : "/tmp") + "/minfer-test-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    for (const std::string& name : names_) {
      const std::string path = path_ + "/" + name;
      if (unlink(path.c_str()) != 0) rmdir(path.c_str());
    }
    rmdir(path_.c_str());
  }

  /// The path of `name` in here, to be created by the caller.
  std::string path(const std::string& name) {
    names_.push_back(name);
    return path_ + "/" + name;
  }

  std::string write(const std::string& name, std::string_view bytes) {
    const std::string full = path(name);
    FILE* file = fopen(full.c_str(), "wb");
    if (file == nullptr) throw std::runtime_error("cannot write " + full);
    const bool whole = fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
    if (fclose(file) != 0 || !whole) throw std::runtime_error("cannot write " + full);
    return full;
  }

 private:
  std::string path_;
  std::vector<std::string> names_;
};

}  // namespace minfer::test
