// SPDX-License-Identifier: MIT
//
// What makes a GGUF file a Qwen2.5 model, one thing missing or wrong at a time.
#include <cmath>
#include <cstring>
#include <limits>

#include <minfer/threads.h>

#include "refusal.h"

namespace minfer::test {
namespace {

std::string key(const std::string& name) {
  return "key \"qwen2." + name + "\" ";
}

/// The refusal of small_model() after one change.
template <class Change>
std::string refusal_after(Change change) {
  GgufBuilder b = small_model();
  change(b);
  return model_refusal_of(b);
}

struct Loaded {
  TempDir dir;
  std::string path;
  Model model;
  explicit Loaded(GgufBuilder b, const ModelOptions& options = {})
      : path(dir.write("model.gguf", b.build())), model(Model::load(path, options)) {}
};

TEST_CASE("a small model is loaded") {
  for (const ReadMode mode : {ReadMode::kMap, ReadMode::kRead}) {
    SmallShape shape;
    shape.n_layers = 3;
    const Loaded loaded(small_model(shape), {mode, false});
    const Model& model = loaded.model;
    const ModelConfig& c = model.config();
    CHECK(c.n_layers == 3);
    CHECK(c.d_model == 32);
    CHECK(c.d_ff == 64);
    CHECK(c.n_heads == 4);
    CHECK(c.n_kv_heads == 2);
    CHECK(c.head_dim == 8);
    CHECK(c.d_q() == 32);
    CHECK(c.d_kv() == 16);
    CHECK(c.group() == 2);
    CHECK(c.n_vocab == 8);
    CHECK(c.n_tokens == 6);  // two rows are UNUSED
    CHECK(c.context_length == 128);
    CHECK(c.rope_base == 1e6f);
    CHECK(c.rms_eps == 1e-6f);

    REQUIRE(model.layers().size() == 3);
    const LayerWeights& layer = model.layers()[2];
    const GgufFile& file = model.file();
    const auto is = [&](const Matrix& m, const char* name, std::uint32_t rows, std::uint32_t cols) {
      const Tensor& tensor = file.tensor(name);
      return m.tensor == &tensor && m.data == tensor.data && m.type == tensor.type &&
             m.rows == rows && m.cols == cols && m.bytes() == tensor.bytes / tensor.shape[1] * rows;
    };
    const auto vector_is = [&](const float* v, const char* name) {
      return reinterpret_cast<const std::byte*>(v) == file.tensor(name).data;
    };
    CHECK(vector_is(layer.attn_norm, "blk.2.attn_norm.weight"));
    CHECK(is(layer.w_q, "blk.2.attn_q.weight", 32, 32));
    CHECK(is(layer.w_k, "blk.2.attn_k.weight", 16, 32));
    CHECK(is(layer.w_v, "blk.2.attn_v.weight", 16, 32));
    CHECK(is(layer.w_o, "blk.2.attn_output.weight", 32, 32));
    CHECK(vector_is(layer.b_q, "blk.2.attn_q.bias"));
    CHECK(vector_is(layer.b_k, "blk.2.attn_k.bias"));
    CHECK(vector_is(layer.b_v, "blk.2.attn_v.bias"));
    CHECK(vector_is(layer.ffn_norm, "blk.2.ffn_norm.weight"));
    CHECK(is(layer.w_gate, "blk.2.ffn_gate.weight", 64, 32));
    CHECK(is(layer.w_up, "blk.2.ffn_up.weight", 64, 32));
    CHECK(is(layer.w_down, "blk.2.ffn_down.weight", 32, 64));
    CHECK(is(model.token_embedding(), "token_embd.weight", 8, 32));
    CHECK(vector_is(model.output_norm(), "output_norm.weight"));
    CHECK(is(model.lm_head(), "output.weight", 6, 32));
    CHECK_FALSE(model.tied());
    CHECK(model.describe() == "Q4_0 layers, Q8_0 head");
  }
}

TEST_CASE("bytes per token are what a decode step reads of the file") {
  SmallShape shape;
  shape.n_layers = 2;
  const Loaded loaded(small_model(shape));
  std::uint64_t all = 0;
  for (const Tensor& tensor : loaded.model.file().tensors()) all += tensor.bytes;
  const std::uint64_t embedding = loaded.model.token_embedding().bytes();
  const std::uint64_t unused = 2 * row_bytes(TensorType::kQ8_0, 32);  // rows of the head
  CHECK(loaded.model.bytes_per_token() == all - embedding - unused);
  CHECK(loaded.model.layer_bytes() == all - embedding - 8 * row_bytes(TensorType::kQ8_0, 32));
}

TEST_CASE("without an lm_head the token embedding serves") {
  GgufBuilder b = small_model();
  b.erase_tensor("output.weight");
  const Loaded loaded(b);
  CHECK(loaded.model.tied());
  CHECK(loaded.model.lm_head().tensor == &loaded.model.file().tensor("token_embd.weight"));
  CHECK(loaded.model.describe() == "Q4_0 layers, Q4_0 head (tied)");
}

TEST_CASE("matrices and heads of every type are taken") {
  for (const TensorType type :
       {TensorType::kF32, TensorType::kF16, TensorType::kBF16, TensorType::kQ4_0, TensorType::kQ4_1,
        TensorType::kQ5_0, TensorType::kQ8_0, TensorType::kQ4_K, TensorType::kQ6_K}) {
    SmallShape shape;
    shape.d_model = shape.d_ff = 256;
    shape.matrices = shape.head = type;
    const Loaded loaded(small_model(shape));
    CHECK(loaded.model.layers()[0].w_down.type == type);
    CHECK(loaded.model.describe() ==
          std::string(type_name(type)) + " layers, " + type_name(type) + " head");
  }
}

TEST_CASE("a matrix comes in Q8_0 by runs of rows, every block once and in order") {
  constexpr std::uint32_t kRows = 10'000, kCols = 64;
  std::vector<float> values(kRows * kCols);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i % 1013) - 500.0f;
  }
  const Matrix m = {TensorType::kF32, kRows, kCols,
                    reinterpret_cast<const std::byte*>(values.data()), nullptr};
  std::vector<BlockQ8_0> blocks;
  int runs = 0;
  for_each_as_q8_0(m, [&](std::size_t first, Span<const BlockQ8_0> run) {
    CHECK(first == blocks.size());
    blocks.insert(blocks.end(), run.begin(), run.end());
    runs += 1;
  });
  CHECK(runs == 3);
  ThreadPool pool(1);
  const std::vector<std::byte> whole = requantized(m, TensorType::kQ8_0, pool);
  REQUIRE(blocks.size() * sizeof blocks[0] == whole.size());
  CHECK(std::memcmp(blocks.data(), whole.data(), whole.size()) == 0);
}

