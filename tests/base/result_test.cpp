#include "runtime/base/result.hpp"
#include <boost/test/unit_test.hpp>

BOOST_AUTO_TEST_SUITE(result)

BOOST_AUTO_TEST_CASE(holds_a_value_or_an_error) {
  troupe::result<int> good = 7, bad = troupe::error{"no_space", "no block free"};
  BOOST_TEST(static_cast<bool>(good));
  BOOST_TEST(*good == 7);
  BOOST_TEST(!static_cast<bool>(bad));
  BOOST_TEST(bad.failure().code == "no_space");
}

BOOST_AUTO_TEST_CASE(config_errors_name_file_key_value_and_remedy) {
  troupe::config_error e("config.json", "dtype", "\"float16\"", "only bfloat16 is supported", "convert the checkpoint");
  BOOST_TEST(e.what() ==
             std::string("config.json: dtype = \"float16\": only bfloat16 is supported; convert the checkpoint"));
}

BOOST_AUTO_TEST_SUITE_END()
