// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace minfer {

/// A regular file, open for reading. Its size is taken once, when it is opened; a file that is
/// cut short afterwards is refused by read().
class InputFile {
 public:
  /// @throws FileError when `path` is missing, unreadable or not a regular file. Never blocks,
  /// not even on a FIFO.
  explicit InputFile(const std::string& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  int descriptor() const { return descriptor_; }

  /// out[0..n) = the file's bytes from `offset` on. @pre offset + n <= size()
  /// @throws FileError when the system cannot deliver all of them
  void read(std::uint64_t offset, std::byte* out, std::uint64_t n) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

/// A stretch of a file in memory, beginning at a page.
class FileBytes {
 public:
  FileBytes() = default;
  /// Maps the whole file. Pages are read when they are touched. If another program cuts the file
  /// short meanwhile, touching what is gone ends this program with SIGBUS: nothing can be done
  /// about that in a mapping, only by reading.
  static FileBytes map(const InputFile& file);
  /// Reads the whole file into memory.
  /// @throws FileError also when it is larger than the machine's memory
  static FileBytes read(const InputFile& file);

  FileBytes(FileBytes&& other) noexcept;
  FileBytes& operator=(FileBytes&& other) noexcept;
  ~FileBytes();

  const std::byte* data() const { return data_; }

  /// Gives back the pages that lie entirely within `n` bytes from `offset` on; where the kernel
  /// maps a file in huge pages, it may give back a neighbour's as well. A mapping reads them again
  /// from the file when they are touched; of bytes that were read nothing is given back.
  void release(std::uint64_t offset, std::uint64_t n) const;

 private:
  FileBytes(std::byte* data, std::uint64_t size, bool mapped)
      : data_(data), size_(size), mapped_(mapped) {}

  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
  bool mapped_ = false;
};

}  // namespace minfer
