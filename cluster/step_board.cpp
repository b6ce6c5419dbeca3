#include "cluster/step_board.hpp"
#include "cluster/wake_word.hpp"
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace troupe {

namespace detail {

// Shared memory begins with this, then come the executors' slots, then their rings.
struct board_control {
  std::uint64_t magic = 0;
  std::uint64_t executors = 0, slot_bytes = 0, ring_bytes = 0, steps_out = 0;
  alignas(64) shared_end scheduler;
  wake_word commands; // all executors sleep here: one system call wakes them all
  wake_word answered; // the scheduler sleeps here
  struct counter {
    alignas(64) std::atomic<std::uint64_t> missing{0}; // answers to the step in this slot
  };
  std::array<counter, steps_out_max> counters;
};

struct board_slot {
  alignas(64) std::atomic<std::uint64_t> posted{0};   // commands ever; the scheduler's
  alignas(64) std::atomic<std::uint64_t> answered{0}; // answers ever; the executor's
  alignas(64) shared_end executor;
};

} // namespace detail

namespace {

using detail::board_control;
using detail::board_slot;

constexpr std::uint64_t board_magic = 0x31'6472'616f'622d; // "-board1"
constexpr std::chrono::milliseconds look_every{20};        // for the death of the other side

struct message_head {
  std::uint64_t step = 0;
  std::uint32_t bytes = 0;
  std::uint32_t in_ring = 0;
};

// Where things lie in the segment.
class board_view {
public:
  board_view() = default;
  board_view(std::byte* memory, const step_board_options& o) : memory_(memory), options_(o) {}

  static std::size_t bytes(const step_board_options& o) { return board_view(nullptr, o).ring_place(o.executors, 0); }

  board_control& control() const { return *reinterpret_cast<board_control*>(memory_); }
  board_slot& slot(std::size_t executor) const {
    return *reinterpret_cast<board_slot*>(memory_ + slot_place(executor));
  }
  std::byte* command(std::size_t executor, std::uint64_t turn) const {
    return memory_ + slot_place(executor) + sizeof(board_slot) + turn % options_.steps_out * message_bytes();
  }
  std::byte* answer(std::size_t executor, std::uint64_t turn) const {
    return command(executor, turn) + options_.steps_out * message_bytes();
  }
  std::span<std::byte> command_ring(std::size_t executor) const { return ring(executor, 0); }
  std::span<std::byte> answer_ring(std::size_t executor) const { return ring(executor, 1); }
  const step_board_options& options() const { return options_; }

private:
  static std::size_t rounded(std::size_t n) { return (n + 63) / 64 * 64; }
  std::size_t message_bytes() const { return rounded(sizeof(message_head) + options_.slot_bytes); }
  std::size_t slot_place(std::size_t executor) const {
    return rounded(sizeof(board_control)) + executor * (sizeof(board_slot) + 2 * options_.steps_out * message_bytes());
  }
  std::size_t one_ring() const { return rounded(troupe::ring_bytes(options_.ring_bytes)); }
  std::size_t ring_place(std::size_t executor, std::size_t which) const {
    return slot_place(options_.executors) + (2 * executor + which) * one_ring();
  }
  std::span<std::byte> ring(std::size_t executor, std::size_t which) const {
    return {memory_ + ring_place(executor, which), one_ring()};
  }

  std::byte* memory_ = nullptr;
  step_board_options options_;
};

bool allowed(const step_board_options& o) {
  return o.executors >= 1 && o.executors <= 1024 && o.steps_out >= 1 && o.steps_out <= steps_out_max &&
         o.slot_bytes >= 8 && o.slot_bytes <= (std::size_t{1} << 20) && o.ring_bytes >= 1024 &&
         o.ring_bytes <= (std::size_t{1} << 30);
}

// Where the bytes of a message will lie: in the slot, or in the ring if they are too many.
result<std::byte*> room_for(std::byte* slot, std::size_t slot_bytes, ring_writer& ring, std::size_t bytes,
                            std::chrono::steady_clock::time_point until) {
  if (bytes <= slot_bytes)
    return slot + sizeof(message_head);
  const auto room =
      ring.reserve(bytes, std::max(until - std::chrono::steady_clock::now(), std::chrono::nanoseconds(0)));
  return room ? result<std::byte*>(room->data()) : room.failure();
}

// There, with a note in the slot.
void put(std::byte* slot, std::size_t slot_bytes, ring_writer& ring, std::uint64_t step, byte_span bytes,
         std::byte* room) {
  const message_head head{step, static_cast<std::uint32_t>(bytes.size()), bytes.size() > slot_bytes ? 1U : 0U};
  if (!bytes.empty())
    std::memcpy(room, bytes.data(), bytes.size());
  if (head.in_ring != 0)
    ring.publish();
  std::memcpy(slot, &head, sizeof head);
}

// Out of the slot, in place, or out of the ring into `copy`. What stands in the segment is checked, not believed.
result<step_command> take(const std::byte* slot, std::size_t slot_bytes, ring_reader& ring,
                          std::vector<std::uint8_t>& copy) {
  message_head head;
  std::memcpy(&head, slot, sizeof head);
  if (head.in_ring == 0) {
    if (head.bytes > slot_bytes)
      return error{"damaged", "a slot of the step board claims " + std::to_string(head.bytes) + " bytes"};
    return step_command{head.step, {reinterpret_cast<const std::uint8_t*>(slot + sizeof head), head.bytes}};
  }
  const auto record = ring.front(std::chrono::nanoseconds{0}); // it was written before the slot
  if (!record)
    return error{"damaged", "the ring beside the step board: " + record.failure().message};
  const auto* start = reinterpret_cast<const std::uint8_t*>(record->data());
  copy.assign(start, start + record->size());
  ring.pop();
  return step_command{head.step, copy};
}

std::string list_of(const std::vector<std::size_t>& executors) {
  std::string text;
  for (const std::size_t e : executors)
    text += (text.empty() ? "" : ", ") + std::to_string(e);
  return text;
}

} // namespace

// ---- scheduler

struct step_board::state {
  state(shared_memory m, const step_board_options& options) : memory(std::move(m)), view(memory.data(), options) {}

  shared_memory memory;
  board_view view;
  std::vector<ring_writer> commands;
  std::vector<ring_reader> answers;
  std::uint64_t posted = 0;             // steps; the posting thread's
  std::vector<std::byte*> rooms;        // [executors] of the step that is being posted; likewise
  std::atomic<std::uint64_t> waited{0}; // steps whose answers were given out; the waiting thread's
  std::array<std::vector<std::vector<std::uint8_t>>, steps_out_max> large; // [turn][executor] answers out of rings
  std::array<std::vector<byte_span>, steps_out_max> given;                 // [turn][executor]

  bool all_answered(std::uint64_t turn) const {
    return view.control().counters[turn % view.options().steps_out].missing.load(std::memory_order_seq_cst) == 0;
  }
  std::vector<std::size_t> missing(std::uint64_t turn) const {
    std::vector<std::size_t> who;
    for (std::size_t e = 0; e < view.options().executors; ++e)
      if (view.slot(e).answered.load(std::memory_order_seq_cst) <= turn)
        who.push_back(e);
    return who;
  }
  bool one_died(const std::vector<std::size_t>& who) const {
    return std::ranges::any_of(who, [this](std::size_t e) { return view.slot(e).executor.gone(); });
  }
  status collect(std::uint64_t turn);
};

step_board::step_board(std::unique_ptr<state> s) : state_(std::move(s)) {}
step_board::step_board(step_board&&) noexcept = default;
step_board& step_board::operator=(step_board&&) noexcept = default;

step_board::~step_board() {
  if (state_ == nullptr)
    return;
  state_->view.control().scheduler.leave();
  state_->view.control().commands.wake();
}

result<step_board> step_board::create(const std::string& name, const step_board_options& options) {
  if (!allowed(options))
    return error{"bad_options", "step board " + name +
                                    ": 1 to 1024 executors, slots of 8 bytes to 1 MiB, rings of 1 KiB "
                                    "to 1 GiB and 1 to " +
                                    std::to_string(steps_out_max) + " steps out are allowed"};
  auto memory = shared_memory::create(name, board_view::bytes(options));
  if (!memory)
    return memory.failure();
  auto s = std::make_unique<state>(std::move(*memory), options);
  auto* control = new (s->memory.data()) board_control;
  control->executors = options.executors;
  control->slot_bytes = options.slot_bytes;
  control->ring_bytes = options.ring_bytes;
  control->steps_out = options.steps_out;
  for (std::size_t e = 0; e < options.executors; ++e) {
    new (&s->view.slot(e)) board_slot;
    make_ring(s->view.command_ring(e));
    make_ring(s->view.answer_ring(e));
    auto commands = ring_writer::attach(s->view.command_ring(e));
    auto answers = ring_reader::attach(s->view.answer_ring(e));
    if (!commands || !answers)
      return (!commands ? commands.failure() : answers.failure());
    s->commands.push_back(std::move(*commands));
    s->answers.push_back(std::move(*answers));
  }
  for (std::size_t turn = 0; turn < steps_out_max; ++turn) {
    s->large[turn].resize(options.executors);
    s->given[turn].resize(options.executors);
  }
  (void)control->scheduler.take();
  std::atomic_ref(control->magic).store(board_magic, std::memory_order_release); // now it may be attached to
  return step_board(std::move(s));
}

std::size_t step_board::executors() const {
  return state_->view.options().executors;
}

const shared_end& step_board::executor(std::size_t index) const {
  return state_->view.slot(index).executor;
}

std::vector<std::size_t> step_board::missing() const {
  return state_->missing(state_->waited.load(std::memory_order_seq_cst));
}

status step_board::post(std::uint64_t step, std::span<const byte_span> commands, std::chrono::nanoseconds limit) {
  state& s = *state_;
  const step_board_options& o = s.view.options();
  if (commands.size() != o.executors)
    return error{"bad_options",
                 std::to_string(commands.size()) + " commands for " + std::to_string(o.executors) + " executors"};
  if (s.posted - s.waited.load(std::memory_order_seq_cst) >= o.steps_out)
    return error{"busy", std::to_string(o.steps_out) + " steps are out already"};
  for (std::size_t e = 0; e < commands.size(); ++e)
    if (commands[e].size() > o.slot_bytes && commands[e].size() > s.commands[e].largest())
      return error{"too_large", "a command of " + std::to_string(commands[e].size()) + " bytes; the board takes " +
                                    std::to_string(s.commands[e].largest())};
  // Room for all first, so that nobody gets the command of a step that was not posted.
  s.rooms.resize(o.executors);
  const auto until = std::chrono::steady_clock::now() + limit;
  for (std::size_t e = 0; e < commands.size(); ++e) {
    const auto room = room_for(s.view.command(e, s.posted), o.slot_bytes, s.commands[e], commands[e].size(), until);
    if (!room)
      return error{room.failure().code == "timed_out" ? "timed_out" : "executor_gone",
                   "executor " + std::to_string(e) + ": " + room.failure().message};
    s.rooms[e] = *room;
  }
  for (std::size_t e = 0; e < commands.size(); ++e)
    put(s.view.command(e, s.posted), o.slot_bytes, s.commands[e], step, commands[e], s.rooms[e]);
  s.view.control().counters[s.posted % o.steps_out].missing.store(o.executors, std::memory_order_seq_cst);
  ++s.posted;
  for (std::size_t e = 0; e < o.executors; ++e)
    s.view.slot(e).posted.store(s.posted, std::memory_order_seq_cst);
  s.view.control().commands.wake();
  s.view.control().scheduler.beat();
  return nothing{};
}

result<std::span<const byte_span>> step_board::wait(std::uint64_t step, std::chrono::nanoseconds limit,
                                                    spin_time spin) {
  state& s = *state_;
  const std::uint64_t turn = s.waited.load(std::memory_order_seq_cst);
  message_head head;
  const bool out = s.view.slot(0).posted.load(std::memory_order_seq_cst) > turn;
  if (out)
    std::memcpy(&head, s.view.command(0, turn), sizeof head);
  if (!out || head.step != step)
    return error{"wrong_step", "step " + std::to_string(step) + " is not the oldest that is out"};
  const auto start = std::chrono::steady_clock::now();
  while (!s.view.control().answered.wait(
      [&] { return s.all_answered(turn); },
      std::min<std::chrono::nanoseconds>(limit - (std::chrono::steady_clock::now() - start), look_every),
      std::exchange(spin, spin_time{}))) {
    const auto who = s.missing(turn);
    if (who.empty())
      break; // the last to answer died before it could count
    if (s.one_died(who))
      return error{"executor_gone", "step " + std::to_string(step) + ": of the executors that have not answered (" +
                                        list_of(who) + ") at least one is dead"};
    if (std::chrono::steady_clock::now() - start >= limit)
      return error{"timed_out", "step " + std::to_string(step) + ": no answer in time from executors " + list_of(who)};
  }
  if (const auto all = s.collect(turn); !all)
    return all.failure();
  s.waited.store(turn + 1, std::memory_order_seq_cst);
  return std::span<const byte_span>(s.given[turn % s.view.options().steps_out]);
}

status step_board::state::collect(std::uint64_t turn) {
  const step_board_options& o = view.options();
  const std::size_t place = turn % o.steps_out;
  for (std::size_t e = 0; e < o.executors; ++e) {
    const auto answer = take(view.answer(e, turn), o.slot_bytes, answers[e], large[place][e]);
    if (!answer)
      return error{answer.failure().code, "executor " + std::to_string(e) + ": " + answer.failure().message};
    given[place][e] = answer->bytes;
  }
  return nothing{};
}

// ---- executor

struct step_board_executor::state {
  shared_memory memory;
  board_view view;
  std::size_t index;
  ring_reader commands;
  ring_writer answers;
  std::uint64_t taken, answered;
  std::array<std::vector<std::uint8_t>, steps_out_max> large; // commands out of the ring
  std::array<std::uint64_t, steps_out_max> steps;
};

step_board_executor::step_board_executor(std::unique_ptr<state> s) : state_(std::move(s)) {}
step_board_executor::step_board_executor(step_board_executor&&) noexcept = default;
step_board_executor& step_board_executor::operator=(step_board_executor&&) noexcept = default;

step_board_executor::~step_board_executor() {
  if (state_ != nullptr)
    state_->view.slot(state_->index).executor.leave();
}

result<step_board_executor> step_board_executor::attach(const std::string& name, std::size_t index) {
  auto memory = shared_memory::open(name);
  if (!memory)
    return memory.failure();
  const error bad{"bad_segment", "/dev/shm/" + name + ": no finished step board with a place " + std::to_string(index)};
  auto* control = reinterpret_cast<board_control*>(memory->data());
  if (memory->size() < sizeof(board_control) ||
      std::atomic_ref(control->magic).load(std::memory_order_acquire) != board_magic)
    return bad;
  const step_board_options o{control->executors, control->slot_bytes, control->ring_bytes, control->steps_out};
  if (!allowed(o) || index >= o.executors || memory->size() < board_view::bytes(o))
    return bad;
  const board_view view(memory->data(), o);
  board_slot& slot = view.slot(index);
  if (slot.executor.taken())
    return error{"in_use", "/dev/shm/" + name + ": place " + std::to_string(index) + " has had process " +
                               std::to_string(slot.executor.pid()) + "; a new executor needs a new board"};
  if (const auto taken = slot.executor.take(); !taken)
    return taken.failure();
  auto commands = ring_reader::attach(view.command_ring(index));
  auto answers = ring_writer::attach(view.answer_ring(index));
  if (!commands || !answers)
    return (!commands ? commands.failure() : answers.failure());
  return step_board_executor(std::make_unique<state>(
      state{std::move(*memory), view, index, std::move(*commands), std::move(*answers), 0, 0, {}, {}}));
}

void step_board_executor::beat() {
  state_->view.slot(state_->index).executor.beat();
}

result<step_command> step_board_executor::next(std::chrono::nanoseconds limit, spin_time spin) {
  state& s = *state_;
  board_control& control = s.view.control();
  board_slot& slot = s.view.slot(s.index);
  const auto there = [&] { return slot.posted.load(std::memory_order_seq_cst) > s.taken; };
  const auto start = std::chrono::steady_clock::now();
  while (!there()) {
    const auto left = limit - (std::chrono::steady_clock::now() - start);
    control.commands.wait([&] { return there() || control.scheduler.left(); },
                          std::min<std::chrono::nanoseconds>(left, look_every), std::exchange(spin, spin_time{}));
    slot.executor.beat();
    if (there())
      break;
    const bool gone = control.scheduler.died() || s.memory.owner_gone(); // first: who leaves is gone a moment later
    if (control.scheduler.left())
      return error{"closed", "the scheduler has left the step board"};
    if (gone)
      return error{"peer_gone", "the scheduler of the step board is dead"};
    if (left <= look_every)
      return error{"timed_out", "no command came in time"};
  }
  const std::size_t place = s.taken % s.view.options().steps_out;
  const auto command = take(s.view.command(s.index, s.taken), s.view.options().slot_bytes, s.commands, s.large[place]);
  if (!command)
    return command.failure();
  s.steps[place] = command->step;
  ++s.taken;
  return *command;
}

status step_board_executor::answer(byte_span bytes, std::chrono::nanoseconds limit) {
  state& s = *state_;
  if (s.answered == s.taken)
    return error{"no_command", "there is no command to answer"};
  const step_board_options& o = s.view.options();
  board_control& control = s.view.control();
  const std::size_t place = s.answered % o.steps_out;
  std::byte* slot = s.view.answer(s.index, s.answered);
  const auto room = room_for(slot, o.slot_bytes, s.answers, bytes.size(), std::chrono::steady_clock::now() + limit);
  if (!room)
    return room.failure();
  put(slot, o.slot_bytes, s.answers, s.steps[place], bytes, *room);
  ++s.answered;
  s.view.slot(s.index).answered.store(s.answered, std::memory_order_seq_cst);
  if (control.counters[place].missing.fetch_sub(1, std::memory_order_seq_cst) == 1)
    control.answered.wake();
  return nothing{};
}

} // namespace troupe