TEST_CASE("a Q4_0 file may hold some matrices of Q4_1") {
  GgufBuilder b = small_model();
  b.erase_tensor("blk.0.ffn_down.weight");
  b.add_tensor("blk.0.ffn_down.weight", {64, 32}, TensorType::kQ4_1);
  CHECK(Loaded(b).model.describe() == "Q4_0 and Q4_1 layers, Q8_0 head");
  const Loaded requantized(b, {ReadMode::kMap, true});
  CHECK(requantized.model.describe() == "Q4_0 layers, Q8_0 head; requantized: 1 Q4_1 matrix");
}

TEST_CASE("requantized matrices are dequantized and quantized rows") {
  for (const ReadMode mode : {ReadMode::kMap, ReadMode::kRead}) {
    SmallShape shape;
    shape.n_layers = 2;
    shape.d_model = shape.d_ff = 256;
    shape.matrices = TensorType::kQ4_K;
    shape.head = TensorType::kQ6_K;
    const Loaded plain(small_model(shape), {mode, false});
    const Loaded loaded(small_model(shape), {mode, true});
    CHECK(loaded.model.describe() == "Q4_0 layers, Q6_K head; requantized: 14 Q4_K matrices");
    CHECK(loaded.model.token_embedding().type ==
          TensorType::kQ4_K);  // rows are looked up, one each

    const Matrix& from = plain.model.layers()[1].w_up;
    const Matrix& to = loaded.model.layers()[1].w_up;
    CHECK(to.type == TensorType::kQ4_0);
    CHECK(to.tensor == nullptr);
    REQUIRE(to.rows == from.rows);
    REQUIRE(to.cols == from.cols);
    std::vector<float> row(256);
    std::vector<std::byte> expected(row_bytes(TensorType::kQ4_0, 256));
    for (std::uint32_t r = 0; r < to.rows; ++r) {
      dequantize_row(from.type, from.data + r * row_bytes(from.type, 256), 256, row.data());
      quantize_row(TensorType::kQ4_0, row.data(), 256, expected.data());
      REQUIRE(std::memcmp(to.data + r * expected.size(), expected.data(), expected.size()) == 0);
    }
    CHECK(loaded.model.bytes_per_token() < plain.model.bytes_per_token() + 1);
  }
}

