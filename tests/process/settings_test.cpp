#include "tests/process/troupe_process.hpp"
#include <boost/test/unit_test.hpp>

using namespace process_test;

namespace {

finished_process generate_with(const std::vector<std::string>& more,
                               const std::map<std::string, std::string>& environment = {}) {
  std::vector<std::string> arguments{"generate", "--ids", "0,300", "--max-tokens", "1", "-v"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  process_options options;
  options.environment = environment;
  return run_troupe(arguments, options);
}

void refused(const finished_process& run, const std::vector<std::string>& named) {
  BOOST_TEST(run.exit_code == 2);
  BOOST_TEST(run.out == "");
  for (const std::string& part : named)
    BOOST_TEST(contains(run.err, part), "\"" + part + "\" is missing in: " + run.err);
}

} // namespace

BOOST_AUTO_TEST_SUITE(engine_settings)

// The other parts of C21: what start-up takes is enough for the largest step (runtime/model/startup_test), and prompts
// are handed over with speculation on (actors/prompt_handoff_test).
BOOST_AUTO_TEST_CASE(c21_values_without_effect_are_refused_with_value_reason_and_remedy) {
  refused(generate_with({"--yoco", "full"}), {"--yoco = full", "use off, mask, compact or exact"});
  refused(generate_with({"--yoco", "compact", "--yoco-keep", "139"}),
          {"yoco_keep = 139", "window (128)", "take back (12)", "140 or more"});
  refused(generate_with({"--yoco", "mask", "--yoco-keep", "0"}), {"--yoco-keep = 0", "from 1 to"});
  refused(generate_with({"--yoco", "off", "--yoco-keep", "140"}), {"--yoco-keep = 140", "no effect"});
  refused(generate_with({"--yoco", "exact", "--yoco-keep", "521"}), {"--yoco-keep = 521", "no effect"});
  refused(generate_with({"--roundings", "model", "--yoco-keep", "140"}), {"--yoco-keep = 140", "no effect"});
  refused(generate_with({"--nextn", "6"}), {"nextn = 6", "blocks of 5 tokens", "from 0 to 5"});
  refused(generate_with({"--nextn", "-1"}), {"--nextn = -1"});
  refused(generate_with({"--nextn", "0", "--verify", "rejection"}), {"verify = rejection", "no effect"});
  refused(generate_with({"--verify", "block"}), {"verify = block", "use coupled or rejection"});
  refused(generate_with({"--nextn", "0", "--varlen"}), {"varlen = true", "no effect"});
  refused(generate_with({"--nextn", "0", "--spec-curve", "curve.json"}), {"spec_curve = curve.json", "no effect"});
  refused(generate_with({"--spec-curve", ""}), {"--spec-curve", "no file is named"});
  const std::vector<std::pair<std::vector<std::string>, std::string>> without_curve{
      {{"--no-varlen"}, "no effect without varlen"},
      {{"--ep", "2"}, "no effect with ep = 2"},
      {{"--cp", "2"}, "no effect with cp = 2"}};
  for (auto [flags, why] : without_curve) {
    flags.insert(flags.end(), {"--spec-curve", "curve.json"});
    refused(generate_with(flags), {"spec_curve = curve.json", why, "leave"});
  }
  refused(generate_with({"--nextn", "0", "--confidence-temperature", "1.5"}),
          {"confidence_temperature = 1.5", "no effect"});
  refused(generate_with({"--group-sync"}), {"group_sync = true", "no effect with one engine"});
  refused(generate_with({"--snapshot-interval", "100"}), {"--snapshot-interval = 100", "multiple of 128"});
  refused(generate_with({"--no-prefix-cache", "--prefix-snapshots", "4"}), {"prefix_snapshots = 4", "no effect"});
  refused(generate_with({"--no-prefix-cache", "--snapshot-interval", "256"}), {"snapshot_interval = 256", "no effect"});
  refused(generate_with({"--prefill-fill-tokens", "600"}), {"prefill_fill_tokens = 600", "512"});
  refused(generate_with({"--ttft-bound-steps", "8"}),
          {"ttft_bound_steps = 8", "no effect while prefill_fill_tokens is 0", "give prefill_fill_tokens"});
  const std::vector<std::string> contradict{"--ttft-bound-steps = 0", "wait for no prefill_fill_tokens either",
                                            "contradict", "give 1 or more"};
  refused(generate_with({"--prefill-fill-tokens", "64", "--ttft-bound-steps", "0"}), contradict);
  refused(generate_with({"--ttft-bound-steps", "0", "--prefill-fill-tokens", "64"}), contradict);
  refused(generate_with({"--lookahead-tokens", "600"}), {"lookahead_tokens = 600", "512"});
  refused(generate_with({"--lookahead-tokens", "16", "--no-chunked-prefill"}),
          {"lookahead_tokens = 16", "no effect without chunked_prefill", "leave one of them out"});
  refused(generate_with({"--decode-steps-between", "0"}), {"--decode-steps-between = 0"});
  refused(generate_with({"--device", "cuda:0"}), {"--device = cuda:0", "this build has no such device"});
  refused(generate_with({"--device", "reference", "--threads", "2"}),
          {"threads = 2", "no effect with the device reference", "leave it out"});
  refused(generate_with({"--device", "toaster"}), {"--device = toaster"});
  // Without a plug-in, a driver or that many GPUs: one clear line, whatever this machine lacks.
  refused(generate_with({"--device", "cuda-reference:63"}), {"cuda"});
  refused(generate_with({"--roundings", "fp4"}), {"--roundings = fp4", "serving, model or off"});
  for (const char* flag : {"--engines", "--ep", "--cp", "--max-num-seqs"}) {
    refused(generate_with({flag, "0"}), {std::string(flag) + " = 0", "from 1 to"});
    refused(generate_with({flag, "2x"}), {std::string(flag) + " = 2x"});
  }
  refused(generate_with({"--max-num-batched-tokens", "2x"}), {"--max-num-batched-tokens = 2x", "from 128 to"});
  refused(generate_with({"--so-timeout", "0"}), {"--so-timeout = 0", "from 1 to 86400"});
  refused(generate_with({"--so-compilers", "65"}), {"--so-compilers = 65", "from 1 to 64"});
  refused(generate_with({"--so-cache-mib", "-1"}), {"--so-cache-mib = -1"});
  refused(generate_with({"--so-regex-nesting", "257"}), {"--so-regex-nesting = 257", "from 1 to 256"});
  refused(generate_with({"--so-compile-ms", "0"}), {"--so-compile-ms = 0", "from 1 to 86400000"});
  refused(generate_with({}, {{"DEEPINFER_SO_BUILDER_CPUS", "0"}}), {"DEEPINFER_SO_BUILDER_CPUS = 0", "from 1 to 64"});
  refused(generate_with({"--seed", "-1"}), {"--seed = -1"});
  refused(generate_with({"--model", ""}), {"--model: no folder is named", "leave the option out"});
  refused(generate_with({}, {{"TROUPE_MODEL", ""}}), {"environment: TROUPE_MODEL: no folder is named"});
  const auto score_with = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"score", "-", "-"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return troupe_reading("", arguments);
  };
  refused(score_with({"--yoco", "off"}),
          {"--yoco = off", "no effect", "every row", "leave it out, or give --yoco-check"});
  refused(score_with({"--yoco-keep", "200"}), {"--yoco-keep = 200", "no effect", "every row"});
  refused(score_with({"--yoco", "mask", "--yoco-check"}), {"--yoco = mask", "runs every mode", "leave it out"});
  refused(generate_with({"--stop", "a\xff"}), {"stop = \"a\uFFFD\"", "valid UTF-8"});
}

