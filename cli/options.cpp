#include "cli/options.hpp"
#include "cli/cluster_options.hpp"
#include "cli/engine_settings.hpp"
#include "cli/verbs.hpp"
#include <charconv>
#include <CLI/CLI.hpp>

namespace troupe {

namespace {

void add_engine_options(CLI::App& app, engine_flags& flags) {
  for (const engine_option& o : engine_option_table()) {
    const std::string name = o.name;
    const auto store = [&flags, name](const std::string& text) { flags.given[name] = text; };
    CLI::Option* option = nullptr;
    if (o.type() == engine_option::kind::toggle)
      option = app.add_flag_function(
          "--" + name + ",!--no-" + name, [store](std::int64_t count) { store(count > 0 ? "true" : "false"); }, o.help);
    else
      option = app.add_option_function<std::string>("--" + name, store, o.help)->type_name(o.value_name);
    option->group("Engine");
  }
  app.add_option("--config", flags.config_file,
                 "TOML file whose table [engine] holds engine options: flag names with underscores for dashes")
      ->type_name("FILE")
      ->group("Engine");
}

// Real parameters are read as binary64 and rounded once, like those of a request line.
void add_real(CLI::App& app, const std::string& name, float& field, const std::string& help) {
  app.add_option_function<double>(
         name, [&field](double v) { field = static_cast<float>(v); }, help)
      ->type_name("X")
      ->group("Sampling");
}

template <class T>
CLI::Option* add_sampling(CLI::App& app, const std::string& name, T& field, const std::string& help) {
  return app.add_option(name, field, help)->group("Sampling");
}

void add_sampling_options(CLI::App& app, sampling_params& p) {
  add_real(app, "--temperature", p.temperature, "softmax temperature; 0 is the likeliest token (default 1)");
  add_real(app, "--top-p", p.top_p, "keep the likeliest tokens up to this mass (default 1: all)");
  add_sampling(app, "--top-k", p.top_k, "keep this many tokens (default -1: all)")->type_name("N");
  add_real(app, "--min-p", p.min_p,
           "keep tokens with at least this share of the likeliest one's probability (default 0: all)");
  add_sampling(app, "--max-tokens", p.max_tokens,
               "output tokens at most (default " + std::to_string(p.max_tokens) + ")")
      ->type_name("N");
  add_sampling(app, "--min-tokens", p.min_tokens, "output tokens before a stop may take effect (default 0)")
      ->type_name("N");
  add_sampling(app, "--stop", p.stop, "text that ends the output; may be repeated")
      ->type_name("TEXT")
      ->expected(1)
      ->take_all();
  app.add_option_function<std::string>(
         "--stop-token-ids",
         [&p](const std::string& text) { p.stop_token_ids = parse_id_list("--stop-token-ids", text); },
         "token ids that end the output: 3,17")
      ->type_name("IDS")
      ->group("Sampling");
  app.add_flag("--ignore-eos", p.ignore_eos, "go on behind the end-of-sentence token")->group("Sampling");
  add_sampling(app, "--n", p.n, "outputs for each prompt (default 1)")->type_name("N");
  app.add_flag("--logprobs,!--no-logprobs", p.logprobs,
               "log-probability of every output token in --json lines (default on)")
      ->group("Sampling");
  add_sampling(app, "--top-logprobs", p.top_logprobs, "likeliest tokens to report at every output token (default 0)")
      ->type_name("N");
  app.add_flag("--prompt-logprobs", p.prompt_logprobs, "log-probabilities of the prompt's tokens")->group("Sampling");
  app.add_option_function<std::uint64_t>(
         "--seq-seed", [&p](std::uint64_t v) { p.seq_seed = v; }, "seed of these requests (default: drawn)")
      ->type_name("SEED")
      ->group("Sampling");
  app.add_option_function<std::vector<std::string>>(
         "--logit-bias",
         [&p](const std::vector<std::string>& texts) {
           for (const std::string& t : texts)
             p.logit_bias.push_back(parse_logit_bias(t));
         },
         "ID=VALUE, added to the token's logit; may be repeated")
      ->type_name("ID=VALUE")
      ->expected(1)
      ->take_all()
      ->group("Sampling");
}

void add_metrics_option(CLI::App& app, engine_flags& flags) {
  app.add_option("--metrics", flags.metrics_file,
                 "file for counts and times in Prometheus' text format, written at the end")
      ->type_name("FILE")
      ->group("Diagnostics");
}

void add_cluster_option(CLI::App& app, engine_flags& flags) {
  app.add_option("--cluster", flags.cluster,
                 "have it computed by a running cluster: its file, or ADDRESS:PORT of its coordinator; engine options "
                 "are those of the cluster")
      ->type_name("FILE|ADDRESS:PORT")
      ->group("Engine");
  app.add_option("--gateway", flags.gateway,
                 "with --cluster: the gateway of it that takes the requests (gateway.0, ...; default: one that is "
                 "active), or none: this process is its own")
      ->type_name("NAME|none")
      ->group("Engine");
}

void add_log_options(CLI::App& app, log_settings& log) {
  app.add_flag_function(
         "-v,--verbose", [&log](std::int64_t) { log.verbosity = 1; }, "more diagnostics")
      ->group("Diagnostics");
  app.add_flag_function(
         "-q,--quiet", [&log](std::int64_t) { log.verbosity = -1; }, "errors only")
      ->group("Diagnostics");
  app.add_flag("--log-json", log.json, "diagnostics as JSON lines")->group("Diagnostics");
}

CLI::App* add_make_model(CLI::App& app, make_model_options& o) {
  CLI::App* verb = app.add_subcommand(
      "make-model",
      "Write a checkpoint of the released layout with generated weights: for tests of sizes, memory and speed; its "
      "text "
      "means\nnothing. Widths, heads and formats are those of the configuration; layers, experts, vocabulary and "
      "Engram "
      "rows are\nreduced unless --full is given. The same options and seed give the same bytes on every machine.");
  verb->add_option("DIR", o.folder, "folder to make")->required();
  const auto number = [verb](const char* name, int& value, int low, int high, const char* help) {
    verb->add_option(name, value, help)->check(CLI::Range(low, high))->type_name("N");
  };
  verb->add_flag("--full", o.full, "reduce nothing that is not named (V4.1-Flash: 474 GiB)");
  verb->add_option("--config", o.config_file, "config.json to start from (default: that of DeepSeek-V4.1-Flash)")
      ->type_name("FILE");
  verb->add_option("--tokenizer", o.tokenizer_file, "tokenizer.json to copy (default: the embedded model's)")
      ->type_name("FILE");
  number("--layers", o.layers, 1, 256, "backbone layers: one of each kind and the first others (default: one of each)");
  verb->add_option("--keep-layers", o.keep_layers, "instead: these layers of the configuration, for example 1,14,20")
      ->type_name("IDS");
  number("--experts", o.experts, 1, 8192, "routed experts of a layer (default 8)");
  number("--drafter-layers", o.drafter_layers, 0, 64, "layers of the drafter (default 1)");
  number("--drafter-experts", o.drafter_experts, 1, 8192, "routed experts of a drafter layer (default 4)");
  number("--vocab", o.vocab, 1, 1 << 24, "rows of the embedding and the head (default: the tokenizer's)");
  number("--engram-vocab", o.engram_vocab, 3, 1 << 30, "lower bound of the Engram primes (default 4000)");
  verb->add_option("--set", o.set, "another value for a key of text_config, as JSON; may be repeated")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all();
  verb->add_option("--seed", o.seed, "seed of the weights (default 0)")->type_name("S");
  number("--shard-size", o.shard_mebibytes, 1, 1 << 20, "MiB of a shard (default 4096)");
  verb->add_flag("--index-only", o.index_only, "configuration, tokenizer and index without the shards");
  return verb;
}

CLI::App* add_check_model(CLI::App& app, check_model_options& o) {
  CLI::App* verb = app.add_subcommand(
      "check-model",
      "Check that a checkpoint is complete and say how much memory it takes on each device. Every fault is "
      "listed; exit code 2\nif there is one.");
  verb->add_option("DIR", o.folder, "folder of the checkpoint")->required();
  verb->add_flag("--index-only", o.index_only,
                 "names in the index and headers of shards that are there; needs no data");
  const auto number = [verb](const char* name, int& value, int low, int high, const char* help) {
    verb->add_option(name, value, help)->check(CLI::Range(low, high))->type_name("N");
  };
  number("--ep", o.ep, 1, 8192, "devices that share the routed experts (default 1)");
  number("--max-num-seqs", o.max_num_seqs, 1, 65536, "running sequences (default 64)");
  number("--max-num-batched-tokens", o.max_num_batched_tokens, 128, 1 << 20,
         "rows of one step, at least the 128 of a cache block (default 512)");
  number("--max-model-len", o.max_model_len, 0, 1 << 28, "tokens of a request (default 0: as the model allows)");
  verb->add_option("--verify", o.verify,
                   "how drafts are accepted: coupled (default) or rejection, which keeps their logits")
      ->check(CLI::IsMember({"coupled", "rejection"}))
      ->type_name("RULE");
  verb->add_option("--device-memory", o.device_gibibytes, "GiB of a device: how many KV blocks fit beside the rest")
      ->check(CLI::Range(0.001, 1e6))
      ->type_name("GIB");
  number("--max-names", o.max_names, 1, 1 << 30, "faults of a kind that are named (default 8); all are counted");
  verb->add_flag("--json", o.json, "one JSON object instead of text");
  return verb;
}

CLI::App* add_check(CLI::App& app, check_options& o) {
  CLI::App* verb = app.add_subcommand(
      "check",
      "Check a cluster file and print what it stands for: every key with its value as TOML, then as comments the "
      "hash, the\nplaces and ports of all processes, redundant experts and the memory of a rank. Every fault is "
      "listed; exit code 2\nif there is one. Values come from the file, --set over it, and TROUPE_TABLE__KEY in "
      "the environment over both.");
  verb->add_option("FILE", o.file, "cluster file, like configs/loopback-1p2d.toml")->required();
  verb->add_option("--set", o.set, "another value: cluster.name=x, worker_group.decode.count=4; may be repeated")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all();
  verb->add_flag("--json", o.json, "one JSON object instead of text");
  return verb;
}

// Help without the parser's own marks behind negative forms.
class help_formatter final : public CLI::Formatter {
public:
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    std::string name = CLI::Formatter::make_option_name(option, is_positional);
    constexpr std::string_view mark = "{false}";
    if (const std::size_t at = name.find(mark); at != std::string::npos)
      name.erase(at, mark.size());
    return name;
  }
};

// Usage errors are exit code 2; help and version print to standard output and are a success.
int report(const CLI::App& app, const CLI::ParseError& e) {
  const int code = app.exit(e);
  return code == 0 ? 0 : 2;
}

} // namespace

