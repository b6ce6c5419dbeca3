#include "runtime/request/baseline.hpp"
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

using namespace troupe;

namespace {

const baseline_fingerprint cpu{std::string(64, 'a'), "cpu-1", "serving", "off", 0};

baseline_sample sample(const std::string& id, std::vector<float> logprobs, const baseline_fingerprint& f = cpu) {
  std::vector<std::int32_t> tokens{7};
  for (std::size_t i = 0; i < logprobs.size(); ++i)
    tokens.push_back(static_cast<std::int32_t>(8 + i));
  const auto n = static_cast<std::int32_t>(tokens.size());
  return make_baseline_sample(id, baseline_mode::prefill, n, tokens, std::move(logprobs), f);
}

float next_up(float v, int ulps) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(v) + static_cast<std::uint32_t>(ulps));
}

void refused(const std::string& line, const std::string& why) {
  const auto s = parse_baseline_line(line);
  BOOST_REQUIRE_MESSAGE(!s, line);
  BOOST_TEST(s.failure().code == "invalid_baseline");
  BOOST_TEST(s.failure().message.find(why) != std::string::npos, s.failure().message + " does not hold: " + why);
}

// The line with one member replaced.
std::string with(const baseline_sample& s, const std::string& key, const nlohmann::ordered_json& value) {
  auto line = nlohmann::ordered_json::parse(baseline_line(s));
  line[key] = value;
  return line.dump();
}

} // namespace

BOOST_AUTO_TEST_SUITE(baselines)

BOOST_AUTO_TEST_CASE(a_line_is_exactly_this) {
  // Digests by sha256sum: 01000000 02000000 03000000, and 0000c0bf 000000c0 (-1.5, -2).
  const std::vector<std::int32_t> tokens{1, 2, 3};
  const auto s = make_baseline_sample("a\"b", baseline_mode::decode, 1, tokens, {-1.5f, -2.0f},
                                      {std::string(64, 'c'), "cpu-1", "model", "compact", 140});
  BOOST_TEST(baseline_line(s) ==
             R"({"id":"a\"b","mode":"decode","n_prompt":1,"n_target":2,)"
             R"("tokens_sha256":"4636993d3e1da4e9d6b8f87b79e8f7c6d018580d52661950eabc3845c5897a4d",)"
             R"("nll_f64":"0x1.cp+1","lp_sha256":"8f071a26ad2a53d1e110cea9e71bb272fb5297143f3e214b0b001ce87f3aec17",)"
             R"("lp_f32":"AADAvwAAAMA=","fingerprint":{"checkpoint":")" +
                 std::string(64, 'c') +
                 R"(","numerics":"cpu-1","roundings":"model","yoco":"compact","yoco_keep":140}})");
}

BOOST_AUTO_TEST_CASE(lines_come_back_bit_by_bit) {
  for (const std::vector<float>& logprobs :
       {std::vector<float>{}, {-0.0f}, {0.0f, -9999.0f, -1e-30f, -0x1p-149f}, std::vector<float>(700, -1.1f)}) {
    const baseline_sample s = sample("x", logprobs);
    const auto back = parse_baseline_line(baseline_line(s));
    BOOST_REQUIRE(back);
    BOOST_TEST((*back == s));
    BOOST_TEST(baseline_line(*back) == baseline_line(s)); // also -0
  }
}

BOOST_AUTO_TEST_CASE(the_sum_runs_in_binary64_from_the_first_to_the_last) {
  // Three quarters of a unit in the last place, three times: each addition rounds up, their exact sum would round down.
  const float small = -0x1.8p-26f;
  BOOST_TEST(sample("x", {-0x1p+27f, small, small, small}).nll == 0x1p+27 + 3 * 0x1p-25);
  BOOST_TEST(sample("x", {small, small, small, -0x1p+27f}).nll == 0x1p+27 + 2 * 0x1p-25);
}

BOOST_AUTO_TEST_CASE(what_is_no_line_of_a_baseline_is_refused_by_name) {
  const baseline_sample s = sample("x", {-1.0f, -2.0f});
  const std::string line = baseline_line(s);
  refused("", "not JSON");
  refused("[]", "not a JSON object");
  refused(line.substr(0, line.size() - 1), "not JSON");
  refused(with(s, "speed", 3), "unknown key \"speed\"");
  refused(R"({"id":"x")" + line.substr(line.find(',')).insert(0, R"(,"id":"y")"), "key \"id\" occurs twice");
  for (const char* key :
       {"id", "mode", "n_prompt", "n_target", "tokens_sha256", "nll_f64", "lp_sha256", "lp_f32", "fingerprint"}) {
    auto without = nlohmann::json::parse(line);
    without.erase(key);
    refused(without.dump(), std::string("key ") + key + " is missing");
    refused(with(s, key, nlohmann::json::array()), key);
  }
  auto print = nlohmann::ordered_json::parse(line)["fingerprint"];
  print.erase("numerics");
  refused(with(s, "fingerprint", print), "key fingerprint.numerics is missing");
  print["numerics"] = "cpu-1";
  print["threads"] = 2;
  refused(with(s, "fingerprint", print), "unknown key \"fingerprint.threads\"");
  refused(with(s, "mode", "guess"), "mode is neither");
  refused(with(s, "n_target", 3), "do not fit together");
  refused(with(s, "n_prompt", 0), "do not fit together");
  refused(with(s, "n_prompt", -1), "n_prompt is not a count");
  refused(with(s, "nll_f64", "3.0"), "nll_f64");
  refused(with(s, "nll_f64", "0x1p+1x"), "nll_f64");
  refused(with(s, "lp_sha256", std::string(64, 'G')), "lp_sha256");
  refused(with(s, "lp_f32", "AACAvw=="), "n_target = 2");
  refused(with(s, "lp_f32", "AACAvwAAAMA"), "lp_f32");
}

