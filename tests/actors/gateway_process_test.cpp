// Clients, gateways and workers as actor systems of one process over loopback: the bytes through a gateway are those of
// one process, and whoever is lost leaves nothing running.
#include "actors/gateway_client.hpp"
#include "actors/gateway_process.hpp"
#include "tests/support/process.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/small_cluster.hpp"
#include <boost/test/unit_test.hpp>
#include <deque>
#include <thread>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

struct gateway_cluster : small_cluster {
  std::unique_ptr<gateway_process> gateway;
  gateway_limits limits;
  std::string ledger; // file; empty: memory

  explicit gateway_cluster(std::uint32_t count, gateway_limits l = {}, const std::string& file = {})
      : small_cluster(count), limits(l), ledger(file) {
    start_gateway();
  }
  void start_gateway() {
    gateway.reset();
    gateway_process_setup s;
    s.process = {.cluster = identity, .name = "gateway.0", .node = "n0", .incarnation = mint_incarnation()};
    s.source.model = embedded_options().model;
    s.source.serves_others = true;
    s.limits = limits;
    if (!ledger.empty()) {
      const ledger_settings settings{ledger, ledger_sync::interval, 0};
      ledger_file::recovered found;
      auto file = ledger_file::open(settings, found);
      BOOST_REQUIRE(file);
      taken_over += found.open.size();
      s.source.ledger = std::make_shared<request_ledger>(settings, std::move(*file), std::move(found.open));
    }
    gateway = std::make_unique<gateway_process>(s);
  }
  cluster_access through(const std::string& name = "client.1") const {
    cluster_access a = access(name);
    a.gateway = "gateway.0";
    return a;
  }
  // Within a minute no worker has anything to do.
  bool falls_silent() const {
    for (int i = 0; i < 1200; ++i, std::this_thread::sleep_for(50ms))
      if (std::ranges::all_of(workers, [](const auto& w) { return w.second->report().live == 0; }))
        return true;
    return false;
  }
  bool computes() const {
    for (int i = 0; i < 1200; ++i, std::this_thread::sleep_for(5ms))
      if (std::ranges::any_of(workers, [](const auto& w) { return w.second->report().running > 0; }))
        return true;
    return false;
  }

  std::size_t taken_over = 0; // branches that a gateway found in the ledger
};

// So long that nobody waits for its end.
asked long_request(const std::string& id = "long") {
  asked a;
  a.request.id = id;
  a.request.prompt = "def main():";
  a.params.max_tokens = 1000;
  a.params.ignore_eos = true;
  a.params.seq_seed = 3;
  return a;
}

// Ends of all branches, in the order in which they come; waits for them. What comes when the object is gone is taken
// too.
class ends {
public:
  std::function<void(const generation_event&)> taker() {
    return [s = state_](const generation_event& e) {
      const std::lock_guard lock(s->mutex);
      if (e.result)
        s->all.push_back(*e.result);
      s->changed.notify_all();
    };
  }
  std::deque<generation_result> wait(std::size_t count) {
    std::unique_lock lock(state_->mutex);
    BOOST_REQUIRE(state_->changed.wait_for(lock, 120s, [&] { return state_->all.size() >= count; }));
    return state_->all;
  }

private:
  struct state {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<generation_result> all;
  };
  std::shared_ptr<state> state_ = std::make_shared<state>();
};

// One that is computed now and for long.
asked begin(const gateway_cluster& c, LLM& llm, ends& all, const std::string& id = "long") {
  asked a = long_request(id);
  BOOST_REQUIRE(llm.submit(a.request, a.params, all.taker()));
  BOOST_REQUIRE(c.computes());
  return a;
}

// A process that speaks to the cluster and is gone with the object, without a word.
struct stranger {
  explicit stranger(const cluster_identity& c) : config(c, 1) {}
  cluster_system_config config;
  bounded_system system{config};
};

// Takes so long over every request before it says that it has it; nothing comes of them.
gateway_entry_actor::behavior_type slow_gateway(gateway_entry_actor::pointer, std::chrono::milliseconds each,
                                                std::shared_ptr<std::atomic<int>> answered) {
  return {
      [](const attach&) { return attached{}; },
      [=](const gateway_request& q) {
        std::this_thread::sleep_for(each);
        ++*answered;
        return ack{q.number, ack_code::ok, {}};
      },
      [](const gateway_cancel&) {},
      [](const news_taken&) {},
      [](const metrics_query&) { return metrics_answer{}; },
      [](const waits_query&) { return waits_answer{}; },
  };
}

