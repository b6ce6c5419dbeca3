#include "cluster/bulk_link.hpp"
#include "tests/support/bulk_cases.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/frame_relay.hpp"
#include "tests/support/sanitizers.hpp"
#include <array>
#include <boost/test/unit_test.hpp>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <unistd.h>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

stream_rules rules() {
  return {.credit_bytes = 1 << 20, .silent_limit = 20s};
}

bulk_link_options options_of(std::uint32_t rank, std::uint64_t incarnation) {
  return {.self = {.cluster = "c1", .rank = rank, .incarnation = incarnation, .build_id = "b1"},
          .traffic = traffic_class::kv,
          .rules = rules()};
}

// Two processes' links in one process: rank 1 sends to rank 2, if wanted through a bad link.
struct pair_of_links {
  explicit pair_of_links(const fault_rates* rates = nullptr, std::uint64_t seed = 0)
      : here(std::move(bulk_link::start(context_here, options_of(1, 11))).value()),
        there(std::move(bulk_link::start(context_there, options_of(2, 22))).value()) {
    if (rates != nullptr)
      relay.emplace(there.endpoint(), *rates, seed);
    here.set_peers(
        {{.rank = 2, .incarnation = 22, .endpoint = relay ? relay->endpoint() : there.endpoint(), .public_key = {}}});
    there.set_peers({{.rank = 1, .incarnation = 11, .endpoint = here.endpoint(), .public_key = {}}});
  }
  bulk_context context_here, context_there;
  bulk_link here, there;
  std::optional<frame_relay> relay;
};

// Sends a stream to its end or to its failure; the failure's code.
std::string send_stream(bulk_sender& to, std::uint64_t stream, std::uint64_t count, std::size_t largest,
                        std::uint64_t mepoch = 1) {
  for (std::uint64_t n = 0; n < count; ++n)
    if (const auto sent = to.send(made_frame(stream, n, count, largest, mepoch), 120s); !sent)
      return sent.failure().code;
  const auto delivered = to.wait_delivered(stream, 120s);
  return delivered ? "" : delivered.failure().code;
}

// Reads until every stream from 1 to `streams` has ended.
void read_streams(bulk_receiver& from, arrival_check& check, std::uint64_t streams) {
  std::set<std::uint64_t> open;
  for (std::uint64_t s = 1; s <= streams; ++s)
    open.insert(s);
  while (!open.empty()) {
    const auto arrival = from.receive(120s);
    if (!arrival)
      BOOST_ERROR(arrival.failure().message);
    BOOST_REQUIRE(arrival);
    check.take(*arrival);
    if (check.complete(arrival->frame.stream) || check.failed(arrival->frame.stream))
      open.erase(arrival->frame.stream);
  }
}

// Three threads send a stream each; the failures of the senders, empty where all arrived.
std::array<std::string, 3> transfer(bulk_sender& to, bulk_receiver& from, arrival_check& check, std::uint64_t count,
                                    std::size_t largest) {
  std::array<std::string, 3> codes;
  std::vector<std::thread> threads;
  for (std::uint64_t s = 1; s <= 3; ++s)
    threads.emplace_back([&, s] { codes[s - 1] = send_stream(to, s, count, largest); });
  read_streams(from, check, 3);
  for (std::thread& t : threads)
    t.join();
  return codes;
}