TEST_CASE("a head that no GPU engine reads is requantized to Q8_0, also a tied one") {
  SmallShape shape;
  shape.head = TensorType::kF16;
  const Loaded loaded(small_model(shape), {ReadMode::kMap, true});
  CHECK(loaded.model.lm_head().type == TensorType::kQ8_0);
  CHECK(loaded.model.describe() == "Q4_0 layers, Q8_0 head; requantized: 1 F16 matrix");

  GgufBuilder b = small_model();
  b.erase_tensor("output.weight");
  b.erase_tensor("token_embd.weight");
  b.add_tensor("token_embd.weight", {32, 8}, TensorType::kF16);
  const Loaded tied(b, {ReadMode::kMap, true});
  CHECK(tied.model.token_embedding().type == TensorType::kF16);
  CHECK(tied.model.lm_head().type == TensorType::kQ8_0);
  CHECK_FALSE(tied.model.tied());
}

TEST_CASE("another architecture") {
  CHECK(refusal_after([](GgufBuilder& b) { b.set("general.architecture", "llama"); }) ==
        "key \"general.architecture\" is \"llama\", expected \"qwen2\"");
  CHECK(refusal_after([](GgufBuilder& b) { b.set("general.architecture", "qwen2moe"); }) ==
        "key \"general.architecture\" is \"qwen2moe\", expected \"qwen2\"");
  CHECK(refusal_after([](GgufBuilder& b) { b.erase("general.architecture"); }) ==
        "key \"general.architecture\" is missing");
  CHECK(refusal_after([](GgufBuilder& b) { b.set("general.architecture", 2u); }) ==
        "key \"general.architecture\" has type UINT32, expected STRING");
}

TEST_CASE("every hyperparameter is needed, but for the number of K/V heads") {
  for (const char* name :
       {"block_count", "context_length", "embedding_length", "feed_forward_length",
        "attention.head_count", "rope.freq_base", "attention.layer_norm_rms_epsilon"}) {
    CHECK(refusal_after([&](GgufBuilder& b) { b.erase("qwen2." + std::string(name)); }) ==
          key(name) + "is missing");
    CHECK(refusal_after([&](GgufBuilder& b) {
            b.set("qwen2." + std::string(name), "7");
          }).find(key(name) + "has type STRING, expected ") == 0);
  }
  // Without it there are as many K/V heads as heads, and the tensors have another shape.
  CHECK(refusal_after([](GgufBuilder& b) { b.erase("qwen2.attention.head_count_kv"); }) ==
        "tensor \"blk.0.attn_k.weight\" has the shape [32, 16], expected [32, 32]");
}

