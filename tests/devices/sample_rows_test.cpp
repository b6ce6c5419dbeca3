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
             const std::vector<std::int32_t>& suppressed = {}, const std::vector<std::int32_t>& blacklist = {},
             const std::vector<std::int32_t>& forced = {}) {
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
  a.forced = m.put(forced);
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
  params[3].first_forced = 1;
  params[3].forced = 1; // position 0, which the row draws
  const float inf = bits_float(0x7f800000u);
  const outcome o = draw(params, {0, 0, inf, 0, 0, 0, 0, 0}, 5, {}, {}, {}, {}, {7, 4});
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

// One rule serves several rows: what it says of positions holds for each row's own, wherever the rows' positions come
// from.
BOOST_AUTO_TEST_CASE(a_rule_says_what_holds_at_which_position) {
  const auto d = make_device("reference", {});
  arena m(*d);
  sample_row_params other, p;
  p.temperature = 0;
  p.forced = 2; // tokens 3 and 2 at positions 101 and 102
  p.forced_at = 101;
  p.suppressed = 1; // token 1 not before position 104
  p.suppressed_until = 104;
  const std::vector<std::int32_t> before = {99, 100, 101, 102, 103};
  std::vector<float> logits;
  for (std::size_t i = 0; i < before.size(); ++i)
    logits.insert(logits.end(), {0, 9, 5, 2});
  sample_rows_args a;
  a.logits = m.put(logits);
  a.rows = 5;
  a.vocab = 4;
  a.params = m.put(std::vector<sample_row_params>{other, p});
  a.rule = m.put(std::vector<std::int32_t>(5, 1));
  a.row_position = m.put(before);
  a.forced = m.put(std::vector<std::int32_t>{3, 2});
  a.suppressed = m.put(std::vector<std::int32_t>{1});
  a.token = m.room<std::int32_t>(5);
  a.status = m.room<std::int32_t>(5);
  a.logprob = m.room<float>(5);
  d->ops().sample_rows(*m.s, a);
  const auto token = m.get(dev_ptr<const std::int32_t>(a.token), 5);
  BOOST_TEST(token == (std::vector<std::int32_t>{2, 3, 2, 2, 1}), boost::test_tools::per_element());
}

// T6: proposals from d, verification and fresh draws from x, by weights.
BOOST_AUTO_TEST_CASE(t6_rejection) {
  const auto d = make_device("reference", {});
  arena m(*d);
  const std::vector<float> x = {2, 1, .5, .5, -1, -3, .5, 0}, q = {1.5, 1.25, .75, 0, -1, -2, .5, .25};
  const auto draw_all = [&](const std::vector<float>& row, draw_rule rule, const std::vector<std::int32_t>& drafts) {
    sample_row_params p;
    p.seed = 42;
    p.draw = rule;
    std::vector<float> logits, draft_logits;
    std::vector<std::int32_t> before, verifies;
    for (std::int32_t i = 0; i < 8; ++i) {
      logits.insert(logits.end(), row.begin(), row.end());
      draft_logits.insert(draft_logits.end(), q.begin(), q.end());
      before.push_back(99 + i);
      verifies.push_back(i);
    }
    sample_rows_args a;
    a.logits = m.put(logits);
    a.rows = a.vocab = 8;
    a.params = m.put(std::vector<sample_row_params>{p});
    a.rule = m.put(std::vector<std::int32_t>(8, 0));
    a.row_position = m.put(before);
    if (!drafts.empty()) {
      a.verifies = m.put(verifies);
      a.drafts = m.put(drafts);
      a.draft_logits = m.put(draft_logits);
    }
    a.token = m.room<std::int32_t>(8);
    a.status = m.room<std::int32_t>(8);
    a.logprob = m.room<float>(8);
    d->ops().sample_rows(*m.s, a);
    return m.get(dev_ptr<const std::int32_t>(a.token), 8);
  };
  const std::vector<std::int32_t> proposed = {0, 0, 0, 6, 1, 3, 0, 0}, emitted = {0, 0, 0, 6, 0, 3, 0, 0},
                                  fresh = {0, 1, 0, 0, 0, 7, 0, 1};
  BOOST_TEST(draw_all(q, draw_rule::proposal, {}) == proposed, boost::test_tools::per_element());
  BOOST_TEST(draw_all(x, draw_rule::fresh, proposed) == emitted, boost::test_tools::per_element());
  BOOST_TEST(draw_all(x, draw_rule::fresh, {}) == fresh, boost::test_tools::per_element());
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
