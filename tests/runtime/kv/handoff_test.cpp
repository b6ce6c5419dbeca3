// The cache of a prompt between two engines, without threads: everything that a channel and two processes may do to it.
#include "runtime/kv/handoff.hpp"
#include <boost/test/unit_test.hpp>
#include <random>

using namespace troupe;

namespace {

const handoff_times times{1000, 300, 5000};

image_shape shape_of(std::int32_t positions) {
  return {100, 30, positions, "cpu-1 model"};
}

std::shared_ptr<const std::vector<std::uint8_t>> bytes_of(std::int64_t from, std::int64_t count) {
  auto v = std::make_shared<std::vector<std::uint8_t>>();
  for (std::int64_t i = from; i < from + count; ++i)
    v->push_back(static_cast<std::uint8_t>(i * 7 + i / 256));
  return v;
}

// As whoever sends it or has got it does.
image_chunk with_digest(image_chunk c) {
  if (c.kind != chunk_kind::data)
    return c;
  sha256 all;
  all.update(c.bytes);
  c.digest = all.finish();
  return c;
}

struct pair_of_ends {
  image_shape shape;
  outgoing_handoff out;
  incoming_handoff in;
  explicit pair_of_ends(std::int32_t positions = 300)
      : shape(shape_of(positions)), out(shape, times, 0), in(shape, times, 0) {}
  // Everything that is there goes over.
  void carry(std::int64_t now) {
    while (const auto c = out.next(now)) {
      in.take(with_digest(*c), now);
      out.sent(with_digest(*c), now);
    }
  }
};

std::string code_of(const std::optional<error>& e) {
  return e ? e->code : "none";
}

} // namespace

BOOST_AUTO_TEST_SUITE(handoffs)

BOOST_AUTO_TEST_CASE(an_image_arrives_part_by_part) {
  pair_of_ends p;
  BOOST_TEST(p.shape.bytes() == 330);
  p.in.check(shape_of(300));
  p.out.add(bytes_of(0, 100), false, 0, 1);
  BOOST_TEST(p.out.waiting_bytes() == 100);
  p.carry(1);
  BOOST_TEST(p.in.received_bytes() == 100);
  BOOST_TEST(!p.in.over());
  p.out.add(bytes_of(100, 0), false, 0, 2); // a chunk of the prompt without a whole block
  p.out.add(bytes_of(100, 230), true, 128, 3);
  BOOST_TEST(p.out.bytes_at_end() == 230);
  p.carry(4);
  BOOST_TEST((p.out.committed() && !p.out.over())); // until it is said to have arrived
  p.out.delivered(5);
  BOOST_TEST((p.out.over() && !p.out.failure()));
  BOOST_TEST(p.in.whole());
  BOOST_TEST(p.in.cached() == 128);
  const auto image = p.in.take_image();
  BOOST_REQUIRE(image);
  BOOST_TEST(*image == *bytes_of(0, 330));
  BOOST_TEST(!p.in.take_image());
}

