// scheduler_core: who runs in the next step, what KV that takes, and the plan.
#include "runtime/base/check.hpp"
#include "runtime/scheduler/scheduler_core.hpp"
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

namespace troupe {

namespace {

constexpr std::int32_t bypass_window = 32;   // requests that do not fit and are passed over in one look at the queue
constexpr std::int64_t ask_again_after = 16; // steps, if no block has become free before

// Blocks of a table that covers so many more rows wherever they lie.
std::int32_t table_for(const scheduled_sequence& s, std::int32_t rows) {
  return blocks_for(std::min(s.computed + s.slack + rows, s.reach));
}

std::int32_t blocks_short(const scheduled_sequence& s, std::int32_t rows) {
  return table_for(s, rows) - static_cast<std::int32_t>(s.blocks.size());
}

// Positions that its blocks have place for.
std::int32_t block_positions(const scheduled_sequence& s) {
  return static_cast<std::int32_t>(s.blocks.size()) * tokens_per_kv_block;
}

// Rows that its blocks have place for.
std::int32_t covered(const scheduled_sequence& s) {
  const std::int32_t top = block_positions(s);
  return top >= s.reach ? s.reach - s.computed : top - s.computed - s.slack;
}

// The next so many of a plan's numbers, behind the `used` ones. Its vectors keep their lengths from plan to plan, which
// are nearly the same.
std::int32_t* next_places(std::vector<std::int32_t>& v, std::size_t& used, std::int32_t count) {
  const std::size_t first = std::exchange(used, used + static_cast<std::size_t>(count));
  if (v.size() < used)
    v.resize(used);
  return v.data() + first;
}

// The last block boundary at or before a position.
std::int32_t boundary_before(std::int32_t position) {
  return position / tokens_per_kv_block * tokens_per_kv_block;
}

} // namespace

// A sequence gets its place only with the masks of its first row: between taking a place and drawing there is nothing
// that could be left out. By rejection one that goes on draws with the masks of its drafts, when these are made again.
bool scheduler_core::needs_first_masks(const sequence& s) const {
  return s.constrained() && (!limits_.rejection || s.output.empty());
}
bool scheduler_core::may_be_admitted(const sequence& s) const {
  return !needs_first_masks(s) || (s.window != nullptr && s.window->ready);
}

// Sequences that could be admitted now. Without a slot only one, if there is nobody to wait for.
std::int32_t scheduler_core::places() const {
  const auto taken = static_cast<std::int32_t>(turn_.admit.size());
  const std::int32_t slots = std::max(free_slots_ + released_slots_, active_.empty() ? 1 : 0);
  return std::min(limits_.max_num_seqs - static_cast<std::int32_t>(active_.size()), slots) - taken;
}

// Whether the token at s.computed, which a step that is out draws, is known to be the last one.
bool scheduler_core::ends_with_token_in_flight(const sequence& s) const {
  const std::int64_t outputs = s.computed - s.prompt_tokens() + 1;
  if (outputs > s.ends.golden_tokens())
    return s.ends.ends_at(outputs);
  const std::int32_t token = s.spec->params.golden_token_ids[static_cast<std::size_t>(outputs - 1)];
  return s.ends.after(*s.spec, token, outputs).reason != finish_reason::none;
}

// Its reader would have more tokens to acknowledge than it may, if everything that is out and the next step draw as
// much as they can.
bool scheduler_core::runs_ahead(const sequence& s) const {
  const std::int64_t unacked = std::ssize(s.output) - s.acknowledged;
  return unacked + s.unresolved + s.slack + limits_.nextn >= limits_.unacked_tokens;
}

bool scheduler_core::can_decode(const sequence& s) const {
  if (s.in != phase::decode || s.waits_for_masks() || runs_ahead(s))
    return false;
  if (s.computed < s.length()) // and while drafts are made again, the host does not know them
    return !s.host_paced || !s.drafted || s.committed == s.computed;
  return s.computed == s.length() && s.unresolved == 1 && !s.host_paced && !ends_with_token_in_flight(s);
}

// Whether a block for its next rows is there, or could be taken from a sequence behind.
bool scheduler_core::can_grow(const sequence& s) const {
  return blocks_short(s, least_rows(s)) <= 0 || free_blocks() > 0 || has_victim_behind(s);
}

bool scheduler_core::has_victim_behind(const sequence& s) const {
  return std::any_of(std::upper_bound(active_.begin(), active_.end(), &s, before{}), active_.end(),
                     [](const sequence* o) { return o->in != phase::held; });
}

std::int32_t scheduler_core::next_snapshot_of(const sequence& s) const {
  const std::int32_t at =
      next_snapshot(s.computed, s.prompt_tokens(), limits_.snapshot_interval, own_rows(limits_.yoco, limits_.yoco_keep),
                    s.chunk_checkpoints ? std::span(*s.chunk_checkpoints) : std::span<const std::int32_t>());
  return s.parts_at > s.computed ? std::min(at, s.parts_at) : at;
}

// Chunks end where snapshots are kept.
std::int32_t scheduler_core::chunk_end(const sequence& s) const {
  const std::int32_t at = limits_.prefix_cache ? next_snapshot_of(s) : 0;
  return at > 0 ? at : s.prompt_end();
}

// Whether rows of its prompt are left that may be planned now.
static bool wants_prompt_rows(const scheduled_sequence& s) {
  return s.in == scheduled_sequence::phase::prefill && s.computed < s.prompt_end() && s.may_go_on;
}

// Blocks that prompts under way will still need.
std::int32_t scheduler_core::promised_blocks() const {
  std::int32_t promised = 0;
  for (const sequence* s : active_)
    if (s->in == phase::prefill) {
      const std::int32_t wanted = s->turn == turns_ ? s->wanted_rows : 0;
      promised += std::max(0, blocks_for(s->prompt_tokens()) - std::max(blocks_for(s->computed + wanted),
                                                                        static_cast<std::int32_t>(s->blocks.size())));
    }
  return promised;
}

// Whether a sequence that was refused should ask again: it fits even without a hit, or it is time to see whether there
// is one.
bool scheduler_core::worth_asking(const sequence& s, std::int32_t promised) const {
  if (s.refused_since == 0 || active_.empty() || step_ >= s.asked_at + ask_again_after)
    return true;
  const std::int32_t rows = std::min(chunk_end(s), limits_.max_num_batched_tokens);
  return blocks_for(s.prompt_tokens()) + room_for(s, rows, promised) <= free_blocks();
}

// Waiting sequences that may ask for KV, in order, until visit() says false. One that does not fit is passed over for
// ageing_steps, but not one that has lost its cache (C16, D11).
template <class Visit> void scheduler_core::each_admissible(Visit visit) const {
  if (places() <= 0 || waiting_.empty())
    return;
  const std::int32_t promised = promised_blocks();
  std::int32_t passed = 0, left = places();
  for (sequence* s : waiting_) {
    if (!may_be_admitted(*s))
      continue;
    const bool ask = worth_asking(*s, promised);
    if (ask)
      visit(*s);
    const bool may_be_passed =
        s->refused_since == 0 || (s->preemptions == 0 && step_ + 1 - s->refused_since <= limits_.ageing_steps);
    if (!may_be_passed || (ask ? --left <= 0 : ++passed > bypass_window))
      return;
  }
}

step_intent scheduler_core::intent() {
  make_first_masks();
  step_intent i;
  i.steps_since_prefill = steps_since_prefill_;
  std::int64_t held = 0;
  const auto waits = [&](std::int32_t rows, std::int64_t since) {
    held += rows;
    i.oldest_wait = std::max(i.oldest_wait, static_cast<std::int32_t>(step_ - since));
  };
  bool partial = false;
  for (const sequence* s : active_) {
    if (s->in == phase::decode) {
      i.decode = i.decode || (can_decode(*s) && can_grow(*s));
    } else if (wants_prompt_rows(*s)) {
      partial = true;
      i.prefill = i.prefill || can_grow(*s);
      waits(s->prompt_tokens() - s->computed, s->last_step);
    }
  }
  each_admissible([&](const sequence& s) {
    i.prefill = true;
    waits(s.prompt_tokens(), s.waits_since);
  });
  i.decode =
      i.decode || (places() > 0 && std::ranges::any_of(forks_, [&](const sequence* s) { return may_be_admitted(*s); }));
  i.held_tokens = static_cast<std::int32_t>(std::min<std::int64_t>(held, 1 << 30));
  i.kv_low = partial && free_blocks() <= std::ssize(active_);
  return i;
}

std::int32_t scheduler_core::decode_steps_left() const {
  std::int64_t left = 0;
  for (const sequence* s : active_)
    if (s->in == phase::decode)
      left = std::max(left, longest_length(*s->spec, limits_.max_model_len) - s->length() - s->unresolved);
  return static_cast<std::int32_t>(std::max<std::int64_t>(left, 0));
}

void scheduler_core::pass(step_kind kind, events& out) {
  ++step_;
  steps_since_prefill_ = kind == step_kind::prefill ? 0 : steps_since_prefill_ + 1;
  expire(out);
}

held_back scheduler_core::waiting_for() const {
  if (waiting_.empty())
    return held_back::none;
  if (std::ssize(active_) >= limits_.max_num_seqs)
    return held_back::places;
  if (places() <= 0)
    return held_back::slots;
  return std::ranges::any_of(waiting_, [](const sequence* s) { return s->refused_since != 0; }) ? held_back::blocks
                                                                                                : held_back::none;
}

bool scheduler_core::want(std::optional<step_kind> decided, kv_want& out) {
  out.clear();
  if (turn_.open || flights_out_ >= static_cast<std::size_t>(depth()))
    return false;
  ++turns_;
  turn_.kind = decided;
  turn_.rows.clear(), turn_.grow.clear(), turn_.snapshots.clear(), turn_.admit.clear();
  want_reservations();
  if (decided == step_kind::prefill)
    want_prefill();
  else if (decided == step_kind::decode)
    want_decode();
  free_blocks_ += std::exchange(released_blocks_, 0);
  free_slots_ += std::exchange(released_slots_, 0);
  turn_.asked = !next_.empty();
  if (!turn_.asked && turn_.rows.empty())
    return false;
  turn_.open = true;
  std::swap(out, next_);
  return true;
}

void scheduler_core::want_prefill() {
  const std::int32_t budget = limits_.max_num_batched_tokens - want_forks(limits_.max_num_batched_tokens);
  candidates_.clear();
  shares_.clear();
  const auto add = [&](sequence& s) {
    candidates_.push_back(&s);
    shares_.push_back({chunk_end(s) - s.computed, 0});
  };
  auto holder = active_.begin();
  const auto add_holders_before = [&](const sequence* end) {
    for (; holder != active_.end() && (!end || before{}(*holder, end)); ++holder)
      if (wants_prompt_rows(**holder) && can_grow(**holder))
        add(**holder);
  };
  each_admissible([&](sequence& s) {
    add_holders_before(&s);
    add(s);
  });
  add_holders_before(nullptr);
  if (limits_.chunked_prefill)
    share_rows(shares_, budget, limits_.lookahead_tokens, scratch_);
  else
    share_whole(shares_, budget);

  for (std::size_t i = 0; i < candidates_.size(); ++i)
    if (candidates_[i]->in == phase::prefill && shares_[i].rows > 0)
      want_rows(*candidates_[i], shares_[i].rows, 0);
  std::int32_t promised = promised_blocks();
  for (std::size_t i = 0; i < candidates_.size(); ++i)
    if (candidates_[i]->in == phase::waiting && shares_[i].rows > 0) {
      want_admission(*candidates_[i], shares_[i].rows, promised);
      promised += blocks_for(candidates_[i]->prompt_tokens()) - blocks_for(shares_[i].rows);
    }
}

void scheduler_core::want_decode() {
  std::int32_t left = limits_.max_num_batched_tokens - want_forks(limits_.max_num_batched_tokens);
  candidates_.clear();
  std::int32_t least = 0;
  for (sequence* s : active_)
    if (can_decode(*s) && can_grow(*s)) { // else it waits for those before it, and takes nobody's turn
      candidates_.push_back(s);
      least += least_rows(*s);
    }
  if (least > left) { // in turn
    std::sort(candidates_.begin(), candidates_.end(), [](const sequence* a, const sequence* b) {
      return a->last_step != b->last_step ? a->last_step < b->last_step : before{}(a, b);
    });
    std::size_t fitting = 0;
    for (least = 0; least + least_rows(*candidates_[fitting]) <= left; ++fitting)
      least += least_rows(*candidates_[fitting]);
    candidates_.resize(fitting);
    std::sort(candidates_.begin(), candidates_.end(), before{});
  }
  left -= static_cast<std::int32_t>(candidates_.size());
  std::int32_t reserved = 0; // blocks that the candidates still need for the least rows that they take
  if (limits_.nextn > 0 && !candidates_.empty()) {
    left -= plan_drafts(left);
    for (const sequence* s : candidates_)
      reserved += std::max(0, blocks_short(*s, least_rows(*s)));
  }
  const bool share = wants_sharing();
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    sequence& s = *candidates_[i];
    if (s.in != phase::decode) // lost its cache to one before it
      continue;
    std::int32_t drafts = 0, cover = 0;
    if (limits_.nextn > 0) {
      reserved -= std::max(0, blocks_short(s, least_rows(s)));
      drafts = affordable_drafts(s, draft_plan_.lengths[i], reserved);
      if (s.host_paced)
        drafts = std::min(drafts, static_cast<std::int32_t>(s.drafts.size()));
      if (share && s.slack > 0 && affordable_drafts(s, limits_.nextn, reserved) == limits_.nextn)
        cover = 1 + limits_.nextn;
    }
    std::int32_t forced = std::min(forced_rows(s), left);
    if (s.snapshot_at > s.computed)
      forced = std::min(forced, s.snapshot_at - s.computed - 1);
    left -= forced;
    want_rows(s, 1 + forced + drafts, drafts, cover);
  }
}

