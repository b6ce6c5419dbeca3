#include "actors/context_hosts.hpp"
#include "actors/context_sender.hpp"
#include "actors/gateway.hpp"
#include "cluster/build_id.hpp"
#include <algorithm>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <utility>

namespace troupe {

namespace {

using namespace std::chrono_literals;

constexpr auto connect_limit = 500ms; // of one attempt

// What a stranger cannot guess.
std::string new_token() {
  return fmt::format("{:016x}{:016x}", random_bits_of_system(), random_bits_of_system());
}

config_error bad_address(const context_place& p, const error& why) {
  return config_error("", "data.bind", p.tcp_address, why.message, "give an address of this host, in digits");
}

} // namespace

// In ascending order, with the rank itself.
std::vector<std::int32_t> context_hosts::ranks_beside(std::int32_t rank) const {
  std::vector<std::int32_t> beside;
  for (std::int32_t r = 0; r < place_.ranks; ++r)
    if (place_.nodes[static_cast<std::size_t>(r)] == place_.nodes[static_cast<std::size_t>(rank)])
      beside.push_back(r);
  return beside;
}

std::string context_hosts::board_name() const {
  const auto name = segment_name(segment_part(place_.cluster), segment_part(place_.node),
                                 fmt::format("cp{}.{}", place_.first, group_), "steps");
  if (!name)
    throw config_error("", "context_parallel", std::to_string(place_.ranks), name.failure().message, "see the message");
  return *name;
}

step_board context_hosts::make_board(std::size_t ranks) const {
  auto board = step_board::create(board_name(), context_steps_of(ranks));
  if (!board)
    throw config_error("", "context_parallel", std::to_string(place_.ranks), board.failure().message,
                       "see the message");
  return std::move(*board);
}

void context_hosts::lead(const std::string& shape) {
  group_ = place_.incarnation;
  shape_ = shape;
  if (const auto here = ranks_beside(0); here.size() > 1) {
    beside_ = std::make_shared<steps_by_board>(make_board(here.size() - 1));
    carriers_.push_back(beside_);
  }
  for (std::int32_t r = 1; r < place_.ranks; ++r) {
    const auto there = ranks_beside(r);
    if (there.front() != r)
      continue;
    others_.push_back({r, std::make_shared<steps_by_link>(there.size()), {}});
    carriers_.push_back(others_.back().steps);
  }
}

std::optional<std::string> context_hosts::join(const std::vector<member_entry>& known) {
  std::optional<member> first;
  for (const member_entry& e : known)
    if (e.who.role == member_role::worker && e.who.rank == place_.first && !is_over(e.state) &&
        e.who.context.group == e.who.incarnation)
      first = e.who;
  if (!first)
    return std::nullopt;
  // Each rank's place in a group is taken once, and a group that has lost a rank ends.
  for (const member_entry& e : known)
    if (e.who.context.group == first->context.group &&
        (is_over(e.state) || e.who.rank == place_.first + static_cast<std::uint32_t>(place_.rank)))
      return std::nullopt;
  group_ = first->context.group;
  return take_place() ? std::optional(first->context.shape) : std::nullopt;
}

// Where the steps arrive. False: the rank that holds the board of this host is not there yet.
bool context_hosts::take_place() {
  const auto beside = ranks_beside(place_.rank);
  const auto at = std::ranges::find(beside, place_.rank) - beside.begin();
  const bool with_first = beside.front() == 0;
  if (at == 0) {
    token_ = new_token();
    auto server = step_link_server::start({place_.tcp_address,
                                           0,
                                           {place_.cluster, place_.incarnation, token_, beside.size()},
                                           place_.limit}, // executors compute while the next commands wait
                                          make_board(beside.size()));
    if (!server)
      throw bad_address(place_, server.failure());
    server_.emplace(std::move(*server));
  }
  auto orders = step_board_executor::attach(board_name(), static_cast<std::size_t>(with_first ? at - 1 : at));
  if (!orders) {
    server_.reset();
    return false;
  }
  orders_.emplace(std::move(*orders));
  return true;
}

std::shared_ptr<meeting> context_hosts::open_meeting(const std::shared_ptr<bulk_context>& bulk) {
  meeting_links_options o;
  o.self = {fmt::format("{}.cp{}.{}", place_.cluster, place_.first, group_), static_cast<std::uint32_t>(place_.rank),
            place_.incarnation, build_id()};
  o.ranks = static_cast<std::size_t>(place_.ranks);
  o.bind = any_port_of(place_.tcp_address);
  auto made = meeting_links::start(bulk ? bulk : std::make_shared<bulk_context>(), o);
  if (!made)
    throw bad_address(place_, made.failure());
  meeting_ = std::make_shared<meeting_links>(std::move(*made));
  return meeting_;
}

std::vector<std::shared_ptr<step_carrier>> context_hosts::carriers() {
  return std::move(carriers_);
}

std::optional<step_board_executor> context_hosts::take_orders() {
  return std::exchange(orders_, std::nullopt);
}

context_entry context_hosts::entry() const {
  context_entry e{group_, shape_, meeting_->endpoint(), {}, 0, {}};
  if (server_) {
    e.steps_host = place_.tcp_address;
    e.steps_port = server_->port();
    e.token = token_;
  }
  return e;
}

void context_hosts::be_ready() {
  const std::lock_guard lock(guard_);
  ready_ = true;
}

// A view that does not name a rank says nothing of it: a new leader hears of its members one by one.
void context_hosts::hear(const view& v) {
  std::vector<bulk_peer> there;
  {
    const std::lock_guard lock(guard_);
    for (const member_entry& e : v.members) {
      const auto rank = static_cast<std::int64_t>(e.who.rank) - static_cast<std::int64_t>(place_.first);
      if (e.who.role != member_role::worker || rank < 0 || rank >= place_.ranks || rank == place_.rank || !why_.empty())
        continue;
      const auto r = static_cast<std::int32_t>(rank);
      if (e.who.context.group == group_ && is_over(e.state))
        why_ = fmt::format("rank {} is {}", r, e.state == member_state::dead ? "dead" : "gone");
      else if (e.who.context.group == group_)
        known_[r] = e.who;
      else if (!is_over(e.state) && (r == 0 || known_.contains(r)))
        why_ = fmt::format("rank {} was started anew", r);
    }
    for (const auto& [r, who] : known_)
      there.push_back({static_cast<std::uint32_t>(r), who.incarnation, who.context.meets_at, who.key});
  }
  meeting_->set_peers(there);
}

// Of rank 0: one host that is not connected, in turn, since an attempt may take its time. True: all are.
bool context_hosts::link_next() {
  const auto connected = [](const other_host& o) { return o.steps->connected(); };
  if (std::ranges::all_of(others_, connected))
    return true;
  do
    tried_ = (tried_ + 1) % others_.size();
  while (connected(others_[tried_]));
  return link_to(others_[tried_]) && std::ranges::all_of(others_, connected);
}

// To the first rank of another host. False: not yet.
bool context_hosts::link_to(other_host& o) {
  member there;
  {
    const std::lock_guard lock(guard_);
    const auto at = known_.find(o.first);
    if (at == known_.end())
      return false;
    there = at->second;
  }
  const endpoint at{there.context.steps_host, there.context.steps_port};
  const auto linked = o.steps->connect(at, {place_.cluster, there.incarnation, there.context.token}, connect_limit);
  if (linked)
    spdlog::info("event=steps_linked to={} at={}", there.name, to_string(at));
  else if (std::exchange(o.why_not, linked.failure().message) != linked.failure().message)
    spdlog::warn("event=steps_not_linked to={} why=\"{}\"", there.name, o.why_not);
  return bool(linked);
}

void context_hosts::end() {
  for (const other_host& o : others_)
    o.steps->shut();
}

std::string context_hosts::look() {
  {
    const std::lock_guard lock(guard_);
    if (!why_.empty())
      return why_;
  }
  // Ranks that end while they load: views name only those that have.
  if (beside_ && beside_->lost())
    return "a rank of this node is gone";
  for (const other_host& o : others_)
    if (o.steps->lost())
      return fmt::format("rank {} is gone: the link that takes its node the steps is lost", o.first);
  const bool linked = link_next();
  if (server_ && server_->lost())
    return "rank 0 is gone: the link that brings its steps is lost";
  if (const std::string why = server_ ? server_->failure() : ""; !why.empty())
    return "the steps of this node: " + why;
  {
    const std::lock_guard lock(guard_);
    if (!ready_ || !linked || std::exchange(told_ready_, true))
      return {};
  }
  meeting_->be_ready();
  return {};
}

} // namespace troupe
