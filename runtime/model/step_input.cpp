#include "runtime/model/step_input.hpp"
#include "runtime/base/check.hpp"
#include "runtime/model/cache_layout.hpp"
#include <algorithm>
#include <cstring>

namespace troupe {
namespace {

constexpr std::size_t part_alignment = 64;

} // namespace

step_input_builder::step_input_builder(const model_config& config, device& dev, int max_rows, int max_sequences, int max_model_len)
    : config_(config), max_blocks_((max_model_len + tokens_per_block - 1) / tokens_per_block) {
  std::size_t per_row = 5 + 5 + 2 * 3 + 2 * 2, per_sequence = 4 + static_cast<std::size_t>(max_blocks_) + 8;
  std::size_t bytes = 4 * (per_row * max_rows + per_sequence * max_sequences) + 32 * part_alignment;
  host_.reserve(bytes);
  device_ = dev.allocate(bytes, "step inputs");
}

template <class T> std::size_t step_input_builder::append(const std::vector<T>& values) {
  std::size_t at = (host_.size() + part_alignment - 1) / part_alignment * part_alignment;
  host_.resize(at + values.size() * sizeof(T));
  if (!values.empty())
    std::memcpy(host_.data() + at, values.data(), values.size() * sizeof(T));
  return at;
}

step_input step_input_builder::backbone(stream& s, const step_rows& rows, std::span<const std::int32_t> share) {
  return send(s, rows, 0, share);
}
step_input step_input_builder::draft(stream& s, const step_rows& rows, int block) { return send(s, rows, block, {}); }

step_input step_input_builder::send(stream& s, const step_rows& in, int draft_block, std::span<const std::int32_t> share) {
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
      bool draft = draft_block > 0;
      lo_.push_back(std::max(0, (draft ? in.start[q] : p + 1) - config_.sliding_window));
      hi_.push_back(draft ? in.start[q] + draft_block - 1 : p);
    }
  }
  TROUPE_CHECK(static_cast<int>(position_.size()) == n, "step rows and tokens differ in number");
  TROUPE_CHECK(longest <= max_blocks_, "block table longer than the model length");
  table_.assign(static_cast<std::size_t>(n_seq) * longest, 0);
  if (!in.blocks_of.empty())
    for (int q = 0; q < n_seq; ++q)
      std::copy_n(in.blocks.begin() + in.first_block[q], in.blocks_of[q], table_.begin() + static_cast<std::ptrdiff_t>(q) * longest);

  host_.clear();
  std::size_t at_position = append(position_), at_sequence = append(sequence_), at_lo = append(lo_), at_hi = append(hi_);
  std::size_t at_first = append(first_row_), at_count = append(in.rows), at_start = append(in.start), at_slot = append(in.slot);
  std::size_t at_table = append(table_), at_tokens = append(in.tokens), at_history = append(in.history);

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
  const std::size_t here_position = append_share(position_, at_position), here_sequence = append_share(sequence_, at_sequence);
  const std::size_t here_lo = append_share(lo_, at_lo), here_hi = append_share(hi_, at_hi), here_tokens = append_share(in.tokens, at_tokens);
  struct { std::size_t visible, last_row, position, entry; } at[3] = {};
  for (int ratio = 1; ratio <= 2 && draft_block == 0; ++ratio) {
    for (auto* v : {&visible_, &last_row_, &block_position_})
      v->clear();
    entry_.clear();
    int per_block = tokens_per_block / ratio;
    for (int r = 0; r < n; ++r) {
      int p = position_[r];
      if (!out.shared)
        visible_.push_back((p + 1) / ratio);
      if ((p + 1) % ratio != 0)
        continue;
      int b = p / ratio; // the block that this token completes
      last_row_.push_back(r);
      block_position_.push_back(b * ratio);
      entry_.push_back(static_cast<std::int64_t>(table_[static_cast<std::size_t>(sequence_[r]) * longest + p / tokens_per_block]) * per_block
                      + b % per_block);
    }
    for (const std::int32_t r : share)
      visible_.push_back((position_[static_cast<std::size_t>(r)] + 1) / ratio);
    out.ratio[ratio].blocks = static_cast<int>(last_row_.size());
    out.ratio[ratio].max_visible = visible_.empty() ? 0 : *std::max_element(visible_.begin(), visible_.end());
    at[ratio] = {append(visible_), append(last_row_), append(block_position_), append(entry_)};
  }
  TROUPE_CHECK(host_.size() <= device_.bytes(), "step inputs exceed their buffer");
  s.to_device(device_.as<std::byte>(), host_.data(), host_.size());

  auto ints = [&](std::size_t offset) { return dev_ptr<const std::int32_t>((device_.as<std::byte>() + offset).as<std::int32_t>()); };
  out.keys = {n, n_seq, n, ints(at_position), ints(at_sequence), ints(at_lo), ints(at_hi), ints(at_first), ints(at_count),
              ints(at_start), ints(at_slot), ints(at_table), longest};
  out.map = out.keys;
  if (out.shared)
    out.map.rows = static_cast<std::int32_t>(share.size());
  out.map.position = ints(here_position);
  out.map.sequence = ints(here_sequence);
  out.map.window_lo = ints(here_lo);
  out.map.window_hi = ints(here_hi);
  out.tokens = ints(here_tokens);
  out.key_tokens = ints(at_tokens);
  out.history = ints(at_history);
  for (int ratio = 1; ratio <= 2; ++ratio) {
    auto& o = out.ratio[ratio];
    o.visible = ints(at[ratio].visible);
    o.last_row = ints(at[ratio].last_row);
    o.position = ints(at[ratio].position);
    o.entry = (device_.as<std::byte>() + at[ratio].entry).as<std::int64_t>();
  }
  return out;
}

} // namespace troupe
