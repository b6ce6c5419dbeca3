// Which frames between two workers are of the present, as views come and go.
#include "cluster/link_epochs.hpp"
#include "cluster/view_change.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;

namespace {

member_entry worker(std::uint32_t rank, std::uint64_t incarnation, std::uint64_t since,
                    member_state state = member_state::active) {
  member_entry e;
  e.who.rank = rank;
  e.who.incarnation = incarnation;
  e.since = since;
  e.state = state;
  return e;
}

} // namespace

BOOST_AUTO_TEST_SUITE(link_epochs_of_ranks)

BOOST_AUTO_TEST_CASE(both_ends_know_the_same_epoch) {
  link_epochs a(10), b(11);
  const view first{0, 5, {worker(0, 10, 5)}}, both{0, 6, {worker(0, 10, 5), worker(1, 11, 6)}};
  a.commit(first);
  a.prepare(both);
  b.prepare(both);
  b.commit(both); // before the other hears that it counts
  BOOST_TEST(a.of_ranks().at(1).send == b.of_ranks().at(0).floor);
  BOOST_TEST(a.of_ranks().at(1).floor == 0u); // until the view counts
  a.commit(both);
  BOOST_TEST(b.of_ranks().at(0).send == a.of_ranks().at(1).floor);
}

BOOST_AUTO_TEST_CASE(a_view_that_changes_neither_end_changes_nothing) {
  link_epochs a(10);
  const view both{0, 6, {worker(0, 10, 5), worker(1, 11, 6)}};
  a.commit(both);
  const link_epoch before = a.of_ranks().at(1);
  view next = both;
  next.mepoch = 9;
  next.members.push_back(worker(2, 12, 9));
  next.members[1].state = member_state::suspect;
  a.commit(next);
  BOOST_TEST(a.of_ranks().at(1).send == before.send);
  BOOST_TEST(a.of_ranks().at(1).floor == before.floor);
  a.commit({1, epochs_before(1) + 1, {worker(0, 10, 5)}}); // a new leader has not heard of all yet
  BOOST_TEST(a.of_ranks().at(1).floor == before.floor);
}

BOOST_AUTO_TEST_CASE(what_a_process_sent_that_is_over_is_older_than_what_is_heard) {
  link_epochs a(10);
  a.commit({0, 6, {worker(0, 10, 5), worker(1, 11, 6)}});
  const std::uint64_t sent_by_old = a.of_ranks().at(1).floor;
  a.commit({0, 8, {worker(0, 10, 5), worker(1, 11, 6, member_state::dead)}});
  BOOST_TEST(a.of_ranks().at(1).floor > sent_by_old);
  a.prepare({0, 9, {worker(0, 10, 5), worker(1, 13, 9)}});
  BOOST_TEST(a.of_ranks().at(1).floor == 8u);
  a.commit({0, 9, {worker(0, 10, 5), worker(1, 13, 9)}});
  BOOST_TEST(a.of_ranks().at(1).floor == 9u);
  BOOST_TEST(a.of_ranks().at(1).send == 9u);
}

BOOST_AUTO_TEST_SUITE_END()
