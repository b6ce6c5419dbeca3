#include "runtime/experts/deepinfer_policy.hpp"
#include "runtime/base/check.hpp"
#include <algorithm>
#include <limits>
#include <numeric>

namespace troupe {

namespace {

std::size_t index(std::int32_t i) {
  return static_cast<std::size_t>(i);
}

// Scores of every expert in every step, and of each step the two largest. A score only falls, and only that of the
// expert which got a replica: other rows keep their two.
class replication {
public:
  replication(const layer_load& load, std::int32_t min_replicas)
      : load_(load), count_(index(load.experts), min_replicas), sums_(index(load.experts)), scores_(load.rows.size()),
        peaks_(index(load.steps)) {
    for (std::int32_t e = 0; e < load.experts; ++e)
      score(e);
    for (std::int32_t s = 0; s < load.steps; ++s)
      find_peak(s);
  }

  // The expert that gets the next slot.
  std::int32_t add() {
    std::fill(sums_.begin(), sums_.end(), 0.0f);
    for (std::int32_t s = 0; s < load_.steps; ++s) {
      const peak& p = peaks_[index(s)];
      const float added = load_.at(s, p.expert) / static_cast<float>(count_[index(p.expert)] + 1);
      const float relieved = sums_[index(p.expert)] + std::max(p.second, added);
      for (float& sum : sums_)
        sum += p.top;
      sums_[index(p.expert)] = relieved;
    }
    const auto chosen = static_cast<std::int32_t>(std::min_element(sums_.begin(), sums_.end()) - sums_.begin());
    ++count_[index(chosen)];
    score(chosen);
    for (std::int32_t s = 0; s < load_.steps; ++s)
      if (peaks_[index(s)].expert == chosen || peaks_[index(s)].runner_up == chosen)
        find_peak(s);
    return chosen;
  }

  const std::vector<std::int32_t>& count() const { return count_; }

private:
  struct peak {
    std::int32_t expert = 0, runner_up = -1;
    float top = 0, second = 0;
  };

  void score(std::int32_t e) {
    for (std::int32_t s = 0; s < load_.steps; ++s)
      scores_[index(s) * index(load_.experts) + index(e)] =
          (load_.at(s, e) + static_cast<float>(e) * 1e-4f) / static_cast<float>(count_[index(e)]);
  }

  void find_peak(std::int32_t s) {
    const float* row = scores_.data() + index(s) * index(load_.experts);
    constexpr float none = -std::numeric_limits<float>::infinity();
    peak p{0, -1, row[0], none};
    for (std::int32_t e = 1; e < load_.experts; ++e)
      if (row[e] > p.top)
        p = {e, p.expert, row[e], p.top};
      else if (row[e] > p.second)
        p.runner_up = e, p.second = row[e];
    peaks_[index(s)] = p;
  }

  const layer_load& load_;
  std::vector<std::int32_t> count_;
  std::vector<float> sums_, scores_; // [experts]; [steps, experts]
  std::vector<peak> peaks_;          // [steps]
};

// Slots to ranks, the heaviest first: rank of each slot, and slots in order of (rank, arrival).
std::vector<std::int32_t> pack_slots(const layer_load& load, const std::vector<std::int32_t>& expert_of,
                                     const std::vector<std::int32_t>& count, std::int32_t ranks,
                                     std::int32_t slots_per_rank) {
  const std::vector<float> sums = sums_of(load);
  std::vector<float> weight;
  for (const std::int32_t e : expert_of)
    weight.push_back(sums[index(e)] / static_cast<float>(count[index(e)]));
  std::vector<std::int32_t> order(expert_of.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return weight[index(a)] > weight[index(b)]; });

  std::vector<float> loads(index(load.steps) * index(ranks)), peak(index(load.steps)), scores(index(ranks));
  std::vector<std::vector<std::int32_t>> taken(index(ranks));
  for (const std::int32_t slot : order) {
    const std::int32_t e = expert_of[index(slot)];
    const auto share = [&](std::int32_t s) { return load.at(s, e) / static_cast<float>(count[index(e)]); };
    std::fill(scores.begin(), scores.end(), 0.0f);
    for (std::int32_t s = 0; s < load.steps; ++s) { // lanes over ranks, the sum over steps in order
      const float v = share(s), highest = peak[index(s)];
      const float* at = loads.data() + index(s) * index(ranks);
      for (std::size_t r = 0; r < scores.size(); ++r)
        scores[r] += std::max(at[r] + v, highest);
    }
    std::int32_t best = -1;
    for (std::int32_t r = 0; r < ranks; ++r)
      if (taken[index(r)].size() < index(slots_per_rank) && (best < 0 || scores[index(r)] < scores[index(best)]))
        best = r;
    taken[index(best)].push_back(slot);
    for (std::int32_t s = 0; s < load.steps; ++s) {
      float& l = loads[index(s) * index(ranks) + index(best)];
      l += share(s);
      peak[index(s)] = std::max(peak[index(s)], l);
    }
  }
  order.clear();
  for (const auto& slots : taken)
    order.insert(order.end(), slots.begin(), slots.end());
  return order;
}

} // namespace

std::vector<float> sums_of(const layer_load& load) {
  std::vector<float> sums(index(load.experts));
  for (std::int32_t s = 0; s < load.steps; ++s)
    for (std::int32_t e = 0; e < load.experts; ++e)
      sums[index(e)] += load.at(s, e);
  return sums;
}

layer_layout place_deepinfer(const layer_load& load, std::int32_t ranks, std::int32_t slots_per_rank,
                             std::int32_t min_replicas) {
  const std::int32_t slots = ranks * slots_per_rank;
  TROUPE_CHECK(min_replicas >= 1 && load.experts >= 1 && slots >= load.experts * min_replicas, "slots of a placement");
  replication replicas(load, min_replicas);
  std::vector<std::int32_t> expert_of;
  for (std::int32_t i = 0; i < slots; ++i)
    expert_of.push_back(i < load.experts * min_replicas ? i % load.experts : replicas.add());

  std::vector<std::int32_t> order(index(slots));
  std::iota(order.begin(), order.end(), 0);
  if (slots_per_rank > 1)
    order = pack_slots(load, expert_of, replicas.count(), ranks, slots_per_rank);
  std::vector<std::int32_t> place(index(slots));
  layer_layout out;
  for (std::int32_t i = 0; i < slots; ++i) {
    place[index(order[index(i)])] = i;
    out.expert_of.push_back(expert_of[index(order[index(i)])]);
  }
  out.replicas.resize(index(load.experts));
  for (std::int32_t i = 0; i < slots; ++i)
    out.replicas[index(expert_of[index(i)])].push_back(place[index(i)]);
  return out;
}

} // namespace troupe
