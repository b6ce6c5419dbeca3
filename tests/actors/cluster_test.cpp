// Requests through the processes of a cluster, here as several actor systems of one process over loopback: the bytes
// are those of one engine, whichever worker computes them and whichever is lost.
#include "actors/member.hpp"
#include "tests/support/other_model.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/small_cluster.hpp"
#include <boost/test/unit_test.hpp>
#include <future>
#include <thread>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(clusters)

BOOST_AUTO_TEST_CASE(requests_of_every_kind_give_the_bytes_of_one_process) {
  const auto all = mixed_requests(test::by_build(16, 8, 5));
  const auto expected = alone(all);
  small_cluster c(2);
  LLM llm(c.access());
  check_equal(run(llm, all), expected);
}

BOOST_AUTO_TEST_CASE(workers_stop_and_start_while_requests_run_and_no_byte_changes) {
  small_cluster c(2);
  check_through_restarts(c, mixed_requests(test::by_build(24, 12, 6)), 4);
}

// Each numbers its requests and sequences for itself, and their engines serve both.
BOOST_AUTO_TEST_CASE(gateways_do_not_disturb_each_other) {
  small_cluster c(1);
  LLM first(c.access("batch.1")), second(c.access("batch.2"));
  check_both(first, second, mixed_requests(test::by_build(16, 8, 5)));
}

BOOST_AUTO_TEST_CASE(requests_wait_while_no_worker_is_there) {
  const auto all = mixed_requests(6);
  const auto expected = alone(all);
  small_cluster c(1);
  LLM llm(c.access());
  c.workers.clear();
  std::map<std::string, std::string> got;
  std::thread asking([&] { got = run(llm, all); });
  c.start(1);
  asking.join();
  check_equal(got, expected);
}

namespace {

// The word of a node agent that has given up workers, without anything else of it.
struct giving_up {
  giving_up(const cluster_identity& c, std::vector<worker_end> what) : config(c, 1) {
    member_setup m = member_setup_of({.cluster = c, .name = "node.n0", .node = "n0", .incarnation = mint_incarnation()},
                                     member_role::node_agent, 0, {"127.0.0.1", 1});
    m.given_up = [=] { return what; };
    process = system.spawn<caf::detached>(cluster_member, m);
  }
  ~giving_up() {
    tell_from_outside(process, stop{});
    wait_for_actors(system, std::chrono::seconds(5));
    ended.within(std::chrono::seconds(30));
  }
  bounded_end ended;
  cluster_system_config config;
  caf::actor_system system{config};
  member_actor process;
};

std::string awaited(const LLM& llm) {
  const auto told = std::make_shared<std::promise<std::string>>();
  llm.ask_what_is_awaited([=](const std::string& what) { told->set_value(what); });
  return told->get_future().get();
}

std::vector<generation_result> three_tokens(LLM& llm) {
  generation_request r;
  r.prompt = "x";
  sampling_params p;
  p.max_tokens = 3;
  return llm.generate({r}, p);
}

// Within a minute.
bool waits_for(const LLM& llm, const std::string& what) {
  for (int i = 0; i < 1200; ++i, std::this_thread::sleep_for(std::chrono::milliseconds(50)))
    if (const std::string why = awaited(llm); what.empty() ? why.empty() : why.find(what) != why.npos)
      return true;
  return false;
}

} // namespace

BOOST_AUTO_TEST_CASE(requests_that_no_engine_will_take_end_and_say_why) {
  const auto all = mixed_requests(3);
  const auto expected = alone(all);
  small_cluster c(1);
  cluster_access access = c.access();
  access.engines = {{"decode.0"}, {"more: decode.1", "decode.2"}};
  LLM llm(access);
  check_equal(run(llm, all), expected);
  BOOST_TEST(awaited(llm) == "");
  c.workers.clear();
  BOOST_TEST(waits_for(llm, "no engine that gives out tokens is connected (decode.0 has ended)"));
  std::map<std::string, std::string> got;
  {
    const giving_up some(c.identity,
                         {{"decode.0", "exit code 70: it is broken"}, {"more: decode.1", "ended by signal 9"}});
    const auto results = three_tokens(llm);
    BOOST_REQUIRE(results.at(0).failure.has_value());
    BOOST_TEST(results[0].failure->code == engine_missing);
    BOOST_TEST(results[0].failure->message ==
               "no engine is left that could take the request: decode.0 is not started "
               "again (exit code 70: it is broken); more: decode.1 is not started "
               "again (ended by signal 9); mend that, then troupe stop and troupe launch");
    BOOST_TEST(awaited(llm) == results[0].failure->message);
    access.name = "batch.2";
    BOOST_CHECK_EXCEPTION(LLM{access}, config_error, [](const config_error& e) {
      return std::string(e.what()).find("decode.0 is not started again (exit code 70") != std::string::npos;
    });
  }
  const giving_up one(c.identity, {{"more: decode.1", "ended by signal 9"}, {"gateway.0", "exit code 70"}});
  BOOST_TEST(waits_for(llm, "is connected")); // decode.0 may come
  std::thread asking([&] { got = run(llm, all); });
  c.start(0);
  asking.join();
  check_equal(got, expected);
  BOOST_TEST(awaited(llm) == "");
}

