// troupe launch, stop, logs: the processes of a cluster on this host, together.
#include "cli/cluster_file.hpp"
#include "cli/interrupts.hpp"
#include "cli/log.hpp"
#include "cli/progress.hpp"
#include "cli/verbs.hpp"
#include "cluster/child_process.hpp"
#include "cluster/incarnation.hpp"
#include "cluster/shared_memory.hpp"
#include "runtime/base/pending_file.hpp"
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <spdlog/spdlog.h>
#include <thread>

namespace troupe {

namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

// What the launcher started and has to answer for until the cluster is ready.
struct started_process {
  std::string name, log;
  child_process process;
};

started_process start_process(const state_dir& state, const std::string& name, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), own_path());
  const std::string log = state.log_file(name, mint_incarnation());
  auto p = child_process::start({std::move(arguments), log, false});
  if (!p)
    throw config_error("", "cluster.state_dir", state.path(), p.failure().message, "see the message");
  return {name, log, std::move(*p)};
}

std::string last_lines(const std::string& file) {
  std::ifstream in(file);
  std::string all, line;
  while (std::getline(in, line))
    all = all.size() > 2000 ? line : all + (all.empty() ? "" : "\n") + line;
  return all;
}

void check_alive(std::vector<started_process>& all) {
  for (started_process& s : all)
    if (!s.process.running())
      throw config_error("", "launch", s.name, s.process.exit_text() + ": " + last_lines(s.log), "see " + s.log);
}

std::size_t active_workers(const cluster_status& s) {
  return static_cast<std::size_t>(std::ranges::count_if(s.members, [](const member_report& m) {
    return m.known.who.role == member_role::worker && m.known.state == member_state::active;
  }));
}

void check_launchable(const cluster_configuration& c) {
  if (c.cluster.launcher != launcher_kind::local)
    throw config_error("", "cluster.launcher", std::string(text_of(c.cluster.launcher)), "cannot be launched from here",
                       "use launcher = \"local\", or start troupe coordinator, node and worker by hand");
  if (c.security.mode != security_mode::loopback)
    throw config_error("", "security.mode", std::string(text_of(c.security.mode)), "is not built yet",
                       "use mode = \"loopback\"");
}

// What the configuration asks for and this version does otherwise: the results are the same, the work is not shared.
void say_what_is_not_shared(const cluster_configuration& c) {
  for (const worker_group_section& g : c.worker_group) {
    if (g.engine != group_engine::normal)
      spdlog::warn("worker_group.{}: engine = \"{}\" is not built yet: its workers compute prompts and outputs", g.name,
                   text_of(g.engine));
    if (g.context_parallel > 1)
      spdlog::warn(
          "worker_group.{}: contexts are not shared between processes yet: every worker computes whole prompts",
          g.name);
  }
}

} // namespace

