// make-model and check-model as commands.
#include "tests/process/troupe_process.hpp"
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <csignal>
#include <cstring>
#include <filesystem>

namespace fs = std::filesystem;
using namespace process_test;

namespace {

// A small model: the embedded one's configuration with generated weights.
std::vector<std::string> small_model(const std::string& folder) {
  return {"make-model",   folder, "--config",       std::string(TROUPE_SOURCE_DIR) + "/models/tiny-v41/config.json",
          "--experts",    "4",    "--engram-vocab", "100",
          "--shard-size", "2"};
}

// The embedded model without its drafter, as a release of that kind or as a conversion that left the drafter out.
void write_model_without_drafter(const fs::path& to, bool config_knows) {
  const fs::path from = fs::path(TROUPE_SOURCE_DIR) / "models/tiny-v41";
  fs::create_directories(to);
  fs::copy(from / "tokenizer.json", to / "tokenizer.json");
  auto config = nlohmann::ordered_json::parse(test_support::read_text(from / "config.json"));
  if (config_knows) {
    auto& text = config["text_config"];
    auto& ratios = text["compress_ratios"];
    for (int drafters = text["num_nextn_predict_layers"]; drafters > 0; --drafters)
      ratios.erase(ratios.size() - 1);
    text["num_nextn_predict_layers"] = 0;
  }
  test_support::write_text(to / "config.json", config.dump());

  const std::string image = test_support::read_text(from / "model-00001-of-00001.safetensors");
  std::uint64_t length = 0;
  std::memcpy(&length, image.data(), sizeof length); // little endian, like the machines that this runs on
  const auto header = nlohmann::ordered_json::parse(image.substr(8, length));
  nlohmann::ordered_json kept, index{{"metadata", {{"total_size", 0}}}};
  std::string bytes;
  for (const auto& [name, tensor] : header.items()) {
    if (name.starts_with("mtp."))
      continue;
    kept[name] = tensor;
    if (name == "__metadata__")
      continue;
    const std::size_t first = tensor["data_offsets"][0], last = tensor["data_offsets"][1];
    kept[name]["data_offsets"] = {bytes.size(), bytes.size() + last - first};
    bytes.append(image, 8 + length + first, last - first);
    index["weight_map"][name] = "model-00001-of-00001.safetensors";
  }
  index["metadata"]["total_size"] = bytes.size();
  std::string head = kept.dump();
  head.resize((head.size() + 7) / 8 * 8, ' ');
  const std::uint64_t size = head.size();
  test_support::write_text(to / "model-00001-of-00001.safetensors",
                           std::string(reinterpret_cast<const char*>(&size), sizeof size) + head + bytes);
  test_support::write_text(to / "model.safetensors.index.json", index.dump());
}

} // namespace

BOOST_AUTO_TEST_SUITE(model_folder_verbs)

BOOST_AUTO_TEST_CASE(a_checkpoint_without_drafter_runs_and_says_so) {
  for (const bool config_knows : {true, false}) {
    const temporary_folder folder;
    const std::string model = folder / "plain";
    write_model_without_drafter(model, config_knows);
    const auto checked = run_troupe({"check-model", model});
    BOOST_TEST(checked.exit_code == 0, checked.err);
    BOOST_TEST(contains(checked.out, "drafter of 0 layers"), checked.out);
    const auto tokens = [](const std::vector<std::string>& options) {
      std::vector<std::string> arguments{"generate", "--seed", "5", "--max-tokens", "24", "--ids", "0,17,99", "--json"};
      arguments.insert(arguments.end(), options.begin(), options.end());
      const auto run = run_troupe(arguments);
      BOOST_TEST(run.exit_code == 0, run.err);
      const bool says = std::ranges::count(options, "--model") > 0 && std::ranges::count(options, "--nextn") == 0;
      BOOST_TEST(contains(run.err, "the checkpoint has no drafter: no speculation") == says, run.err);
      return json_lines(run.out).at(0)["token_ids"];
    };
    const auto without = tokens({"--model", model});
    BOOST_TEST(without.size() == 24u);
    BOOST_TEST(without == tokens({}));
    BOOST_TEST(without == tokens({"--model", model, "--nextn", "0"}));
    const auto refused = run_troupe({"generate", "--model", model, "--nextn", "2", "--ids", "0"});
    BOOST_TEST(refused.exit_code == 2);
    BOOST_TEST(contains(refused.err, "nextn = 2"), refused.err);
    BOOST_TEST(contains(refused.err, "the checkpoint has no drafter"), refused.err);
  }
}

BOOST_AUTO_TEST_CASE(a_made_model_is_complete_and_runs) {
  const temporary_folder folder;
  const std::string model = folder / "made";
  const auto made = run_troupe(small_model(model));
  BOOST_TEST(made.exit_code == 0);
  BOOST_TEST(made.err == "");
  BOOST_TEST(contains(made.out, "layer 3 as 4: ratio 1, own compressed KV, own selection, candidate source"), made.out);
  const auto checked = run_troupe({"check-model", model, "--device-memory", "1"});
  BOOST_TEST(checked.exit_code == 0);
  BOOST_TEST(contains(checked.out, "\ncomplete\n"), checked.out);
  const auto generated = run_troupe(
      {"generate", "--model", model, "--temperature", "0", "--max-tokens", "4", "--ids", "0,17,99", "--json"});
  BOOST_TEST(generated.exit_code == 0);
  const auto result = json_lines(generated.out).at(0);
  BOOST_TEST(result["token_ids"].size() == 4u);
  for (const auto& p : result["logprobs"]) {
    BOOST_TEST(p.get<double>() < 0);
    BOOST_TEST(p.get<double>() > -10);
  }
  const auto again = run_troupe(small_model(model));
  BOOST_TEST(again.exit_code == 2);
  BOOST_TEST(contains(again.err, "made: is there already and is not an empty folder; name a new one"), again.err);
}

