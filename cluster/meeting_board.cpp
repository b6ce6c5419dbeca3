#include "cluster/meeting_board.hpp"
#include "cluster/wake_word.hpp"
#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

namespace troupe {

namespace {

constexpr std::uint64_t board_magic = 0x31'7465'656d'2d72; // "r-meet1"
constexpr std::size_t greeting_max = 4096, reason_max = 512, ranks_max = 1024, turns = 2;
constexpr std::chrono::milliseconds look_every{20}; // for the death of other ranks

enum board_state : std::uint32_t { running, being_written, ended };

// Shared memory begins with this, then come the ranks' slots, then their places.
struct board_control {
  std::uint64_t magic = 0;
  std::uint64_t ranks = 0, place_bytes = 0, greeting_bytes = 0;
  wake_word changed; // everyone sleeps here
  std::atomic<std::uint32_t> ending{running};
  std::array<char, reason_max> reason{};
  std::array<char, greeting_max> greeting{};
};

struct rank_slot {
  alignas(64) std::atomic<std::uint64_t> came{0}; // meetings ever
  std::array<std::uint64_t, turns> number{};
  std::atomic<std::uint32_t> ready{0};
  alignas(64) shared_end end;
};

constexpr std::size_t rounded(std::size_t n) {
  return (n + 63) / 64 * 64;
}

// Where things lie in the segment.
struct board_view {
  std::byte* memory = nullptr;
  std::size_t ranks = 0, place_bytes = 0;

  static constexpr std::size_t slots = rounded(sizeof(board_control));
  std::size_t places() const { return slots + ranks * rounded(sizeof(rank_slot)); }
  std::size_t bytes() const { return places() + ranks * turns * rounded(place_bytes); }
  board_control& control() const { return *reinterpret_cast<board_control*>(memory); }
  rank_slot& slot(std::size_t rank) const {
    return *reinterpret_cast<rank_slot*>(memory + slots + rank * rounded(sizeof(rank_slot)));
  }
  std::span<std::byte> place(std::size_t rank, std::uint64_t turn) const {
    return {memory + places() + (rank * turns + turn % turns) * rounded(place_bytes), place_bytes};
  }
};

bool allowed(std::size_t ranks, std::size_t place_bytes) {
  return ranks >= 1 && ranks <= ranks_max && place_bytes <= (std::size_t{1} << 30);
}

} // namespace

struct meeting_board::state {
  state(shared_memory m, const board_view& v, std::size_t r)
      : memory(std::move(m)), view(v), rank(r),
        greeting(v.control().greeting.data(), std::min(v.control().greeting_bytes, std::uint64_t{greeting_max})) {}

  shared_memory memory;
  board_view view;
  std::size_t rank;
  std::string greeting;
  std::uint64_t met = 0; // meetings that this rank has come to

