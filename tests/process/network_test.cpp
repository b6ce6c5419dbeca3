// A cluster whose nodes share no network interface: each node is a network namespace, and a pair of virtual cables and
// a bridge join them. Needs root and the right to make namespaces; where that is not given the test says so.
#include "tests/process/running_cluster.hpp"
#include <iostream>

using namespace process_test;

namespace {

constexpr int nodes = 2;

// Names and addresses of this process's own, so that several tests may run at once.
struct network {
  std::string tag = std::to_string(::getpid() % 100000), bridge = "trb" + tag;
  std::string net = "10.211." + std::to_string(::getpid() % 250 + 1) + ".";
  std::string why_not; // empty: it stands

  std::string space(int node) const { return "troupe" + tag + "n" + std::to_string(node); }
  std::string address(int node) const { return net + std::to_string(node + 1); }

  network() {
    ip({"link", "add", bridge, "type", "bridge"});
    ip({"link", "set", bridge, "up"});
    for (int n = 0; n < nodes; ++n) {
      const std::string cable = "trv" + tag + std::to_string(n);
      ip({"netns", "add", space(n)});
      ip({"link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space(n)});
      ip({"link", "set", cable, "master", bridge, "up"});
      ip({"-n", space(n), "address", "add", address(n) + "/24", "dev", "eth0"});
      ip({"-n", space(n), "link", "set", "eth0", "up"});
      ip({"-n", space(n), "link", "set", "lo", "up"});
    }
  }
  ~network() {
    for (int n = 0; n < nodes; ++n)
      test_support::run_process("/usr/bin/env", {"ip", "netns", "delete", space(n)});
    test_support::run_process("/usr/bin/env", {"ip", "link", "delete", bridge});
  }
  // Runs there.
  finished_process on(int node, std::vector<std::string> arguments, const process_options& options = {}) const {
    arguments.insert(arguments.begin(), {"ip", "netns", "exec", space(node), TROUPE_BINARY});
    return test_support::run_process("/usr/bin/env", arguments, options);
  }

private:
  void ip(std::vector<std::string> arguments) {
    if (!why_not.empty())
      return;
    arguments.insert(arguments.begin(), "ip");
    const auto done = test_support::run_process("/usr/bin/env", arguments);
    if (done.exit_code == 0)
      return;
    for (const std::string& a : arguments)
      why_not += a + " ";
    why_not += "failed: " + done.err;
  }
};

// Stands in for ssh: the address tells the namespace.
void write_ssh(const std::string& file, const network& n) {
  std::ofstream out(file);
  out << "#!/bin/sh\n[ \"$1 $2\" = '-o BatchMode=yes' ] || exit 9\ncase $3 in\n";
  for (int i = 0; i < nodes; ++i)
    out << n.address(i) << ") there=" << n.space(i) << ";;\n";
  out << "*) exit 9;;\nesac\nshift 3\nexec ip netns exec $there env \"$@\"\n";
  out.close();
  std::filesystem::permissions(file, std::filesystem::perms::owner_all);
}

} // namespace

BOOST_AUTO_TEST_SUITE(cluster_networks)

BOOST_AUTO_TEST_CASE(one_namespace_for_each_node) {
  const network net;
  if (!net.why_not.empty()) {
    std::cout << "NOT RUN: no network namespaces here: " << net.why_not << std::endl;
    return;
  }
  const temporary_folder folder;
  const auto made = run_troupe({"keygen", folder / "keys", "--node", "n0", "--node", "n1"});
  BOOST_REQUIRE_MESSAGE(made.exit_code == 0, made.err);
  const std::string state = folder / "state", file = folder / "cluster.toml", name = "net" + net.tag;
  std::filesystem::create_directory(folder / "bin");
  std::filesystem::create_symlink(TROUPE_BINARY, folder / "bin/troupe");
  write_ssh(folder / "bin/ssh", net);
  std::ofstream out(file);
  out << "[cluster]\nname = \"" << name << "\"\nstate_dir = \"" << state << "\"\nlauncher = \"ssh\"\n[security]\n"
      << made.out.substr(made.out.find("mode = ")) << "[control]\nbind = \"{ip:eth0}\"\nport = 47000\n"
      << "[data]\nbind = \"{ip:eth0}\"\nport = 48000\n[gateway]\nbind = \"{ip:eth0}\"\n[model]\npath = \""
      << TROUPE_SOURCE_DIR << "/models/tiny-v41\"\nseed = 5\nmax_model_len = 1024\n";
  for (int n = 0; n < nodes; ++n)
    out << "[[node]]\nname = \"n" << n << "\"\nhost = \"" << net.address(n) << "\"\n";
  out << "[[worker_group]]\nname = \"prefill\"\nengine = \"prompt\"\nnode = [\"n0\", \"n1\"]\ncount = 2\n"
         "context_parallel = 2\ndevice = \"cpu\"\nthreads = 1\n[[worker_group]]\nname = \"decode\"\nengine = "
         "\"completion\"\nnode = [\"n0\", \"n1\"]\n"
         "count = 2\ndevice = \"cpu\"\nthreads = 1\nexpert_parallel = 2\n[eplb]\nmin_extra = 4\n";
  out.close();
  const std::string lines = mixed_lines(16);
  const auto expected = alone(lines);
  process_options with_ssh, with_lines;
  with_ssh.environment["PATH"] = folder / "bin" + ":" + std::getenv("PATH");
  with_lines.input = lines;
  const auto up = net.on(0, {"launch", file}, with_ssh);
  BOOST_REQUIRE_MESSAGE(up.exit_code == 0, up.err);
  const auto status = net.on(0, {"status", file, "--json"});
  BOOST_TEST(status.exit_code == 0, status.err);
  BOOST_TEST(contains(status.out, "\"node\":\"n1\""));
  for (int from = 0; from < nodes; ++from) {
    const auto run = net.on(from, {"batch", "-", "-", "--cluster", file}, with_lines);
    BOOST_TEST(run.exit_code == 0, run.err);
    check_equal(by_id(run.out), expected);
  }
  const auto stopped = net.on(0, {"stop", file});
  BOOST_TEST(stopped.exit_code == 0, stopped.err);
  expect_nothing_left_of(name, state, file);
}

BOOST_AUTO_TEST_SUITE_END()