namespace {

// The step before is still out, so the drafts of the step being made were split by the confidences of the round before
// the last. The device knows those of the last round, and can share the same number of drafts out by them
// (speculation.md §6.2). That takes two sequences whose newest tokens are in flight, each with a whole block, and a
// choice.
struct sharing_count {
  std::int32_t sequences = 0, drafts = 0;
  bool whole = true;
  void add(bool whole_block, std::int32_t planned) {
    ++sequences;
    drafts += planned;
    whole = whole && whole_block;
  }
  bool pays(std::int32_t nextn) const { return whole && sequences > 1 && drafts > 0 && drafts < sequences * nextn; }
};

} // namespace

// Of the rows that are wanted.
bool scheduler_core::wants_sharing() const {
  sharing_count count;
  if (limits_.varlen && limits_.nextn > 0)
    for (std::size_t i = 0; i < candidates_.size(); ++i)
      if (const sequence& s = *candidates_[i]; s.slack > 0)
        count.add(draft_candidates_[i].drafts == limits_.nextn, draft_plan_.lengths[i]);
  return count.pays(limits_.nextn);
}

// Of the rows that there are blocks for.
bool scheduler_core::can_share() const {
  sharing_count count;
  if (limits_.varlen && limits_.nextn > 0 && turn_.kind == step_kind::decode)
    for (const demand& d : turn_.rows)
      if (const sequence& s = *d.s; current(d) && s.slack > 0)
        count.add(drafts_at_hand(s) == limits_.nextn && covered(s) > limits_.nextn, d.drafts);
  return count.pays(limits_.nextn);
}

