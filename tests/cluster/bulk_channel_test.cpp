#include "cluster/bulk_channel.hpp"
#include "tests/support/bulk_cases.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/sanitizers.hpp"
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <thread>
#include <unistd.h>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

struct ring_channel {
  explicit ring_channel(std::size_t capacity = 1 << 20)
      : name(channel_segment("test" + std::to_string(::getpid()), "n0", 1, 2, traffic_class::kv).value()),
        memory(std::move(make_ring_channel(name, capacity)).value()),
        to(std::move(ring_sender::attach(name, 1, 2)).value()), from(std::move(ring_receiver::attach(name)).value()) {}
  segment_names names; // fails the test for what is left
  std::string name;
  shared_memory memory;
  std::unique_ptr<ring_sender> to;
  std::unique_ptr<ring_receiver> from;
};

} // namespace

BOOST_AUTO_TEST_SUITE(ring_channels)

BOOST_AUTO_TEST_CASE(segments_are_named_by_ranks_and_class) {
  BOOST_TEST(channel_segment("c1", "n3", 4, 15, traffic_class::weight).value() == "troupe.c1.n3.4-15.weight");
  BOOST_TEST(channel_segment("c1", "n3", 4, 15, traffic_class::a2a).value() == "troupe.c1.n3.4-15.a2a");
}

