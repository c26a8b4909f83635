// SPDX-License-Identifier: MIT
// Opens mutated GGUF files, as many as wanted, and holds every outcome against one rule: the file
// is taken, or refused with one printable line that begins with its path. Any other exception, and
// whatever a sanitizer finds, ends the run.
//
//     gguf_mutate [COUNT [FIRST]]      mutants FIRST .. FIRST+COUNT-1 (20000, 0)
//
// A mutant is made from its number alone, so `gguf_mutate 1 N` makes the Nth again. README.md has
// the last long run under AddressSanitizer and UBSan.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <string>
#include <vector>

#include "builder.h"
#include "exercise.h"
#include "memory_file.h"
#include "tokenizer/small_vocabulary.h"

namespace minfer::test {
namespace {

/// SplitMix64.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// 0 .. n-1
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(next() % n); }
  bool one_in(std::size_t n) { return below(n) == 0; }

 private:
  std::uint64_t state_;
};

/// A number at which a reader may go wrong: `old` and its neighbours, powers of two and theirs.
std::uint64_t awkward_number(Random& random, std::uint64_t old) {
  switch (random.below(4)) {
    case 0:
      return old + random.below(65) - 32;
    case 1:
      return (std::uint64_t{1} << random.below(64)) + random.below(3) - 1;
    case 2:
      return random.below(2) == 0 ? random.below(300) : ~std::uint64_t{0} - random.below(64);
    default:
      return old << random.below(33) | random.below(2);
  }
}

std::string random_bytes(Random& random, std::size_t n) {
  std::string bytes(n, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.next());
  return bytes;
}

/// Overwrites `n` bytes, read as a number, with an awkward one.
void make_awkward(Random& random, std::string& bytes, std::size_t offset, std::size_t n) {
  std::uint64_t number = 0;
  n = std::min<std::size_t>(n, 8);
  std::memcpy(&number, bytes.data() + offset, n);
  number = awkward_number(random, number);
  std::memcpy(bytes.data() + offset, &number, n);
}

/// Replaces, inserts or removes a few bytes.
void edit(Random& random, std::string& bytes) {
  const std::size_t at = random.below(bytes.size() + 1);
  const std::size_t n = random.below(9);
  switch (random.below(3)) {
    case 0:
      bytes.replace(at, std::min(n, bytes.size() - at), random_bytes(random, n));
      return;
    case 1:
      bytes.insert(at, random_bytes(random, n));
      return;
    default:
      bytes.erase(at, n);
      return;
  }
}

/// Drops, doubles, or moves one of the elements.
template <class T>
void shuffle_one(Random& random, std::vector<T>& elements) {
  if (elements.empty()) return;
  const auto i = static_cast<std::ptrdiff_t>(random.below(elements.size()));
  switch (random.below(3)) {
    case 0:
      elements.erase(elements.begin() + i);
      return;
    case 1:
      elements.push_back(T(elements[static_cast<std::size_t>(i)]));
      return;
    default:
      std::swap(elements[static_cast<std::size_t>(i)], elements[random.below(elements.size())]);
  }
}

void mutate_pair(Random& random, GgufBuilder& b) {
  if (b.pairs.empty()) return;
  PairSpec& pair = b.pairs[random.below(b.pairs.size())];
  switch (random.below(6)) {
    case 0:
      return shuffle_one(random, b.pairs);
    case 1:
      pair.type = static_cast<std::uint32_t>(random.below(14));
      return;
    case 2:
      return edit(random, pair.key);
    case 3:
      return edit(random, pair.value);
    case 4:
      pair.key_length = awkward_number(random, pair.key.size());
      return;
    default:
      if (!pair.value.empty()) make_awkward(random, pair.value, 0, pair.value.size());
  }
}

