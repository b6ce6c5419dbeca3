#include "cli/options.hpp"
#include "cli/engine_settings.hpp"
#include "cli/verbs.hpp"
#include <charconv>
#include <CLI/CLI.hpp>

namespace troupe {

namespace {

void add_log_options(CLI::App& app, log_settings& log) {
  app.add_flag_function("-v,--verbose", [&log](std::int64_t) { log.verbosity = 1; }, "more diagnostics")->group("Diagnostics");
  app.add_flag_function("-q,--quiet", [&log](std::int64_t) { log.verbosity = -1; }, "errors only")->group("Diagnostics");
  app.add_flag("--log-json", log.json, "diagnostics as JSON lines")->group("Diagnostics");
}

// Usage errors are exit code 2; help and version print to standard output and are a success.
int report(const CLI::App& app, const CLI::ParseError& e) {
  const int code = app.exit(e);
  return code == 0 ? 0 : 2;
}

} // namespace

command_line parse_command_line(int argc, char** argv) {
  CLI::App app("Troupe: an LLM inference runtime whose parts are actors.\nExit codes: 0 success, 1 a request failed, 2 usage or "
               "configuration error, 130 interrupted.",
               "troupe");
  app.set_version_flag("--version", "troupe " TROUPE_VERSION);
  app.require_subcommand(0, 1);
  app.failure_message(CLI::FailureMessage::simple);

  command_line line;
  tokenize_options tokenize;
  CLI::App* tokenize_verb = app.add_subcommand(
      "tokenize", "Text to token ids, JSON line by JSON line: {id, text | bytes_hex} -> {id, ids}, with the full vocabulary and no\n"
                  "begin-of-sentence token; --decode: {id, ids} -> {id, text, text_skip_special, steps, pending}.");
  tokenize_verb->add_option("--tokenizer", tokenize.tokenizer_file, "tokenizer.json to use (default: the embedded model's)")->type_name("FILE");
  tokenize_verb->add_flag("--decode", tokenize.decode, "ids to text");
  tokenize_verb->add_option("IN", tokenize.input, "input lines (default -: standard input)");
  tokenize_verb->add_option("OUT", tokenize.output, "output lines (default -: standard output)");

  for (CLI::App* verb : {tokenize_verb})
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
  if (tokenize_verb->parsed())
    line.verb = std::move(tokenize);
  else {
    std::cout << app.help();
    line.exit_code = 0;
  }
  return line;
}

} // namespace troupe
