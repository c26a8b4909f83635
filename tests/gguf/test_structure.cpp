// SPDX-License-Identifier: MIT
//
// What is wrong inside a GGUF file, one thing at a time, and the line that refuses it.
#include <limits>

#include "refusal.h"

namespace minfer::test {
namespace {

constexpr std::uint64_t kMost64 = std::numeric_limits<std::uint64_t>::max();

/// A file with one key and one tensor, [32, 2] F32: 24 bytes of header, the key's entry of 19, the
/// tensor's of 41, and from byte 96 to 352 its data.
GgufBuilder tiny() {
  GgufBuilder b;
  b.set("key", 7u);
  b.add_tensor("t", {32, 2}, TensorType::kF32);
  return b;
}

TEST_CASE("a well-formed file is accepted") {
  CHECK(refusal_of(tiny()) == "accepted");
  CHECK(refusal_of(small_model()) == "accepted");
  CHECK(refusal_of(GgufBuilder{}) == "accepted");  // no keys and no tensors: a vocabulary may be so
  GgufBuilder v2 = tiny();
  v2.version = 2;
  CHECK(refusal_of(v2) == "accepted");
}

TEST_CASE("data behind the last tensor do no harm") {
  CHECK(refusal_of(tiny().build() + std::string(1000, 'x')) == "accepted");
}

TEST_CASE("the magic must be GGUF's") {
  GgufBuilder b = tiny();
  b.magic = "GGUX";
  CHECK(refusal_of(b) == "begins with \"GGUX\", expected \"GGUF\"");
  b.magic = std::string("\0\x1b[2", 4);
  CHECK(refusal_of(b) == "begins with \"\\x00\\x1b[2\", expected \"GGUF\"");
}

TEST_CASE("a big-endian file is named as such") {
  GgufBuilder b = tiny();
  b.version = 0x03000000;
  CHECK(refusal_of(b) ==
        "header has a byte-swapped version: the file is big-endian, expected little-endian");
  b.magic = "FUGG";
  CHECK(refusal_of(b) ==
        "has a byte-swapped magic: it is big-endian, expected a little-endian GGUF file");
}

TEST_CASE("versions 2 and 3 are read") {
  for (const std::uint32_t version : {0u, 1u, 4u, 65535u, 0xffffffffu}) {
    GgufBuilder b = tiny();
    b.version = version;
    CHECK(refusal_of(b) ==
          "header has GGUF version " + std::to_string(version) + ", expected 2 or 3");
  }
}

TEST_CASE("counts are held against the bytes left") {
  // tiny() has 352 bytes, 328 of them behind the header: enough for 9 tensors or 23 keys.
  for (const std::uint64_t n : {kMost64, std::uint64_t{1} << 63, std::uint64_t{10}}) {
    GgufBuilder b = tiny();
    b.n_tensors = n;
    CHECK(refusal_of(b) == "header lists " + std::to_string(n) +
                               " tensors, but the 328 bytes left hold no more than 9");
  }
  for (const std::uint64_t n : {kMost64, std::uint64_t{1} << 63, std::uint64_t{24}}) {
    GgufBuilder b = tiny();
    b.n_pairs = n;
    CHECK(refusal_of(b) == "header lists " + std::to_string(n) +
                               " keys, but the 328 bytes left hold no more than 23");
  }
}

TEST_CASE("one key or tensor more than there are is refused") {
  GgufBuilder b = tiny();
  b.n_pairs = 2;  // the tensor's entry is taken for a key "t" of type 2, INT16
  CHECK(refusal_of(b) ==
        "tensor 1 of 1 needs 562949953421312 bytes from byte 66 on, but the file ends at byte 352");
  b = tiny();
  b.n_tensors = 2;  // what follows the entry is padding: an empty name
  CHECK(refusal_of(b) == "tensor 2 of 2 has an empty name, expected 1 to 63 bytes");
}

TEST_CASE("key lengths are held against the file's end") {
  GgufBuilder b = tiny();
  b.pairs[0].key_length = kMost64;
  CHECK(
      refusal_of(b) ==
      "key 1 of 1 needs 18446744073709551615 bytes from byte 32 on, but the file ends at byte 352");
  b.pairs[0].key_length = 321;
  CHECK(refusal_of(b) ==
        "key 1 of 1 needs 321 bytes from byte 32 on, but the file ends at byte 352");
}

TEST_CASE("keys have names of a sensible length") {
  GgufBuilder b = tiny();
  b.set("", 1u);
  CHECK(refusal_of(b) == "key 2 of 2 is empty, expected a name");
  b = tiny();
  b.set(std::string(65536, 'k'), 1u);
  CHECK(refusal_of(b) == "key 2 of 2 is a name of 65536 bytes, expected no more than 65535");
  b = tiny();
  b.set(std::string(65535, 'k'), 1u);
  CHECK(refusal_of(b) == "accepted");
}

TEST_CASE("keys occur once") {
  GgufBuilder b = tiny();
  b.pairs.push_back(b.pairs[0]);
  CHECK(refusal_of(b) == "key \"key\" occurs twice, expected once");
}

TEST_CASE("string lengths are held against the file's end") {
  GgufBuilder b = tiny();
  b.raw("s", ValueType::kString, number_bytes(kMost64));
  CHECK(
      refusal_of(b) ==
      "key \"s\" needs 18446744073709551615 bytes from byte 64 on, but the file ends at byte 384");
  b.raw("s", ValueType::kString, number_bytes<std::uint64_t>(1000));
  CHECK(refusal_of(b) ==
        "key \"s\" needs 1000 bytes from byte 64 on, but the file ends at byte 384");
}

TEST_CASE("value types are known ones") {
  for (const std::uint32_t type : {13u, 255u, 0xffffffffu}) {
    GgufBuilder b = tiny();
    b.pairs[0].type = type;
    CHECK(refusal_of(b) ==
          "key \"key\" has the unknown value type " + std::to_string(type) + ", expected 0 to 12");
  }
}

TEST_CASE("a BOOL is 0 or 1") {
  GgufBuilder b = tiny();
  b.raw("flag", ValueType::kBool, "\x02");
  CHECK(refusal_of(b) == "key \"flag\" has the BOOL 2, expected 0 or 1");
  b.raw("flag", ValueType::kArray,
        GgufBuilder::array_head(ValueType::kBool, 3) + std::string("\0\1\xff", 3));
  CHECK(refusal_of(b) == "key \"flag\" has the BOOL 255, expected 0 or 1");
}

TEST_CASE("arrays hold values of a known type") {
  GgufBuilder b = tiny();
  b.raw("a", ValueType::kArray,
        GgufBuilder::array_head(ValueType::kArray, 1) +
            GgufBuilder::array_head(ValueType::kUint8, 1) + "x");
  CHECK(refusal_of(b) == "key \"a\" is an array of arrays, expected an array of values");
  b.raw("a", ValueType::kArray, GgufBuilder::array_head(static_cast<ValueType>(13), 1) + "x");
  CHECK(refusal_of(b) == "key \"a\" has the unknown value type 13, expected 0 to 12");
}

TEST_CASE("array lengths are held against a limit and the file's end") {
  GgufBuilder b = tiny();
  for (const ValueType type : {ValueType::kUint8, ValueType::kUint64, ValueType::kString}) {
    b.raw("a", ValueType::kArray, GgufBuilder::array_head(type, kMost64));
    CHECK(refusal_of(b) ==
          "key \"a\" is an array of 18446744073709551615 elements, expected no more than 1048576");
  }
  b.raw("a", ValueType::kArray, GgufBuilder::array_head(ValueType::kUint64, 1000));
  CHECK(refusal_of(b) ==
        "key \"a\" needs 8000 bytes from byte 68 on, but the file ends at byte 384");
  b.raw("a", ValueType::kArray, GgufBuilder::array_head(ValueType::kString, 1000));
  CHECK(refusal_of(b) ==
        "key \"a\" needs 137438953474 bytes from byte 85 on, but the file ends at byte 384");
  b.raw("a", ValueType::kArray, GgufBuilder::array_head(ValueType::kUint64, 0));
  CHECK(refusal_of(b) == "accepted");
}

TEST_CASE("the alignment is a UINT32 and a power of two from 8 on") {
  for (const std::uint32_t wrong : {0u, 1u, 4u, 13u, 48u, 0xffffffffu}) {
    GgufBuilder b = tiny();
    b.set("general.alignment", wrong);
    CHECK(refusal_of(b) == "key \"general.alignment\" is " + std::to_string(wrong) +
                               ", expected a power of two, 8 or more");
  }
  GgufBuilder b = tiny();
  b.raw("general.alignment", ValueType::kUint64, number_bytes<std::uint64_t>(32));
  CHECK(refusal_of(b) == "key \"general.alignment\" has type UINT64, expected UINT32");
  b.raw("general.alignment", ValueType::kInt32, number_bytes(32));
  CHECK(refusal_of(b) == "key \"general.alignment\" has type INT32, expected UINT32");
  b.set("general.alignment", "32");
  CHECK(refusal_of(b) == "key \"general.alignment\" has type STRING, expected UINT32");
}

TEST_CASE("other alignments place the data elsewhere") {
  for (const std::uint32_t alignment : {8u, 64u, 4096u}) {
    GgufBuilder b = small_model();
    b.set("general.alignment", alignment);
    b.alignment = alignment;
    CHECK(model_refusal_of(b) == "accepted");
  }
  GgufBuilder b = tiny();
  b.set("general.alignment", 0x80000000u);
  CHECK(refusal_of(b) ==
        "tensor \"t\" needs 256 bytes from byte 0 of the data on, but the file "
        "has 0 bytes of data");
}

TEST_CASE("tensor names have 1 to 63 bytes") {
  GgufBuilder b = tiny();
  b.tensors[0].name = std::string(63, 'n');
  CHECK(refusal_of(b) == "accepted");
  b.tensors[0].name = std::string(64, 'n');
  CHECK(refusal_of(b) ==
        "tensor \"" + std::string(64, 'n') + "\" has a name of 64 bytes, expected 1 to 63");
  b.tensors[0].name = "";
  CHECK(refusal_of(b) == "tensor 1 of 1 has an empty name, expected 1 to 63 bytes");
  b = tiny();
  b.tensors[0].name_length = kMost64;
  CHECK(refusal_of(b) ==
        "tensor 1 of 1 needs 18446744073709551615 bytes from byte 51 on, but the "
        "file ends at byte 352");
}

TEST_CASE("tensors have 1 to 4 dimensions of 1 or more") {
  for (const std::uint32_t n_dims : {0u, 5u, 0xffffffffu}) {
    GgufBuilder b = tiny();
    b.tensors[0].n_dims = n_dims;
    CHECK(refusal_of(b) ==
          "tensor \"t\" has " + std::to_string(n_dims) + " dimensions, expected 1 to 4");
  }
  GgufBuilder b = tiny();
  b.tensors[0].shape = {32, 0};
  CHECK(refusal_of(b) == "tensor \"t\" has a dimension of 0, expected 1 or more");
  b.tensors[0].shape = {kMost64, 2};
  CHECK(refusal_of(b) == "tensor \"t\" has a dimension of -1, expected 1 or more");
  b.tensors[0].shape = {32, std::uint64_t{1} << 63};
  CHECK(refusal_of(b) ==
        "tensor \"t\" has a dimension of -9223372036854775808, expected 1 or more");
}

TEST_CASE("element counts and sizes stay below 2^63") {
  constexpr std::uint64_t kLargest = (std::uint64_t{1} << 63) - 1;
  GgufBuilder b = tiny();
  b.tensors[0].shape = {std::uint64_t{1} << 32, std::uint64_t{1} << 31};
  CHECK(refusal_of(b) == "tensor \"t\" has more than 2^63 elements, expected fewer");
  b.tensors[0].shape = {std::uint64_t{1} << 32, std::uint64_t{1} << 32};  // 0 in 64 bits
  CHECK(refusal_of(b) == "tensor \"t\" has more than 2^63 elements, expected fewer");
  b.tensors[0].shape = {std::uint64_t{1} << 32, std::uint64_t{1} << 32, 2, 2};
  CHECK(refusal_of(b) == "tensor \"t\" has more than 2^63 elements, expected fewer");
  b.tensors[0].shape = {kLargest};
  CHECK(refusal_of(b) == "tensor \"t\" has more than 2^63 bytes, expected fewer");
  b.tensors[0].shape = {std::uint64_t{1} << 62};  // times 4 is 0 in 64 bits
  CHECK(refusal_of(b) == "tensor \"t\" has more than 2^63 bytes, expected fewer");
  b.tensors[0].shape = {std::uint64_t{1} << 60};
  CHECK(refusal_of(b) ==
        "tensor \"t\" needs 4611686018427387904 bytes from byte 0 of the data on, "
        "but the file has 256 bytes of data");
}

TEST_CASE("rows are whole blocks") {
  struct {
    TensorType type;
    std::uint64_t block;
  } const cases[] = {{TensorType::kQ4_0, 32}, {TensorType::kQ4_1, 32},  {TensorType::kQ5_0, 32},
                     {TensorType::kQ8_0, 32}, {TensorType::kQ4_K, 256}, {TensorType::kQ6_K, 256}};
  for (const auto& c : cases) {
    for (const std::uint64_t columns : {c.block - 1, c.block + 1, c.block / 2}) {
      GgufBuilder b = tiny();
      b.tensors[0].type = static_cast<std::uint32_t>(c.type);
      b.tensors[0].shape = {columns, c.block};  // as many elements as whole blocks have
      CHECK(refusal_of(b) == "tensor \"t\" has rows of " + std::to_string(columns) +
                                 " elements, expected a multiple of " + std::to_string(c.block) +
                                 ", the block of " + type_name(c.type));
    }
  }
}

TEST_CASE("tensor types that are unknown, retired or not read are named") {
  const std::string expected = ", expected F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q8_0, Q4_K or Q6_K";
  struct {
    std::uint32_t type;
    const char* found;
  } const cases[] = {{4, "the retired type Q4_2 (4)"},
                     {5, "the retired type Q4_3 (5)"},
                     {7, "the type Q5_1 (7)"},
                     {13, "the type Q5_K (13)"},
                     {16, "the type IQ2_XXS (16)"},
                     {26, "the type I32 (26)"},
                     {28, "the type F64 (28)"},
                     {31, "the retired type Q4_0_4_4 (31)"},
                     {36, "the retired type IQ4_NL_4_4 (36)"},
                     {39, "the type MXFP4 (39)"},
                     {42, "the unknown type 42"},
                     {0xffffffff, "the unknown type 4294967295"}};
  for (const auto& c : cases) {
    GgufBuilder b = tiny();
    b.tensors[0].type = c.type;
    CHECK(refusal_of(b) == std::string("tensor \"t\" has ") + c.found + expected);
  }
}

TEST_CASE("tensor data lie aligned, inside the file and apart") {
  GgufBuilder b = tiny();
  b.add_tensor("u", {32}, TensorType::kF32);  // 256 bytes of t, then 128 of u
  REQUIRE(refusal_of(b) == "accepted");

  b.tensors[1].offset = 257;
  CHECK(refusal_of(b) == "tensor \"u\" has the offset 257, expected a multiple of 32");
  b.tensors[1].offset = 288;
  CHECK(refusal_of(b) ==
        "tensor \"u\" needs 128 bytes from byte 288 of the data on, but the file "
        "has 384 bytes of data");
  b.tensors[1].offset = kMost64 - 31;
  CHECK(refusal_of(b) ==
        "tensor \"u\" needs 128 bytes from byte 18446744073709551584 of the data "
        "on, but the file has 384 bytes of data");
  b.tensors[1].offset = 224;
  CHECK(refusal_of(b) == "tensor \"u\" begins inside tensor \"t\", expected behind it");
  b.tensors[1].offset = 0;
  CHECK(refusal_of(b) == "tensor \"u\" begins inside tensor \"t\", expected behind it");
  b.tensors[0].offset = 32;
  CHECK(refusal_of(b) == "tensor \"t\" begins inside tensor \"u\", expected behind it");
  b.tensors[0].offset = 128;
  CHECK(refusal_of(b) == "accepted");  // the other way round, with a gap or without
}

TEST_CASE("tensors occur once") {
  GgufBuilder b = tiny();
  b.add_tensor("t", {32}, TensorType::kF32);
  CHECK(refusal_of(b) == "tensor \"t\" occurs twice, expected once");
}

TEST_CASE("a part of a split file says what it is") {
  GgufBuilder b = tiny();
  b.raw("split.count", ValueType::kUint16, number_bytes<std::uint16_t>(3));
  CHECK(refusal_of(b) ==
        "key \"split.count\" is 3, expected 1: this is one part of a split file; "
        "join the parts first (llama-gguf-split --merge)");
  b.raw("split.count", ValueType::kUint16, number_bytes<std::uint16_t>(1));
  CHECK(refusal_of(b) == "accepted");
  b.set("split.count", "3");
  CHECK(refusal_of(b) == "key \"split.count\" has type STRING, expected an integer");
}

TEST_CASE("names are escaped in messages") {
  GgufBuilder b = tiny();
  b.raw("evil\x1b]0;\a\n\"\\\xff", ValueType::kBool, "\x02");
  CHECK(refusal_of(b) ==
        "key \"evil\\x1b]0;\\x07\\x0a\\\"\\\\\\xff\" has the BOOL 2, expected 0 or 1");
  b = tiny();
  b.raw(std::string(5000, 'k'), ValueType::kBool, "\x02");
  CHECK(refusal_of(b) ==
        "key \"" + std::string(96, 'k') + "\"... (5000 bytes) has the BOOL 2, expected 0 or 1");
  b = tiny();
  b.tensors[0].name = "t\n\x80";
  b.tensors[0].shape = {0};
  CHECK(refusal_of(b) == "tensor \"t\\x0a\\x80\" has a dimension of 0, expected 1 or more");
}

TEST_CASE("the file cut at any byte is refused") {
  GgufBuilder builder = small_model();
  const std::string whole = builder.build();
  TempDir dir;
  const std::string path = dir.write("cut.gguf", whole);
  for (std::size_t size = whole.size(); size-- > 0;) {
    REQUIRE(truncate(path.c_str(), static_cast<off_t>(size)) == 0);
    for (const ReadMode mode : {ReadMode::kMap, ReadMode::kRead}) {
      const std::string message =
          refusal_by(path, [mode](const std::string& p) { GgufFile::open(p, mode); });
      if (message == "accepted" || message.find('\n') != std::string::npos) {
        FAIL("cut to " << size << " of " << whole.size() << " bytes: " << message);
      }
    }
  }
}

TEST_CASE("the file one byte short names the tensor that is not whole") {
  GgufBuilder builder = tiny();
  std::string bytes = builder.build();
  bytes.pop_back();
  CHECK(refusal_of(bytes) ==
        "tensor \"t\" needs 256 bytes from byte 0 of the data on, but the file "
        "has 255 bytes of data");
}

}  // namespace
}  // namespace minfer::test
