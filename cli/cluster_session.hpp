// What generate and batch run on: engines of this process, or those of a running cluster (--cluster).
#pragma once
#include "actors/cluster_access.hpp"
#include "cli/requests.hpp"
#include "cluster/configuration.hpp"
#include <optional>

namespace troupe {

// A running cluster, not reached yet.
struct named_cluster {
  cluster_access access;
  int most_sequences = 0; // that run at once, over all engines
  int most_requests = 0;  // that a gateway of the cluster takes at once
  ledger_section ledger;
};

// All throw config_error for options that are not legal, among them engine options beside --cluster.
void check_engine(const engine_flags& flags);
std::optional<named_cluster> find_cluster(const engine_flags& flags); // nothing without --cluster
// On that cluster, else on engines of this process.
std::unique_ptr<engine_session> make_session(const engine_flags& flags, const std::optional<named_cluster>& cluster);
std::unique_ptr<engine_session> make_session(const engine_flags& flags);

} // namespace troupe
