#include "runtime/model/step_input.hpp"
#include "runtime/base/check.hpp"
#include "runtime/model/cache_layout.hpp"
#include "runtime/model/replay.hpp"
#include <algorithm>
#include <bit>

namespace troupe {
int filled_size(int rows, int most) {
  const int size =
      rows > 4 ? (rows + 7) / 8 * 8 : static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::max(rows, 1))));
  return std::min(size, most);
}

namespace {

std::size_t most_bytes(int max_rows, int max_sequences, int max_blocks, int ngram) {
  const std::size_t per_row = 5 + 5 + 1 + 2 * 3 + 2 * 2,
                    per_sequence = 8 + static_cast<std::size_t>(max_blocks) + static_cast<std::size_t>(ngram);
  return 4 * (per_row * max_rows + per_sequence * max_sequences) + 40 * array_places::alignment;
}
int most_blocks(int max_model_len) {
  return (max_model_len + tokens_per_block - 1) / tokens_per_block;
}

} // namespace

step_input_builder::step_input_builder(const model_config& config, device& dev, int max_rows, int max_sequences,
                                       int max_model_len)
    : config_(config), arrays_(dev, "step inputs",
                               most_bytes(max_rows, max_sequences + 1, most_blocks(max_model_len),
                                          config.engram_max_ngram_size)), // one sequence of placeholders
      max_sequences_(max_sequences), max_blocks_(most_blocks(max_model_len)), max_positions_(max_model_len) {}

step_input step_input_builder::backbone(stream& s, const step_rows& rows, std::span<const std::int32_t> share) {
  if (rows.first_in_flight < 0)
    return send(s, rows, {.share = share});
  const auto live = static_cast<int>(rows.tokens.size());
  return send(s, with_placeholders(rows, live, static_cast<int>(rows.slot.size()) + 1), {.share = share, .live = live});
}
step_input step_input_builder::consumers(stream& s, const step_rows& rows, std::span<const std::int32_t> share) {
  return send(s, rows, {.share = share, .replayed = true});
}
step_input step_input_builder::filled(stream& s, const step_rows& rows, int size) {
  const auto live = static_cast<int>(rows.tokens.size()), n_seq = static_cast<int>(rows.slot.size());
  TROUPE_CHECK(live <= size && n_seq > 0, "a filled step has rows, and not more than it is filled up to");
  const bool placeholders = live < size || rows.first_in_flight >= 0;
  const int sequences = std::min(static_cast<int>(std::bit_ceil(static_cast<unsigned>(n_seq + (placeholders ? 1 : 0)))),
                                 max_sequences_ + 1);
  return send(s, with_placeholders(rows, size, sequences), {.live = live, .filled = true});
}

// The rows, filled up to `size` by the first sequence behind them; so many sequences in all.
const step_rows& step_input_builder::with_placeholders(const step_rows& rows, int size, int sequences) {
  const auto live = static_cast<int>(rows.tokens.size()), n_seq = static_cast<int>(rows.slot.size());
  const std::size_t ngram = rows.history.size() / rows.slot.size();
  filled_ = rows;
  filled_.blocks.push_back(0);
  filled_.tokens.resize(static_cast<std::size_t>(size), 0);
  for (int q = n_seq; q < sequences; ++q) {
    filled_.slot.push_back(0), filled_.start.push_back(0), filled_.rows.push_back(q == n_seq ? size - live : 0);
    filled_.first_block.push_back(static_cast<std::int32_t>(filled_.blocks.size()) - 1), filled_.blocks_of.push_back(1);
    filled_.history.insert(filled_.history.end(), ngram, -1);
  }
  if (rows.first_in_flight < 0)
    return filled_;
  for (auto* of_sequence : {&filled_.drafts, &filled_.draws, &filled_.moves, &filled_.limit})
    of_sequence->resize(static_cast<std::size_t>(sequences), 0);
  filled_.moves[static_cast<std::size_t>(n_seq)] = 1; // more rows may become placeholders: they are laid out there
  filled_.limit[static_cast<std::size_t>(n_seq)] = -1;
  return filled_;
}

