#include "runtime/model/safetensors.hpp"
#include "tests/process/troupe_process.hpp"
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <tuple>

using namespace process_test;

namespace {

constexpr const char* lighthouse =
    "<｜begin▁of▁sentence｜><｜User｜>What is the meaning of \"lighthouse\"?<｜Assistant｜></think>";
constexpr const char* lighthouse_answer =
    "\"lighthouse\" is a noun that means: a thick-walled cylindrical body of water.";

// Greedy tokens of the PyTorch reference for a case of tests/data/model/golden, up to the first near tie.
std::vector<std::int32_t> golden_greedy(const std::string& test_case, std::size_t& clear) {
  const troupe::safetensors_file file(data_file("model/golden/" + test_case + ".safetensors"));
  const troupe::host_tensor* tokens = file.find("raw.greedy.tokens");
  const auto margins = troupe::read_f32(*file.find("raw.greedy.margin"));
  std::vector<std::int32_t> ids(tokens->bytes.size() / 4);
  std::memcpy(ids.data(), tokens->bytes.data(), tokens->bytes.size());
  clear = 0;
  while (clear < margins.size() && margins[clear] > 0.01f)
    ++clear;
  return ids;
}

std::string folder_with_model(const temporary_folder& folder) {
  const std::string copy = folder / "model";
  std::filesystem::copy(std::string(TROUPE_SOURCE_DIR) + "/models/tiny-v41", copy);
  return copy;
}

} // namespace

BOOST_AUTO_TEST_SUITE(generate_verb)

BOOST_AUTO_TEST_CASE(without_a_prompt_the_embedded_model_shows_itself) {
  const auto run = run_troupe({"generate"});
  BOOST_TEST(run.exit_code == 0);
  BOOST_TEST(run.out == std::string(lighthouse) + lighthouse_answer + "\n");
  BOOST_TEST(run.err == "");
}

BOOST_AUTO_TEST_CASE(greedy_tokens_are_those_of_the_reference) {
  for (const auto& [name, text] :
       {std::pair("chat_lighthouse", lighthouse),
        std::pair("chat_json",
                  "<｜begin▁of▁sentence｜><｜User｜>Describe \"river\" as JSON.<｜Assistant｜></think>")}) {
    std::size_t clear = 0;
    const auto expected = golden_greedy(name, clear);
    const auto run = run_troupe({"generate", "--raw", text, "--temperature", "0", "--ignore-eos", "--max-tokens", "48",
                                 "--roundings", "off", "--json"});
    BOOST_TEST(run.exit_code == 0);
    const auto ids = json_lines(run.out).at(0)["token_ids"].get<std::vector<std::int32_t>>();
    BOOST_REQUIRE(ids.size() == 48u);
    BOOST_TEST(clear >= 10u);
    for (std::size_t i = 0; i < clear; ++i)
      BOOST_TEST(ids[i] == expected[i]);
  }
}

BOOST_AUTO_TEST_CASE(a_result_line_has_every_field) {
  const auto run = run_troupe({"generate", "--raw", lighthouse, "--temperature", "0", "--json", "--top-logprobs", "2",
                               "--prompt-logprobs", "--seq-seed", "42"});
  const auto line = json_lines(run.out).at(0);
  BOOST_TEST(line["id"] == "0");
  BOOST_TEST(line["index"] == 0);
  BOOST_TEST(line["text"] == lighthouse_answer);
  BOOST_TEST(line["finish_reason"] == "stop");
  BOOST_TEST(line["stop"] == 1);
  BOOST_TEST(line["seq_seed"] == 42);
  BOOST_TEST(line["prompt_tokens"] == 15);
  BOOST_TEST(line["prompt_logprobs"].size() == 14u);
  const std::size_t tokens = line["token_ids"].size();
  BOOST_TEST(line["logprobs"].size() == tokens);
  BOOST_TEST(line["top_logprobs"].size() == tokens);
  BOOST_TEST(line["top_logprobs"][0].size() == 2u);
  BOOST_TEST(line["top_logprobs"][0][0][0] == line["token_ids"][0]); // greedy: the likeliest is the chosen one
  BOOST_TEST(line["error"].is_null());
  BOOST_TEST(line["usage"]["ttft_ms"].get<double>() > 0);
}

