#include "cluster/bulk_protocol.hpp"
#include "tests/support/bulk_cases.hpp"
#include "tests/support/frame_faults.hpp"
#include "tests/support/sanitizers.hpp"
#include <boost/test/unit_test.hpp>
#include <functional>
#include <map>
#include <optional>
#include <random>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

bulk_identity who(std::uint32_t rank, std::uint64_t incarnation) {
  return {.cluster = "c1", .rank = rank, .incarnation = incarnation, .build_id = "b1"};
}

stream_rules small_rules() {
  return {.credit_bytes = 20'000, .frames_ahead = 64};
}

// A sender, a receiver and a link between them on a clock that jumps from event to event.
struct world {
  world(const fault_rates& rates, std::uint64_t seed, bulk_identity to = who(2, 22), std::uint64_t expected = 22)
      : sender(who(1, 11), 2, expected, small_rules()), receiver(std::move(to), 1, 11, small_rules(), 64),
        there(rates, 2 * seed + 1), back(rates, 2 * seed + 2) {}

  steady_time now{};
  outgoing_peer sender;
  incoming_peer receiver;
  frame_faults there, back;
  std::chrono::microseconds latency{100};
  bool cut = false; // the link takes everything and lets nothing out
  std::multimap<steady_time, std::function<void()>> events;

  void travel(frame_faults& link, const wire_frame& frame, bool to_receiver) {
    const auto bytes = frame.payload.bytes;
    for (auto& d : link.pass({head_and_meta(frame), std::string(bytes.begin(), bytes.end())}))
      if (!cut)
        events.emplace(now + latency + d.later, [this, to_receiver, parts = std::move(d.frame)] {
          auto arrived = read_frame(bytes_of(parts[0]), own({parts[1].begin(), parts[1].end()}));
          if (arrived && to_receiver)
            receiver.arrived(std::move(*arrived));
          else if (arrived)
            sender.arrived(*arrived, now);
        });
  }
  void pump() {
    while (const auto frame = sender.next(now)) {
      travel(there, *frame, true);
      sender.sent(*frame, now);
    }
    while (const auto frame = receiver.next()) {
      travel(back, *frame, false);
      receiver.sent(*frame);
    }
  }
  // On to the next event, or to when the sender has something to do, or to when the reader looks again.
  void advance(steady_time end) {
    const steady_time due = std::max(sender.due(now), now + 1us);
    const steady_time event = events.empty() ? end : events.begin()->first;
    now = std::min({due, event, now + 1ms, end});
    while (!events.empty() && events.begin()->first <= now) {
      const auto act = std::move(events.begin()->second);
      events.erase(events.begin());
      act();
    }
    pump();
  }
  // Until `done`, at most so long by the world's clock.
  bool run(std::chrono::milliseconds limit, const std::function<bool()>& done) {
    const steady_time end = now + limit;
    pump();
    for (bool is = done(); !is; is = done()) {
      if (now >= end)
        return false;
      advance(end);
    }
    return true;
  }
};

// Sends `streams` streams of `count` frames, reads now and then, until all have ended on both sides.
struct transfer {
  static constexpr std::size_t largest = 3000;
  std::uint64_t streams, count;
  std::map<std::uint64_t, std::uint64_t> offered{};
  std::map<std::uint64_t, std::optional<bulk_frame>> next{};
  std::map<std::uint64_t, std::string> failed{};
  arrival_check check{count, largest};
  std::mt19937_64 random{7};

  void work(world& w) {
    for (std::uint64_t s = 1; s <= streams; ++s)
      while (!failed.contains(s) && offered[s] < count) {
        auto& frame = next[s];
        if (!frame)
          frame = made_frame(s, offered[s], count, largest);
        const auto taken = w.sender.offer(*frame, w.now);
        if (!taken)
          failed[s] = taken.failure().code;
        if (!taken || !*taken)
          break;
        ++offered[s];
        frame.reset();
      }
    for (std::uint64_t n = random() % 4; n > 0; --n) // a slow reader
      if (const auto a = w.receiver.take())
        check.take(*a);
  }
  bool sender_done(const world& w) {
    for (std::uint64_t s = 1; s <= streams; ++s) {
      const auto delivered = w.sender.delivered(s);
      if (!delivered)
        failed[s] = delivered.failure().code;
      else if (!*delivered || offered[s] < count)
        return false;
    }
    return true;
  }
  bool receiver_done() const {
    for (std::uint64_t s = 1; s <= streams; ++s)
      if (!check.complete(s) && !check.failed(s))
        return false;
    return true;
  }
  bool run(world& w, std::chrono::milliseconds limit) {
    return w.run(limit, [&] {
      work(w);
      return sender_done(w) && receiver_done();
    });
  }
};

} // namespace

BOOST_AUTO_TEST_SUITE(bulk_protocol)