BOOST_AUTO_TEST_CASE(a_step_that_fills_no_block_is_refused_and_one_that_fills_it_is_not) {
  const temporary_folder folder;
  const std::string file = folder / "engine.toml";
  const std::string why = "the rows of a step do not fill one cache block, which has 128; give 128 or more";
  refused(generate_with({"--max-num-batched-tokens", "127"}), {"command line: --max-num-batched-tokens = 127: " + why});
  test_support::write_text(file, "[engine]\nmax_num_batched_tokens = 64\n");
  refused(generate_with({"--config", file}), {file + ":2: engine.max_num_batched_tokens = 64: " + why});
  const auto checked = run_troupe(
      {"check-model", std::string(TROUPE_SOURCE_DIR) + "/models/tiny-v41", "--max-num-batched-tokens", "127"});
  BOOST_TEST(checked.exit_code == 2);
  BOOST_TEST(contains(checked.err, "128"), checked.err);
  BOOST_TEST(generate_with({"--max-num-batched-tokens", "128"}).exit_code == 0);
}

BOOST_AUTO_TEST_CASE(limits_of_constraints_reach_their_compilation) {
  const std::string request = R"j({"id":"r","prompt":"x","params":{"max_tokens":2,"temperature":0,)j"
                              R"j("so_args":{"schema_type":"regex","schema":"((((ab))))"}}})j"
                              "\n";
  const auto answer = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"batch", "-", "-"});
    return troupe_reading(request, more).out;
  };
  BOOST_TEST(contains(answer({}), R"("error":null)"));
  BOOST_TEST(contains(answer({"--so-regex-nesting", "3"}), "groups nested more than 3 deep"));
  BOOST_TEST(contains(answer({"--so-states", "1"}), "more than 1 automaton states"));
  BOOST_TEST(contains(answer({"--so-rule-states", "1"}), "more than 1 automaton states"));
}

