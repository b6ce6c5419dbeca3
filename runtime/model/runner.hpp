// Runs the model over a device: packed weights, caches and workspaces of one executor, and the forward pass.
// One thread uses a runner at a time. Throws device_error when the device fails.
#pragma once
#include "devices/device.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/model/config.hpp"
#include "runtime/scheduler/prefix_rules.hpp"
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe {

// Which roundings a forward applies (exactness.md §9; the oracle's act_fp8, act_off and raw).
enum class roundings : std::uint8_t { off, model, serving };

// How steps of one row a sequence are computed. The bits are the same.
enum class decode_form : std::uint8_t {
  automatic, // filled up to one of a few sizes and recorded as a graph of each, where the device has graphs; else eager
  eager,     // as they come
  padded,    // filled up but not recorded: what a graph computes, on any device
};

struct runner_options {
  roundings rounding = roundings::serving;
  bool combine_bf16 =
      true;           // serving rounds expert contributions to BF16 (exactness.md §2); the oracle's act_fp8 does not
  int max_rows = 512; // rows of one step
  int max_sequences = 64;  // sequences of one step
  int kv_blocks = 64;      // KV blocks of 128 tokens, block 0 is the dummy
  int state_slots = 65;    // state slots, slot 0 is the dummy
  int max_model_len = 0;   // positions
  int max_logit_rows = 64; // rows of logits that one step can produce; more are computed in pieces
  decode_form decode = decode_form::automatic;
  bool shares_steps = false;       // room for the other ranks' records of shared steps
  yoco_mode yoco = yoco_mode::off; // what the consumer layers do with the rows before step_rows::replay_from
  int yoco_keep = 0;               // rows of a prompt's end that they keep, from which an engine derives that position
  int nextn = 0;                   // drafts of a block that a step verifies at most; at most the block
  bool rejection = false;          // drafts are verified by rejection (exactness.md §4): their logits are kept
  bool defers_drafter = false;     // what plain decode steps owe the drafter's cache is done when somebody asks for it
  std::vector<float> confidence_temperature{}; // of the first places of a block; 1 behind them
};

// Bytes that one KV block and one state slot take with these options (engine.md §10).
struct cache_sizes {
  std::int64_t block_bytes = 0, slot_bytes = 0;
};
cache_sizes cache_size(const model_config& config, roundings rounding);

// Bytes of the buffers that hold the rows of one step and what is drafted behind them.
std::int64_t step_buffer_bytes(const model_config& config, const runner_options& options);
// Bytes of what the device keeps of the sequences in all state slots: newest tokens, drafts, confidences and, to verify
// by rejection, the drafts' logits; to defer the drafter's cache, the features that it is made of.
std::int64_t decode_state_bytes(const model_config& config, const runner_options& options);

// The rows of a step. All vectors are flat; sequence s owns rows [first_row of s, + rows[s]).
struct step_rows {
  std::vector<std::int32_t> slot, start, rows;      // [sequences]
  std::vector<std::int32_t> first_block, blocks_of; // [sequences] into blocks
  std::vector<std::int32_t> tokens;                 // [all rows] ids, or token_in_flight, or draft_in_flight
  std::vector<std::int32_t> blocks;
  std::vector<std::int32_t> history;     // [sequences, engram_max_ngram_size - 1], nearest last, -1 = none
  std::vector<std::int32_t> replay_from; // [sequences] where the windows of consumer layers begin; empty = at 0
  // [sequences], or empty for 0: the last `drafts` rows hold drafts, the last `draws` draw tokens; with `moves` the
  // rows begin at the newest token of the state slot; rows at `limit` and behind do not count (plan.hpp).
  std::vector<std::int32_t> drafts, draws, moves, limit;
  // Sequences from here on verify drafts behind tokens in flight: the device decides how many. -1 = none.
  std::int32_t first_in_flight = -1;
  std::int32_t sharing = 0; // so many of them, the last ones, share their drafts out anew
  bool shared = false; // every rank of the runner's context_group runs this step and computes its share of the rows
};

// Where routed experts are computed: on the runner's own device, or by others elsewhere. `args.set` and `args.slot_of`
// are null. Between run() and finish() the runner queues work that neither needs y nor changes what args name; work
// that is queued behind finish() finds y of every (row, slot).
class expert_backend {
public:
  virtual ~expert_backend() = default;
  // Around the layers of one forward pass; a begin that throws has no end.
  virtual void begin_step() {}
  virtual void end_step() noexcept {}
  virtual void run(stream& s, int layer, experts_args args) = 0;
  virtual void finish(stream&) {}
};

class checkpoint;
class context_group;

// Weights of one checkpoint packed for one device, shared read-only by the runners on it.
class model_weights;
struct weight_options {
  bool experts = true;   // false: expert executors hold the backbone's routed experts
  int max_positions = 0; // positions that the rotary tables cover: max_model_len and a draft block
};
// token_map: compressed id of every raw id of the vocabulary (compressed_vocabulary). progress gets values in (0, 1].
std::shared_ptr<const model_weights> load_weights(const std::shared_ptr<const checkpoint>& source, device& dev,
                                                  const weight_options& options,
                                                  const std::vector<std::int32_t>& token_map,
                                                  const std::function<void(double)>& progress = {});

// Routed experts [first, first + count) of every layer, for an expert executor.
class expert_shard {
public:
  expert_shard(const std::shared_ptr<const checkpoint>& source, device& dev, int first, int count);
  ~expert_shard();
  void run(stream& s, int layer, experts_args args) const; // computes the (row, slot) pairs whose expert lies here

private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

// For comparisons with the oracle: called before and after each layer with the layer's streams [rows, M, H] and pre mix
// [rows, M] in device memory, which it may overwrite.
using layer_hook =
    std::function<void(int layer, bool after, stream&, dev_ptr<float> trunk, dev_ptr<float> pre, int rows)>;

class model_runner {
public:
  // experts: null = the weights' own experts. context: null = never shares a step.
  model_runner(std::shared_ptr<const model_weights> weights, device& dev, const runner_options& options,
               expert_backend* experts = nullptr, context_group* context = nullptr);
  ~model_runner();

  const model_config& config() const;
  stream& work(); // the stream that everything below is queued on

  // Runs all layers on the rows and writes the caches. Logits are computed on demand by logits(). The caches and logits
  // of a shared step are those of the whole step; hook sees the rows computed here. Rows before replay_from have no
  // logits with yoco compact and exact, and none that mean anything with mask.
  void forward(const step_rows& rows, const layer_hook& hook = {});

  // Logits [count, vocab] of rows of the last forward, in a buffer that the next call overwrites;
  // count <= max_logit_rows. After a shared forward every rank asks for the same rows.
  dev_ptr<float> logits(std::span<const std::int32_t> rows);

  // The caches in device memory: block b and slot s start at b * block_bytes and s * slot_bytes.
  struct cache_memory {
    dev_ptr<const std::byte> blocks, slots;
    cache_sizes sizes;
  };
  cache_memory caches() const;

  // Rows routed to each expert by the last forward, of those computed here, in device memory:
  // [layers, n_routed_experts].
  dev_ptr<const std::uint32_t> expert_counts() const;
  // Of all rows of the last forward, where they are now: position, sequence, and the draft that each verifies as a
  // place in the drafts of state(), -1 = none.
  dev_ptr<const std::int32_t> row_positions() const, row_sequences() const, row_verifies() const;
  // What the device keeps of the sequences in the state slots.
  const decode_state& state() const;

  // Which drafts of the last forward were right, once its rows have been drawn from (verify_drafts_args); the state
  // slots' newest tokens are then those drawn. rules and suppressed: by which ids end a sequence; null = none does.
  void verify(dev_ptr<const std::int32_t> token, dev_ptr<const std::int32_t> draw_status,
              dev_ptr<const std::int32_t> first_drawn, dev_ptr<std::int32_t> outcome,
              dev_ptr<const sample_row_params> rules = {}, dev_ptr<const std::int32_t> suppressed = {});
  // Drafts a block behind the newest token of each state slot (model.md §12), by the rules' temperatures, filters and
  // seeds: into the state and into drafts and confidence [slots, block]. The drafter's cache must hold all positions
  // before those tokens. Only with a drafter: draft_block() > 0.
  void draft(std::span<const std::int32_t> slots, std::span<const sample_row_params> rules,
             dev_ptr<std::int32_t> drafts, dev_ptr<float> confidence);
  int draft_block() const; // tokens of a block; 0 = the checkpoint has no drafter
  // Does what was deferred of the drafter's cache of these state slots (runner_options::defers_drafter). draft() does
  // so too, and so does whatever reads or copies a slot.
  void make_up(std::span<const std::int32_t> slots);

  // Whole state slots and KV blocks, in the order of the stream.
  void copy_slot(slot_id from, slot_id to);
  void copy_block(block_id from, block_id to);
  // Their bytes to host memory, which is valid behind the stream's next event, and from there; `from` is read at once.
  void save_slot(slot_id from, std::uint8_t* to);
  void save_block(block_id from, std::uint8_t* to);
  void load_slot(const std::uint8_t* from, slot_id to);
  void load_block(const std::uint8_t* from, block_id to);

private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

} // namespace troupe
