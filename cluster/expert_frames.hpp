// Rows of a step on their way to the experts of another rank, and their contributions on the way back (cluster.md
// §3.10): payloads of a2a_dispatch and a2a_combine frames. Numbers are those of the host: both ends run one build.
//
// A question holds the rows once each and for every (row, choice) pair of them an entry; the answer holds the
// contributions in the order of the entries. Values travel in BF16 where that loses nothing, else in fp32.
#pragma once
#include "cluster/frame.hpp"
#include "runtime/base/result.hpp"
#include <cstdint>
#include <span>

namespace troupe {

struct rows_head {
  std::uint32_t layer = 0, rows = 0, entries = 0;
  std::uint32_t flags = 0;    // rows_flag
  std::uint64_t sent_ns = 0;  // by the host's steady clock
  std::uint64_t reserved = 0; // what follows begins at a multiple of 16
};
namespace rows_flag {
inline constexpr std::uint32_t bf16 = 1;    // values are BF16
inline constexpr std::uint32_t refused = 2; // an answer: text in the place of values
} // namespace rows_flag

struct rows_entry {
  std::uint32_t row = 0;   // of the question
  std::int32_t slot = 0;   // of the rank that is asked
  std::int32_t expert = 0; // that the slot shall hold
  float weight = 0;        // of the contribution
};
static_assert(sizeof(rows_head) == 32 && sizeof(rows_entry) == 16);

// Views into a payload.
struct rows_question {
  rows_head head;
  std::span<const std::byte> entries; // rows_entry [head.entries]
  std::span<const std::byte> values;  // [head.rows, hidden]
};
struct rows_answer {
  rows_head head;
  std::span<const std::byte> values; // [head.entries, hidden], or text
};

inline std::size_t value_bytes(std::uint32_t flags) {
  return (flags & rows_flag::bf16) != 0 ? 2 : 4;
}
inline std::size_t question_bytes(std::size_t rows, std::size_t entries, std::size_t hidden, std::uint32_t flags) {
  return sizeof(rows_head) + entries * sizeof(rows_entry) + rows * hidden * value_bytes(flags);
}
inline std::size_t answer_bytes(std::size_t entries, std::size_t hidden, std::uint32_t flags) {
  return sizeof(rows_head) + entries * hidden * value_bytes(flags);
}

// Failure ("bad_rows"): the sizes do not agree.
result<rows_question> parse_rows_question(byte_span payload, std::size_t hidden);
result<rows_answer> parse_rows_answer(byte_span payload, std::size_t hidden);

// Whether BF16 holds all of them exactly.
bool fits_bf16(std::span<const float> values);
// fp32 to BF16, rounded to nearest even, and back. `to` and `from` hold 2 bytes for each value.
void to_bf16(std::span<const float> values, std::byte* to);
void from_bf16(const std::byte* from, std::span<float> values);

} // namespace troupe
