// Who is taken into a cluster, asked of a coordinator by hand.
#include "actors/coordinator_process.hpp"
#include "actors/member.hpp"
#include "cluster/build_id.hpp"
#include "cluster/certificates.hpp"
#include "cluster/ended_processes.hpp"
#include "cluster/orders.hpp"
#include "tests/support/process.hpp"
#include <boost/test/unit_test.hpp>
#include <thread>
#include <unistd.h>

using namespace troupe;

namespace {

struct lone_coordinator {
  cluster_identity identity;
  std::unique_ptr<coordinator_process> process;

  explicit lone_coordinator(const std::optional<tls_files>& keys = {}, std::vector<std::int64_t> stuck_ms = {}) {
    using std::chrono::milliseconds;
    coordinator_setup s;
    s.cluster =
        identity = {"test" + std::to_string(::getpid()), "digest", {}, milliseconds(500), milliseconds(60000), keys};
    s.limits = {30000, 60000, 600000}; // nobody is held for dead because the machine is slow
    s.stuck_ms = std::move(stuck_ms);
    s.at = {"127.0.0.1", 0};
    process = std::make_unique<coordinator_process>(s);
    identity.coordinators = {{"127.0.0.1", process->port()}};
  }
};

// Processes of a cluster as far as its coordinator can tell.
class hand_members {
public:
  explicit hand_members(const cluster_identity& c) : config_(c, 1), configuration_(c.configuration) {
    const auto membership = connect<membership_actor>(system_, c.coordinators.front());
    BOOST_REQUIRE(membership);
    membership_ = *membership;
  }
  ~hand_members() { membership_ = membership_actor(); }

  static member worker(std::uint32_t rank, std::uint64_t incarnation) {
    member m;
    m.name = "decode." + std::to_string(rank);
    m.node = "n0";
    m.rank = rank;
    m.incarnation = incarnation;
    return m;
  }
  static member client(std::uint64_t incarnation) {
    member m;
    m.role = member_role::gateway;
    m.name = "batch." + std::to_string(incarnation);
    m.incarnation = incarnation;
    return m;
  }
  // keys: that the join is signed with.
  joined join(member who, const std::optional<tls_files>& keys = {}) {
    who.build = build_id();
    who.configuration = configuration_;
    troupe::join j{who, true};
    if (keys) {
      const auto p = prove(*keys, words_of(who));
      BOOST_REQUIRE(p);
      j.certificate = p->certificate;
      j.signature = p->signature;
    }
    return asked<joined>(j);
  }
  void beat(std::uint64_t incarnation, std::uint64_t steps, std::uint64_t paused = 0, std::uint64_t starved_ms = 0) {
    hb h;
    h.paused = paused;
    h.starved_ms = starved_ms;
    h.incarnation = incarnation;
    h.steps = steps;
    h.running = 1;
    tell(self_.ptr(), membership_, h);
  }
  ack stop(const std::optional<tls_files>& keys) {
    stop_cluster order;
    BOOST_REQUIRE(sign(order, keys));
    return asked<ack>(order);
  }
  void leave(std::uint64_t incarnation) { tell(self_.ptr(), membership_, troupe::leave{incarnation}); }
  cluster_status status() { return asked<cluster_status>(status_query{}); }

private:
  template <class Answer, class Query> Answer asked(const Query& q) {
    Answer answer;
    ask(self_.ptr(), membership_, std::chrono::seconds(60), q)
        .receive([&](const Answer& a) { answer = a; }, [](const caf::error&) { BOOST_ERROR("no answer"); });
    return answer;
  }

  cluster_system_config config_;
  bounded_system system_{config_};
  caf::scoped_actor self_{system_};
  std::string configuration_;
  membership_actor membership_;
};

bool ok(const joined& j) {
  return j.code == ack_code::ok;
}

member_state state_of(hand_members& m, std::uint64_t incarnation) {
  for (const member_report& r : m.status().members)
    if (r.known.who.incarnation == incarnation)
      return r.known.state;
  return member_state::left;
}

} // namespace

BOOST_AUTO_TEST_SUITE(memberships)

BOOST_AUTO_TEST_CASE(an_incarnation_that_is_over_never_comes_back) {
  const lone_coordinator c;
  hand_members h(c.identity);
  BOOST_TEST(ok(h.join(h.worker(0, 7))));
  h.leave(7);
  BOOST_TEST(ok(h.join(h.worker(0, 9))));
  h.leave(9);
  const joined again = h.join(h.worker(0, 7));
  BOOST_TEST((again.code == ack_code::stale_epoch));
  BOOST_TEST(again.why == "decode.0 of incarnation 7 is held for dead; start it anew");
  BOOST_TEST(ok(h.join(h.worker(0, 8)))); // the host's clock was set back
}

