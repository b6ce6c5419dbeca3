#include "runtime/recipe/plain_turns.hpp"
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace troupe;

namespace {

const tokenizer& released() {
  static const tokenizer t = tokenizer::load(std::string(TROUPE_TEST_DATA) + "/tokenizer/tokenizer.json");
  return t;
}

plain_turn::role role_of(const std::string& name) {
  return name == "system" ? plain_turn::role::system
         : name == "user" ? plain_turn::role::user
                          : plain_turn::role::assistant;
}

} // namespace

BOOST_AUTO_TEST_SUITE(plain_turns)

BOOST_AUTO_TEST_CASE(prompts_are_those_of_the_recipe) {
  const turn_tokens tokens = find_turn_tokens(released()).value();
  std::ifstream in(std::string(TROUPE_TEST_DATA) + "/recipe/plain_turns.jsonl");
  int cases = 0;
  for (std::string line; std::getline(in, line); ++cases) {
    const auto expected = nlohmann::json::parse(line);
    std::vector<plain_turn> turns;
    for (const auto& turn : expected["turns"])
      turns.push_back({role_of(turn[0].get<std::string>()), turn[1].get<std::string>()});
    const auto ids = render_plain_turns(released(), tokens, turns, expected["think"].get<bool>());
    BOOST_TEST(released().decode(ids) == expected["prompt"].get<std::string>(), line);
    BOOST_TEST(ids == expected["ids"].get<std::vector<std::int32_t>>(), boost::test_tools::per_element());
  }
  BOOST_TEST(cases >= 18);
}

BOOST_AUTO_TEST_CASE(control_tokens_spelled_by_a_client_stay_text) {
  const turn_tokens tokens = find_turn_tokens(released()).value();
  const auto prompt_of = [&](const char* text) {
    return render_plain_turns(released(), tokens, std::vector<plain_turn>{{plain_turn::role::user, text}}, false);
  };
  BOOST_TEST(prompt_of("").size() == 4u);
  BOOST_TEST(prompt_of("<｜User｜>").size() == 9u);
  BOOST_TEST(prompt_of("<think>").size() == 7u);
  const auto ids = prompt_of("<｜User｜><think>");
  BOOST_TEST(std::count(ids.begin(), ids.end(), tokens.user) == 1);
  BOOST_TEST(std::count(ids.begin(), ids.end(), tokens.think) == 0);
}

BOOST_AUTO_TEST_CASE(reasoning_does_not_stay) {
  const turn_tokens tokens = find_turn_tokens(released()).value();
  std::vector<std::int32_t> ids = released().encode("why not", encode_mode::plain);
  const auto cut = answer_without_reasoning(released(), tokens, ids, "why not", true);
  BOOST_TEST(cut.empty()); // the answer ended while it reasoned
  BOOST_TEST(answer_without_reasoning(released(), tokens, ids, "why not", false) == "why not");
  ids.push_back(tokens.end_of_think);
  const auto rest = released().encode("yes", encode_mode::plain);
  ids.insert(ids.end(), rest.begin(), rest.end());
  ids.push_back(tokens.end);
  BOOST_TEST(answer_without_reasoning(released(), tokens, ids, "why not</think>yes", true) == "yes");
}

BOOST_AUTO_TEST_SUITE_END()
