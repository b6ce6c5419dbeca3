#include "cluster/ended_processes.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(processes_that_are_over)

BOOST_AUTO_TEST_CASE(no_later_incarnation_makes_an_earlier_one_unknown) {
  ended_processes e;
  e.note(7, false, 0);
  e.note(9, false, 0);
  e.note(4, false, 0); // the host's clock was set back
  for (const incarnation_t who : {4u, 7u, 9u})
    BOOST_TEST(e.knows(who));
  for (const incarnation_t who : {3u, 5u, 8u, 10u})
    BOOST_TEST(!e.knows(who));
  BOOST_TEST(e.take_forgotten(1000000).empty()); // none was a client
}

BOOST_AUTO_TEST_CASE(clients_are_named_for_a_while_and_never_more_than_some) {
  ended_processes e;
  e.note(1, true, 0);
  e.note(2, true, 1000);
  e.note(1, true, 2000); // it is said twice
  BOOST_TEST(e.take_forgotten(ended_processes::client_ms - 1).empty());
  BOOST_TEST((e.take_forgotten(ended_processes::client_ms) == std::vector<incarnation_t>{1}));
  BOOST_TEST(e.take_forgotten(ended_processes::client_ms).empty());
  for (incarnation_t who = 3; who < 3 + ended_processes::most_clients; ++who)
    e.note(who, true, 1000);
  BOOST_TEST((e.take_forgotten(1000) == std::vector<incarnation_t>{2}));
  BOOST_TEST((e.knows(1) && e.knows(2))); // they do not come back
}

BOOST_AUTO_TEST_CASE(what_is_remembered_has_a_bound) {
  ended_processes e;
  for (incarnation_t who = 1; who <= ended_processes::most + 1; ++who)
    e.note(who, false, 0);
  BOOST_TEST(!e.knows(1));
  BOOST_TEST(e.knows(2));
  BOOST_TEST(e.knows(ended_processes::most + 1));
}

BOOST_AUTO_TEST_SUITE_END()
