#include "runtime/experts/migration.hpp"
#include "runtime/base/check.hpp"
#include <algorithm>
#include <utility>

namespace troupe {

namespace {

std::size_t index(std::int32_t i) {
  return static_cast<std::size_t>(i);
}

// The same table [layers, slots] for more slots.
template <class T>
std::vector<T> widened(const std::vector<T>& table, std::int32_t layers, std::size_t slots, T empty) {
  const std::size_t before = layers == 0 ? slots : table.size() / index(layers);
  std::vector<T> out(index(layers) * slots, empty);
  for (std::size_t layer = 0; layer < index(layers); ++layer)
    std::copy_n(table.begin() + static_cast<std::ptrdiff_t>(layer * before), std::min(before, slots),
                out.begin() + static_cast<std::ptrdiff_t>(layer * slots));
  return out;
}

} // namespace

migration::migration(const migration_settings& settings, expert_ranks group)
    : settings_(settings), group_(std::move(group)), ranks_(group_.live.size()),
      copies_at_once_(settings.copies_per_rank * group_.ranks()) {}

migration::migration(const migration_settings& settings, expert_ranks group, shared_placement current)
    : migration(settings, std::move(group)) {
  newest_ = std::move(current);
  wanted_ = *newest_;
  given_up_.resize(newest_->expert_of.size());
  written_.resize(newest_->expert_of.size());
  for (rank_state& r : ranks_)
    r.acked = r.quiesced = r.settled = newest_->version;
}

migration migration::take_over(const migration_settings& settings, expert_ranks group, std::int64_t now,
                               migration_orders& out) {
  migration m(settings, std::move(group));
  m.phase_ = phase::recovering;
  for (rank_state& r : m.ranks_)
    r.published_at = now - settings.retry_ms;
  m.tick(now, out);
  return m;
}

// ---- what is where

std::size_t migration::cell(std::int32_t layer, std::int32_t slot) const {
  return index(layer) * index(group_.slots()) + index(slot);
}

bool migration::live_cell(std::size_t c) const {
  return group_.is_live(static_cast<std::int32_t>(c % index(group_.slots())));
}

std::uint64_t migration::floor() const {
  std::uint64_t lowest = newest_->version;
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (group_.live[r])
      lowest = std::min(lowest, ranks_[r].quiesced);
  return lowest;
}

std::vector<std::int32_t> migration::counts(const std::vector<std::int32_t>& table, std::int32_t layer) const {
  std::vector<std::int32_t> n(index(newest_->experts));
  for (std::int32_t s = 0; s < group_.slots(); ++s)
    if (const std::int32_t e = table[cell(layer, s)]; e >= 0 && group_.is_live(s))
      ++n[index(e)];
  return n;
}

migration::task* migration::task_of(std::int32_t layer, std::int32_t slot) {
  for (task& t : tasks_)
    if (t.move.layer == layer && t.move.slot == slot)
      return &t;
  return nullptr;
}

migration::task* migration::copying(std::int32_t rank, std::uint64_t mig) {
  for (task& t : tasks_)
    if (t.at == stage::copying && t.mig == mig && group_.rank_of(t.move.slot) == rank)
      return &t;
  return nullptr;
}

bool migration::on_its_way(std::int32_t layer, std::int32_t expert) const {
  return std::any_of(tasks_.begin(), tasks_.end(), [&](const task& t) {
    return t.move.layer == layer && t.move.to == expert && (t.at == stage::copying || t.at == stage::ready);
  });
}

bool migration::covers() const {
  if (phase_ == phase::recovering)
    return false;
  for (std::int32_t layer = 0; layer < newest_->layers; ++layer) {
    const auto n = counts(newest_->expert_of, layer);
    if (std::find(n.begin(), n.end(), 0) != n.end())
      return false;
  }
  return true;
}

bool migration::in_force() const {
  if (phase_ == phase::recovering)
    return false;
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (group_.live[r] && ranks_[r].acked < newest_->version)
      return false;
  return true;
}

// ---- plans

bool migration::start(const expert_placement& wanted, std::int64_t now, migration_orders& out) {
  if (!idle() || !covers() || wanted.expert_of.size() != newest_->expert_of.size())
    return false;
  wanted_ = wanted;
  plan();
  if (!queue_.empty())
    phase_ = phase::moving;
  advance(now, out);
  return true;
}

// Experts that `wanted_` names nowhere get a slot: an empty one, else one of the expert with the most copies.
void migration::cover_wanted(const std::vector<std::int32_t>& base) {
  for (std::int32_t layer = 0; layer < wanted_.layers; ++layer) {
    auto n = counts(wanted_.expert_of, layer);
    for (std::int32_t e = 0; e < wanted_.experts; ++e) {
      if (n[index(e)] > 0)
        continue;
      std::int32_t best = -1;
      const auto value = [&](std::int32_t s) { // more copies of what would go; -1: cannot be spared
        const std::int32_t x = wanted_.expert_of[cell(layer, s)];
        const std::int32_t spare = x < 0 ? wanted_.experts + group_.slots() : n[index(x)] - 1;
        return spare <= 0 ? -1 : 2 * spare + (base[cell(layer, s)] == e); // a slot that has it needs no move
      };
      for (std::int32_t s = 0; s < group_.slots(); ++s)
        if (group_.is_live(s) && value(s) >= 0 && (best < 0 || value(s) > value(best)))
          best = s;
      if (best < 0)
        break; // fewer slots than experts: the rest stays lost until ranks come
      std::int32_t& there = wanted_.expert_of[cell(layer, best)];
      if (there >= 0)
        --n[index(there)];
      there = e;
      n[index(e)] = 1;
    }
  }
}

// What is left to do, from where all begun moves will have led.
void migration::plan() {
  expert_placement later = *newest_;
  for (std::size_t c = 0; c < later.expert_of.size(); ++c)
    if (!live_cell(c))
      later.expert_of[c] = wanted_.expert_of[c] = -1;
  for (const task& t : tasks_)
    later.expert_of[cell(t.move.layer, t.move.slot)] = t.move.to;
  cover_wanted(later.expert_of);
  auto moves = plan_moves(later, wanted_, group_);
  if (!moves) { // what is left of the group has no room for turning around: only what is missing
    wanted_ = later;
    cover_wanted(later.expert_of);
    moves = plan_moves(later, wanted_, group_);
    TROUPE_CHECK(static_cast<bool>(moves), "experts cover what is lost without turning around");
  }
  queue_.assign(moves->begin(), moves->end());
}

void migration::extend_to_group() {
  expert_placement p = *newest_;
  if (p.ranks >= group_.ranks())
    return;
  const std::size_t slots = index(group_.slots());
  given_up_ = widened(given_up_, p.layers, slots, {});
  written_ = widened(written_, p.layers, slots, {});
  p.expert_of = widened(p.expert_of, p.layers, slots, -1);
  p.ranks = group_.ranks();
  wanted_.expert_of = widened(wanted_.expert_of, p.layers, slots, -1);
  wanted_.ranks = group_.ranks();
  newest_ = std::make_shared<expert_placement>(std::move(p));
}

void migration::grow(const expert_ranks& group, std::int64_t now, migration_orders& out) {
  TROUPE_CHECK(group.ranks() >= group_.ranks() && group.slots_per_rank == group_.slots_per_rank, "a group that grows");
  const auto before = ranks_.size();
  for (std::size_t r = before; r < group.live.size(); ++r) {
    group_.live.push_back(group.live[r]);
    group_.node_of.push_back(group.node_of[r]);
    ranks_.emplace_back();
    ranks_.back().published_at = now - settings_.retry_ms;
    copies_at_once_ += settings_.copies_per_rank;
  }
  if (phase_ == phase::recovering)
    return tick(now, out);
  for (std::size_t r = before; r < ranks_.size(); ++r)
    ranks_[r].quiesced = newest_->version;
  extend_to_group();
  plan();
  urgent_ = true;
  phase_ = phase::moving;
  advance(now, out);
}

void migration::died(std::int32_t rank, std::int64_t now, migration_orders& out) {
  if (rank < 0 || index(rank) >= ranks_.size() || !group_.live[index(rank)])
    return;
  group_.live[index(rank)] = false;
  if (phase_ == phase::recovering)
    return finish_recovery(now, out);
  std::erase_if(tasks_, [&](const task& t) { return group_.rank_of(t.move.slot) == rank; });
  for (task& t : tasks_)
    if (t.at == stage::copying && t.source >= 0 && group_.rank_of(t.source) == rank)
      t.at = stage::waiting; // not the move's fault: no attempt is counted
  urgent_ = true;
  phase_ = phase::moving;
  advance(now, out);
}

// ---- take-over

void migration::reported(const slot_report& report, std::int64_t now, migration_orders& out) {
  if (report.rank < 0 || index(report.rank) >= ranks_.size() || !group_.live[index(report.rank)])
    return;
  if (phase_ == phase::recovering) {
    ranks_[index(report.rank)].report = report;
    return finish_recovery(now, out);
  }
  // A rank audited its slots: what proved wrong is named no longer.
  bool damaged = false;
  expert_placement p = *newest_;
  for (std::size_t i = 0; i < report.slots.size(); ++i) {
    const auto local = static_cast<std::int32_t>(i);
    const std::size_t c =
        cell(local / group_.slots_per_rank, report.rank * group_.slots_per_rank + local % group_.slots_per_rank);
    if (report.slots[i].state != slot_state::lost || report.slots[i].mig != written_[c] || p.expert_of[c] < 0)
      continue;
    p.expert_of[c] = -1;
    given_up_[c] = {-1, newest_->version + 1};
    damaged = true;
  }
  if (!damaged)
    return;
  newest_ = std::make_shared<expert_placement>(std::move(p)); // never sent under this number
  urgent_ = true;
  phase_ = phase::moving;
  advance(now, out);
}

void migration::finish_recovery(std::int64_t now, migration_orders& out) {
  const slot_report* newest = nullptr;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (!group_.live[r])
      continue;
    if (!ranks_[r].report)
      return;
    if (!newest || ranks_[r].report->placement->version > newest->placement->version)
      newest = &*ranks_[r].report;
  }
  if (!newest)
    return; // nobody lives
  expert_placement p = *newest->placement;
  given_up_.assign(p.expert_of.size(), {});
  written_.assign(p.expert_of.size(), 0);
  newest_ = std::make_shared<expert_placement>(p);
  wanted_ = p;
  extend_to_group();
  p = *newest_;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (!group_.live[r])
      continue;
    const std::vector<expert_slot>& slots = ranks_[r].report->slots;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const auto local = static_cast<std::int32_t>(i), each = group_.slots_per_rank;
      const std::size_t c = cell(local / each, static_cast<std::int32_t>(r) * each + local % each);
      written_[c] = slots[i].mig;
      next_mig_ = std::max(next_mig_, slots[i].mig + 1);
      if (serves(slots[i]) && slots[i].expert == p.expert_of[c])
        continue;
      p.expert_of[c] = -1;
      if (slots[i].state != slot_state::empty) // an older version that somebody runs may name it
        given_up_[c] = {serves(slots[i]) ? slots[i].expert : -1, p.version + 1};
    }
    ranks_[r].quiesced = ranks_[r].report->quiesced;
    ranks_[r].report.reset();
  }
  newest_ = std::make_shared<expert_placement>(std::move(p));
  wanted_ = *newest_;
  urgent_ = true;
  phase_ = phase::moving;
  advance(now, out);
}