bool eventually(const std::function<bool()>& there) {
  for (int n = 0; n < 60'000; ++n) {
    if (there())
      return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

} // namespace

BOOST_AUTO_TEST_SUITE(bulk_links)

BOOST_AUTO_TEST_CASE(streams_arrive_once_and_in_order_both_ways) {
  pair_of_links p;
  const auto to_2 = p.here.sender_to(2), to_1 = p.there.sender_to(1);
  const auto from_1 = p.there.receiver_from(1), from_2 = p.here.receiver_from(2);
  const std::uint64_t count = by_build(200U, 60U, 40U);
  arrival_check at_2(count, 60'000), at_1(count, 60'000);
  std::array<std::string, 6> codes;
  std::vector<std::thread> threads;
  for (std::uint64_t s = 1; s <= 3; ++s) {
    threads.emplace_back([&, s] { codes[s - 1] = send_stream(*to_2, s, count, 60'000); });
    threads.emplace_back([&, s] { codes[s + 2] = send_stream(*to_1, s, count, 60'000); });
  }
  const auto all = [](const arrival_check& check) {
    return check.complete(1) && check.complete(2) && check.complete(3);
  };
  while (!all(at_2) || !all(at_1)) {
    if (const auto a = from_1->receive(1ms))
      at_2.take(*a);
    if (const auto a = from_2->receive(1ms))
      at_1.take(*a);
  }
  for (std::thread& t : threads)
    t.join();
  BOOST_TEST(codes == (std::array<std::string, 6>{}), boost::test_tools::per_element());
  BOOST_TEST(p.there.counters().frames_received == 3 * count);
  BOOST_TEST(p.there.counters().bad_frames == 0u);
  BOOST_TEST(p.here.counters().failed_streams == 0u);
  BOOST_TEST(from_1->receive(0ms).failure().code == "timed_out");
}

BOOST_AUTO_TEST_CASE(frames_of_full_size_pass) {
  pair_of_links p;
  auto o = options_of(3, 33);
  o.rules = default_rules(traffic_class::weight);
  bulk_link large = std::move(bulk_link::start(p.context_there, o)).value();
  large.set_peers({{.rank = 1, .incarnation = 11, .endpoint = {}, .public_key = {}}});
  p.here.set_peers({{.rank = 3, .incarnation = 33, .endpoint = large.endpoint(), .public_key = {}}});
  const auto to = p.here.sender_to(3);
  const auto from = large.receiver_from(1);
  std::mt19937_64 random(1);
  std::vector<std::uint8_t> payload(frame_payload_bytes_max);
  for (auto& b : payload)
    b = static_cast<std::uint8_t>(random());
  bulk_frame frame{.kind = frame_kind::weight_chunk,
                   .mepoch = 1,
                   .stream = 9,
                   .meta = std::string(frame_meta_bytes_max, 'm'),
                   .payload = own(payload)};
  for (int n = 0; n < 20; ++n) {
    frame.last = n == 19;
    BOOST_REQUIRE(to->send(frame, 60s));
    const auto got = from->receive(60s);
    BOOST_REQUIRE(got && !got->failure);
    BOOST_TEST(std::ranges::equal(got->frame.payload.bytes, payload));
    BOOST_TEST((got->frame.meta == frame.meta));
    BOOST_TEST(got->frame.src == 1u);
    BOOST_TEST(got->frame.dst == 3u);
  }
  BOOST_TEST(bool(to->wait_delivered(9, 60s)));
  frame.payload = own(std::vector<std::uint8_t>(frame_payload_bytes_max + 1));
  BOOST_TEST(to->send(frame, 1s).failure().code == "too_large");
  frame.kind = frame_kind::ack;
  frame.payload = {};
  BOOST_TEST(to->send(frame, 1s).failure().code == "bad_options");
}

// The rates of the fault matrix, and reordering.
BOOST_AUTO_TEST_CASE(a_bad_link_loses_repeats_and_reorders_nothing) {
  const fault_rates rates{.drop = .01, .duplicate = .05, .corrupt = .01, .late = .1};
  bulk_counters sent, received;
  for (std::uint64_t seed = 0; seed < by_build(4U, 2U, 2U); ++seed) {
    pair_of_links p(&rates, seed);
    const std::uint64_t count = by_build(150U, 60U, 40U);
    arrival_check check(count, 20'000);
    const auto codes = transfer(*p.here.sender_to(2), *p.there.receiver_from(1), check, count, 20'000);
    BOOST_TEST(codes == (std::array<std::string, 3>{}), boost::test_tools::per_element());
    BOOST_TEST(p.relay->messages() > 3 * count);
    sent += p.here.counters();
    received += p.there.counters();
  }
  BOOST_TEST(sent.retransmits > 0u);
  BOOST_TEST(received.duplicates > 0u);
  BOOST_TEST(received.bad_frames > 0u);
}

BOOST_AUTO_TEST_CASE(a_terrible_link_delivers_or_fails_cleanly) {
  const fault_rates rates{.drop = .2, .duplicate = .2, .corrupt = .25, .late = .3};
  std::size_t failed = 0;
  for (std::uint64_t seed = 0; seed < by_build(4U, 2U, 2U); ++seed) {
    pair_of_links p(&rates, seed);
    arrival_check check(60, 2000);
    const auto codes = transfer(*p.here.sender_to(2), *p.there.receiver_from(1), check, 60, 2000);
    for (std::uint64_t s = 1; s <= 3; ++s) {
      BOOST_TEST((check.complete(s) || codes[s - 1] == "stream_failed" || codes[s - 1] == "peer_silent"), codes[s - 1]);
      BOOST_TEST((!check.failed(s) || codes[s - 1] != ""));
      failed += codes[s - 1].empty() ? 0 : 1;
    }
  }
  BOOST_TEST(failed > 0u);
}

BOOST_AUTO_TEST_CASE(a_cut_link_goes_on_when_it_is_mended) {
  const fault_rates good;
  pair_of_links p(&good);
  const auto to = p.here.sender_to(2);
  const auto from = p.there.receiver_from(1);
  arrival_check check(200, 20'000);
  std::string code = "?";
  std::thread sending([&] { code = send_stream(*to, 1, 200, 20'000); });
  for (int n = 0; n < 20; ++n)
    check.take(from->receive(60s).value());
  p.relay->cut(true);
  const std::uint64_t before = p.here.counters().probes;
  for (auto a = from->receive(300ms); a; a = from->receive(300ms)) // what had passed
    check.take(*a);
  BOOST_TEST(eventually([&] { return p.here.counters().probes > before + 2; })); // the sender asks
  p.relay->cut(false);
  while (!check.complete(1))
    check.take(from->receive(60s).value());
  sending.join();
  BOOST_TEST(code == "");
}

BOOST_AUTO_TEST_CASE(a_silent_peer_fails_the_stream) {
  bulk_context context;
  auto o = options_of(1, 11);
  bulk_link here = std::move(bulk_link::start(context, o)).value();
  o = options_of(2, 22);
  o.rules.silent_limit = 300ms;
  bulk_link there = std::move(bulk_link::start(context, o)).value();
  frame_relay relay(here.endpoint(), {}, 1);
  there.set_peers({{.rank = 1, .incarnation = 11, .endpoint = relay.endpoint(), .public_key = {}}});
  here.set_peers({{.rank = 2, .incarnation = 22, .endpoint = {}, .public_key = {}}});
  const auto to = there.sender_to(1);
  BOOST_REQUIRE(to->send(made_frame(1, 0, 9, 100), 60s));
  BOOST_REQUIRE(to->wait_delivered(1, 60s));
  relay.cut(true);
  BOOST_REQUIRE(to->send(made_frame(1, 1, 9, 100), 60s));
  BOOST_TEST(to->wait_delivered(1, 60s).failure().code == "peer_silent");
}

// Killed while it receives; what is sent to it fails when the view says so, and its heir starts afresh.
BOOST_AUTO_TEST_CASE(a_killed_peer_and_its_heir) {
  std::array<int, 2> out{};
  BOOST_REQUIRE(::pipe(out.data()) == 0);
  int back[2];
  BOOST_REQUIRE(::pipe(back) == 0);
  forked child([&] {
    bulk_context context;
    auto link = bulk_link::start(context, options_of(2, 22));
    if (!link)
      return 1;
    link->set_peers({{.rank = 1, .incarnation = 11, .endpoint = {}, .public_key = {}}});
    const std::string endpoint = link->endpoint();
    (void)!::write(out[1], endpoint.data(), endpoint.size());
    const auto from = link->receiver_from(1);
    for (int n = 0; n < 10; ++n)
      if (!from->receive(60s))
        return 2;
    ::raise(SIGKILL);
    return 0;
  });
  std::array<char, 100> text{};
  const auto size = ::read(out[0], text.data(), text.size());
  BOOST_REQUIRE(size > 0);
  bulk_context context;
  bulk_link here = std::move(bulk_link::start(context, options_of(1, 11))).value();
  here.set_peers({{.rank = 2,
                   .incarnation = 22,
                   .endpoint = std::string(text.data(), static_cast<std::size_t>(size)),
                   .public_key = {}}});
  const auto to = here.sender_to(2);
  std::string code;
  std::thread sending([&] { code = send_stream(*to, 1, 1000, 5000); });
  BOOST_TEST(child.wait() == 128 + SIGKILL);
  bulk_link heir = std::move(bulk_link::start(context, options_of(2, 23))).value();
  heir.set_peers({{.rank = 1, .incarnation = 11, .endpoint = here.endpoint(), .public_key = {}}});
  here.set_peers({{.rank = 2, .incarnation = 23, .endpoint = heir.endpoint(), .public_key = {}}});
  sending.join();
  BOOST_TEST(code == "peer_gone");
  BOOST_TEST(to->send(made_frame(2, 0, 9, 10), 1s).failure().code == "peer_gone");
  arrival_check check(30, 5000);
  const auto codes = transfer(*here.sender_to(2), *heir.receiver_from(1), check, 30, 5000);
  BOOST_TEST(codes == (std::array<std::string, 3>{}), boost::test_tools::per_element());
  for (const int fd : {out[0], out[1], back[0], back[1]})
    ::close(fd);
}

BOOST_AUTO_TEST_CASE(peers_that_leave_the_view_are_told_from_a_closed_link) {
  std::shared_ptr<bulk_sender> to;
  std::shared_ptr<bulk_receiver> from;
  {
    pair_of_links p;
    const auto gone = p.there.receiver_from(1);
    BOOST_REQUIRE(p.here.sender_to(2)->send(made_frame(1, 0, 9, 10), 60s));
    BOOST_REQUIRE(p.here.sender_to(2)->wait_delivered(1, 60s));
    p.there.set_peers({});
    BOOST_TEST(!gone->receive(60s).value().failure); // what has arrived comes first
    BOOST_TEST(gone->receive(60s).failure().code == "peer_gone");
    BOOST_TEST(p.there.sender_to(1) == nullptr);
    BOOST_TEST(p.there.receiver_from(1) == nullptr);
    to = p.here.sender_to(2);
    from = p.here.receiver_from(2);
    BOOST_TEST((p.here.sender_to(7) == nullptr));
    // Strangers are not answered.
    BOOST_REQUIRE(to->send(made_frame(1, 1, 9, 10), 60s));
    BOOST_TEST(eventually([&] { return p.there.counters().strangers > 0; }));
  }
  BOOST_TEST(to->send(made_frame(1, 1, 9, 10), 1s).failure().code == "closed");
  BOOST_TEST(from->receive(1s).failure().code == "closed");
}

BOOST_AUTO_TEST_CASE(a_reader_that_does_not_read_holds_the_sender) {
  pair_of_links p;
  const auto to = p.here.sender_to(2);
  std::uint64_t sent = 0;
  while (to->send(made_frame(1, sent, 1000, 100'000), sent < 5 ? 60s : 200ms))
    ++sent;
  BOOST_TEST(sent > 10u);
  BOOST_TEST(sent < 100u); // about two credits of 1 MiB in frames of 50 kB
  BOOST_TEST(to->send(made_frame(1, sent, 1000, 100'000), 0ms).failure().code == "no_credit");
  BOOST_TEST(bool(to->send(made_frame(2, 0, 1000, 100'000), 60s))); // another stream has its own
  const auto from = p.there.receiver_from(1);
  for (int n = 0; n < 20; ++n)
    BOOST_REQUIRE(from->receive(60s));
  BOOST_TEST(bool(to->send(made_frame(1, sent, 1000, 100'000), 60s)));
}

BOOST_AUTO_TEST_CASE(frames_of_an_older_membership_are_dropped_and_counted) {
  pair_of_links p;
  p.there.set_mepoch(2);
  const auto to = p.here.sender_to(2);
  BOOST_REQUIRE(to->send(made_frame(1, 0, 2, 10, 1), 60s));
  BOOST_TEST(to->wait_delivered(1, 60s).failure().code == "stale_epoch");
  BOOST_TEST(p.there.receiver_from(1)->stale_frames() >= 1u);
  p.here.set_mepoch(2);
  BOOST_TEST(to->send(made_frame(2, 0, 2, 10, 1), 60s).failure().code == "stale_epoch");
  BOOST_TEST(send_stream(*to, 3, 2, 10, 2) == "");
  to->abandon(4); // unknown: nothing happens
  BOOST_REQUIRE(to->send(made_frame(5, 0, 9, 10, 2), 60s));
  to->abandon(5);
  BOOST_TEST(to->send(made_frame(5, 1, 9, 10, 2), 60s).failure().code == "closed");
}

BOOST_AUTO_TEST_CASE(the_system_chooses_ports_of_both_kinds_of_addresses) {
  BOOST_TEST(any_port_of("127.0.0.1") == "tcp://127.0.0.1:*");
  BOOST_TEST(any_port_of("::1") == "tcp://[::1]:*");
}

BOOST_AUTO_TEST_CASE(addresses_that_leave_the_host_need_mutual_security) {
  bulk_context plain;
  auto o = options_of(1, 11);
  for (const char* bind : {"tcp://*:*", "tcp://0.0.0.0:*", "tcp://10.1.2.3:5000", "tcp://localhost:*", "tcp://[::]:*",
                           "ipc:///tmp/x", "inproc://x", "127.0.0.1:5000"}) {
    o.bind = bind;
    const auto refused = bulk_link::start(plain, o);
    BOOST_REQUIRE(!refused);
    BOOST_TEST(refused.failure().code == "refused_address");
  }
  o.bind = "tcp://127.0.0.2:*";
  auto link = bulk_link::start(plain, o);
  BOOST_REQUIRE(link);
  link->set_peers({{.rank = 2, .incarnation = 22, .endpoint = "tcp://10.1.2.3:5000", .public_key = {}}});
  BOOST_TEST(link->sender_to(2)->send(made_frame(1, 0, 1, 1), 1s).failure().code == "refused_address");
  bulk_context encrypted(security_mode::mutual, make_curve_keys().value());
  o.bind = "tcp://0.0.0.0:*";
  BOOST_TEST(bool(bulk_link::start(encrypted, o)));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(encrypted_bulk_links)

namespace {

struct encrypted_process {
  encrypted_process(std::uint32_t rank, std::uint64_t incarnation, const curve_keys& own)
      : keys(own), context(security_mode::mutual, own),
        link(std::move(bulk_link::start(context, options_of(rank, incarnation))).value()) {}
  curve_keys keys;
  bulk_context context;
  bulk_link link;
};

} // namespace

BOOST_AUTO_TEST_CASE(keys_of_the_view_connect) {
  encrypted_process here(1, 11, make_curve_keys().value()), there(2, 22, make_curve_keys().value());
  here.context.admit({there.keys.public_key});
  there.context.admit({here.keys.public_key});
  here.link.set_peers(
      {{.rank = 2, .incarnation = 22, .endpoint = there.link.endpoint(), .public_key = there.keys.public_key}});
  there.link.set_peers(
      {{.rank = 1, .incarnation = 11, .endpoint = here.link.endpoint(), .public_key = here.keys.public_key}});
  arrival_check check(60, 50'000), back(60, 50'000);
  auto codes = transfer(*here.link.sender_to(2), *there.link.receiver_from(1), check, 60, 50'000);
  BOOST_TEST(codes == (std::array<std::string, 3>{}), boost::test_tools::per_element());
  codes = transfer(*there.link.sender_to(1), *here.link.receiver_from(2), back, 60, 50'000);
  BOOST_TEST(codes == (std::array<std::string, 3>{}), boost::test_tools::per_element());
  BOOST_TEST(there.context.refused_connections() == 0u);
}

BOOST_AUTO_TEST_CASE(other_keys_do_not) {
  encrypted_process here(1, 11, make_curve_keys().value()), there(2, 22, make_curve_keys().value());
  const auto peer_there =
      bulk_peer{.rank = 2, .incarnation = 22, .endpoint = there.link.endpoint(), .public_key = there.keys.public_key};
  there.link.set_peers({{.rank = 1, .incarnation = 11, .endpoint = {}, .public_key = here.keys.public_key}});
  here.link.set_peers({peer_there});
  // Not admitted yet.
  BOOST_TEST(here.link.sender_to(2)->send(made_frame(1, 0, 1, 1), 300ms).failure().code == "no_credit");
  BOOST_TEST(eventually([&] { return there.context.refused_connections() > 0; }));
  // Admitted as somebody else: its frames are a stranger's.
  const auto third = make_curve_keys().value();
  there.context.admit({third.public_key});
  encrypted_process liar(1, 11, third);
  liar.link.set_peers({peer_there});
  BOOST_TEST(liar.link.sender_to(2)->send(made_frame(1, 0, 1, 1), 300ms).failure().code == "no_credit");
  BOOST_TEST(eventually([&] { return there.link.counters().strangers > 0; }));
  // Another server key than the view's.
  encrypted_process careful(3, 33, make_curve_keys().value());
  there.context.admit({careful.keys.public_key});
  auto wrong = peer_there;
  wrong.public_key = third.public_key;
  careful.link.set_peers({wrong});
  BOOST_TEST(careful.link.sender_to(2)->send(made_frame(1, 0, 1, 1), 300ms).failure().code == "no_credit");
  // Without encryption.
  bulk_context plain;
  bulk_link open = std::move(bulk_link::start(plain, options_of(1, 11))).value();
  auto unencrypted = peer_there;
  unencrypted.public_key.clear();
  open.set_peers({unencrypted});
  BOOST_TEST(open.sender_to(2)->send(made_frame(1, 0, 1, 1), 300ms).failure().code == "no_credit");
  BOOST_TEST(there.link.counters().frames_received == 0u);
}

BOOST_AUTO_TEST_CASE(a_key_that_is_admitted_later_gets_in) {
  encrypted_process here(1, 11, make_curve_keys().value()), there(2, 22, make_curve_keys().value());
  here.link.set_peers(
      {{.rank = 2, .incarnation = 22, .endpoint = there.link.endpoint(), .public_key = there.keys.public_key}});
  there.link.set_peers({{.rank = 1, .incarnation = 11, .endpoint = {}, .public_key = here.keys.public_key}});
  BOOST_TEST(eventually([&] { return there.context.refused_connections() > 0; }));
  there.context.admit({here.keys.public_key});
  BOOST_TEST(send_stream(*here.link.sender_to(2), 1, 3, 100) == "");
}

BOOST_AUTO_TEST_SUITE_END()
