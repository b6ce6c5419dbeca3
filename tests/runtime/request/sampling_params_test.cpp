#include "runtime/request/sampling_params.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <functional>
#include <limits>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(request_sampling_params)

BOOST_AUTO_TEST_CASE(defaults_and_edges_are_legal) {
  BOOST_TEST(static_cast<bool>(check_sampling_params({})));
  sampling_params p{.temperature = 0, .top_p = 1e-30f, .top_k = 1, .min_p = 1, .max_tokens = 1, .min_tokens = 1};
  p.stop = {"x"};
  p.stop_token_ids = {0, 99};
  p.n = max_branches;
  p.top_logprobs = 1000;
  p.logit_bias = {{0, -100.f}, {99, 3e38f}};
  BOOST_TEST(static_cast<bool>(check_sampling_params(p, 100)));
}

BOOST_AUTO_TEST_CASE(errors_name_key_value_and_range) {
  const float nan_value = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  struct bad {
    std::function<void(sampling_params&)> change;
    const char *key, *value;
  };
  const bad cases[] = {
      {[](auto& p) { p.temperature = -0.5f; }, "temperature", "-0.5"},
      {[&](auto& p) { p.temperature = nan_value; }, "temperature", "nan"},
      {[&](auto& p) { p.temperature = inf; }, "temperature", "inf"},
      {[](auto& p) { p.top_p = 0; }, "top_p", "0"},
      {[](auto& p) { p.top_p = 1.5f; }, "top_p", "1.5"},
      {[&](auto& p) { p.top_p = nan_value; }, "top_p", "nan"},
      {[](auto& p) { p.top_k = 0; }, "top_k", "0"},
      {[](auto& p) { p.top_k = -2; }, "top_k", "-2"},
      {[](auto& p) { p.min_p = -0.25f; }, "min_p", "-0.25"},
      {[](auto& p) { p.min_p = 1.25f; }, "min_p", "1.25"},
      {[](auto& p) { p.max_tokens = 0; }, "max_tokens", "0"},
      {[](auto& p) { p.min_tokens = -1; }, "min_tokens", "-1"},
      {[](auto& p) { p.min_tokens = 17; }, "min_tokens", "17"},
      {[](auto& p) { p.n = 0; }, "n", "0"},
      {[](auto& p) { p.n = 129; }, "n", "129"},
      {[](auto& p) { p.top_logprobs = -1; }, "top_logprobs", "-1"},
      {[](auto& p) { p.top_logprobs = 1001; }, "top_logprobs", "1001"},
      {[](auto& p) {
         p.stop = {"a", ""};
       },
       "stop", "\"\""},
      {[](auto& p) {
         p.stop = {"ä", "b\xe4"};
       },
       "stop", "\"b\uFFFD\""},
      {[](auto& p) {
         p.stop_token_ids = {3, 100};
       },
       "stop_token_ids", "100"},
      {[](auto& p) { p.stop_token_ids = {-1}; }, "stop_token_ids", "-1"},
      {[](auto& p) { p.golden_token_ids = {100}; }, "golden_token_ids", "100"},
      {[](auto& p) {
         p.logit_bias = {{100, 1.f}};
       },
       "logit_bias", "100"},
      {[&](auto& p) {
         p.logit_bias = {{7, inf}};
       },
       "logit_bias[7]", "inf"},
  };
  for (const bad& c : cases) {
    sampling_params p;
    c.change(p);
    const status s = check_sampling_params(p, 100);
    BOOST_REQUIRE_MESSAGE(!s, c.key);
    BOOST_TEST(s.failure().code == "invalid_params");
    BOOST_TEST(s.failure().message.starts_with(std::string{c.key} + " = " + c.value + " is out of range: "),
               s.failure().message);
  }
  sampling_params twice;
  twice.logit_bias = {{7, 1.f}, {8, 1.f}, {7, 2.f}};
  BOOST_TEST(check_sampling_params(twice).failure().message.find("logit_bias names token id 7 twice") == 0u);
}

BOOST_AUTO_TEST_CASE(structured_output_needs_a_known_kind_and_a_trigger_for_its_bound) {
  sampling_params p;
  p.so_args = structured_output_args{.schema_type = "json", .schema = "not looked at here"};
  BOOST_TEST(bool(check_sampling_params(p, 100)));
  const auto code_of = [&](auto change) {
    sampling_params wrong = p;
    change(*wrong.so_args);
    const status s = check_sampling_params(wrong, 100);
    return s ? "" : s.failure().code;
  };
  BOOST_TEST(code_of([](auto& a) { a.schema_type = "yaml"; }) == "so_invalid_args");
  BOOST_TEST(code_of([](auto& a) { a.bound_token_id = 0; }) == "so_invalid_args");
  BOOST_TEST(code_of([](auto& a) { a.trigger_token_ids = {100}; }) == "so_invalid_args");
  BOOST_TEST(code_of([](auto& a) { a.trigger_token_ids = {99}, a.bound_token_id = 99; }) == "");
}

BOOST_AUTO_TEST_SUITE_END()
