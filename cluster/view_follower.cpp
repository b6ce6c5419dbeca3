#include "cluster/view_follower.hpp"
#include <algorithm>
#include <utility>

namespace troupe {

ack_code view_follower::take_command(const stamp& s) {
  if (s.term < term_)
    return ack_code::stale_term;
  term_ = s.term;
  const std::uint64_t mepoch = applied_ ? applied_->mepoch : 0;
  return s.mepoch < mepoch ? ack_code::stale_epoch : ack_code::ok;
}

ack_code view_follower::take_data(rank_id from, incarnation_t incarnation, std::uint64_t epoch) const {
  const view_member* m = applied_ ? applied_->member(from) : nullptr;
  if (!m)
    return ack_code::unknown;
  if (m->info.incarnation != incarnation || m->state == member_state::dead || m->state == member_state::left)
    return ack_code::stale_epoch;
  const view_group* g = group();
  return g && epoch < g->epoch ? ack_code::stale_epoch : ack_code::ok;
}

ack_code view_follower::prepare(const view_proposal& p, std::uint64_t next_step) {
  if (p.view->mepoch <= std::max(newest_mepoch(), dismissed_))
    return ack_code::stale_epoch;
  if (prepared_ && p.view->mepoch <= prepared_->view->mepoch)
    return p.view->mepoch == prepared_->view->mepoch ? ack_code::ok : ack_code::stale_epoch;
  const view_group* g = p.view->group(group_);
  if (!p.reform && g && g->epoch == p.view->mepoch && next_step > g->first_step)
    return ack_code::wrong_state;
  if (p.reform)
    apply(decided_.size()); // their steps will not come: the reform sets the steps anew
  if (prepared_)
    dismissed_ = prepared_->view->mepoch;
  prepared_ = p;
  waiting_since_.reset();
  return ack_code::ok;
}

void view_follower::apply(std::size_t views) {
  if (views == 0)
    return;
  applied_ = decided_[views - 1];
  decided_.erase(decided_.begin(), decided_.begin() + static_cast<std::ptrdiff_t>(views));
}

void view_follower::commit(const shared_view& view) {
  if (view->mepoch <= newest_mepoch())
    return;
  const auto epoch_of = [&](const shared_view& v) {
    const view_group* g = v ? v->group(group_) : nullptr;
    return g ? g->epoch : 0;
  };
  const bool changed = epoch_of(view) != epoch_of(newest());
  if (prepared_ && prepared_->view->mepoch <= view->mepoch && (changed || !prepared_->reform)) {
    prepared_.reset(); // decided, or overtaken
    waiting_since_.reset();
  }
  decided_.push_back(view);
  if (!changed && decided_.size() == 1)
    apply(1);
}

void view_follower::abort(std::uint64_t mepoch) {
  dismissed_ = std::max(dismissed_, mepoch);
  if (!prepared_ || prepared_->view->mepoch > mepoch)
    return;
  if (prepared_->reform)
    return; // what was rolled back does not come back: the next reform follows
  prepared_.reset();
  waiting_since_.reset();
}

view_follower::permission view_follower::begin_step(std::uint64_t step, std::int64_t now) {
  const auto wait = [&] {
    if (!waiting_since_)
      waiting_since_ = now;
    return permission::wait;
  };
  if (halted())
    return wait();
  if (prepared_)
    if (const view_group* g = prepared_->view->group(group_); g && step >= g->first_step)
      return wait();
  std::size_t due = 0;
  while (due < decided_.size()) {
    const view_group* g = decided_[due]->group(group_);
    if (g && step < g->first_step)
      break;
    ++due;
  }
  apply(due);
  const view_group* g = group();
  if (g && step >= g->first_step && std::find(g->members.begin(), g->members.end(), rank_) != g->members.end())
    return permission::go;
  return prepared_ ? wait() : permission::wait; // not of this group, not yet or no more
}

std::optional<std::uint64_t> view_follower::question(std::int64_t now) {
  if (!prepared_ || !waiting_since_ || now - *waiting_since_ < settings_.commit_timeout_ms)
    return std::nullopt;
  waiting_since_ = now; // and again after as long
  return prepared_->view->mepoch;
}

view_report view_follower::report(std::uint64_t committed_step) const {
  return {rank_, incarnation_, newest(), prepared_ ? prepared_->view->mepoch : 0, halted(), committed_step};
}

} // namespace troupe