BOOST_AUTO_TEST_CASE(plain_text_gets_bos_and_raw_text_does_not) {
  const auto plain = json_lines(run_troupe({"generate", "<｜User｜>", "--max-tokens", "1", "--json"}).out).at(0);
  const auto raw = json_lines(run_troupe({"generate", "<｜User｜>", "--raw", "--max-tokens", "1", "--json"}).out).at(0);
  BOOST_TEST(plain["prompt_tokens"].get<int>() > 2);
  BOOST_TEST(raw["prompt_tokens"] == 1);
}

BOOST_AUTO_TEST_CASE(prompts_come_from_arguments_files_and_ids_in_this_order) {
  const temporary_folder folder;
  test_support::write_text(folder / "prompt.txt", "def main():");
  const auto run = run_troupe({"generate", "class A:", "--prompt-file", folder / "prompt.txt", "--ids", "0,300,301",
                               "--max-tokens", "4", "--temperature", "0", "--json", "--n", "2"});
  BOOST_TEST(run.exit_code == 0);
  const auto lines = json_lines(run.out);
  BOOST_REQUIRE(lines.size() == 6u);
  for (std::size_t i = 0; i < 6; ++i) {
    BOOST_TEST(lines[i]["id"] == std::to_string(i / 2));
    BOOST_TEST(lines[i]["index"] == static_cast<int>(i % 2));
  }
  BOOST_TEST(lines[4]["prompt_tokens"] == 3);
  const auto alone =
      json_lines(run_troupe({"generate", "def main():", "--max-tokens", "4", "--temperature", "0", "--json"}).out)
          .at(0);
  BOOST_TEST(lines[2]["token_ids"] == alone["token_ids"]);
}

BOOST_AUTO_TEST_CASE(seeds_make_runs_equal_and_their_absence_does_not) {
  const std::vector<std::string> command{"generate", "The", "--max-tokens", "24", "--json"};
  const auto tokens = [&](std::vector<std::string> more) {
    std::vector<std::string> all = command;
    all.insert(all.end(), more.begin(), more.end());
    return json_lines(run_troupe(all).out).at(0)["token_ids"].dump();
  };
  const std::string first = tokens({"--seq-seed", "7"});
  BOOST_TEST(tokens({"--seq-seed", "7"}) == first);
  BOOST_TEST(tokens({"--seq-seed", "7", "--engines", "2", "--ep", "2", "--threads", "1", "--no-chunked-prefill"}) ==
             first);
  BOOST_TEST(tokens({"--seq-seed", "8"}) != first);
  BOOST_TEST(tokens({"--seed", "1"}) == tokens({"--seed", "1"}));
  BOOST_TEST(tokens({}) != tokens({}));
}

BOOST_AUTO_TEST_CASE(sampling_flags_reach_the_sampler) {
  const std::vector<std::string> base{"generate", "--raw", lighthouse, "--temperature", "0", "--json"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return json_lines(run_troupe(more).out).at(0);
  };
  BOOST_TEST(with({"--stop", "noun", "--stop", "means"})["text"] == "\"lighthouse\" is a ");
  BOOST_TEST(with({"--stop", "noun"})["stop"] == "noun");
  BOOST_TEST(with({"--max-tokens", "3"})["finish_reason"] == "length");
  const auto plain = with({});
  const auto second = plain["token_ids"][1].get<int>();
  const auto stopped = with({"--stop-token-ids", std::to_string(second)});
  BOOST_TEST(stopped["token_ids"].size() == 2u);
  BOOST_TEST(stopped["stop"] == second);
  BOOST_TEST(with({"--stop-token-ids", std::to_string(second), "--min-tokens", "5"})["token_ids"].size() >= 5u);
  const auto biased = with({"--logit-bias", "300=1000", "--max-tokens", "3"});
  BOOST_TEST(biased["token_ids"].dump() == "[300,300,300]");
  BOOST_TEST(with({"--no-logprobs"})["logprobs"].empty());
}