BOOST_AUTO_TEST_CASE(a_request_waits_for_an_engine_as_long_as_the_cluster_says) {
  small_cluster c(1);
  cluster_access access = c.access();
  access.engine_wait = std::chrono::milliseconds(300);
  LLM llm(access);
  c.workers.clear();
  BOOST_TEST(waits_for(llm, "decode.0 has ended"));
  const auto results = three_tokens(llm);
  BOOST_REQUIRE(results.at(0).failure.has_value());
  BOOST_TEST(results[0].failure->code == engine_missing);
  const std::string said = "no engine took the request within 300 ms (cluster.join_timeout_s): engine 0: decode.0 has ";
  const std::string& message = results[0].failure->message; // its connection may end before the view that it left comes
  BOOST_TEST((message == said + "left" || message == said + "ended"), message);
}

// Nobody in its process could bring it back: the process ends, its requests go on elsewhere, and another takes its
// place.
BOOST_AUTO_TEST_CASE(a_worker_that_lost_a_part_of_its_engine_ends_and_no_byte_changes) {
  const auto all = mixed_requests(test::by_build(16, 8, 5));
  const auto expected = alone(all);
  small_cluster c(2);
  LLM llm(c.access());
  cluster_system_config config(c.identity, 1);
  caf::actor_system system(config);
  std::size_t lost = 0;
  check_equal(run(llm, all,
                  [&](std::size_t step) {
                    if (step > 1)
                      return;
                    const auto rank = static_cast<std::uint32_t>(step);
                    caf::scoped_actor self{system};
                    const auto root = connect<worker_root_actor>(system, {"127.0.0.1", c.workers[rank]->port()});
                    BOOST_REQUIRE(root);
                    ask(self.ptr(), *root, std::chrono::seconds(60), engine_query{})
                        .receive([&](const engine_info& i) { caf::anon_send_exit(i.kv, caf::exit_reason::kill); },
                                 [](const caf::error&) { BOOST_ERROR("no answer"); });
                    for (int i = 0; i < 1000 && !c.workers[rank]->expelled(); ++i)
                      std::this_thread::sleep_for(std::chrono::milliseconds(10));
                    BOOST_TEST(c.workers[rank]->expelled().value_or("").find("KV manager ended") != std::string::npos);
                    c.workers.erase(rank);
                    c.start(rank);
                    ++lost;
                  }),
              expected);
  BOOST_TEST(lost >= test::by_build(2u, 2u, 1u));
}

BOOST_AUTO_TEST_CASE(another_configuration_is_refused_and_silence_has_a_limit) {
  small_cluster c(1);
  cluster_access other = c.access();
  other.ready_ms = 2000;
  other.identity.configuration = "another";
  BOOST_CHECK_EXCEPTION(LLM{other}, config_error, [](const config_error& e) {
    return std::string(e.what()).find("start it with the cluster's file") != std::string::npos;
  });
  other = c.access();
  other.ready_ms = 700;
  other.identity.coordinators = {{"127.0.0.1", 1}};
  BOOST_CHECK_EXCEPTION(LLM{other}, config_error, [](const config_error& e) {
    return std::string(e.what()).find("no coordinator answered within 700 ms") != std::string::npos;
  });
}

