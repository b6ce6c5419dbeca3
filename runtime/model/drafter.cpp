// The drafter's two halves (model.md §12): the main cache, made of the rows of every backbone forward, and the draft
// round.
#include "runtime/base/check.hpp"
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

ring_view model_runner::impl::features_ring() const {
  const auto floats = static_cast<std::int32_t>(c().dspark_target_layer_ids.size()) * c().hidden_size;
  const std::int32_t entries = layout.window_entries;
  return {features_kept.as<std::byte>(), entries * record_bytes(kv_format::f32, floats), entries, floats,
          kv_format::f32};
}

// Whether this step leaves its part of the main cache undone and keeps the features instead. Its products are 1.5 to 3
// % of a decode step on a CPU, nobody asks for them while no drafts are wanted, and of a sequence's rows only those of
// a window matter then. Only rows of plain decode steps, whose positions the host knows, one behind the other; any
// other step first makes up for what its sequences lack. Rows depend on nothing but their features, so the bits are the
// same.
bool model_runner::impl::defer(const step_rows& rows, bool plain) {
  if (deferred.empty())
    return false;
  const auto none = [](const std::vector<std::int32_t>& of) {
    return std::ranges::all_of(of, [](std::int32_t x) { return x == 0; });
  };
  plain = plain && none(rows.drafts) && none(rows.moves) &&
          std::ranges::all_of(rows.rows, [](std::int32_t x) { return x == 1; });
  auto& behind = collected.slots;
  behind.clear();
  for (std::size_t q = 0; q < rows.slot.size(); ++q) {
    deferred_rows& d = deferred[static_cast<std::size_t>(rows.slot[q])];
    if (rows.start[q] == 0) // another sequence from here on
      d = {};
    else if (d.first < d.end && !(plain && d.end == rows.start[q]))
      behind.push_back(rows.slot[q]);
  }
  make_up(behind);
  for (std::size_t q = 0; plain && q < rows.slot.size(); ++q) {
    deferred_rows& d = deferred[static_cast<std::size_t>(rows.slot[q])];
    const std::int32_t end = rows.start[q] + 1;
    d.first = std::max(d.first < d.end ? d.first : rows.start[q], end - layout.window_entries);
    d.end = end;
  }
  return plain;
}

void model_runner::impl::make_up(std::span<const std::int32_t> slots) {
  if (deferred.empty())
    return;
  auto& m = collected;
  m.clear_rows(); // of a make-up that failed
  const auto most = static_cast<std::int32_t>(ws.rows);
  for (const std::int32_t s : slots) {
    deferred_rows& d = deferred[static_cast<std::size_t>(s)];
    while (d.first < d.end) {
      const auto have = static_cast<std::int32_t>(m.position.size()), n = std::min(d.end - d.first, most - have);
      m.slot.push_back(s), m.first_row.push_back(have), m.row_count.push_back(n);
      for (const std::int32_t until = d.first + n; d.first < until; ++d.first) {
        m.place.push_back(s * layout.window_entries + d.first % layout.window_entries);
        m.position.push_back(d.first);
        m.sequence.push_back(static_cast<std::int32_t>(m.slot.size()) - 1);
      }
      if (have + n == most)
        make_up_collected();
    }
  }
  if (!m.slot.empty())
    make_up_collected();
}

void model_runner::impl::make_up_collected() {
  auto& m = collected;
  deferred_input.clear();
  const std::size_t at_place = deferred_input.append(m.place), at_position = deferred_input.append(m.position),
                    at_sequence = deferred_input.append(m.sequence), at_slot = deferred_input.append(m.slot),
                    at_first = deferred_input.append(m.first_row), at_count = deferred_input.append(m.row_count);
  deferred_input.send(*work);
  const auto ints = [&](std::size_t offset) { return deferred_input.at<const std::int32_t>(offset); };
  step_input in;
  in.map.rows = in.map.key_rows = static_cast<std::int32_t>(m.position.size());
  in.map.sequences = static_cast<std::int32_t>(m.slot.size());
  in.map.position = ints(at_position), in.map.sequence = ints(at_sequence);
  in.map.first_row = ints(at_first), in.map.row_count = ints(at_count);
  in.map.slot = ints(at_slot);
  in.keys = in.map;
  const ring_view kept = features_ring();
  ops.copy_rows(*work, {kept.base.as<const float>(), ints(at_place), in.map.rows, kept.dim, ws.features.as<float>()});
  update_drafter_cache(in);
  m.clear_rows();
}

