#include "runtime/grammar/token_vocabulary.hpp"
#include "runtime/base/result.hpp"
#include "runtime/grammar/loop_table.hpp"
#include "runtime/grammar/near_states.hpp"
#include <algorithm>

namespace troupe {

token_trie::token_trie(std::vector<entry> entries) {
  nodes_.clear();
  struct place { // in the order of texts; nearly all are told apart by their first bytes and their length
    std::uint64_t first_bytes;
    std::uint32_t index, length;
  };
  std::vector<place> order(entries.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    const std::string_view text = entries[i].text;
    std::uint64_t bytes = 0;
    for (std::size_t k = 0; k < 8; ++k)
      bytes = bytes << 8 | (k < text.size() ? static_cast<unsigned char>(text[k]) : 0u);
    order[i] = {bytes, i, static_cast<std::uint32_t>(text.size())};
  }
  std::sort(order.begin(), order.end(), [&](const place& a, const place& b) {
    if (a.first_bytes != b.first_bytes)
      return a.first_bytes < b.first_bytes;
    if (a.length <= 8 || b.length <= 8) {
      if (a.length != b.length) // the shorter one is the beginning of the other
        return a.length < b.length;
    } else if (const int difference = entries[a.index].text.compare(entries[b.index].text); difference != 0) {
      return difference < 0;
    }
    return a.index < b.index;
  });
  std::vector<std::uint32_t> path; // nodes of the text before
  std::string_view before;
  for (const place& p : order) {
    const std::string_view text = entries[p.index].text;
    const auto common = static_cast<std::size_t>(
        std::mismatch(before.begin(), before.end(), text.begin(), text.end()).first - before.begin());
    while (path.size() > common) {
      nodes_[path.back()].end = static_cast<std::uint32_t>(nodes_.size());
      path.pop_back();
    }
    for (std::size_t i = common; i < text.size(); ++i) {
      path.push_back(static_cast<std::uint32_t>(nodes_.size()));
      nodes_.push_back({0, static_cast<std::uint32_t>(ids_.size()), static_cast<std::uint16_t>(i + 1),
                        static_cast<unsigned char>(text[i]), 0});
      if (i > 0 && nodes_[path[i - 1]].children < 255)
        ++nodes_[path[i - 1]].children;
    }
    ids_.push_back(entries[p.index].id);
    longest_ = std::max(longest_, static_cast<std::uint32_t>(text.size()));
    before = text;
  }
  for (const std::uint32_t node : path)
    nodes_[node].end = static_cast<std::uint32_t>(nodes_.size());
  nodes_.push_back({0, static_cast<std::uint32_t>(ids_.size()), 0, 0, 0});
}

token_vocabulary::token_vocabulary(std::span<const std::string_view> texts, std::int32_t size, std::int32_t end_token)
    : size_(size), end_token_(end_token), text_first_{0} {
  std::size_t total = 0;
  for (const std::string_view t : texts)
    total += t.size();
  text_.reserve(total);
  std::vector<token_trie::entry> entries;
  for (std::size_t id = 0; id < texts.size(); ++id) {
    const std::size_t at = text_.size();
    if (texts[id].size() > most_token_bytes)
      throw config_error("tokenizer.json", "token " + std::to_string(id), std::to_string(texts[id].size()) + " bytes",
                         "tokens of more than " + std::to_string(most_token_bytes) + " bytes are not supported", "");
    if (static_cast<std::int32_t>(id) != end_token)
      text_.insert(text_.end(), texts[id].begin(), texts[id].end());
    text_first_.push_back(static_cast<std::uint32_t>(text_.size()));
    if (text_.size() > at)
      entries.push_back({{text_.data() + at, text_.size() - at}, static_cast<std::int32_t>(id)});
  }
  std::vector<token_trie::entry> quoted, far;
  for (const token_trie::entry& e : entries) {
    if (e.text.find('"') != std::string_view::npos)
      quoted.push_back(e);
    if (e.text.size() > near_bytes)
      far.push_back(e);
  }
  trie_ = token_trie(std::move(entries));
  quoted_ = token_trie(std::move(quoted));
  far_ = token_trie(std::move(far));
}

token_vocabulary::~token_vocabulary() = default;

std::shared_ptr<const token_vocabulary> token_vocabulary::of(const tokenizer& t, std::int32_t model_vocabulary,
                                                             bool block_added) {
  if (model_vocabulary < t.vocab_size())
    throw config_error("tokenizer.json", "vocabulary", std::to_string(t.vocab_size()),
                       "the model has only " + std::to_string(model_vocabulary) +
                           " ids, so mask rows and logits would differ in width",
                       "use the tokenizer that belongs to the model");
  std::vector<std::string_view> texts(static_cast<std::size_t>(t.vocab_size()));
  for (std::int32_t id = 0; id < t.vocab_size(); ++id)
    if (!t.is_special(id) && !(block_added && t.is_added(id)))
      texts[static_cast<std::size_t>(id)] = t.bytes(id);
  auto made = std::make_shared<token_vocabulary>(texts, model_vocabulary, t.eos_id());
  compile_budget budget;
  grammar_builder builder(budget);
  if (const auto json = finite_dfa(builder, builder.json_char(), 2'000, budget))
    made->json_table_ = made->table_of(*json);
  return made;
}

std::string_view token_vocabulary::text(std::int32_t id) const {
  if (id < 0 || static_cast<std::size_t>(id) + 1 >= text_first_.size())
    return {};
  const std::uint32_t at = text_first_[static_cast<std::size_t>(id)];
  return {text_.data() + at, text_first_[static_cast<std::size_t>(id) + 1] - at};
}

std::shared_ptr<const loop_table> token_vocabulary::known_table(const byte_dfa& round,
                                                                std::optional<std::uint32_t> below) const {
  const std::lock_guard hold(tables_lock_);
  const auto found = tables_.find({round, below});
  auto known = found != tables_.end() ? found->second.lock() : nullptr;
  if (known)
    keep(known);
  return known;
}

std::shared_ptr<const loop_table> token_vocabulary::table_of(const byte_dfa& round,
                                                             std::optional<std::uint32_t> below) const {
  if (auto known = known_table(round, below))
    return known;
  // Made outside of the lock: others need not wait, and the same table made twice does no harm.
  auto made = std::make_shared<const loop_table>(*this, round, below);
  const std::lock_guard hold(tables_lock_);
  std::erase_if(tables_, [](const auto& t) { return t.second.expired(); });
  std::weak_ptr<const loop_table>& known = tables_[std::pair(round, below)];
  if (auto other = known.lock())
    return other;
  known = made;
  keep(made);
  return made;
}

// Under the lock. The oldest go, whose memory is given back once nobody holds them.
void token_vocabulary::keep(const std::shared_ptr<const loop_table>& table) const {
  const auto at = std::find(recent_.begin(), recent_.end(), table);
  recent_.splice(recent_.begin(), recent_, at != recent_.end() ? at : recent_.insert(recent_.end(), table));
  std::size_t bytes = 0, count = 0;
  for (auto t = recent_.begin(); t != recent_.end();) {
    bytes += (*t)->bytes();
    const bool kept = t == recent_.begin() || (++count < most_kept_tables && bytes <= kept_table_bytes);
    t = kept ? std::next(t) : recent_.erase(t);
  }
}

} // namespace troupe
