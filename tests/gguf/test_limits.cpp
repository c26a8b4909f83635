// SPDX-License-Identifier: MIT
//
// What a refusal may cost: under a second and under 50 MB, whatever the file is made of. Measured
// on another process, gguf_tool, so that neither the files made here nor Catch2 count.
#include <array>
#include <cstdio>
#include <unordered_map>

#include "refusal.h"

namespace minfer::test {
namespace {

struct Cost {
  double milliseconds = 0;
  long kilobytes = 0;
  std::string message;
};

Cost load(const std::string& path, const std::string& mode) {
  const std::string command = MINFER_GGUF_TOOL " cost '" + path + "' " + mode;
  FILE* tool = popen(command.c_str(), "r");
  REQUIRE(tool != nullptr);
  char line[4096] = "";
  char message[4096] = "";
  Cost cost;
  const bool one_line = fgets(line, sizeof line, tool) != nullptr && fgetc(tool) == EOF;
  REQUIRE(pclose(tool) == 0);
  REQUIRE(one_line);
  REQUIRE(sscanf(line, "%lf %ld %4095[^\n]", &cost.milliseconds, &cost.kilobytes, message) == 3);
  cost.message = message;
  return cost;
}

void check_limits(const Cost& cost) {
  CHECK(cost.milliseconds < 1000);
  CHECK(cost.kilobytes < 50 * 1000);
}

void check_refusal(const std::string& path, const std::string& expected) {
  for (const char* mode : {"map", "read"}) {
    const Cost cost = load(path, mode);
    INFO(mode << ": " << expected);
    CHECK(cost.message == path + ": " + expected);
    check_limits(cost);
  }
}

void check_refusal(GgufBuilder& builder, const std::string& expected) {
  TempDir dir;
  check_refusal(dir.write("file.gguf", builder.build()), expected);
}

/// `n` UINT8 keys with distinct names behind a common prefix.
void add_keys(GgufBuilder& b, std::size_t n, const std::string& prefix) {
  for (std::size_t i = 0; i < n; ++i) {
    b.pairs.push_back({prefix + std::to_string(i), 0, "x", {}});
  }
}

TEST_CASE("a model that is refused has not been read") {
  GgufBuilder b = small_model();
  b.set("qwen2.attention.head_count", 0u);
  b.add_tensor("large", {64u << 20}, TensorType::kF32);
  check_refusal(b, "key \"qwen2.attention.head_count\" is 0, expected 1 or more");
}

TEST_CASE("a sparse file of terabytes, all of it one tensor") {
  GgufBuilder b = small_model();
  b.erase("general.architecture");
  TensorSpec& tensor = b.add_tensor("t", {32}, TensorType::kF32);
  tensor.shape = {std::uint64_t{1} << 40};
  TempDir dir;
  const std::string path = dir.write("file.gguf", b.build());
  if (truncate(path.c_str(), off_t{1} << 43) != 0) {
    WARN("the file system holds no file of 8 TiB: not tested");
    return;
  }
  check_refusal(path, "key \"general.architecture\" is missing");
}

TEST_CASE("a million small keys") {
  GgufBuilder b;
  add_keys(b, 1000000, "");
  check_refusal(b, "key \"general.architecture\" is missing");
  b.pairs.back().key = "123456";
  check_refusal(b, "key \"123456\" occurs twice, expected once");
  add_keys(b, 50000, "more");
  check_refusal(b, "header lists 1050000 keys, expected no more than 1048576");
}

/// Two texts of eight letters that FNV-1a, going on from `state`, gives the same hash; `state` is
/// left as that hash. Half of 32 bits of them are enough to find two.
std::array<std::string, 2> colliding_pair(std::uint32_t& state) {
  std::unordered_map<std::uint32_t, std::string> seen;
  for (std::uint32_t i = 0;; ++i) {
    const std::uint64_t scattered = i * 0x9e3779b97f4a7c15u;
    std::string text;
    std::uint32_t hash = state;
    for (int k = 0; k < 8; ++k) {
      text += static_cast<char>('a' + (scattered >> (8 * k) & 15));
      hash = (hash ^ static_cast<unsigned char>(text.back())) * 16777619u;
    }
    const auto [twin, is_new] = seen.emplace(hash, text);
    if (is_new) continue;
    state = hash;
    return {twin->second, text};
  }
}

TEST_CASE("keys that were made to collide") {
  // One of two colliding texts at each of 17 places: all keys have the same hash.
  std::array<std::array<std::string, 2>, 17> pairs;
  std::uint32_t state = 2166136261u;
  for (auto& pair : pairs) pair = colliding_pair(state);
  GgufBuilder b;
  for (std::uint32_t i = 0; i < 1u << pairs.size(); ++i) {
    std::string key;
    for (std::size_t k = 0; k < pairs.size(); ++k) key += pairs[k][i >> k & 1];
    b.pairs.push_back({key, 0, "x", {}});
  }
  check_refusal(b, "key \"general.architecture\" is missing");
}

TEST_CASE("long keys that differ at their ends only") {
  GgufBuilder b;
  add_keys(b, 350, std::string(65000, 'k'));
  check_refusal(b, "key \"general.architecture\" is missing");
}

TEST_CASE("65536 tensors with long names") {
  GgufBuilder b;
  const std::string prefix(56, 'n');
  for (std::size_t i = 0; i < 65536; ++i) {
    b.add_tensor(prefix + std::to_string(i), {1, 1, 1, 1}, TensorType::kF32);
  }
  check_refusal(b, "key \"general.architecture\" is missing");
  b.tensors.back().name = b.tensors.front().name;
  check_refusal(b, "tensor \"" + prefix + "0\" occurs twice, expected once");
  b.add_tensor("one more", {1}, TensorType::kF32);
  check_refusal(b, "header lists 65537 tensors, expected no more than 65536");
}

TEST_CASE("a million strings, and two arrays of them") {
  GgufBuilder b = small_model();
  b.set("tokenizer.ggml.tokens", std::vector<std::string>(1u << 20, "tok"));
  check_refusal(b,
                "key \"tokenizer.ggml.tokens\" has 1048576 elements, expected 8, the rows of "
                "token_embd.weight");
  b.set("tokenizer.ggml.merges", std::vector<std::string>(1u << 20, "a few bytes more"));
  check_refusal(b,
                "key \"tokenizer.ggml.merges\" ends more than 25165824 bytes after the file's "
                "beginning, expected the tensors' data by then");
}

TEST_CASE("a string of gigabytes") {
  GgufBuilder b;
  b.raw("s", ValueType::kString, number_bytes(std::uint64_t{1} << 40));
  TempDir dir;
  const std::string path = dir.write("file.gguf", b.build());
  if (truncate(path.c_str(), off_t{1} << 43) != 0) {
    WARN("the file system holds no file of 8 TiB: not tested");
    return;
  }
  check_refusal(path,
                "key \"s\" ends more than 25165824 bytes after the file's beginning, expected "
                "the tensors' data by then");
}

TEST_CASE("a file of zeros, and one of noise behind a good beginning") {
  check_refusal("/dev/zero", "is a device, expected a GGUF file");
  GgufBuilder b = small_model();
  std::string bytes = b.build();
  std::uint64_t state = 1;
  for (std::size_t i = 24; i < bytes.size(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    bytes[i] = static_cast<char>(state >> 56);
  }
  TempDir dir;
  const std::string path = dir.write("noise.gguf", bytes);
  check_refusal(path,
                "key 1 of 16 needs 1192751087344779884 bytes from byte 32 on, but the file "
                "ends at byte 7984");
}

TEST_CASE("a file that is taken costs no more than its metadata") {
  TempDir dir;
  SmallShape shape;
  shape.d_ff = 1u << 20;  // three matrices of 36 MB that nobody touches
  shape.matrices = TensorType::kQ8_0;
  const Cost cost = load(dir.write("file.gguf", small_model(shape).build()), "map");
  CHECK(cost.message == "Q8_0 layers, Q8_0 head");
  check_limits(cost);
}

}  // namespace
}  // namespace minfer::test