BOOST_AUTO_TEST_CASE(negative_forms_and_supported_values_are_accepted) {
  const auto run = generate_with({"--yoco", "off", "--nextn", "0", "--verify", "coupled", "--no-varlen", "--no-async",
                                  "--no-prefix-cache", "--device", "reference", "--max-num-seqs", "2", "--kv-blocks",
                                  "9", "--max-model-len", "512", "--seed", "18446744073709551615"});
  BOOST_TEST(run.exit_code == 0);
  BOOST_TEST(contains(run.err, "reference"));
  BOOST_TEST(contains(run.err, "0 of them for the prefix cache"));
  const auto positive = generate_with({"--async", "--prefix-cache", "--prefix-snapshots", "5", "--snapshot-interval",
                                       "256", "--prefill-fill-tokens", "64", "--ttft-bound-steps", "8",
                                       "--lookahead-tokens", "16", "--ageing-steps", "100"});
  BOOST_TEST(positive.exit_code == 0);
  BOOST_TEST(contains(positive.err, "5 of them for the prefix cache"), positive.err);
  const auto drafting = generate_with({"--nextn", "4", "--verify", "rejection", "--varlen"});
  BOOST_TEST(drafting.exit_code == 0);
  BOOST_TEST(contains(drafting.err, "up to 4 drafts verified a step by rejection, step-cost curve"), drafting.err);
}

BOOST_AUTO_TEST_CASE(prompts_are_replayed_unless_roundings_are_for_comparisons) {
  const auto said = [](const std::vector<std::string>& flags) { return generate_with(flags).err; };
  BOOST_TEST(contains(said({}), "yoco compact (keeps 140 rows)"));
  BOOST_TEST(contains(said({"--yoco-keep", "200"}), "yoco compact (keeps 200 rows)"));
  BOOST_TEST(contains(said({"--yoco", "exact"}), "yoco exact (keeps 521 rows)"));
  BOOST_TEST(contains(said({"--roundings", "model"}), "yoco off"));
  BOOST_TEST(contains(said({"--roundings", "off", "--yoco", "compact"}), "yoco compact (keeps 140 rows)"));
}

BOOST_AUTO_TEST_CASE(environment_sets_options_and_what_has_no_effect_is_an_error) {
  BOOST_TEST(contains(generate_with({}, {{"DEEPINFER_USE_NEXTN_DECODE", "3"}}).err, "up to 3 drafts verified"));
  BOOST_TEST(
      !contains(generate_with({"--nextn", "0"}, {{"DEEPINFER_USE_NEXTN_DECODE", "5"}}).err, "drafts")); // the flag wins
  refused(generate_with({}, {{"DEEPINFER_BATCH_INVARIANT", "0"}}), {"DEEPINFER_BATCH_INVARIANT = 0"});
  for (const char* value : {"x", "true", "11", ""})
    refused(generate_with({}, {{"DEEPINFER_BATCH_INVARIANT", value}}), {"DEEPINFER_BATCH_INVARIANT", "only 1"});
  BOOST_TEST(generate_with({}, {{"DEEPINFER_BATCH_INVARIANT", "1"}}).exit_code == 0);
  refused(generate_with({"--nextn", "0"}, {{"DEEPINFER_ENABLE_MTP_VARLEN", "1"}}), {"varlen = true", "no effect"});
  BOOST_TEST(!contains(generate_with({}, {{"DEEPINFER_ENABLE_MTP_VARLEN", "False"}}).err, "step-cost curve"));
  for (const auto& [value, seen] : {std::pair("0", "one step out"), std::pair("1", "two steps out")}) {
    const auto run = generate_with({}, {{"DEEPINFER_ZERO_OVERHEAD_SCHEDULING", value}});
    BOOST_TEST(run.exit_code == 0);
    BOOST_TEST(contains(run.err, seen), run.err);
  }
  const auto yoco = generate_with(
      {}, {{"DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE", "mask"}, {"DEEPINFER_YOCO_PREFILL_KEEP_TOKENS", "150"}});
  BOOST_TEST(yoco.exit_code == 0);
  BOOST_TEST(contains(yoco.err, "yoco mask (keeps 150 rows)"), yoco.err);
  refused(generate_with({}, {{"DEEPINFER_YOCO_PREFILL_KEEP_TOKENS", "128"},
                             {"DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE", "compact"}}),
          {"yoco_keep = 128", "140 or more"});
  refused(generate_with({}, {{"DEEPINFER_OVERRIDE_NUM_EXTRA_EXPERTS", "32"}}),
          {"DEEPINFER_OVERRIDE_NUM_EXTRA_EXPERTS = 32"});
  BOOST_TEST(generate_with({}, {{"DEEPINFER_OVERRIDE_NUM_EXTRA_EXPERTS", "0"}}).exit_code == 0);
  refused(generate_with({}, {{"DEEPINFER_NCCL_NUM_SMS", "32"}}), {"DEEPINFER_NCCL_NUM_SMS = 32", "no effect"});
  refused(generate_with({}, {{"DEEPINFER_HF_MODEL_DIR", "/nonexistent/a"}}), {"/nonexistent/a"});
  refused(generate_with({}, {{"TROUPE_MODEL", "/nonexistent/b"}}), {"/nonexistent/b"});
}