// Of a cluster whose workers are given up, until there is an engine.
gateway_entry_actor::behavior_type hopeless_gateway(gateway_entry_actor::pointer,
                                                    std::shared_ptr<std::atomic<bool>> engine) {
  return {
      [=](const attach&) {
        attached a;
        if (!*engine)
          a.code = ack_code::busy, a.given_up = true, a.why = "decode.0 is not started again";
        return a;
      },
      [](const gateway_request& q) {
        return ack{q.number, ack_code::ok, {}};
      },
      [](const gateway_cancel&) {},
      [](const news_taken&) {},
      [](const metrics_query&) { return metrics_answer{}; },
      [](const waits_query&) { return waits_answer{}; },
  };
}

// Answers the oldest request when it is told that news were taken.
gateway_entry_actor::behavior_type holding_gateway(gateway_entry_actor::pointer self,
                                                   std::shared_ptr<std::atomic<std::size_t>> asked) {
  const auto open = std::make_shared<std::deque<caf::typed_response_promise<ack>>>();
  return {
      [](const attach&) { return attached{}; },
      [=](const gateway_request&) {
        ++*asked;
        return open->emplace_back(self->make_response_promise<ack>());
      },
      [](const gateway_cancel&) {},
      [=](const news_taken&) {
        open->front().deliver(ack{});
        open->pop_front();
      },
      [](const metrics_query&) { return metrics_answer{}; },
      [](const waits_query&) { return waits_answer{}; },
  };
}

// A client whose gateway is the test's own.
struct lone_client {
  small_cluster cluster;
  stranger there{cluster.identity}, here{cluster.identity};
  gateway_client_setup setup;
  gateway_entry_actor gateway;
  std::uint16_t at = 0;
  member_actor member; // of the gateway
  gateway_client_actor client;
  caf::scoped_actor self{here.system};
  ends all;
  std::shared_ptr<live_requests> live = std::make_shared<live_requests>();

  explicit lone_client(std::chrono::milliseconds control_limit, std::size_t unacked = 256) {
    setup.cluster = cluster.identity;
    setup.cluster.unacked_messages = unacked;
    setup.name = "client.1";
    setup.gateway = "gateway.0";
    setup.random_bits = random_bits_of_system;
    setup.control_limit = control_limit;
  }
  void begin(const gateway_entry_actor& g) {
    start(g);
    while (!entry())
      std::this_thread::sleep_for(20ms);
  }
  void start(const gateway_entry_actor& g) {
    gateway = g;
    const auto port = publish(there.system, gateway, {"127.0.0.1", 0});
    BOOST_REQUIRE(port);
    at = *port;
    member = there.system.spawn<caf::detached>(
        cluster_member,
        member_setup_of(
            {.cluster = cluster.identity, .name = "gateway.0", .node = "n0", .incarnation = mint_incarnation()},
            member_role::gateway, 0, {"127.0.0.1", *port}));
    client = here.system.spawn<caf::detached>(gateway_client, setup);
  }
  gateway_client_report report() {
    gateway_client_report r;
    ask(self.ptr(), client, 60000ms, gateway_client_query{})
        .receive([&](const gateway_client_report& got) { r = got; }, [](const caf::error&) {});
    return r;
  }
  gateway_entry_actor entry() { return report().entry; }
  void submit(std::uint64_t number, std::size_t tokens) {
    auto r = std::make_shared<request_record>();
    r->id = "r" + std::to_string(number);
    r->req = {1, number};
    r->prompt.assign(tokens, 7);
    r->live = live;
    r->on_event = all.taker();
    BOOST_REQUIRE(live->add(r->id, r->req));
    tell(self.ptr(), client, open_request{std::move(r)});
  }
  void end() {
    tell(self.ptr(), client, stop{});
    tell(self.ptr(), member, stop{});
    unpublish(there.system, gateway, at);
    caf::anon_send_exit(gateway, caf::exit_reason::user_shutdown);
  }
};

} // namespace

BOOST_AUTO_TEST_SUITE(gateways)

