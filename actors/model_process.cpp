#include "actors/model_process.hpp"
#include "actors/speculation_options.hpp"
#include "actors/timed_steps.hpp"
#include "runtime/base/sha256.hpp"
#include "runtime/experts/placement.hpp"
#include "runtime/experts/redundancy.hpp"
#include "runtime/model/checkpoint_digest.hpp"
#include "runtime/model/model_engine.hpp"
#include "runtime/model/replay.hpp"
#include "runtime/tokenizer/compressed_vocabulary.hpp"
#include <algorithm>
#include <chrono>
#include <future>
#include <sched.h>
#include <thread>

namespace troupe {

namespace {

constexpr std::int64_t mebibyte = 1 << 20;
constexpr std::int64_t least_kv_budget = 64 * mebibyte;

void check_range(const char* key, std::int64_t value, std::int64_t low, std::int64_t high, const std::string& remedy) {
  if (value < low || value > high)
    throw config_error("", key, std::to_string(value),
                       "not between " + std::to_string(low) + " and " + std::to_string(high), remedy);
}

// A number that somebody has set must change something (C21).
void check_effects(const engine_options& o) {
  const engine_options unset;
  const auto refuse_set = [](const char* key, int value, int left_out, const char* why, const char* remedy) {
    if (value != left_out)
      throw config_error("", key, std::to_string(value), why, remedy);
  };
  if (!o.prefix_cache) {
    const char *why = "no effect without prefix_cache", *remedy = "leave one of them out";
    refuse_set("prefix_snapshots", o.prefix_snapshots, unset.prefix_snapshots, why, remedy);
    refuse_set("snapshot_interval", o.snapshot_interval, unset.snapshot_interval, why, remedy);
  }
  if (o.prefill_fill_tokens == 0)
    refuse_set("ttft_bound_steps", o.ttft_bound_steps, unset.ttft_bound_steps,
               "no effect while prefill_fill_tokens is 0: prompts wait for no others",
               "give prefill_fill_tokens too, or leave it out");
  if (!o.chunked_prefill)
    refuse_set("lookahead_tokens", o.lookahead_tokens, unset.lookahead_tokens,
               "no effect without chunked_prefill: prompts are cut only where a state is kept",
               "leave one of them out");
  if (o.device == "reference")
    refuse_set("threads", o.threads, unset.threads,
               "no effect with the device reference, which computes with one thread",
               "leave it out, or use the device cpu");
}

void check_options(const engine_options& o, const model_config& c) {
  check_range("threads", o.threads, 0, 1024, "0 takes one thread per available core");
  check_range("engines", o.engines, 1, 64, "");
  check_range("ep", o.ep, 1, c.n_routed_experts,
              "there are " + std::to_string(c.n_routed_experts) + " routed experts to share");
  check_range("cp", o.cp, 1, 64, "");
  check_range("max_num_seqs", o.max_num_seqs, 1, 65536, "");
  // Flags and files take no fewer than the 128 of a cache block; tests set fewer, to cut prompts everywhere.
  check_range("max_num_batched_tokens", o.max_num_batched_tokens, 1, 1 << 20, "");
  check_range("max_model_len", o.max_model_len, 0, c.max_position_embeddings,
              "0 takes the checkpoint's max_position_embeddings");
  check_range("kv_blocks", o.kv_blocks, 0, 1 << 30, "0 takes what the sequences need within the memory budget");
  check_range("prefix_snapshots", o.prefix_snapshots, 0, 1 << 20, "0 takes what fits the memory budget");
  if (o.group_sync && o.engines == 1)
    throw config_error("", "group_sync", "true", "no effect with one engine", "leave it out, or give engines");
  check_effects(o);
}

roundings roundings_of(const std::string& name) {
  if (name == "serving")
    return roundings::serving;
  if (name == "model")
    return roundings::model;
  if (name == "off")
    return roundings::off;
  throw config_error("", "roundings", name, "unknown", "use serving, model or off");
}

yoco_mode yoco_mode_of(const std::string& name) {
  if (name == "off")
    return yoco_mode::off;
  if (name == "mask")
    return yoco_mode::mask;
  if (name == "compact")
    return yoco_mode::compact;
  if (name == "exact")
    return yoco_mode::exact;
  throw config_error("", "yoco", name, "unknown", "use off, mask, compact or exact");
}

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) == 0)
    for (int c = 0; c < CPU_SETSIZE; ++c)
      if (CPU_ISSET(static_cast<unsigned>(c), &set))
        cores.push_back(c);
  return cores;
}

