#include "runtime/request/result_line.hpp"

#include "runtime/base/noise.hpp"

#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

using namespace troupe;
using nlohmann::json;

BOOST_AUTO_TEST_SUITE(request_result_line)

BOOST_AUTO_TEST_CASE(holds_every_field) {
  generation_result r;
  r.id = "r\"1";
  r.index = 2;
  r.text = "line\nend \xE2\x82\xAC";
  r.token_ids = {5, 6};
  r.finish_reason = "stop";
  r.stop_text = "###";
  r.prompt_tokens = 7;
  r.cached_tokens = 3;
  r.logprobs = {-0.5f, -9999.0f};
  r.top_logprobs = {{{5, -0.5f}, {1, -2.25f}}, {}};
  r.prompt_logprobs = {-1.0f};
  r.seq_seed = ~0ull;
  r.usage = {4, 10, 6, 1, 2, 1.25, 1000.0625};
  BOOST_TEST(result_line(r) ==
             "{\"id\":\"r\\\"1\",\"index\":2,\"text\":\"line\\nend "
             "\xE2\x82\xAC\",\"token_ids\":[5,6],\"finish_reason\":\"stop\","
             "\"stop\":\"###\",\"prompt_tokens\":7,\"cached_tokens\":3,\"logprobs\":[-0.5,-9999],"
             "\"top_logprobs\":[[[5,-0.5],[1,-2.25]],[]],\"prompt_logprobs\":[-1],\"seq_seed\":18446744073709551615,"
             "\"error\":null,\"usage\":{\"steps\":4,\"drafted\":10,\"accepted\":6,\"attempts\":1,\"preemptions\":2,"
             "\"ttft_ms\":1.250,\"total_ms\":1000.062}}");
  r.stop_id = 1;
  BOOST_TEST((json::parse(result_line(r))["stop"] == 1));
  r.stop_id.reset();
  r.stop_text.clear();
  BOOST_TEST(json::parse(result_line(r))["stop"].is_null());
  r.warnings = {"#/not has no effect: \"why\"", "another"};
  BOOST_TEST((json::parse(result_line(r))["warnings"] == json(r.warnings)));
}

BOOST_AUTO_TEST_CASE(errors_and_lines_without_id) {
  generation_result r;
  r.id = "x";
  r.finish_reason = "error";
  r.failure = error{"invalid_params", "top_p = 2 is out of range"};
  const json line = json::parse(result_line(r));
  BOOST_TEST((line["error"] == json{{"code", "invalid_params"}, {"message", "top_p = 2 is out of range"}}));
  const json none = json::parse(result_line_without_id(17, {"invalid_json", "bad \xff byte"}));
  BOOST_TEST(none["id"].is_null());
  BOOST_TEST((none["line"] == 17));
  BOOST_TEST((none["finish_reason"] == "error"));
  BOOST_TEST((none["error"]["message"] == "bad \xEF\xBF\xBD byte"));
}

BOOST_AUTO_TEST_CASE(binary32_values_read_back_equal) {
  generation_result r;
  for (std::uint32_t i = 0; i < 20000; ++i) {
    const float v = std::bit_cast<float>(philox(13, i, 0, 0, 0).w[0]);
    if (std::isfinite(v))
      r.logprobs.push_back(v);
  }
  r.logprobs.push_back(std::bit_cast<float>(1u));
  r.logprobs.push_back(-0.1f);
  r.logprobs.push_back(std::numeric_limits<float>::max());
  const std::string line = result_line(r);
  BOOST_TEST(line.find(",-0.1,") != std::string::npos); // the shortest text, not 0.10000000149
  const json parsed = json::parse(line);
  for (std::size_t i = 0; i < r.logprobs.size(); ++i)
    BOOST_REQUIRE_EQUAL(std::bit_cast<std::uint32_t>(parsed["logprobs"][i].get<float>()),
                        std::bit_cast<std::uint32_t>(r.logprobs[i]));
}

BOOST_AUTO_TEST_CASE(stays_json_whatever_the_text) {
  generation_result r;
  for (int c = 0; c < 256; ++c)
    r.text += static_cast<char>(c);
  r.logprobs = {std::numeric_limits<float>::quiet_NaN()};
  r.usage.total_ms = 1e300;
  const std::string line = result_line(r);
  BOOST_TEST(line.find('\n') == std::string::npos);
  BOOST_TEST(json::parse(line)["logprobs"][0].is_null());
}

BOOST_AUTO_TEST_SUITE_END()