BOOST_AUTO_TEST_CASE(requests_of_every_kind_give_the_bytes_of_one_process) {
  gateway_cluster c(2);
  LLM first(c.through("client.1")), second(c.through("client.2"));
  check_both(first, second, mixed_requests(test::by_build(16, 8, 5)));
  BOOST_TEST(first.metrics().find("troupe:request_success_total") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(text_comes_in_pieces_and_is_the_text_of_the_result) {
  gateway_cluster c(1);
  LLM llm(c.through());
  std::string text;
  std::size_t pieces = 0;
  ends all;
  asked a = long_request();
  a.params.max_tokens = 200;
  BOOST_REQUIRE(llm.submit(a.request, a.params, [&, take = all.taker()](const generation_event& e) {
    text += e.text;
    ++pieces;
    take(e);
  }));
  const auto result = all.wait(1).front();
  BOOST_TEST(text == result.text);
  BOOST_TEST(pieces > 10u);
  BOOST_TEST(result.token_ids.size() == 200u);
}

BOOST_AUTO_TEST_CASE(c07_an_abort_and_a_client_that_leaves_free_the_workers) {
  gateway_cluster c(1);
  {
    LLM llm(c.through());
    ends all;
    const asked a = begin(c, llm, all);
    BOOST_TEST(llm.abort("long"));
    BOOST_TEST(all.wait(1).front().finish_reason == "abort");
    BOOST_TEST(c.falls_silent());
    BOOST_REQUIRE(llm.submit(a.request, a.params, all.taker()));
    BOOST_REQUIRE(c.computes());
  }
  BOOST_TEST(c.falls_silent());
}

BOOST_AUTO_TEST_CASE(c07_a_client_that_is_lost_frees_the_workers) {
  gateway_cluster c(1);
  {
    stranger s(c.identity);
    const auto entry = connect<gateway_entry_actor>(s.system, {"127.0.0.1", c.gateway->port()});
    BOOST_REQUIRE(entry);
    caf::scoped_actor self{s.system};
    attached answer;
    for (int i = 0; i < 600 && answer.numerics_id.empty(); ++i, std::this_thread::sleep_for(50ms))
      ask(self.ptr(), *entry, 10000ms,
          attach{"stranger", c.identity.configuration, load_texts(embedded_options().model).digest})
          .receive([&](const attached& a) { answer = a; }, [](const caf::error&) { BOOST_ERROR("no answer"); });
    BOOST_REQUIRE(answer.code == ack_code::ok);
    gateway_request r;
    r.number = 1;
    r.id = "a";
    r.prompt = {0, 17, 4};
    r.params.max_tokens = 1000;
    r.params.ignore_eos = true;
    ask(self.ptr(), *entry, 10000ms, r)
        .receive([&](const ack& a) { BOOST_TEST((a.code == ack_code::ok)); },
                 [](const caf::error&) { BOOST_ERROR("no answer"); });
    ask(self.ptr(), *entry, 10000ms, r)
        .receive([&](const ack& a) { BOOST_TEST(error_of(a).code == "duplicate_id"); },
                 [](const caf::error&) { BOOST_ERROR("no answer"); });
    r.prompt.clear();
    ask(self.ptr(), *entry, 10000ms, r)
        .receive([&](const ack& a) { BOOST_TEST(error_of(a).code == "empty_prompt"); },
                 [](const caf::error&) { BOOST_ERROR("no answer"); });
    BOOST_REQUIRE(c.computes());
  }
  BOOST_TEST(c.falls_silent());
}

// The same for whoever submits to a worker by itself: a client that is its own gateway.
BOOST_AUTO_TEST_CASE(a_gateway_that_is_lost_frees_the_workers) {
  small_cluster c(1);
  LLM llm(c.access()); // its engine is there
  {
    stranger s(c.identity);
    const auto worker = connect<worker_root_actor>(s.system, {"127.0.0.1", c.workers[0]->port()});
    BOOST_REQUIRE(worker);
    caf::scoped_actor self{s.system};
    engine_info engine;
    ask(self.ptr(), *worker, 10000ms, engine_query{})
        .receive([&](const engine_info& i) { engine = i; }, [](const caf::error&) { BOOST_ERROR("no answer"); });
    BOOST_REQUIRE(engine.scheduler);
    for (const bool constrained : {false, true}) {
      submit m;
      m.work.sequence = constrained ? 71 : 70;
      m.work.tokens = {0, 17, 4};
      m.work.params.max_tokens = 1000;
      m.work.params.ignore_eos = true;
      if (constrained)
        m.work.params.so_args = structured_output_args{.schema_type = "regex", .schema = "[a-d]*"};
      tell(self.ptr(), engine.scheduler, m);
    }
    for (int i = 0; i < 1200 && c.workers[0]->report().running < 2; ++i)
      std::this_thread::sleep_for(5ms);
    BOOST_TEST(c.workers[0]->report().running == 2u);
  }
  for (int i = 0; i < 1200 && c.workers[0]->report().live > 0; ++i)
    std::this_thread::sleep_for(50ms);
  BOOST_TEST(c.workers[0]->report().live == 0u);
}

BOOST_AUTO_TEST_CASE(requests_end_with_a_gateway_that_forgets_and_later_ones_wait_for_the_next) {
  gateway_cluster c(1);
  LLM llm(c.through());
  ends all;
  asked a = begin(c, llm, all);
  c.gateway.reset();
  const auto lost = all.wait(1).front();
  BOOST_REQUIRE(lost.failure);
  BOOST_TEST(lost.failure->code == "gateway_lost");
  BOOST_TEST(lost.failure->message.starts_with("gateway.0 was lost ("));
  BOOST_TEST(c.falls_silent());
  a.params.max_tokens = 5;
  BOOST_REQUIRE(llm.submit(a.request, a.params, all.taker()));
  c.start_gateway();
  BOOST_TEST(all.wait(2).back().finish_reason == "length");
}

BOOST_AUTO_TEST_CASE(requests_go_on_behind_the_ledger_of_a_gateway_that_was_lost) {
  const auto requests = mixed_requests(test::by_build(24, 12, 6));
  const auto expected = alone(requests);
  test_support::temporary_folder folder;
  gateway_cluster c(2, {}, folder / "gateway.0.ledger");
  std::size_t restarts = 0;
  std::map<std::string, std::string> got;
  {
    LLM llm(c.through());
    got = run(llm, requests, [&](std::size_t step) {
      if (step >= 3)
        return;
      c.start_gateway();
      ++restarts;
    });
  }
  check_equal(got, expected);
  BOOST_TEST(restarts >= 1u);
  BOOST_TEST(c.taken_over > 0u);
  BOOST_TEST(c.falls_silent());
  const std::size_t before = c.taken_over;
  c.start_gateway(); // all of it was closed
  BOOST_TEST(c.taken_over == before);
}

BOOST_AUTO_TEST_CASE(what_clients_give_up_is_closed_in_the_ledger) {
  test_support::temporary_folder folder;
  gateway_cluster c(1, {}, folder / "gateway.0.ledger");
  {
    LLM llm(c.through());
    ends all;
    begin(c, llm, all);
  }
  BOOST_TEST(c.falls_silent());
  c.start_gateway();
  BOOST_TEST(c.taken_over == 0u);
}

BOOST_AUTO_TEST_CASE(a_gateway_takes_so_many_requests_and_so_many_tokens) {
  for (const gateway_limits& l : {gateway_limits{1, 1 << 20, 30000ms}, gateway_limits{100, 1500, 30000ms}}) {
    gateway_cluster c(1, l);
    LLM llm(c.through());
    ends all;
    begin(c, llm, all, "first");
    const asked second = long_request("second");
    BOOST_REQUIRE(llm.submit(second.request, second.params, all.taker()));
    const auto refused = all.wait(1).front();
    BOOST_TEST(refused.id == "second");
    BOOST_REQUIRE(refused.failure);
    BOOST_TEST(refused.failure->code == "overloaded");
    BOOST_TEST(llm.abort("first"));
    all.wait(2);
    asked third = long_request("third");
    third.params.max_tokens = 3;
    BOOST_REQUIRE(llm.submit(third.request, third.params, all.taker()));
    BOOST_TEST(all.wait(3).back().finish_reason == "length");
  }
}

BOOST_AUTO_TEST_CASE(the_only_request_is_taken_however_large_it_is) {
  gateway_cluster c(1, {100, 10, 30000ms});
  LLM llm(c.through());
  ends all;
  asked a = long_request();
  a.params.max_tokens = 20;
  for (std::size_t i = 1; i <= 2; ++i) {
    BOOST_REQUIRE(llm.submit(a.request, a.params, all.taker()));
    BOOST_TEST(all.wait(i).back().finish_reason == "length");
  }
}

// Aborted at the moment at which the gateway is lost: the one that takes its place is not asked for it.
BOOST_AUTO_TEST_CASE(what_was_aborted_ends_with_its_gateway) {
  test_support::temporary_folder folder;
  gateway_cluster c(1, {}, folder / "gateway.0.ledger");
  LLM llm(c.through());
  ends all;
  begin(c, llm, all);
  std::thread aborting([&] { BOOST_TEST(llm.abort("long")); });
  c.gateway.reset();
  aborting.join();
  c.start_gateway();
  BOOST_TEST(all.wait(1).front().finish_reason == "abort");
  BOOST_TEST(c.falls_silent());
}

BOOST_AUTO_TEST_CASE(requests_that_make_no_sense_are_refused) {
  gateway_cluster c(1);
  LLM llm(c.through()); // an engine is there
  stranger s(c.identity);
  const auto entry = connect<gateway_entry_actor>(s.system, {"127.0.0.1", c.gateway->port()});
  BOOST_REQUIRE(entry);
  caf::scoped_actor self{s.system};
  gateway_request good;
  good.number = 1;
  good.id = "a";
  good.prompt = {0, 17, 4};
  good.params.max_tokens = 1000;
  good.params.ignore_eos = true;
  const auto said = [&](const gateway_request& r) {
    std::string note = "nothing";
    ask(self.ptr(), *entry, 10000ms, r)
        .receive([&](const ack& a) { note = a.code == ack_code::ok ? "" : a.note; },
                 [&](const caf::error& e) { note = text(s.system, e); });
    return note;
  };
  BOOST_TEST(said(good).starts_with("gateway_lost")); // it has not attached
  ask(self.ptr(), *entry, 10000ms,
      attach{"stranger", c.identity.configuration, load_texts(embedded_options().model).digest})
      .receive([&](const attached& a) { BOOST_TEST((a.code == ack_code::ok)); },
               [](const caf::error&) { BOOST_ERROR("no answer"); });
  const auto with = [&](auto change) {
    gateway_request r = good;
    change(r);
    return said(r);
  };
  BOOST_TEST(with([](gateway_request& r) { r.prompt = {}; }).starts_with("empty_prompt"));
  BOOST_TEST(with([](gateway_request& r) { r.prompt = {-1}; }).starts_with("invalid_prompt"));
  BOOST_TEST(with([](gateway_request& r) { r.params.n = 0; }).starts_with("invalid_params"));
  BOOST_TEST(with([](gateway_request& r) { r.params.n = 1 << 30; }).starts_with("invalid_params"));
  BOOST_TEST(with([](gateway_request& r) { r.params.max_tokens = -1; }).starts_with("invalid_params"));
  BOOST_TEST(with([](gateway_request& r) { r.logit_rows = {2, 1}; }).starts_with("invalid_params"));
  BOOST_TEST(with([](gateway_request& r) { r.logit_rows = {1, 1}; }).starts_with("invalid_params"));
  BOOST_TEST(with([](gateway_request& r) { r.logit_rows = {3}; }).starts_with("invalid_params"));
  BOOST_TEST(said(good) == "");
  BOOST_TEST(said(good).starts_with("duplicate_id"));
  BOOST_TEST(with([](gateway_request& r) { r.number = 2; }).starts_with("duplicate_id"));
  BOOST_TEST(with([](gateway_request& r) { r.id = "b"; }).starts_with("duplicate_id"));
}

// What takes its time on the way is no sign of a lost gateway; a small request that nobody answers is.
BOOST_AUTO_TEST_CASE(large_requests_have_longer_until_they_are_answered) {
  const auto answered = std::make_shared<std::atomic<int>>(0);
  lone_client c(600ms);
  c.begin(c.there.system.spawn<caf::detached>(slow_gateway, 900ms, answered));
  for (std::uint64_t n = 1; n <= 3; ++n)
    c.submit(n, std::size_t{1} << 18); // 1 MiB
  while (*answered < 3)
    std::this_thread::sleep_for(10ms);
  std::this_thread::sleep_for(700ms); // and nobody counts as lost
  BOOST_TEST(bool(c.entry()));
  c.submit(4, 1);
  for (const generation_result& r : c.all.wait(4)) {
    BOOST_REQUIRE(r.failure);
    BOOST_TEST(r.failure->code == "gateway_lost");
  }
  BOOST_TEST(*answered == 3);
  c.end();
  while (*answered < 4)
    std::this_thread::sleep_for(10ms);
}

// Of control.unacked_messages; an answer lets the next one go.
BOOST_AUTO_TEST_CASE(a_client_has_so_many_requests_on_their_way) {
  const auto asked = std::make_shared<std::atomic<std::size_t>>(0);
  lone_client c(60000ms, 2);
  const auto gateway = c.there.system.spawn<caf::detached>(holding_gateway, asked);
  c.begin(gateway);
  for (std::uint64_t n = 1; n <= 5; ++n)
    c.submit(n, 3);
  for (const std::size_t there : {2u, 3u, 4u}) {
    while (*asked < there)
      std::this_thread::sleep_for(10ms);
    std::this_thread::sleep_for(200ms);
    BOOST_TEST(*asked == there);
    tell(c.self.ptr(), gateway, news_taken{}); // answers the oldest
  }
  c.end();
}

// It lives and is connected, but takes nothing: what it asked for is given up, not kept for ever.
BOOST_AUTO_TEST_CASE(a_client_that_takes_nothing_is_given_up) {
  gateway_cluster c(1, {4096, 1 << 20, 300ms});
  stranger s(c.identity);
  const auto entry = connect<gateway_entry_actor>(s.system, {"127.0.0.1", c.gateway->port()});
  BOOST_REQUIRE(entry);
  caf::scoped_actor self{s.system};
  attached answer;
  for (int i = 0; i < 600 && answer.numerics_id.empty(); ++i, std::this_thread::sleep_for(50ms))
    ask(self.ptr(), *entry, 10000ms,
        attach{"stranger", c.identity.configuration, load_texts(embedded_options().model).digest})
        .receive([&](const attached& a) { answer = a; }, [](const caf::error&) { BOOST_ERROR("no answer"); });
  gateway_request r;
  r.number = 1;
  r.id = "a";
  r.prompt = {0, 17, 4};
  r.params.max_tokens = 1000;
  r.params.ignore_eos = true;
  tell(self.ptr(), *entry, r);
  std::size_t batches = 0;
  std::string why;
  while (why.empty())
    self->receive([&](const gateway_news&) { ++batches; }, [&](const detached& d) { why = d.why; },
                  [&](const ack& a) { BOOST_TEST((a.code == ack_code::ok)); });
  BOOST_TEST(why == "it took nothing for 300 ms while results were there");
  BOOST_TEST(batches == 4u);
  BOOST_TEST(c.falls_silent());
}

BOOST_AUTO_TEST_CASE(another_configuration_another_vocabulary_and_another_name_are_refused) {
  gateway_cluster c(1);
  cluster_access other = c.through();
  other.identity.configuration = "another";
  BOOST_CHECK_EXCEPTION(LLM{other}, config_error, [](const config_error& e) {
    return std::string(e.what()).find("the cluster runs digest; give it the cluster's file") != std::string::npos;
  });
  const test_support::temporary_folder folder;
  std::filesystem::copy(embedded_options().model, folder / "copy");
  const std::string file = folder / "copy/tokenizer.json";
  test_support::write_text(file, test_support::read_text(file) + " ");
  other = c.through();
  other.model = folder / "copy";
  BOOST_CHECK_EXCEPTION(LLM{other}, config_error, [](const config_error& e) {
    return std::string(e.what()).find("has another config.json or tokenizer.json") != std::string::npos;
  });
  other = c.through();
  other.gateway = "gateway.1";
  other.ready_ms = 700;
  BOOST_CHECK_EXCEPTION(LLM{other}, config_error, [](const config_error& e) {
    return std::string(e.what()).find("gateway.1 is not there within 700 ms") != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(what_no_engine_will_take_ends_and_the_client_goes_on_when_one_is_there) {
  const auto engine = std::make_shared<std::atomic<bool>>(false);
  lone_client c(10000ms);
  c.start(c.there.system.spawn(hopeless_gateway, engine));
  c.submit(1, 3);
  const auto result = c.all.wait(1).front();
  BOOST_REQUIRE(result.failure.has_value());
  BOOST_TEST(result.failure->code == engine_missing);
  BOOST_TEST(result.failure->message == "decode.0 is not started again");
  BOOST_TEST(c.report().refused);
  *engine = true;
  for (int i = 0; i < 3000 && !c.entry(); ++i)
    std::this_thread::sleep_for(20ms);
  BOOST_TEST((c.entry() != nullptr));
  BOOST_TEST(!c.report().refused);
  c.end();
}

BOOST_AUTO_TEST_SUITE_END()