BOOST_AUTO_TEST_CASE(the_index_of_a_full_size_model) {
  const temporary_folder folder;
  const std::string model = folder / "flash", index = model + "/model.safetensors.index.json";
  BOOST_TEST(run_troupe({"make-model", model, "--full", "--index-only"}).exit_code == 0);
  const std::vector<std::string> check{"check-model", model, "--index-only",    "--json",
                                       "--ep",        "8",   "--device-memory", "139"};
  const auto complete = run_troupe(check);
  BOOST_TEST(complete.exit_code == 0);
  BOOST_TEST(complete.err == "");
  const auto report = json_lines(complete.out).at(0);
  BOOST_TEST(report["complete"] == true);
  BOOST_TEST(report["tensors"] == 95819);
  BOOST_TEST(report["memory"]["block_bytes"] == 114048);
  BOOST_TEST(report["memory"]["slot_bytes"] == 3339072);
  BOOST_TEST(report["memory"]["experts_per_layer"] == 48);
  BOOST_TEST(report["memory"]["kv_blocks"].get<std::int64_t>() > 0);

  auto map = nlohmann::json::parse(test_support::read_text(index));
  for (int e = 0; e < 20; ++e)
    map["weight_map"].erase("layers.3.ffn.experts." + std::to_string(e) + ".w2.scale");
  test_support::write_text(index, map.dump());
  const auto damaged = run_troupe(check);
  BOOST_TEST(damaged.exit_code == 2);
  BOOST_TEST(contains(damaged.err, "model.safetensors.index.json: the checkpoint has 20 faults, first: "
                                   "layers.3.ffn.experts.0.w2.scale: missing from the index; use files"),
             damaged.err);
  const auto faults = json_lines(damaged.out).at(0)["faults"];
  BOOST_TEST(faults.at(0)["count"] == 20);
  BOOST_TEST(faults.at(0)["names"].size() == 8u);
  const auto text = run_troupe({"check-model", model, "--index-only", "--max-names", "2"});
  BOOST_TEST(text.exit_code == 2);
  BOOST_TEST(contains(text.out, "  20 missing from the index:\n    layers.3.ffn.experts.0.w2.scale\n"
                                "    layers.3.ffn.experts.1.w2.scale\n    and 18 more\n"),
             text.out);
}

BOOST_AUTO_TEST_CASE(bad_input_is_named) {
  const temporary_folder folder;
  const auto refused = [](const std::vector<std::string>& arguments, const std::string& part) {
    const auto run = run_troupe(arguments);
    BOOST_TEST(run.exit_code == 2);
    BOOST_TEST(run.out == "");
    BOOST_TEST(contains(run.err, part), run.err);
  };
  const std::string made = folder / "made";
  refused({"make-model", made, "--layers", "3"}, "--layers = 3: not between");
  refused({"make-model", made, "--keep-layers", "0,3"}, "layer 3 shares with layer 2");
  refused({"make-model", made, "--keep-layers", "0", "--layers", "8"}, "give one of them");
  refused({"make-model", made, "--vocab", "8000"}, "--vocab = 8000: the tokenizer has 8192 ids");
  refused({"make-model", made, "--set", "index_topk"}, "this is not KEY=VALUE");
  refused({"make-model", made, "--set", "swiglu_limit=-1"}, "text_config.swiglu_limit = -1");
  refused({"make-model", made, "--set", "hidden_act=\"gelu\""}, "only \"silu\" is supported");
  refused({"make-model", made, "--tokenizer", folder / "absent"}, "absent");
  refused({"make-model", made, "--config", folder / "absent"}, "absent: cannot be opened");
  // 12 TB of Engram rows
  refused({"make-model", made, "--engram-vocab", "1000000000"}, "bytes are available; free space");
  BOOST_TEST(!fs::exists(made));
  refused({"check-model", made}, "config.json: cannot be opened");
  const std::string tiny = std::string(TROUPE_SOURCE_DIR) + "/models/tiny-v41";
  refused({"check-model", tiny, "--ep", "25"}, "--ep = 25: there are 24 routed experts to share");
  refused({"check-model", tiny, "--max-model-len", "16385"}, "the model has 16384 positions");
}

BOOST_AUTO_TEST_CASE(an_interrupted_one_is_removed) {
  const temporary_folder folder;
  const std::string model = folder / "made";
  bool sent = false;
  process_options options;
  options.watch = [&](pid_t pid, const std::string&, const std::string&) {
    if (!sent && fs::exists(model)) {
      ::kill(pid, SIGINT);
      sent = true;
    }
  };
  const auto run = run_troupe({"make-model", model}, options); // 3.4 GB, of which little is written
  BOOST_TEST(run.exit_code == 130);
  BOOST_TEST(contains(run.err, "interrupted"), run.err);
  BOOST_TEST(!fs::exists(model));
}

BOOST_AUTO_TEST_SUITE_END()
