#include "runtime/model/runner.hpp"
#include "runtime/base/check.hpp"
#include "runtime/model/graph.hpp"
#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace troupe {

model_runner::model_runner(std::shared_ptr<const model_weights> weights, device& dev, const runner_options& options,
                           expert_backend* experts, context_group* context)
    : impl_(std::make_unique<impl>(std::move(weights), dev, options, experts, context)) {}
model_runner::~model_runner() = default;

const model_config& model_runner::config() const {
  return impl_->c();
}
stream& model_runner::work() {
  return *impl_->work;
}

// Every sequence has its newest token and drafts behind it.
static bool only_newest_rows(const step_rows& rows) {
  for (std::size_t q = 0; q < rows.rows.size(); ++q)
    if (rows.rows[q] != 1 + (rows.drafts.empty() ? 0 : rows.drafts[q]))
      return false;
  return !rows.rows.empty();
}

// The part of a forward pass that expert_backend knows as a step.
class expert_step {
public:
  explicit expert_step(expert_backend* experts) : experts_(experts) {
    if (experts_)
      experts_->begin_step();
  }
  ~expert_step() {
    if (experts_)
      experts_->end_step();
  }
  expert_step(const expert_step&) = delete;
  expert_step& operator=(const expert_step&) = delete;

private:
  expert_backend* experts_;
};

void model_runner::forward(const step_rows& rows, const layer_hook& hook) {
  auto& m = *impl_;
  const expert_step step(m.experts);
  const auto sequences = static_cast<int>(rows.slot.size());
  TROUPE_CHECK(static_cast<int>(rows.tokens.size()) <= m.options.max_rows && sequences <= m.options.max_sequences,
               "step larger than the runner");
  m.ready_logits = 0;
  m.last_kept = false;
  m.last_shared = rows.shared && m.context != nullptr;
  TROUPE_CHECK(!m.last_shared || m.options.shares_steps, "a shared step without room for the other ranks' records");
  const yoco_mode yoco = m.options.yoco;
  const bool replays =
      yoco != yoco_mode::off &&
      m.replay.assign(rows, m.c().sliding_window, yoco == yoco_mode::compact || yoco == yoco_mode::exact);
  m.deferring = m.defer(rows, !m.last_shared && !replays && !hook);
  const auto n = static_cast<int>(rows.tokens.size());
  const int most = std::min(m.options.max_sequences * (1 + m.options.nextn), m.options.max_rows);
  if (m.fills_decode && only_newest_rows(rows) && n <= most && !m.last_shared && !replays && !hook)
    return m.decode(m.input.filled(*m.work, rows, filled_size(n, most)));
  const bool moves = std::ranges::any_of(rows.moves, [](std::int32_t x) { return x != 0; });
  TROUPE_CHECK(!replays || !moves, "rows of a prompt in a step whose positions the device finds");
  if (m.last_shared)
    m.split.assign(rows.rows);
  const step_input all = m.input.backbone(
      *m.work, rows, m.last_shared ? m.split.rows_of(m.context->rank()) : std::span<const std::int32_t>{});
  m.last = all;
  if (!replays)
    return m.layers(all, nullptr, hook);
  const step_input consumers = m.replay_input();
  m.layers(all, &consumers, hook);
  m.last_kept = consumers.kept;
  m.last_shared = consumers.shared;
}

// Rows that are left out make the step of the consumer layers a smaller one, which is shared anew or computed by every
// rank.
step_input model_runner::impl::replay_input() {
  const step_rows& rows = replay.rows();
  const int rank = last_shared ? context->rank() : 0;
  if (!replay.some_left_out())
    return consumer_input->consumers(*work, rows, last_shared ? split.rows_of(rank) : std::span<const std::int32_t>{});
  kept_runs.assign(replay.runs().begin(), replay.runs().end());
  const bool shares = last_shared && context_split_pays(rows.rows, context->ranks());
  if (shares)
    kept_split.assign(rows.rows);
  if (last_shared)
    split.find(replay.runs(), kept_runs);
  step_input in;
  if (!rows.tokens.empty())
    in = consumer_input->consumers(*work, rows, shares ? kept_split.rows_of(rank) : std::span<const std::int32_t>{});
  in.kept = true;
  in.counted = shares || rank == 0;
  return in;
}

