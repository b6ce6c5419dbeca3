// The ledgers of open requests' tokens: of a batch on a cluster in OUT.ledger beside its results, of a gateway in the
// cluster's state_dir.
#pragma once
#include "actors/request_ledger.hpp"
#include "cli/finished_results.hpp"
#include "cluster/configuration.hpp"
#include <memory>
#include <string>

namespace troupe {

// Opened and locked. Says on standard error what of an earlier run goes on. Throws config_error.
std::shared_ptr<request_ledger> open_batch_ledger(const std::string& output, const ledger_section& settings,
                                                  const finished_results& kept);
// Of a gateway, likewise.
std::shared_ptr<request_ledger> open_gateway_ledger(const std::string& path, const ledger_section& settings);
// Of a batch that has ended completely; its keeper is gone.
void remove_batch_ledger(const request_ledger& ledger);

} // namespace troupe
