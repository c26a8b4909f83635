// SPDX-License-Identifier: MIT
#include <minfer/text/vocabulary.h>

#include <algorithm>
#include <functional>
#include <limits>

#include <minfer/error.h>
#include <minfer/text/utf8.h>

namespace minfer {
namespace {

constexpr const char* kTokensKey = "tokenizer.ggml.tokens";
constexpr const char* kTypesKey = "tokenizer.ggml.token_type";
constexpr Token kNoToken = -1;

[[noreturn]] void fail(const GgufFile& file, const char* key, const std::string& what) {
  throw FileError(file.path(), "key " + quoted(key) + " " + what);
}

std::string token_text(std::size_t id, std::string_view name) {
  return "token " + std::to_string(id) + ", " + quoted(name);
}

/// The alphabet of byte-level BPE, in both directions.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    code_points_.fill(kNotInAlphabet);
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool is_visible = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      letters_[byte] = is_visible ? byte : next++;
      code_points_[letters_[byte]] = static_cast<std::int16_t>(byte);
    }
  }

  char32_t letter(std::uint8_t byte) const { return letters_[byte]; }

  /// Spells a normal token's name as bytes. False where it has another character.
  bool decode(std::string_view name, std::string& bytes) const {
    bytes.clear();
    for (std::size_t pos = 0; pos < name.size();) {
      const Utf8Char c = read_utf8(name, pos);
      const std::int16_t byte =
          c.code_point < code_points_.size() ? code_points_[c.code_point] : kNotInAlphabet;
      if (byte == kNotInAlphabet) return false;
      bytes += static_cast<char>(byte);
      pos += c.size;
    }
    return true;
  }

 private:
  static constexpr std::int16_t kNotInAlphabet = -1;
  std::array<char32_t, 256> letters_ = {};
  std::array<std::int16_t, 0x100 + 68> code_points_ = {};  // 68 bytes are not visible
};

std::uint32_t hash_of(std::string_view text) {
  return static_cast<std::uint32_t>(std::hash<std::string_view>()(text));
}

}  // namespace

void StringList::reserve(std::size_t count, std::size_t bytes) {
  ends_.reserve(count);
  text_.reserve(bytes);
}

void StringList::push_back(std::string_view text) {
  text_ += text;
  ends_.push_back(static_cast<std::uint32_t>(text_.size()));
}

std::string_view StringList::operator[](std::size_t i) const {
  const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
  return std::string_view(text_).substr(begin, ends_[i] - begin);
}

Vocabulary::Vocabulary(const GgufFile& file) {
  const std::vector<std::string_view> names = file.get_strings(kTokensKey);
  if (names.size() > std::numeric_limits<Token>::max()) {
    fail(file, kTokensKey, "lists " + std::to_string(names.size()) + " tokens, expected < 2^31");
  }
  read_types(file, names.size());
  read_names(file, names);
  index_names(file);
  find_byte_tokens(file);
}

void Vocabulary::read_types(const GgufFile& file, std::size_t n_names) {
  const std::vector<std::int32_t> types = file.get_i32s(kTypesKey);
  if (types.size() != n_names) {
    fail(file, kTypesKey,
         "has " + std::to_string(types.size()) + " entries, expected " + std::to_string(n_names) +
             ", one for each token");
  }
  types_.reserve(n_names);
  for (std::size_t id = 0; id < n_names; ++id) {
    const std::int32_t type = types[id];
    if (type != 1 && type != 3 && type != 4 && type != 5) {
      fail(file, kTypesKey,
           "gives token " + std::to_string(id) + " the type " + std::to_string(type) +
               ", expected 1 (normal), 3 (control), 4 (user-defined) or 5 (unused)");
    }
    types_.push_back(static_cast<TokenType>(type));
    if (types_.back() == TokenType::kUnused) continue;
    if (n_tokens_ != id) {
      fail(file, kTypesKey,
           "has unused tokens before token " + std::to_string(id) +
               ", expected them at the end only");
    }
    ++n_tokens_;
  }
}

