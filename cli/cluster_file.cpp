#include "cli/cluster_file.hpp"
#include "cli/engine_settings.hpp"
#include "cli/interrupts.hpp"
#include "cli/log.hpp"
#include "cli/verbs.hpp"
#include "cluster/child_process.hpp"
#include "cluster/name_pattern.hpp"
#include "cluster/orders.hpp"
#include "runtime/base/pending_file.hpp"
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <filesystem>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

namespace troupe {

namespace {

constexpr std::size_t header_digits = 8, most_configuration = 1 << 20; // bytes

// Standard input up to the end of the configuration, no byte further.
std::string configuration_on_input() {
  const auto take = [](std::size_t count) {
    std::string text(count, '\0');
    for (std::size_t got = 0; got < count;) {
      const ssize_t n = ::read(STDIN_FILENO, text.data() + got, count - got);
      if (n < 0 && errno == EINTR)
        continue;
      if (n <= 0)
        throw config_error("standard input", "", "", "ends before the configuration does",
                           "FILE - is for troupe launch with launcher ssh; give a file");
      got += static_cast<std::size_t>(n);
    }
    return text;
  };
  const std::string head = take(header_digits + 1);
  std::size_t size = 0;
  const auto [end, why] = std::from_chars(head.data(), head.data() + header_digits, size);
  if (why != std::errc{} || end != head.data() + header_digits || head.back() != '\n' || size > most_configuration)
    throw config_error("standard input", "", "", "is no configuration that troupe remote has sent",
                       "FILE - is for troupe launch with launcher ssh; give a file");
  return take(size);
}

// Throws config_error with the first fault; every further one is logged before.
loaded_cluster read_cluster(const configuration_sources& sources) {
  configuration_reading r = read_configuration(sources);
  for (std::size_t i = 1; i < r.faults.size(); ++i)
    spdlog::error("{}", r.faults[i].what());
  if (!r.faults.empty())
    throw r.faults.front();
  auto layout = layout_of(r.configuration);
  if (!layout)
    throw config_error(sources.file, "", "", layout.failure().message, "see troupe check");
  loaded_cluster c{{sources.file, sources.set},
                   {},
                   r.configuration,
                   std::move(*layout),
                   std::make_shared<const state_dir>(r.configuration.cluster.state_dir)};
  c.reading = std::move(r);
  return c;
}

// It names its model.
loaded_cluster read_cluster_text(const std::string& toml, const std::string& name) {
  return read_cluster({name, {}, process_environment(), {}, toml});
}

} // namespace

std::string sent_configuration(const std::string& toml) {
  return fmt::format("{:0{}}\n", toml.size(), header_digits) + toml;
}

loaded_cluster load_cluster(const cluster_file& file) {
  if (file.file == "-") {
    const std::string toml = configuration_on_input();
    loaded_cluster c = read_cluster_text(toml, "standard input");
    c.file = {c.state->configuration_file(), {}};
    c.state->make();
    if (const status s = write_whole_file(c.file.file, toml); !s)
      throw config_error("", "cluster.state_dir", c.file.file, s.failure().message,
                         "name a folder that this user may write");
    return c;
  }
  return read_cluster({file.file, file.set, process_environment(), default_model_folder()});
}

loaded_cluster enter_cluster(const cluster_file& file) {
  loaded_cluster c = load_cluster(file);
  c.state->make();
  return c;
}

loaded_cluster load_running(const cluster_file& where) {
  if (std::filesystem::exists(where.file))
    return load_cluster(where);
  const auto at = parse_endpoint(where.file);
  if (!at)
    throw config_error("command line", "--cluster", where.file, "is neither a file nor an address with a port",
                       "give the cluster's file, or what troupe launch printed");
  if (!where.set.empty())
    throw config_error("command line", "--set", where.set.front(), "has no effect on a running cluster",
                       "leave it out");
  coordinator_client client({.name = {}, .configuration = {}, .coordinators = {*at}, .tls = {}});
  const auto text = client.configuration();
  if (!text)
    throw no_coordinator("command line", "--cluster", to_string(*at), text.failure().message,
                         "give the address and port that troupe launch printed; an address brings no keys: with "
                         "security.mode mutual give the cluster's file, which names them");
  return read_cluster_text(text->toml, "the configuration of " + to_string(*at));
}

std::vector<std::vector<std::string>> engine_workers_of(const loaded_cluster& c) {
  std::vector<std::vector<std::string>> all;
  for (std::size_t g = 0; g < c.layout.groups.size(); ++g) {
    const worker_group_section& section = c.configuration.worker_group[g];
    if (section.engine == engine_kind::prompt)
      continue;
    const auto together = static_cast<std::size_t>(std::max(section.context_parallel, section.expert_parallel));
    for (std::size_t i = 0; i < c.layout.groups[g].ranks; ++i) {
      if (i % together == 0)
        all.emplace_back();
      all.back().push_back(name_of_rank(c.configuration, c.layout.ranks[c.layout.groups[g].first_rank + i]));
    }
  }
  return all;
}

std::string key_name_for(const cluster_configuration& c, key_role least) {
  std::vector<std::string> names(role_names.begin() + static_cast<std::ptrdiff_t>(least), role_names.end());
  if (c.security.mode != security_mode::mutual)
    return names.front();
  for (const node_section& n : c.node)
    if (is_this_machine(n.host))
      names.push_back(n.name);
  // Orders are given with a lesser one, too: who is asked says what is wanted. To be a client needs a client's.
  for (auto role = static_cast<std::size_t>(least); least == key_role::admin && role > 0; --role)
    names.emplace_back(role_names[role - 1]);
  for (const std::string& name : names)
    if (::access(with_node(c.security.key, name).c_str(), R_OK) == 0)
      return name;
  throw config_error("", "security.key", with_node(c.security.key, names.front()),
                     "this user has no key of the cluster on this machine",
                     "make it with troupe keygen, or go where it is");
}

own_record::own_record(std::shared_ptr<const state_dir> state, std::string name, std::uint64_t incarnation,
                       const endpoint& at, const std::string& configuration)
    : state_(std::move(state)), name_(std::move(name)) {
  check_free(*state_, name_);
  state_->write({name_, ::getpid(), start_ticks(::getpid()).value_or(0), incarnation, at, configuration});
}

void own_record::check_free(const state_dir& state, const std::string& name) {
  if (const auto other = state.read(name); other && other->pid != ::getpid())
    throw config_error("", "cluster.state_dir", state.path(),
                       name + " runs here already as process " + std::to_string(other->pid),
                       "stop it first (troupe stop), or give this cluster a state_dir of its own");
}

own_record::~own_record() {
  state_->remove(name_);
}

coordinator_client::coordinator_client(const cluster_identity& cluster) : cluster_(cluster), config_(cluster, 2) {}

coordinator_client::~coordinator_client() {
  if (const std::size_t left = wait_for_actors(system_, std::chrono::seconds(5)))
    give_up_on_actors(left);
}

// Every coordinator that answers, with what it says of itself.
std::vector<std::pair<membership_actor, cluster_status>> coordinator_client::reach(error& why) {
  std::vector<std::pair<membership_actor, cluster_status>> all;
  why = {"unreachable", "no coordinator is known"};
  for (const endpoint& e : cluster_.coordinators) {
    const auto found = connect<membership_actor>(system_, e);
    if (!found) {
      why = found.failure();
      continue;
    }
    if (auto s = ask_again<cluster_status>(system_, *found, cluster_.questions, status_query{}))
      all.emplace_back(*found, std::move(*s));
    else
      why = s.failure();
  }
  return all;
}

result<cluster_status> coordinator_client::status() {
  error why;
  const auto all = reach(why);
  for (const auto& [at, s] : all)
    if (s.leads)
      return s;
  return all.empty() ? why : error{"no_leader", "no coordinator leads: a majority of the node agents is needed"};
}

result<configuration_text> coordinator_client::configuration() {
  error why;
  const auto all = reach(why);
  return all.empty()
             ? result<configuration_text>(why)
             : ask_again<configuration_text>(system_, all.front().first, cluster_.questions, configuration_query{});
}

result<ack> coordinator_client::migrate(troupe::migrate what) {
  if (const troupe::status signed_it = sign(what, cluster_.tls); !signed_it)
    return signed_it.failure();
  error why;
  for (const auto& [at, s] : reach(why)) {
    if (!s.leads)
      continue;
    const auto found = ask_again<expert_group_info>(system_, at, cluster_.questions, expert_group_query{what.rank});
    if (!found)
      return found.failure();
    if (!found->group)
      return ack{0, ack_code::unknown,
                 note_of({"unknown", "rank " + std::to_string(what.rank) +
                                         " shares experts with no other: its worker_group has "
                                         "expert_parallel = 1, or there is no such rank"})};
    caf::scoped_actor self{system_};
    result<ack> answer = error{"unreachable", "the coordinator does not answer"};
    ask(self.ptr(), found->group, std::chrono::minutes(5), what)
        .receive([&](const ack& a) { answer = a; },
                 [&](const caf::error& e) {
                   answer = error{"unreachable", text(system_, e)};
                 });
    return answer;
  }
  return why.code.empty() ? error{"no_leader", "no coordinator leads"} : why;
}

troupe::status coordinator_client::stop(bool now) {
  stop_cluster order{now};
  if (const troupe::status signed_it = sign(order, cluster_.tls); !signed_it)
    return signed_it.failure();
  error why;
  auto all = reach(why);
  if (std::ranges::none_of(all, [](const auto& c) { return c.second.leads; }))
    return all.empty() ? why : error{"no_leader", "no coordinator leads"};
  std::ranges::stable_partition(all, [](const auto& c) { return !c.second.leads; }); // nobody takes over meanwhile
  troupe::status told = nothing{};
  for (const auto& [at, s] : all) {
    const auto answer = ask_again<ack>(system_, at, cluster_.questions, order);
    if (answer && answer->code != ack_code::ok)
      return error_of(*answer);
    if (!answer && s.leads)
      told = answer.failure();
  }
  return told;
}

std::string own_path() {
  char path[PATH_MAX];
  const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
  if (n <= 0)
    throw config_error("", "", "", "the path of this program is unknown", "mount /proc");
  return {path, static_cast<std::size_t>(n)};
}

} // namespace troupe
