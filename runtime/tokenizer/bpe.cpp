#include "runtime/tokenizer/bpe.hpp"
#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

namespace troupe {

namespace {

constexpr std::uint64_t odd_constant = 0x9E3779B97F4A7C15; // 2^64 / golden ratio

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

std::uint32_t hash_bytes(std::string_view bytes) {
  std::uint64_t h = bytes.size() * odd_constant;
  const char* p = bytes.data();
  std::size_t left = bytes.size();
  const auto mix = [&h](std::uint64_t word) {
    h = (h ^ word) * odd_constant;
    h ^= h >> 32;
  };
  for (; left >= 8; left -= 8, p += 8) {
    std::uint64_t word;
    std::memcpy(&word, p, 8);
    mix(word);
  }
  std::uint64_t word = 0;
  if (left > 0)
    std::memcpy(&word, p, left);
  mix(word);
  return static_cast<std::uint32_t>(h);
}

} // namespace

bpe::bpe(const std::array<std::int32_t, 256>& byte_ids, std::span<const merge_rule> merges) : byte_ids_(byte_ids) {
  const std::size_t slots = std::bit_ceil(std::max<std::size_t>(2, merges.size() * 2));
  merges_.assign(slots, {no_merge, no_merge});
  merges_shift_ = 64 - static_cast<unsigned>(std::countr_zero(slots));
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::uint64_t key = pair_key(merges[rank].left, merges[rank].right);
    std::size_t i = key * odd_constant >> merges_shift_;
    while (merges_[i].key != no_merge)
      i = (i + 1) & (slots - 1);
    merges_[i] = {key, static_cast<std::uint64_t>(rank) << 32 | static_cast<std::uint32_t>(merges[rank].merged)};
  }
}

inline std::uint64_t bpe::find(std::int32_t left, std::int32_t right) const {
  const std::uint64_t key = pair_key(left, right);
  std::size_t i = key * odd_constant >> merges_shift_;
  while (merges_[i].key != key) {
    if (merges_[i].key == no_merge)
      return no_merge;
    i = (i + 1) & (merges_.size() - 1);
  }
  return merges_[i].value;
}

void bpe::index_whole_pieces(std::span<const std::string_view> bytes_of) {
  bytes_of_.assign(bytes_of.begin(), bytes_of.end());
  std::vector<whole_piece> table(std::bit_ceil(std::max<std::size_t>(2, bytes_of.size() * 2)), whole_piece{0, -1});
  bpe_scratch scratch;
  std::vector<std::int32_t> ids;
  for (std::size_t id = 0; id < bytes_of_.size(); ++id) {
    if (bytes_of_[id].empty())
      continue;
    ids.clear();
    encode(bytes_of_[id], scratch, ids); // whole_ is still empty: this merges
    if (ids.size() != 1 || ids[0] != static_cast<std::int32_t>(id))
      continue; // a token that merging never reaches
    const std::uint32_t hash = hash_bytes(bytes_of_[id]);
    std::size_t i = hash & (table.size() - 1);
    while (table[i].id >= 0)
      i = (i + 1) & (table.size() - 1);
    table[i] = {hash, static_cast<std::int32_t>(id)};
  }
  whole_ = std::move(table);
}

inline std::int32_t bpe::find_whole(std::string_view piece) const {
  if (whole_.empty())
    return -1;
  const std::uint32_t hash = hash_bytes(piece);
  for (std::size_t i = hash & (whole_.size() - 1);; i = (i + 1) & (whole_.size() - 1)) {
    const whole_piece& w = whole_[i];
    if (w.id < 0 || (w.hash == hash && bytes_of_[static_cast<std::size_t>(w.id)] == piece))
      return w.id;
  }
}

void bpe::encode(std::string_view piece, bpe_scratch& scratch, std::vector<std::int32_t>& out) const {
  if (const std::int32_t id = find_whole(piece); id >= 0)
    out.push_back(id);
  else if (piece.size() <= short_piece)
    encode_short(piece, out);
  else
    encode_long(piece, scratch, out);
}

void bpe::encode_short(std::string_view piece, std::vector<std::int32_t>& out) const {
  std::int32_t ids[short_piece];
  std::uint64_t pairs[short_piece]; // pairs[i]: merge of ids[i] and ids[i + 1]
  std::size_t n = piece.size();
  for (std::size_t i = 0; i < n; ++i)
    ids[i] = byte_ids_[static_cast<unsigned char>(piece[i])];
  for (std::size_t i = 0; i + 1 < n; ++i)
    pairs[i] = find(ids[i], ids[i + 1]);
  while (n > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < n; ++i)
      if (pairs[i] < pairs[best]) // equal ranks are equal values: the leftmost stays
        best = i;
    if (pairs[best] == no_merge)
      break;
    ids[best] = static_cast<std::int32_t>(pairs[best] & 0xFFFFFFFF);
    for (std::size_t i = best + 1; i + 1 < n; ++i)
      ids[i] = ids[i + 1];
    for (std::size_t i = best + 1; i + 2 < n; ++i)
      pairs[i] = pairs[i + 1];
    --n;
    if (best > 0)
      pairs[best - 1] = find(ids[best - 1], ids[best]);
    if (best + 1 < n)
      pairs[best] = find(ids[best], ids[best + 1]);
  }
  out.insert(out.end(), ids, ids + n);
}

// Doubly linked symbols and a heap of (rank, position of the left symbol). Entries are not removed when a neighbour
// changes; one that no longer describes its place is skipped when it comes up.
void bpe::encode_long(std::string_view piece, bpe_scratch& scratch, std::vector<std::int32_t>& out) const {
  constexpr unsigned position_bits = 40;
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  const auto n = static_cast<std::int64_t>(piece.size());
  const auto at = [&symbols](std::int64_t i) -> bpe_scratch::symbol& { return symbols[static_cast<std::size_t>(i)]; };
  const auto entry_of = [&](std::int64_t left) -> std::uint64_t {
    if (left < 0 || at(left).next >= n)
      return no_merge;
    const std::uint64_t merge = find(at(left).id, at(at(left).next).id);
    return merge == no_merge ? no_merge : (merge >> 32) << position_bits | static_cast<std::uint64_t>(left);
  };
  symbols.resize(piece.size());
  for (std::int64_t i = 0; i < n; ++i)
    at(i) = {byte_ids_[static_cast<unsigned char>(piece[static_cast<std::size_t>(i)])], i - 1, i + 1};
  heap.clear();
  for (std::int64_t i = 0; i < n; ++i)
    if (const std::uint64_t entry = entry_of(i); entry != no_merge)
      heap.push_back(entry);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto push = [&](std::int64_t left) {
    if (const std::uint64_t entry = entry_of(left); entry != no_merge) {
      heap.push_back(entry);
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const std::uint64_t entry = heap.back();
    heap.pop_back();
    const auto left = static_cast<std::int64_t>(entry & ((std::uint64_t{1} << position_bits) - 1));
    if (at(left).id < 0 || entry_of(left) != entry)
      continue;
    const std::int64_t right = at(left).next;
    at(left).id = static_cast<std::int32_t>(find(at(left).id, at(right).id) & 0xFFFFFFFF);
    at(left).next = at(right).next;
    at(right).id = -1;
    if (at(left).next < n)
      at(at(left).next).previous = left;
    push(at(left).previous);
    push(left);
  }
  for (std::int64_t i = 0; i < n; i = at(i).next)
    out.push_back(at(i).id);
}

} // namespace troupe