BOOST_AUTO_TEST_CASE(a_good_link_needs_nothing_twice) {
  world w({}, 1);
  transfer t{.streams = 3, .count = 50};
  BOOST_REQUIRE(t.run(w, 60s));
  BOOST_TEST(t.failed.empty());
  BOOST_TEST(w.sender.counters().frames_sent == 150u);
  BOOST_TEST(w.sender.counters().retransmits == 0u);
  BOOST_TEST(w.receiver.counters().frames_received == 150u);
  BOOST_TEST(w.receiver.counters().nacks == 0u);
  BOOST_TEST(w.receiver.counters().duplicates == 0u);
}

// Exactly once and in order at the rates of the fault matrix, whatever the seed: no stream fails there.
BOOST_AUTO_TEST_CASE(a_bad_link_loses_repeats_and_reorders_nothing) {
  bulk_counters sent, received;
  for (std::uint64_t seed = 0; seed < by_build(600U, 100U, 60U); ++seed) {
    world w({.drop = .01, .duplicate = .05, .corrupt = .01, .late = .1}, seed);
    transfer t{.streams = 3, .count = 60};
    BOOST_REQUIRE_MESSAGE(t.run(w, 600s), "seed " << seed);
    BOOST_REQUIRE_MESSAGE(t.failed.empty(), "seed " << seed << ": " << t.failed.begin()->second);
    sent += w.sender.counters();
    received += w.receiver.counters();
  }
  BOOST_TEST(sent.retransmits > 0u);
  BOOST_TEST(received.duplicates > 0u);
  BOOST_TEST(received.bad_frames > 0u);
  BOOST_TEST(received.out_of_bounds == 0u);
}

// Far beyond those rates: a stream may fail, and then both sides hear of it.
BOOST_AUTO_TEST_CASE(a_terrible_link_delivers_or_fails_cleanly) {
  std::uint64_t failed = 0, complete = 0;
  for (std::uint64_t seed = 0; seed < by_build(600U, 100U, 60U); ++seed) {
    world w({.drop = .25, .duplicate = .2, .corrupt = .2, .late = .5, .latest = 60ms}, seed);
    transfer t{.streams = 3, .count = 40};
    BOOST_REQUIRE_MESSAGE(t.run(w, 3600s), "seed " << seed);
    for (std::uint64_t s = 1; s <= 3; ++s) {
      complete += t.check.complete(s) && !t.failed.contains(s) ? 1 : 0;
      if (t.failed.contains(s))
        ++failed;
      // What was acknowledged to the end has arrived to the end.
      BOOST_REQUIRE(t.failed.contains(s) || t.check.complete(s));
      // What the receiver was told had failed has failed for the sender.
      BOOST_REQUIRE(!t.check.failed(s) || t.failed.contains(s));
    }
  }
  BOOST_TEST(failed > 20u);
  BOOST_TEST(complete > 20u);
}

