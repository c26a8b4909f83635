// SPDX-License-Identifier: MIT
#include <minfer/gguf/tensor_infos.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include <minfer/error.h>
#include <minfer/gguf/quant.h>

namespace minfer {
namespace {

constexpr std::uint64_t kLongestTensorName = 63;
constexpr std::uint32_t kMostDimensions = 4;
constexpr std::uint64_t kMaxBytes = std::numeric_limits<std::int64_t>::max();

struct NamedType {
  std::uint32_t number;
  const char* name;
};
constexpr NamedType kTypesNotRead[] = {
    {7, "Q5_1"},    {9, "Q8_1"},     {10, "Q2_K"},   {11, "Q3_K"},    {13, "Q5_K"},
    {15, "Q8_K"},   {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"},
    {20, "IQ4_NL"}, {21, "IQ3_S"},   {22, "IQ2_S"},  {23, "IQ4_XS"},  {24, "I8"},
    {25, "I16"},    {26, "I32"},     {27, "I64"},    {28, "F64"},     {29, "IQ1_M"},
    {34, "TQ1_0"},  {35, "TQ2_0"},   {39, "MXFP4"},  {40, "NVFP4"},   {41, "Q1_0"}};
constexpr NamedType kRetiredTypes[] = {{4, "Q4_2"},        {5, "Q4_3"},       {31, "Q4_0_4_4"},
                                       {32, "Q4_0_4_8"},   {33, "Q4_0_8_8"},  {36, "IQ4_NL_4_4"},
                                       {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"}};

std::string describe_type(std::uint32_t number) {
  for (const auto& [n, name] : kTypesNotRead) {
    if (n == number) return std::string("type ") + name + " (" + std::to_string(n) + ")";
  }
  for (const auto& [n, name] : kRetiredTypes) {
    if (n == number) return std::string("retired type ") + name + " (" + std::to_string(n) + ")";
  }
  return "unknown type " + std::to_string(number);
}

bool is_read(std::uint32_t type) {
  switch (static_cast<TensorType>(type)) {
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kQ4_0:
    case TensorType::kQ4_1:
    case TensorType::kQ5_0:
    case TensorType::kQ8_0:
    case TensorType::kQ4_K:
    case TensorType::kQ6_K:
    case TensorType::kBF16:
      return true;
  }
  return false;
}

TensorType read_type(FrontReader& reader) {
  const auto number = reader.number<std::uint32_t>();
  if (is_read(number)) return static_cast<TensorType>(number);
  reader.fail("has the " + describe_type(number) +
              ", expected F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q8_0, Q4_K or Q6_K");
}

std::string read_tensor_name(FrontReader& reader) {
  const std::string_view name = reader.string();
  if (name.empty()) reader.fail("has an empty name, expected 1 to 63 bytes");
  reader.set_name(name);
  if (name.size() > kLongestTensorName) {
    reader.fail("has a name of " + std::to_string(name.size()) + " bytes, expected 1 to 63");
  }
  return std::string(name);
}

std::vector<std::uint64_t> read_shape(FrontReader& reader) {
  const auto n_dims = reader.number<std::uint32_t>();
  if (n_dims < 1 || n_dims > kMostDimensions) {
    reader.fail("has " + std::to_string(n_dims) + " dimensions, expected 1 to 4");
  }
  std::vector<std::uint64_t> shape(n_dims);
  for (std::uint64_t& dimension : shape) {
    dimension = reader.number<std::uint64_t>();
    if (dimension == 0 || dimension > kMaxBytes) {
      reader.fail("has a dimension of " + std::to_string(static_cast<std::int64_t>(dimension)) +
                  ", expected 1 or more");
    }
  }
  return shape;
}

/// Bytes of a tensor, every product checked.
std::uint64_t tensor_bytes(const FrontReader& reader, const Tensor& tensor) {
  const auto [block_elements, block_bytes] = block_shape(tensor.type);
  std::uint64_t elements = 1;
  for (const std::uint64_t dimension : tensor.shape) {
    if (dimension > kMaxBytes / elements) {
      reader.fail("has more than 2^63 elements, expected fewer");
    }
    elements *= dimension;
  }
  if (tensor.shape[0] % block_elements != 0) {
    reader.fail("has rows of " + std::to_string(tensor.shape[0]) +
                " elements, expected a multiple of " + std::to_string(block_elements) +
                ", the block of " + type_name(tensor.type));
  }
  if (elements / block_elements > kMaxBytes / block_bytes) {
    reader.fail("has more than 2^63 bytes, expected fewer");
  }
  return elements / block_elements * block_bytes;
}

Tensor read_tensor(FrontReader& reader) {
  Tensor tensor;
  tensor.name = read_tensor_name(reader);
  tensor.shape = read_shape(reader);
  tensor.type = read_type(reader);
  tensor.bytes = tensor_bytes(reader, tensor);
  return tensor;
}

std::uint64_t read_offset(FrontReader& reader, std::uint64_t alignment) {
  const auto offset = reader.number<std::uint64_t>();
  if (offset % alignment != 0) {
    reader.fail("has the offset " + std::to_string(offset) + ", expected a multiple of " +
                std::to_string(alignment));
  }
  return offset;
}

[[noreturn]] void fail(const InputFile& file, const Tensor& tensor, const std::string& what) {
  throw FileError(file.path(), "tensor " + quoted(tensor.name) + " " + what);
}

void check_inside_file(const InputFile& file, const TensorInfos& infos) {
  const std::uint64_t data_bytes = file.size() - std::min(file.size(), infos.data_begin);
  for (std::size_t i = 0; i < infos.tensors.size(); ++i) {
    const std::uint64_t offset = infos.offsets[i];
    const std::uint64_t bytes = infos.tensors[i].bytes;
    if (offset > data_bytes || bytes > data_bytes - offset) {
      fail(file, infos.tensors[i],
           "needs " + std::to_string(bytes) + " bytes from byte " + std::to_string(offset) +
               " of the data on, but the file has " + std::to_string(data_bytes) +
               " bytes of data");
    }
  }
}

/// The indices 0 .. n-1, sorted by what key(i) gives; those with the same key in their own order.
template <class Key>
std::vector<std::uint32_t> order_by(std::size_t n, Key key) {
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return key(a) < key(b) || (!(key(b) < key(a)) && a < b);
  });
  return order;
}

/// @pre every tensor lies inside the file
void check_overlaps(const InputFile& file, const TensorInfos& infos) {
  const auto order =
      order_by(infos.tensors.size(), [&](std::uint32_t i) { return infos.offsets[i]; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const Tensor& before = infos.tensors[order[i - 1]];
    if (infos.offsets[order[i - 1]] + before.bytes > infos.offsets[order[i]]) {
      fail(file, infos.tensors[order[i]],
           "begins inside tensor " + quoted(before.name) + ", expected behind it");
    }
  }
}

void check_names(const InputFile& file, const TensorInfos& infos) {
  for (std::size_t i = 1; i < infos.by_name.size(); ++i) {
    const Tensor& tensor = infos.tensors[infos.by_name[i]];
    if (tensor.name == infos.tensors[infos.by_name[i - 1]].name) {
      fail(file, tensor, "occurs twice, expected once");
    }
  }
}

}  // namespace

TensorInfos read_tensor_infos(FrontReader& reader, std::uint64_t n, std::uint64_t alignment) {
  TensorInfos infos;
  infos.tensors.reserve(n);
  infos.offsets.reserve(n);
  for (std::uint64_t i = 0; i < n; ++i) {
    reader.begin("tensor", i, n);
    infos.tensors.push_back(read_tensor(reader));
    infos.offsets.push_back(read_offset(reader, alignment));
  }
  infos.data_begin = (reader.position() + alignment - 1) / alignment * alignment;
  infos.by_name =
      order_by(n, [&](std::uint32_t i) -> const std::string& { return infos.tensors[i].name; });
  check_names(reader.file(), infos);
  check_inside_file(reader.file(), infos);
  check_overlaps(reader.file(), infos);
  return infos;
}

}  // namespace minfer
