// SPDX-License-Identifier: MIT
#include <minfer/text/tokenizer.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include <minfer/error.h>
#include <minfer/text/bpe.h>
#include <minfer/text/pretokenizer.h>
#include <minfer/text/special_tokens.h>
#include <minfer/text/vocabulary.h>

namespace minfer {
namespace {

constexpr const char* kMergesKey = "tokenizer.ggml.merges";
constexpr const char* kEosKey = "tokenizer.ggml.eos_token_id";
constexpr const char* kEndOfTurn = "<|im_end|>";
constexpr const char* kEndOfText = "<|endoftext|>";
constexpr Token kNoToken = -1;

[[noreturn]] void fail(const GgufFile& file, const char* key, const std::string& what) {
  throw FileError(file.path(), "key " + quoted(key) + " " + what);
}

void check_string(const GgufFile& file, const char* key, std::string_view expected) {
  const std::string found = file.get_string(key);
  if (found != expected) fail(file, key, "is " + quoted(found) + ", expected " + quoted(expected));
}

/// Refuses every tokenizer but Qwen2's: with another one the ids would be wrong, silently.
void check_kind(const GgufFile& file) {
  check_string(file, "tokenizer.ggml.model", "gpt2");
  check_string(file, "tokenizer.ggml.pre", "qwen2");
  constexpr const char* kAddBosKey = "tokenizer.ggml.add_bos_token";
  if (file.has(kAddBosKey) && file.get_bool(kAddBosKey)) {
    fail(file, kAddBosKey,
         "is true, expected false: Qwen2.5 begins no text with a token of its own");
  }
}

void check_special_ids(const GgufFile& file, std::uint32_t n_vocab) {
  for (const char* key : {"tokenizer.ggml.bos_token_id", kEosKey, "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.padding_token_id", "tokenizer.ggml.unknown_token_id"}) {
    if (!file.has(key)) continue;
    const std::uint32_t id = file.get_u32(key);
    if (id >= n_vocab) {
      fail(file, key,
           "is " + std::to_string(id) + ", expected less than the " + std::to_string(n_vocab) +
               " tokens");
    }
  }
}

/// Reads "left right" lines. Parts and results have to be normal tokens: otherwise plain text could
/// become a control token.
class MergeReader {
 public:
  MergeReader(const GgufFile& file, const Vocabulary& vocabulary)
      : file_(file), vocabulary_(vocabulary) {}

  MergeTable read() {
    const std::vector<std::string_view> lines = file_.get_strings(kMergesKey);
    std::vector<Merge> merges;
    merges.reserve(lines.size());
    for (const std::string_view line : lines) merges.push_back(parse(line, merges.size()));

    MergeTable table(std::move(merges), vocabulary_.n_vocab());
    if (const Merge* twice = table.find_duplicate()) {
      fail_at(twice->rank, lines[twice->rank], "which is there before, expected each merge once");
    }
    return table;
  }

 private:
  Merge parse(std::string_view line, std::size_t rank) {
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      fail_at(rank, line, "expected two tokens with one space between them");
    }
    const std::string_view left = line.substr(0, space);
    const std::string_view right = line.substr(space + 1);
    result_.assign(left).append(right);
    return {normal_token(left, rank, line), normal_token(right, rank, line),
            normal_token(result_, rank, line), static_cast<std::uint32_t>(rank)};
  }

  Token normal_token(std::string_view name, std::size_t rank, std::string_view line) const {
    const Token id = vocabulary_.find(name);
    if (id == kNoToken || vocabulary_.type(id) != TokenType::kNormal) {
      fail_at(rank, line, "but " + quoted(name) + " is no normal token, expected one");
    }
    return id;
  }

  [[noreturn]] void fail_at(std::size_t rank, std::string_view line,
                            const std::string& what) const {
    fail(file_, kMergesKey,
         "has merge " + std::to_string(rank) + ", " + quoted(line) + ", " + what);
  }

  const GgufFile& file_;
  const Vocabulary& vocabulary_;
  std::string result_;
};

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(const GgufFile& file)
      : path(file.path()),
        vocabulary(file),
        merges(MergeReader(file, vocabulary).read()),
        specials(vocabulary) {}

