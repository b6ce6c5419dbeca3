// The layers of the model, written once against the device interface (model.md §2-§8, §12). Private to runtime/model.
//
// One step of n rows walks through: embed -> for each layer [Engram] [drafter feature] attention site, MoE site ->
// head. The trunk carries M streams per row; the mix `pre` of one mHC site is applied at the next site (shifted mHC).
#pragma once
#include "devices/device.hpp"
#include "runtime/model/cache_layout.hpp"
#include "runtime/model/context_group.hpp"
#include "runtime/model/replay.hpp"
#include "runtime/model/runner.hpp"
#include "runtime/model/step_input.hpp"
#include "runtime/model/weights.hpp"
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace troupe {

// Device memory for the rows of one step; sizes in floats unless said otherwise. R = most rows of a step.
struct workspace {
  using allocator = std::function<buffer(std::size_t bytes, const char* what)>;
  workspace(const model_config& c, const runner_options& o, const allocator& allocate);

  std::int64_t rows = 0;      // R: of a step, at least of a draft block
  buffer trunk;               // [R, M, H]
  buffer pre, next_pre, post; // [R, M]
  buffer comb;                // [R, M, M]
  buffer x, normed, rounded;  // [R, H]
  buffer qa, qr;              // [R, q_lora]
  buffer q, attended;         // [R, heads, D]
  buffer kv;                  // [R, D]
  buffer own;                 // [R] window records, bytes
  buffer z;                   // [R, o_groups * o_lora]
  buffer y;                   // [R, H]
  buffer kg;                  // [R, 2D]
  buffer all_own, all_kg;     // own and kg of all rows of a shared step
  buffer latent, rotated;     // [R, D]
  buffer index_key;           // [R, index_dim]
  buffer index_q, index_a;    // [R, index_heads, index_dim], [R, index_heads]
  buffer scores;              // index scores of a tile of rows
  std::int64_t scores_floats = 0;
  buffer selected, candidates;   // int32 [R, topk], [R, candidate_topk_blocks]
  buffer gate_logits;            // [R, experts]
  buffer route_expert;           // int32 [R, k]
  buffer route_weight;           // [R, k]
  buffer shared_gate, shared_up; // [R, n_shared * I]
  buffer expert_y;               // [R, k, H], at least [R, M, H]
  buffer engram_index;           // int64 [R, columns]
  buffer engram_e, engram_kv;    // [R, columns * dim], [R, M+1, H]
  buffer features;               // [R, targets * H]
  buffer logits, logit_x;        // [max_logit_rows, V], [max_logit_rows, H]
  buffer logit_trunk, logit_pre; // [max_logit_rows, M, H], [max_logit_rows, M]
  buffer logit_index;            // int32 [max_logit_rows]
  // Of a piece of a draft round, P sequences: with the logits above for all its rows.
  int draft_sequences = 0;                                      // P
  buffer draft_ids, draft_position, draft_sequence;             // int32 [P, block]
  buffer draft_lo, draft_hi, draft_position_of, drafts;         // likewise
  buffer draft_first, draft_rows, draft_start;                  // int32 [P]
  buffer draft_before;                                          // int64 [P]
  buffer draft_markov, draft_features, draft_score, draft_bias; // [P, rank], [P, H + rank], [P], [P, V]
  buffer draft_token, draft_status, draft_logprob, draft_conf;  // int32 [P], int32 [P], [P], [P, block]
};

struct model_runner::impl {
  impl(std::shared_ptr<const model_weights> w, device& d, const runner_options& o, expert_backend* e, context_group* g);

  // Everything that a step queues, without its inputs. replayed: what the consumer layers compute, null = the same.
  void layers(const step_input& in, const step_input* replayed, const layer_hook& hook);
  dev_ptr<std::byte> at(slot_id s) const;
  dev_ptr<std::byte> at(block_id b) const;
  step_input replay_input(); // of `replay`
  void keep_rows(const step_input& in, const step_input& kept);
  void keep_rows_of(const buffer& values, std::int64_t row_bytes, const buffer& between, const step_input& in,
                    const step_input& kept);
  void decode(const step_input& in); // layers of a filled step, as a graph where that is possible
  void head(dev_ptr<const float> trunk, dev_ptr<const float> mix, int rows); // ws.logits of these rows
  void embed(const step_input& in);
  void engram(const step_input& in, int layer);
  void attention_site(const step_input& in, int layer, bool draft);
  void moe_site(const step_input& in, int layer);
  void update_drafter_cache(const step_input& in);
  bool defer(const step_rows& rows, bool plain);
  void make_up(std::span<const std::int32_t> slots);
  void make_up_collected();
  void forget_deferred(slot_id s);
  ring_view features_ring() const;
  void draft_piece(dev_ptr<const std::int32_t> slots, dev_ptr<const sample_row_params> rules,
                   dev_ptr<const std::int32_t> live, int sequences);
  void markov_step(int number, int sequences, dev_ptr<const std::int32_t> slots,
                   dev_ptr<const sample_row_params> rules);

  const model_config& c() const { return weights->config; }
  bool act() const { return options.rounding == roundings::serving; }
  // x as the input of an FP8 or FP4 product: rounded under serving roundings, else x itself.
  dev_ptr<const float> product_input(dev_ptr<const float> from, int rows, int cols, buffer& to);
  void linear(dev_ptr<const float> from, const weight_ptr& w, int rows, dev_ptr<float> to, int groups = 1);
  void norm(dev_ptr<const float> from, const norm_weights& w, int rows, int cols, dev_ptr<float> to);
  void rope(dev_ptr<float> heads_of, int rows, int heads, int dim, dev_ptr<const std::int32_t> position,
            bool compressed, bool inverse = false);
  // Records of all rows of the step, in its order, from those of the rows computed here; in `all` if the step is
  // shared.
  dev_ptr<const std::byte> of_all_rows(const step_input& in, const buffer& here, std::int64_t row_bytes,
                                       const buffer& all);
  ring_view window_ring(int layer) const;
  block_view main_blocks(int layer) const;
  block_view index_blocks(int layer) const;
  void compress(const step_input& in, int layer);
  void select(const step_input& in, int layer, dev_ptr<const float> qr_rounded);
  void collapse(int rows, const buffer& mix);
  void mixes(const hc_site_weights& site, int rows, buffer& pre_out);
  void expand(int rows);
  static float attention_scale(int dim) { return 1.0f / std::sqrt(static_cast<float>(dim)); }

  std::shared_ptr<const model_weights> weights;
  device& dev;
  op_table& ops;
  runner_options options;
  cache_layout layout;
  std::unique_ptr<stream> work;
  expert_backend* experts;
  context_group* context;
  context_split split, kept_split; // of the last forward: of its rows, and of those that consumer layers kept
  replayed_step replay;            // likewise: what the consumer layers computed
  bool last_shared = false, last_kept = false;    // the rows that it ended with: are shared, are those of `replay`
  std::vector<context_run> logit_runs, kept_runs; // kept_runs: from the ranks' rows of the step to those of `replay`
  std::vector<std::int32_t> logit_rows;
  buffer block_pool, slot_pool;
  workspace ws;
  step_input_builder input;
  std::unique_ptr<step_input_builder> consumer_input; // null with yoco off
  buffer first_mix;                                   // [R, M] one-hot at stream 0
  buffer counts;                                      // uint32 [layers, experts] rows routed in the last step
  struct {
    buffer position, ids, drafts, confidence, stopped, logits;
  } state_memory;
  decode_state state;
  buffer survival; // of sharing sequences
  step_input last; // of the last forward
  packed_arrays draft_input;
  std::vector<std::int32_t> draft_slots;
  std::vector<sample_row_params> draft_rules;
  // Positions [first, end) of a state slot whose drafter keys are not made yet: their features are in features_kept,
  // [state slots, entries of a window's ring, targets * H].
  struct deferred_rows {
    std::int32_t first = 0, end = 0;
  };
  std::vector<deferred_rows> deferred; // [state slots]; empty: nothing ever is
  bool deferring = false;              // the step that is being queued
  buffer features_kept;
  packed_arrays deferred_input;
  struct {
    std::vector<std::int32_t> slots, place, position, sequence, slot, first_row, row_count;
    void clear_rows() {
      for (auto* v : {&place, &position, &sequence, &slot, &first_row, &row_count})
        v->clear();
    }
  } collected;                                // of those that are made now; kept for their memory
  bool fills_decode = false, records = false; // decode steps are filled; and recorded
  int ready_logits = 0;                       // ws.logits holds the first rows of the last forward, this many
  struct recorded {
    bool seen = false;
    std::unique_ptr<graph> steps; // null until the second step of its kind, or where the device has no graphs
  };
  void run_recorded(recorded& r, const std::function<void()>& everything);
  std::map<std::array<int, 4>, recorded> graphs; // by rows, sequences, block table width and whether drafts are decided
  std::map<int, recorded> draft_graphs;          // by sequences
};

} // namespace troupe