// Memory that the KV blocks of one runner may take: a quarter of what is free, shared by all of them.
std::int64_t kv_budget(const device& dev, int runners) {
  return std::max(least_kv_budget, static_cast<std::int64_t>(dev.memory().available / 4)) / runners;
}

// State slots for the prefix cache: as many as sequences run and enough for some prompts and where they part, fewer
// where they would take more than an eighth of the budget, but never none.
std::int32_t snapshots_for(const engine_options& o, std::int64_t slot_bytes, std::int64_t budget) {
  if (!o.prefix_cache || o.prefix_snapshots > 0)
    return o.prefix_cache ? o.prefix_snapshots : 0;
  const std::int64_t affordable = budget / 8 / std::max<std::int64_t>(slot_bytes, 1);
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(affordable, 1, std::max(o.max_num_seqs, 16)));
}

struct sizes {
  runner_options runner;
  cache_sizes cache;
  std::int32_t snapshots = 0; // of the state slots
};

// runners: in this process, each with caches of its own.
sizes size_up(const engine_options& o, const speculation_options& speculation, const model_config& c, const device& dev,
              int runners) {
  sizes s;
  runner_options& r = s.runner;
  r.rounding = roundings_of(o.roundings);
  r.max_rows = o.max_num_batched_tokens;
  r.max_sequences = std::min(o.max_num_seqs, o.max_num_batched_tokens);
  r.max_model_len = o.max_model_len > 0 ? o.max_model_len : c.max_position_embeddings;
  r.nextn = speculation.nextn;
  r.rejection = speculation.rejection && r.nextn > 0;
  r.defers_drafter = r.nextn > 0 && speculation.varlen && !dev.records();
  r.confidence_temperature.assign(speculation.temperatures.begin(), speculation.temperatures.end());
  r.max_logit_rows = std::clamp(r.max_sequences * (1 + r.nextn), 1, 64);
  r.shares_steps = o.cp > 1;
  const auto [yoco, keep] = resolved_yoco(o, c);
  r.yoco = yoco_mode_of(yoco);
  r.yoco_keep = keep;
  s.cache = cache_size(c, r.rounding);
  const std::int64_t budget = kv_budget(dev, runners);
  r.kv_blocks =
      o.kv_blocks > 0 ? o.kv_blocks + 1 : kv_blocks_for(r.max_model_len, o.max_num_seqs, s.cache.block_bytes, budget);
  s.snapshots = snapshots_for(o, s.cache.slot_bytes, budget);
  r.state_slots = 1 + o.max_num_seqs + s.snapshots;
  const std::int64_t bytes =
      (r.kv_blocks * s.cache.block_bytes + r.state_slots * s.cache.slot_bytes + decode_state_bytes(c, r)) * runners;
  if (bytes > static_cast<std::int64_t>(dev.memory().available))
    throw config_error("", "kv_blocks", std::to_string(r.kv_blocks - 1),
                       "KV blocks, state slots and drafts take " + std::to_string(bytes / mebibyte) + " MiB, " +
                           std::to_string(static_cast<std::int64_t>(dev.memory().available) / mebibyte) +
                           " MiB are free",
                       "lower kv_blocks, max_model_len, max_num_seqs or prefix_snapshots");
  return s;
}

scheduler_limits limits_of(const engine_options& o, const speculation_options& speculation, const runner_options& r,
                           const model_config& c) {
  scheduler_limits l;
  l.max_num_seqs = o.max_num_seqs;
  l.max_num_batched_tokens = o.max_num_batched_tokens;
  l.chunked_prefill = o.chunked_prefill;
  l.max_model_len = r.max_model_len;
  l.kv_blocks = r.kv_blocks;
  l.history = std::max(c.engram_max_ngram_size - 1, 0);
  l.async = o.async;
  l.nextn = speculation.nextn;
  l.varlen = speculation.varlen;
  l.rejection = speculation.rejection;
  l.prefix_cache = o.prefix_cache;
  l.snapshot_interval = o.snapshot_interval;
  l.decode_steps_between = o.decode_steps_between;
  l.prefill_fill_tokens = o.prefill_fill_tokens;
  l.ttft_bound_steps = o.ttft_bound_steps;
  l.ageing_steps = o.ageing_steps;
  l.lookahead_tokens = o.lookahead_tokens;
  l.yoco = r.yoco;
  l.yoco_keep = r.yoco_keep;
  if (const status s = check(l); !s)
    throw config_error("", "", "", s.failure().message, "");
  return l;
}