BOOST_AUTO_TEST_CASE(equal_bits_pass_and_one_flipped_bit_is_found_with_its_place) {
  const std::vector<baseline_sample> stored{sample("a", {-1.0f, -2.0f}), sample("b", {-3.0f, -0.5f, -0.25f})};
  BOOST_TEST(compare_baselines(stored, stored).failures.empty());
  BOOST_TEST(compare_baselines(stored, stored).summary ==
             "2 samples, 5 log-probabilities, mean 1.35 nats: equal bit for bit");

  std::vector<baseline_sample> found = stored;
  found[1] = sample("b", {-3.0f, next_up(-0.5f, 3), -0.75f});
  const baseline_report r = compare_baselines(stored, found);
  BOOST_REQUIRE(r.failures.size() == 1u);
  BOOST_TEST(r.failures[0] == "sample \"b\": 2 of 3 log-probabilities differ, the first is number 1 (token 2): -0.5 "
                              "stored, -0.5000002 now, 3 ulp apart");

  // Errors that cancel in the sum are found all the same.
  found[1] = sample("b", {-3.0f, -0.25f, -0.5f});
  BOOST_TEST(compare_baselines(stored, found).failures.size() == 1u);
  // The sign of a zero is a bit too, at no distance.
  const auto zero = [&](float v) { return std::vector<baseline_sample>{sample("z", {v})}; };
  BOOST_REQUIRE(compare_baselines(zero(0.0f), zero(-0.0f)).failures.size() == 1u);
  BOOST_TEST(compare_baselines(zero(0.0f), zero(-0.0f)).failures[0].find(" 0 ulp apart") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(damage_inside_a_stored_line_is_named) {
  const std::vector<baseline_sample> good{sample("a", {-1.0f, -2.0f})};
  auto flipped = good, digest = good, sum = good;
  flipped[0].logprobs[1] = next_up(-2.0f, 1);
  digest[0].lp_sha256[5] ^= 1;
  sum[0].nll = std::nextafter(sum[0].nll, 0);
  const auto only = [](const baseline_report& r) { return r.failures.size() == 1 ? r.failures[0] : std::string("?"); };
  BOOST_TEST(only(compare_baselines(flipped, good)) ==
             "sample \"a\": the stored line is damaged: its lp_sha256 is not the digest of its lp_f32; 1 of 2 "
             "log-probabilities differ, the first is number 1 (token 2): -2.0000002 stored, -2 now, 1 ulp apart");
  BOOST_TEST(only(compare_baselines(digest, good)).find("lp_sha256 is not the digest") != std::string::npos);
  BOOST_TEST(only(compare_baselines(sum, good)).find("nll_f64 is not the sum") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(samples_have_to_be_the_same_ones) {
  const auto a = sample("a", {-1.0f}), b = sample("b", {-1.0f}), c = sample("c", {-1.0f});
  const auto failures = [](const std::vector<baseline_sample>& s, const std::vector<baseline_sample>& f) {
    return compare_baselines(s, f).failures;
  };
  BOOST_TEST(failures({a, b}, {b, c}) ==
                 (std::vector<std::string>{"sample \"a\": in the baseline, but the run has none of this id",
                                           "sample \"c\": not in the baseline"}),
             boost::test_tools::per_element());
  BOOST_TEST(failures({b}, {a, b}) == std::vector<std::string>{"sample \"a\": not in the baseline"},
             boost::test_tools::per_element());
  auto other = a;
  other.tokens_sha256[0] ^= 1;
  BOOST_TEST(failures({a}, {other}).at(0).find("its tokens are not those of the baseline") != std::string::npos);
  other = a;
  other.mode = baseline_mode::decode;
  BOOST_TEST(failures({a}, {other}).at(0).find("made by prefill, this run by decode") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(another_fingerprint_means_a_tolerance_and_is_said) {
  baseline_fingerprint gpu = cpu;
  gpu.numerics = "cuda-sm90-1";
  gpu.roundings = "off";
  const std::vector<baseline_sample> stored{sample("a", {-1.0f, -2.0f}), sample("b", {-4.0f})};
  const auto compared = [&](float a, float b) {
    return compare_baselines(stored, std::vector<baseline_sample>{sample("a", {a, -2.0f}, gpu), sample("b", {b}, gpu)});
  };
  const baseline_report near = compared(-1.0019f, -3.9981f); // 0.00095 a token in a, 0.0019 in b
  BOOST_TEST(near.failures.size() == 1u);
  BOOST_TEST(near.failures.at(0).find("sample \"b\": differs by 0.00189") == 0u);
  BOOST_TEST(near.failures.at(0).find("numerics cpu-1 -> cuda-sm90-1, roundings serving -> off") != std::string::npos);
  const baseline_report close = compared(-1.0009f, -3.9991f);
  BOOST_TEST(close.failures.empty());
  BOOST_TEST(close.summary.find("tolerance mode for 2 (numerics cpu-1 -> cuda-sm90-1, roundings serving -> off)") !=
             std::string::npos);
  BOOST_TEST(close.summary.find("within tolerance") != std::string::npos);
  // Each within its own limit, but all drift in one direction.
  const baseline_report drift = compared(-1.0009f, -4.0009f);
  BOOST_TEST(drift.failures.size() == 1u);
  BOOST_TEST(drift.failures.at(0).find("all samples together differ by 0.000") == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
