// How many messages without an answer a gateway has on their way to one engine (control.unacked_messages), and what it
// does with requests whose engines are lost.
#include "actors/cluster_access.hpp"
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
  std::vector<asked_for> prompts; // likewise, by one that computes prompts for it
  caf::actor prompt_engine = sys.spawn(silent_engine, &prompts);
  std::shared_ptr<live_requests> live = std::make_shared<live_requests>();
  std::size_t ended = 0;
  error failure; // of the last that ended
  gateway_actor front;

  explicit window_world(std::size_t unacked, std::chrono::milliseconds engine_wait = std::chrono::minutes(5)) {
    gateway_setup g;
    g.engine_wait = engine_wait;
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
    caf::anon_send_exit(prompt_engine, caf::exit_reason::user_shutdown);
    sched.run();
  }
  static scheduler_actor scheduler_of(const caf::actor& a) {
    return caf::actor_cast<scheduler_actor>(caf::actor_cast<caf::strong_actor_ptr>(a));
  }
  scheduler_actor scheduler() const { return scheduler_of(engine); }
  void join(engine_kind kind = engine_kind::normal) {
    engine_info i;
    i.scheduler = scheduler();
    i.kind = kind;
    i.limits.kv_blocks = 1000;
    tell_from_outside(front, engine_joined{i});
    sched.run();
  }
  void join_for_prompts() {
    engine_info i;
    i.scheduler = scheduler_of(prompt_engine);
    i.rank = 1;
    i.kind = engine_kind::prompt;
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
    r->on_event = [this](const generation_event& e) {
      ended += e.result.has_value();
      failure = e.result ? e.result->failure.value_or(error{}) : failure;
    };
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
  void begin(std::size_t i) {
    tell_as(scheduler(), got[i].reader, begun{got[i].what.work.branch, got[i].what.work.attempt});
    sched.run();
  }
  // Says so of what the engine was asked for last.
  template <class Word> void say_of_last(const caf::actor& who) {
    const job& w = got.back().what.work;
    tell_as(scheduler_of(who), got.back().reader, Word{w.branch, w.attempt});
    sched.run();
  }
  void lose() {
    tell_from_outside(front, rank_lost{0, "test"});
    sched.run();
  }
  void give_up_engines(const std::string& why) {
    tell_from_outside(front, engines_given_up{why});
    sched.run();
  }
  void pass(std::chrono::milliseconds time) {
    constexpr std::chrono::milliseconds step(50);
    for (; time > std::chrono::milliseconds(0); time -= step) {
      sched.advance_time(std::min(time, step));
      sched.run();
    }
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
  w.lose();
  w.got.clear();
  w.join();
  BOOST_TEST(w.got.size() == 2u);
  for (std::size_t i = 0; i < w.got.size(); ++i)
    w.answer(i);
  const numbers all = w.requests();
  BOOST_TEST((std::set<std::uint64_t>(all.begin(), all.end()) == std::set<std::uint64_t>{1, 2, 3, 4}));
  BOOST_TEST(w.held() >= 2u);
}

// What an engine has taken may wait there behind the request that ends it.
BOOST_AUTO_TEST_CASE(only_attempts_that_an_engine_has_begun_count) {
  window_world w(256);
  w.open(1, 2);
  const auto lose = [&] {
    w.lose();
    w.join();
    w.pass(std::chrono::seconds(31));
  };
  for (std::size_t i = 1; i <= 20; ++i) {
    BOOST_TEST(w.got.size() == 2 * i);
    if (i % 2 == 0)
      w.answer(w.got.size() - 1);
    lose();
  }
  for (std::size_t i = 1; i <= default_max_attempts; ++i) {
    BOOST_TEST(w.ended == 0u);
    w.begin(w.got.size() - 1); // for the other branch too
    lose();
  }
  BOOST_TEST(w.ended == 2u);
  BOOST_TEST(w.failure.code == "attempts_exhausted");
  BOOST_TEST(w.failure.message == "engine 0: test; 8 engines were tried (max_attempts)");
}

// While another one computes the prompt.
BOOST_AUTO_TEST_CASE(an_engine_that_keeps_room_for_a_prompt_has_not_begun) {
  window_world w(256);
  w.lose();
  w.join(engine_kind::completion);
  w.join_for_prompts();
  w.open(1);
  const auto lose = [&](bool has_moved) {
    const std::size_t before = w.prompts.size();
    w.say_of_last<reserved>(w.engine);
    BOOST_REQUIRE(w.prompts.size() == before + 1);
    w.say_of_last<begun>(w.prompt_engine);
    if (has_moved)
      w.say_of_last<moved>(w.engine);
    w.lose();
    w.join(engine_kind::completion);
    w.pass(std::chrono::seconds(31));
  };
  for (int i = 0; i < 20; ++i)
    lose(false);
  BOOST_TEST(w.ended == 0u);
  for (std::size_t i = 1; i <= default_max_attempts; ++i) {
    BOOST_TEST(w.ended == 0u);
    lose(true);
  }
  BOOST_TEST(w.ended == 1u);
  BOOST_TEST(w.failure.message == "engine 0: test; 8 engines were tried (max_attempts)");
}

BOOST_AUTO_TEST_CASE(what_was_begun_of_an_earlier_attempt_does_not_count) {
  window_world w(256);
  w.open(1);
  for (std::size_t i = 1; i <= 20; ++i) {
    w.lose();
    w.join();
    w.pass(std::chrono::seconds(31));
    w.begin(i - 1);
  }
  BOOST_TEST(w.ended == 0u);
}

// A request may end engines before they can say that they have begun.
BOOST_AUTO_TEST_CASE(a_request_that_no_engine_lives_to_begin_is_given_up) {
  window_world w(256);
  w.open(1);
  std::size_t lost = 0;
  for (; w.ended == 0 && lost < 100; ++lost) {
    w.lose();
    w.join();
    w.pass(std::chrono::seconds(31));
  }
  BOOST_TEST(lost == 4 * default_max_attempts);
  BOOST_TEST(w.got.size() == lost);
  BOOST_TEST(w.ended == 1u);
  BOOST_TEST(w.failure.code == "attempts_exhausted");
  BOOST_TEST(w.failure.message ==
             "engine 0: test; 32 engines were lost before they began with it (4 times max_attempts)");
}

BOOST_AUTO_TEST_CASE(a_request_that_lost_its_engines_waits_longer_each_time) {
  using std::chrono::milliseconds;
  window_world w(256);
  w.open(1);
  for (const milliseconds pause : {milliseconds(0), milliseconds(500), milliseconds(1000), milliseconds(2000),
                                   milliseconds(4000), milliseconds(8000)}) {
    const std::size_t before = w.got.size();
    w.lose();
    w.join();
    BOOST_TEST(w.got.size() == before + (pause.count() == 0 ? 1 : 0));
    if (pause.count() == 0)
      continue;
    w.open(1000 + before); // has lost none
    BOOST_TEST(w.got.size() == before + 1);
    w.abort(1000 + before);
    w.pass(pause - milliseconds(1));
    BOOST_TEST(w.got.size() == before + 1);
    w.pass(milliseconds(201)); // it is looked for now and then
    BOOST_TEST(w.got.size() == before + 2);
    BOOST_TEST(w.requests().back() == 1u);
  }
}

// It has its engine_wait behind that.
BOOST_AUTO_TEST_CASE(a_request_is_not_ended_while_it_may_not_have_an_engine_yet) {
  window_world w(256, std::chrono::milliseconds(1000));
  w.open(1);
  for (std::size_t losses = 1; losses <= 6; ++losses) { // up to 8 s
    w.lose();
    w.join();
    w.pass(std::chrono::milliseconds(8500));
    BOOST_TEST(w.got.size() == losses + 1);
    BOOST_TEST(w.ended == 0u);
  }
  w.lose();
  w.pass(std::chrono::milliseconds(16900));
  BOOST_TEST(w.ended == 0u);
  w.pass(std::chrono::milliseconds(200));
  BOOST_TEST(w.ended == 1u);
  BOOST_TEST(w.failure.code == engine_missing);
}

BOOST_AUTO_TEST_CASE(requests_end_when_no_engine_will_come) {
  window_world w(256);
  w.open(1);
  w.give_up_engines("decode.0 is not started again"); // this one has an engine
  BOOST_TEST(w.ended == 0u);
  w.lose();
  BOOST_TEST(w.ended == 1u);
  BOOST_TEST(w.failure.code == engine_missing);
  BOOST_TEST(w.failure.message == "decode.0 is not started again");
  w.open(2);
  BOOST_TEST(w.ended == 2u);
  BOOST_TEST(w.failure.code == engine_missing);
  w.give_up_engines("");
  w.open(3); // waits
  BOOST_TEST(w.ended == 2u);
  w.give_up_engines("decode.0 is not started again");
  BOOST_TEST(w.ended == 3u);
  w.give_up_engines("");
  w.open(4);
  w.join();
  BOOST_TEST(w.ended == 3u);
  BOOST_TEST(w.requests() == (numbers{1, 4}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
