// SPDX-License-Identifier: MIT
//
// Metadata by key and type, and tensors by name.
#include <cmath>
#include <limits>

#include "refusal.h"

namespace minfer::test {
namespace {

GgufBuilder with_values() {
  GgufBuilder b;
  b.raw("u8", ValueType::kUint8, number_bytes<std::uint8_t>(200));
  b.raw("i8", ValueType::kInt8, number_bytes<std::int8_t>(-3));
  b.raw("u16", ValueType::kUint16, number_bytes<std::uint16_t>(60000));
  b.raw("i16", ValueType::kInt16, number_bytes<std::int16_t>(300));
  b.raw("u32", ValueType::kUint32, number_bytes<std::uint32_t>(4000000000));
  b.raw("i32", ValueType::kInt32, number_bytes<std::int32_t>(-1));
  b.raw("u64", ValueType::kUint64, number_bytes<std::uint64_t>(1));
  b.raw("u64 big", ValueType::kUint64, number_bytes(std::numeric_limits<std::uint64_t>::max()));
  b.raw("i64", ValueType::kInt64, number_bytes<std::int64_t>(4294967295));
  b.raw("i64 low", ValueType::kInt64, number_bytes(std::numeric_limits<std::int64_t>::min()));
  b.raw("f32", ValueType::kFloat32, number_bytes(1.5f));
  b.raw("f64", ValueType::kFloat64, number_bytes(2.5));
  b.set("true", true);
  b.set("false", false);
  b.set("text", "a \xc3\xa9");
  b.set("empty text", "");
  b.set("strings", std::vector<std::string>{"", "one", std::string("t\0o", 3)});
  b.set("i32s", std::vector<std::int32_t>{1, -2, 3});
  b.raw("u8s", ValueType::kArray,
        GgufBuilder::array_head(ValueType::kUint8, 3) + std::string("\1\2\xff", 3));
  b.raw("u32s", ValueType::kArray,
        GgufBuilder::array_head(ValueType::kUint32, 2) + number_bytes(7u) + number_bytes(1u << 31));
  b.raw("none", ValueType::kArray, GgufBuilder::array_head(ValueType::kFloat64, 0));
  b.add_tensor("z", {4}, TensorType::kF32);
  b.add_tensor("a", {32, 3}, TensorType::kQ8_0);
  return b;
}

struct Opened {
  TempDir dir;
  std::string path;
  GgufFile file;
  explicit Opened(GgufBuilder b)
      : path(dir.write("file.gguf", b.build())), file(GgufFile::open(path)) {}
};

TEST_CASE("integers of any width are read where they fit") {
  const Opened opened(with_values());
  const GgufFile& file = opened.file;
  CHECK(file.get_u32("u8") == 200);
  CHECK(file.get_u32("u16") == 60000);
  CHECK(file.get_u32("i16") == 300);
  CHECK(file.get_u32("u32") == 4000000000);
  CHECK(file.get_u32("u64") == 1);
  CHECK(file.get_u32("i64") == 4294967295);
  const auto fails = [&](const char* key, const std::string& what) {
    CHECK_THROWS_WITH(file.get_u32(key), opened.path + ": key \"" + key + "\" " + what);
  };
  fails("i8", "has the value -3, expected 0 to 4294967295");
  fails("i32", "has the value -1, expected 0 to 4294967295");
  fails("u64 big", "has the value 18446744073709551615, expected 0 to 4294967295");
  fails("i64 low", "has the value -9223372036854775808, expected 0 to 4294967295");
  fails("f32", "has type FLOAT32, expected an integer");
  fails("true", "has type BOOL, expected an integer");
  fails("text", "has type STRING, expected an integer");
  fails("i32s", "has type ARRAY of INT32, expected an integer");
  fails("absent", "is missing");
}

TEST_CASE("other values are read by their own type") {
  const Opened opened(with_values());
  const GgufFile& file = opened.file;
  CHECK(file.get_f32("f32") == 1.5f);
  CHECK(file.get_bool("true"));
  CHECK_FALSE(file.get_bool("false"));
  CHECK(file.get_string("text") == "a \xc3\xa9");
  CHECK(file.get_string("empty text").empty());
  CHECK(file.has("u8"));
  CHECK_FALSE(file.has("u"));
  CHECK_FALSE(file.has(""));
  const std::string prefix = opened.path + ": key ";
  CHECK_THROWS_WITH(file.get_f32("f64"), prefix + "\"f64\" has type FLOAT64, expected FLOAT32");
  CHECK_THROWS_WITH(file.get_f32("absent"), prefix + "\"absent\" is missing");
  CHECK_THROWS_WITH(file.get_bool("u8"), prefix + "\"u8\" has type UINT8, expected BOOL");
  CHECK_THROWS_WITH(file.get_string("u8"), prefix + "\"u8\" has type UINT8, expected STRING");
}

TEST_CASE("arrays") {
  const Opened opened(with_values());
  const GgufFile& file = opened.file;
  CHECK(file.get_strings("strings") ==
        std::vector<std::string_view>{"", "one", std::string_view("t\0o", 3)});
  CHECK(file.get_i32s("i32s") == std::vector<std::int32_t>{1, -2, 3});
  CHECK(file.get_i32s("u8s") == std::vector<std::int32_t>{1, 2, 255});
  CHECK(file.array_size("strings") == 3);
  CHECK(file.array_size("none") == 0);
  const std::string prefix = opened.path + ": key ";
  CHECK_THROWS_WITH(file.get_i32s("u32s"), prefix +
                                               "\"u32s\" has the value 2147483648, expected "
                                               "-2147483648 to 2147483647");
  CHECK_THROWS_WITH(file.get_i32s("strings"),
                    prefix + "\"strings\" has type ARRAY of STRING, expected ARRAY of integers");
  CHECK_THROWS_WITH(file.get_i32s("none"),
                    prefix + "\"none\" has type ARRAY of FLOAT64, expected ARRAY of integers");
  CHECK_THROWS_WITH(file.get_strings("i32s"),
                    prefix + "\"i32s\" has type ARRAY of INT32, expected ARRAY of STRING");
  CHECK_THROWS_WITH(file.get_strings("text"), prefix + "\"text\" has type STRING, expected ARRAY");
  CHECK_THROWS_WITH(file.array_size("u8"), prefix + "\"u8\" has type UINT8, expected ARRAY");
}

TEST_CASE("tensors by name, in the file's order") {
  const Opened opened(with_values());
  const GgufFile& file = opened.file;
  REQUIRE(file.tensors().size() == 2);
  CHECK(file.tensors()[0].name == "z");
  const Tensor& a = file.tensor("a");
  CHECK(&a == &file.tensors()[1]);
  CHECK(a.type == TensorType::kQ8_0);
  CHECK(a.shape == std::vector<std::uint64_t>{32, 3});
  CHECK(a.bytes == 3 * 34);
  CHECK(std::string_view(reinterpret_cast<const char*>(a.data), 9) == "123456781");
  CHECK(file.find_tensor("b") == nullptr);
  CHECK(file.find_tensor("") == nullptr);
  CHECK_THROWS_WITH(file.tensor("zz"), opened.path + ": tensor \"zz\" is missing");
}

TEST_CASE("a file can be moved") {
  Opened opened(with_values());
  const Tensor* a = opened.file.find_tensor("a");
  GgufFile moved = std::move(opened.file);
  CHECK(moved.find_tensor("a") == a);
  CHECK(moved.path() == opened.path);
  opened.file = std::move(moved);
  CHECK(opened.file.get_u32("u8") == 200);
}

}  // namespace
}  // namespace minfer::test
