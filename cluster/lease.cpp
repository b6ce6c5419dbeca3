#include "cluster/lease.hpp"
#include "runtime/base/noise.hpp"
#include <algorithm>
#include <functional>
#include <utility>

namespace troupe {

namespace {

bool raise(remembered_epochs& to, const remembered_epochs& from) {
  const remembered_epochs before = to;
  to.mepoch = std::max(to.mepoch, from.mepoch);
  if (!from.config_hash.empty())
    to.config_hash = from.config_hash;
  return !(to == before);
}

} // namespace

// ---- voter

lease_voter::lease_voter(node_id node, const lease_settings& settings, const std::optional<voter_state>& kept,
                         std::int64_t now)
    : node_(node), settings_(settings), state_(kept.value_or(voter_state{})), granted_until_(now + settings.lease_ms),
      granted_(kept && kept->candidate != candidate_id{}) {}

lease_voter::answer lease_voter::ask(const lease_request& request, std::int64_t now) {
  const bool renewal = request.term == state_.term && request.candidate == state_.candidate && request.term > 0;
  if (request.lease_ms <= 0) { // given back: nobody leads by it
    if (renewal) {
      granted_ = false;
      state_.candidate = {};
    }
    return {{false, state_.term, request.round, node_, 0, state_.known}, renewal};
  }
  const bool free = !granted_ || now >= granted_until_;
  answer a{{false, state_.term, request.round, node_, free ? 0 : granted_until_ - now, state_.known}, false};
  if (!renewal && !(request.term > state_.term && free))
    return a;
  unwritten_ = unwritten_ || !renewal; // a renewal may follow a grant that could not be written
  a.write_first = unwritten_;
  a.reply.granted = true;
  a.reply.term = state_.term = request.term;
  a.reply.remaining_ms = 0;
  state_.candidate = request.candidate;
  granted_ = true;
  granted_until_ = std::max(granted_until_, now + request.lease_ms); // an old renewal shortens nothing
  return a;
}

bool lease_voter::note(const remembered_epochs& known) {
  return raise(state_.known, known);
}

// ---- candidate

lease_candidate::lease_candidate(candidate_id self, std::vector<node_id> voters, const lease_settings& settings,
                                 std::uint64_t seed, std::int64_t now)
    : self_(self), voters_(std::move(voters)), settings_(settings), seed_(seed) {
  try_at_ = now + (voters_.size() > 1 ? jitter(settings_.renew_ms / 4) : 0);
}

std::int64_t lease_candidate::jitter(std::int64_t range) {
  const auto draw = philox(seed_, static_cast<std::uint32_t>(draws_++), 0x4c454153, 0, 0).w[0];
  return range <= 0 ? 0 : static_cast<std::int64_t>(draw % static_cast<std::uint64_t>(range));
}

void lease_candidate::step_down(std::int64_t until) {
  role_ = role::standing_by;
  votes_.clear();
  try_at_ = until;
  give_back_ = true;
}

void lease_candidate::begin_round(std::int64_t now) {
  ++round_;
  round_at_ = now;
  answered_.clear();
  refused_.clear();
}

void lease_candidate::send_round(std::int64_t now, requests& out) {
  sent_at_ = now;
  for (const node_id voter : voters_)
    if (!answered_[voter])
      out.push_back({voter, {term_, round_, self_, settings_.lease_ms}});
}

void lease_candidate::tick(std::int64_t now, requests& out) {
  leads(now);
  if (role_ == role::standing_by) {
    if (std::exchange(give_back_, false))
      for (const node_id voter : voters_)
        out.push_back({voter, {term_, round_, self_, 0}});
    if (now < try_at_)
      return;
    role_ = role::asking;
    term_ = ++highest_term_; // above every term that it heard of
    refused_until_ = now;
    begin_round(now);
    return send_round(now, out);
  }
  if (now - round_at_ >= settings_.renew_ms) {
    if (role_ == role::asking) // no majority in time
      return step_down(std::max(now, refused_until_) + jitter(settings_.lease_ms));
    begin_round(now);
    return send_round(now, out);
  }
  if (now - sent_at_ >= settings_.renew_ms / 4) // lost, perhaps
    send_round(now, out);
}

void lease_candidate::reply(const lease_reply& r, std::int64_t now) {
  raise(known_, r.known);
  highest_term_ = std::max(highest_term_, r.term);
  if (role_ == role::standing_by || std::find(voters_.begin(), voters_.end(), r.voter) == voters_.end())
    return;
  if (role_ == role::asking && r.term > term_)
    return step_down(now + r.remaining_ms + jitter(settings_.lease_ms)); // somebody leads, or tries to
  if (r.round != round_)
    return; // of an earlier round: when it was asked for is not known any more
  answered_[r.voter] = true;
  if (!r.granted) {
    refused_.insert(r.voter);
    refused_until_ = std::max(refused_until_, now + r.remaining_ms);
    if (role_ == role::asking && refused_.size() > (voters_.size() - 1) / 2) // no majority any more
      step_down(refused_until_ + jitter(settings_.lease_ms));
    return;
  }
  votes_[r.voter] = {round_at_, true};
  if (const auto since = held_since();
      role_ == role::asking && since && now < *since + settings_.lease_ms - settings_.guard_ms)
    role_ = role::leading;
}

// A grant counts from when it was asked for: the voter's lease began later.
std::optional<std::int64_t> lease_candidate::held_since() const {
  std::vector<std::int64_t> asked;
  for (const auto& [voter, v] : votes_)
    if (v.granted)
      asked.push_back(v.asked_at);
  const std::size_t majority = voters_.size() / 2 + 1;
  if (asked.size() < majority)
    return std::nullopt;
  std::sort(asked.begin(), asked.end(), std::greater<>());
  return asked[majority - 1];
}

std::int64_t lease_candidate::leads_until() const {
  const auto since = held_since();
  return role_ == role::leading && since ? *since + settings_.lease_ms - settings_.guard_ms : 0;
}

bool lease_candidate::leads(std::int64_t now) {
  if (role_ != role::leading)
    return false;
  if (now < leads_until())
    return true;
  step_down(now + settings_.guard_ms + jitter(settings_.lease_ms));
  return false;
}

} // namespace troupe
