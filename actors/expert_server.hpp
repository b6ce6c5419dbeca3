// What a rank of an expert group does for the others: contributions of its experts to their rows, and the bytes of
// experts that move (cluster.md §3.6, §3.10).
#pragma once
#include "actors/placed_experts.hpp"
#include "cluster/peer_links.hpp"

namespace troupe {

// What all ranks of a group do alike.
struct expert_rules {
  std::int32_t layers = 0, experts = 0, hidden = 0, k = 0;
  float limit = 0;          // of swiglu
  bool round_inner = false; // experts_args
  bool bf16 = false;        // contributions are rounded to BF16 before they are summed: so they may travel
  std::uint32_t contribution_flags() const { return bf16 ? rows_flag::bf16 : 0; }
  // Rows and entries of one question, so that neither it nor its answer has more than `frame_bytes`.
  std::size_t most_rows(std::size_t frame_bytes) const;
  std::size_t most_entries(std::size_t frame_bytes) const;
};

std::unique_ptr<question_server> make_row_server(std::shared_ptr<placed_experts> experts, const expert_rules& rules,
                                                 std::size_t frame_bytes, std::chrono::nanoseconds link_delay);

// A piece of an expert, for whoever copies it; the answer holds its bytes, or none: the slot does not hold it any more.
struct piece_question {
  std::int32_t layer = 0, slot = 0; // slot: of the group
  std::int32_t expert = 0;
  std::uint32_t bytes = 0;
  std::uint64_t offset = 0;
};
std::unique_ptr<question_server> make_piece_server(std::shared_ptr<placed_experts> experts);

// Waits until a frame would have come over a link that takes so long (for benches and tests).
void wait_for_link(std::uint64_t sent_ns, std::chrono::nanoseconds delay);
std::uint64_t steady_ns();

} // namespace troupe
