// Rejection on a device: the sampler's rows follow the rule on plain weights.
#include "kernels/reference/sample.hpp"
#include "runtime/speculation/verify.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/row_cases.hpp"
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::row_cases;
using ints = std::vector<std::int32_t>;

namespace {

const std::vector<std::string> devices = test::with_gpu({"reference", "cpu"});

} // namespace

BOOST_AUTO_TEST_SUITE(rejection_rows)

// Draws by weights against the rule on plain arrays of weights (runtime/speculation/verify.hpp).
BOOST_DATA_TEST_CASE(rejection_follows_the_integer_rule, boost::unit_test::data::make(devices), name) {
  if (!test::can_run(name))
    return;
  const auto d = make_device(name, {});
  constexpr int rows = 600, vocab = 40;
  std::vector<float> target, draft;
  std::vector<sample_row_params> params;
  ints drafts, verifies, fresh, expected, proposed, proposed_third;
  int accepted = 0, replaced = 0;
  sample_scratch scratch(vocab);
  for (int r = 0; r < rows; ++r) {
    numbers n(5, 1, r);
    const auto p = n.reals(vocab, 3), q = n.reals(vocab, 1.5f);
    sample_row_params rule;
    rule.temperature = r % 7 == 0 ? 0.0f : 0.6f + 0.1f * static_cast<float>(n.below(9));
    rule.top_p = n.below(2) == 0 ? 1.0f : 0.8f;
    rule.top_k = n.below(2) == 0 ? -1 : n.between(1, 9);
    rule.seed = n.bits();
    rule.position = n.bits();
    sample_args row;
    row.temperature = rule.temperature, row.top_p = rule.top_p, row.top_k = rule.top_k;
    std::vector<std::uint64_t> wp(vocab), wq(vocab);
    row.logits = p;
    BOOST_REQUIRE(kept_weights(row, scratch, wp) == sample_status::ok);
    std::vector<float> mixed = p; // near the target, so that some are accepted
    for (std::size_t i = 0; i < mixed.size(); ++i)
      mixed[i] += q[i];
    row.logits = mixed;
    BOOST_REQUIRE(kept_weights(row, scratch, wq) == sample_status::ok);
    proposed.push_back(draft_draw(wq, rule.seed, rule.position));
    proposed_third.push_back(draft_draw(wq, rule.seed, rule.position, 2));
    drafts.push_back(n.below(9) == 0 ? n.below(vocab) : proposed.back()); // some that are not of this law
    const bool has = n.below(6) > 0;
    verifies.push_back(has ? r : -1);
    if (has) {
      const verified_token v = verify_row(wp, wq, drafts.back(), rule.seed, rule.position);
      expected.push_back(v.token);
      (v.accepted ? accepted : replaced) += 1;
    } else {
      expected.push_back(fresh_draw(wp, rule.seed, rule.position));
    }
    rule.draw = draw_rule::fresh;
    params.push_back(rule);
    target.insert(target.end(), p.begin(), p.end());
    draft.insert(draft.end(), mixed.begin(), mixed.end());
  }
  BOOST_TEST(accepted > 100);
  BOOST_TEST(replaced > 50);
  arena m(*d);
  const auto run = [&](const std::vector<float>& logits, bool verify, std::int32_t number = 0) {
    sample_rows_args a;
    a.logits = m.put(logits);
    a.rows = rows;
    a.vocab = vocab;
    a.params = m.put(params);
    a.draft_number = number;
    if (verify) {
      a.verifies = m.put(verifies);
      a.drafts = m.put(drafts);
      a.draft_logits = m.put(draft);
    }
    a.token = m.room<std::int32_t>(rows), a.status = m.room<std::int32_t>(rows);
    a.logprob = m.room<float>(rows);
    d->ops().sample_rows(*m.s, a);
    return m.get(dev_ptr<const std::int32_t>(a.token), rows);
  };
  BOOST_TEST(run(target, true) == expected, boost::test_tools::per_element());
  for (sample_row_params& p : params)
    p.draw = draw_rule::proposal;
  BOOST_TEST(run(draft, false) == proposed, boost::test_tools::per_element());
  BOOST_TEST(run(draft, false, 2) == proposed_third, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
