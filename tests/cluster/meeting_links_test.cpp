#include "cluster/meeting_links.hpp"
#include "tests/support/frame_relay.hpp"
#include "tests/support/linked_ranks.hpp"
#include "tests/support/sanitizers.hpp"
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <thread>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

// Shows as many numbers as its turn says, and looks at those of the others. 0: all was well.
int take_part(meeting& m, std::uint64_t meetings) {
  const auto count = [](std::uint64_t k, std::size_t rank) { return (k + 3 * rank) % 9; };
  const auto number = [](std::uint64_t k, std::size_t rank, std::size_t i) { return 100'000 * k + 100 * rank + i; };
  for (std::uint64_t k = 1; k <= meetings; ++k) {
    const auto mine = m.mine(8 * count(k, m.rank()));
    for (std::size_t i = 0; i < mine.size() / 8; ++i) {
      const std::uint64_t n = number(k, m.rank(), i);
      std::memcpy(mine.data() + 8 * i, &n, sizeof n);
    }
    if (!m.meet(k, 60s))
      return 1;
    for (std::size_t rank = 0; rank < m.ranks(); ++rank) {
      const auto shown = m.shown(rank);
      if (shown.size() != 8 * count(k, rank))
        return 2;
      for (std::size_t i = 0; i < shown.size() / 8; ++i) {
        std::uint64_t n = 0;
        std::memcpy(&n, shown.data() + 8 * i, sizeof n);
        if (n != number(k, rank, i))
          return 3;
      }
    }
  }
  return 0;
}

using group = std::vector<std::shared_ptr<meeting_links>>;

// Why a rank holds the meeting for ended, once it does. All of the group are asked in between, as they are in a
// process: a word for a rank whose link was not up yet is said when its sender is asked again.
std::string failure_once(const group& all, std::size_t rank) {
  for (int i = 0; i < 6000; ++i) {
    for (const auto& m : all)
      if (m != nullptr && m != all[rank])
        (void)m->failure();
    if (const auto why = all[rank]->failure())
      return why->message;
    std::this_thread::sleep_for(10ms);
  }
  return "none within a minute";
}

// Whether each hears that all are ready.
bool all_are_ready(const group& all) {
  for (int i = 0; i < 60'000; ++i) {
    bool ready = true;
    for (const auto& m : all) {
      if (m->failure())
        return false;
      ready = ready && m->all_ready();
    }
    if (ready)
      return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

// Afterwards every link is up, both ways.
bool all_come_to_be_ready(const group& all) {
  for (const auto& m : all)
    m->be_ready();
  return all_are_ready(all);
}

} // namespace

BOOST_AUTO_TEST_SUITE(meetings_over_links)

BOOST_AUTO_TEST_CASE(ranks_meet_and_see_what_the_others_show) {
  for (const std::size_t ranks : {2u, 4u}) {
    auto all = linked_ranks(ranks, 64);
    std::vector<int> codes(ranks, -1);
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] { codes[r] = take_part(*all[r], by_build(1500u, 300u, 200u)); });
    for (auto& t : threads)
      t.join();
    BOOST_TEST(codes == std::vector<int>(ranks), boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(all_are_ready_when_each_has_said_so) {
  auto all = linked_ranks(3, 64);
  const auto ready = [&](std::size_t r) {
    for (int i = 0; i < 60'000 && !all[r]->all_ready(); ++i) {
      for (auto& m : all)
        BOOST_REQUIRE(!m->failure());
      std::this_thread::sleep_for(1ms);
    }
    return all[r]->all_ready();
  };
  all[0]->be_ready();
  all[2]->be_ready();
  for (int i = 0; i < 20; ++i)
    BOOST_TEST(!all[0]->failure());
  BOOST_TEST(!all[0]->all_ready());
  all[1]->be_ready();
  for (std::size_t r = 0; r < 3; ++r)
    BOOST_TEST(ready(r));
}

BOOST_AUTO_TEST_CASE(a_word_given_before_the_others_are_there_reaches_them) {
  auto alone = unlinked_ranks(2, 64);
  alone[1]->be_ready();
  alone[0]->be_ready();
  BOOST_TEST(!alone[0]->failure());
  link(alone);
  BOOST_TEST(all_are_ready(alone));
}

BOOST_AUTO_TEST_CASE(the_first_reason_given_is_everyones) {
  auto all = linked_ranks(3, 64);
  BOOST_REQUIRE(all_come_to_be_ready(all)); // the links are up: nobody asks rank 2 while rank 0 waits
  std::string heard;
  std::thread waiting([&] {
    const auto met = all[0]->meet(1, 600s); // rank 1 and 2 do not come
    heard = met ? "met" : met.failure().message;
  });
  std::this_thread::sleep_for(20ms);
  all[2]->end("out of memory");
  waiting.join();
  BOOST_TEST(heard == "out of memory");
  all[0]->end("another");
  for (std::size_t r = 0; r < all.size(); ++r) {
    BOOST_TEST(failure_once(all, r) == "out of memory");
    BOOST_TEST(all[r]->meet(1, 600s).failure().message == "out of memory");
  }
}

BOOST_AUTO_TEST_CASE(who_does_not_come_in_time_ends_it_for_all) {
  auto all = linked_ranks(3, 64);
  BOOST_REQUIRE(all_come_to_be_ready(all));
  std::thread other([&] { (void)all[1]->meet(1, 600s); });
  BOOST_TEST(all[0]->meet(1, 2s).failure().message == "ranks 2 of 3 did not come within 2000 ms");
  other.join();
  BOOST_TEST(failure_once(all, 2) == "ranks 2 of 3 did not come within 2000 ms");
}

BOOST_AUTO_TEST_CASE(ranks_that_do_different_things_end) {
  auto all = linked_ranks(2, 64);
  std::thread other([&] { (void)all[1]->meet(7, 600s); });
  const auto met = all[0]->meet(6, 600s);
  other.join();
  BOOST_REQUIRE(!met);
  BOOST_TEST(met.failure().message.starts_with("the ranks do different things ("));
}

BOOST_AUTO_TEST_CASE(a_rank_that_leaves_or_is_no_member_any_more_is_missed) {
  auto all = linked_ranks(3, 64);
  BOOST_REQUIRE(all_come_to_be_ready(all)); // so the links are up, and its last word finds its way
  all[1].reset();
  BOOST_TEST(failure_once(all, 0) == "rank 1 is gone");
  BOOST_TEST(failure_once(all, 2) == "rank 1 is gone");
  auto two = linked_ranks(2, 64);
  two[0]->set_peers({});
  BOOST_TEST(failure_once(two, 0).starts_with("rank 1 is gone: "));
}

// Nothing is sent between the word that a rank is ready and the first meeting: a word that is lost must not be waited
// for without an end.
BOOST_AUTO_TEST_CASE(a_word_that_does_not_arrive_ends_it) {
  auto all = unlinked_ranks(2, 64);
  frame_relay relay(all[1]->endpoint(), {}, 1);
  all[0]->set_peers({{1, rank_of_links(1).incarnation, relay.endpoint(), ""}});
  all[1]->set_peers({{0, rank_of_links(0).incarnation, all[0]->endpoint(), ""}});
  for (int i = 0; i < 60'000 && relay.messages() < 2; ++i) // a greeting there and back
    std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(50ms);
  relay.cut(true);
  all[0]->be_ready();
  const std::string why = failure_once(all, 0);
  BOOST_TEST(why.starts_with("rank 1 is gone: "), why);
  BOOST_TEST(why.find("has not answered for too long") != std::string::npos, why);
}

// Whatever a member sends, no more is kept of it than a rank of the group would send.
BOOST_AUTO_TEST_CASE(rows_that_nobody_of_the_group_would_send_end_it) {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{65}}) {
    auto all = unlinked_ranks(2, 64);
    bulk_context context;
    bulk_link_options o;
    o.self = rank_of_links(1);
    o.traffic = traffic_class::a2a;
    o.rules = default_rules(traffic_class::a2a);
    auto stranger = bulk_link::start(context, o).value();
    all[0]->set_peers({{1, o.self.incarnation, stranger.endpoint(), ""}});
    stranger.set_peers({{0, rank_of_links(0).incarnation, all[0]->endpoint(), ""}});
    const auto to = stranger.sender_to(0);
    for (std::size_t i = 0; i < (bytes == 8 ? 3 : 1); ++i) { // one too many, or one too large
      bulk_frame f;
      f.kind = frame_kind::a2a_dispatch;
      f.stream = 1;
      f.step_or_offset = 1;
      f.payload = own(std::vector<std::uint8_t>(bytes));
      BOOST_REQUIRE(to->send(f, 60s));
    }
    BOOST_TEST(failure_once(all, 0) == "rank 1 sends what nobody of this group would");
  }
}

BOOST_AUTO_TEST_CASE(what_cannot_work_is_refused) {
  meeting_links_options o;
  const auto code = [&] { return meeting_links::start(std::make_shared<bulk_context>(), o).failure().code; };
  o.self = rank_of_links(2);
  BOOST_TEST(code() == "bad_options");
  o.self = rank_of_links(0);
  o.place_bytes = frame_payload_bytes_max + 1;
  BOOST_TEST(code() == "bad_options");
  o.place_bytes = 64;
  o.bind = "tcp://192.0.2.1:*"; // unencrypted, and not this host
  BOOST_TEST(code() == "refused_address");
}

BOOST_AUTO_TEST_SUITE_END()