// Drafts that its next row could verify: of the newest block, not beyond its reach, and so few that a snapshot that is
// due can be taken behind them. By rejection the number says nothing of what the drafts are; those that are not worth a
// row are left out when the plans are made.
std::int32_t scheduler_core::drafts_at_hand(const sequence& s) const {
  if (!s.drafted)
    return 0;
  std::int32_t drafts = std::min(limits_.nextn, s.reach - s.computed - 1);
  if (s.host_paced && !limits_.rejection)
    drafts = std::min(drafts, static_cast<std::int32_t>(s.drafts.size()));
  if (s.window != nullptr && limits_.rejection)
    drafts = std::min(drafts, static_cast<std::int32_t>(s.window->drafts.size()));
  if (s.hold_at > 0 && s.computed + 1 >= s.hold_at)
    drafts = std::min(drafts, s.hold_at + limits_.backtracking - s.computed - s.slack - 1);
  return std::max(0, drafts);
}

// Drafts that its next step verifies in any case. By rejection tokens depend on their number. Without varlen it is
// always that of a whole block, so that nobody else's rows or blocks change a token; and where masks were too much work
// for a step, it stays what it was before anything told what the drafts are.
std::int32_t scheduler_core::settled_drafts(const sequence& s) const {
  return limits_.rejection && (!limits_.varlen || s.window != nullptr)
             ? std::min(drafts_at_hand(s), limits_.max_num_batched_tokens - 1)
             : 0;
}

// Rows beyond its next one whose tokens are known. Where drafts are to be made again, the last one is that of the token
// before the newest.
std::int32_t scheduler_core::forced_rows(const sequence& s) const {
  return std::max(0, s.length() - s.computed - (drafts_again(s, s.length() - 1) ? 2 : 1));
}

