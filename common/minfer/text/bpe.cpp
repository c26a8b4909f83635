// SPDX-License-Identifier: MIT
#include <minfer/text/bpe.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace minfer {
namespace {

constexpr Token kGone = -1;
constexpr std::int32_t kNone = -1;

bool is_same_pair(const Merge& a, const Merge& b) {
  return a.left == b.left && a.right == b.right;
}

}  // namespace

MergeTable::MergeTable(std::vector<Merge> merges, std::uint32_t n_vocab)
    : merges_(merges.size()), first_(n_vocab + 1) {
  // A counting sort by the left token, then each group by itself: far quicker than one sort.
  for (const Merge& merge : merges) ++first_[merge.left + 1];
  for (std::uint32_t i = 0; i < n_vocab; ++i) first_[i + 1] += first_[i];
  std::vector<std::uint32_t> place(first_.begin(), first_.end() - 1);
  for (const Merge& merge : merges) merges_[place[merge.left]++] = merge;

  for (std::uint32_t i = 0; i < n_vocab; ++i) {
    std::sort(merges_.begin() + first_[i], merges_.begin() + first_[i + 1],
              [](const Merge& a, const Merge& b) {
                return std::tie(a.right, a.rank) < std::tie(b.right, b.rank);
              });
  }
}

const Merge* MergeTable::find(Token left, Token right) const {
  const auto begin = merges_.begin() + first_[left];
  const auto end = merges_.begin() + first_[left + 1];
  const auto found = std::lower_bound(
      begin, end, right, [](const Merge& merge, Token right) { return merge.right < right; });
  return found != end && found->right == right ? &*found : nullptr;
}

const Merge* MergeTable::find_duplicate() const {
  const auto found = std::adjacent_find(merges_.begin(), merges_.end(), is_same_pair);
  return found != merges_.end() ? &*(found + 1) : nullptr;
}

void BpeEncoder::append(std::string_view piece, std::vector<Token>& ids) {
  split_into_bytes(piece);
  heap_.clear();
  for (std::size_t i = 0; i + 1 < symbols_.size(); ++i) {
    if (const Merge* merge = merge_at(i)) {
      heap_.push_back({merge->rank, static_cast<std::int32_t>(i), merge->result});
    }
  }
  std::make_heap(heap_.begin(), heap_.end(), is_later);

  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), is_later);
    const Candidate candidate = heap_.back();
    heap_.pop_back();
    apply(candidate);
  }
  for (const Symbol& symbol : symbols_) {
    if (symbol.id != kGone) ids.push_back(symbol.id);
  }
}

bool BpeEncoder::is_later(const Candidate& a, const Candidate& b) {
  return std::tie(a.rank, a.position) > std::tie(b.rank, b.position);
}

void BpeEncoder::split_into_bytes(std::string_view piece) {
  const auto size = static_cast<std::int32_t>(piece.size());
  symbols_.resize(piece.size());
  for (std::int32_t i = 0; i < size; ++i) {
    const auto byte = static_cast<unsigned char>(piece[i]);
    symbols_[i] = {(*byte_tokens_)[byte], i - 1, i + 1 < size ? i + 1 : kNone};
  }
}

/// The merge of a symbol that is not gone with its successor, if there are both.
const Merge* BpeEncoder::merge_at(std::int32_t position) const {
  const Symbol& symbol = symbols_[position];
  return symbol.next == kNone ? nullptr : merges_->find(symbol.id, symbols_[symbol.next].id);
}

void BpeEncoder::queue(std::int32_t position) {
  const Merge* merge = merge_at(position);
  if (merge == nullptr) return;
  heap_.push_back({merge->rank, position, merge->result});
  std::push_heap(heap_.begin(), heap_.end(), is_later);
}

void BpeEncoder::apply(const Candidate& candidate) {
  // An earlier merge may have taken one of the two symbols, or changed it. (If what stands here now
  // gives the same token, it is the same pair: symbols only grow.)
  Symbol& symbol = symbols_[candidate.position];
  if (symbol.id == kGone) return;
  const Merge* merge = merge_at(candidate.position);
  if (merge == nullptr || merge->result != candidate.result) return;

  Symbol& taken = symbols_[symbol.next];
  symbol.id = merge->result;
  symbol.next = taken.next;
  taken.id = kGone;
  if (symbol.next != kNone) symbols_[symbol.next].previous = candidate.position;

  if (symbol.previous != kNone) queue(symbol.previous);
  queue(candidate.position);
}

}  // namespace minfer
