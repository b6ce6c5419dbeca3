#include "runtime/experts/spread.hpp"
#include <algorithm>
#include <cmath>
#include <set>

namespace troupe {

namespace {

std::size_t index(std::int32_t i) {
  return static_cast<std::size_t>(i);
}

std::int32_t domains_of(const expert_ranks& group, replica_spread kind) {
  std::set<std::int32_t> seen;
  for (std::int32_t r = 0; r < group.ranks(); ++r)
    if (group.live[index(r)])
      seen.insert(kind == replica_spread::node ? group.node_of[index(r)] : r);
  return static_cast<std::int32_t>(seen.size());
}

// Copies by expert and domain (rank or node), and how many a domain may have.
class copy_counts {
public:
  copy_counts(std::span<const std::int32_t> expert_of, std::int32_t experts, const expert_ranks& group,
              replica_spread kind)
      : group_(group), kind_(kind), domains_(0), live_domains_(std::max(1, domains_of(group, kind))) {
    for (std::int32_t slot = 0; slot < group.slots(); ++slot)
      domains_ = std::max(domains_, domain(slot) + 1);
    copies_.resize(index(experts) * index(domains_));
    total_.resize(index(experts));
    for (std::int32_t slot = 0; slot < group.slots(); ++slot)
      add(slot, expert_of[index(slot)], 1);
  }

  std::int32_t domain(std::int32_t slot) const {
    const std::int32_t rank = group_.rank_of(slot);
    return kind_ == replica_spread::node ? group_.node_of[index(rank)] : rank;
  }
  void add(std::int32_t slot, std::int32_t expert, std::int32_t n) {
    if (expert < 0)
      return;
    copies_[index(expert) * index(domains_) + index(domain(slot))] += n;
    total_[index(expert)] += n;
  }
  std::int32_t total(std::int32_t expert) const { return total_[index(expert)]; }
  std::int32_t here(std::int32_t slot, std::int32_t expert) const {
    return copies_[index(expert) * index(domains_) + index(domain(slot))];
  }
  // Copies in the slot's domain above what an even spread needs; below 0: there is room.
  std::int32_t excess(std::int32_t slot, std::int32_t expert) const {
    if (expert < 0)
      return -1;
    const std::int32_t limit = (total(expert) + live_domains_ - 1) / live_domains_;
    return here(slot, expert) - limit;
  }

private:
  const expert_ranks& group_;
  replica_spread kind_;
  std::int32_t domains_, live_domains_;
  std::vector<std::int32_t> copies_, total_;
};

class spreader {
public:
  spreader(std::vector<std::int32_t>& expert_of, std::span<const float> weights, const expert_ranks& group)
      : expert_of_(expert_of), weights_(weights), group_(group) {}

  // An expert that has a copy on every rank cannot use another one.
  void give_away_surplus() {
    copy_counts counts(expert_of_, experts(), group_, replica_spread::rank);
    const std::int32_t ranks = domains_of(group_, replica_spread::rank);
    for (std::int32_t slot = group_.slots() - 1; slot >= 0; --slot) {
      const std::int32_t e = expert_of_[index(slot)];
      if (e < 0 || counts.total(e) <= ranks || counts.here(slot, e) <= 1)
        continue;
      std::int32_t heir = -1;
      for (std::int32_t x = 0; x < experts(); ++x)
        if (counts.total(x) >= 1 && counts.total(x) < ranks && (heir < 0 || share(counts, x) > share(counts, heir)))
          heir = x;
      if (heir < 0)
        return;
      counts.add(slot, e, -1);
      counts.add(slot, heir, 1);
      expert_of_[index(slot)] = heir;
    }
  }

  // within_nodes: exchanges that keep what each node has.
  void exchange(replica_spread kind, bool within_nodes) {
    copy_counts counts(expert_of_, experts(), group_, kind);
    for (std::int32_t slot = group_.slots() - 1; slot >= 0; --slot) { // the first copies stay where they are
      const std::int32_t e = expert_of_[index(slot)];
      if (e < 0 || counts.excess(slot, e) <= 0)
        continue;
      const std::int32_t partner = partner_of(slot, counts, within_nodes);
      if (partner < 0)
        continue;
      const std::int32_t x = expert_of_[index(partner)];
      counts.add(slot, e, -1), counts.add(partner, e, 1);
      counts.add(partner, x, -1), counts.add(slot, x, 1);
      std::swap(expert_of_[index(slot)], expert_of_[index(partner)]);
      slot = group_.slots(); // an exchange may move an excess of x to a slot that was looked at
    }
  }

private:
  std::int32_t experts() const { return static_cast<std::int32_t>(weights_.size()); }
  float share(const copy_counts& counts, std::int32_t e) const {
    return e < 0 ? 0 : weights_[index(e)] / static_cast<float>(counts.total(e));
  }

  // Each exchange takes at least one copy off the number of excess ones: e goes where there is room, and what comes
  // back finds room too or was in excess there.
  std::int32_t partner_of(std::int32_t slot, const copy_counts& counts, bool within_nodes) const {
    const std::int32_t e = expert_of_[index(slot)];
    std::int32_t best = -1;
    float nearest = 0;
    for (std::int32_t other = 0; other < group_.slots(); ++other) {
      const std::int32_t x = expert_of_[index(other)];
      if (x == e || !group_.is_live(other) || counts.domain(other) == counts.domain(slot) ||
          counts.excess(other, e) >= 0)
        continue;
      if (within_nodes && group_.node_of[index(group_.rank_of(other))] != group_.node_of[index(group_.rank_of(slot))])
        continue;
      if (counts.excess(slot, x) >= 0 && counts.excess(other, x) <= 0)
        continue;
      const float distance = std::abs(share(counts, e) - share(counts, x));
      if (best < 0 || distance < nearest)
        best = other, nearest = distance;
    }
    return best;
  }

  std::vector<std::int32_t>& expert_of_;
  std::span<const float> weights_;
  const expert_ranks& group_;
};

} // namespace

std::int32_t shared_copies(std::span<const std::int32_t> expert_of, std::int32_t experts, const expert_ranks& group,
                           replica_spread spread) {
  if (spread == replica_spread::none)
    return 0;
  const auto excess = [&](replica_spread kind) {
    const copy_counts counts(expert_of, experts, group, kind);
    std::set<std::pair<std::int32_t, std::int32_t>> seen; // expert, domain
    std::int32_t n = 0;
    for (std::int32_t slot = 0; slot < group.slots(); ++slot)
      if (const std::int32_t e = expert_of[index(slot)]; e >= 0 && seen.insert({e, counts.domain(slot)}).second)
        n += std::max(0, counts.excess(slot, e));
    return n;
  };
  return excess(replica_spread::rank) + (spread == replica_spread::node ? excess(replica_spread::node) : 0);
}

void spread_replicas(std::vector<std::int32_t>& expert_of, std::span<const float> weights, const expert_ranks& group,
                     replica_spread spread) {
  if (spread == replica_spread::none)
    return;
  spreader s(expert_of, weights, group);
  s.give_away_surplus();
  if (spread == replica_spread::node)
    s.exchange(replica_spread::node, false);
  s.exchange(replica_spread::rank, spread == replica_spread::node);
}

} // namespace troupe
