// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <minfer/error.h>
#include <minfer/gguf/quant.h>

namespace minfer {

/// One tensor of a file. The data lies in the file's mapping and lives as long as the GgufFile.
struct Tensor {
  std::string name;
  TensorType type = TensorType::kF32;
  /// Dimensions as GGUF has them: shape[0] is contiguous (a matrix's columns), shape[1] its rows.
  std::vector<std::uint64_t> shape;
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;
};

/// How a file's bytes are brought in.
enum class ReadMode {
  kMap,   ///< mmap: pages are read when they are touched, and can be given back. Whoever cuts the
          ///< file short meanwhile ends this process by SIGBUS, as with any mapped file.
  kRead,  ///< read(2) into memory: for storage on which page faults are slow
};

/// A validated GGUF v3 (or v2) file: every size was checked before it was used, every tensor lies
/// inside the file and overlaps no other. Its metadata are a copy, made while they were checked;
/// only the tensors' data are mapped, so nobody who writes to the file can unsettle what was
/// checked.
class GgufFile {
 public:
  /// Opens and validates `path`. @throws FileError
  static GgufFile open(const std::string& path, ReadMode mode = ReadMode::kMap);

  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;
  ~GgufFile();

  const std::string& path() const;
  /// Every tensor, in the file's order.
  const std::vector<Tensor>& tensors() const;
  /// The tensor of that name, or null.
  const Tensor* find_tensor(std::string_view name) const;
  /// The tensor of that name. @throws FileError naming it
  const Tensor& tensor(std::string_view name) const;

  bool has(std::string_view key) const;
  /// Metadata by key and type; integers of any width are accepted where they fit.
  /// @throws FileError when the key is missing, has another type, or does not fit
  std::uint32_t get_u32(std::string_view key) const;
  float get_f32(std::string_view key) const;
  bool get_bool(std::string_view key) const;
  std::string get_string(std::string_view key) const;
  std::vector<std::string_view> get_strings(std::string_view key) const;
  std::vector<std::int32_t> get_i32s(std::string_view key) const;
  /// Elements of an array of any type, without making a copy of it.
  std::uint64_t array_size(std::string_view key) const;

  /// Gives a tensor's pages back to the system (after upload); they can still be read, from disk.
  void release(const Tensor& tensor) const;

 private:
  struct Impl;
  explicit GgufFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace minfer
