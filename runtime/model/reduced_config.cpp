#include "runtime/model/reduced_config.hpp"
#include "runtime/base/result.hpp"
#include "runtime/model/config.hpp"
#include "runtime/model/engram.hpp"
#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

namespace troupe {
namespace {

using json = nlohmann::ordered_json;

bool contains(const std::vector<int>& list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

[[noreturn]] void refuse(const std::string& flag, const std::string& value, const std::string& why,
                         const std::string& remedy) {
  throw config_error("command line", flag, value, why, remedy);
}

void check_named(const model_config& c, const std::vector<int>& ids) {
  const std::string text = nlohmann::json(ids).dump();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= c.num_hidden_layers || (i > 0 && ids[i] <= ids[i - 1]))
      refuse("--keep-layers", text, "not ascending layer numbers below " + std::to_string(c.num_hidden_layers),
             "write for example 1,14,20");
    const layer_config& l = c.layers[static_cast<std::size_t>(ids[i])];
    for (const int source : {l.kv_source, l.index_k_source, l.index_source})
      if (source >= 0 && !contains(ids, source))
        refuse("--keep-layers", text,
               "layer " + std::to_string(ids[i]) + " shares with layer " + std::to_string(source) +
                   ", which would not be there",
               "add " + std::to_string(source));
  }
}

class reducer {
public:
  reducer(const model_config& from, json& root, const model_reduction& r)
      : from_(from), root_(root), text_(root["text_config"]), r_(r), kept_(kept_layers(from, r)) {}

  void run(const std::string& file, int compressed_vocab) {
    layers();
    experts();
    vocabulary(compressed_vocab);
    for (const auto& [key, value] : r_.set) {
      const json parsed = json::parse(value, nullptr, false);
      if (parsed.is_discarded() || !text_.contains(key))
        refuse("--set", key + "=" + value,
               parsed.is_discarded() ? "the value is not JSON" : "text_config has no such key",
               "write for example --set index_topk=64");
      text_[key] = parsed;
    }
    engram(file);
    if (from_.image_token_id >= text_["vocab_size"])
      root_.erase("image_token_id"); // last: erasing moves text_config
  }

private:
  // New numbers of those layers of a list that stay.
  json renumbered(const std::vector<int>& old) const {
    json out = json::array();
    for (std::size_t i = 0; i < kept_.size(); ++i)
      if (contains(old, kept_[i]))
        out.push_back(i);
    return out;
  }

  void layers() {
    const int drafter = r_.drafter_layers < 0 ? from_.num_nextn_predict_layers : r_.drafter_layers;
    text_["num_hidden_layers"] = kept_.size();
    text_["num_nextn_predict_layers"] = drafter;
    json ratios = json::array();
    for (const int l : kept_)
      ratios.push_back(from_.layers[static_cast<std::size_t>(l)].ratio);
    ratios.insert(ratios.end(), static_cast<std::size_t>(drafter), 0);
    text_["compress_ratios"] = ratios;
    text_["kv_source_layer_ids"] = renumbered(from_.kv_source_layer_ids);
    text_["index_source_layer_ids"] = renumbered(from_.index_source_layer_ids);
    if (text_.contains("index_k_source_layer_ids"))
      text_["index_k_source_layer_ids"] = renumbered(from_.index_k_source_layer_ids);
    text_["engram_layer_ids"] = renumbered(from_.engram_layer_ids);
    const json source = renumbered({from_.candidate_source_layer_id});
    text_["candidate_source_layer_id"] = source.empty() ? json(nullptr) : source[0];
    // The drafter reads from as many of the last layers as before.
    json targets = json::array();
    const std::size_t count = std::min(kept_.size(), from_.dspark_target_layer_ids.size());
    for (std::size_t i = kept_.size() - count; i < kept_.size(); ++i)
      targets.push_back(i);
    text_["dspark_target_layer_ids"] = drafter > 0 ? targets : json::array();
  }

  void experts() {
    const int n = r_.experts > 0 ? r_.experts : from_.n_routed_experts;
    text_["n_routed_experts"] = n;
    text_["num_experts_per_tok"] = std::min(from_.num_experts_per_tok, n);
    if (from_.num_nextn_predict_layers == 0)
      return;
    const int d = r_.drafter_experts > 0 ? r_.drafter_experts : from_.dspark_n_routed_experts;
    text_["dspark_n_routed_experts"] = d;
    text_["dspark_num_experts_per_tok"] = std::min(from_.dspark_num_experts_per_tok, d);
  }