void model_runner::impl::layers(const step_input& all, const step_input* replayed, const layer_hook& hook) {
  const step_input* here = &all;
  const int targets = static_cast<int>(c().dspark_target_layer_ids.size());
  work->zero(counts.as<std::byte>(), counts.bytes());
  if (all.decides_drafts) {
    share_drafts_args a = all.sharing;
    a.state = state;
    a.width = options.nextn;
    a.survival = survival.as<float>();
    ops.share_drafts(*work, a);
  }
  if (all.unresolved) {
    lay_out_rows_args a = all.layout;
    a.state = state;
    ops.lay_out_rows(*work, a);
  }
  embed(all);
  for (int layer = 0; layer < c().num_hidden_layers; ++layer) {
    const auto& facts = c().layers[layer];
    if (layer == c().n_prefill_layer && replayed) {
      if (replayed->kept)
        keep_rows(all, *replayed);
      here = replayed;
      if (here->map.rows == 0) // the step lies before the windows of all its sequences
        break;
    }
    const step_input& in = *here;
    const int n = in.map.rows;
    if (hook)
      hook(layer, false, *work, ws.trunk.as<float>(), ws.pre.as<float>(), n);
    if (facts.is_engram)
      engram(in, layer);
    if (facts.draft_feature >= 0)
      ops.hc_mean(*work, {ws.trunk.as<const float>(), n, c().hc_mult, c().hidden_size,
                          ws.features.as<float>() + static_cast<std::int64_t>(facts.draft_feature) * c().hidden_size,
                          static_cast<std::int64_t>(targets) * c().hidden_size});
    attention_site(in, layer, false);
    moe_site(in, layer);
    if (hook)
      hook(layer, true, *work, ws.trunk.as<float>(), ws.pre.as<float>(), n);
  }
  if (c().num_nextn_predict_layers == 0)
    return;
  const bool of_consumers = c().layers[c().dspark_target_layer_ids.front()].is_consumer;
  if (const step_input& in = of_consumers ? *here : all; deferring)
    ops.ring_commit(*work, {in.keys, ws.features.as<const std::byte>(), features_ring()});
  else if (in.map.rows > 0)
    update_drafter_cache(in);
}

// The compressed KV of the first consumer layer is made of all rows. Then the streams and mixes of those that are kept
// move together.
void model_runner::impl::keep_rows(const step_input& in, const step_input& kept) {
  const int layer = c().n_prefill_layer, n = in.map.rows, h = c().hidden_size;
  collapse(n, ws.pre);
  norm(ws.x.as<const float>(), weights->layers[layer].attn_norm, n, h, ws.normed.as<float>());
  compress(in, layer);
  keep_rows_of(ws.trunk, 4 * std::int64_t{c().hc_mult} * h, ws.expert_y, in, kept);
  keep_rows_of(ws.pre, 4 * std::int64_t{c().hc_mult}, ws.next_pre, in, kept);
}

void model_runner::impl::keep_rows_of(const buffer& values, std::int64_t row_bytes, const buffer& between,
                                      const step_input& in, const step_input& kept) {
  const auto to = values.as<std::byte>(), by_way_of = between.as<std::byte>();
  const auto move = [&](dev_ptr<std::byte> out, std::int64_t row, dev_ptr<std::byte> x, std::int64_t from,
                        std::int64_t rows) {
    work->copy(out + row * row_bytes, dev_ptr<const std::byte>((x + from * row_bytes).raw()),
               static_cast<std::size_t>(rows * row_bytes));
  };
  if (in.shared)
    context->gather(*work, values.as<const std::byte>(), row_bytes, kept_runs, by_way_of);
  else
    for (const context_run& r : kept_runs)
      move(by_way_of, r.to, to, r.from, r.rows);
  if (!kept.shared)
    return move(to, 0, by_way_of, 0, kept.map.rows);
  for (const context_run& r : kept_split.runs())
    if (r.rank == context->rank())
      move(to, r.from, by_way_of, r.to, r.rows);
}

// Work of a new size is done like any other; the second time it is recorded, and from then on the recording runs.
void model_runner::impl::run_recorded(recorded& r, const std::function<void()>& everything) {
  if (!r.steps && std::exchange(r.seen, true) && records) {
    work->begin_capture();
    try {
      everything();
    } catch (...) {
      work->end_capture();
      throw;
    }
    r.steps = work->end_capture();
  }
  if (r.steps)
    work->launch(*r.steps);
  else
    everything();
}

