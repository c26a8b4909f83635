// SPDX-License-Identifier: MIT
#include <minfer/gguf/gguf.h>

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

#include <minfer/gguf/file.h>
#include <minfer/gguf/foreign_file.h>
#include <minfer/gguf/metadata.h>
#include <minfer/gguf/tensor_infos.h>

namespace minfer {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a GGUF file's numbers are used in place");

constexpr std::uint32_t kOldestVersion = 2;
constexpr std::uint32_t kNewestVersion = 3;
constexpr std::uint32_t kDefaultAlignment = 32;
constexpr std::uint32_t kLeastAlignment = 8;  // the format's rule; also enough for every type here
// The least that a pair takes (length, one character, type, one byte) and a tensor's entry does
// (length, one character, dimensions, one dimension, type, offset).
constexpr std::uint64_t kLeastPairBytes = 8 + 1 + 4 + 1;
constexpr std::uint64_t kLeastTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

struct Header {
  std::uint64_t n_tensors;
  std::uint64_t n_pairs;
};

void check_magic(const InputFile& file) {
  char head[64];
  const std::uint64_t n = std::min<std::uint64_t>(sizeof head, file.size());
  if (n == 0) throw FileError(file.path(), "is empty, expected a GGUF file");
  file.read(0, reinterpret_cast<std::byte*>(head), n);
  const std::string_view text(head, n);
  if (text.substr(0, 4) != "GGUF")
    throw FileError(file.path(), describe_foreign_file(text, file.size()));
}

void check_version(const FrontReader& reader, std::uint32_t version) {
  if (version != 0 && (version & 0xffff) == 0) {
    reader.fail("has a byte-swapped version: the file is big-endian, expected little-endian");
  }
  if (version < kOldestVersion || version > kNewestVersion) {
    reader.fail("has GGUF version " + std::to_string(version) + ", expected 2 or 3");
  }
}

void check_count(const FrontReader& reader, const char* what, std::uint64_t n, std::uint64_t least,
                 std::uint64_t most) {
  if (n > reader.left() / least) {
    reader.fail("lists " + std::to_string(n) + " " + what + ", but the " +
                std::to_string(reader.left()) + " bytes left hold no more than " +
                std::to_string(reader.left() / least));
  }
  if (n > most) {
    reader.fail("lists " + std::to_string(n) + " " + what + ", expected no more than " +
                std::to_string(most));
  }
}

Header read_header(FrontReader& reader) {
  reader.advance(4);  // the magic, already checked
  check_version(reader, reader.number<std::uint32_t>());
  Header header;
  header.n_tensors = reader.number<std::uint64_t>();
  header.n_pairs = reader.number<std::uint64_t>();
  check_count(reader, "tensors", header.n_tensors, kLeastTensorBytes, kMaxTensors);
  check_count(reader, "keys", header.n_pairs, kLeastPairBytes, kMaxKeys);
  return header;
}

std::uint64_t read_alignment(const FrontReader& reader, const Metadata& metadata) {
  const auto value = metadata.find("general.alignment");
  if (!value) return kDefaultAlignment;
  const std::string place = "key \"general.alignment\" ";
  if (value->type != ValueType::kUint32) {
    throw FileError(reader.file().path(),
                    place + "has type " + value_type_name(value->type) + ", expected UINT32");
  }
  const auto alignment = load<std::uint32_t>(value->data);
  if (alignment < kLeastAlignment || (alignment & (alignment - 1)) != 0) {
    throw FileError(reader.file().path(), place + "is " + std::to_string(alignment) +
                                              ", expected a power of two, 8 or more");
  }
  return alignment;
}

/// Calls f with the number at `data`, in its own C++ type. @pre type is neither STRING nor ARRAY
template <class F>
void with_number(ValueType type, const std::byte* data, F&& f) {
  switch (type) {
    case ValueType::kUint8:
      return f(load<std::uint8_t>(data));
    case ValueType::kInt8:
      return f(load<std::int8_t>(data));
    case ValueType::kUint16:
      return f(load<std::uint16_t>(data));
    case ValueType::kInt16:
      return f(load<std::int16_t>(data));
    case ValueType::kUint32:
      return f(load<std::uint32_t>(data));
    case ValueType::kInt32:
      return f(load<std::int32_t>(data));
    case ValueType::kUint64:
      return f(load<std::uint64_t>(data));
    case ValueType::kInt64:
      return f(load<std::int64_t>(data));
    default:
      return;
  }
}

bool is_integer(ValueType type) {
  return type != ValueType::kFloat32 && type != ValueType::kFloat64 && type != ValueType::kBool &&
         type != ValueType::kString && type != ValueType::kArray;
}

/// Whether an integer of any type can be held by a To.
template <class To, class From>
bool fits(From value) {
  if constexpr (std::is_signed_v<From>) {
    if (value < 0) return value >= static_cast<std::int64_t>(std::numeric_limits<To>::min());
  }
  return static_cast<std::uint64_t>(value) <=
         static_cast<std::uint64_t>(std::numeric_limits<To>::max());
}

}  // namespace

struct GgufFile::Impl {
  std::string path;
  Metadata metadata;
  std::vector<Tensor> tensors;
  std::vector<std::uint32_t> by_name;
  FileBytes bytes;

  [[noreturn]] void fail(std::string_view key, const std::string& what) const {
    throw FileError(path, "key " + quoted(key) + " " + what);
  }