class shard_compute final : public expert_compute {
public:
  shard_compute(const std::shared_ptr<const checkpoint>& source, std::shared_ptr<device> dev, expert_range range)
      : dev_(std::move(dev)), stream_(dev_->make_stream()), shard_(source, *dev_, range.first, range.count) {}
  void run(int layer, const experts_args& args) override {
    shard_.run(*stream_, layer, args);
    stream_->synchronise();
  }

private:
  std::shared_ptr<device> dev_; // first: outlives what it made
  std::unique_ptr<stream> stream_;
  expert_shard shard_;
};

// The process's part in its expert group: every layer's slots of its rank, filled by the initial placement.
std::shared_ptr<expert_part> make_part(const expert_group_place& place, const std::shared_ptr<const checkpoint>& source,
                                       const std::shared_ptr<device>& dev, const runner_options& r) {
  const model_config& c = source->config();
  check_range("expert_parallel", place.ranks, 2, c.n_routed_experts,
              "there are " + std::to_string(c.n_routed_experts) + " routed experts to share");
  const auto initial = std::make_shared<const expert_placement>(
      initial_placement(c.num_hidden_layers, c.n_routed_experts, place.ranks,
                        extra_experts(c.n_routed_experts, place.min_extra, place.ranks)));
  expert_rules rules;
  rules.layers = c.num_hidden_layers;
  rules.experts = c.n_routed_experts;
  rules.hidden = c.hidden_size;
  rules.k = c.num_experts_per_tok;
  rules.limit = c.swiglu_limit;
  rules.round_inner = r.rounding == roundings::serving;
  rules.bf16 = r.rounding == roundings::serving && r.combine_bf16;
  return std::make_shared<expert_part>(
      place,
      std::make_shared<placed_experts>(place.rank, initial,
                                       std::make_unique<resident_experts>(source, dev, *initial, place.rank)),
      rules);
}

struct made_rank {
  std::shared_ptr<step_engine> engine;
  int core = -1;
};

// One engine of `ranks` context-parallel ranks, which `make` makes one by one.
template <class Make> void add_engine(process_setup& setup, int ranks, const Make& make) {
  if (ranks == 1) {
    const made_rank alone = make(0, nullptr);
    setup.engines.push_back(alone.engine);
    setup.engine_cores.push_back(alone.core);
    return;
  }
  context_ranks others;
  others.team = std::make_shared<context_team>();
  others.team->meeting = std::make_shared<context_meeting>(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const made_rank one =
        make(rank, std::make_unique<context_exchange>(others.team->meeting, rank, setup.step_limit / 2));
    if (rank == 0) {
      setup.engines.push_back(std::make_shared<context_leader>(one.engine, others.team));
      setup.engine_cores.push_back(one.core);
      continue;
    }
    others.engines.push_back(one.engine);
    others.cores.push_back(one.core);
  }
  setup.context.push_back(std::move(others));
}

// What rank 0 of an engine has chosen holds for all of its ranks: the numbers in its plans are numbers of their caches.
engine_options as_joined(engine_options o, const std::shared_ptr<context_part>& ranks) {
  if (ranks && !ranks->leads()) {
    o.kv_blocks = ranks->shape().kv_blocks - 1;
    if (o.prefix_cache)
      o.prefix_snapshots = ranks->shape().snapshots;
  }
  return o;
}

void agree(context_part& ranks, const sizes& s, const model_identity& model) {
  const context_shape shape{s.runner.kv_blocks, s.snapshots, id_of(model)};
  if (ranks.leads())
    return ranks.lead(shape);
  if (const context_shape& first = ranks.shape(); first.model != shape.model)
    throw config_error("", "model", shape.model, "rank 0 of the engine has " + first.model,
                       "give all ranks of an engine the same model and devices");
}

std::string computes(const engine_options& o, const runner_options& r, const model_config& c, const device& dev) {
  const std::string yoco = resolved_yoco(o, c).first;
  return dev.numerics_id() + ", roundings " + o.roundings + ", yoco " + yoco + " " + std::to_string(r.yoco_keep);
}