BOOST_AUTO_TEST_CASE(one_bad_prompt_leaves_the_others_alone) {
  std::string longest = "0";
  for (int i = 0; i < 100; ++i)
    longest += ",300";
  const auto run = run_troupe({"generate", "--ids", "0,300", "--ids", longest, "--ids", "0,99999", "--max-tokens", "2",
                               "--max-model-len", "64", "--json"});
  BOOST_TEST(run.exit_code == 1);
  const auto lines = json_lines(run.out);
  BOOST_REQUIRE(lines.size() == 3u);
  BOOST_TEST(lines[0]["error"].is_null());
  BOOST_TEST(lines[0]["token_ids"].size() == 2u);
  BOOST_TEST(lines[1]["error"]["code"] == "prompt_too_long");
  BOOST_TEST(contains(lines[1]["error"]["message"].get<std::string>(), "101"));
  BOOST_TEST(contains(lines[1]["error"]["message"].get<std::string>(), "64"));
  BOOST_TEST(contains(lines[2]["error"]["message"].get<std::string>(), "99999"));
}

BOOST_AUTO_TEST_CASE(empty_and_invalid_text_is_refused_with_a_reason) {
  const auto empty = run_troupe({"generate", ""});
  BOOST_TEST(empty.exit_code == 1);
  BOOST_TEST(contains(empty.err, "empty"));
  const auto invalid = run_troupe({"generate", "a\xff"});
  BOOST_TEST(invalid.exit_code == 1);
  BOOST_TEST(contains(invalid.err, "UTF-8"));
}

BOOST_AUTO_TEST_CASE(parameters_out_of_range_are_usage_errors) {
  for (const auto& [flag, value, key] :
       {std::tuple("--temperature", "-1", "temperature"), std::tuple("--top-p", "0", "top_p"),
        std::tuple("--top-k", "0", "top_k"), std::tuple("--min-p", "2", "min_p"),
        std::tuple("--max-tokens", "0", "max_tokens"), std::tuple("--n", "0", "n = 0"),
        std::tuple("--ids", "0,x", "--ids"), std::tuple("--logit-bias", "7", "--logit-bias"),
        std::tuple("--stop-token-ids", "1;2", "--stop-token-ids"), std::tuple("--max-tokens", "many", "max-tokens")}) {
    const auto run = run_troupe({"generate", "x", flag, value});
    BOOST_TEST(run.exit_code == 2, flag);
    BOOST_TEST(contains(run.err, key), run.err);
    BOOST_TEST(contains(run.err, value), run.err);
  }
}

BOOST_AUTO_TEST_CASE(a_full_disk_is_an_error) {
  process_options options;
  options.stdout_path = "/dev/full";
  const auto run = run_troupe({"generate", "x", "--max-tokens", "2"}, options);
  BOOST_TEST(run.exit_code == 1);
  BOOST_TEST(contains(run.err, "standard output: writing failed: No space left on device"));
}