TEST_CASE("no count is zero") {
  for (const char* name :
       {"block_count", "context_length", "embedding_length", "feed_forward_length",
        "attention.head_count", "attention.head_count_kv"}) {
    CHECK(refusal_after([&](GgufBuilder& b) { b.set("qwen2." + std::string(name), 0u); }) ==
          key(name) + "is 0, expected 1 or more");
  }
}

TEST_CASE("dimensions are multiples of 32, heads divide them") {
  const auto after = [](const char* name, std::uint32_t value) {
    return refusal_after([&](GgufBuilder& b) { b.set("qwen2." + std::string(name), value); });
  };
  CHECK(after("embedding_length", 40) ==
        key("embedding_length") + "is 40, expected a multiple of 32");
  CHECK(after("feed_forward_length", 48) ==
        key("feed_forward_length") + "is 48, expected a multiple of 32");
  CHECK(after("embedding_length", 0xffffffe0) ==
        key("embedding_length") + "is 4294967264, expected no more than 1048576");
  CHECK(after("feed_forward_length", 0xffffffe0) ==
        key("feed_forward_length") + "is 4294967264, expected no more than 1048576");
  CHECK(after("attention.head_count", 3) ==
        key("embedding_length") + "is 32, expected a multiple of the 3 heads");
  CHECK(after("attention.head_count", 64) ==
        key("embedding_length") + "is 32, expected a multiple of the 64 heads");
  CHECK(after("attention.head_count_kv", 3) ==
        key("attention.head_count") + "is 4, expected a multiple of the 3 K/V heads");
  CHECK(after("attention.head_count_kv", 8) ==
        key("attention.head_count") + "is 4, expected a multiple of the 8 K/V heads");
  CHECK(after("attention.head_count", 32) ==
        key("embedding_length") + "makes heads of 1 elements, expected an even number");
}

TEST_CASE("the RoPE base and the epsilon are positive numbers") {
  for (const char* name : {"rope.freq_base", "attention.layer_norm_rms_epsilon"}) {
    struct {
      float value;
      const char* shown;
    } const cases[] = {{0.0f, "0"},
                       {-0.0f, "-0"},
                       {-1.0f, "-1"},
                       {std::numeric_limits<float>::infinity(), "inf"},
                       {-std::numeric_limits<float>::infinity(), "-inf"},
                       {std::numeric_limits<float>::quiet_NaN(), "nan"}};
    for (const auto& c : cases) {
      CHECK(refusal_after([&](GgufBuilder& b) { b.set("qwen2." + std::string(name), c.value); }) ==
            key(name) + "is " + c.shown + ", expected a positive number");
    }
  }
}

TEST_CASE("what the forward pass does not do is refused, not left out") {
  const auto after = [](const char* name, auto value) {
    return refusal_after([&](GgufBuilder& b) { b.set("qwen2." + std::string(name), value); });
  };
  CHECK(after("rope.scaling.type", "yarn") ==
        key("rope.scaling.type") + "is \"yarn\", expected \"none\"");
  CHECK(after("rope.scaling.type", "none") == "accepted");
  CHECK(after("rope.scaling.factor", 4.0f) == key("rope.scaling.factor") + "is 4, expected 1");
  CHECK(after("rope.scaling.factor", 1.0f) == "accepted");
  CHECK(after("rope.scale_linear", 0.5f) == key("rope.scale_linear") + "is 0.5, expected 1");
  CHECK(after("attention.causal", false) == key("attention.causal") + "is false, expected true");
  CHECK(after("attention.causal", true) == "accepted");
  CHECK(after("attention.sliding_window", 64u) ==
        key("attention.sliding_window") + "is 64, expected 0");
  for (const char* name :
       {"attention.key_length", "attention.value_length", "rope.dimension_count"}) {
    CHECK(after(name, 16u) ==
          key(name) + "is 16, expected 8, the embedding length over the number of heads");
    CHECK(after(name, 8u) == "accepted");
  }
}