int run_launch(const launch_options& o) {
  interrupts signals;
  const loaded_cluster c = load_cluster(o.file);
  const cluster_configuration& k = c.configuration;
  check_launchable(k);
  const std::string digest = configuration_hash(k);
  c.state->remove_stale();
  const auto running = c.state->running();
  if (!running.empty()) {
    const auto other =
        std::ranges::find_if(running, [&](const process_record& r) { return r.configuration != digest; });
    if (other != running.end())
      throw config_error(o.file.file, "cluster.state_dir", c.state->path(),
                         "a cluster of another configuration runs there (" + other->name + ", process " +
                             std::to_string(other->pid) + ")",
                         "stop it first: troupe stop, or name another state_dir");
  }
  say_what_is_not_shared(k);
  const std::string file = c.state->configuration_file();
  if (const status s = write_whole_file(file, to_toml(k)); !s)
    throw config_error("", "cluster.state_dir", file, s.failure().message, "name a folder that this user may write");

  std::vector<started_process> all;
  const auto last = clock::now() + std::chrono::milliseconds(o.wait_ms);
  const auto wait_until = [&](const auto& condition) {
    while (!condition()) {
      check_alive(all);
      if (signals.count() > 0 || clock::now() >= last)
        return false;
      signals.wait({}, 20);
    }
    return true;
  };
  const auto give_up = [&](const std::string& why) {
    spdlog::error("{}; logs are in {}/log", why, c.state->path());
    return signals.count() > 0 ? exit_interrupted : exit_time_out;
  };
  for (const process_place& p : c.layout.coordinators)
    if (!c.state->read(name_of_coordinator(p)))
      all.push_back(
          start_process(*c.state, name_of_coordinator(p), {"coordinator", file, "--index", std::to_string(p.index)}));
  if (!wait_until([&] {
        return std::ranges::all_of(c.layout.coordinators, [&](const process_place& p) {
          return c.state->read(name_of_coordinator(p)).has_value();
        });
      }))
    return give_up("the coordinator did not start in time");
  for (const process_place& p : c.layout.node_agents)
    if (!c.state->read(name_of_node_agent(k, p)))
      all.push_back(start_process(*c.state, name_of_node_agent(k, p), {"node", file, "--name", k.node[p.node].name}));
  const cluster_identity id = identity_of(k, c.layout, *c.state);
  coordinator_client client(id);
  progress_line progress("starting " + k.cluster.name);
  std::size_t active = 0;
  const bool all_active = wait_until([&] {
    const auto s = client.status();
    active = s ? active_workers(*s) : 0;
    progress.show(static_cast<std::int64_t>(active), static_cast<std::int64_t>(c.layout.ranks.size()), "workers,");
    return active >= c.layout.ranks.size();
  });
  progress.clear();
  if (!all_active)
    return give_up(std::to_string(active) + " of " + std::to_string(c.layout.ranks.size()) + " workers are active");
  std::cout << to_string(id.coordinators.front()) << "\n"; // any of them gives the rest
  return exit_ok;
}

namespace {

// Everything that a cluster may leave on this host.
std::vector<std::string> leftovers(const loaded_cluster& c) {
  std::vector<std::string> left;
  for (const process_record& r : c.state->running())
    left.push_back("process " + std::to_string(r.pid) + " (" + r.name + ")");
  std::error_code why;
  const std::string prefix = "troupe." + segment_part(c.configuration.cluster.name) + ".";
  reap_segments(prefix); // of processes that were killed
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", why))
    if (entry.path().filename().string().starts_with(prefix))
      left.push_back("shared memory " + entry.path().string());
  return left;
}

} // namespace

int run_stop(const stop_options& o) {
  interrupts signals;
  const loaded_cluster c = load_cluster(o.file);
  const auto wait_until_gone = [&](std::chrono::milliseconds limit) {
    const auto last = clock::now() + limit;
    while (!leftovers(c).empty() && clock::now() < last && signals.count() == 0)
      signals.wait({}, 20);
    return leftovers(c).empty();
  };
  const std::chrono::milliseconds limit(c.configuration.timeouts.stop_ms);
  bool gone = c.state->running().empty();
  if (!gone && !o.now) {
    status told = nothing{};
    {
      coordinator_client client(identity_of(c.configuration, c.layout, *c.state));
      told = client.shut_down();
    }
    if (told)
      gone = wait_until_gone(2 * limit);
    else
      spdlog::warn("{}: the processes of this host are told one by one", told.failure().message);
  }
  for (const int number : {SIGTERM, SIGKILL}) {
    if (gone || (o.now && number == SIGTERM))
      continue;
    for (const process_record& r : c.state->running())
      if (auto p = child_process::adopt(r.pid, r.ticks))
        p->signal(number);
    gone = wait_until_gone(limit);
  }
  c.state->remove_stale();
  for (const std::string& left : leftovers(c))
    spdlog::error("left over: {}", left);
  return leftovers(c).empty() ? exit_ok : exit_leftovers;
}

int run_logs(const logs_options& o) {
  const loaded_cluster c = load_cluster(o.file);
  std::vector<std::filesystem::path> files;
  std::error_code why;
  for (const auto& entry : std::filesystem::directory_iterator(c.state->path() + "/log", why))
    if (o.process.empty() || entry.path().filename().string().starts_with(o.process + "."))
      files.push_back(entry.path());
  std::ranges::sort(files);
  for (const auto& file : files) {
    std::cout << "==> " << file.filename().string() << "\n";
    std::ifstream in(file);
    if (in.peek() != std::ifstream::traits_type::eof())
      std::cout << in.rdbuf();
  }
  return exit_ok;
}

} // namespace troupe