// A reader that does not take its tokens holds up its own request: the worker is at most so far ahead of it.
BOOST_AUTO_TEST_CASE(a_slow_reader_pauses_its_own_request_and_no_byte_changes) {
  std::vector<asked> all(2);
  for (std::size_t i = 0; i < 2; ++i) {
    all[i].request.id = i == 0 ? "slow" : "quick";
    all[i].request.prompt = "fn main() {";
    all[i].params.temperature = 0.8f;
    all[i].params.max_tokens = 300;
    all[i].params.ignore_eos = true;
    all[i].params.seq_seed = 3 + i;
  }
  const auto expected = alone(all);
  small_cluster c(1);
  LLM llm(c.access());
  std::promise<void> may_read;
  std::promise<std::string> slow, quick;
  std::shared_future<void> reading = may_read.get_future().share();
  BOOST_REQUIRE(llm.submit(all[0].request, all[0].params, [&](const generation_event& e) {
    reading.wait();
    if (e.result)
      slow.set_value(bytes_of(*e.result));
  }));
  BOOST_REQUIRE(llm.submit(all[1].request, all[1].params, [&](const generation_event& e) {
    if (e.result)
      quick.set_value(bytes_of(*e.result));
  }));
  BOOST_TEST(quick.get_future().get() == expected.at("quick/0"));
  scheduler_report r;
  for (int i = 0; i < 6000 && r.paused == 0; ++i) { // its tokens may still be under way
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    r = c.workers[0]->report();
  }
  BOOST_TEST(r.paused == 1u);
  BOOST_TEST(r.running == 1u);
  BOOST_TEST(r.outstanding_tokens >= 300 - 64);
  may_read.set_value();
  BOOST_TEST(slow.get_future().get() == expected.at("slow/0"));
}

namespace {

engine_options with_model(const std::string& folder) {
  engine_options o = embedded_options();
  o.model = folder;
  return o;
}

// Why the cluster does not take the worker in.
std::string refused(const small_cluster& c, std::uint32_t rank) {
  for (int i = 0; i < 600; ++i) {
    if (const auto why = c.workers.at(rank)->expelled())
      return *why;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return "it was taken in";
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_worker_with_other_weights_or_numerics_is_refused_and_no_byte_changes) {
  const auto all = mixed_requests(6);
  const auto expected = alone(all);
  const test_support::temporary_folder folder;
  test_support::write_other_model(folder / "other", 0);
  small_cluster c(1);
  LLM llm(c.access());
  c.start(1, with_model(folder / "other"));
  const std::string why = refused(c, 1);
  BOOST_TEST((says(why, "decode.1 on node n0 has other weights (") && says(why, ") than decode.0 on node n0 (") &&
              says(why, "give all hosts the same model folder")),
             why);
  engine_options o = embedded_options();
  o.yoco = "off";
  c.start(2, o);
  BOOST_TEST(says(refused(c, 2), "decode.2 on node n0 has other numerics ("));
  std::filesystem::copy(embedded_options().model, folder / "copy");
  c.start(3, with_model(folder / "copy"));
  check_equal(run(llm, all), expected);
  BOOST_TEST(!c.workers.at(3)->expelled().has_value());
}

// The cluster has no workers left and takes up another model; who has begun with the first one does not.
BOOST_AUTO_TEST_CASE(requests_never_go_on_with_another_model) {
  const auto all = mixed_requests(6);
  const auto expected = alone(all);
  const test_support::temporary_folder folder;
  test_support::write_other_model(folder / "other", 0);
  small_cluster c(1);
  LLM llm(c.access());
  check_equal(run(llm, all), expected);
  c.workers.clear();
  c.start(0, with_model(folder / "other"));
  std::map<std::string, std::string> got;
  std::thread asking([&] { got = run(llm, all); });
  std::this_thread::sleep_for(std::chrono::seconds(2));
  BOOST_TEST(!c.workers.at(0)->expelled().has_value());
  BOOST_TEST(c.workers.at(0)->report().steps == 0);
  c.workers.clear();
  c.start(0);
  asking.join();
  check_equal(got, expected);
}

BOOST_AUTO_TEST_CASE(a_client_with_another_vocabulary_is_refused) {
  const test_support::temporary_folder folder;
  std::filesystem::copy(embedded_options().model, folder / "copy");
  const std::string file = folder / "copy/tokenizer.json";
  test_support::write_text(file, test_support::read_text(file) + " ");
  small_cluster c(1);
  cluster_access other = c.access();
  other.model = folder / "copy";
  BOOST_CHECK_EXCEPTION(LLM{other}, config_error, [](const config_error& e) {
    return says(e.what(), "batch.1 has other config.json or tokenizer.json (");
  });
}

BOOST_AUTO_TEST_SUITE_END()
