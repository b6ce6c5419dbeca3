// With yoco off a state snapshot holds the windows of the consumer layers and of the drafter (exactness.md §8): behind
// a prefix hit the drafts are those of a cold run. By rejection that decides about tokens; else about how many drafts
// are right.
#include "tests/support/hand_engine.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

// A text that repeats itself, so that drafts are right now and then.
std::vector<std::int32_t> text_of(std::size_t length, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::size_t period = 5 + random() % 5;
  std::vector<std::int32_t> ids{0};
  while (ids.size() < length)
    ids.push_back(ids.size() > 2 * period ? ids[ids.size() - period]
                                          : static_cast<std::int32_t>(300 + random() % 4000));
  return ids;
}

hand_request request_of(std::vector<std::int32_t> prompt, std::uint64_t seed, float temperature) {
  hand_request r;
  r.prompt = std::move(prompt);
  r.seed = seed;
  r.params.temperature = temperature;
  r.params.max_tokens = 40; // the next sequence in its slot finds none of the drafter's entries that it needs
  r.params.ignore_eos = true;
  return r;
}

} // namespace

BOOST_AUTO_TEST_SUITE(draft_snapshots)

BOOST_AUTO_TEST_CASE(c15_drafts_behind_a_prefix_hit_are_those_of_a_cold_run) {
  const auto longer = [](std::vector<std::int32_t> prompt, std::size_t by) {
    const std::vector<std::int32_t> more = text_of(by, 9);
    prompt.insert(prompt.end(), more.begin() + 1, more.end());
    return prompt;
  };
  const std::vector<std::int32_t> a = text_of(385, 1), b = text_of(257, 2), other = text_of(200, 3);
  struct hit {
    hand_request request;
    int cached;
  };
  std::vector<hit> hits;
  for (const auto& [prompt, cached] :
       {std::pair(a, 0), std::pair(other, 0), std::pair(a, 384), std::pair(b, 0), std::pair(longer(a, 90), 384),
        std::pair(b, 256), std::pair(other, 128), std::pair(longer(b, 20), 256), std::pair(a, 384)})
    hits.push_back({request_of(prompt, 40 + hits.size(), hits.size() % 2 == 0 ? 0.3f : 1.0f), cached});
  for (const bool rejection : {true, false})
    for (const bool async : {false, true}) {
      hand_engine_options o{.async = async, .nextn = 5, .rejection = rejection, .whole_blocks = true};
      hand_engine cold(o);
      o.prefix_cache = true;
      hand_engine warm(o);
      std::int64_t accepted = 0;
      for (std::size_t i = 0; i < hits.size(); ++i)
        BOOST_TEST_CONTEXT((rejection ? "rejection" : "coupled") << (async ? ", async" : "") << ", request " << i) {
          const hand_output expected = cold.run({hits[i].request}, {0}).at(0),
                            seen = warm.run({hits[i].request}, {0}).at(0);
          BOOST_TEST(expected.cached == 0);
          BOOST_TEST(seen.cached == hits[i].cached);
          BOOST_TEST((seen == expected));
          BOOST_TEST(seen.verified == expected.verified);
          BOOST_TEST(seen.accepted == expected.accepted);
          accepted += seen.accepted;
        }
      BOOST_TEST(accepted > 20); // else the drafts would say nothing
    }
}

BOOST_AUTO_TEST_SUITE_END()