  std::string path;
  Vocabulary vocabulary;
  MergeTable merges;
  SpecialTokens specials;
  std::vector<Token> stops;

  void find_stops(const GgufFile& file);
  void append(std::string_view text, BpeEncoder& bpe, std::vector<Token>& ids) const;
  bool has(Token id) const { return id >= 0 && std::uint32_t(id) < vocabulary.n_vocab(); }
};

void Tokenizer::Impl::find_stops(const GgufFile& file) {
  stops.push_back(specials.id_of(kEndOfTurn));
  if (stops.back() == kNoToken) {
    throw FileError(path, "key \"tokenizer.ggml.tokens\" has no control token " +
                              quoted(kEndOfTurn) + ", expected it to end an answer");
  }
  const Token end_of_text = specials.id_of(kEndOfText);
  if (end_of_text != kNoToken) stops.push_back(end_of_text);
  if (file.has(kEosKey)) stops.push_back(static_cast<Token>(file.get_u32(kEosKey)));
}

/// Plain text: cut into pieces, each encoded by itself.
void Tokenizer::Impl::append(std::string_view text, BpeEncoder& bpe,
                             std::vector<Token>& ids) const {
  if (text.size() > std::numeric_limits<std::int32_t>::max()) {
    throw std::length_error("a text of " + std::to_string(text.size()) +
                            " bytes is too long to encode, expected less than 2^31");
  }
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = piece_end(text, begin);
    bpe.append(text.substr(begin, end - begin), ids);
    begin = end;
  }
}

Tokenizer::Tokenizer(const GgufFile& file) {
  check_kind(file);
  impl_ = std::make_unique<Impl>(file);
  check_special_ids(file, n_vocab());
  impl_->find_stops(file);
}

Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<Token> Tokenizer::encode(std::string_view text) const {
  std::vector<Token> ids;
  BpeEncoder bpe(impl_->vocabulary.byte_tokens(), impl_->merges);
  impl_->append(text, bpe, ids);
  return ids;
}

std::vector<Token> Tokenizer::encode_with_specials(std::string_view text) const {
  const TextPart whole = {std::string(text), true};
  return encode(Span<const TextPart>(&whole, 1));
}

std::vector<Token> Tokenizer::encode(Span<const TextPart> parts) const {
  std::vector<Token> ids;
  BpeEncoder bpe(impl_->vocabulary.byte_tokens(), impl_->merges);
  std::string plain;
  for (const auto& [text, specials] : parts) {
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t size = text.size();
      const SpecialTokens::Match match =
          specials ? impl_->specials.find(text, begin) : SpecialTokens::Match{size, size, kNoToken};
      plain.append(text, begin, match.begin - begin);
      begin = match.end;
      if (match.id == kNoToken) continue;
      impl_->append(plain, bpe, ids);
      plain.clear();
      ids.push_back(match.id);
    }
  }
  impl_->append(plain, bpe, ids);
  return ids;
}

std::string_view Tokenizer::bytes(Token id) const {
  return impl_->has(id) ? impl_->vocabulary.bytes(id) : std::string_view();
}

std::string_view Tokenizer::name(Token id) const {
  return impl_->has(id) ? impl_->vocabulary.name(id) : std::string_view();
}

std::string Tokenizer::decode(Span<const Token> ids) const {
  std::string text;
  for (const Token id : ids) text += bytes(id);
  return text;
}

std::uint32_t Tokenizer::n_vocab() const {
  return impl_->vocabulary.n_vocab();
}
std::uint32_t Tokenizer::n_tokens() const {
  return impl_->vocabulary.n_tokens();
}

bool Tokenizer::is_stop(Token id) const {
  return std::find(impl_->stops.begin(), impl_->stops.end(), id) != impl_->stops.end();
}

Token Tokenizer::special(std::string_view text) const {
  const Token id = impl_->specials.id_of(text);
  if (id == kNoToken) {
    throw FileError(impl_->path, "key \"tokenizer.ggml.tokens\" has no special token " +
                                     quoted(text) + ", expected one");
  }
  return id;
}

}  // namespace minfer