void Vocabulary::read_names(const GgufFile& file, const std::vector<std::string_view>& names) {
  std::uint64_t total = 0;
  for (const std::string_view name : names) total += name.size();
  if (total > std::numeric_limits<std::uint32_t>::max()) {
    fail(file, kTokensKey, "has " + std::to_string(total) + " bytes of text, expected < 2^32");
  }
  names_.reserve(names.size(), total);
  bytes_.reserve(names.size(), total);

  const ByteAlphabet alphabet;
  std::string bytes;
  for (std::size_t id = 0; id < names.size(); ++id) {
    const std::string_view name = names[id];
    if (name.empty() && types_[id] != TokenType::kUnused) {
      fail(file, kTokensKey, "has nothing for token " + std::to_string(id) + ", expected its text");
    }
    bytes.clear();
    if (types_[id] == TokenType::kUserDefined) {
      bytes = name;
    } else if (types_[id] == TokenType::kNormal && !alphabet.decode(name, bytes)) {
      fail(file, kTokensKey,
           "has " + token_text(id, name) + ", expected the alphabet of byte-level BPE only");
    }
    names_.push_back(name);
    bytes_.push_back(bytes);
  }
}

void Vocabulary::index_names(const GgufFile& file) {
  std::size_t n_buckets = 2;
  while (n_buckets < n_tokens_) n_buckets *= 2;
  bucket_ends_.assign(n_buckets, 0);

  // A counting sort by bucket, then each bucket by itself: most hold one token or two.
  std::vector<std::uint32_t> hashes(n_tokens_);
  for (std::uint32_t id = 0; id < n_tokens_; ++id) {
    hashes[id] = hash_of(names_[id]);
    ++bucket_ends_[bucket_of(hashes[id])];
  }
  std::uint32_t n = 0;
  for (std::uint32_t& end : bucket_ends_) {
    n += end;
    end = n - end;  // where the bucket begins, until it is filled
  }
  entries_.resize(n_tokens_);
  for (std::uint32_t id = 0; id < n_tokens_; ++id) {
    entries_[bucket_ends_[bucket_of(hashes[id])]++] = {hashes[id], static_cast<Token>(id)};
  }

  Entry second = {0, kNoToken};
  Entry first = second;
  std::uint32_t begin = 0;
  for (const std::uint32_t end : bucket_ends_) {
    if (end - begin > 1) {
      std::sort(entries_.begin() + begin, entries_.begin() + end,
                [this](const Entry& x, const Entry& y) {
                  if (x.hash != y.hash) return x.hash < y.hash;
                  const int order = names_[x.id].compare(names_[y.id]);
                  return order != 0 ? order < 0 : x.id < y.id;
                });
    }
    for (std::uint32_t i = begin; i + 1 < end; ++i) {
      const Entry& entry = entries_[i];
      const Entry& next = entries_[i + 1];
      if (entry.hash != next.hash || names_[entry.id] != names_[next.id]) continue;
      if (second.id == kNoToken || next.id < second.id) {
        first = entry;
        second = next;
      }
    }
    begin = end;
  }
  if (second.id != kNoToken) {
    fail(file, kTokensKey,
         "has " + token_text(second.id, names_[second.id]) + ", also as token " +
             std::to_string(first.id) + ", expected each once");
  }
}

Token Vocabulary::find(std::string_view name) const {
  const std::uint32_t hash = hash_of(name);
  const std::size_t bucket = bucket_of(hash);
  const auto begin = entries_.begin() + (bucket == 0 ? 0 : bucket_ends_[bucket - 1]);
  const auto end = entries_.begin() + bucket_ends_[bucket];
  const auto found = std::lower_bound(begin, end, name, [&](const Entry& entry, std::string_view) {
    return entry.hash != hash ? entry.hash < hash : names_[entry.id] < name;
  });
  const bool is_here = found != end && found->hash == hash && names_[found->id] == name;
  return is_here ? found->id : kNoToken;
}

void Vocabulary::find_byte_tokens(const GgufFile& file) {
  const ByteAlphabet alphabet;
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string name;
    append_utf8(name, alphabet.letter(static_cast<std::uint8_t>(byte)));
    const Token id = find(name);
    if (id == kNoToken || types_[id] != TokenType::kNormal) {
      fail(file, kTokensKey,
           "has no token for the byte " + std::to_string(byte) +
               ", expected one for each of the 256");
    }
    byte_tokens_[byte] = id;
  }
}

}  // namespace minfer
