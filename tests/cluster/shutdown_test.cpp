#include "cluster/connect.hpp"
#include "cluster/shutdown.hpp"
#include "tests/support/speaking_system.hpp"
#include <boost/test/unit_test.hpp>
#include <csignal>
#include <cstdio>
#include <functional>
#include <sys/wait.h>
#include <unistd.h>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

// Exit code of a process that does so; once it has stopped itself it goes on after a second.
int code_of(const std::function<void()>& does) {
  const pid_t child = ::fork();
  BOOST_REQUIRE(child >= 0);
  if (child == 0) {
    if (std::freopen("/dev/null", "w", stderr) == nullptr)
      ::_exit(1);
    does();
    ::_exit(0);
  }
  int status = 0;
  BOOST_REQUIRE(::waitpid(child, &status, WUNTRACED) == child);
  if (WIFSTOPPED(status)) {
    std::this_thread::sleep_for(1s);
    ::kill(child, SIGCONT);
    BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// The process of a detached actor ends while that actor still tells those who watch it from elsewhere.
void end_early() {
  test_support::speaking_config config;
  bounded_system there(config), here(config);
  const voter_actor voter = here.spawn<caf::detached>(test_support::refusing_voter);
  const auto port = publish(here, voter, {"127.0.0.1", 0});
  const auto known = connect<voter_actor>(there, {"127.0.0.1", *port});
  bool watched = false;
  caf::scoped_actor self{there};
  ask(self.ptr(), *known, 30000ms, lease_ask{})
      .receive([&](const lease_answer&) { watched = true; }, [](const caf::error&) {});
  if (!watched)
    ::_exit(1);
  caf::actor_cast<caf::abstract_actor*>(voter)->attach_functor([] { std::this_thread::sleep_for(300ms); });
  unpublish(here, voter, *port);
  tell_from_outside(voter, stop{});
  if (wait_for_actors(here, 30s) > 0)
    ::_exit(2);
}

} // namespace

BOOST_AUTO_TEST_SUITE(shutdown)

BOOST_AUTO_TEST_CASE(what_an_actor_says_last_does_not_keep_its_process) {
  BOOST_TEST(code_of(end_early) == 0);
}

BOOST_AUTO_TEST_CASE(an_end_that_does_not_come_is_made) {
  BOOST_TEST(code_of([] {
               bounded_end end;
               end.within(50ms);
               std::this_thread::sleep_for(60s);
             }) == 70);
}

BOOST_AUTO_TEST_CASE(an_end_in_time_is_left_alone) {
  BOOST_TEST(code_of([] {
               bounded_end end;
               end.within(60s);
             }) == 0);
}

// As a suspended shell job is.
BOOST_AUTO_TEST_CASE(time_in_which_the_process_is_stopped_does_not_count) {
  BOOST_TEST(code_of([] {
               bounded_end end;
               end.within(700ms);
               std::this_thread::sleep_for(20ms); // the watch has begun
               ::raise(SIGSTOP);
               std::this_thread::sleep_for(30ms);
             }) == 0);
}

BOOST_AUTO_TEST_SUITE_END()
