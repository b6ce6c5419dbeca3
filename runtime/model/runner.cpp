#include "runtime/model/runner.hpp"
#include "runtime/base/check.hpp"
#include "runtime/model/graph.hpp"
#include <algorithm>

namespace troupe {

model_runner::model_runner(std::shared_ptr<const model_weights> weights, device& dev, const runner_options& options,
                           expert_backend* experts, context_group* context)
    : impl_(std::make_unique<impl>(std::move(weights), dev, options, experts, context)) {}
model_runner::~model_runner() = default;

const model_config& model_runner::config() const { return impl_->c(); }
stream& model_runner::work() { return *impl_->work; }

void model_runner::forward(const step_rows& rows, const layer_hook& hook) {
  auto& m = *impl_;
  const auto& c = m.c();
  TROUPE_CHECK(static_cast<int>(rows.tokens.size()) <= m.options.max_rows && static_cast<int>(rows.slot.size()) <= m.options.max_sequences,
               "step larger than the runner");
  m.last_shared = rows.shared && m.context != nullptr;
  TROUPE_CHECK(!m.last_shared || m.options.shares_steps, "a shared step without room for the other ranks' records");
  if (m.last_shared)
    m.split.assign(rows.rows);
  auto in = m.input.backbone(*m.work, rows, m.last_shared ? m.split.rows_of(m.context->rank()) : std::span<const std::int32_t>{});
  const int n = in.map.rows;
  m.last_rows = n;
  m.embed(in);
  const int targets = static_cast<int>(c.dspark_target_layer_ids.size());
  for (int layer = 0; layer < c.num_hidden_layers; ++layer) {
    const auto& facts = c.layers[layer];
    if (hook)
      hook(layer, false, *m.work, m.ws.trunk.as<float>(), m.ws.pre.as<float>(), n);
    if (facts.is_engram)
      m.engram(in, layer);
    if (facts.draft_feature >= 0)
      m.ops.hc_mean(*m.work, {m.ws.trunk.as<const float>(), n, c.hc_mult, c.hidden_size,
                              m.ws.features.as<float>() + static_cast<std::int64_t>(facts.draft_feature) * c.hidden_size,
                              static_cast<std::int64_t>(targets) * c.hidden_size});
    m.attention_site(in, layer, false);
    m.moe_site(in, layer);
    if (hook)
      hook(layer, true, *m.work, m.ws.trunk.as<float>(), m.ws.pre.as<float>(), n);
  }
  if (c.num_nextn_predict_layers > 0)
    m.update_drafter_cache(in);
}

dev_ptr<float> model_runner::logits(std::span<const std::int32_t> rows) {
  auto& m = *impl_;
  const auto& c = m.c();
  const int count = static_cast<int>(rows.size());
  TROUPE_CHECK(count <= m.options.max_logit_rows, "more logit rows than the runner holds");
  const std::int64_t streams = static_cast<std::int64_t>(c.hc_mult) * c.hidden_size;
  // The head needs few rows: bring their streams and mixes together, then collapse, norm and multiply only those.
  auto trunk = m.ws.logit_trunk.as<float>();
  auto pre = m.ws.logit_pre.as<float>();
  if (m.last_shared) { // from the ranks that computed them
    m.logit_runs.clear();
    for (int i = 0; i < count; ++i)
      m.logit_runs.push_back(m.split.row(rows[static_cast<std::size_t>(i)], i));
    m.context->gather(*m.work, m.ws.trunk.as<const std::byte>(), 4 * streams, m.logit_runs, trunk.as<std::byte>());
    m.context->gather(*m.work, m.ws.pre.as<const std::byte>(), 4 * std::int64_t{c.hc_mult}, m.logit_runs, pre.as<std::byte>());
  } else {
    m.work->to_device(m.ws.logit_index.as<std::byte>(), rows.data(), rows.size_bytes());
    auto index = m.ws.logit_index.as<const std::int32_t>();
    m.ops.copy_rows(*m.work, {m.ws.trunk.as<const float>(), index, count, streams, trunk});
    m.ops.copy_rows(*m.work, {m.ws.pre.as<const float>(), index, count, c.hc_mult, pre});
  }
  m.ops.hc_collapse(*m.work, {trunk, pre, count, c.hc_mult, c.hidden_size, m.ws.logit_x.as<float>()});
  m.norm(m.ws.logit_x.as<const float>(), m.weights->norm, count, c.hidden_size, m.ws.logit_x.as<float>());
  m.linear(m.ws.logit_x.as<const float>(), m.weights->head, count, m.ws.logits.as<float>());
  return m.ws.logits.as<float>();
}

model_runner::cache_memory model_runner::caches() const {
  const auto& m = *impl_;
  return {m.block_pool.as<const std::byte>(), m.slot_pool.as<const std::byte>(), {m.layout.block_bytes, m.layout.slot_bytes}};
}

void model_runner::fetch_routes(std::vector<std::int32_t>& to) {
  auto& m = *impl_;
  const auto& c = m.c();
  const int most_k = std::max(c.num_experts_per_tok, c.dspark_num_experts_per_tok);
  const std::size_t per_layer = static_cast<std::size_t>(m.last_rows) * c.num_experts_per_tok;
  to.resize(per_layer * c.num_hidden_layers);
  for (int l = 0; l < c.num_hidden_layers; ++l)
    m.work->to_host(to.data() + l * per_layer,
                    (m.ws.route_expert.as<std::int32_t>() + static_cast<std::int64_t>(l) * m.options.max_rows * most_k).as<const std::byte>(),
                    per_layer * sizeof(std::int32_t));
}

void model_runner::count_experts(const std::vector<std::int32_t>& routed, std::vector<std::uint32_t>& counts) const {
  const auto& c = impl_->c();
  const std::size_t per_layer = routed.size() / c.num_hidden_layers;
  counts.assign(static_cast<std::size_t>(c.num_hidden_layers) * c.n_routed_experts, 0);
  for (std::size_t i = 0; i < routed.size(); ++i)
    ++counts[i / per_layer * c.n_routed_experts + routed[i]];
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
    impl_->layers.push_back(dev.pack_experts(expert_sources(source, "layers." + std::to_string(l) + ".", first, count)));
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
