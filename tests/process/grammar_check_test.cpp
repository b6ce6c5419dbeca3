#include "tests/process/troupe_process.hpp"
#include <boost/test/unit_test.hpp>

using namespace process_test;

BOOST_AUTO_TEST_SUITE(grammar_check_verb)

BOOST_AUTO_TEST_CASE(verdicts_of_the_case_files) {
  for (const char* file : {"grammar/regex.jsonl", "grammar/ebnf.jsonl"}) {
    const std::string input = test_support::read_text(data_file(file));
    const auto run = troupe_reading(input, {"grammar", "check"});
    BOOST_TEST(run.exit_code == 0);
    BOOST_TEST(run.err == "");
    const auto expected = json_lines(input);
    const auto got = json_lines(run.out);
    BOOST_REQUIRE(got.size() == expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      BOOST_TEST(got[i]["id"] == expected[i]["id"]);
      BOOST_TEST(got[i]["refused"].is_null());
      BOOST_TEST(got[i]["compile_us"].is_number());
      BOOST_TEST(got[i]["mask_us_max"] >= got[i]["mask_us_p50"]);
      BOOST_REQUIRE(got[i]["cases"].size() == expected[i]["cases"].size());
      for (std::size_t c = 0; c < got[i]["cases"].size(); ++c)
        BOOST_TEST(got[i]["cases"][c]["verdict"] == expected[i]["cases"][c]["expect"], got[i]["id"]);
    }
  }
}

BOOST_AUTO_TEST_CASE(refusals_and_bad_lines) {
  const auto run = troupe_reading("{\"id\":\"r\",\"kind\":\"regex\",\"source\":\"a(\",\"cases\":[{\"text\":\"a\"}]}\n"
                                  "{\"id\":\"k\",\"kind\":\"lark\",\"source\":\"a\"}\n"
                                  "{\"id\":\"s\",\"kind\":\"regex\"}\n"
                                  "{\"id\":\"j\",\"kind\":\"json_schema\",\"source\":\"{\\\"type\\\":\\\"null\\\"}\","
                                  "\"cases\":[{\"text\":\"null\"},{\"text\":\"1\"}]}\n",
                                  {"grammar", "check"});
  BOOST_TEST(run.exit_code == 1);
  const auto got = json_lines(run.out);
  BOOST_REQUIRE(got.size() == 4u);
  BOOST_TEST(got[0]["refused"].get<std::string>().starts_with("so_syntax: "));
  BOOST_TEST(got[0]["cases"].empty());
  BOOST_TEST(got[1]["error"]["message"].get<std::string>().find("\"lark\"") != std::string::npos);
  BOOST_TEST(got[2]["error"]["message"] == "source: a string is needed");
  BOOST_TEST(got[3]["cases"][0]["verdict"] == "accept");
  BOOST_TEST(got[3]["cases"][1]["verdict"] == "reject");
}

// The limit of time is one of complexity: there is no option to raise.
BOOST_AUTO_TEST_CASE(what_takes_too_long_is_too_complex) {
  const auto run = troupe_reading("{\"id\":\"t\",\"kind\":\"json_schema\",\"source\":\"{\\\"type\\\":\\\"string\\\","
                                  "\\\"pattern\\\":\\\"^(?:[ab]{1,15000})(?:()?){50000}$\\\"}\",\"cases\":[]}\n",
                                  {"grammar", "check"});
  BOOST_TEST(run.exit_code == 0);
  const auto got = json_lines(run.out);
  BOOST_REQUIRE(got.size() == 1u);
  BOOST_TEST(got[0]["refused"].get<std::string>().starts_with("so_too_complex: compiling it takes more than 2 s"));
}

BOOST_AUTO_TEST_SUITE_END()
