#include "runtime/model/layer_map.hpp"
#include "runtime/base/result.hpp"
#include <algorithm>

namespace troupe {
namespace {

std::string list_text(const std::vector<int>& ids) {
  std::string s = "[";
  for (std::size_t i = 0; i < ids.size(); ++i)
    s += (i ? "," : "") + std::to_string(ids[i]);
  return s + "]";
}

bool contains(const std::vector<int>& ids, int id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

class layer_map {
public:
  layer_map(model_config& config, const std::string& file) : c_(config), file_(file) {}

  void derive() {
    const int n = c_.num_hidden_layers;
    const auto body_end = c_.compress_ratios.begin() + n;
    for (auto it = body_end; it != c_.compress_ratios.end(); ++it)
      if (*it != 0)
        refuse("compress_ratios", c_.compress_ratios,
               "the drafter's layers (the last num_nextn_predict_layers) must have ratio 0");
    c_.n_prefill_layer =
        static_cast<int>(std::find(c_.compress_ratios.begin(), body_end, 1) - c_.compress_ratios.begin());

    const auto kv = sources("kv_source_layer_ids", c_.kv_source_layer_ids);
    const auto index_k = sources("index_k_source_layer_ids", c_.index_k_source_layer_ids);
    const auto index = sources("index_source_layer_ids", c_.index_source_layer_ids);
    refines("index_k_source_layer_ids", c_.index_k_source_layer_ids, "kv_source_layer_ids", c_.kv_source_layer_ids);
    refines("index_source_layer_ids", c_.index_source_layer_ids, "index_k_source_layer_ids",
            c_.index_k_source_layer_ids);
    for (int l : c_.kv_source_layer_ids)
      if (l > c_.n_prefill_layer)
        refuse("kv_source_layer_ids", c_.kv_source_layer_ids,
               "layer " + std::to_string(l) + " lies behind the first layer with ratio 1 (" +
                   std::to_string(c_.n_prefill_layer) + "), whose compressed KV all later layers must share");

    c_.layers.assign(static_cast<std::size_t>(n), {});
    for (std::size_t l = 0; l < c_.layers.size(); ++l) {
      layer_config& x = c_.layers[l];
      const int id = static_cast<int>(l);
      x.ratio = c_.compress_ratios[l];
      x.kv_source = kv[l];
      x.index_k_source = index_k[l];
      x.index_source = index[l];
      x.owns_compressor = kv[l] == id;
      x.owns_index_k = index_k[l] == id;
      x.owns_indexer = index[l] == id;
      x.is_consumer = id >= c_.n_prefill_layer;
    }
    candidates();
    engram();
    drafter();
  }

private:
  [[noreturn]] void refuse(const std::string& key, const std::string& value, const std::string& why) const {
    throw config_error(file_, "text_config." + key, value, why, "this checkpoint does not fit the V4.1 architecture");
  }
  [[noreturn]] void refuse(const std::string& key, const std::vector<int>& value, const std::string& why) const {
    refuse(key, list_text(value), why);
  }

  // Layer numbers of a list: inside the backbone and strictly ascending.
  void check_ids(const std::string& key, const std::vector<int>& ids) const {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] >= c_.num_hidden_layers)
        refuse(key, ids,
               "layer " + std::to_string(ids[i]) + " does not exist; there are " +
                   std::to_string(c_.num_hidden_layers));
      if (i && ids[i] <= ids[i - 1])
        refuse(key, ids, "the layers must be in ascending order without repeats");
    }
  }

