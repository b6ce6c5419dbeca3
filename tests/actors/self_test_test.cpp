#include "actors/model_process.hpp"
#include "actors/self_test.hpp"
#include "tests/support/embedded_options.hpp"
#include "tests/support/other_model.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(self_tests)

BOOST_AUTO_TEST_CASE(equal_models_and_numerics_give_one_digest_and_others_another) {
  const auto digest = [](const engine_options& o) {
    const model_process p = make_model_process(o);
    return self_test(*p.setup->engines.front(), p.setup->limits);
  };
  const engine_options o = embedded_options();
  const std::string usual = digest(o);
  BOOST_TEST(usual.size() == 64u);
  engine_options other = o; // what changes no byte changes no digest
  other.threads = 2;
  other.nextn = 0;
  other.max_num_seqs = 3;
  other.max_num_batched_tokens = 64;
  other.prefix_cache = false;
  BOOST_TEST(digest(other) == usual);
  other.max_num_batched_tokens = 4;
  BOOST_TEST(digest(other).empty());
  const test_support::temporary_folder folder;
  test_support::write_other_model(folder / "other", 100);
  other = o;
  other.model = folder / "other";
  BOOST_TEST(digest(other) != usual);
}

BOOST_AUTO_TEST_SUITE_END()