  bool over() const { return view.control().ending.load(std::memory_order_seq_cst) != running; }
  bool all_came(std::uint64_t meeting) const {
    for (std::size_t r = 0; r < view.ranks; ++r)
      if (view.slot(r).came.load(std::memory_order_seq_cst) < meeting)
        return false;
    return true;
  }
  std::string missing(std::uint64_t meeting) const {
    std::string who;
    for (std::size_t r = 0; r < view.ranks; ++r)
      if (view.slot(r).came.load(std::memory_order_seq_cst) < meeting)
        who += (who.empty() ? "" : ", ") + std::to_string(r);
    return who;
  }
  error reason() const {
    const board_control& c = view.control();
    if (c.ending.load(std::memory_order_seq_cst) != ended) // whoever ended it has not written why, or died over it
      return {"ended", "a rank has ended the group"};
    return {"ended", std::string(c.reason.data(), ::strnlen(c.reason.data(), reason_max))};
  }
  void end(const std::string& why) const {
    board_control& c = view.control();
    std::uint32_t before = running;
    if (!c.ending.compare_exchange_strong(before, being_written, std::memory_order_seq_cst))
      return;
    std::memcpy(c.reason.data(), why.data(), std::min(why.size(), reason_max));
    c.ending.store(ended, std::memory_order_seq_cst);
    c.changed.wake();
  }
  // Ends the board if a rank that was there is gone.
  void look_for_the_dead() const {
    for (std::size_t r = 0; r < view.ranks; ++r) {
      const shared_end& e = view.slot(r).end;
      if (r != rank && e.gone())
        return end("rank " + std::to_string(r) + " is " + (e.left() ? "gone" : "dead"));
    }
  }
};

meeting_board::meeting_board(std::unique_ptr<state> s) : state_(std::move(s)) {}
meeting_board::meeting_board(meeting_board&&) noexcept = default;
meeting_board& meeting_board::operator=(meeting_board&&) noexcept = default;

meeting_board::~meeting_board() {
  if (state_ == nullptr)
    return;
  state_->view.slot(state_->rank).end.leave();
  state_->view.control().changed.wake();
}

result<meeting_board> meeting_board::create(const std::string& name, const meeting_board_options& o) {
  if (!allowed(o.ranks, o.place_bytes) || o.greeting.size() > greeting_max)
    return error{"bad_options", "meeting board " + name + ": 1 to " + std::to_string(ranks_max) +
                                    " ranks, places of at most 1 GiB and a greeting of at most " +
                                    std::to_string(greeting_max) + " bytes are allowed"};
  board_view view{nullptr, o.ranks, o.place_bytes};
  auto memory = shared_memory::create(name, view.bytes());
  if (!memory)
    return memory.failure();
  view.memory = memory->data();
  auto* control = new (view.memory) board_control;
  control->ranks = o.ranks;
  control->place_bytes = o.place_bytes;
  control->greeting_bytes = o.greeting.size();
  std::memcpy(control->greeting.data(), o.greeting.data(), o.greeting.size());
  for (std::size_t r = 0; r < o.ranks; ++r)
    new (&view.slot(r)) rank_slot;
  (void)view.slot(0).end.take();
  std::atomic_ref(control->magic).store(board_magic, std::memory_order_release); // now it may be attached to
  return meeting_board(std::make_unique<state>(std::move(*memory), view, 0));
}

result<meeting_board> meeting_board::attach(const std::string& name, std::size_t rank) {
  auto memory = shared_memory::open(name);
  if (!memory)
    return memory.failure();
  const error bad{"bad_segment",
                  "/dev/shm/" + name + ": no finished meeting board with a rank " + std::to_string(rank)};
  if (memory->size() < sizeof(board_control))
    return bad;
  auto* control = reinterpret_cast<board_control*>(memory->data());
  if (std::atomic_ref(control->magic).load(std::memory_order_acquire) != board_magic ||
      !allowed(control->ranks, control->place_bytes) || rank >= control->ranks)
    return bad;
  const board_view view{memory->data(), control->ranks, control->place_bytes};
  if (memory->size() < view.bytes())
    return bad;
  shared_end& end = view.slot(rank).end;
  if (end.taken())
    return error{"in_use", "/dev/shm/" + name + ": rank " + std::to_string(rank) + " has been process " +
                               std::to_string(end.pid()) + "; a new one needs a new board"};
  if (const auto taken = end.take(); !taken)
    return taken.failure();
  return meeting_board(std::make_unique<state>(std::move(*memory), view, rank));
}

std::size_t meeting_board::rank() const {
  return state_->rank;
}
std::size_t meeting_board::ranks() const {
  return state_->view.ranks;
}
const std::string& meeting_board::greeting() const {
  return state_->greeting;
}

void meeting_board::be_ready() {
  state_->view.slot(state_->rank).ready.store(1, std::memory_order_seq_cst);
}

bool meeting_board::all_ready() const {
  for (std::size_t r = 0; r < state_->view.ranks; ++r)
    if (state_->view.slot(r).ready.load(std::memory_order_seq_cst) == 0)
      return false;
  return true;
}

std::size_t meeting_board::place_bytes() const {
  return state_->view.place_bytes;
}

std::span<std::byte> meeting_board::mine(std::size_t bytes) {
  return state_->view.place(state_->rank, state_->met).first(std::min(bytes, place_bytes()));
}

std::span<const std::byte> meeting_board::shown(std::size_t rank) const {
  return state_->view.place(rank, state_->met - 1);
}

status meeting_board::meet(std::uint64_t number, std::chrono::nanoseconds limit) {
  state& s = *state_;
  if (s.over())
    return s.reason();
  rank_slot& own = s.view.slot(s.rank);
  const std::uint64_t turn = s.met % turns, count = ++s.met;
  own.number[turn] = number;
  own.came.store(count, std::memory_order_seq_cst);
  board_control& control = s.view.control();
  control.changed.wake();
  const auto start = std::chrono::steady_clock::now();
  const auto complete = [&] { return s.all_came(count); };
  while (!control.changed.wait(
      [&] { return complete() || s.over(); },
      std::min<std::chrono::nanoseconds>(limit - (std::chrono::steady_clock::now() - start), look_every))) {
    s.look_for_the_dead();
    if (!complete() && std::chrono::steady_clock::now() - start >= limit)
      s.end("ranks " + s.missing(count) + " of " + std::to_string(s.view.ranks) + " did not come within " +
            std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(limit).count()) + " ms");
  }
  if (!complete())
    return s.reason();
  for (std::size_t r = 0; r < s.view.ranks; ++r)
    if (const std::uint64_t other = s.view.slot(r).number[turn]; other != number) {
      s.end("the ranks do different things (" + std::to_string(other) + " and " + std::to_string(number) + ")");
      return s.reason();
    }
  return nothing{};
}

void meeting_board::end(const std::string& why) {
  state_->end(why.empty() ? "unknown reason" : why);
}

std::optional<error> meeting_board::failure() {
  if (!state_->over())
    state_->look_for_the_dead();
  if (!state_->over())
    return std::nullopt;
  return state_->reason();
}

} // namespace troupe
