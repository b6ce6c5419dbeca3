#include "cluster/actor_system.hpp"
#include "cluster/ask_again.hpp"
#include "cluster/messages.hpp"
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <deque>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

using answerer = caf::typed_actor<answers<slots, slot_table>>;

// Says nothing to the first `deaf` questions.
answerer::behavior_type slow_to_answer(answerer::pointer self, int deaf, std::atomic<int>* asked) {
  const auto open = std::make_shared<std::deque<caf::typed_response_promise<slot_table>>>();
  return {[=](const slots&) {
    auto& p = open->emplace_back(self->make_response_promise<slot_table>());
    slot_table table;
    table.pver = 7;
    if (++*asked > deaf)
      p.deliver(table);
    return p;
  }};
}

struct config : caf::actor_system_config {
  config() { prepare_local(*this, 2); }
};

} // namespace

BOOST_AUTO_TEST_SUITE(questions)

BOOST_AUTO_TEST_CASE(a_question_without_an_answer_is_asked_again_so_many_times) {
  config cfg;
  caf::actor_system system{cfg};
  for (const int deaf : {0, 2, 3}) {
    std::atomic<int> asked = 0;
    const auto peer = system.spawn(slow_to_answer, deaf, &asked);
    const auto began = std::chrono::steady_clock::now();
    const auto got = ask_again<slot_table>(system, peer, {80ms, 3}, slots{});
    BOOST_TEST(asked == std::min(deaf + 1, 3));
    if (deaf < 3) {
      BOOST_REQUIRE(got);
      BOOST_TEST(got->pver == 7u);
    } else {
      BOOST_TEST(got.failure().message == "no answer within 80 ms, 3 times");
    }
    const auto least = deaf * 80ms + (deaf > 0 ? 2ms : 0ms) + (deaf > 1 ? 5ms : 0ms);
    BOOST_TEST((std::chrono::steady_clock::now() - began >= least));
    caf::anon_send_exit(peer, caf::exit_reason::user_shutdown);
  }
}

// Who is gone answers no better the second time.
BOOST_AUTO_TEST_CASE(a_peer_that_has_ended_is_asked_once) {
  config cfg;
  caf::actor_system system{cfg};
  std::atomic<int> asked = 0;
  const auto peer = system.spawn(slow_to_answer, 0, &asked);
  caf::anon_send_exit(peer, caf::exit_reason::kill);
  caf::scoped_actor self{system};
  self->wait_for(peer);
  const auto began = std::chrono::steady_clock::now();
  BOOST_TEST(!ask_again<slot_table>(system, peer, {60000ms, 3}, slots{}));
  BOOST_TEST((std::chrono::steady_clock::now() - began < 30s));
}

BOOST_AUTO_TEST_SUITE_END()