// ---- answers

void migration::published(std::int32_t rank, std::uint64_t version, std::uint64_t quiesced_version, std::int64_t now,
                          migration_orders& out) {
  if (phase_ == phase::recovering || rank < 0 || index(rank) >= ranks_.size() || version > newest_->version)
    return;
  ranks_[index(rank)].acked = std::max(ranks_[index(rank)].acked, version);
  quiesced(rank, quiesced_version, now, out);
}

void migration::quiesced(std::int32_t rank, std::uint64_t version, std::int64_t now, migration_orders& out) {
  if (phase_ == phase::recovering || rank < 0 || index(rank) >= ranks_.size() || version > newest_->version)
    return;
  ranks_[index(rank)].quiesced = std::max(ranks_[index(rank)].quiesced, version);
  advance(now, out);
}

void migration::copied(std::int32_t rank, std::uint64_t mig, std::int64_t now, migration_orders& out) {
  task* t = copying(rank, mig);
  if (!t)
    return;
  t->at = stage::ready;
  advance(now, out);
}

void migration::copy_failed(std::int32_t rank, std::uint64_t mig, std::int64_t now, migration_orders& out) {
  task* t = copying(rank, mig);
  if (!t)
    return;
  attempt_failed(static_cast<std::size_t>(t - tasks_.data()), now);
  advance(now, out);
}