BOOST_AUTO_TEST_CASE(large_pieces_travel_in_chunks_of_a_mebibyte) {
  const image_shape shape{3'000'000, 30, 100, ""};
  outgoing_handoff out(shape, times, 0);
  out.add(bytes_of(0, 3'000'030), true, 0, 0);
  std::vector<std::size_t> sizes;
  while (const auto c = out.next(0)) {
    if (c->kind == chunk_kind::data)
      sizes.push_back(c->bytes.size());
    out.sent(*c, 0);
  }
  BOOST_TEST(sizes == (std::vector<std::size_t>{1 << 20, 1 << 20, 3'000'030 - (2 << 20)}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(what_differs_is_refused) {
  for (const image_shape& theirs : {image_shape{100, 30, 301, "cpu-1 model"}, image_shape{100, 30, 300, "cuda model"},
                                    image_shape{101, 30, 300, "cpu-1 model"}}) {
    pair_of_ends p;
    p.in.check(theirs);
    BOOST_TEST(code_of(p.in.failure()) == "handoff_failed");
    BOOST_TEST(p.in.failure()->message.find("cpu-1 model") != std::string::npos);
  }
  pair_of_ends p;
  p.out.add(bytes_of(0, 330), true, 0, 0);
  const auto c = with_digest(*p.out.next(0));
  p.in.take(c, 0);
  p.out.sent(c, 0);
  auto commit = *p.out.next(0);
  commit.digest[3] ^= 1;
  p.in.take(commit, 0);
  BOOST_TEST(code_of(p.in.failure()) == "handoff_failed");
  BOOST_TEST((!p.in.whole() && !p.in.take_image()));
}

BOOST_AUTO_TEST_CASE(an_image_of_another_length_fails_before_it_is_sent) {
  pair_of_ends p;
  p.out.add(bytes_of(0, 331), false, 0, 0);
  BOOST_TEST(code_of(p.out.failure()) == "internal");
  pair_of_ends q;
  q.out.add(bytes_of(0, 329), true, 0, 0);
  BOOST_TEST(code_of(q.out.failure()) == "internal");
  BOOST_TEST(!q.out.next(0));
}

BOOST_AUTO_TEST_CASE(leases_are_renewed_while_the_prompt_is_computed_and_expire_without_a_word) {
  pair_of_ends p;
  for (std::int64_t now = 0; now <= 4000; now += 50) { // the prompt takes long: renewals only
    p.carry(now);
    p.in.tick(now);
    p.out.tick(now);
  }
  BOOST_TEST((!p.in.over() && !p.out.over()));
  p.in.tick(5001);
  BOOST_TEST(code_of(p.in.failure()) == "lease_expired");
  p.out.add(bytes_of(0, 100), false, 0, 5000); // waits to be sent
  p.out.tick(6000);
  BOOST_TEST(!p.out.over());
  p.out.tick(6001);
  BOOST_TEST(code_of(p.out.failure()) == "lease_expired");
}

// Chunks may be lost, doubled, reordered, damaged, and either side may give up or stand still: both sides end, once;
// and what is used is right.
BOOST_AUTO_TEST_CASE(every_course_of_events_ends_on_both_sides) {
  int wholes = 0, lost = 0, expired = 0;
  for (unsigned seed = 0; seed < 4000; ++seed) {
    std::mt19937 random(seed);
    const auto chance = [&](unsigned percent) { return random() % 100 < percent; };
    const unsigned loss = seed % 4 == 0 ? 5 : 0, doubling = seed % 4 == 1 ? 20 : 0, damage = seed % 4 == 2 ? 5 : 0;
    pair_of_ends p(static_cast<std::int32_t>(1 + random() % 700));
    std::int64_t added = 0, now = 0;
    const std::int64_t abort_out = chance(20) ? static_cast<std::int64_t>(random() % 400) : 1 << 30,
                       abort_in = chance(20) ? static_cast<std::int64_t>(random() % 400) : 1 << 30,
                       silent_from = chance(20) ? static_cast<std::int64_t>(random() % 400) : 1 << 30;
    std::vector<image_chunk> again;
    for (; now < 20000 && !(p.out.over() && p.in.over()); now += 10) {
      if (added < p.shape.bytes() && chance(40)) {
        const std::int64_t n = std::min<std::int64_t>(p.shape.bytes() - added, 1 + random() % 200);
        p.out.add(bytes_of(added, n), added + n == p.shape.bytes(), 0, now);
        added += n;
      }
      if (now >= abort_out)
        p.out.end({"closed", "given up"});
      if (now >= abort_in)
        p.in.end({"closed", "given up"});
      if (auto c = now < silent_from ? p.out.next(now) : std::nullopt) {
        const bool arrives = !chance(loss);
        p.out.sent(with_digest(*c), now);
        std::vector<std::uint8_t> copy(c->bytes.begin(), c->bytes.end());
        if (chance(damage) && !copy.empty())
          copy[random() % copy.size()] ^= 1;
        c->bytes = copy;
        c = with_digest(*c);
        if (arrives)
          p.in.take(*c, now);
        if (arrives && chance(doubling))
          p.in.take(*c, now);
        if (c->kind == chunk_kind::commit && arrives)
          p.out.delivered(now);
      }
      p.out.tick(now);
      p.in.tick(now);
    }
    BOOST_TEST_INFO("seed " << seed);
    BOOST_REQUIRE((p.out.over() && p.in.over()));
    BOOST_REQUIRE(p.out.failure() ? p.out.waiting_bytes() >= 0 && !p.out.next(now) : true);
    const bool whole = p.in.whole();
    const auto image = p.in.take_image();
    BOOST_REQUIRE(whole == (image != nullptr));
    if (image)
      BOOST_REQUIRE(*image == *bytes_of(0, p.shape.bytes()));
    else
      BOOST_REQUIRE(p.in.failure().has_value());
    // Late events change nothing.
    const std::string before = code_of(p.in.failure()) + code_of(p.out.failure());
    p.in.end({"late", ""});
    p.out.end({"late", ""});
    p.in.take({}, now);
    p.out.add(bytes_of(0, 1), true, 0, now);
    p.in.tick(now + 100000);
    p.out.tick(now + 100000);
    BOOST_REQUIRE(code_of(p.in.failure()) + code_of(p.out.failure()) == before);
    BOOST_REQUIRE(!p.in.take_image());
    wholes += whole;
    lost += code_of(p.in.failure()) == "handoff_failed";
    expired += code_of(p.in.failure()) == "lease_expired";
  }
  BOOST_TEST((wholes > 1000 && lost > 100 && expired > 100), wholes << " " << lost << " " << expired);
}

BOOST_AUTO_TEST_SUITE_END()