void model_runner::impl::decode(const step_input& in) {
  last = in;
  const bool with_head = in.map.rows <= options.max_logit_rows;
  run_recorded(graphs[{in.map.rows, in.map.sequences, in.map.block_stride, in.decides_drafts}], [&] {
    layers(in, nullptr, {});
    if (with_head)
      head(ws.trunk.as<const float>(), ws.pre.as<const float>(), in.map.rows);
  });
  ready_logits = with_head ? in.map.rows : 0;
}

void model_runner::impl::head(dev_ptr<const float> trunk, dev_ptr<const float> mix, int rows) {
  ops.hc_collapse(*work, {trunk, mix, rows, c().hc_mult, c().hidden_size, ws.logit_x.as<float>()});
  norm(ws.logit_x.as<const float>(), weights->norm, rows, c().hidden_size, ws.logit_x.as<float>());
  linear(ws.logit_x.as<const float>(), weights->head, rows, ws.logits.as<float>());
}

dev_ptr<float> model_runner::logits(std::span<const std::int32_t> rows) {
  auto& m = *impl_;
  const auto& c = m.c();
  const int count = static_cast<int>(rows.size());
  TROUPE_CHECK(count <= m.options.max_logit_rows, "more logit rows than the runner holds");
  if (m.last_kept) {
    m.logit_rows.clear();
    for (const std::int32_t r : rows)
      m.logit_rows.push_back(m.replay.row_of(r));
    rows = m.logit_rows;
  }
  bool first_rows = true; // in order
  for (int i = 0; i < count; ++i)
    first_rows = first_rows && rows[static_cast<std::size_t>(i)] == i;
  if (first_rows && count <= m.ready_logits)
    return m.ws.logits.as<float>();
  m.ready_logits = 0;
  // The head needs few rows: bring their streams and mixes together, then collapse, norm and multiply only those.
  const std::int64_t streams = static_cast<std::int64_t>(c.hc_mult) * c.hidden_size;
  auto trunk = m.ws.logit_trunk.as<float>();
  auto pre = m.ws.logit_pre.as<float>();
  if (m.last_shared) { // from the ranks that computed them
    m.logit_runs.clear();
    for (int i = 0; i < count; ++i)
      m.logit_runs.push_back((m.last_kept ? m.kept_split : m.split).row(rows[static_cast<std::size_t>(i)], i));
    m.context->gather(*m.work, m.ws.trunk.as<const std::byte>(), 4 * streams, m.logit_runs, trunk.as<std::byte>());
    m.context->gather(*m.work, m.ws.pre.as<const std::byte>(), 4 * std::int64_t{c.hc_mult}, m.logit_runs,
                      pre.as<std::byte>());
  } else if (first_rows) {
    trunk = m.ws.trunk.as<float>();
    pre = m.ws.pre.as<float>();
  } else {
    m.work->to_device(m.ws.logit_index.as<std::byte>(), rows.data(), rows.size_bytes());
    auto index = m.ws.logit_index.as<const std::int32_t>();
    m.ops.copy_rows(*m.work, {m.ws.trunk.as<const float>(), index, count, streams, trunk});
    m.ops.copy_rows(*m.work, {m.ws.pre.as<const float>(), index, count, c.hc_mult, pre});
  }
  m.head(trunk, pre, count);
  return m.ws.logits.as<float>();
}

model_runner::cache_memory model_runner::caches() const {
  auto& m = *impl_;
  std::vector<std::int32_t> all(m.deferred.size());
  std::iota(all.begin(), all.end(), 0);
  m.make_up(all);
  return {m.block_pool.as<const std::byte>(),
          m.slot_pool.as<const std::byte>(),
          {m.layout.block_bytes, m.layout.slot_bytes}};
}

dev_ptr<const std::uint32_t> model_runner::expert_counts() const {
  return impl_->counts.as<const std::uint32_t>();
}
dev_ptr<const std::int32_t> model_runner::row_positions() const {
  return impl_->last.keys.position;
}
dev_ptr<const std::int32_t> model_runner::row_sequences() const {
  return impl_->last.keys.sequence;
}
dev_ptr<const std::int32_t> model_runner::row_verifies() const {
  return impl_->last.layout.verifies;
}
const decode_state& model_runner::state() const {
  return impl_->state;
}