// How many drafts each candidate verifies: draft_plan_. Returns their sum, at most what forced rows leave of the
// budget; where that is less than was planned for, the longest ones are cut. Those that are settled come first.
std::int32_t scheduler_core::plan_drafts(std::int32_t budget) {
  draft_candidates_.clear();
  std::int32_t forced = 0, settled = 0;
  for (const sequence* s : candidates_) {
    forced += forced_rows(*s);
    settled += settled_drafts(*s);
    draft_candidates_.push_back(
        {drafts_at_hand(*s), s->computed, s->confidences.for_budget(), s->confidences.for_split()});
  }
  budget -= std::min(forced, budget - settled);
  planner_.plan(draft_plan_.round + 1, draft_candidates_, draft_plan_);
  auto& drafts = draft_plan_.lengths;
  for (std::size_t i = 0; settled > 0 && i < drafts.size(); ++i)
    if (const std::int32_t n = settled_drafts(*candidates_[i]); n > drafts[i]) {
      draft_plan_.total_rows += n - drafts[i];
      drafts[i] = n;
    }
  const auto planned = static_cast<std::int32_t>(draft_plan_.total_rows) - static_cast<std::int32_t>(drafts.size());
  if (planned <= budget)
    return planned;
  std::int32_t left = budget;
  scratch_.assign(drafts.size(), 0);
  for (std::size_t i = 0; settled > 0 && i < drafts.size(); ++i)
    left -= scratch_[i] = settled_drafts(*candidates_[i]);
  for (std::int32_t level = 0; level < limits_.nextn && left > 0; ++level)
    for (std::size_t i = 0; i < drafts.size() && left > 0; ++i)
      if (drafts[i] > level && scratch_[i] <= level)
        ++scratch_[i], --left;
  drafts.swap(scratch_);
  return budget;
}

// Those that need no block which another candidate needs for its first row, and nobody's cache.
std::int32_t scheduler_core::affordable_drafts(const sequence& s, std::int32_t drafts, std::int32_t reserved) const {
  if (s.computed + s.slack + 1 + drafts <= block_positions(s) || drafts <= settled_drafts(s))
    return drafts;
  const std::int32_t own = std::max(0, blocks_short(s, 1));
  if (const std::int32_t need = blocks_short(s, 1 + drafts); need <= own || need <= free_blocks() - reserved)
    return drafts;
  return std::clamp(covered(s) + own * tokens_per_kv_block - 1, 0, drafts);
}

// Branches whose parent's prompt is through: each computes the prompt's last row again, with its own seed, on a copy of
// the parent's state. Returns the rows taken from the budget.
std::int32_t scheduler_core::want_forks(std::int32_t budget) {
  std::int32_t rows = 0;
  for (auto next = forks_.begin(); rows < budget && places() > 0; ++rows) {
    next = std::find_if(next, forks_.end(), [&](const sequence* f) { return may_be_admitted(*f); });
    if (next == forks_.end())
      break;
    sequence& s = **next;
    sequence& parent = *s.parent;
    next = forks_.erase(next);
    std::erase(parent.branches, &s);
    --parked_;
    s.parent = nullptr;
    s.in = phase::admitting;
    s.depends_on = static_cast<std::uint64_t>(parent.last_step);
    s.published = std::min(parent.published, (s.prompt_tokens() - 1) / tokens_per_kv_block);
    turn_.admit.push_back({.s = &s, .life = s.life, .id = s.id, .rows = 1, .fork = true});
    kv_want::admission a;
    a.id = s.id;
    a.prompt = s.prompt;
    a.salt = s.salt;
    a.rows = 1;
    a.fork_of = parent.id;
    a.fork_at = s.prompt_tokens() - 1;
    next_.admit.push_back(std::move(a));
  }
  return rows;
}

// Before everything else: whoever computes their prompts waits for them.
void scheduler_core::want_reservations() {
  while (!reserving_.empty() && places() > 0) {
    sequence& s = *reserving_.front();
    reserving_.erase(reserving_.begin());
    kv_want::admission a;
    a.id = s.id;
    a.prompt = s.prompt;
    a.salt = s.salt;
    a.rows = s.prompt_tokens();
    a.room = room_for(s, a.rows, promised_blocks());
    if (!active_.empty() || !turn_.admit.empty())
      a.room = std::max(a.room, blocks_kept_free() - blocks_for(s.prompt_tokens()));
    next_.admit.push_back(std::move(a));
    s.in = phase::admitting;
    turn_.admit.push_back({.s = &s, .life = s.life, .id = s.id, .reserve = true});
  }
}

// Before an image gets any: what is used then is at most the watermark's share.
std::int32_t scheduler_core::blocks_kept_free() const {
  const std::int32_t pool = limits_.kv_blocks - 1;
  return pool - static_cast<std::int32_t>(limits_.kv_watermark * pool + 1e-6);
}

void scheduler_core::want_admission(sequence& s, std::int32_t rows, std::int32_t promised) {
  kv_want::admission a;
  a.id = s.id;
  a.prompt = s.prompt;
  a.salt = s.salt;
  a.rows = rows;
  a.room = room_for(s, rows, promised);
  if (limits_.prefix_cache && !needs_whole_prompt(*s.spec))
    a.hit_limit = hit_cap(limits_.yoco, s.prompt_end(), limits_.yoco_keep);
  if (limits_.prefix_cache)
    a.snapshot_interval = limits_.snapshot_interval, a.own_rows = own_rows(limits_.yoco, limits_.yoco_keep),
    a.checkpoints = s.chunk_checkpoints;
  next_.admit.push_back(std::move(a));
  waiting_.erase(&s);
  s.in = phase::admitting;
  turn_.admit.push_back({.s = &s, .life = s.life, .id = s.id, .rows = rows});
}

