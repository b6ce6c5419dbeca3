// How many messages without an answer a gateway has on their way to one engine (control.unacked_messages).
#include "tests/support/stub_process.hpp"

using namespace troupe;

namespace {

struct asked_for {
  submit what;
  session_actor reader;
};

// An engine that takes what it is sent and says nothing.
caf::behavior silent_engine(caf::event_based_actor* self, std::vector<asked_for>* got) {
  return {
      [=](const submit& s) {
        got->push_back({s, caf::actor_cast<session_actor>(self->current_sender())});
      },
      [=](const cancel& c) {
        return ack{c.head.msg_id, ack_code::ok, {}};
      },
      [=](const scheduler_query&) {},
  };
}

struct window_world : by_hand {
  std::vector<asked_for> got; // by the engine
  caf::actor engine = sys.spawn(silent_engine, &got);
  std::shared_ptr<live_requests> live = std::make_shared<live_requests>();
  std::size_t ended = 0;
  gateway_actor front;

  explicit window_world(std::size_t unacked) {
    gateway_setup g;
    g.replays = true;
    g.vocabulary = test_vocabulary();
    g.eos_ids = {test_vocabulary()->eos_id()};
    g.random_bits = [] { return 1ull; };
    g.unacked_messages = unacked;
    front = sys.spawn(gateway, g);
    join();
  }
  ~window_world() {
    tell_from_outside(front, stop{});
    sched.run();
    caf::anon_send_exit(engine, caf::exit_reason::user_shutdown);
    sched.run();
  }
  scheduler_actor scheduler() const {
    return caf::actor_cast<scheduler_actor>(caf::actor_cast<caf::strong_actor_ptr>(engine));
  }
  void join() {
    engine_info i;
    i.scheduler = scheduler();
    i.limits.kv_blocks = 1000;
    tell_from_outside(front, engine_joined{i});
    sched.run();
  }
  void open(std::uint64_t number, std::int32_t branches = 1) {
    auto r = std::make_shared<request_record>();
    r->id = std::to_string(number);
    r->req = {1, number};
    r->prompt = {0, 5, 7};
    r->params.n = branches;
    r->live = live;
    r->on_event = [this](const generation_event& e) { ended += e.result.has_value(); };
    BOOST_REQUIRE(live->add(r->id, r->req, r));
    tell_from_outside(front, open_request{r});
    sched.run();
  }
  void abort(std::uint64_t number) {
    tell_from_outside(front, cancel{{}, {1, number}, 1, 0, "test"});
    sched.run();
  }
  void answer(std::size_t i, ack_code code = ack_code::ok) {
    tell_as(scheduler(), got[i].reader, ack{got[i].what.head.msg_id, code, note_of({"x", "y"})});
    sched.run();
  }
  std::vector<std::uint64_t> requests() const {
    std::vector<std::uint64_t> all;
    for (const asked_for& a : got)
      all.push_back(a.what.work.req.number);
    return all;
  }
  std::uint64_t held() {
    std::uint64_t n = 0;
    auto answer = ask(self.ptr(), front, std::chrono::milliseconds(1000), gateway_query{});
    sched.run();
    answer.receive([&](const gateway_report& r) { n = r.metrics.at(0).held_messages; },
                   [](const caf::error&) { BOOST_FAIL("no answer"); });
    return n;
  }
};

using numbers = std::vector<std::uint64_t>;

} // namespace

BOOST_AUTO_TEST_SUITE(gateway_windows)

BOOST_AUTO_TEST_CASE(requests_beyond_the_limit_wait_in_order_until_others_are_answered) {
  window_world w(3);
  for (std::uint64_t n = 1; n <= 8; ++n)
    w.open(n);
  BOOST_TEST(w.requests() == (numbers{1, 2, 3}), boost::test_tools::per_element());
  BOOST_TEST(w.held() == 5u);
  w.answer(1);
  w.answer(1); // the same answer again
  BOOST_TEST(w.requests() == (numbers{1, 2, 3, 4}), boost::test_tools::per_element());
  w.answer(0, ack_code::wrong_state); // a refusal is an answer
  w.abort(6);                         // is never sent
  for (std::size_t i = 2; i < w.got.size(); ++i)
    w.answer(i);
  BOOST_TEST(w.requests() == (numbers{1, 2, 3, 4, 5, 7, 8}), boost::test_tools::per_element());
  BOOST_TEST(w.ended == 2u);
}

BOOST_AUTO_TEST_CASE(every_branch_counts) {
  window_world w(3);
  w.open(1, 2);
  w.open(2, 4);
  BOOST_TEST(w.requests() == (numbers{1, 1, 2}), boost::test_tools::per_element());
  w.abort(1); // nobody waits for its answers any more
  BOOST_TEST(w.requests() == (numbers{1, 1, 2, 2, 2}), boost::test_tools::per_element());
  w.abort(2);
  w.open(3, 4);
  BOOST_TEST(w.requests() == (numbers{1, 1, 2, 2, 2, 3, 3, 3}), boost::test_tools::per_element());
}

// Nobody answers any more what the engine was sent before it was lost.
BOOST_AUTO_TEST_CASE(an_engine_that_joins_again_has_nothing_unanswered) {
  window_world w(2);
  for (std::uint64_t n = 1; n <= 4; ++n)
    w.open(n);
  tell_from_outside(w.front, rank_lost{0, "test"});
  w.sched.run();
  w.got.clear();
  w.join();
  BOOST_TEST(w.got.size() == 2u);
  for (std::size_t i = 0; i < w.got.size(); ++i)
    w.answer(i);
  const numbers all = w.requests();
  BOOST_TEST((std::set<std::uint64_t>(all.begin(), all.end()) == std::set<std::uint64_t>{1, 2, 3, 4}));
  BOOST_TEST(w.held() >= 2u);
}

BOOST_AUTO_TEST_SUITE_END()
