// troupe launch, stop, logs: the processes of a cluster on this host, together.
#include "cli/cluster_file.hpp"
#include "cli/interrupts.hpp"
#include "cli/log.hpp"
#include "cli/progress.hpp"
#include "cli/verbs.hpp"
#include "cluster/child_process.hpp"
#include "cluster/configuration_checks.hpp"
#include "cluster/file_lock.hpp"
#include "cluster/incarnation.hpp"
#include "cluster/shared_memory.hpp"
#include "runtime/base/pending_file.hpp"
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <spdlog/spdlog.h>
#include <thread>
#include <unistd.h>

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

// Workers, node agents and gateways. Clients are gateways that nobody can reach.
std::size_t active_processes(const cluster_status& s) {
  return static_cast<std::size_t>(std::ranges::count_if(s.members, [](const member_report& m) {
    return m.known.who.port != 0 && m.known.state == member_state::active;
  }));
}

// What node agents have given up starting, and why.
std::vector<worker_end> given_up_processes(const cluster_status& s) {
  std::vector<worker_end> all;
  for (const member_report& m : s.members)
    if (!is_over(m.known.state))
      all.insert(all.end(), m.progress.given_up.begin(), m.progress.given_up.end());
  return all;
}

// The processes that a cluster begins with: each host's agent starts the rest.
struct first_process {
  std::string name, host;
  std::vector<std::string> arguments; // behind the program; the file is missing
  endpoint at;                        // port 0: any
  bool coordinator = false;
};

std::vector<first_process> first_processes(const loaded_cluster& c) {
  std::vector<first_process> all;
  const auto& nodes = c.configuration.node;
  const auto at = [&](const process_place& p) {
    return endpoint{nodes[p.node].host, static_cast<std::uint16_t>(p.control_port)};
  };
  for (const process_place& p : c.layout.coordinators)
    all.push_back(
        {name_of_coordinator(p), nodes[p.node].host, {"coordinator", "--index", std::to_string(p.index)}, at(p), true});
  for (const process_place& p : c.layout.node_agents)
    all.push_back(
        {name_of_node_agent(c.configuration, p), nodes[p.node].host, {"node", "--name", nodes[p.node].name}, at(p)});
  return all;
}

int print_commands(const loaded_cluster& c, const std::string& file) {
  std::cout << "# " << c.configuration.cluster.name << ": run these, each on its host, which has " << file
            << "; troupe status says when all is there\n";
  for (const first_process& p : first_processes(c)) {
    std::cout << "troupe " << p.arguments[0] << " " << file;
    for (std::size_t i = 1; i < p.arguments.size(); ++i)
      std::cout << " " << p.arguments[i];
    for (const std::string& set : c.file.set)
      std::cout << " --set '" << set << "'";
    std::cout << "   # " << p.name << " on " << p.host << "\n";
  }
  return exit_ok;
}

// One launch at a time.
file_lock launch_lock(const state_dir& state) {
  auto lock = file_lock::take(state.launch_lock());
  if (lock)
    return std::move(*lock);
  if (lock.failure().code == "held")
    throw config_error("", "cluster.state_dir", state.path(), "another troupe launch is at work there",
                       "wait until it is through");
  throw config_error("", "cluster.state_dir", state.path(), lock.failure().message,
                     "name a folder that this user may write");
}

} // namespace

int run_launch(const launch_options& o) {
  interrupts signals;
  const loaded_cluster c = load_cluster(o.file);
  const cluster_configuration& k = c.configuration;
  if (const auto fault = launch_fault(c.reading))
    throw *fault;
  for (const std::string& note : c.reading.notes)
    spdlog::warn("{}", note);
  if (k.cluster.launcher == launcher_kind::manual)
    return print_commands(c, o.file.file);
  const std::string key = key_name_for(k, key_role::observer);
  c.state->make();
  const file_lock alone = launch_lock(*c.state);
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
  const bool remote = k.cluster.launcher == launcher_kind::ssh;
  const std::vector<first_process> first = first_processes(c);
  const auto start = [&](const first_process& p) {
    if (c.state->read(p.name) || (remote && c.state->read("remote." + p.name)))
      return;
    std::vector<std::string> arguments{p.arguments[0], file};
    if (remote)
      arguments = {"remote", file, p.name};
    else
      arguments.insert(arguments.end(), p.arguments.begin() + 1, p.arguments.end());
    all.push_back(start_process(*c.state, remote ? "remote." + p.name : p.name, arguments));
  };
  // Here by their records: a port may be somebody else's.
  const auto answers = [&](const first_process& p) {
    return remote ? bool(probe(p.at, 100ms)) : c.state->read(p.name).has_value();
  };
  for (const bool coordinator : {true, false}) {
    for (const first_process& p : first)
      if (p.coordinator == coordinator)
        start(p);
    if (coordinator && !wait_until([&] {
          return std::ranges::all_of(first, [&](const first_process& p) { return !p.coordinator || answers(p); });
        }))
      return give_up("the coordinator did not start in time");
  }
  const cluster_identity id = identity_of(k, key, c.layout, *c.state);
  coordinator_client client(id);
  progress_line progress("starting " + k.cluster.name);
  std::size_t active = 0;
  std::vector<worker_end> given_up;
  const std::size_t expected = c.layout.ranks.size() + c.layout.node_agents.size() + c.layout.gateways.size();
  const bool all_active = wait_until([&] {
    const auto s = client.status();
    active = s ? active_processes(*s) : 0;
    given_up = s ? given_up_processes(*s) : std::vector<worker_end>();
    progress.show(static_cast<std::int64_t>(active), static_cast<std::int64_t>(expected), "processes,");
    return active >= expected || !given_up.empty();
  });
  progress.clear();
  for (const worker_end& e : given_up)
    spdlog::error("{} is not started again: {}", e.name, e.how);
  if (!given_up.empty()) {
    give_up(std::to_string(active) + " of " + std::to_string(expected) +
            " workers, node agents and gateways are active");
    spdlog::error("the node agents that run do not start them again: mend what stands above, then troupe stop {0} and "
                  "troupe launch {0}",
                  o.file.file);
    return exit_partial;
  }
  if (!all_active)
    return give_up(std::to_string(active) + " of " + std::to_string(expected) +
                   " workers, node agents and gateways are active");
  std::cout << to_string(id.coordinators.front()) << "\n"; // any of them gives the rest
  return exit_ok;
}