// Blocks, beside those for its prompt, that must be free for its admission: its own output so far, and some for those
// that run, so that they do not take its cache away at once. A prompt that goes in one step may use what longer ones
// have been promised. Each loss of its cache doubles what a sequence waits for; so there are few (C2).
std::int32_t scheduler_core::room_for(const sequence& s, std::int32_t rows, std::int32_t promised) const {
  const auto reach = [&](const sequence& x) { return blocks_for(longest_length(*x.spec, limits_.max_model_len)); };
  std::int32_t room = blocks_for(s.length()) - blocks_for(s.prompt_tokens());
  if (active_.empty() && turn_.admit.empty())
    return room;
  room += static_cast<std::int32_t>(active_.size() + 7) / 8;
  if (rows < s.prompt_tokens())
    room += promised;
  if (s.preemptions > 0) {
    const std::int32_t ahead = 1 << std::min(s.preemptions - 1, 16);
    room += std::clamp(reach(s) - blocks_for(s.length()), 0, ahead);
    for (const sequence* other : active_)
      if (before{}(other, &s))
        room += std::clamp(reach(*other) - static_cast<std::int32_t>(other->blocks.size()), 0, ahead);
  }
  return room;
}

// Rows of a sequence that holds KV, as many as blocks can be had for, but no fewer than are settled; blocks for `cover`
// rows if they are free.
void scheduler_core::want_rows(sequence& s, std::int32_t rows, std::int32_t drafts, std::int32_t cover) {
  s.turn = turns_;
  if (s.computed + s.slack + std::max(rows, cover) > block_positions(s))
    rows = secure(s, rows, 1 + std::min(drafts, settled_drafts(s)), cover);
  s.wanted_rows = rows;
  if (rows == 0)
    return;
  drafts = std::min(drafts, rows - 1);
  turn_.rows.push_back({.s = &s, .life = s.life, .id = s.id, .rows = rows, .drafts = drafts});
  const std::int32_t end = s.computed + rows;
  if (s.in == phase::prefill && limits_.prefix_cache && end == next_snapshot_of(s))
    want_snapshot(s, end, false);
  if (s.in == phase::decode && keeps_outputs())
    want_decode_snapshot(s, end - drafts, end + s.slack);
}

// One is kept at a block boundary that all rows up to a step's end have certainly reached, while the boundary's window
// is certainly still in the rings.
void scheduler_core::want_decode_snapshot(sequence& s, std::int32_t lowest_end, std::int32_t highest_end) {
  const std::int32_t at = boundary_before(lowest_end);
  if (at <= s.computed && at != s.hold_at)
    return;
  if (limits_.nextn == 0 ? at < lowest_end : highest_end > at + limits_.backtracking)
    return;
  if (limits_.nextn > 0)
    s.hold_at = at;
  want_snapshot(s, at, true);
}

void scheduler_core::want_snapshot(sequence& s, std::int32_t at, bool rolling) {
  if (s.snapshot_at == at)
    return; // from a turn whose rows did not come
  next_.snapshots.push_back({s.id, at, rolling});
  turn_.snapshots.push_back({.s = &s, .life = s.life, .id = s.id});
  s.snapshot_at = at;
  s.snapshot = slot_id{};
}

std::int32_t scheduler_core::secure(sequence& s, std::int32_t rows, std::int32_t least, std::int32_t cover) {
  std::int32_t need = blocks_short(s, rows);
  while (need > free_blocks()) {
    const std::int32_t fits = covered(s) + std::max(0, free_blocks()) * tokens_per_kv_block;
    if (fits >= least) {
      rows = std::min(rows, fits);
      need = blocks_short(s, rows);
      break;
    }
    sequence* v = victim_behind(s);
    if (!v)
      return 0; // waits for those before it
    drop_cache(*v);
    ++v->preemptions;
    ++preemptions_;
    release_branches(*v);
    queue(*v);
  }
  cover = std::max(cover, rows);
  if (blocks_short(s, cover) <= free_blocks())
    need = blocks_short(s, cover);
  else
    cover = rows;
  if (need > 0) {
    free_blocks_ -= need;
    next_.grow.push_back({s.id, table_for(s, cover)});
    turn_.grow.push_back({.s = &s, .life = s.life, .id = s.id});
  }
  return rows;
}

// The last in the order of service that has no part in this turn.
scheduler_core::sequence* scheduler_core::victim_behind(const sequence& s) const {
  for (std::size_t i = active_.size(); i-- > 0 && before{}(&s, active_[i]);)
    if (active_[i]->turn != turns_ && active_[i]->in != phase::held)
      return active_[i];
  return nullptr;
}

bool scheduler_core::plan(const kv_got& got, step_plan& out, events& ev) {
  TROUPE_CHECK(turn_.open, "a plan without a turn");
  turn_.open = false;
  planned_ = {}; // what stands in the plan's vectors is written over
  out.restores.clear(), out.block_copies.clear(), out.snapshots.clear();
  out.masks.clear(), out.mask_rows.clear();
  out.arrivals.clear(), out.departures.clear(), out.image_blocks.clear();
  out.number = static_cast<std::uint64_t>(step_ + 1);
  out.kind = turn_.kind.value_or(step_kind::decode);
  flight& f = flights_[(first_flight_ + flights_out_) % 2];
  f.number = out.number;
  f.rows.clear();
  f.row_count = 0;
  expire(ev);
  if (turn_.asked) {
    free_blocks_ = got.free_blocks, free_slots_ = got.free_slots;
    take_growth(got);
    take_admissions(got, out, ev);
  }
  out.share_drafts = share_now_ = can_share();
  draft_now_ = turn_.kind == step_kind::decode ? limits_.nextn > 0 && draft_plan_.draft : drafts_behind_prompts();
  make_masks();
  for (std::size_t i = 0; i < turn_.rows.size(); ++i) {
    if (i + 2 < turn_.rows.size())
      turn_.rows[i + 2].s->fetch_row_parts();
    const demand& d = turn_.rows[i];
    const std::int32_t rows = rows_of(d);
    if (needs_masks(d, rows))
      add_masked_rows(d, rows, out, ev);
    else if (rows > 0)
      add_rows(*d.s, rows, std::min(d.drafts, rows - 1), -1, out);
  }
  out.sequences.resize(f.rows.size());
  out.tokens.resize(planned_.tokens), out.blocks.resize(planned_.blocks), out.history.resize(planned_.history);
  turn_.admit.clear();
  if (turn_.kind == step_kind::prefill)
    steps_since_prefill_ = 0; // also if none came of it: decoding goes on
  if (out.sequences.empty())
    return false;
  if (turn_.kind == step_kind::decode) {
    ++steps_since_prefill_;
    if (limits_.nextn > 0)
      note_prediction(out, f);
  }
  ++step_;
  ++flights_out_;
  return true;
}

