// troupe make-model: a checkpoint of the released layout with generated weights.
#include "cli/engine_settings.hpp"
#include "cli/interrupts.hpp"
#include "cli/line_io.hpp"
#include "cli/log.hpp"
#include "cli/progress.hpp"
#include "cli/verbs.hpp"
#include "runtime/model/config.hpp"
#include "runtime/model/make_checkpoint.hpp"
#include "runtime/model/read_file.hpp"
#include "runtime/model/reduced_config.hpp"
#include "runtime/tokenizer/compressed_vocabulary.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

namespace troupe {

namespace {

using json = nlohmann::ordered_json;

constexpr int default_experts = 8, default_drafter_layers = 1, default_drafter_experts = 4, default_engram_vocab = 4000;

json base_config(const std::string& file) {
  const std::string text = read_text_file(file, 16 << 20, "give the config.json of a DeepSeek-V4.1 checkpoint");
  parse_config(text, file);
  return json::parse(text);
}

model_reduction reduction_of(const make_model_options& o, int tokenizer_vocab) {
  model_reduction r;
  if (!o.full) {
    r.layers = -1;
    r.experts = default_experts;
    r.drafter_layers = default_drafter_layers;
    r.drafter_experts = default_drafter_experts;
    r.vocab = tokenizer_vocab;
    r.engram_vocab = default_engram_vocab;
  }
  if (!o.keep_layers.empty() && o.layers > 0)
    throw config_error("command line", "--keep-layers", o.keep_layers, "--layers is given too", "give one of them");
  if (!o.keep_layers.empty())
    r.layer_ids = parse_id_list("--keep-layers", o.keep_layers);
  const auto take = [](int given, int absent, int& to) { to = given != absent ? given : to; };
  take(o.layers, 0, r.layers);
  take(o.experts, 0, r.experts);
  take(o.drafter_layers, -1, r.drafter_layers);
  take(o.drafter_experts, 0, r.drafter_experts);
  take(o.vocab, 0, r.vocab);
  take(o.engram_vocab, 0, r.engram_vocab);
  for (const std::string& text : o.set) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos)
      throw config_error("command line", "--set", text, "this is not KEY=VALUE",
                         "write for example --set index_topk=64");
    r.set.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return r;
}

std::string report(const make_model_options& o, const made_checkpoint& made, const model_config& c,
                   const model_config& base, const model_reduction& r) {
  std::string text =
      fmt::format("{}: {} tensors, {:.2f} GB in {} {}{}, seed {}\n", o.folder, made.tensors,
                  static_cast<double>(made.bytes) / 1e9, made.shards, made.shards == 1 ? "shard" : "shards",
                  o.index_only ? " (index only, no shard is written)" : "", o.seed);
  text += fmt::format("  vocabulary {}, {} routed experts, drafter of {} {}\n", c.vocab_size, c.n_routed_experts,
                      c.num_nextn_predict_layers, c.num_nextn_predict_layers == 1 ? "layer" : "layers");
  const std::vector<int> kept = kept_layers(base, r);
  if (!o.full)
    for (int l = 0; l < c.num_hidden_layers; ++l)
      text += fmt::format("  layer {} as {}: {}\n", l, kept[static_cast<std::size_t>(l)], layer_kind(c, l));
  return text;
}

} // namespace

int run_make_model(const make_model_options& o) {
  interrupts signals;
  const std::string config_file = o.config_file.empty() ? released_config_folder() + "/config.json" : o.config_file,
                    tokenizer_file =
                        o.tokenizer_file.empty() ? default_model_folder() + "/tokenizer.json" : o.tokenizer_file;
  const json base = base_config(config_file);
  const tokenizer vocabulary = tokenizer::load(tokenizer_file);
  const model_reduction reduction = reduction_of(o, vocabulary.vocab_size());
  const json config =
      reduced_config(base, config_file, reduction, distinct_ids(derive_compressed_vocabulary(vocabulary)));

  checkpoint_recipe recipe;
  recipe.folder = o.folder;
  recipe.config_text = config.dump(1) + "\n";
  recipe.config_file = config_file;
  recipe.tokenizer = tokenizer_file;
  recipe.seed = o.seed;
  recipe.shard_bytes = static_cast<std::uint64_t>(o.shard_mebibytes) << 20;
  recipe.index_only = o.index_only;
  const model_config made_config = parse_config(recipe.config_text, config_file);
  if (made_config.vocab_size < vocabulary.vocab_size())
    throw config_error("command line", "--vocab", std::to_string(made_config.vocab_size),
                       "the tokenizer has " + std::to_string(vocabulary.vocab_size()) + " ids",
                       "give at least as many, or another --tokenizer");
  progress_line progress("writing " + o.folder);
  const made_checkpoint made = make_checkpoint(recipe, [&](std::uint64_t done, std::uint64_t total) {
    progress.show(static_cast<std::int64_t>(done >> 20), static_cast<std::int64_t>(total >> 20), "MiB,");
    return signals.count() == 0;
  });
  progress.clear();
  if (made.tensors == 0) {
    spdlog::warn("interrupted: {} has been removed", o.folder);
    return exit_interrupted;
  }
  line_writer out(open_output("-"));
  const std::string text = report(o, made, made_config, parse_config(base.dump(), config_file), reduction);
  return succeeded(out.write_text(text)) ? exit_ok : exit_request_failed;
}

} // namespace troupe
