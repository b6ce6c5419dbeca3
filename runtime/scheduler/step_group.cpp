#include "runtime/scheduler/step_group.hpp"
#include <algorithm>

namespace troupe {

step_group::step_group(const step_group_settings& settings, std::uint32_t epoch, std::uint64_t first)
    : settings_(settings), epoch_(epoch), next_(first), allowed_(settings.deadline_ticks) {}

step_group::member* step_group::find(rank_id rank) {
  const auto at =
      std::lower_bound(members_.begin(), members_.end(), rank, [](const member& m, rank_id r) { return m.rank < r; });
  return at != members_.end() && at->rank == rank ? &*at : nullptr;
}

std::vector<rank_id> step_group::members() const {
  std::vector<rank_id> ids;
  for (const member& m : members_)
    ids.push_back(m.rank);
  return ids;
}

bool step_group::complete() const {
  return std::all_of(members_.begin(), members_.end(), [](const member& m) { return m.intent.has_value(); });
}

bool step_group::idle() const {
  return complete() && std::none_of(members_.begin(), members_.end(), [](const member& m) {
           return m.intent->wishes.prefill || m.intent->wishes.decode;
         });
}

void step_group::intent(const rank_intent& intent, group_orders& out) {
  member* m = find(intent.rank);
  if (m == nullptr || intent.epoch != epoch_ || intent.step != next_ ||
      (m->intent && m->intent->revision >= intent.revision))
    return;
  m->intent = intent;
  m->quiet = 0;
  decide(out);
}

void step_group::heartbeat(rank_id from, std::uint32_t epoch) {
  if (member* m = find(from); m != nullptr && epoch == epoch_)
    m->quiet = 0;
}

// From now on every member owes its next intent, within so many ticks.
void step_group::await(std::int32_t ticks) {
  waited_ = 0;
  allowed_ = ticks;
  for (member& m : members_) {
    m.intent.reset();
    m.quiet = 0;
  }
}

void step_group::join(rank_id rank, group_orders& out) {
  std::erase(leaving_, rank);
  if (find(rank) == nullptr && std::find(joining_.begin(), joining_.end(), rank) == joining_.end())
    joining_.push_back(rank);
  decide(out);
}

void step_group::leave(rank_id rank, group_orders& out) {
  std::erase(joining_, rank);
  if (find(rank) != nullptr && std::find(leaving_.begin(), leaving_.end(), rank) == leaving_.end())
    leaving_.push_back(rank);
  decide(out);
}

void step_group::lost(rank_id rank, group_orders& out) {
  std::erase(joining_, rank);
  if (find(rank) != nullptr)
    form({{rank, true}}, out);
}

void step_group::decide(group_orders& out) {
  if (!complete())
    return;
  if (!joining_.empty() || !leaving_.empty())
    return form({}, out);
  wishes_.clear();
  std::int32_t useful = 1;
  bool prefill = false;
  for (const member& m : members_) {
    wishes_.push_back(m.intent->wishes);
    useful = std::max(useful, m.intent->decode_steps);
    prefill |= m.intent->wishes.prefill;
  }
  const std::optional<step_kind> kind = decide_step(wishes_, settings_.rule);
  if (!kind)
    return;
  step_decision d{.epoch = epoch_, .first = next_, .steps = 1, .kind = *kind};
  if (!prefill)
    d.steps = std::min(useful, std::max(settings_.decode_run, 1));
  next_ += static_cast<std::uint64_t>(d.steps);
  await(settings_.deadline_ticks * d.steps);
  out.decisions.push_back(d);
}

void step_group::tick(group_orders& out) {
  if (complete())
    return;
  ++waited_;
  for (member& m : members_)
    ++m.quiet;
  std::vector<group_view::culprit> named = culprits();
  if (!named.empty())
    form(std::move(named), out);
}

// Who holds up the group: ranks that are not heard; if all are, and a step takes twice as long as it may, whoever is
// late.
std::vector<group_view::culprit> step_group::culprits() const {
  std::vector<group_view::culprit> named;
  for (const member& m : members_)
    if (m.quiet >= settings_.deadline_ticks)
      named.push_back({m.rank, true});
  if (named.empty() && waited_ >= 2 * allowed_)
    for (const member& m : members_)
      if (!m.intent)
        named.push_back({m.rank, false});
  return named;
}

void step_group::form(std::vector<group_view::culprit> culprits, group_orders& out) {
  group_view v{
      .epoch = ++epoch_, .first = next_, .members = {}, .left = std::move(leaving_), .culprits = std::move(culprits)};
  for (const group_view::culprit& c : v.culprits)
    if (std::find(v.left.begin(), v.left.end(), c.rank) == v.left.end())
      v.left.push_back(c.rank);
  std::sort(v.left.begin(), v.left.end());
  std::erase_if(members_, [&](const member& m) { return std::binary_search(v.left.begin(), v.left.end(), m.rank); });
  for (const rank_id r : joining_)
    members_.push_back({.rank = r, .intent = {}});
  std::sort(members_.begin(), members_.end(), [](const member& a, const member& b) { return a.rank < b.rank; });
  v.members = members();
  leaving_.clear();
  joining_.clear();
  await(2 * settings_.deadline_ticks); // a step may be under way
  out.views.push_back(std::move(v));
}

// --- a rank ----------------------------------------------------------------------------------------------------------

step_member::change step_member::view(const group_view& view) {
  if (view.epoch <= epoch_)
    return change::none;
  epoch_ = view.epoch;
  const bool was = member_;
  member_ = std::binary_search(view.members.begin(), view.members.end(), rank_);
  sent_ = false;
  const bool finish = was && view.culprits.empty(); // steps under way can be finished
  if (!finish) {
    known_.clear();
    started_ = done_ = view.first;
  }
  decided_ = view.first;
  if (was && !member_)
    return change::expelled;
  return was && !finish ? change::aborted : change::formed;
}

void step_member::decision(const step_decision& decision) {
  // The coordinator decides only on this rank's intent for the very step, so that nothing can come too early.
  if (!member_ || decision.epoch != epoch_ || decision.first != decided_)
    return;
  known_.push_back(decision);
  decided_ += static_cast<std::uint64_t>(decision.steps);
  sent_ = false;
}

std::optional<step_member::step> step_member::start() {
  if (known_.empty() || started_ - done_ >= 2)
    return std::nullopt;
  const step_decision& d = known_.front();
  const step next{d.epoch, started_++, d.kind};
  if (started_ == d.first + static_cast<std::uint64_t>(d.steps))
    known_.erase(known_.begin());
  return next;
}

bool step_member::finished(std::uint64_t number) {
  if (number != done_ || done_ == started_)
    return false;
  ++done_;
  return true;
}

std::optional<rank_intent> step_member::intent(const step_intent& wishes, std::int32_t decode_steps, bool changed) {
  if (!member_ || decided_ - done_ > 1 || (sent_ && !changed))
    return std::nullopt;
  sent_ = true;
  return rank_intent{.rank = rank_,
                     .epoch = epoch_,
                     .step = decided_,
                     .revision = ++revision_,
                     .wishes = wishes,
                     .decode_steps = decode_steps};
}

} // namespace troupe
