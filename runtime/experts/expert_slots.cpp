#include "runtime/experts/expert_slots.hpp"
#include "runtime/base/check.hpp"

namespace troupe {

namespace {

std::size_t index(std::int32_t i) {
  return static_cast<std::size_t>(i);
}

std::int32_t named(const expert_placement& p, std::int32_t layer, std::int32_t slot) {
  return p.expert_of[index(layer) * index(p.slots()) + index(slot)];
}

std::string place_text(std::int32_t layer, std::int32_t slot) {
  return "layer " + std::to_string(layer) + " slot " + std::to_string(slot);
}

} // namespace

expert_slots::expert_slots(std::int32_t rank, shared_placement initial, const expert_digests& digests)
    : rank_(rank), newest_(std::move(initial)) {
  slots_.resize(index(newest_->layers) * index(newest_->slots_per_rank));
  for (std::int32_t layer = 0; layer < newest_->layers; ++layer)
    for (std::int32_t i = 0; i < newest_->slots_per_rank; ++i) {
      const std::int32_t slot = rank * newest_->slots_per_rank + i;
      const std::int32_t e = slot < newest_->slots() ? named(*newest_, layer, slot) : -1;
      if (e >= 0)
        slot_at(layer, slot) = {slot_state::active, e, 0, 0, digests.of(layer, e)};
    }
}

expert_slot& expert_slots::slot_at(std::int32_t layer, std::int32_t slot) {
  const std::int32_t local = slot - rank_ * newest_->slots_per_rank;
  TROUPE_CHECK(layer >= 0 && layer < newest_->layers && local >= 0 && local < newest_->slots_per_rank,
               "an expert slot of this rank");
  return slots_[index(layer) * index(newest_->slots_per_rank) + index(local)];
}

const expert_slot& expert_slots::at(std::int32_t layer, std::int32_t slot) const {
  return const_cast<expert_slots*>(this)->slot_at(layer, slot);
}

expert_slots::answer expert_slots::publish(shared_placement p) {
  if (p->version <= version())
    return p->version == version() ? answer::repeated : answer::stale;
  const auto each = [&](auto&& f) {
    for (std::int32_t layer = 0; layer < p->layers; ++layer)
      for (std::int32_t i = 0; i < p->slots_per_rank; ++i) {
        const std::int32_t slot = rank_ * p->slots_per_rank + i;
        f(slot_at(layer, slot), named(*p, layer, slot));
      }
  };
  bool fits = p->layers == newest_->layers && p->slots_per_rank == newest_->slots_per_rank && rank_ < p->ranks;
  if (fits)
    each([&](const expert_slot& s, std::int32_t e) { fits = fits && (e < 0 || (s.expert == e && serves(s))); });
  if (!fits)
    return answer::wrong_state;
  each([&](expert_slot& s, std::int32_t e) {
    if (e >= 0)
      s.state = slot_state::active;
    else if (s.state == slot_state::active)
      s.state = slot_state::vacating, s.version = version();
  });
  newest_ = std::move(p);
  return answer::done;
}

expert_slots::answer expert_slots::copy(const copy_order& order, const sha256_digest& digest) {
  expert_slot& s = slot_at(order.layer, order.slot);
  if (order.mig <= s.mig)
    return order.mig == s.mig ? answer::repeated : answer::stale;
  if (s.state == slot_state::ready && s.expert == order.expert && s.digest == digest) {
    s.mig = order.mig; // an earlier order brought the bytes, and nobody heard of it
    return answer::repeated;
  }
  if (s.state == slot_state::active || (s.state == slot_state::vacating && s.version >= order.floor))
    return answer::wrong_state;
  s = {slot_state::loading, order.expert, order.mig, 0, digest};
  return answer::done;
}

expert_slots::answer expert_slots::copied(std::uint64_t mig, std::int32_t layer, std::int32_t slot,
                                          const sha256_digest& digest) {
  expert_slot& s = slot_at(layer, slot);
  if (s.mig != mig || s.state != slot_state::loading)
    return answer::stale;
  if (s.digest != digest) {
    copy_failed(mig, layer, slot);
    return answer::wrong_state;
  }
  s.state = slot_state::ready;
  return answer::done;
}

void expert_slots::copy_failed(std::uint64_t mig, std::int32_t layer, std::int32_t slot) {
  expert_slot& s = slot_at(layer, slot);
  if (s.mig == mig && s.state == slot_state::loading)
    s = {slot_state::empty, -1, mig, 0, {}};
}

expert_slots::answer expert_slots::settle(const settle_order& order) {
  if (version() < order.as_of)
    return answer::wrong_state; // a version on its way may name what would be forgotten
  for (expert_slot& s : slots_) {
    const bool given_up = s.state == slot_state::vacating && s.version < order.floor;
    const bool never_named =
        (s.state == slot_state::loading || s.state == slot_state::ready) && s.mig < order.migs_below;
    if (given_up || never_named || (s.state == slot_state::lost && s.version < order.floor))
      s = {slot_state::empty, -1, s.mig, 0, {}};
  }
  return answer::done;
}

void expert_slots::damaged(std::int32_t layer, std::int32_t slot) {
  expert_slot& s = slot_at(layer, slot);
  if (serves(s))
    s = {slot_state::lost, -1, s.mig, version(), {}};
}

shared_placement expert_slots::begin_step() {
  running_.push_back(newest_);
  return newest_;
}

void expert_slots::end_step() {
  TROUPE_CHECK(!running_.empty(), "a step that began");
  running_.pop_front();
}

std::vector<shared_placement> expert_slots::in_use() const {
  std::vector<shared_placement> out;
  for (const shared_placement& p : running_)
    if (out.empty() || out.back()->version != p->version)
      out.push_back(p);
  if (out.empty() || out.back()->version != newest_->version)
    out.push_back(newest_);
  return out;
}

namespace {

// Of one version: every slot that it names on a live rank serves the right bytes.
std::string broken_version(const expert_placement& p, std::span<const expert_slots* const> live,
                           const expert_digests& digests) {
  for (const expert_slots* rank : live)
    for (std::int32_t layer = 0; layer < p.layers; ++layer)
      for (std::int32_t i = 0; i < p.slots_per_rank && rank->rank() < p.ranks; ++i) {
        const std::int32_t slot = rank->rank() * p.slots_per_rank + i, e = named(p, layer, slot);
        if (e < 0)
          continue;
        const expert_slot& s = rank->at(layer, slot);
        if (s.state == slot_state::lost)
          continue; // refuses rows: a step that needs it cannot end
        if (!serves(s) || s.expert != e)
          return "I1: version " + std::to_string(p.version) + " names expert " + std::to_string(e) + " in " +
                 place_text(layer, slot) + ", which does not serve it";
        if (s.digest != digests.of(layer, e))
          return "I2: " + place_text(layer, slot) + " has other bytes than expert " + std::to_string(e);
      }
  return {};
}

} // namespace

// Every slot that a version names must serve, not only one of each expert: a source may choose any replica.
std::string broken_invariant(std::span<const expert_slots* const> live, const expert_digests& digests) {
  for (const expert_slots* rank : live) {
    for (const shared_placement& p : rank->in_use())
      if (std::string broken = broken_version(*p, live, digests); !broken.empty())
        return broken;
    for (const expert_slot& s : rank->table()) {
      const auto layer = static_cast<std::int32_t>((&s - rank->table().data()) / rank->newest()->slots_per_rank);
      if (serves(s) && s.digest != digests.of(layer, s.expert))
        return "I5: a slot of rank " + std::to_string(rank->rank()) + " serves bytes that are not those of expert " +
               std::to_string(s.expert);
    }
  }
  return {};
}

std::string broken_transition(const expert_slots& before, const expert_slots& after) {
  const std::string who = "rank " + std::to_string(after.rank());
  if (after.version() < before.version() || after.quiesced() < before.quiesced())
    return "I3: " + who + " went back to an older version";
  for (std::size_t i = 0; i < before.table().size(); ++i) {
    const expert_slot &a = before.table()[i], &b = after.table()[i];
    if (b.mig < a.mig)
      return "I4: " + who + " let an older migration write a slot";
    if (serves(a) && serves(b) && b.mig == a.mig && (a.expert != b.expert || a.digest != b.digest))
      return "I2: " + who + " changed a slot that may be in use";
  }
  return {};
}

} // namespace troupe
