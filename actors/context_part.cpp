#include "actors/context_part.hpp"
#include "actors/context_follower.hpp"
#include "actors/context_processes.hpp"
#include "actors/context_sender.hpp"
#include "cluster/meeting_board.hpp"
#include <charconv>
#include <utility>

namespace troupe {

namespace {

using namespace std::chrono_literals;

constexpr auto look_every = 50ms;                                     // at whether the group has ended
constexpr std::size_t place_bytes = std::size_t{1} << 20;             // that a rank shows at once
constexpr std::string_view meeting_end = "meet", steps_end = "steps"; // of segments' names

// "kv_blocks snapshots model"
std::string text_of(const context_shape& s) {
  return std::to_string(s.kv_blocks) + " " + std::to_string(s.snapshots) + " " + s.model;
}

std::optional<context_shape> shape_of(const std::string& text) {
  context_shape s;
  const char *at = text.data(), *const end = at + text.size();
  for (std::int32_t* n : {&s.kv_blocks, &s.snapshots}) {
    const auto [next, why] = std::from_chars(at, end, *n);
    if (why != std::errc{} || next == end || *next != ' ')
      return std::nullopt;
    at = next + 1;
  }
  s.model.assign(at, end);
  return s;
}

std::string group_of(const context_place& p) {
  return "cp" + std::to_string(p.first) + ".";
}

config_error no_group(const context_place& p, const error& why) {
  return {"", "context_parallel", std::to_string(p.ranks), why.message, "see the message"};
}

} // namespace

context_part::context_part(const context_place& place) : place_(place) {
  if (place.on_several_nodes())
    hosts_ = std::make_unique<context_hosts>(place);
}

context_part::~context_part() {
  stop();
}

void context_part::lead(const context_shape& shape) {
  shape_ = shape;
  if (hosts_) {
    hosts_->lead(text_of(shape));
    carriers_ = hosts_->carriers();
    return;
  }
  const auto name = [&](std::string_view what) {
    const auto n = segment_name(segment_part(place_.cluster), segment_part(place_.node),
                                group_of(place_) + std::to_string(place_.incarnation), what);
    if (!n)
      throw no_group(place_, n.failure());
    return *n;
  };
  // Who finds the place to meet finds the steps, too.
  auto board = step_board::create(name(steps_end), context_steps_of(static_cast<std::size_t>(place_.ranks - 1)));
  if (!board)
    throw no_group(place_, board.failure());
  auto place =
      meeting_board::create(name(meeting_end), {static_cast<std::size_t>(place_.ranks), place_bytes, text_of(shape)});
  if (!place)
    throw no_group(place_, place.failure());
  carriers_.push_back(std::make_shared<steps_by_board>(std::move(*board)));
  board_ = std::make_shared<meeting_board>(std::move(*place));
}

bool context_part::join(const std::vector<member_entry>& known) {
  if (hosts_) {
    const auto text = hosts_->join(known);
    const auto shape = text ? shape_of(*text) : std::nullopt;
    if (!shape)
      return false;
    shape_ = *shape;
    orders_ = hosts_->take_orders();
    return true;
  }
  const std::string prefix = segment_prefix(place_.cluster, place_.node) + group_of(place_);
  const auto rank = static_cast<std::size_t>(place_.rank);
  for (const std::string& name : list_segments(prefix)) {
    if (!name.ends_with("-" + std::string(meeting_end)))
      continue;
    auto place = meeting_board::attach(name, rank);
    if (!place || place->failure() || place->ranks() != static_cast<std::size_t>(place_.ranks))
      continue;
    const auto shape = shape_of(place->greeting());
    auto orders = step_board_executor::attach(name.substr(0, name.size() - meeting_end.size()) + std::string(steps_end),
                                              rank - 1);
    if (!shape || !orders)
      continue;
    shape_ = *shape;
    board_ = std::make_shared<meeting_board>(std::move(*place));
    orders_.emplace(std::move(*orders));
    return true;
  }
  return false;
}

std::unique_ptr<context_group> context_part::make_group() {
  if (hosts_)
    board_ = hosts_->open_meeting(bulk_);
  return std::make_unique<context_processes>(board_, place_.limit, [this](const std::string& why) { fail(why); });
}

std::shared_ptr<step_engine> context_part::make_sender(std::shared_ptr<step_engine> own) {
  return std::make_shared<context_sender>(std::move(own), std::exchange(carriers_, {}), place_.limit,
                                          [this](const std::string& why) { fail(why); });
}

context_entry context_part::entry() const {
  return hosts_ ? hosts_->entry() : context_entry{};
}

void context_part::hear(const view& v) {
  if (hosts_)
    hosts_->hear(v);
}

void context_part::start(std::function<void(const std::string&)> on_lost, std::shared_ptr<step_engine> follower) {
  {
    const std::lock_guard lock(guard_);
    on_lost_ = std::move(on_lost);
    if (!why_.empty() && on_lost_)
      std::exchange(on_lost_, nullptr)(why_);
  }
  if (follower)
    follower_ = std::thread([this, own = std::move(follower)] { follow(own); });
  watcher_ = std::thread([this] { watch(); });
}

void context_part::be_ready() {
  if (hosts_)
    hosts_->be_ready();
  else
    board_->be_ready();
}

bool context_part::able() const {
  const std::lock_guard lock(guard_);
  return why_.empty() && board_->all_ready();
}

void context_part::stop() {
  {
    const std::lock_guard lock(guard_);
    on_lost_ = nullptr;
    stopping_ = true;
  }
  changed_.notify_all();
  if (board_)
    end("rank " + std::to_string(place_.rank) + " ends"); // a step that this one waits in, too
  for (std::thread* t : {&watcher_, &follower_})
    if (t->joinable())
      t->join();
}

void context_part::end(const std::string& why) {
  board_->end(why);
  if (hosts_)
    hosts_->end(); // a follower that cannot be reached would be waited for
}

void context_part::fail(const std::string& why) {
  end(why);
  const std::lock_guard lock(guard_);
  if (!why_.empty())
    return;
  why_ = why;
  if (on_lost_)
    std::exchange(on_lost_, nullptr)(why);
}

void context_part::watch() {
  std::unique_lock lock(guard_);
  while (!stopping_ && why_.empty()) {
    lock.unlock();
    const auto ended = board_->failure(); // first: by then it may have been told why something is lost
    if (const std::string why = ended ? ended->message : hosts_ ? hosts_->look() : ""; !why.empty())
      fail(why);
    lock.lock();
    changed_.wait_for(lock, look_every, [&] { return stopping_; });
  }
}

void context_part::follow(std::shared_ptr<step_engine> own) {
  context_follower follower(std::move(own), std::move(*orders_));
  for (;;) {
    {
      const std::lock_guard lock(guard_);
      if (stopping_ || !why_.empty())
        return;
    }
    if (const std::string why = follower.turn(); !why.empty())
      return fail("context-parallel rank " + std::to_string(place_.rank) + ": " + why);
    steps_taken_ = follower.steps();
  }
}

} // namespace troupe