BOOST_AUTO_TEST_CASE(streams_of_three_threads_arrive_once_and_in_order) {
  ring_channel c;
  const std::uint64_t count = by_build(500U, 150U, 100U);
  arrival_check check(count, 40'000);
  std::vector<std::thread> threads;
  std::array<bool, 3> sent{};
  for (std::uint64_t s = 1; s <= 3; ++s)
    threads.emplace_back([&, s] {
      bool good = true;
      for (std::uint64_t n = 0; n < count; ++n)
        good = c.to->send(made_frame(s, n, count, 40'000), 60s) && good;
      sent[s - 1] = good && c.to->wait_delivered(s, 60s);
    });
  while (!check.complete(1) || !check.complete(2) || !check.complete(3)) {
    const auto a = c.from->receive(60s);
    BOOST_REQUIRE(a);
    BOOST_REQUIRE(!a->failure);
    BOOST_REQUIRE(a->frame.src == 1u && a->frame.dst == 2u);
    check.take(*a);
  }
  for (std::thread& t : threads)
    t.join();
  BOOST_TEST((sent[0] && sent[1] && sent[2]));
}

BOOST_AUTO_TEST_CASE(streams_cross_processes_and_a_killed_sender_is_found) {
  const segment_names names;
  const std::string name = channel_segment("test" + std::to_string(::getpid()), "n0", 3, 4, traffic_class::kv).value();
  const auto memory = std::move(make_ring_channel(name, 1 << 19)).value();
  forked child([&] {
    const auto to = ring_sender::attach(name, 3, 4);
    for (std::uint64_t n = 0; to && n < 150; ++n)
      if (!(*to)->send(made_frame(1, n, 200, 20'000), 60s))
        return 1;
    ::raise(SIGKILL);
    return 0;
  });
  const auto from = std::move(ring_receiver::attach(name)).value();
  arrival_check check(200, 20'000);
  for (int n = 0; n < 150; ++n) {
    const auto a = from->receive(60s);
    BOOST_REQUIRE(a);
    check.take(*a);
  }
  BOOST_TEST(check.arrived(1) == 150u);
  BOOST_TEST(from->receive(60s).failure().code == "peer_gone");
  BOOST_TEST(child.wait() == 128 + SIGKILL);
}

BOOST_AUTO_TEST_CASE(full_frames_fit_a_ring_of_16_mib_and_a_full_ring_holds_the_sender) {
  ring_channel c(16 << 20);
  bulk_frame frame{.kind = frame_kind::expert_chunk,
                   .mepoch = 1,
                   .stream = 9,
                   .meta = std::string(frame_meta_bytes_max, 'm'),
                   .payload = own(std::vector<std::uint8_t>(frame_payload_bytes_max, 7))};
  int sent = 0;
  while (c.to->send(frame, 0ms))
    ++sent;
  BOOST_TEST(sent >= 2);
  BOOST_TEST(c.to->send(frame, 1ms).failure().code == "no_credit");
  BOOST_TEST(c.to->wait_delivered(9, 1ms).failure().code == "timed_out");
  for (int n = 0; n < 10; ++n) {
    const auto a = c.from->receive(60s);
    BOOST_REQUIRE(a && !a->failure);
    BOOST_TEST(std::ranges::equal(a->frame.payload.bytes, frame.payload.bytes));
    BOOST_TEST((a->frame.kind == frame_kind::expert_chunk));
    BOOST_REQUIRE(c.to->send(frame, 0ms));
  }
  frame.payload = own(std::vector<std::uint8_t>(frame_payload_bytes_max + 1));
  BOOST_TEST(c.to->send(frame, 0ms).failure().code == "too_large");
  frame.kind = frame_kind::hello;
  frame.payload = {};
  BOOST_TEST(c.to->send(frame, 0ms).failure().code == "bad_options");
}

// Memory that is damaged under way: the stream fails, once, and others go on.
BOOST_AUTO_TEST_CASE(damaged_memory_fails_the_stream) {
  ring_channel c(1 << 16);
  const auto first = made_frame(1, 0, 9, 1000);
  const std::string mark = "frame 0"; // begin of its meta
  BOOST_REQUIRE(c.to->send(first, 0ms));
  auto* bytes = reinterpret_cast<char*>(c.memory.data());
  auto* at = std::search(bytes, bytes + c.memory.size(), mark.begin(), mark.end());
  BOOST_REQUIRE(at != bytes + c.memory.size());
  *at ^= 4;
  BOOST_REQUIRE(c.to->send(made_frame(1, 1, 9, 1000), 0ms));
  BOOST_REQUIRE(c.to->send(made_frame(2, 0, 9, 1000), 0ms));
  const auto failed = c.from->receive(1s);
  BOOST_REQUIRE(failed && failed->failure);
  BOOST_TEST(failed->frame.stream == 1u);
  BOOST_TEST(failed->failure->code == "stream_failed");
  const auto good = c.from->receive(1s);
  BOOST_REQUIRE(good && !good->failure);
  BOOST_TEST(good->frame.stream == 2u);
  // A header of which nothing can be believed.
  BOOST_REQUIRE(c.to->send(made_frame(3, 0, 9, 1000), 0ms));
  const std::string magic = "DIDP";
  for (at = bytes;
       (at = std::search(at, bytes + c.memory.size(), magic.begin(), magic.end())) != bytes + c.memory.size();)
    *at++ = 'X';
  BOOST_TEST(c.from->receive(1s).failure().code == "damaged");
}

BOOST_AUTO_TEST_CASE(a_stream_that_is_given_up_ends_on_both_sides) {
  ring_channel c;
  BOOST_REQUIRE(c.to->send(made_frame(1, 0, 9, 100), 0ms));
  c.to->abandon(1);
  c.to->abandon(1);
  c.to->abandon(8); // never begun
  BOOST_TEST(c.to->send(made_frame(1, 1, 9, 100), 0ms).failure().code == "closed");
  BOOST_REQUIRE(!c.from->receive(1s).value().failure);
  const auto end = c.from->receive(1s);
  BOOST_REQUIRE(end && end->failure);
  BOOST_TEST(end->failure->code == "closed");
  BOOST_TEST(end->frame.stream == 1u);
  BOOST_TEST(c.from->receive(0ms).failure().code == "timed_out");
}

BOOST_AUTO_TEST_CASE(frames_of_an_older_membership_are_dropped_and_counted) {
  ring_channel c;
  BOOST_REQUIRE(c.to->send(made_frame(1, 0, 9, 100, 3), 0ms));
  BOOST_REQUIRE(c.to->send(made_frame(1, 1, 9, 100, 3), 0ms));
  BOOST_TEST(c.to->send(made_frame(1, 2, 9, 100, 4), 0ms).failure().code ==
             "stale_epoch"); // one stream, one membership
  BOOST_REQUIRE(c.from->receive(0ms));
  c.from->set_mepoch(4);
  BOOST_REQUIRE(c.to->send(made_frame(2, 0, 9, 100, 4), 0ms));
  const auto a = c.from->receive(1s);
  BOOST_REQUIRE(a);
  BOOST_TEST(a->frame.stream == 2u);
  BOOST_TEST(c.from->stale_frames() == 1u);
  c.to->set_mepoch(4);
  BOOST_TEST(c.to->send(made_frame(1, 2, 9, 100, 3), 0ms).failure().code == "stale_epoch");
  BOOST_TEST(c.to->send(made_frame(7, 0, 9, 100, 3), 0ms).failure().code == "stale_epoch");
  BOOST_TEST(bool(c.to->send(made_frame(2, 1, 9, 100, 4), 0ms)));
}

BOOST_AUTO_TEST_CASE(sides_that_leave_are_reported) {
  ring_channel c;
  BOOST_REQUIRE(c.to->send(made_frame(1, 0, 1, 100), 0ms));
  c.to.reset();
  BOOST_TEST(!c.from->receive(1s).value().failure);
  BOOST_TEST(c.from->receive(1s).failure().code == "closed");
  const auto again = std::move(ring_sender::attach(c.name, 1, 2)).value();
  c.from.reset();
  BOOST_TEST(again->send(made_frame(2, 0, 1, 100), 1s).failure().code == "closed");
  BOOST_TEST(ring_receiver::attach(c.name + "x").failure().code == "unknown");
}

BOOST_AUTO_TEST_SUITE_END()
