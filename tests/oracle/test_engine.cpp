// SPDX-License-Identifier: MIT
//
// The oracle as an engine, on small models: against plain.h, and against itself in every other way
// to compute the same.
#include <cmath>
#include <vector>

#include <minfer/logits_hash.h>

#include "catch.h"
#include "gguf/temp_file.h"
#include "matrices.h"
#include "oracle/engine.h"
#include "oracle/ops.h"

namespace minfer::test {
namespace {

using oracle::OracleEngine;
using Ids = std::vector<Token>;
using Logits = std::vector<std::vector<float>>;

struct Loaded {
  TempDir dir;
  Model model;
  explicit Loaded(const std::string& bytes) : model(Model::load(dir.write("m.gguf", bytes))) {}
};

/// 7 query heads on one K/V head of 16, 3 layers, 40 real tokens of 45.
std::string seven_heads() {
  SmallShape shape;
  shape.n_layers = 3;
  shape.d_model = 224;
  shape.n_heads = 14;
  shape.n_kv_heads = 2;
  shape.d_ff = 352;
  shape.n_vocab = 45;
  return random_model(shape, 40, 7);
}

Ids some_ids(std::size_t n) {
  Random random(99);
  Ids ids(n);
  for (Token& id : ids) id = static_cast<Token>(random.next() % 40);
  return ids;
}

EngineOptions options(unsigned threads = 2, int tchunk = 0) {
  EngineOptions o;
  o.context = 64;
  o.threads = threads;
  if (tchunk > 0) o.values["TCHUNK"] = tchunk;
  return o;
}

Logits forced(OracleEngine& engine, const Ids& ids) {
  Logits rows;
  engine.force(ids, [&](std::uint32_t position, const float* logits) {
    REQUIRE(position == rows.size());
    rows.emplace_back(logits, logits + 40);
  });
  return rows;
}

Ids greedy(OracleEngine& engine, std::uint32_t n) {
  Ids ids;
  const std::uint32_t emitted = engine.decode(n, [&](Token id) {
    ids.push_back(id);
    return true;
  });
  CHECK(emitted == ids.size());
  return ids;
}

TEST_CASE("the logits are those of the plain forward pass") {
  for (const TensorType matrices : {TensorType::kQ4_0, TensorType::kF16, TensorType::kQ4_1}) {
    for (const std::uint32_t n_kv_heads : {1u, 2u, 4u}) {
      SmallShape shape;
      shape.n_layers = 2;
      shape.d_model = 64;
      shape.n_heads = 4;
      shape.n_kv_heads = n_kv_heads;
      shape.d_ff = 96;
      shape.n_vocab = 45;
      shape.matrices = matrices;
      const Loaded loaded(random_model(shape, 40, 5));
      const Ids ids = some_ids(20);
      OracleEngine engine(loaded.model, options());
      const Logits rows = forced(engine, ids);
      const std::vector<Vec> expected = plain_logits(loaded.model, ids);
      REQUIRE(rows.size() == ids.size());
      for (std::size_t t = 0; t < ids.size(); ++t) {
        for (std::size_t i = 0; i < 40; ++i) {
          REQUIRE(std::fabs(rows[t][i] - expected[t][i]) <= 2e-5 * (1 + std::fabs(expected[t][i])));
        }
      }
    }
  }
}

TEST_CASE("the logits have the same bits in every step size and with any number of threads") {
  const Loaded loaded(seven_heads());
  const Ids ids = some_ids(29);
  OracleEngine reference(loaded.model, options(1, 1));
  const Logits expected = forced(reference, ids);
  for (const unsigned threads : {1, 2, 3, 7}) {
    for (const int tchunk : {0, 1, 2, 4, 8, 29}) {
      OracleEngine engine(loaded.model, options(threads, tchunk));
      REQUIRE(forced(engine, ids) == expected);
    }
  }
}

TEST_CASE("a committed hash: the same bits on every machine") {
  const Loaded loaded(seven_heads());
  OracleEngine engine(loaded.model, options());
  LogitsHash hash;
  engine.force(some_ids(29), [&](std::uint32_t position, const float* logits) {
    hash.add(position, logits, 40);
  });
  CHECK(hash.rows() == 29);
  CHECK(hash.hex() == "69b0a1661ed9c6d0");
}

TEST_CASE("greedy decoding emits what teacher forcing predicts") {
  const Loaded loaded(seven_heads());
  const Ids prompt = some_ids(11);
  OracleEngine engine(loaded.model, options());
  engine.prefill(prompt);
  CHECK(engine.position() == 11);
  const Ids answer = greedy(engine, 20);
  REQUIRE(answer.size() == 20);
  CHECK(engine.position() == 30);  // the last token was emitted, not consumed

  Ids all = prompt;
  all.insert(all.end(), answer.begin(), answer.end());
  OracleEngine teacher(loaded.model, options());
  const Logits rows = forced(teacher, all);
  for (std::size_t i = 0; i < answer.size(); ++i) {
    CHECK(answer[i] == oracle::argmax(rows[10 + i].data(), 40).id);
    CHECK(answer[i] < 40);  // never an UNUSED row
  }
}

TEST_CASE("a prompt may come in pieces, and decoding may pause") {
  const Loaded loaded(seven_heads());
  const Ids prompt = some_ids(23);
  OracleEngine whole(loaded.model, options());
  whole.prefill(prompt);
  const Ids expected = greedy(whole, 16);

  OracleEngine pieces(loaded.model, options());
  const Span<const Token> ids(prompt);
  pieces.prefill(ids.subspan(0, 1));
  pieces.prefill(ids.subspan(1, 9));
  pieces.prefill(ids.subspan(10, 13));
  Ids answer = greedy(pieces, 5);
  // The fifth token was emitted and not consumed: it is the prediction still, and comes again.
  const Ids rest = greedy(pieces, 12);
  CHECK(rest[0] == answer[4]);
  answer.insert(answer.end(), rest.begin() + 1, rest.end());
  CHECK(answer == expected);
}

TEST_CASE("a span gives its front away until nothing is left") {
  const Ids ids = some_ids(7);
  Span<const Token> rest(ids);
  std::vector<std::size_t> sizes;
  Ids seen;
  while (!rest.empty()) {
    const Span<const Token> front = rest.take_front(3);
    sizes.push_back(front.size());
    seen.insert(seen.end(), front.begin(), front.end());
  }
  CHECK(sizes == std::vector<std::size_t>{3, 3, 1});
  CHECK(seen == ids);
}

TEST_CASE("what is truncated leaves no trace") {
  const Loaded loaded(seven_heads());
  const Ids prompt = some_ids(20);
  OracleEngine fresh(loaded.model, options());
  const Logits expected = forced(fresh, prompt);

  OracleEngine engine(loaded.model, options());
  engine.prefill(some_ids(12));
  greedy(engine, 9);
  engine.truncate(12);  // the answer is forgotten
  CHECK(engine.position() == 12);
  const Ids other(prompt.begin() + 12, prompt.end());
  Logits rows;
  engine.force(other, [&](std::uint32_t position, const float* logits) {
    CHECK(position == 12 + rows.size());
    rows.emplace_back(logits, logits + 40);
  });
  CHECK(rows == Logits(expected.begin() + 12, expected.end()));
}

TEST_CASE("decoding stops when the sink says so, and at the context's end") {
  const Loaded loaded(seven_heads());
  OracleEngine engine(loaded.model, options());
  engine.prefill(some_ids(60));
  CHECK(greedy(engine, 0).empty());
  int calls = 0;
  CHECK(engine.decode(10, [&](Token) { return ++calls < 3; }) == 3);
  CHECK(engine.position() == 62);
  CHECK(greedy(engine, 1000).size() == 3);  // two more are consumed, the third has no successor
  CHECK(engine.position() == 64);
}

TEST_CASE("a probe sees every operation in order and can stop a pass") {
  const Loaded loaded(seven_heads());
  OracleEngine engine(loaded.model, options());
  std::vector<std::string> seen;
  engine.set_probe([&](const Intermediate& i) {
    CHECK(i.position == (i.rows == 1 ? 4u : 0u));  // norm and logits are the last token's
    for (std::size_t k = 0; k < i.rows * i.cols; ++k) REQUIRE(std::isfinite(i.data[k]));
    seen.push_back(std::string(i.op));
    return true;
  });
  engine.prefill(some_ids(5));
  const std::vector<std::string>& names = oracle::op_names();
  std::vector<std::string> expected = {names.front()};
  for (int layer = 0; layer < 3; ++layer) {
    expected.insert(expected.end(), names.begin() + 1, names.end() - 2);
  }
  expected.insert(expected.end(), names.end() - 2, names.end());
  CHECK(seen == expected);

  engine.truncate(0);
  engine.set_probe([](const Intermediate& i) { return !(i.op == "swiglu" && i.layer == 1); });
  engine.prefill(some_ids(5));
  CHECK(engine.position() == 0);
}

TEST_CASE("a prompt longer than a batch is one prompt, stopped or not") {
  const Loaded loaded(seven_heads());
  const Ids prompt = some_ids(150);
  EngineOptions o = options();
  o.context = 200;
  OracleEngine whole(loaded.model, o);
  whole.prefill(prompt);
  OracleEngine pieces(loaded.model, o);
  for (const Token id : prompt) pieces.prefill(Span<const Token>(&id, 1));
  const Ids expected = greedy(pieces, 12);
  CHECK(greedy(whole, 12) == expected);

  OracleEngine stopped(loaded.model, o);
  stopped.set_probe([](const Intermediate& i) { return i.op != "q" || i.position == 0; });
  stopped.prefill(prompt);  // its second batch is stopped, so all of it is
  CHECK(stopped.position() == 0);
  stopped.set_probe({});
  stopped.prefill(prompt);
  CHECK(greedy(stopped, 12) == expected);
}

TEST_CASE("logits that are no numbers are refused, naming the position") {
  SmallShape shape;
  shape.n_vocab = 45;
  GgufBuilder b = small_model(shape);
  std::string& norm = b.tensor("output_norm.weight").data;
  for (std::size_t i = 0; i < norm.size(); ++i) norm[i] = '\xff';  // NaN
  const Loaded loaded(b.build());
  OracleEngine engine(loaded.model, options());
  const Ids ids = {0, 1, 2};
  CHECK_THROWS_WITH(engine.prefill(ids),
                    ContainsSubstring("position 2") && ContainsSubstring("NaN"));
}

TEST_CASE("a context that memory can't hold is refused with the sizes") {
  const Loaded loaded(seven_heads());
  EngineOptions o = options();
  o.context = 1u << 20;
  // Some machines could hold even this: only the wording is tested, on what none has.
  ModelConfig huge = loaded.model.config();
  huge.n_layers = 1u << 20;
  CHECK_THROWS_WITH(oracle::KvCache(huge, o.context),
                    ContainsSubstring("1048576 positions") && ContainsSubstring("-c"));
}

}  // namespace
}  // namespace minfer::test
