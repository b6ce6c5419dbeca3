#include "runtime/experts/move_planner.hpp"
#include "runtime/base/check.hpp"
#include <algorithm>
#include <string>
#include <tuple>

namespace troupe {

namespace {

std::size_t index(std::int32_t i) {
  return static_cast<std::size_t>(i);
}

// One layer on the way from `now` to `wanted`.
class layer_planner {
public:
  layer_planner(std::int32_t layer, std::span<const std::int32_t> now, std::span<const std::int32_t> wanted,
                std::int32_t experts, const expert_ranks& group)
      : layer_(layer), now_(now.begin(), now.end()), wanted_(wanted), group_(group), copies_(index(experts)),
        parked_(now.size()) {
    for (const std::int32_t e : now_)
      if (e >= 0)
        ++copies_[index(e)];
  }

  // False: no step breaks nothing.
  bool plan(std::vector<expert_move>& out) {
    while (differs())
      if (!restore_lost(out) && !overwrite(out) && !park(out))
        return false;
    return true;
  }

private:
  std::int32_t slots() const { return static_cast<std::int32_t>(now_.size()); }
  bool mismatch(std::int32_t s) const { return now_[index(s)] != wanted_[index(s)]; }
  bool differs() const {
    for (std::int32_t s = 0; s < slots(); ++s)
      if (mismatch(s))
        return true;
    return false;
  }
  bool replaceable(std::int32_t s) const { return now_[index(s)] < 0 || copies_[index(now_[index(s)])] >= 2; }
  void put(std::int32_t s, std::int32_t to, std::vector<expert_move>& out) {
    std::int32_t& here = now_[index(s)];
    out.push_back({layer_, s, here, to});
    if (here >= 0)
      --copies_[index(here)];
    if (to >= 0)
      ++copies_[index(to)];
    here = to;
  }

  bool restore_lost(std::vector<expert_move>& out) {
    for (std::int32_t s = 0; s < slots(); ++s)
      if (mismatch(s) && wanted_[index(s)] >= 0 && copies_[index(wanted_[index(s)])] == 0 && replaceable(s)) {
        parked_[index(s)] = false;
        put(s, wanted_[index(s)], out);
        return true;
      }
    return false;
  }

  // A slot straight to what it shall hold; those that hold parked experts last.
  bool overwrite(std::vector<expert_move>& out) {
    for (const bool parked : {false, true})
      for (std::int32_t s = 0; s < slots(); ++s)
        if (mismatch(s) && parked_[index(s)] == parked && replaceable(s)) {
          parked_[index(s)] = false;
          put(s, wanted_[index(s)], out);
          return true;
        }
    return false;
  }

  // Every slot that differs holds an only copy: a second copy of the first one goes to a slot that can spare its own,
  // which gets it back later.
  bool park(std::vector<expert_move>& out) {
    std::int32_t first = 0;
    while (!mismatch(first) || parked_[index(first)])
      if (++first == slots())
        return false;
    for (const bool filled : {false, true})
      for (std::int32_t s = 0; s < slots(); ++s)
        if ((now_[index(s)] >= 0) == filled && group_.is_live(s) && replaceable(s)) {
          parked_[index(s)] = true;
          put(s, now_[index(first)], out);
          return true;
        }
    return false;
  }

  std::int32_t layer_;
  std::vector<std::int32_t> now_;
  std::span<const std::int32_t> wanted_;
  const expert_ranks& group_;
  std::vector<std::int32_t> copies_;
  std::vector<bool> parked_; // holds another expert than it shall, for a while
};

std::span<const std::int32_t> layer_of(const expert_placement& p, std::int32_t layer) {
  return std::span(p.expert_of).subspan(index(layer) * index(p.slots()), index(p.slots()));
}

} // namespace

std::vector<std::int32_t> relabelled(std::span<const std::int32_t> current, std::span<const std::int32_t> wanted,
                                     std::int32_t slots_per_rank) {
  std::vector<std::int32_t> out(wanted.size(), -1);
  for (std::size_t base = 0; base < wanted.size(); base += index(slots_per_rank)) {
    std::vector<std::int32_t> rest(wanted.begin() + static_cast<std::ptrdiff_t>(base),
                                   wanted.begin() + static_cast<std::ptrdiff_t>(base + index(slots_per_rank)));
    std::vector<bool> kept(index(slots_per_rank));
    for (std::size_t i = 0; i < kept.size(); ++i)
      if (const auto it = std::find(rest.begin(), rest.end(), current[base + i]); it != rest.end()) {
        out[base + i] = *it;
        kept[i] = true;
        rest.erase(it);
      }
    for (std::size_t i = 0, next = 0; i < kept.size(); ++i)
      if (!kept[i])
        out[base + i] = rest[next++];
  }
  return out;
}

expert_placement relabelled(const expert_placement& current, const expert_placement& wanted) {
  expert_placement out = wanted;
  for (std::int32_t layer = 0; layer < wanted.layers; ++layer) {
    const auto slots = relabelled(layer_of(current, layer), layer_of(wanted, layer), wanted.slots_per_rank);
    std::copy(slots.begin(), slots.end(), out.expert_of.begin() + layer * wanted.slots());
  }
  return out;
}

std::int32_t differing_slots(const expert_placement& current, const expert_placement& wanted) {
  std::int32_t n = 0;
  for (std::size_t i = 0; i < current.expert_of.size(); ++i)
    n += current.expert_of[i] != wanted.expert_of[i];
  return n;
}

result<std::vector<expert_move>> plan_moves(const expert_placement& current, const expert_placement& wanted,
                                            const expert_ranks& group) {
  TROUPE_CHECK(current.expert_of.size() == wanted.expert_of.size() && current.slots() == group.slots(),
               "placements of one shape");
  std::vector<expert_move> moves;
  for (std::int32_t layer = 0; layer < current.layers; ++layer)
    if (!layer_planner(layer, layer_of(current, layer), layer_of(wanted, layer), current.experts, group).plan(moves))
      return error{"no_redundancy",
                   "layer " + std::to_string(layer) +
                       ": every slot holds the only copy of an expert and "
                       "none is empty, so none can be overwritten while serving; set eplb.min_extra >= 1"};
  return moves;
}

std::int32_t source_slot(std::span<const std::int32_t> holders, std::int32_t to_rank, const expert_ranks& group,
                         std::span<const std::int32_t> serving) {
  const auto cost = [&](std::int32_t slot) {
    const std::int32_t rank = group.rank_of(slot);
    const int distance = rank == to_rank ? 0 : group.node_of[index(rank)] == group.node_of[index(to_rank)] ? 1 : 2;
    return std::tuple(distance, serving[index(rank)], slot);
  };
  std::int32_t best = -1;
  for (const std::int32_t slot : holders)
    if (best < 0 || cost(slot) < cost(best))
      best = slot;
  return best;
}

} // namespace troupe
