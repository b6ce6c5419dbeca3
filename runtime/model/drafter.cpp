// The drafter's two halves (model.md §12): the main cache, updated by every backbone forward, and the greedy draft
// block.
#include "runtime/base/exact_math.hpp"
#include "runtime/model/graph.hpp"
#include <algorithm>

namespace troupe {

void model_runner::impl::update_drafter_cache(const step_input& in) {
  const auto& d = weights->drafter;
  const int n = in.map.rows, h = c().hidden_size, dim = c().head_dim;
  const int features = static_cast<int>(c().dspark_target_layer_ids.size()) * h;
  auto f = product_input(ws.features.as<const float>(), n, features, ws.rounded);
  linear(f, d.main_proj, n, ws.x.as<float>());
  norm(ws.x.as<const float>(), d.main_norm, n, h, ws.normed.as<float>());
  auto g = product_input(ws.normed.as<const float>(), n, h, ws.rounded);
  for (int i = 0; i < c().num_nextn_predict_layers; ++i) {
    const int layer = c().num_hidden_layers + i;
    const auto& a = weights->layers[layer].attn;
    linear(g, a.wkv, n, ws.kv.as<float>());
    norm(ws.kv.as<const float>(), a.kv_norm, n, dim, ws.kv.as<float>());
    rope(ws.kv.as<float>(), n, 1, dim, in.map.position, false);
    ops.encode(*work, {ws.kv.as<const float>(), n, dim, layout.window_format, ws.own.as<std::byte>()});
    const auto own = of_all_rows(in, ws.own, record_bytes(layout.window_format, dim), ws.all_own);
    ops.ring_commit(*work, {in.keys, own, window_ring(layer)});
  }
}

model_runner::draft_result model_runner::draft_greedy(std::span<const std::int32_t> slot,
                                                      std::span<const std::int32_t> golden,
                                                      std::span<const std::int32_t> position_of_golden) {
  auto& m = *impl_;
  const auto& c = m.c();
  const int block = c.dspark_block_size, n_seq = static_cast<int>(slot.size()), n = n_seq * block;
  const int h = c.hidden_size, v = c.vocab_size, rank = c.dspark_markov_rank;
  step_rows rows;
  for (int q = 0; q < n_seq; ++q) {
    rows.slot.push_back(slot[q]);
    rows.start.push_back(position_of_golden[q]);
    rows.rows.push_back(block);
    rows.tokens.push_back(golden[q]);
    rows.tokens.insert(rows.tokens.end(), block - 1, c.dspark_noise_token_id);
  }
  auto in = m.input.draft(*m.work, rows, block);
  m.embed(in);
  for (int i = 0; i < c.num_nextn_predict_layers; ++i) {
    m.attention_site(in, c.num_hidden_layers + i, true);
    m.moe_site(in, c.num_hidden_layers + i);
  }
  m.collapse(n, m.ws.pre); // ws.x = h_j, the confidence head's input too
  m.norm(m.ws.x.as<const float>(), m.weights->drafter.norm, n, h, m.ws.normed.as<float>());

  draft_result out;
  out.tokens.resize(n);
  out.confidence.resize(n);
  out.logits.resize(static_cast<std::size_t>(n) * v);
  buffer row = m.dev.allocate(4 * static_cast<std::size_t>(h + rank), "draft row"),
         bias = m.dev.allocate(4 * static_cast<std::size_t>(v), "draft logits");
  buffer index = m.dev.allocate(64, "draft token");
  for (int q = 0; q < n_seq; ++q) {
    std::int64_t prev = golden[q];
    for (int j = 0; j < block; ++j) { // each draft conditions on the one before it through the Markov head
      const int r = q * block + j;
      m.work->to_device(index.as<std::byte>(), &prev, sizeof prev);
      auto markov = row.as<float>() + h;
      m.ops.copy_columns(*m.work, {m.ws.x.as<const float>() + static_cast<std::int64_t>(r) * h, h, 1, h,
                                   row.as<float>(), h + rank, false});
      m.ops.gather(*m.work, {m.weights->drafter.markov_embed.get(), index.as<const std::int64_t>(), 1, 1, markov});
      m.linear(m.ws.normed.as<const float>() + static_cast<std::int64_t>(r) * h, m.weights->head, 1,
               m.ws.logits.as<float>());
      m.linear(markov, m.weights->drafter.markov_head, 1, bias.as<float>());
      m.ops.copy_columns(*m.work, {bias.as<const float>(), v, 1, v, m.ws.logits.as<float>(), v, true});
      m.linear(row.as<const float>(), m.weights->drafter.confidence, 1, bias.as<float>());
      float* logits = out.logits.data() + static_cast<std::size_t>(r) * v;
      float confidence = 0;
      m.work->to_host(logits, m.ws.logits.as<const std::byte>(), 4 * static_cast<std::size_t>(v));
      m.work->to_host(&confidence, bias.as<const std::byte>(), 4);
      m.work->synchronise();
      out.confidence[r] = sigmoid_f32(std::clamp(confidence, -60.0f, 60.0f));
      prev = std::max_element(logits, logits + v) - logits; // the first of equal maxima
      out.tokens[r] = static_cast<std::int32_t>(prev);
    }
  }
  return out;
}

} // namespace troupe