TEST_CASE("every tensor is needed, and named when it is missing") {
  GgufBuilder whole = small_model();
  for (const TensorSpec& spec : whole.tensors) {
    if (spec.name == "output.weight") continue;
    CHECK(refusal_after([&](GgufBuilder& b) { b.erase_tensor(spec.name); }) ==
          "tensor \"" + spec.name + "\" is missing");
  }
}

TEST_CASE("more layers are announced than there are") {
  for (const std::uint32_t n_layers : {2u, 0xffffffffu}) {
    CHECK(refusal_after([&](GgufBuilder& b) { b.set("qwen2.block_count", n_layers); }) ==
          "tensor \"blk.1.attn_norm.weight\" is missing");
  }
}

TEST_CASE("a tensor that nothing reads is refused, with both counts and its name") {
  SmallShape shape;
  shape.n_layers = 3;
  GgufBuilder b = small_model(shape);
  b.set("qwen2.block_count", 2u);
  CHECK(model_refusal_of(b) ==
        "found 39 tensors, expected 27 for \"qwen2.block_count\" 2: \"blk.2.attn_norm.weight\" is "
        "none of them");
  for (const char* name :
       {"rope_freqs.weight", "output.bias", "blk.0.attn_output.bias", "blk.0.attn_q_norm.weight",
        "blk.1.ffn_up.weight", "blk.00.ffn_up.weight", "token_embd.weight "}) {
    CHECK(refusal_after([&](GgufBuilder& b) { b.add_tensor(name, {32}, TensorType::kF32); }) ==
          "found 16 tensors, expected 15 for \"qwen2.block_count\" 1: \"" + std::string(name) +
              "\" is none of them");
  }
  // As many tensors as expected, but others.
  CHECK(refusal_after([](GgufBuilder& b) {
          b.erase_tensor("output.weight");
          b.add_tensor("output.bias", {8}, TensorType::kF32);
        }) ==
        "found 15 tensors, expected 14 for \"qwen2.block_count\" 1: \"output.bias\" is none of "
        "them");
}

TEST_CASE("every tensor has the one shape that fits") {
  GgufBuilder whole = small_model();
  for (const TensorSpec& spec : whole.tensors) {
    const auto reshaped = [&](std::vector<std::uint64_t> shape) {
      return refusal_after([&](GgufBuilder& b) {
        b.erase_tensor(spec.name);
        b.add_tensor(spec.name, std::move(shape), static_cast<TensorType>(spec.type));
      });
    };
    std::vector<std::uint64_t> longer = spec.shape;
    longer.push_back(2);
    std::vector<std::uint64_t> wider = spec.shape;
    wider[0] += 32;
    CHECK_THAT(reshaped(longer), ContainsSubstring("tensor \"" + spec.name + "\" has the shape ["));
    CHECK_THAT(reshaped(wider), ContainsSubstring("tensor \"" + spec.name + "\" has the shape ["));
  }
  CHECK(refusal_after([](GgufBuilder& b) {
          b.erase_tensor("blk.0.ffn_up.weight");
          b.add_tensor("blk.0.ffn_up.weight", {64, 32}, TensorType::kQ4_0);  // transposed
        }) == "tensor \"blk.0.ffn_up.weight\" has the shape [64, 32], expected [32, 64]");
  CHECK(refusal_after([](GgufBuilder& b) {
          b.erase_tensor("output.weight");
          b.add_tensor("output.weight", {32, 7}, TensorType::kQ8_0);
        }) == "tensor \"output.weight\" has the shape [32, 7], expected [32, 8]");
  CHECK(refusal_after([](GgufBuilder& b) {
          b.erase_tensor("token_embd.weight");
          b.add_tensor("token_embd.weight", {64, 8}, TensorType::kQ4_0);
        }) ==
        "tensor \"token_embd.weight\" has the shape [64, 8], expected [32, the number of tokens]");
}