BOOST_AUTO_TEST_CASE(clients_that_have_left_are_forgotten_and_workers_are_not) {
  const lone_coordinator c;
  hand_members h(c.identity);
  BOOST_TEST(ok(h.join(h.worker(0, 1))));
  h.leave(1);
  for (std::uint64_t i = 2; i < 2 + 3 * ended_processes::most_clients; ++i) {
    BOOST_TEST(ok(h.join(h.client(i))));
    h.leave(i);
  }
  while (h.status().members.size() > ended_processes::most_clients + 1)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const cluster_status s = h.status();
  BOOST_TEST(s.members.size() == ended_processes::most_clients + 1);
  BOOST_TEST(std::ranges::count(s.members, "decode.0", [](const member_report& m) { return m.known.who.name; }) == 1);
  BOOST_TEST((h.join(h.client(2)).code == ack_code::stale_epoch));
}

BOOST_AUTO_TEST_CASE(a_worker_of_another_model_is_refused_as_long_as_others_are_there) {
  const lone_coordinator c;
  hand_members h(c.identity);
  const auto with = [&](member m, const char* texts, const char* weights, const char* numerics) {
    m.model = {texts, weights, numerics, {}};
    return m;
  };
  BOOST_TEST(ok(h.join(with(h.client(1), "other", "", "")))); // before it there is nothing to compare with
  BOOST_TEST(ok(h.join(with(h.worker(0, 2), "t", "w", "n"))));
  BOOST_TEST(ok(h.join(with(h.worker(1, 3), "t", "w", "n"))));
  BOOST_TEST(ok(h.join(with(h.client(4), "t", "", ""))));
  const joined t = h.join(with(h.client(5), "u", "", "")), w = h.join(with(h.worker(2, 6), "t", "x", "n")),
               n = h.join(with(h.worker(2, 7), "t", "w", "m"));
  for (const joined& j : {t, w, n})
    BOOST_TEST((j.code == ack_code::digest_mismatch));
  BOOST_TEST(t.why == "batch.5 has other config.json or tokenizer.json (u) than decode.0 on node n0 (t); give all "
                      "hosts the same model folder");
  BOOST_TEST(w.why == "decode.2 on node n0 has other weights (x) than decode.0 on node n0 (w); give all hosts the same "
                      "model folder");
  BOOST_TEST(n.why == "decode.2 on node n0 has other numerics (m) than decode.0 on node n0 (n); give all worker groups "
                      "the same device, roundings and yoco");
  member well = with(h.worker(3, 8), "t", "w", "n"), ill = with(h.worker(4, 9), "t", "w", "n");
  well.model.self_test = "1";
  ill.model.self_test = "2";
  BOOST_TEST(ok(h.join(well))); // the others' steps need ranks that are not there yet: they say nothing of it
  BOOST_TEST(h.join(ill).why == "decode.4 on node n0 has other results in its self-test (2) than decode.3 on node n0 "
                                "(1); one of the two computes wrong: look at the hardware and libraries of its host");
  for (const std::uint64_t all : {2u, 3u, 8u})
    h.leave(all);
  BOOST_TEST(ok(h.join(with(h.worker(2, 10), "t", "x", "m"))));
}

BOOST_AUTO_TEST_CASE(with_a_clients_keys_a_process_is_a_client_and_nothing_else) {
  const test_support::temporary_folder there;
  const std::string keys = there / "keys";
  BOOST_REQUIRE(make_cluster_keys(keys, {"n0", "n1", "client", "observer", "admin"}));
  const auto of = [&](const std::string& name) {
    return tls_files{keys + "/ca.pem", keys + "/" + name + ".pem", keys + "/" + name + ".key"};
  };
  const lone_coordinator c(of("n0"));
  cluster_identity client = c.identity;
  client.tls = of("client");
  hand_members h(client);
  const auto refused = [&](member who, const std::optional<tls_files>& signs, const std::string& why) {
    const joined j = h.join(who, signs);
    BOOST_TEST((j.code == ack_code::unknown));
    BOOST_TEST(j.why.find(why) != j.why.npos, j.why);
  };
  member agent = h.worker(0, 1), gateway = h.client(2);
  agent.role = member_role::node_agent;
  gateway.node = "n0";
  for (const member& who : {h.worker(0, 1), agent, gateway}) {
    refused(who, {}, who.name + " is not taken for a process of node n0: it shows no certificate");
    refused(who, of("client"), "its certificate is none of a node");
    refused(who, of("n1"), "its certificate is not that of node n0");
    refused(who, tls_files{keys + "/ca.pem", keys + "/n0.pem", keys + "/client.key"}, "it does not have the key");
  }
  refused(h.client(3), {}, "it shows no certificate");
  refused(h.client(3), of("observer"), "the key of role observer is not good for this; use that of role client");
  BOOST_TEST(ok(h.join(h.client(3), of("client"))));
  BOOST_TEST(ok(h.join(h.client(5), of("admin"))));
  BOOST_TEST(ok(h.join(h.worker(0, 4), of("n0"))));
}