BOOST_AUTO_TEST_CASE(damaged_models_are_refused_by_name) {
  const auto missing = run_troupe({"generate", "--model", "/nonexistent/model", "x"});
  BOOST_TEST(missing.exit_code == 2);
  BOOST_TEST(contains(missing.err, "/nonexistent/model"));

  const temporary_folder folder;
  const std::string model = folder_with_model(folder);
  const std::string weights = model + "/model-00001-of-00001.safetensors";
  const auto size = std::filesystem::file_size(weights);
  std::filesystem::resize_file(weights, size - 1000);
  const auto truncated = run_troupe({"generate", "--model", model, "x"});
  BOOST_TEST(truncated.exit_code == 2);
  BOOST_TEST(contains(truncated.err, "model-00001-of-00001.safetensors"));

  std::filesystem::remove(weights);
  BOOST_TEST(run_troupe({"generate", "--model", model, "x"}).exit_code == 2);

  test_support::write_text(model + "/config.json", "{\"hidden_size\": 1}");
  const auto config = run_troupe({"generate", "--model", model, "x"});
  BOOST_TEST(config.exit_code == 2);
  BOOST_TEST(contains(config.err, "config.json"));

  test_support::write_text(model + "/config.json", "");
  BOOST_TEST(run_troupe({"generate", "--model", model, "x"}).exit_code == 2);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(chat_verb)

BOOST_AUTO_TEST_CASE(piped_turns_are_answered_one_a_line) {
  const auto run =
      troupe_reading("What is the meaning of \"lighthouse\"?\n\n/exit\nnever read\n", {"chat", "--temperature", "0"});
  BOOST_TEST(run.exit_code == 0);
  BOOST_TEST(run.out == std::string(lighthouse_answer) + "\n");
}

BOOST_AUTO_TEST_CASE(c13_generate_batch_and_chat_draw_the_same_text_with_one_seed) {
  const std::string question = "What is the meaning of \"lighthouse\"?";
  const nlohmann::json line{{"id", "a"},
                            {"messages", {{{"role", "user"}, {"content", question}}}},
                            {"params", {{"seq_seed", 77}, {"temperature", 1.2}, {"max_tokens", 24}}}};
  const std::vector<std::string> params{"--temperature", "1.2", "--max-tokens", "24"};
  const auto with = [&](std::vector<std::string> command, const char* seed) {
    command.insert(command.end(), params.begin(), params.end());
    command.insert(command.end(), {"--seq-seed", seed});
    return command;
  };
  const auto generated = [&](const char* seed) {
    return json_lines(run_troupe(with({"generate", "--raw", lighthouse, "--json"}, seed)).out)
        .at(0)["text"]
        .get<std::string>();
  };
  const std::string text = generated("77");
  BOOST_TEST(text != generated("78")); // it is drawn
  BOOST_TEST(json_lines(troupe_reading(line.dump() + "\n", {"batch", "-", "-"}).out).at(0)["text"] == text);
  BOOST_TEST(troupe_reading(question + "\n", with({"chat"}, "77")).out == text + "\n");
}

BOOST_AUTO_TEST_CASE(a_conversation_is_remembered_until_reset) {
  // The model was trained on single questions; a second turn sees the first, so its prompt, and here its answer,
  // differs.
  const std::string question = "Make a record: Ada, 36, from Lima.\n";
  const auto run = troupe_reading(question + question + "/reset\n" + question, {"chat", "--temperature", "0", "-v"});
  BOOST_TEST(run.exit_code == 0);
  std::istringstream lines(run.out);
  std::string first, second, third;
  std::getline(lines, first);
  std::getline(lines, second);
  std::getline(lines, third);
  BOOST_TEST(!first.empty());
  BOOST_TEST(first == third);
  const auto as_generated =
      run_troupe({"generate", "--raw", "--temperature", "0", "--json",
                  "<｜begin▁of▁sentence｜><｜User｜>Make a record: Ada, 36, from Lima.<｜Assistant｜></think>" + first +
                      "<｜end▁of▁sentence｜><｜User｜>Make a record: Ada, 36, from Lima.<｜Assistant｜></think>"});
  BOOST_TEST(json_lines(as_generated.out).at(0)["text"] == second);
}

BOOST_AUTO_TEST_CASE(a_conversation_that_is_too_long_goes_on_after_reset) {
  std::string words;
  for (int i = 0; i < 200; ++i)
    words += "word ";
  const auto run =
      troupe_reading(words + "\n/reset\nWhat is 2 + 3?\n", {"chat", "--temperature", "0", "--max-model-len", "128"});
  BOOST_TEST(run.exit_code == 1);
  BOOST_TEST(contains(run.err, "/reset"));
  BOOST_TEST(std::count(run.out.begin(), run.out.end(), '\n') == 1);
}

BOOST_AUTO_TEST_CASE(ctrl_c_at_the_prompt_ends_the_session) {
  process_options options;
  options.input = "What is 2 + 3?\n";
  options.keep_input_open = true;
  bool sent = false;
  options.watch = [&](pid_t pid, const std::string& out, const std::string&) {
    if (!sent && contains(out, "\n")) {
      ::kill(pid, SIGINT);
      sent = true;
    }
  };
  BOOST_TEST(run_troupe({"chat", "--temperature", "0"}, options).exit_code == 130);
}

BOOST_AUTO_TEST_SUITE_END()
