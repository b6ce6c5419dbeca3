// All metrics of a process as Prometheus reads them. Names, types and buckets are vLLM's with the prefix "troupe:"
// wherever it has the quantity, so that its dashboards need one change; the rest is ours.
#pragma once
#include "runtime/metrics/metrics.hpp"
#include "runtime/speculation/calibration.hpp"
#include <span>
#include <string>
#include <vector>

namespace troupe {

// What is counted beside the engines, in actors that a process may not have. Null: it is elsewhere, and its families
// are left out.
struct metric_parts {
  const grammar_report* grammars = nullptr; // compiling of constraints
  // What the verifiers know: verifier_snapshot, and by engine and position of the block how often the drafter was right
  // beside its confidences.
  const std::vector<std::vector<reliability>>* verifiers = nullptr;
};

// Every sample is labelled with model_name and its engine's index, those of compiling with model_name alone. Families
// stand in a fixed order, also those whose values are all 0.
std::string metrics_text(const std::string& model_name, std::span<const engine_snapshot> engines,
                         const metric_parts& parts);

} // namespace troupe
