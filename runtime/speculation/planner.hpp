// How many drafts each sequence verifies in a decode step (speculation.md §6). Plans change speed, never tokens.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

// What is known about one decoding sequence when its step is planned.
struct draft_candidate {
  std::int32_t drafts = 0;    // drafts at hand
  std::int64_t kv_tokens = 0; // positions in its cache
};

struct draft_plan {
  std::uint64_t round = 0;
  std::int64_t total_rows = 0;       // rows of the step: one per sequence and one per verified draft
  std::vector<std::int32_t> lengths; // [sequences] drafts to verify, each <= its candidate's
};

// The plan of an engine that runs no drafter: every length is 0, a step has one row per sequence.
draft_plan plan_drafts(std::uint64_t round, std::span<const draft_candidate> candidates);

// A plan counts for its own round and the one after; older ones are replaced by the local rule (cluster.md §3.3).
inline bool plan_is_current(const draft_plan& plan, std::uint64_t round) {
  return plan.round + 2 > round && plan.round <= round;
}

} // namespace troupe
