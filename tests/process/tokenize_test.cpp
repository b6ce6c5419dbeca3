#include "tests/process/troupe_process.hpp"
#include <boost/test/unit_test.hpp>

using namespace process_test;

BOOST_AUTO_TEST_SUITE(tokenize_verb)

BOOST_AUTO_TEST_CASE(golden_texts_become_golden_ids) {
  const temporary_folder folder;
  const std::string out = folder / "ids.jsonl";
  const auto run = run_troupe(
      {"tokenize", "--tokenizer", data_file("tokenizer/tokenizer.json"), data_file("tokenizer/encode.jsonl"), out});
  BOOST_TEST(run.exit_code == 0);
  BOOST_TEST(run.err == "");
  const auto expected = json_lines(test_support::read_text(data_file("tokenizer/encode.jsonl")));
  const auto got = json_lines(test_support::read_text(out));
  BOOST_REQUIRE(got.size() == expected.size());
  int differing = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    differing += got[i]["id"] != expected[i]["id"] || got[i]["ids"] != expected[i]["ids"] ? 1 : 0;
  BOOST_TEST(differing == 0);
}

BOOST_AUTO_TEST_CASE(golden_ids_become_golden_text_step_by_step) {
  const std::string input = test_support::read_text(data_file("tokenizer/decode_stream.jsonl"));
  const auto run =
      troupe_reading(input, {"tokenize", "--tokenizer", data_file("tokenizer/tokenizer.json"), "--decode"});
  BOOST_TEST(run.exit_code == 0);
  const auto expected = json_lines(input);
  const auto got = json_lines(run.out);
  BOOST_REQUIRE(got.size() == expected.size());
  int exact_steps = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    BOOST_TEST(got[i]["text"] == expected[i]["text"]);
    BOOST_TEST(got[i]["text_skip_special"] == expected[i]["text_skip_special"]);
    // Invalid bytes go out earlier than in the reference, so single steps are compared where there are none.
    const auto steps = expected[i]["steps"].dump();
    std::string joined;
    for (const auto& step : got[i]["steps"])
      joined += step.is_null() ? "" : step.get<std::string>();
    BOOST_TEST(joined + got[i]["pending"].get<std::string>() == expected[i]["text"].get<std::string>());
    if (expected[i]["text"].get<std::string>().find("\xEF\xBF\xBD") == std::string::npos) {
      BOOST_TEST(got[i]["steps"] == expected[i]["steps"]);
      ++exact_steps;
    }
  }
  BOOST_TEST(exact_steps > 100);
}

BOOST_AUTO_TEST_CASE(bad_lines_fail_alone) {
  const auto run = troupe_reading("{\"id\": 1, \"text\": \"a\"}\nnot json\n\n{\"id\": \"x\"}\n{\"id\": 2, "
                                  "\"bytes_hex\": \"6g\"}\n[1]\n{\"id\": 3, \"bytes_hex\": \"61ff\"}",
                                  {"tokenize"});
  BOOST_TEST(run.exit_code == 1);
  const auto lines = json_lines(run.out);
  BOOST_REQUIRE(lines.size() == 6u);
  BOOST_TEST(lines[0]["ids"].size() == 1u);
  BOOST_TEST(lines[1]["id"].is_null());
  BOOST_TEST(lines[1]["line"] == 2);
  BOOST_TEST(contains(lines[1]["error"]["message"].get<std::string>(), "line 2"));
  BOOST_TEST(lines[2]["id"] == "x");
  BOOST_TEST(contains(lines[2]["error"]["message"].get<std::string>(), "bytes_hex"));
  BOOST_TEST(contains(lines[3]["error"]["message"].get<std::string>(), "6g"));
  BOOST_TEST(lines[4]["line"] == 6);
  BOOST_TEST(lines[5]["ids"].size() >= 2u); // the invalid byte counts as U+FFFD
}

BOOST_AUTO_TEST_CASE(a_full_disk_is_an_error) {
  process_options options;
  options.input = "{\"id\": 1, \"text\": \"a\"}\n";
  options.stdout_path = "/dev/full";
  const auto run = run_troupe({"tokenize"}, options);
  BOOST_TEST(run.exit_code == 1);
  BOOST_TEST(contains(run.err, "standard output: writing failed: No space left on device"));
}

BOOST_AUTO_TEST_CASE(files_that_cannot_be_used_are_named) {
  const auto missing = run_troupe({"tokenize", "/nonexistent/in.jsonl"});
  BOOST_TEST(missing.exit_code == 2);
  BOOST_TEST(contains(
      missing.err, "/nonexistent/in.jsonl: the file cannot be read: No such file or directory; give an existing file"));
  const temporary_folder folder;
  test_support::write_text(folder / "t.json", "{\"model\": 3}");
  const auto damaged = run_troupe({"tokenize", "--tokenizer", folder / "t.json"});
  BOOST_TEST(damaged.exit_code == 2);
  BOOST_TEST(contains(damaged.err, folder / "t.json"));
}

BOOST_AUTO_TEST_CASE(input_is_not_overwritten) {
  const temporary_folder folder;
  test_support::write_text(folder / "same.jsonl", "{\"id\": 1, \"text\": \"a\"}\n");
  const auto run = run_troupe({"tokenize", folder / "same.jsonl", folder / "same.jsonl"});
  BOOST_TEST(run.exit_code == 2);
  BOOST_TEST(contains(run.err, "same file"));
  BOOST_TEST(test_support::read_text(folder / "same.jsonl") == "{\"id\": 1, \"text\": \"a\"}\n");
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(command_line)

BOOST_AUTO_TEST_CASE(help_and_version_are_a_success) {
  const auto help = run_troupe({});
  BOOST_TEST(help.exit_code == 0);
  BOOST_TEST(contains(help.out, "tokenize"));
  BOOST_TEST(run_troupe({"--help"}).out == help.out);
  BOOST_TEST(contains(run_troupe({"--version"}).out, "troupe "));
  const auto verb_help = run_troupe({"tokenize", "--help"});
  BOOST_TEST(verb_help.exit_code == 0);
  BOOST_TEST(contains(verb_help.out, "bytes_hex"));
}

BOOST_AUTO_TEST_CASE(usage_errors_are_2_and_on_standard_error) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"nonsense"}, {"tokenize", "--nonsense"}, {"tokenize", "a", "b", "c"}}) {
    const auto run = run_troupe(arguments);
    BOOST_TEST(run.exit_code == 2);
    BOOST_TEST(run.out == "");
    BOOST_TEST(contains(run.err, arguments.back()));
  }
}

BOOST_AUTO_TEST_CASE(diagnostics_can_be_json) {
  const auto run = run_troupe({"tokenize", "--log-json", "/nonexistent"});
  BOOST_TEST(run.exit_code == 2);
  const auto line = nlohmann::json::parse(run.err);
  BOOST_TEST(line["level"] == "error");
  BOOST_TEST(contains(line["message"].get<std::string>(), "/nonexistent"));
}

BOOST_AUTO_TEST_SUITE_END()