void migration::settled(std::int32_t rank, std::uint64_t as_of, std::int64_t now, migration_orders& out) {
  if (phase_ == phase::recovering || rank < 0 || index(rank) >= ranks_.size() || as_of != newest_->version)
    return;
  ranks_[index(rank)].settled = as_of;
  advance(now, out);
}

void migration::step_time(double ms) {
  const auto running = static_cast<std::int32_t>(
      std::count_if(tasks_.begin(), tasks_.end(), [](const task& t) { return t.at == stage::copying; }));
  if (running == 0)
    quiet_step_ms_ = quiet_step_ms_ == 0 ? ms : 0.9 * quiet_step_ms_ + 0.1 * ms;
  else if (quiet_step_ms_ > 0 && ms > settings_.slow_step * quiet_step_ms_)
    copies_at_once_ = std::max(1, running / 2);
  else
    copies_at_once_ = std::min(copies_at_once_ + 1, settings_.copies_per_rank * group_.ranks());
}

void migration::attempt_failed(std::size_t i, std::int64_t now) {
  task& t = tasks_[i];
  t.tried.push_back(t.source);
  t.at = stage::waiting;
  if (++t.attempts < settings_.max_sources)
    return;
  const auto n = counts(newest_->expert_of, t.move.layer);
  if (n[index(t.move.to)] == 0) { // lost: there is nothing better than another try
    t.attempts = 0;
    t.tried.clear();
    t.since = now + settings_.retry_ms;
    return;
  }
  ++totals_.failed;
  wanted_.expert_of[cell(t.move.layer, t.move.slot)] = -1;
  tasks_.erase(tasks_.begin() + static_cast<std::ptrdiff_t>(i));
  plan();
}