BOOST_AUTO_TEST_CASE(a_cut_of_a_second_fails_nothing_a_long_one_fails_the_stream) {
  for (const auto& [cut, fails] : {std::pair{1000ms, false}, std::pair{20'000ms, true}}) {
    world w({}, 1);
    transfer t{.streams = 1, .count = 200};
    BOOST_REQUIRE(!t.run(w, 10ms)); // under way
    BOOST_REQUIRE(t.check.arrived(1) > 0u);
    w.cut = true;
    (void)t.run(w, cut);
    w.cut = false;
    BOOST_REQUIRE(t.run(w, 60s) || fails);
    BOOST_TEST(t.failed.contains(1) == fails);
    if (fails)
      BOOST_TEST(t.failed[1] == "peer_silent");
    BOOST_TEST(t.check.complete(1) == !fails);
  }
}

BOOST_AUTO_TEST_CASE(a_frame_goes_out_four_times_at_most) {
  world w({}, 3);
  BOOST_REQUIRE(w.run(10s, [&] { return w.sender.offer(made_frame(1, 0, 2, 0), w.now).value(); }));
  (void)w.run(100ms, [] { return false; });
  auto frame = made_frame(1, 1, 2, 100);
  frame.body_crc = 1; // wrong each time
  BOOST_REQUIRE(w.sender.offer(frame, w.now).value());
  std::string code;
  BOOST_TEST(w.run(60s, [&] {
    const auto delivered = w.sender.delivered(1);
    code = delivered ? "" : delivered.failure().code;
    return !delivered;
  }));
  BOOST_TEST(code == "stream_failed");
  BOOST_TEST(w.sender.counters().frames_sent == 1u + 4u);
  BOOST_TEST(w.sender.counters().retransmits == 3u);
  BOOST_TEST(w.receiver.counters().bad_frames == 4u);
  (void)w.run(1s, [] { return false; });
  BOOST_REQUIRE(!w.receiver.take()->failure); // the first frame
  const auto end = w.receiver.take();
  BOOST_REQUIRE(end && end->failure);
  BOOST_TEST(end->frame.stream == 1u);
  BOOST_TEST(end->failure->code == "stream_failed");
  BOOST_TEST(w.sender.offer(made_frame(1, 2, 9, 10), w.now).failure().code == "stream_failed");
}

// A link that takes half a second for what is in front of a copy: the reports that come meanwhile use up no attempts.
BOOST_AUTO_TEST_CASE(a_slow_link_fails_nothing) {
  for (std::uint64_t seed = 0; seed < by_build(30U, 15U, 8U); ++seed) {
    world w({.drop = .02, .corrupt = .02}, seed);
    w.latency = 500ms;
    transfer t{.streams = 3, .count = 60};
    BOOST_REQUIRE_MESSAGE(t.run(w, 600s), "seed " << seed);
    BOOST_REQUIRE_MESSAGE(t.failed.empty(), "seed " << seed << ": " << t.failed.begin()->second);
  }
}

BOOST_AUTO_TEST_CASE(credit_bounds_what_is_on_the_way) {
  world w({}, 1);
  std::uint64_t offered = 0, bytes = 0;
  const auto offer = [&] {
    const auto frame = made_frame(5, offered, 1000, 3000);
    const auto taken = w.sender.offer(frame, w.now);
    BOOST_REQUIRE(taken);
    offered += *taken ? 1 : 0;
    bytes += *taken ? credited_bytes(frame) : 0;
    return *taken;
  };
  BOOST_REQUIRE(w.run(10s, offer));
  (void)w.run(30s, [&] {
    while (offer()) {
    }
    return false;
  });
  // One credit's worth waits for the reader, one more is held by the sender; thirty seconds of waiting failed nothing.
  const std::uint64_t received = w.receiver.counters().payload_bytes_received;
  BOOST_TEST(received <= 20'000u);
  BOOST_TEST(received > 10'000u);
  BOOST_TEST(bytes <= 40'000u);
  BOOST_TEST(w.receiver.counters().out_of_bounds == 0u);
  const std::uint64_t before = offered;
  for (int n = 0; n < 8; ++n)
    BOOST_REQUIRE(w.receiver.take());
  (void)w.run(1s, [&] {
    while (offer()) {
    }
    return false;
  });
  BOOST_TEST(offered > before);
  BOOST_TEST(w.sender.offer(made_frame(6, 0, 1, 0), w.now).value()); // another stream has its own
  auto large = made_frame(7, 0, 1, 0);
  large.payload = own(std::vector<std::uint8_t>(20'000));
  BOOST_TEST(w.sender.offer(large, w.now).failure().code == "too_large");
}

BOOST_AUTO_TEST_CASE(frames_of_an_older_membership_are_dropped_and_counted) {
  world w({}, 1);
  w.sender.set_mepoch(1);
  w.receiver.set_mepoch(2);
  BOOST_REQUIRE(w.run(10s, [&] { return w.sender.offer(made_frame(1, 0, 9, 10, 1), w.now).value(); }));
  BOOST_TEST(w.run(10s, [&] { return !w.sender.delivered(1); }));
  BOOST_TEST(w.sender.delivered(1).failure().code == "stale_epoch");
  BOOST_TEST(w.receiver.counters().stale_frames >= 1u);
  BOOST_TEST(!w.receiver.take());
  // A newer one passes: the receiver's view comes later.
  BOOST_REQUIRE(w.sender.offer(made_frame(2, 0, 9, 10, 3), w.now).value());
  BOOST_TEST(w.run(10s, [&] { return w.receiver.waiting(); }));
  BOOST_TEST(w.receiver.take()->frame.mepoch == 3u);
  // Moving on ends what is under way, on both sides.
  BOOST_REQUIRE(w.sender.offer(made_frame(2, 1, 9, 10, 3), w.now).value());
  BOOST_TEST(w.run(10s, [&] { return w.receiver.waiting(); }));
  w.receiver.set_mepoch(4);
  BOOST_TEST(!w.receiver.take());
  w.sender.set_mepoch(4);
  BOOST_TEST(w.sender.delivered(2).failure().code == "stale_epoch");
  BOOST_TEST(w.sender.offer(made_frame(2, 2, 9, 10, 3), w.now).failure().code == "stale_epoch");
}

BOOST_AUTO_TEST_CASE(strangers_are_refused_by_both_sides) {
  const auto refused = [](const bulk_identity& receiver, std::uint64_t expected) {
    world w({}, 1, receiver, expected);
    std::string code;
    BOOST_TEST(w.run(10s, [&] {
      const auto taken = w.sender.offer(made_frame(1, 0, 1, 10), w.now);
      code = taken ? "" : taken.failure().code;
      return !taken;
    }));
    BOOST_TEST(w.receiver.counters().frames_received == 0u);
    return code;
  };
  auto other = who(2, 22);
  other.cluster = "c2";
  BOOST_TEST(refused(other, 22) == "wrong_cluster");
  other = who(2, 22);
  other.build_id = "b2";
  BOOST_TEST(refused(other, 22) == "version_mismatch");
  BOOST_TEST(refused(who(2, 23), 22) == "stale_incarnation");
  // A sender whose incarnation the view does not have.
  world w({}, 1);
  w.receiver = incoming_peer(who(2, 22), 1, 12, small_rules(), 64);
  BOOST_TEST(w.run(10s, [&] { return !w.sender.offer(made_frame(1, 0, 1, 10), w.now); }));
  BOOST_TEST(w.sender.offer(made_frame(1, 0, 1, 10), w.now).failure().code == "stale_incarnation");
  BOOST_TEST(w.receiver.counters().strangers > 0u);
}

BOOST_AUTO_TEST_CASE(a_receiver_that_forgot_says_so) {
  world w({}, 1);
  transfer t{.streams = 2, .count = 100};
  BOOST_REQUIRE(!t.run(w, 1ms));
  w.events.clear();
  w.receiver = incoming_peer(who(2, 22), 1, 11, small_rules(), 64); // removed from the view and added again
  (void)w.run(10s, [&] { return !w.sender.delivered(1) && !w.sender.delivered(2); });
  BOOST_TEST(w.sender.delivered(1).failure().code == "stream_refused");
  for (std::uint64_t s : {8, 9}) {
    arrival_check check(30, 1000);
    for (std::uint64_t n = 0; n < 30;) {
      (void)w.run(10s, [&] {
        while (const auto a = w.receiver.take())
          check.take(*a);
        return w.sender.offer(made_frame(s, n, 30, 1000), w.now).value();
      });
      ++n;
    }
    BOOST_TEST(w.run(10s, [&] {
      while (const auto a = w.receiver.take())
        check.take(*a);
      return check.complete(s);
    }));
  }
}

BOOST_AUTO_TEST_CASE(a_stream_that_is_given_up_ends_on_both_sides) {
  world w({.drop = .3}, 4);
  BOOST_REQUIRE(w.run(10s, [&] { return w.sender.offer(made_frame(1, 0, 9, 10), w.now).value(); }));
  w.sender.abandon(1, w.now);
  BOOST_TEST(w.sender.delivered(1).failure().code == "closed");
  std::optional<error> failure;
  BOOST_TEST(w.run(10s, [&] {
    if (const auto a = w.receiver.take(); a && a->failure)
      failure = a->failure;
    return failure.has_value();
  }));
  BOOST_TEST(failure->code == "closed");
}

BOOST_AUTO_TEST_CASE(streams_beyond_the_bound_are_refused) {
  world w({}, 1);
  w.receiver = incoming_peer(who(2, 22), 1, 11, small_rules(), 3);
  for (std::uint64_t s = 1; s <= 4; ++s)
    BOOST_REQUIRE(w.run(10s, [&] { return w.sender.offer(made_frame(s, 0, 9, 10), w.now).value(); }));
  (void)w.run(1s, [] { return false; });
  for (std::uint64_t s = 1; s <= 3; ++s)
    BOOST_TEST(w.sender.delivered(s).value());
  BOOST_TEST(w.sender.delivered(4).failure().code == "stream_refused");
}

// A sender that ignores credit and numbers is held off.
BOOST_AUTO_TEST_CASE(frames_beyond_the_bounds_are_dropped) {
  world w({}, 1);
  BOOST_REQUIRE(w.run(10s, [&] { return w.sender.offer(made_frame(1, 0, 9, 10), w.now).value(); }));
  (void)w.run(100ms, [] { return false; });
  const auto inject = [&](std::uint64_t seq, std::size_t bytes) {
    frame_header h;
    h.kind = frame_kind::kv_chunk;
    h.stream = 1;
    h.mepoch = 1;
    h.src = 1;
    h.dst = 2;
    h.seq = seq;
    w.receiver.arrived({h, true, {}, own(std::vector<std::uint8_t>(bytes))});
  };
  inject(64 + 1, 10);
  BOOST_TEST(w.receiver.counters().out_of_bounds == 1u);
  inject(1, 19'000);
  inject(2, 19'000);
  BOOST_TEST(w.receiver.counters().out_of_bounds == 2u);
  frame_header other;
  other.kind = frame_kind::kv_chunk;
  other.src = 3;
  other.dst = 2;
  w.receiver.arrived({other, true, {}, {}});
  BOOST_TEST(w.receiver.counters().strangers == 1u);
}

BOOST_AUTO_TEST_SUITE_END()
