// One request's place in its constraint: trigger, bound, grammar and end (structured_output.md §2.4).
#pragma once
#include "runtime/grammar/compiled_grammar.hpp"
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

// Free generation until all of `trigger` was produced in a row. If `bound` is produced first, the rest of the trigger
// is forced. An empty trigger: the constraint holds from the first token on.
struct constraint_trigger {
  std::vector<std::int32_t> tokens;
  std::optional<std::int32_t> bound; // needs a trigger
};

// A constraint ready for use, and how a request comes to it.
struct sequence_constraint {
  std::shared_ptr<const compiled_grammar> grammar;
  constraint_trigger trigger;
};

// A value: a copy is a fork. Belongs to the thread that uses it; the grammar behind it is shared.
class constraint_matcher {
public:
  // rollback_room: tokens that can be taken back at any time, at least the draft length and 2.
  constraint_matcher(std::shared_ptr<const compiled_grammar> grammar, constraint_trigger trigger = {},
                     std::size_t rollback_room = 16);

  // Takes the next token of the output. False, and nothing changes, if the constraint does not allow it.
  bool accept(std::int32_t id);
  // Takes back the last k tokens. False, and nothing changes, if more than the room or than were taken.
  bool rollback(std::size_t k);

  bool constrained() const { return bound_fired() || progress_ == trigger_.tokens.size(); }
  bool finished() const { return after_end_ >= 0; } // the end token was taken; then every token is accepted
  bool can_end() const;                             // the end token would be accepted now as the end
  // The next row of §5.3: bit i is set iff accept(i) would succeed. All ones (of the vocabulary) while unconstrained
  // and when finished.
  void fill(std::uint32_t* row) const;
  // The same for an amount of work. False: it is spent, and the row holds nothing.
  bool fill(std::uint32_t* row, mask_work& work) const;
  // Masks for the positions of a draft window (§2.5): row k is what may follow the first k drafts. Returns how many
  // rows were filled, at most drafts + 1: the rest follow a draft that is refused, or one behind which the mask needs
  // more than its budget. `constrained_rows` tells for each filled row whether it is one; others were not written. The
  // state is as before. Where `work` is spent on the way, nothing of this counts.
  std::size_t fill_window(std::span<const std::int32_t> drafts, std::span<std::uint32_t* const> rows,
                          std::span<std::uint8_t> constrained_rows, mask_work& work);
  std::size_t fill_window(std::span<const std::int32_t> drafts, std::span<std::uint32_t* const> rows,
                          std::span<std::uint8_t> constrained_rows) {
    mask_work unlimited;
    return fill_window(drafts, rows, constrained_rows, unlimited);
  }
  // From now on with masks that no other matcher uses: what it learns, it learns alone.
  void part_from_others() { move_to(grammar_->own_masks()); }

  // Tokens that the constraint leaves no choice about, as bytes; empty if there is a choice. At most `limit` bytes.
  std::string forced(std::size_t limit = 256) const;
  // The last accept() or fill() needed more than the budgets of the grammar: what it said is not the whole truth.
  bool overflowed() const { return overflowed_; }
  const compiled_grammar& grammar() const { return *grammar_; }

private:
  struct moment { // before a token was taken
    frontier place;
    std::uint32_t progress;
    std::int32_t after_bound;
    std::int64_t after_end;
  };

  bool bound_fired() const { return after_bound_ >= 0; }
  void refresh() const;
  void move_to(std::shared_ptr<mask_maker> masks) const;
  template <class Question> auto ask(Question question) const;
  void remember();

  std::shared_ptr<const compiled_grammar> grammar_;
  constraint_trigger trigger_;
  std::vector<std::uint32_t> failure_; // of the Knuth-Morris-Pratt search for the trigger
  std::uint32_t progress_ = 0;
  std::int32_t after_bound_ = -1; // tokens since the bound, -1: not seen
  std::int64_t after_end_ = -1;
  std::size_t room_, taken_ = 0;
  // The frontier store can be exchanged for a smaller one between two calls, also in const ones.
  mutable std::shared_ptr<mask_maker> masks_;
  mutable frontier place_;
  mutable std::vector<moment> history_; // a ring of `room_` moments
  mutable bool overflowed_ = false;
};

} // namespace troupe
