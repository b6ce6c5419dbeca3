// The verbs of clusters on the command line.
#include "cli/cluster_options.hpp"
#include <CLI/CLI.hpp>

namespace troupe {

namespace {

constexpr const char* its_file = "cluster file, like configs/loopback-dp3.toml";
constexpr const char* file_or_address = "cluster file, or ADDRESS:PORT of a coordinator as troupe launch prints it";

CLI::App* add_verb(CLI::App& app, cluster_file& file, const char* name, const char* help,
                   const char* file_help = its_file) {
  CLI::App* verb = app.add_subcommand(name, help);
  verb->add_option("FILE,--cluster", file.file, file_help)->required();
  verb->add_option("--set", file.set, "another value: cluster.name=x, worker_group.decode.count=4; may be repeated")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all();
  return verb;
}

void add_incarnation(CLI::App& verb, cluster_process_options& o) {
  verb.add_option("--incarnation", o.incarnation, "which start this is (default: made here)")
      ->check(CLI::NonNegativeNumber) // what is below 0 would become a large number
      ->type_name("N");
}

} // namespace

cluster_verbs::cluster_verbs(CLI::App& app) {
  CLI::App* v = add_verb(
      app, launch_.file, "launch",
      "Start all processes of a cluster on this host, wait until every worker and gateway is active, print the "
      "coordinator's address.\nA cluster that runs already is left alone; another one in the same "
      "state_dir is refused. Exit codes: 0 ready, 2 configuration,\n3 not ready in time, 4 "
      "some process ends again and again, and is not started any more.");
  v->add_option("--wait-ms", launch_.wait_ms, "time until all of them must be active (default 300000)")
      ->check(CLI::Range(1, 86400000))
      ->type_name("MS");
  verbs_.push_back(v);
  v = add_verb(
      app, status_.file, "status",
      "Processes of a cluster, their states and their work: ok, degraded, or unavailable while no request can be "
      "computed.\nExit codes: 0 whole, 1 less than that, 5 no coordinator.",
      file_or_address);
  v->add_flag("--json", status_.json, "one JSON object");
  v->add_flag("--watch", status_.watch, "again every second until Ctrl-C");
  verbs_.push_back(v);
  v = add_verb(app, stop_.file, "stop",
               "End all processes of a cluster: nothing new is begun, what runs ends (within timeouts.drain; Ctrl-C: "
               "do not wait),\nthen gateways, workers, node agents, the coordinator end. Exit codes: 0 nothing is "
               "left, 6 refused: not with this key, 8 what is left is\nlisted.");
  v->add_flag("--now", stop_.now, "kill them");
  verbs_.push_back(v);
  v = add_verb(
      app, migrate_.file, "migrate",
      "Copy an expert to a slot of another rank while requests run, and have every rank route by it. The slot "
      "must be\nredundant: empty, or of an expert that has another copy. Exit codes: 0 done, 5 no coordinator, 6 "
      "refused.",
      file_or_address);
  v->add_option("--layer", migrate_.layer, "the expert's layer")->required()->type_name("L");
  v->add_option("--expert", migrate_.expert, "the expert")->required()->type_name("E");
  v->add_option("--to", migrate_.to, "a rank of the cluster, and one of its slots (default: the one missed least)")
      ->required()
      ->type_name("RANK[:SLOT]");
  verbs_.push_back(v);
  v = add_verb(app, logs_.file, "logs", "Print the logs of a cluster's processes on this host.");
  v->add_option("PROCESS", logs_.process, "one process: coordinator.0, node.n0, decode.1 (default: all)");
  verbs_.push_back(v);
  v = add_verb(app, coordinator_.file, "coordinator", "Run a coordinator of a cluster (troupe launch starts it).");
  v->add_option("--index", coordinator_.index, "which one (default 0)")->type_name("I");
  add_incarnation(*v, coordinator_);
  verbs_.push_back(v);
  v = add_verb(app, node_.file, "node",
               "Run the agent of one host: it starts the host's workers and gateways (troupe launch starts it).");
  v->add_option("--name", node_.name, "the node's name in the file")->required()->type_name("NAME");
  add_incarnation(*v, node_);
  verbs_.push_back(v);
  v = add_verb(app, worker_.file, "worker", "Run one rank of a cluster (a node agent starts it).");
  v->add_option("--rank", worker_.index, "which one")->required()->type_name("R");
  add_incarnation(*v, worker_);
  verbs_.push_back(v);
  v = add_verb(app, gateway_.file, "gateway",
               "Run a gateway of a cluster: clients have their requests computed through it (a node agent starts it).");
  v->add_option("--index", gateway_.index, "which one (default 0)")->type_name("I");
  add_incarnation(*v, gateway_);
  verbs_.push_back(v);
  v = add_verb(app, remote_.file, "remote",
               "Hold a coordinator or node agent on its host through ssh (troupe launch starts it with launcher ssh).");
  v->add_option("PROCESS", remote_.process, "coordinator.0, node.n0, ...")->required();
  verbs_.push_back(v);
  v = app.add_subcommand("keygen",
                         "Make the keys for security.mode = \"mutual\": an authority, certificates and CURVE keys for "
                         "nodes and for the\nroles observer, client and admin. A folder that has an authority already "
                         "gets keys for further nodes.");
  v->add_option("DIR", keygen_.folder, "folder, made if it is not there")->required();
  v->add_option("--node", keygen_.nodes, "a node's name in the cluster's file; may be repeated")
      ->type_name("NAME")
      ->expected(1)
      ->take_all();
  verbs_.push_back(v);
}

bool cluster_verbs::take(command_line& line) const {
  const auto take_if = [&](std::size_t i, const auto& options) {
    if (verbs_[i]->parsed())
      line.verb = options;
  };
  take_if(0, launch_);
  take_if(1, status_);
  take_if(2, stop_);
  take_if(3, migrate_);
  take_if(4, logs_);
  take_if(5, coordinator_);
  take_if(6, node_);
  take_if(7, worker_);
  take_if(8, gateway_);
  take_if(9, remote_);
  take_if(10, keygen_);
  return std::ranges::any_of(verbs_, [](const CLI::App* v) { return v->parsed(); });
}

} // namespace troupe
