// SPDX-License-Identifier: MIT
#include <minfer/gguf/metadata.h>

#include <algorithm>
#include <utility>

#include <minfer/error.h>

namespace minfer {
namespace {

constexpr std::uint64_t kStep = 1u << 20;  // bytes that FrontReader reads at a time
constexpr std::uint32_t kLastValueType = static_cast<std::uint32_t>(ValueType::kFloat64);

ValueType read_value_type(FrontReader& reader) {
  const auto number = reader.number<std::uint32_t>();
  if (number > kLastValueType) {
    reader.fail("has the unknown value type " + std::to_string(number) + ", expected 0 to " +
                std::to_string(kLastValueType));
  }
  return static_cast<ValueType>(number);
}

void check_bools(FrontReader& reader, const std::byte* data, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) {
    if (data[i] > std::byte{1}) {
      reader.fail("has the BOOL " + std::to_string(std::to_integer<int>(data[i])) +
                  ", expected 0 or 1");
    }
  }
}

void skip_array(FrontReader& reader) {
  const ValueType type = read_value_type(reader);
  if (type == ValueType::kArray) reader.fail("is an array of arrays, expected an array of values");
  const auto n = reader.number<std::uint64_t>();
  if (n > kMaxArrayElements) {
    reader.fail("is an array of " + std::to_string(n) + " elements, expected no more than " +
                std::to_string(kMaxArrayElements));
  }
  if (type == ValueType::kString) {
    for (std::uint64_t i = 0; i < n; ++i) reader.string();
    return;
  }
  const std::byte* data = reader.advance(n * value_bytes(type));
  if (type == ValueType::kBool) check_bools(reader, data, n);
}

void skip_value(FrontReader& reader, ValueType type) {
  if (type == ValueType::kString) {
    reader.string();
  } else if (type == ValueType::kArray) {
    skip_array(reader);
  } else {
    const std::byte* data = reader.advance(value_bytes(type));
    if (type == ValueType::kBool) check_bools(reader, data, 1);
  }
}

/// Reads one pair, checks it, and returns its key.
std::string_view skip_pair(FrontReader& reader) {
  const std::string_view key = reader.string();
  if (key.empty()) reader.fail("is empty, expected a name");
  if (key.size() > kMaxKeyBytes) {
    reader.fail("is a name of " + std::to_string(key.size()) + " bytes, expected no more than " +
                std::to_string(kMaxKeyBytes));
  }
  reader.set_name(key);
  skip_value(reader, read_value_type(reader));
  return key;
}

/// FNV-1a.
std::uint32_t hash_of(std::string_view text) {
  std::uint32_t hash = 2166136261u;
  for (const unsigned char byte : text) hash = (hash ^ byte) * 16777619u;
  return hash;
}

}  // namespace

const char* value_type_name(ValueType type) {
  constexpr const char* kNames[] = {"UINT8",  "INT8",    "UINT16", "INT16",  "UINT32",
                                    "INT32",  "FLOAT32", "BOOL",   "STRING", "ARRAY",
                                    "UINT64", "INT64",   "FLOAT64"};
  return kNames[static_cast<std::uint32_t>(type)];
}

std::uint64_t value_bytes(ValueType type) {
  constexpr std::uint64_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return kBytes[static_cast<std::uint32_t>(type)];
}

FrontReader::FrontReader(const InputFile& file)
    : file_(&file),
      capacity_(std::min(file.size(), kMaxFrontBytes)),
      memory_(new std::byte[capacity_]) {}

const std::byte* FrontReader::advance(std::uint64_t n) {
  if (n > left()) {
    fail("needs " + std::to_string(n) + " bytes from byte " + std::to_string(position_) +
         " on, but the file ends at byte " + std::to_string(file_->size()));
  }
  if (n > capacity_ - position_) {
    fail("ends more than " + std::to_string(kMaxFrontBytes) +
         " bytes after the file's beginning, expected the tensors' data by then");
  }
  const std::uint64_t end = position_ + n;
  if (end > filled_) {
    const std::uint64_t wanted = std::min(std::max(end, filled_ + kStep), capacity_);
    file_->read(filled_, memory_.get() + filled_, wanted - filled_);
    filled_ = wanted;
  }
  return memory_.get() + std::exchange(position_, end);
}

std::string_view FrontReader::string() {
  const auto n = number<std::uint64_t>();
  return {reinterpret_cast<const char*>(advance(n)), n};
}

void FrontReader::begin(const char* kind, std::uint64_t index, std::uint64_t count) {
  kind_ = kind;
  index_ = index;
  count_ = count;
  name_ = {};
}

void FrontReader::fail(const std::string& what) const {
  std::string place = kind_;
  if (!name_.empty()) {
    place += " " + quoted(name_);
  } else if (count_ > 0) {
    place += " " + std::to_string(index_ + 1) + " of " + std::to_string(count_);
  }
  throw FileError(file_->path(), place + " " + what);
}

ArrayValue array_of(const Value& value) {
  return {load<ValueType>(value.data), load<std::uint64_t>(value.data + 4), value.data + 12};
}

std::string_view string_of(const std::byte* data) {
  return {reinterpret_cast<const char*>(data + 8), load<std::uint64_t>(data)};
}

Metadata::Metadata(FrontReader& reader, std::uint64_t n) : memory_(reader.memory()) {
  for (std::uint64_t i = 0; i < n; ++i) {
    reader.begin("key", i, n);
    const auto offset = static_cast<std::uint32_t>(reader.position());
    entries_.push_back({hash_of(skip_pair(reader)), offset});
  }
  // A hash makes sorting a million keys quick. Keys that were chosen to collide are compared, but
  // only those that sorting has to compare: never each with each.
  std::sort(entries_.begin(), entries_.end(),
            [this](const Entry& a, const Entry& b) { return precedes(a, b.hash, key(b)); });
  const auto twin = std::adjacent_find(
      entries_.begin(), entries_.end(),
      [this](const Entry& a, const Entry& b) { return a.hash == b.hash && key(a) == key(b); });
  if (twin != entries_.end()) {
    reader.set_name(key(*twin));
    reader.fail("occurs twice, expected once");
  }
}

std::string_view Metadata::key(const Entry& entry) const {
  return string_of(memory_.get() + entry.offset);
}

bool Metadata::precedes(const Entry& entry, std::uint32_t hash, std::string_view k) const {
  return entry.hash != hash ? entry.hash < hash : key(entry) < k;
}

std::optional<Value> Metadata::find(std::string_view wanted) const {
  const std::uint32_t hash = hash_of(wanted);
  const auto entry =
      std::lower_bound(entries_.begin(), entries_.end(), wanted,
                       [&](const Entry& e, std::string_view k) { return precedes(e, hash, k); });
  if (entry == entries_.end() || key(*entry) != wanted) return std::nullopt;
  const std::byte* after_key = memory_.get() + entry->offset + 8 + wanted.size();
  return Value{load<ValueType>(after_key), after_key + 4};
}

}  // namespace minfer
