#include "runtime/model/safetensors.hpp"
#include "tests/process/troupe_process.hpp"
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <sys/stat.h>

using namespace process_test;

namespace {

std::vector<std::int32_t> i32_of(const troupe::host_tensor& t) {
  std::vector<std::int32_t> v(t.bytes.size() / 4);
  std::memcpy(v.data(), t.bytes.data(), t.bytes.size());
  return v;
}

} // namespace

BOOST_AUTO_TEST_SUITE(score_verb)

BOOST_AUTO_TEST_CASE(log_probabilities_and_logits_are_those_of_the_reference) {
  const temporary_folder folder;
  std::string input;
  const std::vector<std::string> cases{"chat_lighthouse", "code_130", "doc_257"};
  for (const std::string& name : cases) {
    const troupe::safetensors_file golden(data_file("model/golden/" + name + ".safetensors"));
    input += nlohmann::json{{"id", name},
                            {"prompt_ids", i32_of(*golden.find("ids"))},
                            {"rows", i32_of(*golden.find("rows"))}}
                 .dump() +
             "\n";
  }
  test_support::write_text(folder / "in.jsonl", input);
  const auto run = run_troupe({"score", folder / "in.jsonl", folder / "out.jsonl", "--logits",
                               folder / "rows.safetensors", "--roundings", "off"});
  BOOST_TEST(run.exit_code == 0);
  BOOST_TEST(run.err == "");

  const troupe::safetensors_file logits(folder / "rows.safetensors");
  const auto lines = json_lines(test_support::read_text(folder / "out.jsonl"));
  BOOST_TEST(lines.size() == cases.size());
  for (const auto& line : lines) {
    const auto name = line["id"].get<std::string>();
    const troupe::safetensors_file golden(data_file("model/golden/" + name + ".safetensors"));
    const auto expected = troupe::read_f32(*golden.find("raw.prompt_logprobs"));
    BOOST_REQUIRE(line["prompt_logprobs"].size() == expected.size());
    BOOST_TEST(line["prompt_tokens"].get<std::size_t>() == expected.size() + 1);
    double sum = 0, worst = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double got = line["prompt_logprobs"][i].get<double>();
      worst = std::max(worst, std::abs(got - static_cast<double>(expected[i])));
      sum -= got;
    }
    BOOST_TEST(worst < 4e-3);
    BOOST_TEST(line["nll"].get<double>() == sum / static_cast<double>(expected.size()),
               boost::test_tools::tolerance(1e-6));
    BOOST_TEST(line["ppl"].get<double>() == std::exp(line["nll"].get<double>()), boost::test_tools::tolerance(1e-9));

    const troupe::host_tensor* rows = logits.find(name + ".logits");
    BOOST_REQUIRE(rows != nullptr);
    const troupe::host_tensor* golden_rows = golden.find("raw.logits");
    BOOST_TEST((rows->shape == golden_rows->shape));
    const auto got = troupe::read_f32(*rows), wanted = troupe::read_f32(*golden_rows);
    float difference = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i)
      difference = std::max(difference, std::abs(got[i] - wanted[i]));
    BOOST_TEST(difference < 2e-3f);
  }
}

BOOST_AUTO_TEST_CASE(logits_never_replace_the_input_the_output_or_a_device) {
  const temporary_folder folder;
  const std::string input = "{\"id\": \"a\", \"prompt\": \"def\", \"rows\": [0]}\n";
  test_support::write_text(folder / "in.jsonl", input);
  std::filesystem::create_symlink("in.jsonl", folder / "link");
  BOOST_REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  for (const std::string name : {"in.jsonl", "link", "out.jsonl", "pipe", "absent/rows"}) {
    const auto run = run_troupe({"score", folder / "in.jsonl", folder / "out.jsonl", "--logits", folder / name});
    BOOST_TEST(run.exit_code == 2, name);
    BOOST_TEST(contains(run.err, folder / name), run.err);
  }
  BOOST_TEST(test_support::read_text(folder / "in.jsonl") == input);
  BOOST_TEST(std::filesystem::is_fifo(folder / "pipe"));
}

BOOST_AUTO_TEST_CASE(params_do_not_change_the_score) {
  const std::string plain = "{\"id\": \"a\", \"prompt\": \"def main():\"}\n";
  const std::string odd = "{\"id\": \"a\", \"prompt\": \"def main():\", \"params\": {\"temperature\": 3, \"n\": 4, "
                          "\"max_tokens\": 500, \"stop\": \"x\"}}\n";
  const auto first = troupe_reading(plain, {"score", "-", "-"});
  BOOST_TEST(first.exit_code == 0);
  BOOST_TEST(json_lines(first.out).size() == 1u);
  BOOST_TEST(troupe_reading(odd, {"score", "-", "-"}).out == first.out);
}

BOOST_AUTO_TEST_CASE(a_prompt_of_one_token_has_no_perplexity_and_bad_lines_fail_alone) {
  const temporary_folder folder;
  const auto run = troupe_reading(
      "{\"id\": \"one\", \"prompt_ids\": [0]}\nnonsense\n{\"id\": \"r\", \"prompt\": \"ab\", \"rows\": [100]}\n",
      {"score", "-", "-", "--logits", folder / "rows.safetensors"});
  BOOST_TEST(run.exit_code == 1);
  std::map<std::string, nlohmann::json> lines;
  for (const auto& line : json_lines(run.out))
    lines[line["id"].dump()] = line;
  BOOST_TEST(lines.size() == 3u);
  BOOST_TEST(lines["\"one\""]["nll"].is_null());
  BOOST_TEST(lines["\"one\""]["error"].is_null());
  BOOST_TEST(lines["null"]["line"] == 2);
  BOOST_TEST(contains(lines["\"r\""]["error"]["message"].get<std::string>(), "100"));
}

BOOST_AUTO_TEST_CASE(yoco_modes_are_compared) {
  std::string lines = "{\"id\": \"short\", \"prompt\": \"two words\"}\nnonsense\n{\"id\": \"long\", \"prompt_ids\": [0";
  for (int i = 1; i < 560; ++i)
    lines += ", " + std::to_string(300 + i * 37 % 7000);
  lines += "]}\n";
  const auto run = troupe_reading(lines, {"score", "-", "-", "--yoco-check", "--max-num-batched-tokens", "200"});
  BOOST_TEST(run.exit_code == 1); // for the line that is no request
  BOOST_TEST(json_lines(run.out).size() == 3u);
  for (const char* said :
       {"compact (keeps 140 rows) and mask: 2 of 2 prompts equal bit for bit, 1 of them longer than 140",
        "exact (keeps 521 rows) and off: 2 of 2 prompts equal bit for bit, 1 of them longer than 521"})
    BOOST_TEST(contains(run.err, said), run.err);
  BOOST_TEST(troupe_reading("{\"id\": \"a\", \"prompt\": \"b\"}\n", {"score", "-", "-", "--yoco-check"}).exit_code ==
             0);
}

BOOST_AUTO_TEST_SUITE_END()