// What the planner foretold counts for the step only if it came out as planned.
void scheduler_core::note_prediction(const step_plan& p, flight& f) const {
  f.row_count = static_cast<std::int32_t>(p.tokens.size());
  f.kv_tokens = 0;
  f.drafted = false;
  for (const planned_sequence& s : p.sequences) {
    f.kv_tokens += s.start;
    f.drafted = f.drafted || s.propose;
  }
  const bool as_planned = f.row_count == draft_plan_.total_rows && p.sequences.size() == draft_plan_.lengths.size();
  f.expected_tokens = as_planned ? draft_plan_.expected_tokens : 0;
  f.expected_ms = as_planned ? draft_plan_.expected_ms : 0;
}

void scheduler_core::take_growth(const kv_got& got) {
  TROUPE_CHECK(got.grow.size() == turn_.grow.size() && got.snapshots.size() == turn_.snapshots.size() &&
                   got.admit.size() == turn_.admit.size(),
               "an answer of the KV manager to another turn");
  for (std::size_t i = 0; i < turn_.grow.size(); ++i) {
    const auto& g = got.grow[i];
    if (current(turn_.grow[i]) && g.outcome == fit::ok)
      turn_.grow[i].s->blocks.insert(turn_.grow[i].s->blocks.end(), got.blocks.begin() + g.first,
                                     got.blocks.begin() + g.first + g.count);
  }
  for (std::size_t i = 0; i < turn_.snapshots.size(); ++i)
    if (current(turn_.snapshots[i]))
      turn_.snapshots[i].s->snapshot = got.snapshots[i];
}

void scheduler_core::take_admissions(const kv_got& got, step_plan& out, events& ev) {
  bool refused = false;
  for (std::size_t i = 0; i < turn_.admit.size(); ++i) {
    const demand& d = turn_.admit[i];
    const auto& a = got.admit[i];
    if (!current(d)) { // ended meanwhile
      if (a.outcome == fit::ok)
        next_.release.push_back(d.id);
    } else if (d.reserve) {
      reserve(*d.s, a, got, ev);
      refused = refused || a.outcome != fit::ok;
    } else if (a.outcome == fit::ok) {
      admit(*d.s, d, a, got, out);
    } else {
      refuse(*d.s, a, !refused, d.fork, ev);
      refused = true;
    }
  }
}

void scheduler_core::reserve(sequence& s, const kv_got::admitted& a, const kv_got& got, events& ev) {
  if (a.outcome != fit::ok)
    return end_with(s, a.outcome == fit::never ? "no_space" : "no_room",
                    a.outcome == fit::never ? "the KV pool can never hold it"
                                            : "there are no free KV blocks for its prompt at the moment",
                    ev);
  s.in = phase::held;
  take_table(s, a, got);
  sequence_event e = event_of(s);
  e.handoff = handoff_news::reserved;
  ev.push_back(std::move(e));
}

void scheduler_core::take_table(sequence& s, const kv_got::admitted& a, const kv_got& got) {
  s.slot = a.slot;
  s.output.reserve(static_cast<std::size_t>(longest_length(*s.spec, limits_.max_model_len) - s.prompt_tokens()));
  s.blocks.reserve(static_cast<std::size_t>(blocks_for(longest_length(*s.spec, limits_.max_model_len))));
  s.blocks.assign(got.blocks.begin() + a.first, got.blocks.begin() + a.first + a.count);
  active_.insert(std::lower_bound(active_.begin(), active_.end(), &s, before{}), &s);
}

void scheduler_core::admit(sequence& s, const demand& d, const kv_got::admitted& a, const kv_got& got, step_plan& out) {
  s.in = phase::prefill;
  take_table(s, a, got);
  s.computed = a.computed;
  s.parts_at = a.parts_at;
  if (!d.fork)
    s.published = a.computed / tokens_per_kv_block;
  s.committed = d.fork ? s.published * tokens_per_kv_block : a.computed;
  s.snapshot = a.snapshot;
  s.snapshot_at = a.snapshot_at;
  s.refused_since = 0;
  if (s.preemptions == 0)
    s.cached = a.computed;
  if (a.restore_from.value != 0)
    out.restores.push_back({a.restore_from, s.slot});
  if (a.copy_from.value != 0)
    out.block_copies.push_back({a.copy_from, s.blocks[static_cast<std::size_t>(a.computed / tokens_per_kv_block)]});
  TROUPE_CHECK(s.computed < s.prompt_tokens() && covered(s) > 0, "an admission without a row");
  turn_.rows.push_back({.s = &s, .life = s.life, .id = s.id, .rows = d.rows});
}

void scheduler_core::refuse(sequence& s, const kv_got::admitted& a, bool first, bool fork, events& ev) {
  const std::int64_t since = s.refused_since;
  const bool alone = active_.empty() && next_.release.empty() && first;
  s.depends_on = 0;
  const std::int64_t waits_since = s.waits_since;
  queue(s);
  s.waits_since = waits_since, s.refused_since = since;
  if (!fork && (a.outcome == fit::never || alone)) {
    end_with(s, "no_space", "the KV pool can never hold it", ev);
    return;
  }
  if (!first || fork)
    return;
  if (s.refused_since == 0)
    s.refused_since = step_ + 1;
  s.asked_at = step_;
}

