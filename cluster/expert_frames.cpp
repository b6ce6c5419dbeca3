#include "cluster/expert_frames.hpp"
#include "runtime/base/number_formats.hpp"
#include <bit>
#include <cstring>

namespace troupe {

namespace {

result<rows_head> head_of(byte_span payload) {
  if (payload.size() < sizeof(rows_head))
    return error{"bad_rows", std::to_string(payload.size()) + " bytes are no rows"};
  rows_head head;
  std::memcpy(&head, payload.data(), sizeof head);
  return head;
}

error wrong_size(const rows_head& head, byte_span payload) {
  return {"bad_rows", std::to_string(head.rows) + " rows and " + std::to_string(head.entries) +
                          " entries do not lie in " + std::to_string(payload.size()) + " bytes"};
}

} // namespace

result<rows_question> parse_rows_question(byte_span payload, std::size_t hidden) {
  const auto head = head_of(payload);
  if (!head)
    return head.failure();
  if (payload.size() != question_bytes(head->rows, head->entries, hidden, head->flags))
    return wrong_size(*head, payload);
  const auto bytes = std::as_bytes(payload).subspan(sizeof(rows_head));
  const std::size_t entries = head->entries * sizeof(rows_entry);
  return rows_question{*head, bytes.first(entries), bytes.subspan(entries)};
}

result<rows_answer> parse_rows_answer(byte_span payload, std::size_t hidden) {
  const auto head = head_of(payload);
  if (!head)
    return head.failure();
  const bool refused = (head->flags & rows_flag::refused) != 0;
  if (!refused && payload.size() != answer_bytes(head->entries, hidden, head->flags))
    return wrong_size(*head, payload);
  return rows_answer{*head, std::as_bytes(payload).subspan(sizeof(rows_head))};
}

bool fits_bf16(std::span<const float> values) {
  std::uint32_t low = 0;
  for (const float v : values)
    low |= std::bit_cast<std::uint32_t>(v);
  return (low & 0xFFFFu) == 0;
}

void to_bf16(std::span<const float> values, std::byte* to) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t high = bf16_from_f32(values[i]);
    std::memcpy(to + 2 * i, &high, sizeof high);
  }
}

void from_bf16(const std::byte* from, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t high = 0;
    std::memcpy(&high, from + 2 * i, sizeof high);
    values[i] = f32_from_bf16(high);
  }
}

} // namespace troupe
