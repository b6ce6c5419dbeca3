#include "runtime/grammar/loop_table.hpp"
#include <algorithm>

namespace troupe {

namespace {

// Makes what `slot` holds if nobody has; if two threads do, the first is kept.
template <class T, class Make> const T* made_once(std::atomic<const T*>& slot, const Make& make) {
  if (const T* known = slot.load(std::memory_order_acquire))
    return known;
  auto made = make();
  const T* expected = nullptr;
  if (slot.compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel))
    return made.release();
  return expected;
}

} // namespace

loop_table::loop_table(const token_vocabulary& vocabulary, const byte_dfa& round, std::optional<std::uint32_t> below)
    : vocabulary_(vocabulary) {
  // Next state by byte, -1 for none. The words are finitely many, so nothing leads back to the start but the end of a
  // round.
  std::vector<std::array<std::int16_t, 256>> next(round.states.size());
  for (std::size_t s = 0; s < next.size(); ++s) {
    next[s].fill(-1);
    for (const byte_dfa::edge& e : round.states[s].out)
      for (unsigned b = e.low; b <= e.high; ++b)
        next[s][b] = round.states[e.target].accepting ? std::int16_t{0} : static_cast<std::int16_t>(e.target);
  }
  // Whole rounds, bytes in them, and the state. As one number: a value that was just written in parts is slow to read.
  const auto place = [](std::uint64_t rounds, std::uint64_t boundary, std::int16_t state) {
    return rounds << 32 | boundary << 16 | static_cast<std::uint16_t>(state);
  };
  const token_trie& trie = vocabulary.trie();
  const std::span<const std::int32_t> ids = trie.ids();
  std::vector<std::uint64_t> at(trie.longest() + 1);
  std::string path(trie.longest(), '\0');
  at[0] = place(0, 0, 0);
  rows_.assign(short_rounds + 1, std::vector<std::uint32_t>(vocabulary.words()));
  std::array<std::uint32_t*, short_rounds + 1> row;
  std::transform(rows_.begin(), rows_.end(), row.begin(), [](auto& r) { return r.data(); });
  std::uint32_t most_begun = 0;
  const std::uint32_t above = below ? trie.depth(*below) : 0, end_of_all = below ? trie.end(*below) : trie.size();
  // Millions of nodes a second go through here: nothing that a processor cannot foretell is a branch.
  for (std::uint32_t node = below ? *below + 1 : 0; node < end_of_all;) {
    const std::uint32_t depth = trie.depth(node) - above;
    const std::uint64_t before = at[depth - 1];
    const auto rounds = static_cast<std::uint32_t>(before >> 32);
    const auto boundary = static_cast<std::uint16_t>(before >> 16);
    path[depth - 1] = static_cast<char>(trie.byte(node));
    const std::int16_t state = next[static_cast<std::uint16_t>(before)][trie.byte(node)];
    const std::uint32_t first = trie.first_id(node), last = trie.last_id(node);
    if (state >= 0) {
      const bool whole = state == 0;
      at[depth] = place(rounds + whole, whole ? depth : boundary, state);
      const std::uint32_t begun = rounds + 1;
      most_begun = std::max(most_begun, first < last ? begun : 0);
      if (begun <= short_rounds) {
        // the first id, if there is one; few nodes have more
        const std::int32_t id = ids[std::min<std::size_t>(first, ids.size() - 1)];
        row[begun][id >> 5] |= std::uint32_t{first < last} << (id & 31);
        for (std::uint32_t i = first + 1; i < last; ++i)
          set_bit(row[begun], ids[i]);
      } else if (first < last) {
        by_rounds_.resize(std::max<std::size_t>(by_rounds_.size(), begun + 1));
        by_rounds_[begun].insert(by_rounds_[begun].end(), ids.begin() + first, ids.begin() + last);
      }
      ++node;
      continue;
    }
    if (rounds == 0) {
      early_.push_back({node, path.substr(0, depth - 1)});
      node = trie.end(node);
      continue;
    }
    // every token of this subtree leaves the loop at the same place
    const auto first_byte = static_cast<unsigned char>(path[boundary]);
    const std::uint32_t inside = above + boundary;
    const std::uint32_t last_below = trie.first_id(trie.end(node));
    for (std::uint32_t i = first; i < last_below; ++i)
      late_.push_back(
          {ids[i], rounds, static_cast<std::uint16_t>(vocabulary.text(ids[i]).size() - inside), first_byte});
    late_first_[first_byte + 1u] += last_below - first;
    node = trie.end(node);
  }
  // Rows hold the tokens of all smaller numbers too.
  for (std::size_t r = 1; r <= short_rounds; ++r)
    for (std::size_t w = 0; w < rows_[r].size(); ++w)
      row[r][w] |= row[r - 1][w];
  rows_.resize(std::min<std::size_t>(most_begun, short_rounds) + 1);
  if (most_begun > short_rounds) {
    rows_.push_back(rows_.back());
    for (const auto& more : by_rounds_)
      for (const std::int32_t id : more)
        set_bit(rows_.back().data(), id);
  }
  bounded_ = std::vector<std::atomic<const std::uint32_t*>>(most_begun + 1);

  for (std::size_t b = 0; b < 256; ++b) {
    if (late_first_[b + 1] > 0)
      rest_bytes_.push_back(static_cast<unsigned char>(b));
    late_first_[b + 1] += late_first_[b];
  }
  std::vector<late_exit> sorted(late_.size());
  std::array<std::uint32_t, 257> free = late_first_;
  for (const late_exit& e : late_)
    sorted[free[e.first]++] = e;
  late_ = std::move(sorted);

  first_bytes_ = sizeof(*this) + rows_.size() * vocabulary.words() * 4 + late_.size() * sizeof(late_exit) +
                 bounded_.size() * sizeof(bounded_[0]);
  for (const auto& list : by_rounds_)
    first_bytes_ += list.size() * 4;
  for (const early_exit& e : early_)
    first_bytes_ += sizeof(e) + e.before.size();
}

