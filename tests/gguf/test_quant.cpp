// SPDX-License-Identifier: MIT
//
// The block formats against the gguf package, by fixtures that make_fixtures.py wrote with it.
// tests/python/test_quant.py compares with the package itself, on many more blocks.
#include <minfer/gguf/quant.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "catch.h"

namespace minfer::test {
namespace {

constexpr TensorType kAll[] = {TensorType::kF32,  TensorType::kF16,  TensorType::kBF16,
                               TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ5_0,
                               TensorType::kQ8_0, TensorType::kQ4_K, TensorType::kQ6_K};

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> bytes(hex.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  }
  return bytes;
}

std::vector<float> as_floats(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// The same bits, or two NaNs.
bool same(float a, float b) {
  return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b));
}

struct Fixture {
  char operation;
  TensorType type;
  std::vector<std::byte> in;
  std::vector<std::byte> out;
};

std::vector<Fixture> fixtures() {
  std::ifstream file(MINFER_QUANT_FIXTURES);
  REQUIRE(file);
  std::vector<Fixture> all;
  std::string operation, in, out;
  std::uint32_t type;
  while (file >> operation >> type >> in >> out) {
    all.push_back({operation[0], static_cast<TensorType>(type), from_hex(in), from_hex(out)});
  }
  return all;
}

TEST_CASE("rows are dequantized to the gguf package's bits") {
  int rows = 0;
  for (const Fixture& f : fixtures()) {
    if (f.operation != 'd') continue;
    const std::vector<float> expected = as_floats(f.out);
    REQUIRE(row_bytes(f.type, expected.size()) == f.in.size());
    std::vector<float> found(expected.size(), 1234.5f);
    dequantize_row(f.type, f.in.data(), found.size(), found.data());
    for (std::size_t i = 0; i < found.size(); ++i) {
      INFO(type_name(f.type) << ", row " << rows << ", element " << i);
      REQUIRE(same(found[i], expected[i]));
    }
    ++rows;
  }
  CHECK(rows == 3 + 4 * 11 + 2 * 6);
}

TEST_CASE("rows are quantized to the gguf package's bytes") {
  int rows = 0;
  for (const Fixture& f : fixtures()) {
    if (f.operation != 'q') continue;
    const std::vector<float> x = as_floats(f.in);
    std::vector<std::byte> found(f.out.size());
    quantize_row(f.type, x.data(), x.size(), found.data());
    INFO(type_name(f.type) << ", row " << rows);
    CHECK(found == f.out);
    ++rows;
  }
  CHECK(rows == 2 * 18);
}

TEST_CASE("a row is its blocks, wherever it lies") {
  for (const Fixture& f : fixtures()) {
    if (f.operation != 'd') continue;
    const std::size_t n = f.out.size() / sizeof(float);
    std::vector<std::byte> rows(1);  // so that the row lies at an odd address
    for (int i = 0; i < 3; ++i) rows.insert(rows.end(), f.in.begin(), f.in.end());
    std::vector<float> found(3 * n);
    dequantize_row(f.type, rows.data() + 1, 3 * n, found.data());
    for (int i = 0; i < 3; ++i) {
      const std::vector<float> expected = as_floats(f.out);
      for (std::size_t k = 0; k < n; ++k) REQUIRE(same(found[i * n + k], expected[k]));
    }
  }
}

TEST_CASE("nothing but the row is written") {
  for (const TensorType type : kAll) {
    const std::uint32_t n = block_shape(type).elements;
    std::vector<std::byte> row(row_bytes(type, n), std::byte{0x11});
    std::vector<float> out(n + 2, 7.0f);
    dequantize_row(type, row.data(), n, out.data() + 1);
    CHECK(out.front() == 7.0f);
    CHECK(out.back() == 7.0f);
    dequantize_row(type, row.data(), 0, out.data());
    CHECK(out.front() == 7.0f);
  }
}

TEST_CASE("sizes of rows are 64-bit") {
  CHECK(row_bytes(TensorType::kQ4_0, std::uint64_t{1} << 40) == (std::uint64_t{18} << 35));
  CHECK(row_bytes(TensorType::kQ6_K, 1536) == 1260);
  CHECK(row_bytes(TensorType::kBF16, 3) == 6);
  for (const TensorType type : kAll) {
    CHECK(row_bytes(type, block_shape(type).elements) == block_shape(type).bytes);
  }
}

TEST_CASE("types have the gguf package's names") {
  std::string names;
  for (const TensorType type : kAll) names += type_name(type) + std::string(" ");
  CHECK(names == "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q8_0 Q4_K Q6_K ");
}

TEST_CASE("only Q4_0 and Q8_0 are quantized to") {
  const std::vector<float> x(256);
  std::vector<std::byte> row(1024);
  CHECK_THROWS_WITH(quantize_row(TensorType::kQ6_K, x.data(), x.size(), row.data()),
                    "quantize_row: Q6_K, expected Q4_0 or Q8_0");
}

}  // namespace
}  // namespace minfer::test