  [[noreturn]] void fail_type(std::string_view key, const Value& value,
                              const char* expected) const {
    std::string found = value_type_name(value.type);
    if (value.type == ValueType::kArray) {
      found += std::string(" of ") + value_type_name(array_of(value).type);
    }
    fail(key, "has type " + found + ", expected " + expected);
  }

  Value get(std::string_view key) const {
    const auto value = metadata.find(key);
    if (!value) fail(key, "is missing");
    return *value;
  }

  Value get(std::string_view key, ValueType type) const {
    const Value value = get(key);
    if (value.type != type) fail_type(key, value, value_type_name(type));
    return value;
  }

  template <class To>
  To integer(std::string_view key, ValueType type, const std::byte* data) const {
    To result = 0;
    with_number(type, data, [&](auto value) {
      if (!fits<To>(value)) {
        fail(key, "has the value " + std::to_string(value) + ", expected " +
                      std::to_string(std::numeric_limits<To>::min()) + " to " +
                      std::to_string(std::numeric_limits<To>::max()));
      }
      result = static_cast<To>(value);
    });
    return result;
  }

  void check_not_split() const {
    if (!metadata.find("split.count")) return;
    const Value value = get("split.count");
    if (!is_integer(value.type)) fail_type("split.count", value, "an integer");
    const auto count = integer<std::uint32_t>("split.count", value.type, value.data);
    if (count > 1) {
      fail("split.count", "is " + std::to_string(count) +
                              ", expected 1: this is one part of a split file; join the parts "
                              "first (llama-gguf-split --merge)");
    }
  }
};

GgufFile GgufFile::open(const std::string& path, ReadMode mode) {
  const InputFile file(path);
  check_magic(file);
  FrontReader reader(file);
  const Header header = read_header(reader);

  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->metadata = Metadata(reader, header.n_pairs);
  impl->check_not_split();
  const std::uint64_t alignment = read_alignment(reader, impl->metadata);

  TensorInfos infos = read_tensor_infos(reader, header.n_tensors, alignment);

  impl->bytes = mode == ReadMode::kMap ? FileBytes::map(file) : FileBytes::read(file);
  for (std::size_t i = 0; i < infos.tensors.size(); ++i) {
    infos.tensors[i].data = impl->bytes.data() + infos.data_begin + infos.offsets[i];
  }
  impl->tensors = std::move(infos.tensors);
  impl->by_name = std::move(infos.by_name);
  return GgufFile(std::move(impl));
}

GgufFile::GgufFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;
GgufFile::~GgufFile() = default;

const std::string& GgufFile::path() const {
  return impl_->path;
}
const std::vector<Tensor>& GgufFile::tensors() const {
  return impl_->tensors;
}

const Tensor* GgufFile::find_tensor(std::string_view name) const {
  const auto& tensors = impl_->tensors;
  const auto found = std::lower_bound(
      impl_->by_name.begin(), impl_->by_name.end(), name,
      [&](std::uint32_t i, std::string_view wanted) { return tensors[i].name < wanted; });
  if (found == impl_->by_name.end() || tensors[*found].name != name) return nullptr;
  return &tensors[*found];
}

const Tensor& GgufFile::tensor(std::string_view name) const {
  const Tensor* tensor = find_tensor(name);
  if (tensor == nullptr) throw FileError(path(), "tensor " + quoted(name) + " is missing");
  return *tensor;
}

bool GgufFile::has(std::string_view key) const {
  return impl_->metadata.find(key).has_value();
}

std::uint32_t GgufFile::get_u32(std::string_view key) const {
  const Value value = impl_->get(key);
  if (!is_integer(value.type)) impl_->fail_type(key, value, "an integer");
  return impl_->integer<std::uint32_t>(key, value.type, value.data);
}

float GgufFile::get_f32(std::string_view key) const {
  return load<float>(impl_->get(key, ValueType::kFloat32).data);
}

bool GgufFile::get_bool(std::string_view key) const {
  return impl_->get(key, ValueType::kBool).data[0] != std::byte{0};
}

std::string GgufFile::get_string(std::string_view key) const {
  return std::string(string_of(impl_->get(key, ValueType::kString).data));
}

std::uint64_t GgufFile::array_size(std::string_view key) const {
  return array_of(impl_->get(key, ValueType::kArray)).size;
}

std::vector<std::string_view> GgufFile::get_strings(std::string_view key) const {
  const Value value = impl_->get(key, ValueType::kArray);
  const ArrayValue array = array_of(value);
  if (array.type != ValueType::kString) impl_->fail_type(key, value, "ARRAY of STRING");
  std::vector<std::string_view> strings;
  strings.reserve(array.size);
  const std::byte* data = array.data;
  for (std::uint64_t i = 0; i < array.size; ++i) {
    strings.push_back(string_of(data));
    data += 8 + strings.back().size();
  }
  return strings;
}

std::vector<std::int32_t> GgufFile::get_i32s(std::string_view key) const {
  const Value value = impl_->get(key, ValueType::kArray);
  const ArrayValue array = array_of(value);
  if (!is_integer(array.type)) impl_->fail_type(key, value, "ARRAY of integers");
  std::vector<std::int32_t> numbers(array.size);
  for (std::uint64_t i = 0; i < array.size; ++i) {
    numbers[i] =
        impl_->integer<std::int32_t>(key, array.type, array.data + i * value_bytes(array.type));
  }
  return numbers;
}

void GgufFile::release(const Tensor& tensor) const {
  impl_->bytes.release(static_cast<std::uint64_t>(tensor.data - impl_->bytes.data()), tensor.bytes);
}

}  // namespace minfer
