#include "runtime/grammar/constraint_matcher.hpp"
#include "runtime/base/check.hpp"
#include <algorithm>
#include <cstring>

namespace troupe {

constraint_matcher::constraint_matcher(std::shared_ptr<const compiled_grammar> grammar, constraint_trigger trigger,
                                       std::size_t rollback_room)
    : grammar_(std::move(grammar)), trigger_(std::move(trigger)), failure_(trigger_.tokens.size()),
      room_(std::max<std::size_t>(rollback_room, 1)), masks_(grammar_->masks()), place_(masks_->store().start()),
      history_(room_) {
  for (std::uint32_t i = 1, k = 0; i < failure_.size(); ++i) {
    while (k > 0 && trigger_.tokens[i] != trigger_.tokens[k])
      k = failure_[k - 1];
    if (trigger_.tokens[i] == trigger_.tokens[k])
      ++k;
    failure_[i] = k;
  }
}

// Moves to the grammar's current store when this one has become too large.
void constraint_matcher::refresh() const {
  if (grammar_->outgrown(*masks_))
    move_to(grammar_->masks());
}

void constraint_matcher::move_to(std::shared_ptr<mask_maker> masks) const {
  const std::shared_ptr<mask_maker> old = std::exchange(masks_, std::move(masks));
  if (old == masks_)
    return;
  place_ = old->store().copy_to(masks_->store(), place_);
  for (std::size_t i = taken_ > room_ ? taken_ - room_ : 0; i < taken_; ++i) {
    frontier& f = history_[i % room_].place;
    f = old->store().copy_to(masks_->store(), f);
  }
}

// Asks the grammar about this place. What a store that is full answers is not the whole truth, and others have filled
// it too: then a store of its own is asked, so that the answer depends on this text alone.
template <class Question> auto constraint_matcher::ask(Question question) const {
  refresh();
  auto answer = question(*masks_);
  overflowed_ = false;
  if (masks_->store().overflowed()) {
    move_to(grammar_->own_masks());
    answer = question(*masks_);
    overflowed_ = masks_->store().overflowed();
  }
  return answer;
}

void constraint_matcher::remember() {
  history_[taken_ % room_] = {place_, progress_, after_bound_, after_end_};
  ++taken_;
}

bool constraint_matcher::accept(std::int32_t id) {
  const auto& trigger = trigger_.tokens;
  overflowed_ = false;
  if (id < 0 || id >= grammar_->vocabulary().size())
    return false;
  if (finished()) {
    remember();
    ++after_end_;
    return true;
  }
  if (progress_ < trigger.size()) {
    if (bound_fired()) {
      if (id != trigger[progress_])
        return false;
      remember();
      ++progress_;
      ++after_bound_;
      return true;
    }
    remember();
    while (progress_ > 0 && id != trigger[progress_])
      progress_ = failure_[progress_ - 1];
    if (id == trigger[progress_])
      ++progress_;
    if (trigger_.bound == id)
      after_bound_ = 0;
    return true;
  }
  if (id == grammar_->vocabulary().end_token() && can_end()) {
    remember();
    after_end_ = 0;
    return true;
  }
  const frontier next = ask([&](mask_maker& m) { return m.accept(place_, id); });
  if (next == dead_frontier || overflowed_)
    return false;
  remember();
  place_ = next;
  return true;
}

bool constraint_matcher::rollback(std::size_t k) {
  if (k > std::min(taken_, room_))
    return false;
  if (k == 0)
    return true;
  taken_ -= k;
  const moment& m = history_[taken_ % room_];
  place_ = m.place;
  progress_ = m.progress;
  after_bound_ = m.after_bound;
  after_end_ = m.after_end;
  return true;
}

bool constraint_matcher::can_end() const {
  return !finished() && progress_ == trigger_.tokens.size() && ask([&](mask_maker& m) { return m.can_end(place_); });
}

void constraint_matcher::fill(std::uint32_t* row) const {
  mask_work unlimited;
  fill(row, unlimited);
}

bool constraint_matcher::fill(std::uint32_t* row, mask_work& work) const {
  const token_vocabulary& v = grammar_->vocabulary();
  overflowed_ = false;
  if (finished() || !constrained()) {
    std::memset(row, 0xFF, v.words() * 4);
    if (v.size() % 32 != 0)
      row[v.words() - 1] = (std::uint32_t{1} << (v.size() % 32)) - 1;
    return true;
  }
  if (progress_ < trigger_.tokens.size()) {
    std::memset(row, 0, v.words() * 4);
    set_bit(row, trigger_.tokens[progress_]);
    return true;
  }
  return ask([&](mask_maker& m) {
    if (!work.spent())
      m.fill(place_, row, work);
    return !work.spent();
  });
}

std::size_t constraint_matcher::fill_window(std::span<const std::int32_t> drafts, std::span<std::uint32_t* const> rows,
                                            std::span<std::uint8_t> constrained_rows, mask_work& work) {
  TROUPE_CHECK(rows.size() > drafts.size() && constrained_rows.size() >= rows.size(), "a draft window without rows");
  std::size_t taken = 0, filled = 0;
  const auto fill_next = [&] {
    constrained_rows[filled] = constrained() && !finished();
    if (constrained_rows[filled] && !fill(rows[filled], work))
      return false;
    filled += overflowed_ ? 0 : 1;
    return !overflowed_;
  };
  overflowed_ = false;
  while (fill_next() && taken < drafts.size() && taken < room_ && accept(drafts[taken]))
    ++taken;
  TROUPE_CHECK(rollback(taken), "a draft window larger than the room to go back");
  return filled;
}

std::string constraint_matcher::forced(std::size_t limit) const {
  std::string text;
  if (finished() || progress_ < trigger_.tokens.size())
    return text;
  refresh();
  frontier_store& store = masks_->store();
  const rule_network& net = store.network();
  for (frontier f = place_; text.size() < limit;) {
    const frontier_store::expansion& here = store.expand(f);
    int only = -1;
    bool choice = here.can_end;
    for (unsigned b = 0; b < 256 && !choice; ++b)
      if (here.next[net.class_of[b]] != dead_frontier) {
        choice = only >= 0;
        only = static_cast<int>(b);
      }
    if (choice || only < 0 || net.has_token_edges)
      break;
    text += static_cast<char>(only);
    f = here.next[net.class_of[static_cast<unsigned>(only)]];
  }
  return text;
}

} // namespace troupe