// The engine of a process that is one of its ranks.
void be_rank(model_process& p, process_setup& setup, context_part& ranks) {
  auto& engines = setup.engines;
  if (ranks.leads()) {
    engines.back() = ranks.make_sender(engines.back());
    return;
  }
  p.follower = engines.back();
  engines.clear();
  setup.engine_cores.clear();
}

// Measures what decode steps take, for plans of verification. An engine whose steps need others to run with it cannot
// be timed before these run: it learns from its first steps.
std::vector<std::string> prepare_speculation(const engine_options& o, const speculation_options& speculation,
                                             const device& dev, std::int32_t vocabulary, process_setup& setup) {
  if (speculation.nextn == 0)
    return speculation.note.empty() ? std::vector<std::string>{} : std::vector{speculation.note};
  std::vector<std::string> notes{"up to " + std::to_string(speculation.nextn) + " drafts verified a step by " +
                                 o.verify};
  if (!speculation.varlen)
    return notes;
  if (o.ep > 1 || o.cp > 1 || setup.part) {
    setup.speculation.untimed_sizes = decode_sizes(setup.limits, dev.records() && o.ep == 1 && !setup.part);
    notes.emplace_back("step-cost curve from the first steps (those of several ranks are not timed at the start)");
    return notes;
  }
  step_engine& engine = *setup.engines.front();
  const std::vector<std::int32_t> steps = decode_sizes(setup.limits, dev.records());
  starting_curve c = make_starting_curve(
      o.spec_curve,
      {to_hex(sha256_of(id_of(setup.model))) + " threads " + std::to_string(o.threads) + " engines " +
           std::to_string(o.engines),
       dev.name() + " " + dev.description() + " " + dev.numerics_id(), steps},
      [&](std::int32_t rows) { return time_decode_step(engine, setup.limits, vocabulary, rows); },
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count());
  if (c.curve.empty())
    setup.speculation.untimed_sizes = steps;
  else
    setup.speculation.drafting = time_drafting(engine, setup.limits, vocabulary);
  setup.speculation.curve = std::move(c.curve);
  notes.insert(notes.end(), c.notes.begin(), c.notes.end());
  return notes;
}

grammar_settings grammars_of(const engine_options& o, const std::shared_ptr<const tokenizer>& vocabulary,
                             const model_config& c) {
  for (const engine_option& option : engine_option_table())
    if (const auto* member = std::get_if<int engine_options::*>(&option.member);
        member != nullptr && std::string_view(option.name).starts_with("so-"))
      check_range(option.key().c_str(), o.**member, option.low, option.high, "");
  if (c.vocab_size < vocabulary->vocab_size())
    throw config_error("tokenizer.json", "vocabulary", std::to_string(vocabulary->vocab_size()),
                       "the model has only " + std::to_string(c.vocab_size) + " ids",
                       "use the tokenizer that belongs to the model");
  grammar_settings g;
  g.vocabulary =
      std::make_shared<lazy_vocabulary>([vocabulary, size = c.vocab_size, block_added = o.so_block_added_tokens] {
        return token_vocabulary::of(*vocabulary, size, block_added);
      });
  const auto count = [](int n) { return static_cast<std::size_t>(n); };
  g.limits = {.text_bytes = count(o.so_text_kib) << 10,
              .schema_nesting = count(o.so_schema_nesting),
              .group_nesting = count(o.so_group_nesting),
              .regex_nesting = count(o.so_regex_nesting),
              .states_per_rule = count(o.so_rule_states),
              .states_total = count(o.so_states),
              .automaton_pairs = count(o.so_pairs),
              .memory_bytes = count(o.so_compile_mib) << 20,
              .frontier_items = count(o.so_frontier_items)};
  g.compile_seconds = o.so_compile_ms / 1000.0;
  g.time_limit = std::chrono::seconds(o.so_timeout);
  g.compilers = o.so_compilers;
  g.cache_bytes = static_cast<std::size_t>(o.so_cache_mib) << 20;
  return g;
}