std::vector<std::int32_t> parse_id_list(const std::string& key, const std::string& text) {
  std::vector<std::int32_t> ids;
  const char* p = text.data();
  const char* end = p + text.size();
  while (true) {
    std::int32_t id = 0;
    const auto [next, fault] = std::from_chars(p, end, id);
    if (fault != std::errc() || id < 0 || (next != end && *next != ','))
      throw config_error("command line", key, text, "this is not a list of token ids",
                         "write numbers with commas between: 0,17,4");
    ids.push_back(id);
    if (next == end)
      return ids;
    p = next + 1;
  }
}

std::pair<std::int32_t, float> parse_logit_bias(const std::string& text) {
  std::int32_t id = 0;
  double bias = 0;
  const char* end = text.data() + text.size();
  const auto [equals, id_fault] = std::from_chars(text.data(), end, id);
  if (id_fault == std::errc() && equals != end && *equals == '=') {
    const auto [rest, fault] = std::from_chars(equals + 1, end, bias);
    if (fault == std::errc() && rest == end)
      return {id, static_cast<float>(bias)};
  }
  throw config_error("command line", "--logit-bias", text, "this is not a token id and a number",
                     "write for example --logit-bias 17=-2.5");
}

command_line parse_command_line(int argc, char** argv) {
  CLI::App app(
      "Troupe: an LLM inference runtime whose parts are actors.\nExit codes: 0 success, 1 a request failed, 2 usage or "
      "configuration error, 130 interrupted.",
      "troupe");
  app.set_version_flag("--version", "troupe " TROUPE_VERSION);
  app.formatter(std::make_shared<help_formatter>());
  app.require_subcommand(0, 1);
  app.failure_message(CLI::FailureMessage::simple);

  command_line line;
  generate_options generate;
  generate.params.max_tokens = default_generate_tokens;
  CLI::App* generate_verb =
      app.add_subcommand("generate", "Complete prompts. Without a prompt: a demonstration with the embedded model.");
  generate_verb->add_option("PROMPT", generate.prompts,
                            "prompts; plain text gets the begin-of-sentence token in front");
  generate_verb
      ->add_option("--prompt-file", generate.prompt_files,
                   "a file that holds one prompt (- is standard input); may be repeated")
      ->type_name("FILE")
      ->expected(1)
      ->take_all();
  generate_verb->add_option("--ids", generate.id_lists, "a prompt as token ids: 0,17,4; may be repeated")
      ->type_name("IDS")
      ->expected(1)
      ->take_all();
  generate_verb->add_flag("--raw", generate.raw,
                          "use prompts as they are: control tokens by their spelling, nothing in front");
  generate_verb->add_flag("--json", generate.json, "print result lines instead of text");
  add_sampling_options(*generate_verb, generate.params);
  add_engine_options(*generate_verb, generate.engine);

  chat_options chat;
  chat.params.max_tokens = default_chat_tokens;
  CLI::App* chat_verb =
      app.add_subcommand("chat", "Talk to the model, one line a turn. /reset forgets the conversation, /exit ends it.");
  chat_verb->add_option("--system", chat.system, "system message")->type_name("TEXT");
  chat_verb->add_flag("--think", chat.think, "let the model reason before it answers");
  add_sampling_options(*chat_verb, chat.params);
  add_engine_options(*chat_verb, chat.engine);

  batch_options batch;
  CLI::App* batch_verb = app.add_subcommand("batch", "Run the requests of IN.jsonl, one JSON object a line, and append "
                                                     "result lines to OUT.jsonl in the order in which they end.\n"
                                                     "Results that OUT already holds are kept and not computed again, "
                                                     "so an interrupted batch is continued by the same command.\n"
                                                     "On a cluster with ledger.mode = disk its open requests go on "
                                                     "behind their tokens, which OUT.ledger holds until the end,\n"
                                                     "or the cluster's gateway if it has one.");
  batch_verb->add_option("IN", batch.input, "request lines (- is standard input)")->required()->type_name("IN.jsonl");
  batch_verb->add_option("OUT", batch.output, "result lines (- is standard output)")
      ->required()
      ->type_name("OUT.jsonl");
  add_engine_options(*batch_verb, batch.engine);

  score_options score;
  CLI::App* score_verb = app.add_subcommand(
      "score",
      "Log-probabilities of the prompts of IN.jsonl. A line of OUT.jsonl: id, prompt_tokens, prompt_logprobs (entry j "
      "is that of\n"
      "prompt token j+1), nll (the mean of the negated log-probabilities, in nats; null for a prompt of one token),\n"
      "ppl (e to the power of nll), error. OUT.jsonl is written anew.");
  score_verb->add_option("IN", score.input, "request lines (- is standard input)")->required()->type_name("IN.jsonl");
  score_verb->add_option("OUT", score.output, "score lines (- is standard output)")->required()->type_name("OUT.jsonl");
  score_verb
      ->add_option("--logits", score.logits_file,
                   "also write fp32 logits of each request's rows, as tensors <id>.logits")
      ->type_name("rows.safetensors");
  score_verb->add_flag("--yoco-check", score.yoco_check,
                       "also run the prompts with --yoco mask and compact, exact and off; exit code 1 if what must be "
                       "equal is not, bit for bit");
  add_engine_options(*score_verb, score.engine);

  baseline_options baseline;
  CLI::App* baseline_verb =
      app.add_subcommand("baseline", "Exact perplexity baselines. make: log-probabilities of the samples of IN.jsonl, "
                                     "bit by bit, into BASE.json, one\n"
                                     "line for each, sorted by id. check: computes them again and compares; exit code "
                                     "1 names the samples that differ\n"
                                     "and the first place. A sample is a request line; of its params only "
                                     "golden_token_ids counts: with it these tokens\n"
                                     "are forced behind the prompt (decode), without it the prompt itself is measured "
                                     "(prefill). A baseline of another\n"
                                     "model, numerics id or set of roundings is compared with a tolerance.");
  baseline_verb->add_option("ACTION", baseline.action, "make or check")
      ->required()
      ->check(CLI::IsMember({"make", "check"}));
  baseline_verb->add_option("IN", baseline.input, "request lines (- is standard input)")
      ->required()
      ->type_name("IN.jsonl");
  baseline_verb
      ->add_option("BASE", baseline.baseline, "the baseline (make: - is standard output, check: - is standard input)")
      ->required()
      ->type_name("BASE.json");
  baseline_verb
      ->add_option("--mode", baseline.mode,
                   "for make, samples without golden_token_ids: prefill (default), or decode, which forces all\n"
                   "tokens of the prompt but the first")
      ->check(CLI::IsMember({"prefill", "decode"}))
      ->type_name("MODE");
  add_engine_options(*baseline_verb, baseline.engine);

  tokenize_options tokenize;
  CLI::App* tokenize_verb = app.add_subcommand(
      "tokenize", "Text to token ids, JSON line by JSON line: {id, text | bytes_hex} -> {id, ids}, with the full "
                  "vocabulary and no\n"
                  "begin-of-sentence token; --decode: {id, ids} -> {id, text, text_skip_special, steps, pending}.");
  tokenize_verb
      ->add_option("--tokenizer", tokenize.tokenizer_file, "tokenizer.json to use (default: the embedded model's)")
      ->type_name("FILE");
  tokenize_verb->add_flag("--decode", tokenize.decode, "ids to text");
  tokenize_verb->add_option("IN", tokenize.input, "input lines (default -: standard input)");
  tokenize_verb->add_option("OUT", tokenize.output, "output lines (default -: standard output)");

  grammar_check_options grammar_check;
  CLI::App* grammar_verb = app.add_subcommand("grammar", "Constraints of structured output.")->require_subcommand(1);
  CLI::App* grammar_check_verb = grammar_verb->add_subcommand(
      "check", "What constraints say about texts, JSON line by JSON line:\n"
               "{id, kind: json_schema | regex | ebnf, source, cases: [{text}]} ->\n"
               "{id, refused, compile_us, mask_us_p50, mask_us_max, cases: [{verdict: accept | reject}]}");
  grammar_check_verb
      ->add_option("--tokenizer", grammar_check.tokenizer_file, "tokenizer.json to use (default: the embedded model's)")
      ->type_name("FILE");
  grammar_check_verb->add_flag("--strict", grammar_check.strict,
                               "JSON schemas: members that are not declared are forbidden where any are");
  grammar_check_verb->add_option("IN", grammar_check.input, "constraints and texts (default -: standard input)");
  grammar_check_verb->add_option("OUT", grammar_check.output, "verdicts (default -: standard output)");

  bench_options bench;
  CLI::App* bench_verb =
      app.add_subcommand("bench", "Measure: " + bench_names() + ". One JSON line for each case on standard output.");
  bench_verb->add_option("NAME", bench.name, "what to measure")->required();
  bench_verb->add_flag("--smoke", bench.smoke,
                       "small sizes and few repetitions: shows that it runs, says nothing about speed");
  bench_verb
      ->add_option("--seconds", bench.seconds,
                   "drafts: measure for about so long (default: as many rounds as are usual)")
      ->check(CLI::Range(1.0, 86400.0))
      ->type_name("N");
  bench_verb->add_option("--json", bench.json_file, "also write the lines to this file")->type_name("FILE");
  add_engine_options(*bench_verb, bench.engine);

  make_model_options make_model;
  CLI::App* make_model_verb = add_make_model(app, make_model);
  check_model_options check_model;
  CLI::App* check_model_verb = add_check_model(app, check_model);
  check_options check;
  CLI::App* check_verb = add_check(app, check);

  const cluster_verbs cluster(app);
  add_cluster_option(*generate_verb, generate.engine);
  add_cluster_option(*batch_verb, batch.engine);

  add_metrics_option(*generate_verb, generate.engine);
  add_metrics_option(*chat_verb, chat.engine);
  add_metrics_option(*batch_verb, batch.engine);
  add_metrics_option(*score_verb, score.engine);
  add_metrics_option(*baseline_verb, baseline.engine);
  for (CLI::App* verb : {generate_verb, chat_verb, batch_verb, score_verb, baseline_verb, tokenize_verb,
                         grammar_check_verb, bench_verb, make_model_verb, check_model_verb, check_verb})
    add_log_options(*verb, line.log);
  for (CLI::App* verb : cluster.all())
    add_log_options(*verb, line.log);

  if (argc <= 1) {
    std::cout << app.help();
    line.exit_code = 0;
    return line;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    line.exit_code = report(app, e);
    return line;
  }
  generate.temperature_given = generate_verb->count("--temperature") > 0;
  if (generate_verb->parsed())
    line.verb = std::move(generate);
  else if (chat_verb->parsed())
    line.verb = std::move(chat);
  else if (batch_verb->parsed())
    line.verb = std::move(batch);
  else if (score_verb->parsed())
    line.verb = std::move(score);
  else if (baseline_verb->parsed())
    line.verb = std::move(baseline);
  else if (tokenize_verb->parsed())
    line.verb = std::move(tokenize);
  else if (grammar_check_verb->parsed())
    line.verb = std::move(grammar_check);
  else if (bench_verb->parsed())
    line.verb = std::move(bench);
  else if (make_model_verb->parsed())
    line.verb = std::move(make_model);
  else if (check_model_verb->parsed())
    line.verb = std::move(check_model);
  else if (check_verb->parsed())
    line.verb = std::move(check);
  else if (!cluster.take(line)) {
    std::cout << app.help();
    line.exit_code = 0;
  }
  line.log.timed = std::visit(
      [](const auto& verb) { return std::is_base_of_v<cluster_process_options, std::decay_t<decltype(verb)>>; },
      line.verb);
  return line;
}

} // namespace troupe
