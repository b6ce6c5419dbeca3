#include "cluster/expert_messages.hpp"
#include <algorithm>

namespace troupe {

namespace {

std::string pack_ids(const std::vector<std::int32_t>& ids) {
  return pack_u32({ids.begin(), ids.end()});
}

std::vector<std::int32_t> unpack_ids(const std::string& bytes) {
  const std::vector<std::uint32_t> ids = unpack_u32(bytes);
  std::vector<std::int32_t> out(ids.size());
  std::ranges::transform(ids, out.begin(), [](std::uint32_t id) { return static_cast<std::int32_t>(id); });
  return out;
}

} // namespace

packed_placement pack(const expert_placement& p) {
  return {p.version, p.ranks, p.layers, p.experts, p.slots_per_rank, pack_ids(p.expert_of)};
}

expert_placement unpack(const packed_placement& p) {
  return {p.version, p.ranks, p.layers, p.experts, p.slots_per_rank, unpack_ids(p.expert_of)};
}

rank_slots pack(const slot_report& r, std::uint64_t incarnation) {
  rank_slots out;
  out.rank = r.rank;
  out.incarnation = incarnation;
  out.quiesced = r.quiesced;
  out.placement = pack(*r.placement);
  std::vector<std::int32_t> experts;
  for (const expert_slot& s : r.slots) {
    out.states.push_back(static_cast<char>(s.state));
    experts.push_back(s.expert);
    out.migs.push_back(s.mig);
    out.versions.push_back(s.version);
    out.digests.append(s.digest.begin(), s.digest.end());
  }
  out.experts = pack_ids(experts);
  return out;
}

std::optional<slot_report> unpack(const rank_slots& r) {
  auto placement = std::make_shared<expert_placement>(unpack(r.placement));
  const std::vector<std::int32_t> experts = unpack_ids(r.experts);
  const std::size_t slots = r.states.size();
  constexpr std::size_t digest_bytes = sizeof(sha256_digest);
  if (placement->expert_of.size() !=
          static_cast<std::size_t>(placement->layers) * static_cast<std::size_t>(placement->slots()) ||
      slots != static_cast<std::size_t>(placement->layers) * static_cast<std::size_t>(placement->slots_per_rank) ||
      experts.size() != slots || r.migs.size() != slots || r.versions.size() != slots ||
      r.digests.size() != slots * digest_bytes || r.rank < 0 || r.rank >= placement->ranks)
    return std::nullopt;
  slot_report out;
  out.rank = r.rank;
  out.quiesced = r.quiesced;
  out.placement = std::move(placement);
  for (std::size_t i = 0; i < slots; ++i) {
    expert_slot s;
    s.state = static_cast<slot_state>(r.states[i]);
    s.expert = experts[i];
    s.mig = r.migs[i];
    s.version = r.versions[i];
    std::copy_n(r.digests.begin() + static_cast<std::ptrdiff_t>(i * digest_bytes), digest_bytes, s.digest.begin());
    out.slots.push_back(s);
  }
  return out;
}

} // namespace troupe