void model_runner::make_up(std::span<const std::int32_t> slots) {
  impl_->make_up(slots);
}

int model_runner::draft_block() const {
  return impl_->state.block;
}

void model_runner::draft(std::span<const std::int32_t> slots, std::span<const sample_row_params> rules,
                         dev_ptr<std::int32_t> drafts, dev_ptr<float> confidence) {
  auto& m = *impl_;
  const int block = m.state.block;
  TROUPE_CHECK(block > 0, "the checkpoint has no drafter");
  m.make_up(slots);
  m.ready_logits = 0; // their memory is needed
  const auto n = static_cast<int>(slots.size());
  for (int first = 0; first < n; first += m.ws.draft_sequences) {
    const int live = std::min(n - first, m.ws.draft_sequences),
              size = m.fills_decode ? filled_size(live, m.ws.draft_sequences) : live;
    auto& in = m.draft_input;
    in.clear();
    m.draft_slots.assign(static_cast<std::size_t>(size), 0); // placeholders draft in slot 0
    std::copy_n(slots.begin() + first, live, m.draft_slots.begin());
    m.draft_rules.assign(static_cast<std::size_t>(size), {});
    std::copy_n(rules.begin() + first, live, m.draft_rules.begin());
    const std::size_t at_rules = in.append(m.draft_rules), at_slots = in.append(m.draft_slots),
                      at_live = in.append(std::array<std::int32_t, 1>{live * block});
    TROUPE_CHECK(in.bytes() <= in.room(), "draft inputs exceed their buffer"); // graphs know its address
    in.send(*m.work);
    const auto piece = [&] {
      m.draft_piece(in.at<const std::int32_t>(at_slots), in.at<const sample_row_params>(at_rules),
                    in.at<const std::int32_t>(at_live), size);
    };
    m.fills_decode ? m.run_recorded(m.draft_graphs[size], piece) : piece();
    const auto bytes = 4 * static_cast<std::size_t>(live * block);
    const std::int64_t at = std::int64_t{first} * block;
    m.work->copy((drafts + at).as<std::byte>(), m.ws.drafts.as<const std::byte>(), bytes);
    m.work->copy((confidence + at).as<std::byte>(), m.ws.draft_conf.as<const std::byte>(), bytes);
  }
}