// Whether rows that end there draw the newest token once more, of which an earlier life had drafts (exactness.md §8).
bool scheduler_core::draws_newest_again(const sequence& s, std::int32_t end) const {
  return !s.output.empty() && s.computed < end && end == s.length() - 1 && proposes(s, end);
}

std::int32_t scheduler_core::rows_of(const demand& d) const {
  if (!current(d))
    return 0;
  if (d.s->in == phase::decode && d.s->computed + d.s->slack + d.rows <= std::min(block_positions(*d.s), d.s->reach))
    return d.rows; // as it is nearly always
  const std::int32_t rows = std::min(d.rows, covered(*d.s));
  if (rows < d.rows && settled_drafts(*d.s) > 0)
    return 0;
  return d.s->in == phase::prefill ? std::min(rows, chunk_end(*d.s) - d.s->computed) : rows;
}

// Whether these rows of a demand draw under a constraint.
bool scheduler_core::needs_masks(const demand& d, std::int32_t rows) const {
  return rows > 0 && d.s->constrained() && draws(*d.s, d.s->computed + rows - std::min(d.drafts, rows - 1));
}

// Of sequences that could get a place now and have none yet.
void scheduler_core::make_first_masks() {
  masks_.clear();
  if (constrained_ == 0)
    return;
  candidates_.clear();
  std::int32_t left = places();
  const auto look_at = [&](sequence& s) {
    if (needs_first_masks(s) && s.window == nullptr) {
      candidates_.push_back(&s);
      masks_.want(*s.matcher, {});
    }
    left -= s.waits_for_masks() ? 0 : 1; // those that wait keep nobody else from a place
  };
  for (auto at = forks_.begin(); at != forks_.end() && left > 0; ++at)
    look_at(**at);
  for (auto at = waiting_.begin(); at != waiting_.end() && left > 0; ++at)
    look_at(**at);
  masks_.make();
  for (std::size_t i = 0; i < candidates_.size(); ++i)
    candidates_[i]->window = masks_.late(i) ? masks_.make_later(*candidates_[i]->matcher, {}) : masks_.keep(i);
}

// Of those that decode, for the rows that they get.
void scheduler_core::make_masks() {
  masks_.clear();
  if (constrained_ == 0)
    return;
  for (demand& d : turn_.rows) {
    const std::int32_t rows = rows_of(d);
    if (needs_masks(d, rows) && d.s->window == nullptr)
      d.mask = static_cast<std::int32_t>(masks_.want(
          *d.s->matcher, std::span(d.s->drafts).first(static_cast<std::size_t>(std::min(d.drafts, rows - 1)))));
  }
  masks_.make();
}

// So many rows of a demand that draw under a constraint, as far as there are masks for them.
void scheduler_core::add_masked_rows(const demand& d, std::int32_t rows, step_plan& out, events& ev) {
  sequence& s = *d.s;
  const std::int32_t drafts = std::min(d.drafts, rows - 1);
  const auto first_mask = static_cast<std::int32_t>(out.mask_rows.size());
  const std::optional<std::int32_t> masked = put_masks(d, drafts, out);
  if (!masked)
    return;
  if (*masked == 0) {
    end_with(s, "so_too_complex", too_complex_to_follow, ev);
    return;
  }
  // By rejection a row with its mask verifies the draft behind it, even if that one has none.
  const std::int32_t verified = limits_.rejection ? std::min(drafts, *masked) : *masked - 1;
  if (verified == *masked)
    out.mask_rows.push_back(-1);
  add_rows(s, rows - (drafts - verified), verified, first_mask, out);
  flights_[(first_flight_ + flights_out_) % 2].rows.back().masked = *masked;
}

// The masks behind its newest token and its drafts, as many of these as there are masks for. Returns the number of rows
// that have theirs, 0 if the newest token's cannot be made; nothing if they are too much work: then it is left out of
// this step, and of others until they are made.
std::optional<std::int32_t> scheduler_core::put_masks(const demand& d, std::int32_t drafts, step_plan& out) {
  sequence& s = *d.s;
  const auto rows = static_cast<std::size_t>(drafts) + 1;
  const auto mask = static_cast<std::size_t>(d.mask); // of none: not looked at
  if (d.mask >= 0 && masks_.late(mask)) {
    s.window = masks_.make_later(*s.matcher, std::span(s.drafts).first(rows - 1));
    return std::nullopt;
  }
  if (d.mask >= 0)
    return static_cast<std::int32_t>(masks_.put(mask, out));
  if (s.waits_for_masks())
    return std::nullopt;
  const std::shared_ptr<mask_window> window = std::move(s.window);
  const std::size_t masked = step_masks::put(*window, rows, out);
  *s.matcher = std::move(window->matcher);
  return static_cast<std::int32_t>(masked);
}

// A plan that is made again has mostly the sequences that it had before, in the same places.
planned_sequence& scheduler_core::planned_at(std::size_t index, step_plan& out) {
  return index < out.sequences.size() ? out.sequences[index] : out.sequences.emplace_back();
}