// ---- what follows

void migration::tick(std::int64_t now, migration_orders& out) {
  if (phase_ == phase::recovering) {
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      if (group_.live[r] && !ranks_[r].report && now - ranks_[r].published_at >= settings_.retry_ms) {
        ranks_[r].published_at = now;
        out.queries.push_back(static_cast<std::int32_t>(r));
      }
    return;
  }
  for (std::size_t i = tasks_.size(); i-- > 0;)
    if (i < tasks_.size() && tasks_[i].at == stage::copying && now - tasks_[i].since >= settings_.copy_timeout_ms)
      attempt_failed(i, now);
  advance(now, out);
  repeat_orders(now, out);
}

void migration::advance(std::int64_t now, migration_orders& out) {
  if (phase_ != phase::moving)
    return;
  if (urgent_ || now - versioned_at_ >= settings_.publish_interval_ms)
    make_version(now, out);
  const std::uint64_t quiet = floor();
  for (task& t : tasks_)
    if (t.at == stage::vacating && t.version <= quiet)
      t.at = stage::waiting;
  start_copies(now, out);
  settle(now, out);
}

// Copies of experts that would be lost, in slots that versions gave up and nobody has overwritten.
void migration::regain(std::vector<std::int32_t>& next) {
  for (std::int32_t layer = 0; layer < newest_->layers; ++layer) {
    auto n = counts(next, layer);
    for (std::int32_t s = 0; s < group_.slots(); ++s) {
      given_up& g = given_up_[cell(layer, s)];
      if (g.version == 0 || g.expert < 0 || n[index(g.expert)] > 0 || !group_.is_live(s))
        continue;
      next[cell(layer, s)] = g.expert;
      n[index(g.expert)] = 1;
      g = {};
      std::erase_if(tasks_, [&](const task& t) { return t.move.layer == layer && t.move.slot == s; });
    }
  }
}