std::string described(const engine_options& o, const model_config& c, const sizes& s, const device& dev) {
  const runner_options& r = s.runner;
  std::string yoco = resolved_yoco(o, c).first;
  if (r.yoco_keep > 0)
    yoco += " (keeps " + std::to_string(r.yoco_keep) + " rows)";
  const auto in_mebibytes = [](std::int64_t bytes) {
    return std::to_string((bytes + mebibyte - 1) / mebibyte) + " MiB";
  };
  return dev.name() + " (" + dev.description() + "), numerics " + dev.numerics_id() + ", roundings " + o.roundings +
         ", " + std::to_string(o.engines) + (o.engines == 1 ? " engine" : " engines") + ", ep " + std::to_string(o.ep) +
         ", cp " + std::to_string(o.cp) + ", yoco " + yoco + (o.async ? ", two steps out" : ", one step out") +
         ", max_model_len " + std::to_string(r.max_model_len) + ", each with " + std::to_string(r.kv_blocks - 1) +
         " KV blocks (" + in_mebibytes(r.kv_blocks * s.cache.block_bytes) + ") and " +
         std::to_string(r.state_slots - 1) + " state slots (" + in_mebibytes(r.state_slots * s.cache.slot_bytes) +
         "), " + std::to_string(s.snapshots) + " of them for the prefix cache";
}

} // namespace

std::pair<std::string, int> resolved_yoco(const engine_options& options, const model_config& config) {
  const bool consumers = config.n_prefill_layer > 0 && config.n_prefill_layer < config.num_hidden_layers;
  std::string name = options.yoco;
  if (name.empty())
    name = consumers && options.roundings == "serving" ? "compact" : "off";
  const yoco_mode mode = yoco_mode_of(name);
  if (mode == yoco_mode::off)
    return {name, 0};
  if (!consumers)
    throw config_error("", "yoco", name,
                       "no layers of this model share the compressed KV of the first one with ratio 1", "use off");
  const int least = least_keep(config), keep = options.yoco_keep > 0 ? options.yoco_keep : least;
  if (mode != yoco_mode::exact && keep < least)
    throw config_error("", "yoco_keep", std::to_string(keep),
                       "fewer rows than the window (" + std::to_string(config.sliding_window) +
                           ") and what speculation may take back (" + std::to_string(least - config.sliding_window) +
                           ")",
                       "give " + std::to_string(least) + " or more");
  return {name, kept_rows(mode, keep, config)};
}

std::int32_t kv_blocks_for(std::int32_t max_model_len, std::int32_t sequences, std::int64_t block_bytes,
                           std::int64_t budget) {
  const std::int64_t one = blocks_for(max_model_len), wanted = one * sequences;
  const std::int64_t affordable = budget / std::max<std::int64_t>(block_bytes, 1) - 1;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(std::max(one, std::min(wanted, affordable)), 1, 1 << 30) +
                                   1);
}

core_plan share_cores(const std::vector<int>& allowed, int threads, int engines, int experts) {
  core_plan plan;
  plan.engines.resize(static_cast<std::size_t>(engines));
  plan.experts.resize(static_cast<std::size_t>(experts));
  const int each = std::max(1, threads / engines);
  if (static_cast<int>(allowed.size()) != each * engines + experts || allowed.size() < 2)
    return plan;
  auto next = allowed.begin();
  for (auto& cores : plan.engines) {
    cores.assign(next, next + each);
    next += each;
  }
  for (auto& cores : plan.experts)
    cores.assign(1, *next++);
  return plan;
}