BOOST_AUTO_TEST_CASE(administrators_stop_the_cluster_and_nobody_else_does) {
  const test_support::temporary_folder there;
  const std::string keys = there / "keys";
  BOOST_REQUIRE(make_cluster_keys(keys, {"n0", "client", "observer", "admin"}));
  const auto of = [&](const std::string& name) {
    return tls_files{keys + "/ca.pem", keys + "/" + name + ".pem", keys + "/" + name + ".key"};
  };
  const lone_coordinator c(of("n0"));
  cluster_identity observer = c.identity;
  observer.tls = of("observer");
  hand_members h(observer);
  BOOST_TEST(h.status().leads);
  for (const char* name : {"observer", "client"}) {
    const ack a = h.stop(of(name));
    BOOST_TEST((a.code == ack_code::unknown));
    BOOST_TEST(error_of(a).code == "not_allowed");
    BOOST_TEST(error_of(a).message.find("use that of role admin") != std::string::npos, a.note);
  }
  BOOST_TEST(error_of(h.stop({})).code == "not_allowed");
  BOOST_TEST(!h.status().stopping);
  BOOST_TEST((h.stop(of("admin")).code == ack_code::ok));
  BOOST_TEST(h.status().stopping);
}

// A step of an engine that only decodes is short: it is stuck when one that computes prompts may be well.
BOOST_AUTO_TEST_CASE(how_long_a_step_may_take_is_by_rank) {
  lone_coordinator c({}, {200, 600000});
  hand_members m(c.identity);
  for (const std::uint32_t rank : {0u, 1u, 2u}) // the last one is behind the list
    BOOST_TEST((m.join(hand_members::worker(rank, 10 + rank)).code == ack_code::ok));
  const auto state = [&](std::uint32_t rank) { return state_of(m, 10 + rank); };
  for (int i = 0; i < 3000 && state(0) != member_state::dead; ++i) {
    for (const std::uint32_t rank : {0u, 1u, 2u})
      m.beat(10 + rank, 7);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  BOOST_TEST((state(0) == member_state::dead));
  BOOST_TEST((state(1) == member_state::active));
  BOOST_TEST((state(2) == member_state::active));
}

// It takes no step because a gateway does not take its tokens.
BOOST_AUTO_TEST_CASE(a_worker_whose_requests_wait_for_their_readers_is_not_stuck) {
  lone_coordinator c({}, {200, 200});
  hand_members m(c.identity);
  for (const std::uint32_t rank : {0u, 1u})
    BOOST_TEST((m.join(hand_members::worker(rank, 10 + rank)).code == ack_code::ok));
  const auto state = [&](std::uint32_t rank) { return state_of(m, 10 + rank); };
  for (int i = 0; i < 3000 && state(0) != member_state::dead; ++i) {
    m.beat(10, 7);
    m.beat(11, 7, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  BOOST_TEST((state(0) == member_state::dead));
  BOOST_TEST((state(1) == member_state::active));
}

// It takes no step because others have the CPUs.
BOOST_AUTO_TEST_CASE(a_worker_that_gets_no_cpu_is_not_stuck) {
  lone_coordinator c({}, {200, 200});
  hand_members m(c.identity);
  for (const std::uint32_t rank : {0u, 1u})
    BOOST_TEST((m.join(hand_members::worker(rank, 10 + rank)).code == ack_code::ok));
  const auto state = [&](std::uint32_t rank) { return state_of(m, 10 + rank); };
  for (std::uint64_t i = 1; i < 3000 && state(0) != member_state::dead; ++i) {
    m.beat(10, 7);
    m.beat(11, 7, 0, 100000 * i);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  BOOST_TEST((state(0) == member_state::dead));
  BOOST_TEST((state(1) == member_state::active));
}

BOOST_AUTO_TEST_SUITE_END()
