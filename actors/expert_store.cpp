#include "actors/expert_store.hpp"
#include "runtime/base/device_error.hpp"
#include <algorithm>
#include <cstring>

namespace troupe {

namespace {

using namespace std::chrono_literals;
using self_ptr = expert_store_actor::stateful_pointer<expert_store_state>;

constexpr auto question_limit = 5000ms; // to membership
constexpr auto piece_limit = 10s;       // of an expert
constexpr std::uint32_t piece_bytes = 1u << 20;

} // namespace

// ---- copies

expert_copier::expert_copier(std::shared_ptr<expert_part> part) : part_(std::move(part)), thread_([this] { run(); }) {}

expert_copier::~expert_copier() {
  {
    const std::lock_guard lock(guard_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void expert_copier::copy(const copy_order& order, std::function<void(const copy_ended&)> done) {
  {
    const std::lock_guard lock(guard_);
    queue_.push_back({order, std::move(done)});
  }
  changed_.notify_all();
}

void expert_copier::run() {
  for (;;) {
    work w;
    {
      std::unique_lock lock(guard_);
      changed_.wait(lock, [&] { return ending_ || !queue_.empty(); });
      if (ending_)
        return;
      w = std::move(queue_.front());
      queue_.pop_front();
    }
    w.done(carry_out(w.order));
  }
}

// The digest is taken of the bytes that came, before the device makes anything of them.
copy_ended expert_copier::carry_out(const copy_order& order) {
  copy_ended e{order, {}, {}};
  try {
    resident_experts& memory = part_->experts()->memory();
    std::vector<std::byte> bytes(memory.expert_bytes(order.layer));
    if (order.source >= 0)
      pull(order, bytes);
    else
      memory.read(order.layer, order.expert, 0, bytes);
    sha256 sum;
    sum.update(std::span(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()));
    e.digest = sum.finish();
    part_->experts()->wait_unused(order.layer, order.slot);
    memory.replace(order.layer, order.slot - part_->place().rank * part_->experts()->slots_per_rank(), bytes);
  } catch (const std::exception& why) {
    e.failure = *why.what() != '\0' ? why.what() : "unknown device error";
  }
  return e;
}

void expert_copier::pull(const copy_order& order, std::span<std::byte> bytes) {
  const std::int32_t from = order.source / part_->experts()->slots_per_rank();
  if (from == part_->place().rank) { // another slot of this rank
    part_->experts()->memory().read(order.layer, order.expert, 0, bytes);
    return;
  }
  const std::shared_ptr<peer_link> link = part_->links()->link_to(from);
  const auto lost = [&](const std::string& why) {
    if (link)
      link->give_up();
    throw device_error("expert " + std::to_string(order.expert) + " of layer " + std::to_string(order.layer) +
                       " from rank " + std::to_string(from) + ": " + why);
  };
  if (!link)
    lost("it is not connected");
  const auto began = std::chrono::steady_clock::now();
  peer_link::asking& asking = link->at(question_kind::weights);
  for (std::size_t at = 0; at < bytes.size();) {
    const piece_question q{order.layer, order.source, order.expert, piece_bytes, at};
    const auto room = asking.questions->reserve(sizeof q, piece_limit);
    if (!room)
      lost(room.failure().message);
    std::memcpy(room->data(), &q, sizeof q);
    const std::uint64_t number = next_number_++;
    if (const status sent = asking.questions->send(frame_kind::weight_chunk, number); !sent)
      lost(sent.failure().message);
    const auto piece = asking.answers->front(piece_limit);
    if (!piece)
      lost(piece.failure().message);
    const std::size_t size = std::min(piece->payload.size(), bytes.size() - at);
    if (piece->header.seq != number)
      lost("it answers another question");
    std::memcpy(bytes.data() + at, piece->payload.data(), size);
    asking.answers->pop();
    if (size == 0)
      throw device_error("rank " + std::to_string(from) + " does not hold expert " + std::to_string(order.expert) +
                         " of layer " + std::to_string(order.layer) + " in slot " + std::to_string(order.source));
    at += size;
    wait_until(began + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                           std::chrono::duration<double>(static_cast<double>(at) / part_->place().copy_bytes_per_s)));
  }
}

void expert_copier::wait_until(std::chrono::steady_clock::time_point when) {
  std::unique_lock lock(guard_);
  if (changed_.wait_until(lock, when, [&] { return ending_; }))
    throw device_error("the process ends");
}

// ---- the actor

namespace {

std::int32_t rank_of(self_ptr self) {
  return state_of(self).part->place().rank;
}
std::uint64_t incarnation_of(self_ptr self) {
  return state_of(self).part->place().incarnation;
}

void report(self_ptr self) {
  auto& st = state_of(self);
  if (st.group)
    tell(self, st.group, pack(st.part->experts()->report(), incarnation_of(self)));
}

void find_group(self_ptr self, const membership_actor& membership) {
  ask(self, membership, question_limit, expert_group_query{state_of(self).part->place().first})
      .then(
          [=](const expert_group_info& i) {
            auto& st = state_of(self);
            if (!i.group)
              return;
            if (st.group != i.group) {
              st.group = i.group;
              watch(self, st.watched, i.group, [=, gone = i.group](const caf::error&) {
                if (state_of(self).group == gone)
                  state_of(self).group = expert_group_actor();
              });
            }
            report(self);
          },
          [](const caf::error&) {});
}

// Orders of a coordinator that leads no more are left alone; the one that follows it begins with questions.
bool from_group(self_ptr self) {
  const auto& group = state_of(self).group;
  return group && self->current_sender() == caf::actor_cast<caf::strong_actor_ptr>(group);
}

bool has_its_shape(const expert_placement& p) {
  return p.expert_of.size() == static_cast<std::size_t>(p.layers) * static_cast<std::size_t>(p.slots());
}

void publish_version(self_ptr self, const publish_slots& p) {
  auto& st = state_of(self);
  auto placement = std::make_shared<const expert_placement>(unpack(p.placement));
  if (p.incarnations.size() != static_cast<std::size_t>(placement->ranks) || !has_its_shape(*placement))
    return;
  const auto answer = st.part->experts()->publish(placement, p.incarnations);
  if (answer == expert_slots::answer::wrong_state)
    return report(self); // it names what is not here: the coordinator does not know these slots
  st.part->look();
  tell(self, st.group,
       slots_published{rank_of(self), incarnation_of(self), placement->version, st.part->experts()->quiesced()});
}

void begin_copy(self_ptr self, const copy_slot& c) {
  auto& st = state_of(self);
  const copy_order order{c.mig, c.layer, c.slot, c.expert, c.source, c.floor};
  sha256_digest digest{};
  if (c.digest.size() == digest.size())
    std::copy(c.digest.begin(), c.digest.end(), digest.begin());
  else
    digest = st.part->experts()->memory().digest(c.layer, c.expert);
  const auto refuse = [&](const std::string& why) {
    tell(self, st.group, slot_copied{rank_of(self), incarnation_of(self), c.mig, why});
  };
  switch (st.part->experts()->copy(order, digest)) {
  case expert_slots::answer::done:
    st.copier->copy(order, [to = expert_store_actor(self)](const copy_ended& e) { tell_from_outside(to, e); });
    return;
  case expert_slots::answer::repeated:
    if (st.part->experts()->holds(c.layer, c.slot, c.expert))
      refuse({}); // it is there
    return;
  case expert_slots::answer::stale:
    return;
  case expert_slots::answer::wrong_state:
    return refuse("the slot is in use");
  }
}

void end_copy(self_ptr self, const copy_ended& e) {
  auto& st = state_of(self);
  slot_copied answer{rank_of(self), incarnation_of(self), e.order.mig, e.failure};
  if (!e.failure.empty())
    st.part->experts()->copy_failed(e.order.mig, e.order.layer, e.order.slot);
  else if (st.part->experts()->copied(e.order.mig, e.order.layer, e.order.slot, e.digest) ==
           expert_slots::answer::wrong_state)
    answer.failure = "the bytes that came have another digest";
  if (st.group)
    tell(self, st.group, answer);
}

} // namespace

expert_store_actor::behavior_type expert_store(self_ptr self, std::shared_ptr<expert_part> part,
                                               std::function<void(const std::string& why)> on_refused) {
  auto& st = state_of(self);
  st.part = std::move(part);
  st.on_refused = std::move(on_refused);
  st.copier = std::make_unique<expert_copier>(st.part);
  st.part->experts()->on_quiesced = [who = self->address()] {
    if (const auto store = caf::actor_cast<expert_store_actor>(who))
      tell_from_outside(store, step_version_left{});
  };
  return {
      [=](const rank_slots_query&) { report(self); },
      [=](const publish_slots& p) {
        if (from_group(self))
          publish_version(self, p);
      },
      [=](const copy_slot& c) {
        if (from_group(self))
          begin_copy(self, c);
      },
      [=](const settle_slots& s) {
        if (from_group(self) &&
            state_of(self).part->experts()->settle({s.floor, s.as_of, s.migs_below}) == expert_slots::answer::done)
          tell(self, state_of(self).group, slots_settled{rank_of(self), incarnation_of(self), s.as_of});
      },
      [=](const refuse_rank& r) {
        if (from_group(self))
          state_of(self).on_refused(r.why);
      },
      [=](const coordinator_found& c) { find_group(self, c.membership); },
      [=](const step_version_left&) {
        auto& s = state_of(self);
        if (s.group)
          tell(self, s.group, slots_quiesced{rank_of(self), incarnation_of(self), s.part->experts()->quiesced()});
      },
      [=](const copy_ended& e) { end_copy(self, e); },
      [=](const load& l) {
        if (state_of(self).group)
          tell(self, state_of(self).group, l);
      },
      [=](const stop&) {
        auto& s = state_of(self);
        s.copier.reset();
        if (s.group)
          unwatch(self, s.watched, s.group);
        s.group = expert_group_actor();
        self->quit();
      },
  };
}

} // namespace troupe