step_input step_input_builder::send(stream& s, const step_rows& in, const form& f) {
  const auto [share, live, is_filled, replayed] = f;
  const auto n_seq = static_cast<int>(in.slot.size());
  const auto n = static_cast<int>(in.tokens.size());
  for (auto* v : {&position_, &sequence_, &lo_, &hi_, &first_row_})
    v->clear();
  int longest = 1;
  for (int q = 0; q < n_seq; ++q) {
    first_row_.push_back(static_cast<std::int32_t>(position_.size()));
    longest = std::max(longest, in.blocks_of.empty() ? 1 : in.blocks_of[q]);
    for (int r = 0; r < in.rows[q]; ++r) {
      int p = in.start[q] + r;
      position_.push_back(p);
      sequence_.push_back(q);
      lo_.push_back(first_visible(p, config_.sliding_window, replayed ? in.replay_from[q] : 0));
      hi_.push_back(p);
    }
  }
  TROUPE_CHECK(static_cast<int>(position_.size()) == n, "step rows and tokens differ in number");
  TROUPE_CHECK(longest <= max_blocks_, "block table longer than the model length");
  const auto any = [](const std::vector<std::int32_t>& flags) {
    return std::any_of(flags.begin(), flags.end(), [](std::int32_t x) { return x != 0; });
  };
  const bool lists_all = is_filled || any(in.moves);
  if (is_filled)
    longest = std::min(static_cast<int>(std::bit_ceil(static_cast<unsigned>(longest))), max_blocks_);
  table_.assign(static_cast<std::size_t>(n_seq) * longest, 0);
  if (!in.blocks_of.empty())
    for (int q = 0; q < n_seq; ++q)
      std::copy_n(in.blocks.begin() + in.first_block[q], in.blocks_of[q],
                  table_.begin() + static_cast<std::ptrdiff_t>(q) * longest);

  arrays_.clear();
  const auto append = [&](const auto& values) { return arrays_.append(values); };
  std::size_t at_position = append(position_), at_sequence = append(sequence_), at_lo = append(lo_),
              at_hi = append(hi_);
  std::size_t at_first = append(first_row_), at_count = append(in.rows), at_start = append(in.start),
              at_slot = append(in.slot);
  std::size_t at_table = append(table_), at_tokens = append(in.tokens), at_history = append(in.history);
  const std::size_t at_live = append(std::array<std::int32_t, 1>{live});
  const auto append_flags = [&](const std::vector<std::int32_t>& flags) {
    of_sequence_ = flags;
    of_sequence_.resize(static_cast<std::size_t>(n_seq), 0);
    return append(of_sequence_);
  };
  const std::size_t at_drafts = append_flags(in.drafts), at_draws = append_flags(in.draws),
                    at_moves = append_flags(in.moves), at_limit = append_flags(in.limit);
  const bool decides_drafts = in.first_in_flight >= 0;
  int in_flight = 0, shared_drafts = 0;
  for (int q = std::max(in.first_in_flight, 0); decides_drafts && q < n_seq && in.slot[q] != 0; ++q)
    ++in_flight;
  for (int q = in.first_in_flight + in_flight - in.sharing; decides_drafts && q < in.first_in_flight + in_flight; ++q)
    shared_drafts += in.drafts[q];
  const std::size_t at_sharing =
      append(std::array<std::int32_t, 4>{in.first_in_flight, in_flight, in.sharing, shared_drafts});
  of_sequence_.assign(static_cast<std::size_t>(n), -1);
  const std::size_t at_verifies = append(of_sequence_);

  step_input out;
  out.shared = !share.empty();
  // Of values per key row those of the rows computed here.
  auto append_share = [&](const std::vector<std::int32_t>& of, std::size_t at_all) {
    if (!out.shared)
      return at_all;
    taken_.clear();
    for (const std::int32_t r : share)
      taken_.push_back(of[static_cast<std::size_t>(r)]);
    return append(taken_);
  };
  const std::size_t here_position = append_share(position_, at_position),
                    here_sequence = append_share(sequence_, at_sequence);
  const std::size_t here_lo = append_share(lo_, at_lo), here_hi = append_share(hi_, at_hi),
                    here_tokens = append_share(in.tokens, at_tokens);
  struct {
    std::size_t visible, last_row, position, entry;
  } at[3] = {};
  for (int ratio = 1; ratio <= 2; ++ratio) {
    for (auto* v : {&visible_, &last_row_, &block_position_})
      v->clear();
    entry_.clear();
    int per_block = tokens_per_block / ratio;
    for (int r = 0; r < n; ++r) {
      int p = position_[r];
      if (!out.shared)
        visible_.push_back((p + 1) / ratio);
      int b = p / ratio; // the block that this token completes
      const std::int32_t limit = static_cast<std::size_t>(sequence_[r]) < in.limit.size() ? in.limit[sequence_[r]] : 0;
      if ((p + 1) % ratio != 0 || (limit > 0 && p >= limit)) {
        if (lists_all)
          last_row_.push_back(-1), block_position_.push_back(0), entry_.push_back(-1);
        continue;
      }
      last_row_.push_back(r);
      block_position_.push_back(b * ratio);
      entry_.push_back(
          static_cast<std::int64_t>(table_[static_cast<std::size_t>(sequence_[r]) * longest + p / tokens_per_block]) *
              per_block +
          b % per_block);
    }
    for (const std::int32_t r : share)
      visible_.push_back((position_[static_cast<std::size_t>(r)] + 1) / ratio);
    out.ratio[ratio].blocks = static_cast<int>(last_row_.size());
    out.ratio[ratio].max_visible = visible_.empty() ? 0 : *std::max_element(visible_.begin(), visible_.end());
    if (lists_all)
      out.ratio[ratio].max_visible = std::min(longest * tokens_per_block, max_positions_) / ratio;
    at[ratio] = {append(visible_), append(last_row_), append(block_position_), append(entry_)};
  }
  TROUPE_CHECK(arrays_.bytes() <= arrays_.room(), "step inputs exceed their buffer"); // graphs know its address
  arrays_.send(s);

  auto ints = [&](std::size_t offset) { return arrays_.at<const std::int32_t>(offset); };
  out.keys = {n,
              n_seq,
              n,
              ints(at_position),
              ints(at_sequence),
              ints(at_lo),
              ints(at_hi),
              ints(at_first),
              ints(at_count),
              ints(at_start),
              ints(at_slot),
              ints(at_table),
              longest};
  out.map = out.keys;
  if (out.shared)
    out.map.rows = static_cast<std::int32_t>(share.size());
  out.map.position = ints(here_position);
  out.map.sequence = ints(here_sequence);
  out.map.window_lo = ints(here_lo);
  out.map.window_hi = ints(here_hi);
  out.tokens = ints(here_tokens);
  out.key_tokens = arrays_.at<std::int32_t>(at_tokens);
  out.unresolved =
      lists_all || any(in.drafts) || std::any_of(in.tokens.begin(), in.tokens.end(), [](auto id) { return id < 0; });
  if (live >= 0)
    out.live = ints(at_live);
  out.history = ints(at_history);
  for (int ratio = 1; ratio <= 2; ++ratio) {
    auto& o = out.ratio[ratio];
    o.visible = ints(at[ratio].visible);
    o.last_row = ints(at[ratio].last_row);
    o.position = ints(at[ratio].position);
    o.entry = arrays_.at<const std::int64_t>(at[ratio].entry);
  }
  // What the device writes.
  auto numbers = [&](std::size_t offset) { return arrays_.at<std::int32_t>(offset); };
  out.draws = ints(at_draws);
  auto& l = out.layout;
  l.map = out.keys;
  l.window = config_.sliding_window;
  l.drafts = ints(at_drafts), l.limit = ints(at_limit), l.moves = ints(at_moves);
  l.ids = out.key_tokens, l.position = numbers(at_position), l.verifies = numbers(at_verifies);
  l.window_lo = numbers(at_lo), l.window_hi = numbers(at_hi);
  l.start = numbers(at_start), l.history = numbers(at_history);
  for (int ratio = 1; ratio <= 2 && lists_all; ++ratio)
    l.ratio[ratio - 1] = {ratio,
                          tokens_per_block / ratio,
                          numbers(at[ratio].visible),
                          numbers(at[ratio].last_row),
                          numbers(at[ratio].position),
                          arrays_.at<std::int64_t>(at[ratio].entry)};
  out.decides_drafts = decides_drafts;
  auto& d = out.sharing;
  d.map = out.keys;
  d.shared = ints(at_sharing);
  d.drafts = numbers(at_drafts), d.draws = numbers(at_draws);
  d.first_row = numbers(at_first), d.row_count = numbers(at_count);
  d.sequence = numbers(at_sequence), d.ids = out.key_tokens;
  d.live = numbers(at_live);
  return out;
}

} // namespace troupe