BOOST_AUTO_TEST_CASE(a_file_sets_options_below_environment_and_flags) {
  const temporary_folder folder;
  const std::string file = folder / "engine.toml";
  test_support::write_text(
      file, "[engine]\ndevice = \"reference\"\nmax_num_seqs = 3\nchunked_prefill = true\nmodel = \"/nonexistent/c\"\n");
  refused(generate_with({"--config", file}), {"/nonexistent/c"});
  refused(generate_with({"--config", file}, {{"TROUPE_MODEL", "/nonexistent/d"}}), {"/nonexistent/d"});
  const auto run = generate_with({"--config", file, "--model", std::string(TROUPE_SOURCE_DIR) + "/models/tiny-v41"});
  BOOST_TEST(run.exit_code == 0);
  BOOST_TEST(contains(run.err, "reference"));
  BOOST_TEST(contains(generate_with({"--config", file, "--model", std::string(TROUPE_SOURCE_DIR) + "/models/tiny-v41",
                                     "--device", "cpu"})
                          .err,
                      "cpu ("));

  for (const auto& [text, named] :
       {std::pair("[engine]\nspeed = 3\n", ":2: engine.speed = 3"),
        std::pair("[engine]\nmax_num_seqs = \"3\"\n", "engine.max_num_seqs = "),
        std::pair("[engine]\nmax_num_seqs = 0\n", "engine.max_num_seqs = 0"),
        std::pair("[engine]\nchunked_prefill = 1\n", "engine.chunked_prefill = 1"),
        std::pair("[engine]\nyoco = \"whole\"\n", "engine.yoco = whole"),
        std::pair("[engine]\nyoco = \"exact\"\nyoco_keep = 600\n", "engine.yoco_keep = 600"),
        std::pair("[engine]\nprefill_fill_tokens = 64\nttft_bound_steps = 0\n", ":3: engine.ttft_bound_steps = 0"),
        std::pair("[engine]\nseed = 18446744073709551615\n", "in quotes"),
        std::pair("[engine]\nseed = \"18446744073709551616\"\n", "engine.seed = 18446744073709551616"),
        std::pair("[engine]\nseed = \"seven\"\n", "engine.seed = seven"),
        std::pair("[engine]\nseed = -1\n", "engine.seed = -1"),
        std::pair("[engine]\nseed = 1.5\n", "whole number, in quotes if"),
        std::pair("[cluster]\nname = \"x\"\n", "cluster"), std::pair("[engine\n", ":1: this is not TOML")}) {
    test_support::write_text(file, text);
    refused(generate_with({"--config", file}), {file, named});
  }
  refused(generate_with({"--config", folder / "none.toml"}), {folder / "none.toml"});
  refused(generate_with({"--config", folder / ""}), {folder / ""});
}

BOOST_AUTO_TEST_CASE(the_largest_seed_is_one_on_the_command_line_and_in_quotes_in_a_file) {
  const temporary_folder folder;
  const std::string file = folder / "engine.toml";
  const auto seed_of = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"batch", "-", "-"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return json_lines(troupe_reading(R"({"id": "r1", "prompt_ids": [0], "params": {"max_tokens": 1}})", arguments).out)
        .at(0)["seq_seed"]
        .get<std::uint64_t>();
  };
  test_support::write_text(file, "[engine]\nseed = \"18446744073709551615\"\n");
  const std::uint64_t largest = seed_of({"--config", file});
  BOOST_TEST(largest == seed_of({"--seed", "18446744073709551615"}));
  test_support::write_text(file, "[engine]\nseed = 7\n");
  BOOST_TEST(seed_of({"--config", file}) == 107904788684558u); // exactness.md T10
}

BOOST_AUTO_TEST_SUITE_END()