void scheduler_core::add_rows(sequence& s, std::int32_t rows, std::int32_t drafts, std::int32_t first_mask,
                              step_plan& out) {
  const std::int32_t start = s.computed, end = start + rows - drafts, prompt = s.prompt_tokens();
  flight& flown_now = flights_[(first_flight_ + flights_out_) % 2];
  planned_sequence& p = planned_at(flown_now.rows.size(), out);
  if (p.spec != s.spec) // the counts of owners are shared by threads: not touched without need
    p.spec = s.spec;
  p.slot = s.slot;
  p.start = start;
  p.slack = s.slack;
  p.rows = rows;
  p.drafts = drafts;
  p.limit = limits_.nextn > 0 && s.in == phase::decode ? s.reach : 0;
  p.first_token = static_cast<std::int32_t>(planned_.tokens);
  p.first_block = static_cast<std::int32_t>(planned_.blocks);
  const std::int32_t verifiable = shares(s) ? limits_.nextn : drafts; // that the device may verify
  p.blocks = table_for(s, rows - drafts + verifiable);
  p.history = static_cast<std::int32_t>(planned_.history);
  const bool draw = draws(s, end), again = drafts_again(s, end);
  p.sample = draw || again;
  p.first_mask = first_mask;
  p.propose = p.sample && proposes(s, end);
  p.next = again || end < prompt ? s.token(end) : -1;
  add_tokens(s, p, out);

  flown& f =
      flown_now.rows.emplace_back(flown{&s, s.life, start, s.slack, rows - drafts + verifiable, verifiable, draw});
  if (s.share != sequence_share::whole)
    add_images(s, end, f, out);
  if (s.snapshot_at > 0 || limits_.nextn > 0)
    f.fills = take_snapshot(s, end, start + s.slack + f.rows, out);
  const bool left_branches = start + s.slack > prompt + fork_slack(); // it let them go when it came there
  s.computed = end;
  s.slack += verifiable;
  s.unresolved += draw;
  s.drafted = p.propose;
  if (limits_.nextn > 0)
    s.confidences.schedule();
  s.last_step = step_ + 1;
  if (end >= prompt)
    s.in = phase::decode;
  if (left_branches)
    return;
  if (s.computed + s.slack > prompt + fork_slack()) {
    if (!s.branches.empty())
      release_branches(s); // there was no place for them in time, or behind an image rows of the output came along
  } else if (start < prompt && end >= prompt) {
    forks_.insert(forks_.end(), s.branches.begin(), s.branches.end());
  }
}

// What leaves with these rows: blocks that are full for good, with the last row the rest. What arrived goes in with the
// first ones.
void scheduler_core::add_images(sequence& s, std::int32_t end, flown& f, step_plan& out) {
  const auto add_blocks = [&](std::int32_t from, std::int32_t to) {
    const auto first = static_cast<std::int32_t>(out.image_blocks.size());
    for (std::int32_t b = from; b < to; ++b)
      out.image_blocks.push_back(s.blocks[static_cast<std::size_t>(b)].value);
    return first;
  };
  if (s.image) {
    const std::int32_t blocks = blocks_for(s.prompt_tokens() - 1);
    out.arrivals.push_back({add_blocks(0, blocks), blocks, s.slot, std::move(s.image)});
    s.image.reset();
  }
  if (s.share != sequence_share::prompt)
    return;
  const bool last = end == s.prompt_end();
  const std::int32_t full = std::max(s.departing, last ? blocks_for(end) : end / tokens_per_kv_block);
  if (full == s.departing && !last)
    return;
  f.departure = static_cast<std::int32_t>(out.departures.size());
  f.departed = full;
  out.departures.push_back({add_blocks(s.departing, full), full - s.departing, last ? s.slot : slot_id{}});
  s.departing = full;
}

bool scheduler_core::drafts_behind_prompts() {
  std::int64_t kv_tokens = 0;
  for (const sequence* s : active_)
    kv_tokens += s->computed;
  return planner_.drafts_behind_prompt(static_cast<std::int32_t>(active_.size()), kv_tokens);
}

// A block behind the token that is drawn at `end` is of use if a draft may lie there and the result is not fixed
// anyway. Sequences that give out logits have each row computed once.
bool scheduler_core::proposes(const sequence& s, std::int32_t end) const {
  return draft_now_ && end + 1 < s.reach && s.spec->logit_rows.empty() &&
         end - s.prompt_tokens() + 1 >= s.ends.golden_tokens();
}

void scheduler_core::add_tokens(const sequence& s, const planned_sequence& p, step_plan& out) {
  std::int32_t* token = next_places(out.tokens, planned_.tokens, p.rows);
  const std::int32_t first_draft = p.start + p.rows - p.drafts, known = s.length();
  for (std::int32_t position = p.start; position < first_draft; ++position)
    *token++ = position < known ? s.token(position) : token_in_flight;
  if (s.host_paced)
    std::copy_n(s.drafts.begin(), p.drafts, token);
  else
    std::fill_n(token, p.drafts, draft_in_flight);

  static_assert(sizeof(block_id) == sizeof(std::int32_t) && std::is_trivially_copyable_v<block_id>);
  std::memcpy(next_places(out.blocks, planned_.blocks, p.blocks), s.blocks.data(),
              sizeof(std::int32_t) * static_cast<std::size_t>(p.blocks));

  std::int32_t* before = next_places(out.history, planned_.history, limits_.history);
  const std::int32_t first = p.start - limits_.history;
  if (p.slack > 0)
    std::fill_n(before, limits_.history, -1);
  else if (const std::int32_t in_output = first - s.prompt_tokens(); in_output >= 0)
    for (std::int32_t i = 0; i < limits_.history; ++i)
      before[i] = s.output[static_cast<std::size_t>(in_output + i)];
  else
    for (std::int32_t i = 0; i < limits_.history; ++i)
      before[i] = first + i >= 0 ? s.token(first + i) : -1;
}

// Where the step's rows end is known to a range. Returns where it fills a snapshot that publishing waits for, or 0.
std::int32_t scheduler_core::take_snapshot(sequence& s, std::int32_t lowest_end, std::int32_t highest_end,
                                           step_plan& out) {
  const std::int32_t at = s.snapshot_at;
  std::int32_t fills = 0;
  if (at > 0 && lowest_end >= at && highest_end <= at + limits_.backtracking) {
    if (s.snapshot.value != 0)
      out.snapshots.push_back({s.slot, s.snapshot});
    if (s.hold_at == at) { // without a slot nothing waits for it any more
      if (s.snapshot.value != 0)
        fills = s.filling = at;
      s.hold_at = 0;
    }
    s.snapshot_at = 0;
    s.snapshot = slot_id{};
  }
  if (limits_.nextn > 0 && s.in == phase::decode && keeps_outputs() && boundary_before(highest_end) > lowest_end)
    s.hold_at = boundary_before(highest_end);
  return fills;
}

} // namespace troupe