// The next version: what is ready, without what shall be overwritten next.
void migration::make_version(std::int64_t now, migration_orders& out) {
  std::vector<std::int32_t> next = newest_->expert_of;
  const std::uint64_t version = newest_->version + 1;
  for (std::size_t c = 0; c < next.size(); ++c)
    if (!live_cell(c))
      next[c] = -1, given_up_[c] = {};
  std::erase_if(tasks_, [&](const task& t) {
    if (t.at != stage::ready)
      return false;
    totals_.recovered += counts(next, t.move.layer)[index(t.move.to)] == 0;
    next[cell(t.move.layer, t.move.slot)] = t.move.to;
    ++totals_.moved;
    return true;
  });
  if (urgent_) { // ranks died or came
    regain(next);
    expert_placement p = *newest_;
    p.expert_of = next;
    const shared_placement before = std::exchange(newest_, std::make_shared<expert_placement>(std::move(p)));
    plan();
    newest_ = before;
  }
  while (!queue_.empty() && begin_move(queue_.front(), next, version))
    queue_.pop_front();
  if (!urgent_ && next == newest_->expert_of)
    return;
  urgent_ = false;
  versioned_at_ = now;
  ++totals_.versions;
  for (rank_state& r : ranks_)
    r.settled_at.reset();
  expert_placement p = *newest_;
  p.version = version;
  p.expert_of = std::move(next);
  newest_ = std::make_shared<expert_placement>(std::move(p));
  for (std::int32_t r = 0; r < group_.ranks(); ++r)
    if (group_.live[index(r)])
      send_newest(r, now, out);
}

// Moves begin in their order, which is what makes a plan safe; false: this one has to wait.
bool migration::begin_move(const expert_move& m, std::vector<std::int32_t>& next, std::uint64_t version) {
  const std::size_t c = cell(m.layer, m.slot);
  const auto on_rank = std::count_if(tasks_.begin(), tasks_.end(), [&](const task& t) {
    return group_.rank_of(t.move.slot) == group_.rank_of(m.slot);
  });
  if (task_of(m.layer, m.slot) || next[c] != m.from || on_rank >= 2 * settings_.copies_per_rank)
    return false;
  if (newest_->expert_of[c] != next[c])
    return false; // what this version begins to name, a later one gives up
  if (m.from >= 0) {
    if (counts(next, m.layer)[index(m.from)] < 2)
      return false;
    given_up_[c] = {m.from, version};
    next[c] = -1;
  }
  if (m.to >= 0)
    tasks_.push_back({m, stage::vacating, given_up_[c].version});
  return true;
}

