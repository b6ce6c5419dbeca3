// The threads and channels that carry caches of prompts, between two endpoints of one process.
#include "actors/handoff_endpoint.hpp"
#include "tests/support/forked.hpp"
#include <boost/test/unit_test.hpp>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unistd.h>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

struct notes {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<handoff_note> all;

  void listen_to(handoff_endpoint& e) {
    e.report_to([this](handoff_note n) {
      const std::lock_guard lock(mutex);
      all.push_back(std::move(n));
      changed.notify_all();
    });
  }
  handoff_note next() {
    std::unique_lock lock(mutex);
    BOOST_REQUIRE(changed.wait_for(lock, 60s, [&] { return !all.empty(); }));
    handoff_note n = std::move(all.front());
    all.pop_front();
    return n;
  }
};

handoff_setup setup_of(std::uint32_t rank, bool shared, handoff_times times = {}) {
  handoff_setup s;
  s.self = {"test" + std::to_string(::getpid()), rank, 7 + rank, "build"};
  s.node = "n0";
  s.shape = {5000, 300, 0, "settings"};
  s.times = times;
  s.shared_memory = shared;
  s.uses_link = !shared;
  s.credit_bytes = 8000;
  if (rank == 2)
    s.senders = {{1, "n0"}};
  return s;
}

struct two_ends {
  notes from_notes, to_notes; // outlive the threads that write them
  std::unique_ptr<handoff_endpoint> from, to;
  explicit two_ends(bool shared, handoff_times times = {})
      : two_ends(setup_of(1, shared, times), setup_of(2, shared, times)) {}
  two_ends(const handoff_setup& a, const handoff_setup& b)
      : from(std::make_unique<handoff_endpoint>(a)), to(std::make_unique<handoff_endpoint>(b)) {
    from_notes.listen_to(*from);
    to_notes.listen_to(*to);
  }
  handoff_ticket there(std::uint64_t id) const { return {id, true, 2, "n0", to ? to->address() : "", 9}; }
  static handoff_ticket here(std::uint64_t id) { return {id, false, 1, {}, {}, 0}; }
};

std::shared_ptr<const image_bytes> bytes_of(std::size_t count, std::uint8_t first) {
  auto b = std::make_shared<image_bytes>(count);
  for (std::size_t i = 0; i < count; ++i)
    (*b)[i] = static_cast<std::uint8_t>(first + i * 3);
  return b;
}

// The first block of handoff 1 has arrived, the rest of it is to come.
void begin_first(two_ends& e) {
  e.to->expect(two_ends::here(1), 200);
  e.from->open(e.there(1), 200);
  e.from->add(1, bytes_of(5000, 1), false, 0);
  while (e.to->counters().received_bytes < 5000)
    std::this_thread::sleep_for(1ms);
}

using news = handoff_note::news;

} // namespace

BOOST_AUTO_TEST_SUITE(handoff_endpoints)

BOOST_AUTO_TEST_CASE(caches_arrive_over_both_carriers) {
  for (const bool shared : {true, false}) {
    const test::segment_names names;
    two_ends e(shared);
    for (std::uint64_t id = 1; id <= 5; ++id) {
      e.to->expect(two_ends::here(id), 200);
      e.from->open(e.there(id), 200);
    }
    for (std::uint64_t id = 1; id <= 5; ++id) {
      BOOST_TEST(e.from->add(id, bytes_of(5000, static_cast<std::uint8_t>(id)), false, 0));
      e.from->add(id, bytes_of(5300, 100), true, 128);
    }
    for (int i = 0; i < 5; ++i) {
      const handoff_note n = e.to_notes.next();
      BOOST_REQUIRE((n.what == news::arrived && n.image));
      image_bytes expected = *bytes_of(5000, static_cast<std::uint8_t>(n.id));
      const auto rest = bytes_of(5300, 100);
      expected.insert(expected.end(), rest->begin(), rest->end());
      BOOST_TEST((*n.image == expected));
      BOOST_TEST(n.cached == 128);
      BOOST_TEST((e.from_notes.next().what == news::sent));
    }
    BOOST_TEST(e.from->counters().sent == 5u);
    BOOST_TEST(e.from->counters().sent_bytes == 5 * 10300u);
    BOOST_TEST(e.to->counters().received_bytes == 5 * 10300u);
    BOOST_TEST(e.from->counters().sending + e.to->counters().receiving == 0u);
    BOOST_TEST(e.from->counters().tail_bytes_max >= 5300u);
  }
}

