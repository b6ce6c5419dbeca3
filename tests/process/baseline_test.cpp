#include "tests/process/troupe_process.hpp"
#include "tests/support/sanitizers.hpp"
#include <boost/test/unit_test.hpp>
#include <map>

using namespace process_test;

namespace {

const std::string samples = data_file("baseline/samples.jsonl");

std::vector<std::string> lines_of(const std::string& file) {
  std::vector<std::string> lines;
  std::istringstream in(test_support::read_text(file));
  for (std::string line; std::getline(in, line);)
    lines.push_back(line);
  return lines;
}

// The lines of a file whose ids are among those named.
std::string only(const std::string& file, const std::vector<std::string>& ids) {
  std::string text;
  for (const std::string& line : lines_of(file))
    if (std::find(ids.begin(), ids.end(), nlohmann::json::parse(line)["id"].get<std::string>()) != ids.end())
      text += line + "\n";
  return text;
}

const std::vector<std::string> few{"code_sql-129", "random-2", "same-140", "story-1", "zh-268-then-100"};

// Checks a few samples against a baseline of this text.
finished_process check_few(const std::string& baseline, const std::vector<std::string>& more = {}) {
  const temporary_folder folder;
  test_support::write_text(folder / "in.jsonl", only(samples, few));
  test_support::write_text(folder / "base.jsonl", baseline);
  std::vector<std::string> arguments{"baseline", "check", folder / "in.jsonl", folder / "base.jsonl"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_troupe(arguments);
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const std::size_t at = text.find(what);
  BOOST_REQUIRE_MESSAGE(at != std::string::npos, what);
  return text.replace(at, what.size(), by);
}

} // namespace

BOOST_AUTO_TEST_SUITE(baseline_verb)

BOOST_AUTO_TEST_CASE(the_committed_baselines_hold_bit_for_bit) {
  if (troupe::test::any_sanitizer) {
    BOOST_TEST_MESSAGE("skipped: sanitizers look at memory, not at bits; the few samples below do for them");
    return;
  }
  process_options patient;
  patient.limit = std::chrono::seconds(500);
  const auto prefill = run_troupe({"baseline", "check", samples, data_file("baseline/prefill.jsonl"), "--threads", "1",
                                   "--max-num-batched-tokens", "150"},
                                  patient);
  BOOST_TEST(prefill.out == "49 samples, 14976 log-probabilities, mean 4.963409829278225 nats: equal bit for bit\n");
  BOOST_TEST(prefill.err == "");
  BOOST_TEST(prefill.exit_code == 0);
  const auto decode = run_troupe({"baseline", "check", samples, data_file("baseline/decode.jsonl"), "--threads", "2",
                                  "--engines", "2", "--ep", "2", "--max-num-seqs", "7"},
                                 patient);
  BOOST_TEST(decode.out == prefill.out);
  BOOST_TEST(decode.exit_code == 0);
}

BOOST_AUTO_TEST_CASE(decoding_gives_the_bits_of_prefill) {
  const auto prefill = lines_of(data_file("baseline/prefill.jsonl")),
             decode = lines_of(data_file("baseline/decode.jsonl"));
  BOOST_REQUIRE(prefill.size() == 49u);
  BOOST_REQUIRE(decode.size() == 49u);
  std::map<std::string, int> modes;
  for (std::size_t i = 0; i < prefill.size(); ++i) {
    const auto p = nlohmann::json::parse(prefill[i]), d = nlohmann::json::parse(decode[i]);
    for (const char* key : {"id", "tokens_sha256", "lp_sha256", "lp_f32", "nll_f64", "n_target"})
      BOOST_TEST(p[key] == d[key], p["id"] << " " << key);
    BOOST_TEST(d["mode"] == "decode");
    ++modes[p["mode"].get<std::string>()];
  }
  BOOST_TEST(modes["prefill"] == 44);
  BOOST_TEST(modes["decode"] == 5);
}

BOOST_AUTO_TEST_CASE(make_writes_the_same_bytes_under_other_settings_and_in_another_order) {
  const temporary_folder folder;
  std::string input, expected = only(data_file("baseline/prefill.jsonl"), few);
  for (const std::string& id : {few[3], few[0], few[4], few[2], few[1]})
    input += only(samples, {id});
  test_support::write_text(folder / "in.jsonl", input);
  test_support::write_text(folder / "base.jsonl", "what was there before");
  const auto run =
      run_troupe({"baseline", "make", folder / "in.jsonl", folder / "base.jsonl", "--ep", "3", "--max-num-seqs", "2",
                  "--max-num-batched-tokens", "129", "--device", troupe::test::any_sanitizer ? "cpu" : "reference"});
  BOOST_TEST(run.exit_code == 0);
  BOOST_TEST(run.out == "");
  BOOST_TEST((test_support::read_text(folder / "base.jsonl") == expected));
  const auto piped = troupe_reading(input, {"baseline", "make", "-", "-"});
  BOOST_TEST((piped.out == expected));
}

BOOST_AUTO_TEST_CASE(one_flipped_bit_is_found_and_named) {
  const std::string good = only(data_file("baseline/prefill.jsonl"), few);
  BOOST_TEST(check_few(good).exit_code == 0);

  // The lowest bit of log-probability 2: bytes 6 to 8 of the little-endian array are the base64 digits 8 to 11.
  auto line = nlohmann::ordered_json::parse(good.substr(0, good.find('\n')));
  BOOST_REQUIRE(line["id"] == "code_sql-129");
  std::string array = line["lp_f32"].get<std::string>();
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  array[11] = digits[digits.find(array[11]) ^ 1];
  line["lp_f32"] = array;
  const auto run = check_few(line.dump() + good.substr(good.find('\n')));
  BOOST_TEST(run.exit_code == 1);
  BOOST_TEST(contains(run.out,
                      "sample \"code_sql-129\": the stored line is damaged: its lp_sha256 is not the digest of "
                      "its lp_f32; 1 of 128 log-probabilities differ, the first is number 2 (token 3): "));
  BOOST_TEST(contains(run.out, ", 1 ulp apart\n"));
  BOOST_TEST(contains(run.out, ": 1 failures\n"));
}

BOOST_AUTO_TEST_CASE(other_fingerprints_are_compared_with_a_tolerance) {
  const std::string good = only(data_file("baseline/prefill.jsonl"), few);
  std::string other = good;
  for (std::size_t at = 0; (at = other.find("\"cpu-1\"", at)) != std::string::npos;)
    other.replace(at, 7, "\"cpu-0\"");
  const auto run = check_few(other);
  BOOST_TEST(run.exit_code == 0);
  BOOST_TEST(
      contains(run.out, "tolerance mode for 5 (numerics cpu-0 -> cpu-1), together 0 nats a token apart, within"));
  const auto rough = check_few(good, {"--roundings", "off"});
  BOOST_TEST(rough.exit_code == 1);
  BOOST_TEST(contains(rough.out, "nats a token, more than 0.001 (roundings serving -> off)"));
}

BOOST_AUTO_TEST_CASE(samples_and_baseline_have_to_be_complete) {
  const std::string good = only(data_file("baseline/prefill.jsonl"), few);
  const auto missing = check_few(only(data_file("baseline/prefill.jsonl"), {few[0], few[1], few[2], few[3]}));
  BOOST_TEST(missing.exit_code == 1);
  BOOST_TEST(contains(missing.out, "sample \"zh-268-then-100\": not in the baseline"));
  const auto more = check_few(good + only(data_file("baseline/prefill.jsonl"), {"zh-511"}));
  BOOST_TEST(more.exit_code == 1);
  BOOST_TEST(contains(more.out, "sample \"zh-511\": in the baseline, but the run has none of this id"));
  const auto decode = check_few(only(data_file("baseline/decode.jsonl"), few)); // the file says how
  BOOST_TEST(decode.exit_code == 0);
}

BOOST_AUTO_TEST_CASE(what_is_no_baseline_is_refused_with_its_line) {
  const std::string good = only(data_file("baseline/prefill.jsonl"), few);
  const std::string first = good.substr(0, good.find('\n') + 1), rest = good.substr(first.size());
  const auto refused = [](const std::string& baseline, const std::string& why) {
    const auto run = check_few(baseline);
    BOOST_TEST(run.exit_code == 2, why);
    BOOST_TEST(run.out == "");
    BOOST_TEST(contains(run.err, why), why + " is missing in: " + run.err);
  };
  refused("", "base.jsonl: the file holds no sample");
  refused("my notes\n", "base.jsonl: line 1: the line is not JSON");
  refused(first + first + rest, "line 2: the id \"code_sql-129\" occurs twice");
  refused(rest + first, "line 5: lines are not sorted by id");
  refused(replaced(good, "\"n_prompt\":129,", "\"n_prompt\":129,\"speed\":1,"), "line 1: unknown key \"speed\"");
  refused(replaced(good, "\"n_prompt\":129,", ""), "line 1: key n_prompt is missing");
  refused(good.substr(0, good.size() - 40), "line 5: the line is not JSON");
  refused(replaced(good, "\"n_target\":128", "\"n_target\":127"), "do not fit together");
  const auto mode = check_few(good, {"--mode", "decode"});
  BOOST_TEST(mode.exit_code == 2);
  BOOST_TEST(contains(mode.err, "--mode = decode: a baseline says itself"));
}

BOOST_AUTO_TEST_CASE(bad_samples_fail_and_nothing_is_written) {
  const temporary_folder folder;
  test_support::write_text(folder / "base.jsonl", "as before");
  const auto run =
      troupe_reading("{\"id\": \"a\", \"prompt_ids\": [0, 1]}\n{\"id\": \"a\", \"prompt_ids\": [5]}\n{oops\n"
                     "{\"id\": \"b\", \"prompt\": \"\"}\n"
                     "{\"id\": \"c\", \"prompt_ids\": [4, 5, 6], \"params\": {\"golden_token_ids\": [7, 8]}}\n",
                     {"baseline", "make", "-", folder / "base.jsonl", "--max-model-len", "4"});
  BOOST_TEST(run.exit_code == 1);
  for (const char* part :
       {"\"line 2\"", "\"a\" was used by an earlier line", "\"line 3\"", "sample \"b\": the prompt is empty",
        "sample \"c\": the engine ended after 1 of 2 tokens", "not written"})
    BOOST_TEST(contains(run.err, part), std::string(part) + " is missing in: " + run.err);
  BOOST_TEST(test_support::read_text(folder / "base.jsonl") == "as before");
}

BOOST_AUTO_TEST_SUITE_END()