bool migration::choose_source(task& t, const std::vector<std::int32_t>& serving) const {
  std::vector<std::int32_t> holders;
  bool busy = false;
  for (std::int32_t s = 0; s < group_.slots(); ++s)
    if (newest_->expert_of[cell(t.move.layer, s)] == t.move.to && group_.is_live(s) &&
        std::find(t.tried.begin(), t.tried.end(), s) == t.tried.end()) {
      if (serving[index(group_.rank_of(s))] < settings_.copies_per_rank ||
          group_.rank_of(s) == group_.rank_of(t.move.slot))
        holders.push_back(s);
      else
        busy = true;
    }
  t.source = source_slot(holders, group_.rank_of(t.move.slot), group_, serving);
  if (t.source >= 0)
    return true;
  return !busy && !on_its_way(t.move.layer, t.move.to); // then the backup store
}

void migration::start_copies(std::int64_t now, migration_orders& out) {
  std::vector<std::int32_t> writing(ranks_.size()), serving(ranks_.size());
  std::vector<bool> read(given_up_.size());
  std::int32_t running = 0;
  const auto count = [&](const task& t) {
    ++running;
    ++writing[index(group_.rank_of(t.move.slot))];
    if (t.source >= 0) {
      ++serving[index(group_.rank_of(t.source))];
      read[cell(t.move.layer, t.source)] = true;
    }
  };
  for (const task& t : tasks_)
    if (t.at == stage::copying)
      count(t);
  for (task& t : tasks_) {
    const std::size_t c = cell(t.move.layer, t.move.slot);
    const std::int32_t rank = group_.rank_of(t.move.slot);
    if (t.at != stage::waiting || now < t.since || running >= copies_at_once_ || read[c] ||
        writing[index(rank)] >= settings_.copies_per_rank || !choose_source(t, serving))
      continue; // read[c]: somebody still copies out of this slot
    t.at = stage::copying;
    t.mig = written_[c] = next_mig_++;
    t.since = t.sent = now;
    given_up_[c] = {};
    count(t);
    out.copies.push_back({rank, {t.mig, t.move.layer, t.move.slot, t.move.to, t.source, floor()}});
  }
}

void migration::send_newest(std::int32_t rank, std::int64_t now, migration_orders& out) {
  ranks_[index(rank)].published_at = now;
  out.publishes.push_back({rank, newest_});
}

void migration::repeat_orders(std::int64_t now, migration_orders& out) {
  for (std::int32_t r = 0; r < group_.ranks(); ++r) {
    const rank_state& s = ranks_[index(r)];
    if (group_.live[index(r)] && std::min(s.acked, s.quiesced) < newest_->version &&
        now - s.published_at >= settings_.retry_ms)
      send_newest(r, now, out); // its answer also says what it has quiesced
  }
  for (task& t : tasks_)
    if (t.at == stage::copying && now - t.sent >= settings_.retry_ms) {
      t.sent = now;
      out.copies.push_back(
          {group_.rank_of(t.move.slot), {t.mig, t.move.layer, t.move.slot, t.move.to, t.source, floor()}});
    }
}

// Nothing is left to do: ranks forget what no version names.
void migration::settle(std::int64_t now, migration_orders& out) {
  if (!queue_.empty() || !tasks_.empty() || urgent_ || floor() < newest_->version || !in_force())
    return;
  bool all = true;
  for (std::int32_t r = 0; r < group_.ranks(); ++r) {
    rank_state& s = ranks_[index(r)];
    if (!group_.live[index(r)] || s.settled == newest_->version)
      continue;
    all = false;
    if (s.settled_at && now - *s.settled_at < settings_.retry_ms)
      continue;
    s.settled_at = now;
    for (std::int32_t layer = 0; layer < newest_->layers; ++layer)
      for (std::int32_t i = 0; i < group_.slots_per_rank; ++i)
        given_up_[cell(layer, r * group_.slots_per_rank + i)] = {};
    out.settles.push_back({r, {newest_->version, newest_->version, next_mig_}});
  }
  if (all)
    phase_ = phase::idle;
}

} // namespace troupe
