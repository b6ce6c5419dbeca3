// The embedded model on one device, for tests: weights, one runner and helpers to feed sequences by hand.
#pragma once
#include "devices/device.hpp"
#include "runtime/model/checkpoint.hpp"
#include "runtime/model/runner.hpp"
#include "runtime/tokenizer/compressed_vocabulary.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "tests/support/queued_device.hpp"
#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace troupe::test {

inline const std::string model_folder = TROUPE_SOURCE_DIR "/models/tiny-v41";

inline std::shared_ptr<const checkpoint> tiny_checkpoint() {
  static auto kept = std::make_shared<const checkpoint>(model_folder);
  return kept;
}

inline const std::vector<std::int32_t>& tiny_token_map() {
  static auto map = compressed_vocabulary(tokenizer::load(model_folder + "/tokenizer.json"), model_folder,
                                          tiny_checkpoint()->config().engram_compressed_vocab_size);
  return map;
}

struct tiny_model {
  explicit tiny_model(const std::string& device_name, roundings rounding = roundings::serving, int threads = 1,
                      int max_rows = 1024, bool combine_bf16 = true, bool rejection = false)
      : dev(open_device(device_name, {.threads = threads, .cores = {}})) {
    weights = load_weights(tiny_checkpoint(), *dev, {.experts = true, .max_positions = 4096 + 8}, tiny_token_map());
    runner = std::make_unique<model_runner>(weights, *dev,
                                            runner_options{.rounding = rounding,
                                                           .combine_bf16 = combine_bf16,
                                                           .max_rows = max_rows,
                                                           .max_sequences = 80,
                                                           .kv_blocks = 96,
                                                           .state_slots = 90,
                                                           .max_model_len = 4096,
                                                           .max_logit_rows = 64,
                                                           .rejection = rejection});
  }

  std::vector<float> logits(std::span<const std::int32_t> rows) {
    std::vector<float> out;
    const std::size_t v = runner->config().vocab_size;
    for (std::size_t at = 0; at < rows.size(); at += 64) {
      auto part = rows.subspan(at, std::min<std::size_t>(64, rows.size() - at));
      auto on_device = runner->logits(part);
      out.resize((at + part.size()) * v);
      runner->work().to_host(out.data() + at * v, on_device.as<const std::byte>(), part.size() * v * sizeof(float));
      runner->work().synchronise();
    }
    return out;
  }

  std::unique_ptr<device> dev;
  std::shared_ptr<const model_weights> weights;
  std::unique_ptr<model_runner> runner;
};

// One request's place in the caches: a state slot and enough KV blocks, given by hand.
struct hand_sequence {
  std::int32_t slot = 1;
  std::vector<std::int32_t> blocks;
  std::vector<std::int32_t> ids; // fed so far

  hand_sequence(std::int32_t slot_, std::int32_t first_block, int tokens) : slot(slot_), blocks((tokens + 127) / 128) {
    std::iota(blocks.begin(), blocks.end(), first_block);
  }
  // Appends its next rows to a step.
  void feed(step_rows& step, std::span<const std::int32_t> tokens, int ngram = 4) {
    step.slot.push_back(slot);
    step.start.push_back(static_cast<std::int32_t>(ids.size()));
    step.rows.push_back(static_cast<std::int32_t>(tokens.size()));
    step.draws.push_back(1);
    step.first_block.push_back(static_cast<std::int32_t>(step.blocks.size()));
    step.blocks_of.push_back(static_cast<std::int32_t>(blocks.size()));
    step.blocks.insert(step.blocks.end(), blocks.begin(), blocks.end());
    for (int back = ngram - 1; back >= 1; --back) {
      auto at = static_cast<std::int64_t>(ids.size()) - back;
      step.history.push_back(at < 0 ? -1 : ids[at]);
    }
    step.tokens.insert(step.tokens.end(), tokens.begin(), tokens.end());
    ids.insert(ids.end(), tokens.begin(), tokens.end());
  }
};

inline std::int32_t argmax(std::span<const float> row) {
  return static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

} // namespace troupe::test