// A sender that is held for dead goes on until it hears of it; its place is another's meanwhile.
BOOST_AUTO_TEST_CASE(what_is_of_an_older_epoch_is_refused_and_counted) {
  for (const bool shared : {true, false}) {
    const test::segment_names names;
    two_ends e(shared);
    e.from->set_epochs({{2, {6, 0}}});
    e.to->set_epochs({{1, {6, 6}}});
    begin_first(e);
    BOOST_TEST(e.to->stale_frames() == 0u);
    e.to->set_epochs({{1, {6, 8}}}); // it is over
    const handoff_note first = e.to_notes.next();
    BOOST_TEST(first.id == 1u);
    BOOST_TEST((first.what == news::failed)); // at once: nobody waits for its lease
    e.to->expect(two_ends::here(2), 200);
    e.from->open(e.there(2), 200);
    e.from->add(2, bytes_of(10300, 1), true, 128);
    for (int i = 0; i < 6000 && e.to->stale_frames() == 0; ++i)
      std::this_thread::sleep_for(10ms);
    BOOST_TEST(e.to->stale_frames() > 0u);
    BOOST_TEST(e.to->counters().receiving == 1u); // nothing of it was taken
    e.from->set_epochs({{2, {9, 0}}});
    e.to->set_epochs({{1, {9, 9}}});
    e.to->expect(two_ends::here(3), 200);
    e.from->open(e.there(3), 200);
    e.from->add(3, bytes_of(10300, 1), true, 128);
    handoff_note last = e.to_notes.next();
    while (last.id != 3)
      last = e.to_notes.next();
    BOOST_TEST((last.what == news::arrived));
  }
}

// Keys come with the views, when the endpoints have been at work for a while.
BOOST_AUTO_TEST_CASE(caches_arrive_encrypted_once_the_sender_is_known) {
  const curve_keys ours = make_curve_keys().value(), theirs = make_curve_keys().value();
  handoff_setup a = setup_of(1, false), b = setup_of(2, false);
  a.bulk = std::make_shared<bulk_context>(security_mode::mutual, ours);
  b.bulk = std::make_shared<bulk_context>(security_mode::mutual, theirs);
  two_ends e(a, b);
  std::this_thread::sleep_for(50ms);
  b.bulk->admit({ours.public_key});
  e.to->set_sender_keys({{1, ours.public_key}});
  handoff_ticket ticket = e.there(1);
  ticket.key = theirs.public_key;
  e.to->expect(two_ends::here(1), 200);
  e.from->open(ticket, 200);
  e.from->add(1, bytes_of(5000, 1), false, 0);
  e.from->add(1, bytes_of(5300, 100), true, 128);
  const handoff_note n = e.to_notes.next();
  BOOST_REQUIRE((n.what == news::arrived && n.image));
  BOOST_TEST(n.image->size() == 10300u);
  BOOST_TEST((e.from_notes.next().what == news::sent));
}

BOOST_AUTO_TEST_CASE(what_waits_is_bounded_until_it_flows_again) {
  two_ends e(true);
  e.to->expect(two_ends::here(1), 2 * 128);
  e.from->open({1, true, 3, "n0", {}, 9}, 2 * 128); // nobody is there
  BOOST_TEST(e.from->add(1, bytes_of(5000, 1), false, 0));
  BOOST_TEST(!e.from->add(1, bytes_of(5000, 1), false, 0));
  e.from->drop(1);
  e.from->drop(1);
  BOOST_TEST(e.from->add(1, bytes_of(5000, 1), false, 0)); // unknown: nothing is held back
  BOOST_TEST(e.from->counters().sending == 0u);
  e.from->open(e.there(2), 3 * 128);
  e.to->expect(two_ends::here(2), 3 * 128);
  const bool first = e.from->add(2, bytes_of(10000, 1), false, 0);
  BOOST_TEST(!first);
  const handoff_note n = e.from_notes.next();
  BOOST_TEST((n.id == 2u && n.what == news::flows_again));
}

