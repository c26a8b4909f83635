// SPDX-License-Identifier: MIT
#include <minfer/program/npy.h>

#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>

#include <minfer/error.h>

namespace minfer {
namespace {

/// Magic, version 1.0, the header's length, and a Python literal padded so that data is aligned.
std::string npy_header(std::size_t rows, std::size_t cols) {
  std::string literal = "{'descr': '<f4', 'fortran_order': False, 'shape': (" +
                        std::to_string(rows) + ", " + std::to_string(cols) + "), }";
  constexpr std::size_t kPrefix = 10, kAlignment = 64;
  literal.append(kAlignment - (kPrefix + literal.size() + 1) % kAlignment, ' ');
  literal += '\n';
  const auto length = static_cast<std::uint16_t>(literal.size());
  std::string header = "\x93NUMPY";
  header += '\x01';
  header += '\0';
  header += static_cast<char>(length & 0xff);
  header += static_cast<char>(length >> 8);
  return header + literal;
}

}  // namespace

void write_npy(const std::string& path, const float* data, std::size_t rows, std::size_t cols) {
  // What is no file, such as /dev/stdout or a pipe, is written to and must not be replaced.
  struct stat there;
  const bool replace = stat(path.c_str(), &there) != 0 || S_ISREG(there.st_mode);
  const std::string partial = replace ? path + ".partial" : path;
  const auto fail = [&] {
    const std::string reason = std::strerror(errno);
    if (replace) std::remove(partial.c_str());
    throw std::runtime_error(shown_path(path) + ": cannot write: " + reason);
  };
  std::FILE* file = std::fopen(partial.c_str(), "wb");
  if (!file) fail();
  const std::string header = npy_header(rows, cols);
  const bool written = std::fwrite(header.data(), 1, header.size(), file) == header.size() &&
                       std::fwrite(data, sizeof(float), rows * cols, file) == rows * cols;
  const bool closed = std::fclose(file) == 0;
  if (!written || !closed) fail();
  if (replace && std::rename(partial.c_str(), path.c_str()) != 0) fail();
}

}  // namespace minfer
