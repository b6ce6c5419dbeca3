#include "tests/process/troupe_process.hpp"
#include <boost/test/unit_test.hpp>
#include <cmath>

using namespace process_test;

// Smoke runs: that every benchmark works and reports, never how fast.
BOOST_AUTO_TEST_SUITE(bench_verb)

BOOST_AUTO_TEST_CASE(every_benchmark_reports_json_lines_on_stdout_and_in_the_file) {
  const temporary_folder folder;
  for (const std::string name : {"decode", "prefill", "replay", "control", "idle", "scheduler", "soak", "tokenizer",
                                 "speculation", "drafts", "acceptance", "transport", "kernels"}) {
    const std::string file = folder / (name + ".jsonl");
    const auto run = run_troupe({"bench", name, "--smoke", "--json", file});
    BOOST_TEST(run.exit_code == 0, name + ": " + run.err);
    const auto lines = json_lines(run.out);
    BOOST_TEST(!lines.empty());
    BOOST_TEST(test_support::read_text(file) == run.out);
    for (const auto& line : lines) {
      BOOST_TEST(line["bench"] == name);
      BOOST_TEST(line["cores"].get<int>() >= 1);
      BOOST_TEST(line["smoke"] == true);
    }
  }
}

BOOST_AUTO_TEST_CASE(decoding_reports_speed_limit_and_memory) {
  std::map<std::string, nlohmann::json> cases;
  for (const auto& line : json_lines(run_troupe({"bench", "decode", "--smoke"}).out))
    cases[line["case"].get<std::string>()] = line;
  const auto& one = cases["streams 1"];
  BOOST_TEST(one["tok_per_s"].get<double>() > 0);
  // From the checkpoint: 4 of 24 experts, everything else but tables and drafter whole.
  BOOST_TEST(one["multiply_adds_per_token"].get<double>() == 16672768.0);
  BOOST_TEST(one["fraction_of_limit"].get<double>() > 0);
  BOOST_TEST(cases["memory"]["resident_mb"].get<double>() > 40);
  BOOST_TEST(cases["memory"]["model_mb"].get<double>() > 40);
  BOOST_TEST(cases["start"]["process_start_to_end_with_one_token_s"].get<double>() > 0);
}

// Acceptance is a sum of independent draws with known probabilities: within 5 standard deviations of their sum.
BOOST_AUTO_TEST_CASE(drafts_are_right_as_often_as_the_coupled_rule_foretells) {
  const auto lines = json_lines(run_troupe({"bench", "acceptance", "--smoke"}).out);
  BOOST_REQUIRE(lines.size() == 5u);
  for (const auto& line : lines) {
    const double apart = line["accepted_share"].get<double>() - line["foretold_share"].get<double>();
    BOOST_TEST(line["reached"].get<int>() > 0);
    BOOST_TEST(std::abs(apart) <= 5 * line["standard_deviation"].get<double>() + 1e-9, line.dump());
    BOOST_TEST(line["foretold_share"].get<double>() <= line["common_mass"].get<double>() + 1e-9);
  }
  BOOST_TEST(lines.at(0)["reached"].get<int>() >= 160);
  BOOST_TEST(lines.at(0)["foretold_share"].get<double>() > .3); // the embedded drafter is of use
}

BOOST_AUTO_TEST_CASE(unknown_names_are_usage_errors) {
  const auto run = run_troupe({"bench", "nonsense"});
  BOOST_TEST(run.exit_code == 2);
  BOOST_TEST(contains(run.err, "nonsense"));
  BOOST_TEST(contains(run.err, "decode, prefill"));
}

BOOST_AUTO_TEST_SUITE_END()