loop_table::~loop_table() {
  for (const auto& row : bounded_)
    std::unique_ptr<const std::uint32_t[]>(row.load());
  for (const auto& trie : rests_)
    std::unique_ptr<const token_trie>(trie.load());
}

const std::uint32_t* loop_table::inside(std::uint64_t rounds) const {
  if (rounds >= bounded_.size() - 1)
    return rows_.back().data();
  if (rounds <= short_rounds)
    return rows_[static_cast<std::size_t>(rounds)].data();
  return made_once(bounded_[static_cast<std::size_t>(rounds)], [&] {
    auto row = std::make_unique<std::uint32_t[]>(vocabulary_.words());
    std::copy(rows_[short_rounds].begin(), rows_[short_rounds].end(), row.get());
    for (std::size_t more = short_rounds + 1; more <= rounds; ++more)
      for (const std::int32_t id : by_rounds_[more])
        set_bit(row.get(), id);
    return row;
  });
}

std::span<const loop_table::late_exit> loop_table::late(unsigned char first) const {
  return {late_.data() + late_first_[first], late_.data() + late_first_[first + 1u]};
}

const token_trie& loop_table::rests(unsigned char first) const {
  return *made_once(rests_[first], [&] {
    std::vector<token_trie::entry> entries;
    for (const late_exit& e : late(first)) {
      const std::string_view text = vocabulary_.text(e.id);
      entries.push_back({text.substr(text.size() - e.rest), static_cast<std::int32_t>(&e - late_.data())});
    }
    return std::make_unique<token_trie>(std::move(entries));
  });
}

std::size_t loop_table::bytes() const {
  std::size_t sum = first_bytes_;
  for (const auto& row : bounded_)
    sum += row.load() != nullptr ? vocabulary_.words() * 4 : 0;
  for (const auto& slot : rests_)
    if (const token_trie* trie = slot.load())
      sum += trie->bytes();
  return sum;
}

} // namespace troupe
