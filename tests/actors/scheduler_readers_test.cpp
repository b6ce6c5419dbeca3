// Sessions that end, as the scheduler of their engine sees it.
#include "tests/support/stub_process.hpp"
#include <chrono>

using namespace troupe;

namespace {

session_actor::behavior_type deaf_session(session_actor::pointer self) {
  return {
      [](const tokens& t) { return tok_ack{t.first_pos, t.attempt}; },
      [](const ack&) {},
      [](const cancel& c) { return ack{c.head.msg_id, ack_code::ok, {}}; },
      [](const placed&) {},
      [](const reserved&) {},
      [](const moved&) {},
      [](const handoff_lost&) {},
      [](const rank_lost&) {},
      [=](const stop&) { self->quit(); },
  };
}

submit numbered(std::uint64_t sequence, std::size_t prompt) {
  submit s;
  s.work.sequence = sequence;
  s.work.request_id = std::to_string(sequence);
  s.work.tokens.assign(prompt, 17);
  s.work.params = endless(8);
  s.work.eos_ids = {1};
  return s;
}

} // namespace

BOOST_FIXTURE_TEST_SUITE(scheduler_readers, stub_process)

BOOST_AUTO_TEST_CASE(what_a_session_had_ends_with_it_and_nothing_else) {
  scheduler_limits l;
  l.max_num_seqs = 2;
  l.kv_blocks = 11;
  l.max_model_len = 600;
  launch(l);
  engines.front()->hold = true;
  const scheduler_actor scheduler = parts.engines.front().scheduler;
  const auto one = sys.spawn(deaf_session), other = sys.spawn(deaf_session);
  for (std::uint64_t n = 1; n <= 3; ++n)
    tell_as(one, scheduler, numbered(n, 10));
  tell_as(other, scheduler, numbered(4, 10));
  sched.run();
  const auto alive = [&] { return query<scheduler_report>(scheduler, scheduler_query{}).live; };
  BOOST_TEST(alive() == 4u);
  tell_from_outside(one, stop{});
  sched.run();
  engines.front()->hold = false;
  sched.run();
  BOOST_TEST(alive() <= 1u);
  tell_from_outside(other, stop{});
  sched.run();
  BOOST_TEST(alive() == 0u);
  finish();
}

// Their ends cost what they had: nothing here, whatever others have.
BOOST_AUTO_TEST_CASE(ends_of_sessions_cost_no_more_with_more_sequences_of_others) {
  scheduler_limits l;
  l.max_num_seqs = 2;
  l.kv_blocks = 11;
  l.max_model_len = 600;
  launch(l);
  engines.front()->hold = true;
  const scheduler_actor scheduler = parts.engines.front().scheduler;
  const auto seconds_of_ends = [&](std::size_t sessions) {
    std::vector<session_actor> all;
    for (std::size_t i = 0; i < sessions; ++i) {
      all.push_back(sys.spawn(deaf_session));
      tell_as(all.back(), scheduler, numbered(1, 601)); // too long: refused
    }
    sched.run();
    const auto start = std::chrono::steady_clock::now();
    for (const session_actor& s : all)
      tell_from_outside(s, stop{});
    sched.run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  constexpr std::size_t sessions = 4000, sequences = 20000;
  const double before = seconds_of_ends(sessions);
  const auto holder = sys.spawn(deaf_session);
  for (std::uint64_t n = 1; n <= sequences; ++n)
    tell_as(holder, scheduler, numbered(1000 + n, 4));
  sched.run();
  BOOST_TEST(query<scheduler_report>(scheduler, scheduler_query{}).live == sequences);
  BOOST_TEST(seconds_of_ends(sessions) < 10 * before + 0.2);
  engines.front()->hold = false;
  tell_from_outside(holder, stop{});
  finish();
}

BOOST_AUTO_TEST_SUITE_END()
