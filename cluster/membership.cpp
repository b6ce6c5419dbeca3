#include "cluster/membership.hpp"
#include <algorithm>

namespace troupe {

namespace {

bool is_gone(member_state s) {
  return s == member_state::dead || s == member_state::left;
}

} // namespace

membership_core::membership_core(const membership_settings& settings, std::uint64_t term, std::uint64_t known_mepoch,
                                 std::int64_t now)
    : settings_(settings), term_(term), known_mepoch_(known_mepoch),
      next_mepoch_(std::max(known_mepoch + 1, term << 32 | 1)), started_(now), lead_(settings.view.lead_steps),
      detector_(settings.failure) {}

membership_core::member* membership_core::find(rank_id rank, incarnation_t incarnation) {
  const auto it = members_.find(rank);
  return it == members_.end() || it->second.info.incarnation != incarnation || is_gone(it->second.state) ? nullptr
                                                                                                         : &it->second;
}

std::optional<member_state> membership_core::state(rank_id rank) const {
  const auto it = members_.find(rank);
  if (it == members_.end())
    return std::nullopt;
  return it->second.suspect ? member_state::suspect : it->second.state;
}

// Stands, or shall stand, in its group.
bool membership_core::takes_part(const member& m) const {
  const member_state s = m.state;
  return m.info.group != no_group && !m.leaving &&
         (s == member_state::active || s == member_state::draining || (s == member_state::warming && m.ready));
}

void membership_core::set_state(member& m, member_state state, const std::string& why, membership_orders& out) {
  if (m.state == state)
    return;
  m.state = state;
  out.changes.push_back({m.info.rank, state, why});
}

void membership_core::died(member& m, const std::string& why, bool kill, std::int64_t now, membership_orders& out) {
  if (is_gone(m.state))
    return;
  const rank_id rank = m.info.rank;
  gone_.insert({rank, m.info.incarnation});
  set_state(m, member_state::dead, why, out);
  detector_.forget(rank);
  if (kill)
    out.kills.push_back({m.info.node, rank, m.info.incarnation});
  if (pending_ && (pending_->participants.contains(rank) || !broken_groups().empty()))
    give_up(now, out); // a new proposal leaves it out
  propose(now, out);
}

// ---- members

std::string membership_core::unfit(const member_info& info) const {
  if (info.build_id != settings_.build_id || info.proto != settings_.proto)
    return "build " + info.build_id + ", protocol " + std::to_string(info.proto) + " instead of " + settings_.build_id +
           ", " + std::to_string(settings_.proto) + "; install one build everywhere";
  for (const auto& [rank, m] : members_)
    if (info.group != no_group && m.info.group == info.group && !is_gone(m.state) &&
        (m.info.device_kind != info.device_kind || m.info.numerics_id != info.numerics_id))
      return "device " + info.device_kind + ", numerics " + info.numerics_id + ", but its group has " +
             m.info.device_kind + ", " + m.info.numerics_id + "; a group is of one kind";
  return {};
}

void membership_core::join(const member_info& info, const view_report& report, std::int64_t now,
                           membership_orders& out) {
  const auto refuse = [&](ack_code code, std::string why) {
    out.refusals.push_back({info.rank, info.incarnation, code, std::move(why)});
  };
  if (gone_.contains({info.rank, info.incarnation}))
    return refuse(ack_code::stale_epoch, "this process was given up; join under another rank");
  const auto it = members_.find(info.rank);
  if (it != members_.end() && it->second.info.incarnation != info.incarnation)
    return refuse(ack_code::wrong_state, "the rank belongs to another process in this term");
  if (const std::string why = unfit(info); !why.empty())
    return refuse(ack_code::version_mismatch, why);
  if (!collecting_ && report.newest && it == members_.end())
    return refuse(ack_code::stale_epoch, "its view is not this cluster's; join anew");
  const bool fresh = it == members_.end() || !it->second.reported;
  member& m = members_[info.rank];
  m.info = info;
  m.reported = true;
  m.step = std::max(m.step, report.committed_step);
  if (it == members_.end())
    out.changes.push_back({info.rank, m.state, "joined"});
  if (fresh)
    detector_.watch(info.rank, now);
  detector_.heartbeat(info.rank, report.committed_step, false, now);
  if (info.role != member_role::worker)
    set_state(m, member_state::active, "joined", out);
  if (collecting_)
    known_view(report, out);
  m.mepoch = report.newest ? std::max(m.mepoch, report.newest->mepoch) : m.mepoch;
  tell(m, report.newest ? report.newest->mepoch : 0, now, out);
  propose(now, out);
}

// The newest view, to a member that knows an older one; a lost message is all that it takes.
void membership_core::tell(member& m, std::uint64_t known, std::int64_t now, membership_orders& out) {
  if (collecting_ || !committed_ || known >= committed_->mepoch || now - m.told_at < settings_.retry_ms)
    return;
  m.told_at = now;
  out.commits.push_back({m.info.rank, committed_});
}

// What a member of an earlier leader's cluster knows. The newest committed view is where this leader begins; its
// members are waited for.
void membership_core::known_view(const view_report& report, membership_orders& out) {
  next_mepoch_ = std::max({next_mepoch_, report.prepared + 1, report.newest ? report.newest->mepoch + 1 : 0});
  if (report.halted)
    reforming_[report.rank] = report.prepared;
  if (!report.newest || (committed_ && report.newest->mepoch <= committed_->mepoch))
    return;
  committed_ = report.newest;
  for (const view_member& v : committed_->members) {
    if (is_gone(v.state)) {
      gone_.insert({v.info.rank, v.info.incarnation});
      continue;
    }
    const auto [it, fresh] = members_.try_emplace(v.info.rank);
    member& m = it->second;
    if (fresh) {
      m.info = v.info;
      m.reported = false;
      detector_.watch(v.info.rank, started_);
      detector_.link(v.info.rank, false);
    }
    if (m.info.incarnation == v.info.incarnation && v.state > m.state) // it may have gone on since that view
      set_state(m, v.state, "in the view of an earlier leader", out);
    m.ready = m.ready || m.state == member_state::active;
  }
  for (const view_group& g : committed_->groups)
    for (const rank_id rank : g.members)
      if (const auto it = members_.find(rank); it != members_.end())
        it->second.step = std::max(it->second.step, g.first_step - 1);
}

void membership_core::end_collecting(std::int64_t now, membership_orders& out) {
  if (now - started_ < settings_.collect_ms)
    return;
  if ((committed_ ? committed_->mepoch : 0) < known_mepoch_ && now - started_ < 2 * settings_.failure.dead_ms)
    return; // there is a view that nobody who reported knows: its members have the time in which they would be dead
  for (const auto& [rank, m] : members_)
    if (!m.reported && !is_gone(m.state))
      return; // it reports, or it is declared dead
  collecting_ = false;
  for (const auto& [rank, mepoch] : reforming_)
    if (const auto& m = members_.at(rank); !is_gone(m.state) && (!committed_ || mepoch > committed_->mepoch))
      halted_.insert(m.info.group);
  commit(same_view(), now, out); // the same groups under this term: everybody learns who leads
}

void membership_core::warming(rank_id rank, incarnation_t incarnation, membership_orders& out) {
  if (member* m = find(rank, incarnation); m && m->state == member_state::joining)
    set_state(*m, member_state::warming, "loads", out);
}

void membership_core::ready(rank_id rank, incarnation_t incarnation, const std::string& digest, std::int64_t now,
                            membership_orders& out) {
  member* m = find(rank, incarnation);
  if (!m || m->ready || m->info.group == no_group)
    return;
  const auto [it, first] = digest_.try_emplace(m->info.group, digest);
  if (it->second != digest) {
    out.refusals.push_back(
        {rank, incarnation, ack_code::digest_mismatch, "its self-test gave " + digest + ", its group " + it->second});
    return died(*m, "its self-test differs from its group's", true, now, out);
  }
  m->ready = true;
  if (m->state == member_state::joining)
    set_state(*m, member_state::warming, "loads", out);
  propose(now, out);
}

void membership_core::drain(rank_id rank, std::int64_t now, membership_orders& out) {
  const auto it = members_.find(rank);
  if (it == members_.end() || is_gone(it->second.state))
    return;
  set_state(it->second, member_state::draining, "shall leave", out);
  propose(now, out);
}

void membership_core::drained(rank_id rank, std::int64_t now, membership_orders& out) {
  const auto it = members_.find(rank);
  if (it == members_.end() || is_gone(it->second.state))
    return;
  it->second.leaving = true;
  propose(now, out);
}

// ---- evidence

void membership_core::heartbeat(const member_progress& p, std::int64_t now, membership_orders& out) {
  member* m = find(p.rank, p.incarnation);
  if (!m) {
    if (gone_.contains({p.rank, p.incarnation}) || !collecting_)
      out.refusals.push_back({p.rank, p.incarnation, ack_code::stale_epoch, "not a member; join"});
    return;
  }
  m->step = std::max(m->step, p.step);
  m->mepoch = std::max(m->mepoch, p.mepoch);
  detector_.heartbeat(p.rank, p.step, p.queued, now);
  tell(*m, p.mepoch, now, out);
}

void membership_core::exited(rank_id rank, incarnation_t incarnation, const std::string& how, std::int64_t now,
                             membership_orders& out) {
  if (member* m = find(rank, incarnation))
    died(*m, how, false, now, out);
}

void membership_core::link(rank_id rank, incarnation_t incarnation, bool up) {
  if (find(rank, incarnation))
    detector_.link(rank, up);
}

void membership_core::accuse(rank_id from, rank_id accused, std::uint64_t step, evidence what, std::int64_t now) {
  detector_.accuse(from, accused, step, what, now);
}

// ---- views

// Groups with a dead member, or that stand still since a reform that nobody finished.
std::set<std::uint32_t> membership_core::broken_groups() const {
  std::set<std::uint32_t> out = halted_;
  if (committed_)
    for (const view_group& g : committed_->groups)
      for (const rank_id rank : g.members)
        if (const auto it = members_.find(rank); it == members_.end() || it->second.state == member_state::dead)
          out.insert(g.group);
  return out;
}

// The committed view's groups, the members as they are now.
cluster_view membership_core::same_view() const {
  cluster_view v;
  v.term = term_;
  v.mepoch = next_mepoch_;
  if (committed_)
    v.groups = committed_->groups;
  for (const auto& [rank, m] : members_)
    v.members.push_back({m.info, m.state}); // suspicion is the leader's own affair
  return v;
}

// Planned changes of a group follow one another only when everybody has heard of the one before.
bool membership_core::all_know(const std::vector<rank_id>& ranks, std::uint64_t epoch) const {
  return std::all_of(ranks.begin(), ranks.end(), [&](rank_id r) {
    const auto it = members_.find(r);
    return it == members_.end() || is_gone(it->second.state) || it->second.mepoch >= epoch;
  });
}

// Groups that differ carry the new epoch. A reform changes broken groups only, and lets nobody in.
cluster_view membership_core::next_view(bool reform, std::set<std::uint32_t>& changed) const {
  cluster_view v = same_view();
  std::map<std::uint32_t, std::vector<rank_id>> wanted;
  for (const view_group& g : v.groups)
    wanted[g.group];
  for (const auto& [rank, m] : members_)
    if (takes_part(m))
      wanted[m.info.group].push_back(rank);
  const std::set<std::uint32_t> broken = broken_groups();
  for (const auto& [number, ranks] : wanted) {
    auto it = std::find_if(v.groups.begin(), v.groups.end(), [&](const view_group& g) { return g.group == number; });
    if (it == v.groups.end() && !reform)
      it = v.groups.insert(v.groups.end(), {number, 0, 0, {}});
    if (it == v.groups.end() || (reform ? !broken.contains(number) : it->members == ranks))
      continue;
    if (!reform && !all_know(it->members, it->epoch))
      continue;
    const std::vector<rank_id> before = it->members;
    it->members = ranks;
    if (reform)
      std::erase_if(it->members, [&](rank_id r) { return std::find(before.begin(), before.end(), r) == before.end(); });
    std::uint64_t step = it->first_step;
    for (const std::vector<rank_id>& some : {before, it->members})
      for (const rank_id r : some)
        if (const auto m = members_.find(r); m != members_.end())
          step = std::max(step, m->second.step);
    it->epoch = v.mepoch;
    it->first_step = step + (reform ? 1 : lead_);
    changed.insert(number);
  }
  std::sort(v.groups.begin(), v.groups.end(), [](const auto& a, const auto& b) { return a.group < b.group; });
  return v;
}

void membership_core::propose(std::int64_t now, membership_orders& out) {
  if (pending_ || collecting_)
    return;
  const bool reform = !broken_groups().empty();
  std::set<std::uint32_t> changed;
  cluster_view v = next_view(reform, changed);
  if (changed.empty()) {
    if (!committed_ || v.members != committed_->members)
      commit(std::move(v), now, out); // no group's steps depend on it
    return;
  }
  ++next_mepoch_;
  pending p;
  for (const std::uint32_t number : changed) {
    const view_group* before = committed_ ? committed_->group(number) : nullptr;
    for (const view_group* g : {static_cast<const view_group*>(v.group(number)), before})
      for (const rank_id rank : g ? g->members : std::vector<rank_id>{})
        if (const auto it = members_.find(rank); it != members_.end() && !is_gone(it->second.state))
          p.participants.insert(rank);
    if (reform)
      p.last_step[number] = v.group(number)->first_step - 1;
  }
  p.proposal = {std::make_shared<cluster_view>(std::move(v)), reform};
  p.since = now;
  pending_ = std::move(p);
  if (reform)
    halted_.insert(changed.begin(), changed.end());
  halt_groups(true, now);
  send_prepares(now, out);
  try_commit(now, out); // nobody may be left
}

void membership_core::halt_groups(bool halted, std::int64_t now) {
  for (const view_group& g : pending_->proposal.view->groups)
    if (g.epoch == pending_->proposal.view->mepoch)
      detector_.halt(g.group, halted, now);
}

void membership_core::send_prepares(std::int64_t now, membership_orders& out) {
  pending_->sent = now;
  for (const rank_id rank : pending_->participants)
    if (!pending_->acked.contains(rank))
      out.prepares.push_back({rank, pending_->proposal});
}

// Nobody takes the view of a proposal that was given up: its number is not used again.
void membership_core::give_up(std::int64_t now, membership_orders& out) {
  halt_groups(false, now);
  if (!pending_->proposal.reform)
    for (const rank_id rank : pending_->participants)
      out.aborts.push_back({rank, pending_->proposal.view->mepoch});
  pending_.reset();
}

void membership_core::prepared(rank_id rank, incarnation_t incarnation, std::uint64_t mepoch, ack_code code,
                               std::uint64_t committed_step, std::int64_t now, membership_orders& out) {
  member* m = find(rank, incarnation);
  if (!m || !pending_ || pending_->proposal.view->mepoch != mepoch || !pending_->participants.contains(rank))
    return;
  m->step = std::max(m->step, committed_step);
  if (code == ack_code::ok) {
    pending_->acked.insert(rank);
    if (const auto it = pending_->last_step.find(m->info.group); it != pending_->last_step.end())
      it->second = std::max(it->second, committed_step);
    return try_commit(now, out);
  }
  if (pending_->proposal.reform)
    return; // it cannot refuse for long: prepare_timeout_ms ends it
  if (code == ack_code::wrong_state)
    lead_ = std::min<std::uint64_t>(lead_ * 2, 64); // its steps are shorter than the way there
  give_up(now, out);
  propose(now, out);
}

void membership_core::covered(std::uint64_t mepoch, std::int64_t now, membership_orders& out) {
  if (!pending_ || !pending_->cover_asked || pending_->proposal.view->mepoch != mepoch)
    return;
  cluster_view v = *pending_->proposal.view;
  for (view_group& g : v.groups)
    if (const auto it = pending_->last_step.find(g.group); it != pending_->last_step.end())
      g.first_step = it->second + 1;
  commit(std::move(v), now, out);
}

void membership_core::try_commit(std::int64_t now, membership_orders& out) {
  if (!std::includes(pending_->acked.begin(), pending_->acked.end(), pending_->participants.begin(),
                     pending_->participants.end()))
    return;
  if (!pending_->proposal.reform)
    return commit(*pending_->proposal.view, now, out);
  if (pending_->cover_asked)
    return;
  pending_->cover_asked = true;
  if (pending_->participants.empty())
    return covered(pending_->proposal.view->mepoch, now, out); // nobody is left who could hold anything
  for (const auto& [group, step] : pending_->last_step)
    out.cover.push_back(group);
}

void membership_core::commit(cluster_view view, std::int64_t now, membership_orders& out) {
  if (pending_) {
    halt_groups(false, now);
    for (const auto& [group, step] : pending_->last_step)
      halted_.erase(group);
    pending_.reset();
  }
  lead_ = settings_.view.lead_steps;
  next_mepoch_ = std::max(next_mepoch_, view.mepoch + 1);
  std::set<rank_id> before, after;
  if (committed_)
    for (const view_group& g : committed_->groups)
      before.insert(g.members.begin(), g.members.end());
  for (const view_group& g : view.groups)
    after.insert(g.members.begin(), g.members.end());
  for (auto& [rank, m] : members_) {
    detector_.enter(rank, after.contains(rank) ? m.info.group : no_group, now);
    if (after.contains(rank) && m.state == member_state::warming)
      set_state(m, member_state::active, "in its group", out);
    if (m.leaving && !after.contains(rank) && !is_gone(m.state)) {
      set_state(m, member_state::left, "as planned", out);
      gone_.insert({rank, m.info.incarnation});
      detector_.forget(rank);
    }
    if (m.state == member_state::dead && before.contains(rank) && !after.contains(rank))
      out.replay.push_back(rank);
  }
  for (view_member& v : view.members)
    v.state = members_.at(v.info.rank).state;
  committed_ = std::make_shared<cluster_view>(std::move(view));
  for (auto& [rank, m] : members_)
    if (!is_gone(m.state) || before.contains(rank)) {
      m.told_at = now;
      if (m.state != member_state::dead)
        out.commits.push_back({rank, committed_});
    }
  propose(now, out);
}

void membership_core::question(rank_id rank, incarnation_t incarnation, std::uint64_t mepoch, std::int64_t now,
                               membership_orders& out) {
  if (collecting_ || !find(rank, incarnation))
    return;
  if (pending_ && pending_->proposal.view->mepoch == mepoch) {
    if (pending_->proposal.reform)
      return;
    give_up(now, out); // a step waits: undecided for so long is decided against
    return propose(now, out);
  }
  if (committed_ && committed_->mepoch >= mepoch)
    out.commits.push_back({rank, committed_}); // that view, or one that overtook it
  else
    out.aborts.push_back({rank, mepoch});
}

void membership_core::tick(std::int64_t now, membership_orders& out) {
  std::vector<failure_detector::verdict> verdicts;
  detector_.tick(now, verdicts);
  using kind = failure_detector::verdict::kind;
  for (const auto& v : verdicts) {
    const auto it = members_.find(v.rank);
    if (it == members_.end() || is_gone(it->second.state))
      continue;
    member& m = it->second;
    if (v.what == kind::suspect || v.what == kind::alive) {
      m.suspect = v.what == kind::suspect;
      out.changes.push_back({v.rank, m.suspect ? member_state::suspect : m.state, v.why});
    } else if (v.what == kind::dead || v.what == kind::stuck) {
      died(m, v.why, true, now, out);
    }
  }
  if (collecting_)
    return end_collecting(now, out);
  if (!pending_)
    return propose(now, out);
  if (now - pending_->since >= settings_.view.prepare_timeout_ms && !pending_->cover_asked) {
    if (!pending_->proposal.reform) {
      give_up(now, out);
      return propose(now, out);
    }
    const std::set<rank_id> silent = pending_->participants, heard = pending_->acked;
    for (const rank_id rank : silent) // it speaks, and does not let go of its step
      if (!heard.contains(rank))
        if (const auto it = members_.find(rank); it != members_.end())
          died(it->second, "did not prepare a reform in time", true, now, out);
    return;
  }
  if (now - pending_->sent >= settings_.retry_ms)
    send_prepares(now, out);
}

} // namespace troupe
