// What the actors of an engine say of themselves, as metrics show it.
#pragma once
#include "cluster/messages.hpp"
#include "runtime/metrics/metrics_text.hpp"
#include <algorithm>
#include <chrono>

namespace troupe {

// The answer to a query, or a fresh report if none comes.
template <class Report, class Handle, class Query>
Report report_of(caf::scoped_actor& self, const Handle& from, const Query& query) {
  Report report{};
  ask(self.ptr(), from, std::chrono::milliseconds(5000), query)
      .receive([&](const Report& r) { report = r; }, [](const caf::error&) {});
  return report;
}

// Without the verifier's part.
inline engine_snapshot snapshot_of(caf::scoped_actor& self, const scheduler_actor& scheduler,
                                   const kv_manager_actor& caches) {
  engine_snapshot e;
  const auto s = report_of<scheduler_report>(self, scheduler, scheduler_query{});
  e.steps = s.metrics;
  e.running = s.running;
  e.waiting = s.waiting;
  e.waits_for = s.waits_for;
  e.preemptions = s.preemptions;
  const auto kv = report_of<kv_report>(self, caches, kv_query{});
  e.kv = kv.statistics;
  e.kv_blocks = std::max(kv.blocks - 1, 0); // without the dummies
  e.state_slots = std::max(kv.slots - 1, 0);
  return e;
}

} // namespace troupe
