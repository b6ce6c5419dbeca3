// Speculation inside a step: where its rows lie, which drafts were right, the next draft block (speculation.md §2-§5).
// Whole numbers, but for the confidence.
#pragma once
#include "kernels/ops.hpp"
#include "kernels/plain/qualifiers.hpp"
#include "runtime/base/draft_split.hpp"
#include "runtime/base/number_formats.hpp"

namespace troupe::plain {

template <class Team> TROUPE_PLAIN void share_drafts(Team& t, const share_drafts_args& a) {
  const std::int32_t first = a.shared.raw()[0], n = a.shared.raw()[1], sharing = a.shared.raw()[2],
                     wanted = a.shared.raw()[3], width = a.width, planned = n - sharing;
  const std::int32_t* slot = a.map.slot.raw() + first;
  float* survival = a.survival.raw();
  std::int32_t* drafts = a.drafts.raw() + first;
  for (std::int64_t s = t.rank(); s < sharing; s += t.size()) {
    const std::int64_t of_slot = slot[planned + s];
    survivals_of(a.state.confidence.raw() + of_slot * a.state.block, a.state.stopped.raw()[of_slot] ? 0 : width, width,
                 survival + s * width);
  }
  t.sync();
  for (std::int32_t s = t.rank(); s < n; s += t.size()) {
    std::int32_t verified = a.state.stopped.raw()[slot[s]] ? 0 : drafts[s];
    if (s >= planned) { // no draft comes before those in front of it
      const std::int32_t at = (s - planned) * width;
      for (verified = 0; verified < width && survival[at + verified] >= 0 &&
                         draft_rank(survival, sharing * width, at + verified) < wanted;)
        ++verified;
    }
    drafts[s] = verified;
    a.draws.raw()[first + s] = a.row_count.raw()[first + s] = verified + 1;
  }
  t.sync();
  for (std::int32_t s = t.rank(); s <= n; s += t.size()) { // the last are the placeholders
    std::int32_t row = a.first_row.raw()[first];
    for (std::int32_t q = 0; q < s; ++q)
      row += drafts[q] + 1;
    if (s > 0)
      a.first_row.raw()[first + s] = row;
    const std::int32_t rows = s < n ? drafts[s] + 1 : a.map.rows - row;
    for (std::int32_t k = 0; k < rows; ++k) {
      a.sequence.raw()[row + k] = first + s;
      a.ids.raw()[row + k] = s == n ? 0 : k == 0 ? token_in_flight : draft_in_flight;
    }
    if (s == n) {
      a.row_count.raw()[first + s] = rows;
      a.live.raw()[0] = row;
    }
  }
}

TROUPE_PLAIN void place_block(const lay_out_rows_args& a, const compressed_layout& c, std::int64_t i, std::int32_t s,
                              std::int64_t p, bool counts) {
  if (c.entries == 0)
    return;
  const std::int64_t block = p / c.ratio, kv_block = block / c.entries;
  const bool completes = counts && (p + 1) % c.ratio == 0 && kv_block < a.map.block_stride;
  c.visible.raw()[i] = counts ? static_cast<std::int32_t>((p + 1) / c.ratio) : 0;
  c.last_row.raw()[i] = completes ? static_cast<std::int32_t>(i) : -1;
  c.first_position.raw()[i] = completes ? static_cast<std::int32_t>(block * c.ratio) : 0;
  c.entry.raw()[i] =
      completes ? std::int64_t{a.map.block_table.raw()[std::int64_t{s} * a.map.block_stride + kv_block]} * c.entries +
                      block % c.entries
                : -1;
}

TROUPE_PLAIN void lay_out_row(const lay_out_rows_args& a, std::int64_t i) {
  const std::int32_t s = a.map.sequence.raw()[i], slot = a.map.slot.raw()[s], rows = a.map.row_count.raw()[s];
  const std::int32_t r = static_cast<std::int32_t>(i) - a.map.first_row.raw()[s]; // of its sequence
  const std::int32_t k = r - (rows - a.drafts.raw()[s]);                          // its draft, if not negative
  const std::int64_t block = a.state.block, ngram = a.state.ngram, of_slot = slot;
  std::int32_t& id = a.ids.raw()[i];
  if (id == token_in_flight)
    id = a.state.ids.raw()[(of_slot + 1) * ngram - 1];
  else if (id == draft_in_flight)
    id = k >= 0 && k < block ? a.state.drafts.raw()[of_slot * block + k] : 0;

  const bool moves = a.moves.raw()[s] != 0;
  const std::int32_t limit = a.limit.raw()[s];
  const std::int64_t p = moves ? std::int64_t{a.state.position.raw()[slot]} + (slot == 0 ? 0 : r) : a.position.raw()[i];
  const bool next_counts = limit == 0 || p + 1 < limit;
  a.verifies.raw()[i] =
      k >= -1 && r + 1 < rows && k + 1 < block && next_counts ? static_cast<std::int32_t>(of_slot * block + k + 1) : -1;
  if (!moves)
    return;
  a.position.raw()[i] = static_cast<std::int32_t>(p);
  a.window_lo.raw()[i] = static_cast<std::int32_t>(larger(p + 1 - a.window, std::int64_t{0}));
  a.window_hi.raw()[i] = static_cast<std::int32_t>(p);
  for (int c = 0; c < 2; ++c)
    place_block(a, a.ratio[c], i, s, p, limit == 0 || p < limit);
  if (r > 0)
    return;
  a.start.raw()[s] = static_cast<std::int32_t>(p);
  for (std::int64_t m = 0; m + 1 < ngram; ++m)
    a.history.raw()[s * (ngram - 1) + m] = a.state.ids.raw()[of_slot * ngram + m];
}

// Whether a token that comes to lie at a position ends sequence s.
TROUPE_PLAIN bool stops_at(const verify_drafts_args& a, std::int64_t s, std::int64_t position, std::int32_t token) {
  if (!a.rules || static_cast<std::uint64_t>(position) < a.rules.raw()[s].suppressed_until)
    return false;
  const std::int32_t* ids = a.suppressed.raw() + a.rules.raw()[s].first_suppressed;
  std::int32_t i = 0;
  while (i < a.rules.raw()[s].suppressed && ids[i] != token)
    ++i;
  return i < a.rules.raw()[s].suppressed;
}

TROUPE_PLAIN void verify_sequence(const verify_drafts_args& a, std::int64_t s) {
  const std::int32_t rows = a.map.row_count.raw()[s], first = a.map.first_row.raw()[s], start = a.map.start.raw()[s];
  const std::int32_t draws = a.draws.raw()[s], limit = a.limit.raw()[s], head = rows - draws; // rows before those
  std::int32_t* outcome = a.outcome.raw() + 4 * s;
  const std::int32_t counted = limit == 0 ? draws : smaller(draws, limit - start - head);
  outcome[0] = start;
  outcome[1] = larger(counted - 1, 0);
  const std::int32_t from = a.first_drawn ? a.first_drawn.raw()[s] : first + head;
  outcome[2] = -1;
  outcome[3] = from;
  if (counted <= 0)
    return;
  const std::int32_t *token = a.token.raw() + from, *status = a.status.raw() + from, *ids = a.ids.raw() + first;
  std::int32_t right = 0;
  while (right + 1 < counted && status[right] == 0 && status[right + 1] == 0 && token[right] == ids[head + right + 1])
    ++right;
  outcome[2] = right;

  const std::int64_t slot = a.map.slot.raw()[s], ngram = a.state.ngram;
  std::int32_t* kept = a.state.ids.raw() + slot * ngram;
  for (std::int64_t back = ngram - 1; back > 0; --back) { // the ids before the newest token, then that one
    const std::int64_t r = head + right + 1 - back;
    kept[ngram - 1 - back] = r >= 0 ? ids[r] : a.history.raw()[s * (ngram - 1) + ngram - 1 + r];
  }
  kept[ngram - 1] = status[right] == 0 ? token[right] : 0;
  const std::int32_t newest = start + head + right + 1;
  a.state.position.raw()[slot] = newest;
  bool stopped = status[right] != 0 || newest == limit;
  for (std::int32_t k = 0; k <= right && !stopped; ++k)
    stopped = stops_at(a, s, newest - right + k, token[k]);
  a.state.stopped.raw()[slot] = stopped ? 1 : 0;
}

TROUPE_PLAIN void lay_out_draft_row(const lay_out_drafts_args& a, std::int64_t i) {
  const std::int64_t block = a.state.block, s = i / block, j = i % block;
  const std::int32_t slot = a.slot.raw()[s], start = a.state.position.raw()[slot];
  const std::int32_t newest = a.state.ids.raw()[(std::int64_t{slot} + 1) * a.state.ngram - 1];
  const auto p = static_cast<std::int32_t>(start + j);
  a.ids.raw()[i] = j == 0 ? newest : a.noise;
  a.position.raw()[i] = p;
  a.sequence.raw()[i] = static_cast<std::int32_t>(s);
  a.window_lo.raw()[i] = larger(start - a.window, 0);
  a.window_hi.raw()[i] = start + a.state.block - 1;
  a.position_of.raw()[j * a.sequences + s] = p;
  if (j > 0)
    return;
  a.first_row.raw()[s] = static_cast<std::int32_t>(i);
  a.row_count.raw()[s] = a.state.block;
  a.start.raw()[s] = start;
  a.before.raw()[s] = newest;
}

TROUPE_PLAIN void keep_draft(const keep_drafts_args& a, std::int64_t s) {
  const std::int64_t at = std::int64_t{a.slot.raw()[s]} * a.state.block + a.number, out = s * a.state.block + a.number;
  const float score = a.score.raw()[s], x = score / a.temperature;
  const bool finite = magnitude(score) <= bits_float(0x7f7fffffu);
  const float confidence =
      finite ? sigmoid_f32(x > -60.0f ? (x < 60.0f ? x : 60.0f) : -60.0f) : bits_float(0x7fc00000u);
  const std::int32_t id = larger(a.token.raw()[s], 0);
  a.state.drafts.raw()[at] = id;
  a.state.confidence.raw()[at] = confidence;
  a.drafts.raw()[out] = id;
  a.confidence.raw()[out] = confidence;
  a.before.raw()[s] = id;
}
template <class Team> TROUPE_PLAIN void keep_draft_logits(Team& t, const keep_drafts_args& a, std::int64_t s) {
  if (!a.state.logits)
    return;
  const float* from = a.logits.raw() + s * a.vocab;
  float* to = a.state.logits.raw() + (std::int64_t{a.slot.raw()[s]} * a.state.block + a.number) * a.vocab;
  for (std::int64_t i = t.rank(); i < a.vocab; i += t.size())
    to[i] = from[i];
}

} // namespace troupe::plain
