// A smaller model of the same architecture: the configuration of a checkpoint with fewer layers, experts and rows. What
// decides about kernels (widths, heads, formats) stays as it is unless a value is set by hand.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

struct model_reduction {
  int layers = 0;             // backbone layers; 0: all, -1: one of each kind. More than that: also the first others
  std::vector<int> layer_ids; // instead: exactly these, ascending
  int experts = 0;            // routed experts of a backbone layer; 0: all
  int drafter_layers = -1;    // -1: all; 0: no drafter
  int drafter_experts = 0;    // 0: all
  int vocab = 0;              // 0: all
  int engram_vocab = 0;       // engram_vocab_size, from which the rows of the tables follow; 0: as it is
  std::vector<std::pair<std::string, std::string>> set; // keys of text_config and their values as JSON, applied last
};

struct model_config;

// The layers that stay, ascending. Throws config_error("command line", ...) if the kinds do not fit into
// reduction.layers or a named layer does not exist or shares with one that does not stay.
std::vector<int> kept_layers(const model_config& config, const model_reduction& reduction);

// What makes layers of the backbone different from each other; equal texts, equal kind.
std::string layer_kind(const model_config& config, int layer);

// `base` is a whole config.json, `file` its name for errors. compressed_vocab is the number of compressed ids of the
// tokenizer that goes with the model. The result is checked like any configuration; throws config_error.
nlohmann::ordered_json reduced_config(const nlohmann::ordered_json& base, const std::string& file,
                                      const model_reduction& reduction, int compressed_vocab);

} // namespace troupe
