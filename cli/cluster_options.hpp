// The verbs of clusters on the command line; only this and options.cpp know the parser.
#pragma once
#include "cli/options.hpp"
#include <vector>

namespace CLI {
class App;
}

namespace troupe {

class cluster_verbs {
public:
  explicit cluster_verbs(CLI::App& app); // adds them; lives until the line is parsed
  bool take(command_line& line) const;   // true if one of them was given
  const std::vector<CLI::App*>& all() const { return verbs_; }

private:
  launch_options launch_;
  status_options status_;
  stop_options stop_;
  migrate_options migrate_;
  logs_options logs_;
  coordinator_options coordinator_;
  node_options node_;
  worker_options worker_;
  gateway_options gateway_;
  remote_options remote_;
  keygen_options keygen_;
  std::vector<CLI::App*> verbs_;
};

} // namespace troupe
