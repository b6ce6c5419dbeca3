#include "actors/placed_experts.hpp"
#include <algorithm>

namespace troupe {

namespace {

// Of the experts that the rank holds; the others' are not looked at.
expert_digests digests_of(const expert_placement& p, std::int32_t rank, const resident_experts& memory) {
  expert_digests d{p.experts, {}};
  d.digest.resize(static_cast<std::size_t>(p.layers) * static_cast<std::size_t>(p.experts));
  std::vector<bool> known(d.digest.size());
  for (std::int32_t layer = 0; layer < p.layers; ++layer)
    for (std::int32_t i = 0; i < p.slots_per_rank; ++i) {
      const std::int32_t e = p.expert_of[static_cast<std::size_t>(layer * p.slots() + rank * p.slots_per_rank + i)];
      const std::size_t at = static_cast<std::size_t>(layer) * static_cast<std::size_t>(p.experts) +
                             static_cast<std::size_t>(std::max(e, 0));
      if (e < 0 || known[at])
        continue;
      known[at] = true;
      d.digest[at] = memory.digest(layer, e);
    }
  return d;
}

} // namespace

placed_experts::placed_experts(std::int32_t rank, shared_placement initial, std::unique_ptr<resident_experts> memory)
    : rank_(rank), layers_(initial->layers), slots_per_rank_(initial->slots_per_rank), memory_(std::move(memory)),
      slots_(rank, initial, digests_of(*initial, rank, *memory_)),
      newest_(std::make_shared<const placed_version>(placed_version{
          expert_routes(initial), std::vector<std::uint64_t>(static_cast<std::size_t>(initial->ranks))})),
      users_(static_cast<std::size_t>(layers_) * static_cast<std::size_t>(slots_per_rank_)) {}

std::size_t placed_experts::cell(std::int32_t layer, std::int32_t local) const {
  return static_cast<std::size_t>(layer) * static_cast<std::size_t>(slots_per_rank_) + static_cast<std::size_t>(local);
}

shared_version placed_experts::newest() const {
  const std::lock_guard lock(guard_);
  return newest_;
}

shared_version placed_experts::begin_step() {
  const std::lock_guard lock(guard_);
  slots_.begin_step();
  return newest_;
}

void placed_experts::end_step() {
  bool changed = false;
  {
    const std::lock_guard lock(guard_);
    const std::uint64_t before = slots_.quiesced();
    slots_.end_step();
    changed = slots_.quiesced() != before;
  }
  if (changed && on_quiesced)
    on_quiesced();
}

status placed_experts::take(std::int32_t layer, std::span<const rows_entry> entries) {
  const std::lock_guard lock(guard_);
  if (layer < 0 || layer >= layers_)
    return error{"not_here", "there is no layer " + std::to_string(layer)};
  for (const rows_entry& e : entries) {
    const bool there = e.slot >= 0 && e.slot < slots_per_rank_;
    if (const expert_slot* s = there ? &slots_.table()[cell(layer, e.slot)] : nullptr;
        s == nullptr || !serves(*s) || s->expert != e.expert)
      return error{"not_here", "slot " + std::to_string(e.slot) + " of layer " + std::to_string(layer) + " on rank " +
                                   std::to_string(rank_) + " does not hold expert " + std::to_string(e.expert)};
  }
  for (const rows_entry& e : entries)
    ++users_[cell(layer, e.slot)];
  return nothing{};
}

void placed_experts::give_back(std::int32_t layer, std::span<const rows_entry> entries) {
  bool last = false;
  {
    const std::lock_guard lock(guard_);
    for (const rows_entry& e : entries)
      last = --users_[cell(layer, e.slot)] == 0 || last;
  }
  if (last)
    unused_.notify_all();
}

bool placed_experts::holds(std::int32_t layer, std::int32_t slot, std::int32_t expert) const {
  const std::lock_guard lock(guard_);
  const std::int32_t local = slot - rank_ * slots_per_rank_;
  if (layer < 0 || layer >= layers_ || local < 0 || local >= slots_per_rank_)
    return false;
  const expert_slot& s = slots_.table()[cell(layer, local)];
  return serves(s) && s.expert == expert;
}

expert_slots::answer placed_experts::publish(shared_placement p, std::vector<std::uint64_t> incarnations) {
  auto version = std::make_shared<const placed_version>(placed_version{expert_routes(p), std::move(incarnations)});
  const std::lock_guard lock(guard_);
  const auto answer = slots_.publish(std::move(p));
  if (answer == expert_slots::answer::done)
    newest_ = std::move(version);
  return answer;
}

expert_slots::answer placed_experts::copy(const copy_order& order, const sha256_digest& digest) {
  const std::lock_guard lock(guard_);
  return slots_.copy(order, digest);
}

void placed_experts::wait_unused(std::int32_t layer, std::int32_t slot) {
  std::unique_lock lock(guard_);
  unused_.wait(lock, [&] { return users_[cell(layer, slot - rank_ * slots_per_rank_)] == 0; });
}

expert_slots::answer placed_experts::copied(std::uint64_t mig, std::int32_t layer, std::int32_t slot,
                                            const sha256_digest& digest) {
  const std::lock_guard lock(guard_);
  return slots_.copied(mig, layer, slot, digest);
}

void placed_experts::copy_failed(std::uint64_t mig, std::int32_t layer, std::int32_t slot) {
  const std::lock_guard lock(guard_);
  slots_.copy_failed(mig, layer, slot);
}

expert_slots::answer placed_experts::settle(const settle_order& order) {
  const std::lock_guard lock(guard_);
  return slots_.settle(order);
}

slot_report placed_experts::report() const {
  const std::lock_guard lock(guard_);
  return slots_.report();
}

std::uint64_t placed_experts::quiesced() const {
  const std::lock_guard lock(guard_);
  return slots_.quiesced();
}

} // namespace troupe