// One block of rows for each sequence through the drafter's layers, then left to right through the Markov head.
void model_runner::impl::draft_piece(dev_ptr<const std::int32_t> slots, dev_ptr<const sample_row_params> rules,
                                     dev_ptr<const std::int32_t> live, int sequences) {
  const int block = state.block, n = sequences * block, h = c().hidden_size;
  lay_out_drafts_args a;
  a.state = state;
  a.sequences = sequences;
  a.window = c().sliding_window;
  a.noise = c().dspark_noise_token_id;
  a.slot = slots;
  a.ids = ws.draft_ids.as<std::int32_t>();
  a.position = ws.draft_position.as<std::int32_t>();
  a.sequence = ws.draft_sequence.as<std::int32_t>();
  a.window_lo = ws.draft_lo.as<std::int32_t>();
  a.window_hi = ws.draft_hi.as<std::int32_t>();
  a.first_row = ws.draft_first.as<std::int32_t>();
  a.row_count = ws.draft_rows.as<std::int32_t>();
  a.start = ws.draft_start.as<std::int32_t>();
  a.position_of = ws.draft_position_of.as<std::int32_t>();
  a.before = ws.draft_before.as<std::int64_t>();
  ops.lay_out_drafts(*work, a);

  step_input in;
  in.map.rows = in.map.key_rows = n;
  in.map.sequences = sequences;
  in.map.position = a.position, in.map.sequence = a.sequence;
  in.map.window_lo = a.window_lo, in.map.window_hi = a.window_hi;
  in.map.first_row = a.first_row, in.map.row_count = a.row_count, in.map.start = a.start;
  in.map.slot = slots;
  in.keys = in.map;
  in.tokens = a.ids;
  in.live = live;
  embed(in);
  for (int i = 0; i < c().num_nextn_predict_layers; ++i) {
    attention_site(in, c().num_hidden_layers + i, true);
    moe_site(in, c().num_hidden_layers + i);
  }
  collapse(n, ws.pre); // ws.x = h_j, the confidence head's input too
  norm(ws.x.as<const float>(), weights->drafter.norm, n, h, ws.normed.as<float>());
  for (int j = 0; j < block; ++j) // by number in the block, so that the rows of one Markov step lie together
    ops.copy_columns(*work, {ws.normed.as<const float>() + std::int64_t{j} * h, std::int64_t{block} * h, sequences, h,
                             ws.logit_x.as<float>() + std::int64_t{j} * sequences * h, h, false});
  linear(ws.logit_x.as<const float>(), weights->head, n, ws.logits.as<float>());
  for (int j = 0; j < block; ++j)
    markov_step(j, sequences, slots, rules);
}

// Draft `number` of each sequence, which depends on the one before it.
void model_runner::impl::markov_step(int number, int sequences, dev_ptr<const std::int32_t> slots,
                                     dev_ptr<const sample_row_params> rules) {
  const auto& d = weights->drafter;
  const int h = c().hidden_size, v = c().vocab_size, rank = c().dspark_markov_rank, features = h + rank;
  const auto logits = ws.logits.as<float>() + std::int64_t{number} * sequences * v;
  const auto markov = ws.draft_markov.as<float>(), bias = ws.draft_bias.as<float>();
  ops.gather(*work, {d.markov_embed.get(), ws.draft_before.as<const std::int64_t>(), sequences, 1, markov});
  linear(markov, d.markov_head, sequences, bias);
  ops.copy_columns(*work, {bias, v, sequences, v, logits, v, true});
  ops.copy_columns(*work, {ws.x.as<const float>() + std::int64_t{number} * h, std::int64_t{state.block} * h, sequences,
                           h, ws.draft_features.as<float>(), features, false});
  ops.copy_columns(*work, {markov, rank, sequences, rank, ws.draft_features.as<float>() + h, features, false});
  linear(ws.draft_features.as<const float>(), d.confidence, sequences, ws.draft_score.as<float>());

  sample_rows_args s;
  s.logits = logits;
  s.rows = sequences;
  s.vocab = v;
  s.params = rules;
  s.row_position = ws.draft_position_of.as<const std::int32_t>() + std::int64_t{number} * sequences;
  s.draft_number = number;
  s.token = ws.draft_token.as<std::int32_t>();
  s.status = ws.draft_status.as<std::int32_t>();
  s.logprob = ws.draft_logprob.as<float>();
  ops.sample_rows(*work, s);

  const auto& t = options.confidence_temperature;
  keep_drafts_args k;
  k.state = state;
  k.sequences = sequences;
  k.number = number;
  k.vocab = v;
  k.temperature =
      static_cast<std::size_t>(number) < t.size() ? std::max(t[static_cast<std::size_t>(number)], 1e-5f) : 1;
  k.slot = slots;
  k.token = ws.draft_token.as<const std::int32_t>();
  k.score = ws.draft_score.as<const float>();
  k.logits = logits;
  k.before = ws.draft_before.as<std::int64_t>();
  k.drafts = ws.drafts.as<std::int32_t>();
  k.confidence = ws.draft_conf.as<float>();
  ops.keep_drafts(*work, k);
}

} // namespace troupe