void model_runner::verify(dev_ptr<const std::int32_t> token, dev_ptr<const std::int32_t> draw_status,
                          dev_ptr<const std::int32_t> first_drawn, dev_ptr<std::int32_t> outcome,
                          dev_ptr<const sample_row_params> rules, dev_ptr<const std::int32_t> suppressed) {
  auto& m = *impl_;
  m.ops.verify_drafts(*m.work, {m.last.keys, m.state, m.last.layout.ids, m.last.history, m.last.draws,
                                m.last.layout.limit, first_drawn, token, draw_status, rules, suppressed, outcome});
}

// Where a state slot or a KV block lies.
dev_ptr<std::byte> model_runner::impl::at(slot_id s) const {
  TROUPE_CHECK(s.value > 0 && s.value < options.state_slots, "no such state slot");
  return slot_pool.as<std::byte>() + layout.slot_bytes * s.value;
}
dev_ptr<std::byte> model_runner::impl::at(block_id b) const {
  TROUPE_CHECK(b.value > 0 && b.value < options.kv_blocks, "no such KV block");
  return block_pool.as<std::byte>() + layout.block_bytes * b.value;
}

// The slot is about to get the state of another sequence.
void model_runner::impl::forget_deferred(slot_id s) {
  if (!deferred.empty())
    deferred[static_cast<std::size_t>(s.value)] = {};
}

void model_runner::copy_slot(slot_id from, slot_id to) {
  auto& m = *impl_;
  m.make_up(std::array{from.value});
  m.forget_deferred(to);
  m.work->copy(m.at(to), m.at(from), static_cast<std::size_t>(m.layout.slot_bytes));
}
void model_runner::copy_block(block_id from, block_id to) {
  auto& m = *impl_;
  m.work->copy(m.at(to), m.at(from), static_cast<std::size_t>(m.layout.block_bytes));
}
void model_runner::save_slot(slot_id from, std::uint8_t* to) {
  impl_->make_up(std::array{from.value});
  impl_->work->to_host(to, impl_->at(from), static_cast<std::size_t>(impl_->layout.slot_bytes));
}
void model_runner::save_block(block_id from, std::uint8_t* to) {
  impl_->work->to_host(to, impl_->at(from), static_cast<std::size_t>(impl_->layout.block_bytes));
}
void model_runner::load_slot(const std::uint8_t* from, slot_id to) {
  impl_->forget_deferred(to);
  impl_->work->to_device(impl_->at(to), from, static_cast<std::size_t>(impl_->layout.slot_bytes));
}
void model_runner::load_block(const std::uint8_t* from, block_id to) {
  impl_->work->to_device(impl_->at(to), from, static_cast<std::size_t>(impl_->layout.block_bytes));
}

struct expert_shard::impl {
  int first = 0;
  device& dev;
  std::vector<std::shared_ptr<const expert_set>> layers;
  buffer slot_of; // int32 [n_routed_experts]
};

expert_shard::expert_shard(const std::shared_ptr<const checkpoint>& source, device& dev, int first, int count)
    : impl_(new impl{first, dev, {}, {}}) {
  const auto& c = source->config();
  for (int l = 0; l < c.num_hidden_layers; ++l)
    impl_->layers.push_back(
        dev.pack_experts(expert_sources(source, "layers." + std::to_string(l) + ".", first, count)));
  std::vector<std::int32_t> slot(c.n_routed_experts, -1);
  for (int i = 0; i < count; ++i)
    slot[first + i] = i;
  impl_->slot_of = dev.allocate(slot.size() * sizeof(std::int32_t), "expert slots");
  auto s = dev.make_stream();
  s->to_device(impl_->slot_of.as<std::byte>(), slot.data(), slot.size() * sizeof(std::int32_t));
  s->synchronise();
}
expert_shard::~expert_shard() = default;

void expert_shard::run(stream& s, int layer, experts_args args) const {
  args.set = impl_->layers[layer].get();
  args.slot_of = impl_->slot_of.as<const std::int32_t>();
  impl_->dev.ops().experts(s, args);
}

} // namespace troupe