  // Source of every layer: a segment starts at a source, is contiguous and has one ratio; ratio 0 ends it.
  std::vector<int> sources(const std::string& key, const std::vector<int>& ids) const {
    check_ids(key, ids);
    std::vector<int> source(static_cast<std::size_t>(c_.num_hidden_layers), -1);
    int current = -1;
    for (int l = 0; l < c_.num_hidden_layers; ++l) {
      const int ratio = ratio_of(l);
      const bool starts = contains(ids, l);
      if (ratio == 0) {
        if (starts)
          refuse(key, ids, "layer " + std::to_string(l) + " has compress_ratios 0, it has nothing to share");
        current = -1;
        continue;
      }
      if (starts)
        current = l;
      if (current < 0)
        refuse(key, ids,
               "layer " + std::to_string(l) + " has compress_ratios " + std::to_string(ratio) +
                   " but no source starts its segment");
      if (ratio_of(current) != ratio)
        refuse(key, ids,
               "layer " + std::to_string(l) + " with compress_ratios " + std::to_string(ratio) +
                   " would share with layer " + std::to_string(current) + " of ratio " +
                   std::to_string(ratio_of(current)));
      source[static_cast<std::size_t>(l)] = current;
    }
    return source;
  }

  // A coarse segment never ends inside a fine one: every coarse source also starts a fine segment.
  void refines(const std::string& fine_key, const std::vector<int>& fine, const std::string& coarse_key,
               const std::vector<int>& coarse) const {
    for (int l : coarse)
      if (!contains(fine, l))
        refuse(fine_key, fine, "layer " + std::to_string(l) + " of " + coarse_key + " is missing");
  }

  void candidates() {
    const int source = c_.candidate_source_layer_id;
    if (source < 0)
      return;
    const std::string key = "candidate_source_layer_id", value = std::to_string(source);
    if (!contains(c_.index_source_layer_ids, source))
      refuse(key, value, "candidate blocks come from a layer of index_source_layer_ids");
    if (c_.candidate_topk_blocks % 8 != 0 || c_.candidate_topk_blocks < 8 || c_.candidate_topk_blocks > 4096)
      refuse("candidate_topk_blocks", std::to_string(c_.candidate_topk_blocks),
             "must be a multiple of 8 from 8 to 4096");
    if (c_.candidate_block_size != 8 && c_.candidate_block_size != 16)
      refuse("candidate_block_size", std::to_string(c_.candidate_block_size), "must be 8 or 16");
    if (c_.candidate_topk_blocks * c_.candidate_block_size < c_.index_topk)
      refuse("candidate_topk_blocks", std::to_string(c_.candidate_topk_blocks),
             "the candidates hold fewer positions than index_topk = " + std::to_string(c_.index_topk));
    at(source).is_candidate_source = true;
    for (int l : c_.index_source_layer_ids) {
      if (l <= source)
        continue;
      if (ratio_of(l) != ratio_of(source))
        refuse(key, value, "index source layer " + std::to_string(l) + " behind it has another compress_ratios value");
      at(l).uses_candidates = true;
    }
  }

  void engram() {
    const auto& ids = c_.engram_layer_ids;
    check_ids("engram_layer_ids", ids);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] >= c_.n_prefill_layer)
        refuse("engram_layer_ids", ids,
               "layer " + std::to_string(ids[i]) + " is at or behind the first layer with ratio 1 (" +
                   std::to_string(c_.n_prefill_layer) + ")");
      at(ids[i]).is_engram = true;
      at(ids[i]).engram_index = static_cast<int>(i);
    }
  }

  void drafter() {
    const auto& ids = c_.dspark_target_layer_ids;
    const std::string key = "dspark_target_layer_ids";
    check_ids(key, ids);
    if (ids.empty() && c_.num_nextn_predict_layers > 0)
      refuse(key, ids, "the drafter needs at least one layer to read from");
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if ((ids[i] >= c_.n_prefill_layer) != (ids[0] >= c_.n_prefill_layer))
        refuse(key, ids,
               "the layers must lie on one side of the first layer with ratio 1 (" +
                   std::to_string(c_.n_prefill_layer) + ")");
      at(ids[i]).draft_feature = static_cast<int>(i);
    }
  }

  int ratio_of(int layer) const { return c_.compress_ratios[static_cast<std::size_t>(layer)]; }
  layer_config& at(int layer) { return c_.layers[static_cast<std::size_t>(layer)]; }

  model_config& c_;
  const std::string& file_;
};

} // namespace

void derive_layers(model_config& config, const std::string& file) {
  layer_map(config, file).derive();
}

} // namespace troupe