namespace {

// Processes of a cluster on this host. One that ends takes its record away before it is gone: who was seen once is
// looked after until then.
class seen_processes {
public:
  explicit seen_processes(const state_dir& state) : state_(state) {}
  const std::vector<process_record>& running() {
    std::erase_if(seen_, [](const process_record& r) { return !is_running(r); });
    for (process_record& r : state_.running())
      if (std::ranges::none_of(seen_, [&](const process_record& s) { return s.pid == r.pid && s.ticks == r.ticks; }))
        seen_.push_back(std::move(r));
    return seen_;
  }

private:
  const state_dir& state_;
  std::vector<process_record> seen_;
};

// Everything that a cluster may leave on this host, but for the shared memory and the locks of processes that were
// killed, which go here.
std::vector<std::string> leftovers(const loaded_cluster& c, seen_processes& processes) {
  std::vector<std::string> left;
  for (const process_record& r : processes.running())
    left.push_back("process " + std::to_string(r.pid) + " (" + r.name + ")");
  std::error_code why;
  const std::string prefix = "troupe." + segment_part(c.configuration.cluster.name) + ".";
  reap_segments(prefix); // of processes that were killed
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", why))
    if (entry.path().filename().string().starts_with(prefix))
      left.push_back("shared memory " + entry.path().string());
  if (!left.empty()) // to look whether a lock is held is to hold it: not while somebody may want it
    return left;
  std::vector<std::string> locks{c.state->launch_lock()};
  for (const process_place& g : c.layout.gateways)
    locks.push_back(c.state->ledger_file(name_of_gateway(g)) + ".lock");
  for (const std::string& lock : locks)
    if (!remove_stale_lock(lock))
      left.push_back("lock " + lock + " of a process that is at work");
  return left;
}

// Asks something of the coordinators, with that key; an error if none is known on this host.
template <class Ask> auto ask_coordinators(const loaded_cluster& c, const std::string& key, const Ask& ask) {
  using answer = decltype(ask(std::declval<coordinator_client&>()));
  try {
    coordinator_client client(identity_of(c.configuration, key, c.layout, *c.state));
    return ask(client);
  } catch (const config_error& e) {
    return answer(error{"unreachable", e.what()});
  }
}

// Whether the cluster is being stopped and some gateway, of the cluster or of a client, has requests that run.
bool still_runs(const loaded_cluster& c, const std::string& key) {
  const auto s = ask_coordinators(c, key, [](coordinator_client& client) { return client.status(); });
  return s && s->stopping && std::ranges::any_of(s->members, [](const member_report& m) {
           return m.known.who.role == member_role::gateway && !is_over(m.known.state) && !m.progress.drained;
         });
}

} // namespace

int run_stop(const stop_options& o) {
  interrupts signals;
  const loaded_cluster c = load_cluster(o.file);
  const std::string key = key_name_for(c.configuration, key_role::admin);
  seen_processes processes(*c.state);
  const auto wait_until_gone = [&](std::chrono::milliseconds limit, int number) {
    const auto last = clock::now() + limit;
    const int heard = signals.count(); // another Ctrl-C: not so long
    std::set<std::pair<pid_t, std::uint64_t>> told;
    while (!leftovers(c, processes).empty() && clock::now() < last && signals.count() == heard) {
      for (const process_record& r : processes.running()) // also those that a node agent has started meanwhile
        if (number != 0 && told.emplace(r.pid, r.ticks).second)
          if (auto p = child_process::adopt(r.pid, r.ticks))
            p->signal(number);
      signals.wait({}, 20);
    }
    return leftovers(c, processes).empty();
  };
  const std::chrono::milliseconds limit(c.configuration.timeouts.stop_ms);
  bool gone = leftovers(c, processes).empty();
  if (gone) {
    spdlog::warn("{}: nothing of it runs on this host (cluster.state_dir = {})", c.configuration.cluster.name,
                 c.state->path());
  } else {
    // Clients hear of it, also when everything is killed then.
    const status told = ask_coordinators(c, key, [&](coordinator_client& client) { return client.stop(o.now); });
    if (!told && told.failure().code == "not_allowed") {
      spdlog::error("refused: {}", told.failure().message);
      return exit_refused;
    }
    while (told && !o.now && signals.count() == 0 && still_runs(c, key))
      signals.wait({}, 100);
    if (!told && !o.now)
      spdlog::warn("{}: the processes of this host are told one by one", told.failure().message);
    else if (!o.now && signals.count() == 0)
      gone = wait_until_gone(2 * limit, 0);
  }
  for (const int number : {SIGTERM, SIGKILL}) {
    if (gone || (o.now && number == SIGTERM))
      continue;
    gone = wait_until_gone(limit, number);
  }
  c.state->remove_stale();
  const std::vector<std::string> all_left = leftovers(c, processes);
  for (const std::string& left : all_left)
    spdlog::error("left over: {}", left);
  return all_left.empty() ? exit_ok : exit_leftovers;
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
