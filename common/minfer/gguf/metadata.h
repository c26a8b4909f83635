// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <minfer/gguf/file.h>

namespace minfer {

// What a file may ask for. All are several times what any Qwen2.5 file has (26 keys, 434 tensors,
// 152 thousand array elements, 6 MB in front of the tensors' data) and together they keep a file
// that is hostile, and not only damaged, from costing more than 50 MB or a second.
inline constexpr std::uint64_t kMaxFrontBytes = 24u << 20;
inline constexpr std::uint64_t kMaxKeys = 1u << 20;
inline constexpr std::uint64_t kMaxKeyBytes = (1u << 16) - 1;  // the format's own limit
inline constexpr std::uint64_t kMaxArrayElements = 1u << 20;
inline constexpr std::uint64_t kMaxTensors = 1u << 16;

/// Types of metadata values, with GGUF's own numbers.
enum class ValueType : std::uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

/// The type's name as the GGUF format has it: "UINT32", "ARRAY", ...
const char* value_type_name(ValueType type);
/// Bytes of one value of a type with a fixed size; 0 for strings and arrays.
std::uint64_t value_bytes(ValueType type);

/// The T that lies at `data`, which need not be aligned.
template <class T>
T load(const std::byte* data) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

/// Walks through the front of a GGUF file (header, metadata, tensor infos), which it reads into
/// memory no further than it has to look. Every step is checked against the file's end first.
class FrontReader {
 public:
  explicit FrontReader(const InputFile& file);

  const InputFile& file() const { return *file_; }
  std::uint64_t position() const { return position_; }
  /// Bytes between here and the file's end.
  std::uint64_t left() const { return file_->size() - position_; }

  template <class T>
  T number() {
    return load<T>(advance(sizeof(T)));
  }
  /// A string: its length as a 64-bit number, then its bytes.
  std::string_view string();
  /// Steps over `n` bytes, and returns where they lie. The memory stays where it is.
  const std::byte* advance(std::uint64_t n);

  /// What is being read, for messages: "key 3 of 26", and its name as soon as that is known.
  void begin(const char* kind, std::uint64_t index, std::uint64_t count);
  void set_name(std::string_view name) { name_ = name; }
  /// @throws FileError "path: key "x": what"
  [[noreturn]] void fail(const std::string& what) const;

  /// What has been read; positions count from its beginning.
  std::shared_ptr<const std::byte[]> memory() const { return memory_; }

 private:
  const InputFile* file_;
  std::uint64_t capacity_;  ///< of memory_; only what was read in becomes resident
  std::shared_ptr<std::byte[]> memory_;
  std::uint64_t filled_ = 0;
  std::uint64_t position_ = 0;

  const char* kind_ = "header";
  std::uint64_t index_ = 0;
  std::uint64_t count_ = 0;
  std::string_view name_;
};

/// A metadata value: its type, and where it lies.
struct Value {
  ValueType type;
  const std::byte* data;
};

/// An array's element type, length and elements.
struct ArrayValue {
  ValueType type;
  std::uint64_t size;
  const std::byte* data;
};
ArrayValue array_of(const Value& value);

/// A string value's bytes.
std::string_view string_of(const std::byte* data);

/// The key-value pairs of a file, validated. Two numbers are kept for each: a hash of its key, and
/// where it lies.
class Metadata {
 public:
  Metadata() = default;
  /// Reads `n` pairs. @throws FileError
  Metadata(FrontReader& reader, std::uint64_t n);

  std::optional<Value> find(std::string_view key) const;

 private:
  struct Entry {
    std::uint32_t hash;
    std::uint32_t offset;
  };
  std::string_view key(const Entry& entry) const;
  bool precedes(const Entry& entry, std::uint32_t hash, std::string_view key) const;

  std::shared_ptr<const std::byte[]> memory_;
  std::vector<Entry> entries_;  ///< in the order of their hashes, and of their keys where those tie
};

}  // namespace minfer
