// SPDX-License-Identifier: MIT
#include <minfer/gguf/file.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <minfer/error.h>

namespace minfer {
namespace {

std::uint64_t page_size() {
  return static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

std::uint64_t machine_memory() {
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * page_size();
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  if (S_ISSOCK(mode)) return "a socket";
  return "not a regular file";
}

}  // namespace

InputFile::InputFile(const std::string& path) : path_(path) {
  // O_NONBLOCK: opening a FIFO without a writer would otherwise wait for one.
  descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor_ < 0) {
    throw FileError(path, std::string("cannot be opened: ") + std::strerror(errno));
  }
  struct stat status;
  const bool known = fstat(descriptor_, &status) == 0;
  if (known && S_ISREG(status.st_mode)) {
    size_ = static_cast<std::uint64_t>(status.st_size);
    return;
  }
  const int error = errno;
  close(descriptor_);
  if (!known) throw FileError(path, std::string("cannot be examined: ") + std::strerror(error));
  throw FileError(path, std::string("is ") + kind_of(status.st_mode) + ", expected a GGUF file");
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

void InputFile::read(std::uint64_t offset, std::byte* out, std::uint64_t n) const {
  constexpr std::uint64_t kLongestRead = 1u << 30;  // Linux transfers just under 2 GiB a call
  while (n > 0) {
    const ssize_t got = pread(descriptor_, out, std::min(n, kLongestRead), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      throw FileError(
          path_, "cannot be read at byte " + std::to_string(offset) + ": " + std::strerror(errno));
    }
    if (got == 0) {
      throw FileError(path_, "was cut short while it was read: it had " + std::to_string(size_) +
                                 " bytes and ends at byte " + std::to_string(offset) + " now");
    }
    offset += static_cast<std::uint64_t>(got);
    out += got;
    n -= static_cast<std::uint64_t>(got);
  }
}

FileBytes FileBytes::map(const InputFile& file) {
  void* data = mmap(nullptr, file.size(), PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (data == MAP_FAILED) {
    throw FileError(file.path(), std::string("cannot be mapped: ") + std::strerror(errno));
  }
  return FileBytes(static_cast<std::byte*>(data), file.size(), true);
}

FileBytes FileBytes::read(const InputFile& file) {
  if (file.size() > machine_memory()) {
    throw FileError(file.path(), "has " + std::to_string(file.size()) +
                                     " bytes, expected no more than this machine's memory of " +
                                     std::to_string(machine_memory()) + "; map it instead");
  }
  // Anonymous pages instead of an array: as aligned as a mapped file, and not zeroed first.
  void* data =
      mmap(nullptr, file.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    throw FileError(file.path(), "no memory for its " + std::to_string(file.size()) + " bytes");
  }
  FileBytes bytes(static_cast<std::byte*>(data), file.size(), false);
  file.read(0, bytes.data_, bytes.size_);
  return bytes;
}

FileBytes::FileBytes(FileBytes&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapped_(other.mapped_) {}

FileBytes& FileBytes::operator=(FileBytes&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

FileBytes::~FileBytes() {
  if (data_ != nullptr) munmap(data_, size_);
}

void FileBytes::release(std::uint64_t offset, std::uint64_t n) const {
  if (!mapped_) return;
  const std::uint64_t page = page_size();
  const std::uint64_t first = (offset + page - 1) / page * page;
  const std::uint64_t last = (offset + n) / page * page;
  if (first < last) madvise(data_ + first, last - first, MADV_DONTNEED);
}

}  // namespace minfer
