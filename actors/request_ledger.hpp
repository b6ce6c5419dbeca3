// A ledger of requests on disk, opened, on its way to a gateway.
#pragma once
#include "cluster/ledger_file.hpp"
#include <string>
#include <utility>
#include <vector>

namespace troupe {

struct request_ledger {
  request_ledger(ledger_settings s, ledger_file f, std::vector<ledger_entry> entries)
      : settings(std::move(s)), file(std::move(f)), open(std::move(entries)) {}

  ledger_settings settings;
  ledger_file file;               // its keeper's alone, once there is one
  std::vector<ledger_entry> open; // branches that earlier processes left
};

} // namespace troupe
