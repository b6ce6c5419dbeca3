// All metrics of a process as Prometheus reads them. Names, types and buckets are vLLM's with the prefix "troupe:"
// wherever it has the quantity, so that its dashboards need one change; the rest is ours.
#pragma once
#include "runtime/metrics/metrics.hpp"
#include <span>
#include <string>

namespace troupe {

// Every sample is labelled with model_name and its engine's index, those of compiling with model_name alone. Families
// stand in a fixed order, also those whose values are all 0.
std::string metrics_text(const std::string& model_name, std::span<const engine_snapshot> engines,
                         const grammar_report& grammars = {});

} // namespace troupe
