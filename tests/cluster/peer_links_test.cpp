// Questions and answers between the ranks of a group, over shared memory and over ZeroMQ: links come up, break, and
// come back as other processes.
#include "cluster/peer_links.hpp"
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <unistd.h>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

// Answers with the question's bytes, each one higher.
class next_bytes final : public question_server {
public:
  status serve(const frame_view& question, frame_writer& answers) override {
    const auto room = answers.reserve(question.payload.size(), 5s);
    if (!room)
      return room.failure();
    for (std::size_t i = 0; i < question.payload.size(); ++i)
      (*room)[i] = static_cast<std::byte>(question.payload[i] + 1);
    return answers.send(frame_kind::a2a_combine, question.header.seq);
  }
};

struct rank_links {
  std::atomic<int> changes{0};
  peer_links links;

  rank_links(std::int32_t rank, std::uint64_t incarnation, bool tcp) : links(setup(rank, incarnation, tcp)) {}
  peer_links_setup setup(std::int32_t rank, std::uint64_t incarnation, bool tcp) {
    peer_links_setup s;
    s.cluster = "links-" + std::to_string(::getpid());
    s.node = "n0";
    s.tcp_address = tcp ? "127.0.0.1" : "";
    s.rank = rank;
    s.group = "g";
    s.incarnation = incarnation;
    s.frame_bytes = 10000;
    s.serve = [](std::int32_t, question_kind) { return std::make_unique<next_bytes>(); };
    s.on_change = [this] { ++changes; };
    return s;
  }
  std::shared_ptr<peer_link> link_to(std::int32_t rank) const {
    for (int i = 0; i < 5000; ++i) {
      if (auto l = links.link_to(rank))
        return l;
      std::this_thread::sleep_for(2ms);
    }
    return nullptr;
  }
};

// The answer to a question of these bytes; empty if the link broke.
std::vector<std::uint8_t> asked(peer_link& link, question_kind kind, const std::vector<std::uint8_t>& bytes,
                                std::uint64_t number) {
  auto& a = link.at(kind);
  const auto room = a.questions->reserve(bytes.size(), 5s);
  if (!room)
    return {};
  std::memcpy(room->data(), bytes.data(), bytes.size());
  if (!a.questions->send(kind == question_kind::rows ? frame_kind::a2a_dispatch : frame_kind::weight_chunk, number))
    return {};
  for (int i = 0; i < 500 && link.up(); ++i) {
    const auto answer = a.answers->front(20ms);
    if (!answer && answer.failure().code != "timed_out")
      return {};
    if (!answer)
      continue;
    BOOST_TEST(answer->header.seq == number);
    std::vector<std::uint8_t> got(answer->payload.begin(), answer->payload.end());
    a.answers->pop();
    return got;
  }
  return {};
}

} // namespace

BOOST_AUTO_TEST_SUITE(peer_links_of_a_group)

BOOST_DATA_TEST_CASE(both_sides_ask_and_answer, boost::unit_test::data::make({false, true}), tcp) {
  rank_links a(0, 11, tcp), b(1, 22, tcp);
  a.links.set_peers({{1, 22, b.links.endpoints()}});
  b.links.set_peers({{0, 11, a.links.endpoints()}});
  const auto ab = a.link_to(1), ba = b.link_to(0);
  BOOST_REQUIRE(ab);
  BOOST_REQUIRE(ba);
  BOOST_TEST(ab->incarnation() == 22u);
  std::thread other([&] {
    for (std::uint64_t n = 1; n <= 50; ++n)
      BOOST_TEST(asked(*ba, question_kind::rows, std::vector<std::uint8_t>(9000, 7), n).size() == 9000u);
  });
  for (std::uint64_t n = 1; n <= 50; ++n)
    for (const question_kind kind : {question_kind::rows, question_kind::weights}) {
      const auto got = asked(*ab, kind, {1, 2, static_cast<std::uint8_t>(n)}, n);
      BOOST_TEST(got == (std::vector<std::uint8_t>{2, 3, static_cast<std::uint8_t>(n + 1)}));
    }
  other.join();
}

BOOST_DATA_TEST_CASE(a_link_ends_with_its_process_and_a_new_one_is_another, boost::unit_test::data::make({false, true}),
                     tcp) {
  rank_links a(0, 11, tcp);
  auto b = std::make_unique<rank_links>(1, 22, tcp);
  a.links.set_peers({{1, 22, b->links.endpoints()}});
  b->links.set_peers({{0, 11, a.links.endpoints()}});
  std::shared_ptr<peer_link> first = a.link_to(1);
  BOOST_REQUIRE(first);
  BOOST_TEST(asked(*first, question_kind::rows, {1}, 1) == std::vector<std::uint8_t>{2});
  b.reset();
  b = std::make_unique<rank_links>(1, 33, tcp);
  a.links.set_peers({{1, 33, b->links.endpoints()}}); // the view
  BOOST_TEST(!first->up());
  first.reset();
  b->links.set_peers({{0, 11, a.links.endpoints()}});
  const auto second = a.link_to(1);
  BOOST_REQUIRE(second);
  BOOST_TEST(second->incarnation() == 33u);
  BOOST_TEST(asked(*second, question_kind::rows, {5}, 2) == std::vector<std::uint8_t>{6});
  BOOST_TEST(a.changes.load() >= 3);
}

BOOST_DATA_TEST_CASE(a_link_that_is_given_up_is_made_anew, boost::unit_test::data::make({false, true}), tcp) {
  rank_links a(0, 11, tcp), b(1, 22, tcp);
  a.links.set_peers({{1, 22, b.links.endpoints()}});
  b.links.set_peers({{0, 11, a.links.endpoints()}});
  auto link = a.link_to(1);
  BOOST_REQUIRE(link);
  const std::uint64_t number = link->number();
  link->give_up();
  link.reset();
  for (int i = 0; i < 20; ++i) { // the other side may still end what it has of the old one
    link = a.link_to(1);
    BOOST_REQUIRE(link);
    BOOST_TEST(link->number() > number);
    if (asked(*link, question_kind::rows, {1}, 100u + static_cast<unsigned>(i)) == std::vector<std::uint8_t>{2})
      return;
    link->give_up();
    link.reset();
  }
  BOOST_ERROR("no link came back");
}

BOOST_AUTO_TEST_SUITE_END()