model_process make_model_process(const engine_options& asked, const expert_group_place* group,
                                 const std::shared_ptr<context_part>& ranks) {
  model_process p;
  const engine_options options = as_joined(asked, ranks);
  p.source = std::make_shared<const checkpoint>(options.model);
  const model_config& c = p.source->config();
  check_options(options, c);
  if (group != nullptr && (options.ep > 1 || options.engines > 1))
    throw config_error("", options.ep > 1 ? "ep" : "engines", std::to_string(std::max(options.ep, options.engines)),
                       "a worker that shares experts with others (expert_parallel) is one engine with its part of them",
                       "leave it out");
  if (ranks && (options.ep > 1 || options.engines > 1))
    throw config_error("", options.ep > 1 ? "ep" : "engines", std::to_string(std::max(options.ep, options.engines)),
                       "a worker that computes prompts with others (context_parallel) is one rank of one engine",
                       "leave it out");
  const speculation_options speculation =
      checked_speculation(options, c.num_nextn_predict_layers > 0 ? c.dspark_block_size : 0, group != nullptr);
  p.vocabulary = std::make_shared<const tokenizer>(tokenizer::load(options.model + "/tokenizer.json"));
  const auto token_map = compressed_vocabulary(*p.vocabulary, options.model, c.engram_compressed_vocab_size);

  const std::vector<int> allowed = allowed_cores();
  const int threads = options.threads > 0 ? options.threads : std::max(1, static_cast<int>(allowed.size()));
  const int expert_ranks = options.ep > 1 ? options.ep : 0;
  const int ranks_here = ranks ? 1 : options.cp;
  const int runners = options.engines * ranks_here; // by engine, then by context-parallel rank
  const core_plan cores = share_cores(allowed, threads, runners, expert_ranks);
  const int each = std::max(1, threads / runners);
  std::vector<std::shared_ptr<device>> devices;
  for (const auto& list : cores.engines)
    devices.push_back(make_device(options.device, {each, list}));

  const sizes s = size_up(options, speculation, c, *devices.front(), runners);
  auto setup = std::make_shared<process_setup>();
  setup->model.texts = texts_digest(options.model);
  setup->model.numerics = computes(options, s.runner, c, *devices.front());
  auto weights_id = std::async([source = p.source] { return weights_digest(*source); }); // it may wait for a disk
  if (ranks) {
    setup->model.weights = weights_id.get();
    agree(*ranks, s, setup->model);
  }
  const auto weights =
      load_weights(p.source, *devices.front(),
                   {expert_ranks == 0 && group == nullptr, s.runner.max_model_len + c.dspark_block_size + 1}, token_map,
                   options.on_load_progress);
  if (expert_ranks > 0)
    setup->exchange = std::make_shared<expert_group>();
  for (int rank = 0; rank < expert_ranks; ++rank)
    setup->experts.push_back(std::make_shared<shard_compute>(
        p.source, make_device(options.device, {1, cores.experts[static_cast<std::size_t>(rank)]}),
        initial_range(c.n_routed_experts, expert_ranks, rank)));
  if (group != nullptr)
    setup->part = make_part(*group, p.source, devices.front(), s.runner);
  for (int e = 0; e < options.engines; ++e)
    add_engine(*setup, ranks_here, [&](int rank, std::unique_ptr<context_group> context) {
      const auto at = static_cast<std::size_t>(e * ranks_here + rank);
      if (ranks)
        context = ranks->make_group();
      std::unique_ptr<expert_backend> exchange;
      if (expert_ranks > 0)
        exchange = std::make_unique<expert_exchange>(setup->exchange, setup->step_limit / 2);
      else if (setup->part)
        exchange = setup->part->make_backend(s.runner.max_rows);
      return made_rank{
          std::make_shared<model_engine>(weights, devices[at], s.runner, std::move(exchange), std::move(context)),
          cores.engines[at].empty() ? -1 : cores.engines[at].front()};
    });
  if (ranks)
    be_rank(p, *setup, *ranks);
  if (weights_id.valid())
    setup->model.weights = weights_id.get();
  setup->limits = limits_of(options, speculation, s.runner, c);
  if (options.group_sync)
    setup->group_sync = step_group_settings{.rule = rule_of(setup->limits), .decode_run = 1};
  setup->caches = s.cache;
  setup->kv = {s.runner.kv_blocks, s.runner.state_slots, s.snapshots, devices.front()->numerics_id(),
               id_of(setup->model)};
  setup->speculation.most_rows = s.runner.max_rows;
  setup->speculation.temperatures = speculation.temperatures;
  setup->grammars = grammars_of(options, p.vocabulary, c);
  setup->mask_threads = options.so_mask_threads;
  setup->layers = c.num_hidden_layers;
  setup->routed_experts = c.n_routed_experts;
  setup->front.vocabulary = p.vocabulary;
  setup->front.eos_ids = {c.eos_token_id};
  setup->front.seed = options.seed;
  setup->front.random_bits = random_bits_of_system;
  p.setup = setup;
  p.numerics_id = devices.front()->numerics_id();
  p.description = described(options, c, s, *devices.front());
  for (const std::string& note : prepare_speculation(options, speculation, *devices.front(), c.vocab_size, *setup))
    p.description += ", " + note;
  return p;
}

} // namespace troupe
