// Verification by rejection on the embedded model: with whole blocks a lost cache, company and replay change no token.
#include "tests/support/hand_engine.hpp"

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(model_rejection)

BOOST_AUTO_TEST_CASE(preemption_and_company_change_no_bit) {
  std::vector<hand_request> requests = mixed_requests(3, 5, 30);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    hand_request& r = requests[i];
    r.prompt.resize(110 + 6 * i, 300 + static_cast<std::int32_t>(i));
    r.params = {};
    r.params.max_tokens = 40;
    r.params.temperature = i == 0 ? 0.8f : 1.0f;
    r.params.ignore_eos = true;
  }
  const std::vector<int> all{0, 1, 2};
  const auto engine = [](int kv_blocks) {
    return hand_engine({.kv_blocks = kv_blocks, .prefix_cache = true, .nextn = 5, .rejection = true});
  };
  hand_engine roomy = engine(40), tight = engine(4);
  const auto expected = roomy.run(requests, all), seen = tight.run(requests, all);
  BOOST_TEST(roomy.preemptions() == 0);
  BOOST_TEST(tight.preemptions() > 0);
  for (const int i : all) {
    BOOST_TEST((seen.at(i) == expected.at(i)), "request " << i << " differs where blocks are short");
    BOOST_TEST((roomy.run(requests, {i}).at(i) == expected.at(i)), "request " << i << " differs alone");
  }
}

BOOST_AUTO_TEST_SUITE_END()
