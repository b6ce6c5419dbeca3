#include "kernels/reference/sample.hpp"
#include "tests/support/row_cases.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::row_cases;

namespace {

// One call over rows that share the logits x of exactness.md §10.
struct outcome {
  std::vector<std::int32_t> token, status;
  std::vector<float> logprob;
  std::vector<std::pair<std::int32_t, float>> top;
};
outcome draw(const std::vector<sample_row_params>& params, std::vector<float> last_row = {}, int max_top = 8,
             const std::vector<std::pair<std::int32_t, float>>& bias = {}, const std::vector<std::uint32_t>& masks = {},
             const std::vector<std::int32_t>& suppressed = {}, const std::vector<std::int32_t>& blacklist = {}) {
  const auto d = make_device("reference", {});
  arena m(*d);
  const std::vector<float> x = {2, 1, .5, .5, -1, -3, .5, 0};
  std::vector<float> logits;
  for (std::size_t i = 0; i < params.size(); ++i) {
    const auto& row = i + 1 == params.size() && !last_row.empty() ? last_row : x;
    logits.insert(logits.end(), row.begin(), row.end());
  }
  const std::size_t rows = params.size(), tops = rows * static_cast<std::size_t>(max_top);
  sample_rows_args a;
  a.logits = m.put(logits);
  a.rows = static_cast<std::int32_t>(rows);
  a.vocab = 8;
  a.params = m.put(params);
  a.bias = m.put(bias);
  a.masks = m.put(masks);
  a.suppressed = m.put(suppressed);
  a.blacklist = m.put(blacklist);
  a.blacklisted = static_cast<std::int32_t>(blacklist.size());
  a.max_top = max_top;
  a.token = m.room<std::int32_t>(rows);
  a.status = m.room<std::int32_t>(rows);
  a.logprob = m.room<float>(rows);
  a.top = m.room<std::pair<std::int32_t, float>>(tops);
  d->ops().sample_rows(*m.s, a);
  return {m.get(dev_ptr<const std::int32_t>(a.token), rows), m.get(dev_ptr<const std::int32_t>(a.status), rows),
          m.get(dev_ptr<const float>(a.logprob), rows),
          m.get(dev_ptr<const std::pair<std::int32_t, float>>(a.top), tops)};
}

} // namespace

BOOST_AUTO_TEST_SUITE(sample_rows)

BOOST_AUTO_TEST_CASE(t3_tokens_of_ten_positions_in_one_call) {
  std::vector<sample_row_params> params(10);
  for (std::size_t i = 0; i < 10; ++i) {
    params[i].seed = 42;
    params[i].position = 100 + i;
  }
  const outcome o = draw(params);
  const std::vector<std::int32_t> want = {0, 4, 7, 6, 6, 3, 0, 0, 1, 0};
  BOOST_TEST(o.token == want, boost::test_tools::per_element());
  BOOST_TEST(float_bits(o.logprob[0]) == 0xbf4d3669u);
}

// Each row has its own parameters: T4 with two settings, greedy, forced and a row that cannot be drawn from.
BOOST_AUTO_TEST_CASE(rows_keep_their_own_parameters) {
  std::vector<sample_row_params> params(5);
  for (std::size_t i = 0; i < 2; ++i) {
    params[i].temperature = .7f;
    params[i].top_p = .9f;
    params[i].seed = 42;
    params[i].position = 100 + i;
    params[i].processed = 1;
  }
  params[2].temperature = 0;
  params[2].top_logprobs = 3;
  params[3].forced = 4;
  const float inf = bits_float(0x7f800000u);
  const outcome o = draw(params, {0, 0, inf, 0, 0, 0, 0, 0}, 5);
  const std::vector<std::int32_t> want = {0, 1, 0, 4, -1};
  BOOST_TEST(o.token == want, boost::test_tools::per_element());
  BOOST_TEST(float_bits(o.logprob[0]) == 0xbeedf314u);
  BOOST_TEST(float_bits(o.logprob[1]) == 0xbff25833u);
  BOOST_TEST(float_bits(o.logprob[3]) == 0xc0734d9au);
  BOOST_TEST(o.status[3] == 0);
  BOOST_TEST(o.status[4] == static_cast<std::int32_t>(sample_status::positive_infinity));
  // top list of row 2: three entries by the rule of ties, then the fill
  const std::pair<std::int32_t, std::uint32_t> top[] = {{0, 0xbf4d3669u}, {1, 0xbfe69b34u}, {2, 0xc0134d9au}};
  for (std::size_t k = 0; k < 3; ++k) {
    BOOST_TEST(o.top[10 + k].first == top[k].first);
    BOOST_TEST(float_bits(o.top[10 + k].second) == top[k].second);
  }
  BOOST_TEST(o.top[13].first == -1);
  BOOST_TEST(o.top[13].second == -9999.0f);
}

// The newest token of every sequence stays on the device, under its state slot: drawn, forced, or an id that can be
// read where nothing could be drawn.
BOOST_AUTO_TEST_CASE(tokens_stay_on_the_device_by_slot) {
  const auto d = make_device("reference", {});
  arena m(*d);
  std::vector<float> logits = {0, 9, 0, 0, 5, 0, 0, 0, 0, 0, 0, bits_float(0x7fc00000u)};
  std::vector<sample_row_params> params(3);
  params[0].temperature = 0;
  params[0].slot = 4;
  params[1].forced = 3;
  params[1].slot = 1;
  params[2].slot = 2;
  sample_rows_args a;
  a.logits = m.put(logits);
  a.rows = 3;
  a.vocab = 4;
  a.params = m.put(params);
  a.token = m.room<std::int32_t>(3);
  a.status = m.room<std::int32_t>(3);
  a.logprob = m.room<float>(3);
  a.drawn = m.put(std::vector<std::int32_t>{50, 51, 52, 53, 54});
  d->ops().sample_rows(*m.s, a);
  const auto left = m.get(dev_ptr<const std::int32_t>(a.drawn), 5);
  BOOST_TEST(left == (std::vector<std::int32_t>{50, 3, 0, 53, 1}), boost::test_tools::per_element());
  BOOST_TEST(m.get(dev_ptr<const std::int32_t>(a.token), 3)[2] == -1);
}

BOOST_AUTO_TEST_CASE(bias_masks_and_lists_belong_to_their_row) {
  std::vector<sample_row_params> params(6);
  for (sample_row_params& p : params)
    p.temperature = 0;
  params[1].first_bias = 1;
  params[1].biases = 1; // id 5 up
  params[2].biases = 1; // id 7 up
  params[3].mask = 1;   // 4 and 5 allowed
  params[4].suppressed = 2;
  params[4].first_suppressed = 1; // 0 and 1
  params[5].suppressed = 1;       // 3 is no winner anyway
  const outcome o = draw(params, {}, 0, {{7, 9.0f}, {5, 9.0f}}, {0xffu, 0x30u}, {3, 0, 1});
  const std::vector<std::int32_t> want = {0, 5, 7, 4, 2, 0};
  BOOST_TEST(o.token == want, boost::test_tools::per_element());
  const outcome banned = draw(params, {}, 0, {{7, 9.0f}, {5, 9.0f}}, {0xffu, 0x30u}, {3, 0, 1}, {0, 5});
  const std::vector<std::int32_t> without = {1, 1, 7, 4, 2, 1};
  BOOST_TEST(banned.token == without, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