  void vocabulary(int compressed_vocab) {
    const int v = r_.vocab > 0 ? r_.vocab : from_.vocab_size;
    text_["vocab_size"] = v;
    if (text_.contains("engram_compressed_vocab_size"))
      text_["engram_compressed_vocab_size"] = compressed_vocab;
    if (text_.contains("dspark_noise_token_id"))
      text_["dspark_noise_token_id"] = std::min(from_.dspark_noise_token_id, v - 1);
    if (r_.engram_vocab > 0)
      text_["engram_vocab_size"] = r_.engram_vocab;
  }

  // Rows of the tables follow from the values above.
  void engram(const std::string& file) {
    const auto number = [&](const char* key) {
      const auto at = text_.find(key);
      if (at == text_.end() || !at->is_number_integer() || *at < 1 || *at > 1 << 30)
        throw config_error(file, std::string("text_config.") + key, at == text_.end() ? "" : at->dump(),
                           "not a whole number from 1 to 1073741824", "");
      return at->get<int>();
    };
    if (!text_["engram_layer_ids"].is_array() || text_["engram_layer_ids"].empty())
      return;
    const int orders = number("engram_max_ngram_size") - 1, heads = number("engram_n_heads");
    if (orders > 64 || heads > 1024 || number("engram_vocab_size") < 3)
      return; // refused with the rest of the configuration
    text_["engram_num_embeddings"] = json::array();
    for (const auto& primes :
         engram_primes(number("engram_vocab_size"), static_cast<int>(text_["engram_layer_ids"].size()), orders, heads))
      text_["engram_num_embeddings"].push_back(std::accumulate(primes.begin(), primes.end(), std::int64_t{0}));
  }

  const model_config& from_;
  json& root_;
  json& text_;
  const model_reduction& r_;
  std::vector<int> kept_;
};

} // namespace

std::string layer_kind(const model_config& config, int layer) {
  const layer_config& l = config.layers[static_cast<std::size_t>(layer)];
  if (l.ratio == 0)
    return l.is_engram ? "window only, Engram" : "window only";
  std::string s = "ratio " + std::to_string(l.ratio) + (l.owns_compressor ? ", own" : ", shared") + " compressed KV";
  if (l.owns_compressor && !l.owns_index_k)
    s += ", shared index keys";
  if (!l.owns_compressor && l.owns_index_k)
    s += ", own index keys";
  s += l.owns_indexer ? ", own selection" : ", shared selection";
  if (l.is_candidate_source)
    s += ", candidate source";
  if (l.uses_candidates)
    s += " among candidates";
  return s + (l.is_engram ? ", Engram" : "");
}

std::vector<int> kept_layers(const model_config& config, const model_reduction& reduction) {
  if (!reduction.layer_ids.empty()) {
    check_named(config, reduction.layer_ids);
    return reduction.layer_ids;
  }
  std::set<int> kept;
  std::set<std::string> kinds;
  for (int l = 0; l < config.num_hidden_layers; ++l)
    if (kinds.insert(layer_kind(config, l)).second) {
      const layer_config& x = config.layers[static_cast<std::size_t>(l)];
      for (const int needed : {l, x.kv_source, x.index_k_source, x.index_source})
        if (needed >= 0)
          kept.insert(needed);
    }
  const int least = static_cast<int>(kept.size()), most = config.num_hidden_layers;
  const int wanted = reduction.layers > 0 ? reduction.layers : reduction.layers < 0 ? least : most;
  if (wanted < least || wanted > most)
    refuse("--layers", std::to_string(wanted), "not between the number of layer kinds and of layers",
           "give " + std::to_string(least) + " to " + std::to_string(most) + ", or name layers with --keep-layers");
  // Ascending: what a layer shares with is there before it.
  for (int l = 0; static_cast<int>(kept.size()) < wanted; ++l)
    kept.insert(l);
  return {kept.begin(), kept.end()};
}

nlohmann::ordered_json reduced_config(const nlohmann::ordered_json& base, const std::string& file,
                                      const model_reduction& reduction, int compressed_vocab) {
  const model_config from = parse_config(base.dump(), file);
  json root = base;
  reducer(from, root, reduction).run(file, compressed_vocab);
  parse_config(root.dump(), file + " (reduced)");
  return root;
}

} // namespace troupe