BOOST_AUTO_TEST_CASE(leases_run_out_on_both_sides) {
  two_ends e(true, {200, 50, 400});
  e.to->expect(two_ends::here(1), 100); // nobody sends it
  handoff_note n = e.to_notes.next();
  BOOST_TEST((n.what == news::failed && n.failure.code == "lease_expired"));
  e.from->open({2, true, 3, "n0", {}, 9}, 100); // nobody is there
  e.from->add(2, bytes_of(5300, 1), true, 0);
  n = e.from_notes.next();
  BOOST_TEST((n.what == news::failed && n.failure.code == "lease_expired"));
  BOOST_TEST(e.from->counters().expired == 1u);
  BOOST_TEST(e.to->counters().expired == 1u);
  BOOST_TEST(e.from->counters().sending + e.to->counters().receiving == 0u);
}

// A crowded machine may keep the sender from its renewals for a while: the lease is far longer than the time between
// two of them.
BOOST_AUTO_TEST_CASE(renewals_keep_a_lease_while_nothing_is_there_to_be_sent) {
  two_ends e(true, {2000, 50, 60000});
  e.to->expect(two_ends::here(3), 100);
  e.from->open(e.there(3), 100);
  std::this_thread::sleep_for(2500ms);
  e.from->add(3, bytes_of(5300, 1), true, 0);
  BOOST_TEST((e.to_notes.next().what == news::arrived));
}

BOOST_AUTO_TEST_CASE(a_receiver_that_ends_fails_what_was_on_the_way_and_its_successor_takes_more) {
  two_ends e(true);
  begin_first(e);
  e.to.reset();
  e.from->add(1, bytes_of(5300, 1), true, 0);
  handoff_note n = e.from_notes.next();
  BOOST_TEST((n.what == news::failed && n.failure.code == "handoff_failed"));
  handoff_setup s = setup_of(2, true);
  s.self.incarnation = 20;
  e.to = std::make_unique<handoff_endpoint>(s);
  e.to_notes.listen_to(*e.to);
  e.to->expect(two_ends::here(2), 200);
  e.from->open({2, true, 2, "n0", {}, 20}, 200);
  e.from->add(2, bytes_of(10300, 1), true, 0);
  BOOST_TEST((e.to_notes.next().what == news::arrived));
}

BOOST_AUTO_TEST_CASE(a_sender_that_ends_fails_what_was_on_the_way_and_its_successor_sends_more) {
  two_ends e(true);
  begin_first(e);
  e.from.reset();
  handoff_note n = e.to_notes.next();
  BOOST_TEST((n.what == news::failed && n.failure.code == "handoff_failed"));
  e.from = std::make_unique<handoff_endpoint>(setup_of(1, true));
  e.from_notes.listen_to(*e.from);
  e.to->expect(two_ends::here(2), 200);
  e.from->open(e.there(2), 200);
  e.from->add(2, bytes_of(10300, 1), true, 0);
  BOOST_TEST((e.to_notes.next().what == news::arrived));
}

BOOST_AUTO_TEST_CASE(caches_of_other_settings_are_refused) {
  handoff_setup s = setup_of(1, true);
  s.shape.settings = "others";
  two_ends e(true);
  e.from.reset();
  e.from = std::make_unique<handoff_endpoint>(s);
  e.to->expect(two_ends::here(1), 200);
  e.from->open(e.there(1), 200);
  e.from->add(1, bytes_of(10300, 1), true, 0);
  const handoff_note n = e.to_notes.next();
  BOOST_TEST((n.what == news::failed && n.failure.message.find("others there, settings here") != std::string::npos),
             n.failure.message);
}

BOOST_AUTO_TEST_SUITE_END()