void mutate_tensor(Random& random, GgufBuilder& b) {
  if (b.tensors.empty()) return;
  TensorSpec& tensor = b.tensors[random.below(b.tensors.size())];
  switch (random.below(8)) {
    case 0:
      return shuffle_one(random, b.tensors);
    case 1:
      tensor.type = static_cast<std::uint32_t>(random.below(44));
      return;
    case 2:
      return edit(random, tensor.name);
    case 3:
      tensor.name_length = awkward_number(random, tensor.name.size());
      return;
    case 4:
      tensor.n_dims = static_cast<std::uint32_t>(awkward_number(random, tensor.shape.size()));
      return;
    case 5:
      tensor.offset = awkward_number(random, b.alignment * random.below(100));
      return;
    case 6:
      return shuffle_one(random, tensor.shape);
    default:
      if (tensor.shape.empty()) return;
      std::uint64_t& dimension = tensor.shape[random.below(tensor.shape.size())];
      dimension = awkward_number(random, dimension);
  }
}

void mutate_header(Random& random, GgufBuilder& b) {
  switch (random.below(5)) {
    case 0:
      b.version = static_cast<std::uint32_t>(awkward_number(random, b.version));
      return;
    case 1:
      b.n_tensors = awkward_number(random, b.tensors.size());
      return;
    case 2:
      b.n_pairs = awkward_number(random, b.pairs.size());
      return;
    case 3:
      return edit(random, b.magic);
    default: {
      const std::uint32_t alignment = 1u << random.below(14);
      b.set("general.alignment", alignment + static_cast<std::uint32_t>(random.one_in(4)));
      if (!random.one_in(4)) b.alignment = alignment;
    }
  }
}

void mutate_bytes(Random& random, std::string& bytes, const std::vector<Field>& fields) {
  if (bytes.empty()) return;
  switch (random.below(5)) {
    case 0:
      bytes.resize(random.below(bytes.size()));
      return;
    case 1:
      bytes[random.below(bytes.size())] ^= static_cast<char>(1 << random.below(8));
      return;
    case 2:
      return edit(random, bytes);
    default: {
      const Field& field = fields[random.below(fields.size())];
      if (field.bytes > 0 && field.offset + field.bytes <= bytes.size()) {
        make_awkward(random, bytes, field.offset, field.bytes);
      }
    }
  }
}

/// A model with a vocabulary that the tokenizer takes.
GgufBuilder model_with_tokenizer(SmallShape shape) {
  const SmallVocabulary words = small_vocabulary();
  shape.n_vocab = static_cast<std::uint32_t>(words.tokens.size());
  GgufBuilder b = small_model(shape);
  b.set("tokenizer.ggml.tokens", words.tokens);
  b.set("tokenizer.ggml.token_type", words.types);
  b.set("tokenizer.ggml.merges", words.merges);
  return b;
}

/// The files that mutants are made of: one layer and two, tied and not, most types.
std::vector<GgufBuilder> originals() {
  std::vector<GgufBuilder> all;
  SmallShape shape;
  all.push_back(model_with_tokenizer(shape));
  all.push_back(model_with_tokenizer(shape));
  all.back().erase_tensor("output.weight");
  shape.n_layers = 2;
  all.push_back(model_with_tokenizer(shape));
  all.back().version = 2;
  for (const TensorType type : {TensorType::kQ4_1, TensorType::kF16, TensorType::kQ5_0}) {
    shape.matrices = type;
    all.push_back(model_with_tokenizer(shape));
  }
  shape.n_layers = 1;
  shape.d_model = shape.d_ff = 256;
  shape.matrices = TensorType::kQ4_K;
  shape.head = TensorType::kQ6_K;
  all.push_back(model_with_tokenizer(shape));
  return all;
}

std::string mutant(const std::vector<GgufBuilder>& originals, std::uint64_t number) {
  Random random(number);
  GgufBuilder b = originals[random.below(originals.size())];
  const std::size_t changes = random.below(3);
  for (std::size_t i = 0; i < changes; ++i) {
    switch (random.below(7)) {
      case 0:
        mutate_header(random, b);
        break;
      case 1:
      case 2:
      case 3:
        mutate_pair(random, b);
        break;
      default:
        mutate_tensor(random, b);
    }
  }
  std::string bytes = b.build();
  for (std::size_t i = random.below(3) + (changes == 0); i > 0; --i) {
    mutate_bytes(random, bytes, b.fields);
  }
  return bytes;
}

