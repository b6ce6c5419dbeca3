#include "runtime/grammar/loop_table.hpp"
#include <algorithm>

namespace troupe {

loop_table::loop_table(const token_trie& trie, const byte_dfa& round, std::size_t words,
                       std::optional<std::uint32_t> below)
    : words_(words), by_rounds_(1) {
  // next state by byte, -1 for none
  std::vector<std::array<std::int16_t, 256>> next(round.states.size());
  for (std::size_t s = 0; s < next.size(); ++s) {
    next[s].fill(-1);
    for (const byte_dfa::edge& e : round.states[s].out)
      for (unsigned b = e.low; b <= e.high; ++b)
        next[s][b] = static_cast<std::int16_t>(e.target);
  }
  struct place {
    std::int16_t state;
    std::uint32_t rounds, boundary; // whole rounds, bytes in them
  };
  std::vector<place> at(trie.longest() + 1);
  std::string path(trie.longest(), '\0');
  at[0] = {0, 0, 0};
  std::string rest_text;
  std::vector<std::pair<std::size_t, std::size_t>> rest_of; // into rest_text, by index of late_
  const std::uint32_t above = below ? trie.depth(*below) : 0, end_of_all = below ? trie.end(*below) : trie.size();
  for (std::uint32_t node = below ? *below + 1 : 0; node < end_of_all;) {
    const std::uint32_t depth = trie.depth(node) - above;
    const place& before = at[depth - 1];
    path[depth - 1] = static_cast<char>(trie.byte(node));
    const std::int16_t state = next[static_cast<std::size_t>(before.state)][trie.byte(node)];
    if (state >= 0) {
      place& now = at[depth];
      now = {state, before.rounds, before.boundary};
      if (round.states[static_cast<std::size_t>(state)].accepting)
        now = {0, before.rounds + 1, depth};
      const std::uint32_t begun = now.rounds + (now.state == 0 ? 0 : 1);
      for (std::uint32_t i = trie.first_id(node); i < trie.last_id(node); ++i) {
        if (begun >= by_rounds_.size())
          by_rounds_.resize(begun + 1);
        by_rounds_[begun].push_back(trie.ids()[i]);
      }
      ++node;
      continue;
    }
    if (before.rounds == 0) {
      early_.push_back({node, path.substr(0, depth - 1)});
      node = trie.end(node);
      continue;
    }
    // every token of this subtree leaves the loop at the same place
    const place left = before;
    const std::uint32_t end = trie.end(node);
    for (; node < end; ++node) {
      const std::uint32_t length = trie.depth(node) - above;
      path[length - 1] = static_cast<char>(trie.byte(node));
      for (std::uint32_t i = trie.first_id(node); i < trie.last_id(node); ++i) {
        rest_of.emplace_back(rest_text.size(), length - left.boundary);
        rest_text.append(path, left.boundary, length - left.boundary);
        late_.push_back({trie.ids()[i], left.rounds});
      }
    }
  }
  std::vector<std::uint32_t> row(words);
  for (std::size_t rounds = 0; rounds < by_rounds_.size(); ++rounds) {
    for (const std::int32_t id : by_rounds_[rounds])
      set_bit(row.data(), id);
    if (rounds <= short_rounds || rounds + 1 == by_rounds_.size())
      rows_.push_back(row);
  }
  std::vector<token_trie::entry> entries(late_.size());
  for (std::size_t i = 0; i < entries.size(); ++i)
    entries[i] = {std::string_view(rest_text).substr(rest_of[i].first, rest_of[i].second),
                  static_cast<std::int32_t>(i)};
  rests_ = token_trie(std::move(entries));
  bounded_ = std::vector<std::atomic<const std::uint32_t*>>(by_rounds_.size());
}

loop_table::~loop_table() {
  for (const auto& row : bounded_)
    std::unique_ptr<const std::uint32_t[]>(row.load());
}

const std::uint32_t* loop_table::inside(std::uint64_t rounds) const {
  if (rounds >= by_rounds_.size() - 1)
    return rows_.back().data();
  if (rounds <= short_rounds)
    return rows_[static_cast<std::size_t>(rounds)].data();
  std::atomic<const std::uint32_t*>& slot = bounded_[static_cast<std::size_t>(rounds)];
  if (const std::uint32_t* row = slot.load(std::memory_order_acquire))
    return row;
  auto row = std::make_unique<std::uint32_t[]>(words_);
  std::copy(rows_[short_rounds].begin(), rows_[short_rounds].end(), row.get());
  for (std::size_t more = short_rounds + 1; more <= rounds; ++more)
    for (const std::int32_t id : by_rounds_[more])
      set_bit(row.get(), id);
  const std::uint32_t* expected = nullptr;
  if (slot.compare_exchange_strong(expected, row.get(), std::memory_order_acq_rel))
    return row.release();
  return expected; // another thread was faster
}

std::size_t loop_table::bytes() const {
  std::size_t sum = rows_.size() * words_ * 4 + late_.size() * sizeof(late_exit) + rests_.bytes();
  for (const auto& list : by_rounds_)
    sum += list.size() * 4;
  for (const early_exit& e : early_)
    sum += sizeof(e) + e.before.size();
  for (const auto& row : bounded_)
    sum += row.load() != nullptr ? words_ * 4 : 0;
  return sum;
}

} // namespace troupe