TEST_CASE("norms and biases are F32") {
  GgufBuilder whole = small_model();
  for (const TensorSpec& spec : whole.tensors) {
    if (spec.shape.size() != 1) continue;
    CHECK(refusal_after([&](GgufBuilder& b) {
            const std::vector<std::uint64_t> shape = spec.shape;
            b.erase_tensor(spec.name);
            b.add_tensor(spec.name, shape, TensorType::kF16);
          }) == "tensor \"" + spec.name + "\" has the type F16, expected F32");
  }
}

TEST_CASE("the vocabulary has a token for every row") {
  CHECK(refusal_after([](GgufBuilder& b) { b.erase("tokenizer.ggml.tokens"); }) ==
        "key \"tokenizer.ggml.tokens\" is missing");
  for (const std::size_t n : {0u, 7u, 9u}) {
    CHECK(refusal_after([&](GgufBuilder& b) {
            b.set("tokenizer.ggml.tokens", std::vector<std::string>(n, "x"));
          }) == "key \"tokenizer.ggml.tokens\" has " + std::to_string(n) +
                    " elements, expected 8, the rows of token_embd.weight");
    CHECK(refusal_after([&](GgufBuilder& b) {
            b.set("tokenizer.ggml.token_type", std::vector<std::int32_t>(n, 1));
          }) == "key \"tokenizer.ggml.token_type\" has " + std::to_string(n) +
                    " elements, expected 8, the rows of token_embd.weight");
  }
}

TEST_CASE("real tokens are all rows but the UNUSED ones at the end") {
  const auto n_tokens = [](const std::vector<std::int32_t>& types) {
    GgufBuilder b = small_model();
    b.set("tokenizer.ggml.token_type", types);
    return Loaded(b).model.config().n_tokens;
  };
  CHECK(n_tokens({1, 1, 1, 3, 3, 3, 1, 1}) == 8);
  CHECK(n_tokens({1, 1, 1, 3, 3, 3, 5, 1}) == 8);
  CHECK(n_tokens({1, 5, 1, 3, 3, 3, 5, 5}) == 6);
  GgufBuilder b = small_model();
  b.erase("tokenizer.ggml.token_type");
  CHECK(Loaded(b).model.config().n_tokens == 8);
  CHECK(refusal_after([](GgufBuilder& b) {
          b.set("tokenizer.ggml.token_type", std::vector<std::int32_t>(8, 5));
        }) == "key \"tokenizer.ggml.token_type\" has UNUSED tokens only, expected others");
}

TEST_CASE("special ids are ids of real tokens") {
  for (const char* name :
       {"bos", "eos", "eot", "eom", "unknown", "separator", "padding", "cls", "mask", "fim_pre",
        "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep"}) {
    const std::string id_key = "tokenizer.ggml." + std::string(name) + "_token_id";
    for (const std::uint32_t id : {6u, 8u, 0xffffffffu}) {  // 6 is UNUSED
      CHECK(refusal_after([&](GgufBuilder& b) { b.set(id_key, id); }) ==
            "key \"" + id_key + "\" is " + std::to_string(id) + ", expected an id below 6");
    }
    CHECK(refusal_after([&](GgufBuilder& b) {
            b.raw(id_key, ValueType::kInt32, number_bytes<std::int32_t>(-1));
          }) == "key \"" + id_key + "\" has the value -1, expected 0 to 4294967295");
    CHECK(refusal_after([&](GgufBuilder& b) { b.set(id_key, 5u); }) == "accepted");
  }
}

TEST_CASE("a model file cut at any byte is refused by Model::load") {
  const std::string whole = small_model().build();
  TempDir dir;
  const std::string path = dir.write("cut.gguf", whole);
  for (std::size_t size = whole.size(); size-- > 0;) {
    REQUIRE(truncate(path.c_str(), static_cast<off_t>(size)) == 0);
    const std::string message = refusal_by(path, [](const std::string& p) { Model::load(p); });
    if (message == "accepted") FAIL("cut to " << size << " of " << whole.size() << " bytes");
  }
}

}  // namespace
}  // namespace minfer::test