/// A message without its path, and with every number and name left out: what kind it is.
std::string kind_of(const std::string& message, const std::string& path) {
  if (message.compare(0, path.size() + 2, path + ": ") != 0) {
    throw std::logic_error("the message does not begin with the path: " + message);
  }
  std::string kind;
  bool in_name = false;
  for (std::size_t i = path.size() + 2; i < message.size(); ++i) {
    const char c = message[i];
    if (c < 0x20 || c > 0x7e) throw std::logic_error("the message is not printable: " + message);
    if (c == '\\' && in_name) {
      ++i;
      continue;
    }
    if (c == '"') in_name = !in_name;
    if (!in_name && (c < '0' || c > '9')) kind += c;
  }
  return kind;
}

struct Tally {
  std::uint64_t taken = 0;
  std::uint64_t refused = 0;
  double slowest_ms = 0;
  std::uint64_t slowest = 0;
  std::map<std::string, std::uint64_t> kinds;
};

/// The refusal of the file, or nothing.
std::string outcome(const std::string& path, ReadMode mode) {
  try {
    exercise(path, mode);
    return "";
  } catch (const FileError& error) {
    return error.what();
  }
}

void run_one(const MemoryFile& file, const std::string& bytes, std::uint64_t number, Tally& tally) {
  file.write(bytes);
  const std::clock_t start = std::clock();  // processor time: the machine may have others to serve
  const std::string mapped = outcome(file.path(), ReadMode::kMap);
  const std::string read = outcome(file.path(), ReadMode::kRead);
  const double ms = 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  if (mapped != read) throw std::logic_error("the two modes differ: " + mapped + "; " + read);
  if (mapped.empty()) {
    ++tally.taken;
  } else {
    ++tally.refused;
    ++tally.kinds[kind_of(mapped, file.path())];
  }
  if (ms > tally.slowest_ms) {
    tally.slowest_ms = ms;
    tally.slowest = number;
  }
}

void report(std::uint64_t count, const Tally& tally, double seconds) {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  std::printf(
      "%llu mutants in %.0f s: %llu refused in %zu ways, %llu taken; slowest %.1f ms "
      "(mutant %llu, both modes); peak memory %ld MB\n",
      static_cast<unsigned long long>(count), seconds,
      static_cast<unsigned long long>(tally.refused), tally.kinds.size(),
      static_cast<unsigned long long>(tally.taken), tally.slowest_ms,
      static_cast<unsigned long long>(tally.slowest), usage.ru_maxrss / 1024);
  if (std::getenv("KINDS") == nullptr) return;
  for (const auto& [kind, n] : tally.kinds) {
    std::printf("%8llu  %s\n", static_cast<unsigned long long>(n), kind.c_str());
  }
}

int run(std::uint64_t count, std::uint64_t first) {
  const std::vector<GgufBuilder> all = originals();
  const MemoryFile file;
  for (GgufBuilder b : all) {
    file.write(b.build());
    exercise(file.path(), ReadMode::kMap);
  }
  Tally tally;
  const auto start = std::chrono::steady_clock::now();
  for (std::uint64_t number = first; number < first + count; ++number) {
    try {
      run_one(file, mutant(all, number), number, tally);
    } catch (const std::exception& error) {
      std::printf("mutant %llu: %s\n", static_cast<unsigned long long>(number), error.what());
      return 1;
    }
  }
  report(count, tally,
         std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return 0;
}

}  // namespace
}  // namespace minfer::test

int main(int argc, char** argv) {
  const auto argument = [&](int i, std::uint64_t otherwise) -> std::uint64_t {
    return argc > i ? std::strtoull(argv[i], nullptr, 10) : otherwise;
  };
  return minfer::test::run(argument(1, 20000), argument(2, 0));
}
