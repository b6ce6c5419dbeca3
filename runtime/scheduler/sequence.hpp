// The scheduler's record of one sequence. Only scheduler_core uses it.
#pragma once
#include "runtime/base/ids.hpp"
#include "runtime/grammar/constraint_matcher.hpp"
#include "runtime/scheduler/finish.hpp"
#include "runtime/scheduler/plan.hpp"
#include "runtime/scheduler/step_masks.hpp"
#include "runtime/speculation/confidences.hpp"
#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

// Who goes first. Priority and time of arrival in one number, so that waiting raises a sequence against later ones and
// the order of two sequences never changes (C16).
struct service_order {
  std::int64_t rank = 0; // priority * ageing_steps + step of arrival
  std::uint64_t arrival = 0;
  friend auto operator<=>(const service_order&, const service_order&) = default;
};

// What of a request an engine computes. A prompt that is handed over is computed up to its last row, which the engine
// that goes on computes itself: everything that is drawn, it draws.
enum class sequence_share : std::uint8_t { whole, prompt, rest };

struct alignas(64) scheduled_sequence {
  enum class phase : std::uint8_t {
    free,      // of the store of records
    waiting,   // in the queue
    reserving, // wants KV for an image
    parked,    // a branch whose parent's prompt is not through
    admitting, // asked for in the turn under way
    held,      // holds KV, for an image that has not arrived
    prefill,   // holds KV, prompt rows are left
    decode     // holds KV, all prompt rows were planned; or the last one is left behind an image
  };

  // ---- in the order in which steps look at it, cache line by cache line: reading memory is most of a step's cost

  // Whether and how far it goes on.
  phase in = phase::free;
  sequence_share share = sequence_share::whole;
  bool host_paced = false;
  bool drafted = false; // the last of the steps that are out leaves a block of drafts
  // Positions: 0 <= committed <= computed <= length(). How many drafts the steps that are out accept is not known, so
  // each of the planned rows may lie up to `slack` positions higher.
  std::int32_t computed = 0;     // whose rows have been planned, if no draft is accepted
  std::int32_t slack = 0;        // drafts in the steps that are out
  std::int32_t committed = 0;    // positions whose rows have come back
  std::int32_t reach = 0;        // positions whose rows are ever computed
  std::int32_t unresolved = 0;   // steps that are out and draw
  std::int32_t acknowledged = 0; // output tokens that the reader is known to have
  std::int32_t snapshot_at = 0;
  // A multiple of 128 that decode rows have passed or may have passed: what lies before it is published once its
  // snapshot is there. 0 = none.
  std::int32_t hold_at = 0;
  end_rule ends; // of the request

  // What a row takes.
  std::uint64_t life = 0; // raised when the sequence ends or loses its cache: rows of an older life count for nothing
  std::vector<std::int32_t> output;
  std::vector<block_id> blocks;
  slot_id slot;
  std::int32_t filling = 0; // where a step that is out fills the snapshot of hold_at: published when it is back

  // What planning notes, and what booking looks at.
  std::shared_ptr<const sequence_spec> spec;
  std::uint64_t turn = 0;       // the last one that gave it rows
  std::int64_t last_step = 0;   // that planned rows of it
  std::int32_t wanted_rows = 0; // in `turn`
  std::int32_t parts_at = 0;    // kv_got::admitted's
  std::int32_t published = 0;   // blocks
  std::int32_t delivered = 0;   // positions whose rows' results went out, in any life
  std::int64_t steps = 0;
  std::int32_t preemptions = 0;
  std::int32_t cached = 0;

  sequence_id id;
  std::int64_t drafts_verified = 0, drafts_accepted = 0; // so far
  // Masks behind its newest token that are kept, or are being made beside the steps; null: to be made in its step.
  std::shared_ptr<mask_window> window;
  std::vector<scheduled_sequence*> branches; // parked on this one

  confidence_history confidences;
  std::vector<std::int32_t> drafts; // the newest block, for sequences that the host paces

  // ---- the rest

  std::shared_ptr<const std::vector<std::int32_t>> prompt;
  std::shared_ptr<const std::string> salt;
  std::shared_ptr<const std::vector<std::int32_t>> chunk_checkpoints;
  std::unique_ptr<constraint_matcher> matcher; // has taken all of output
  slot_id snapshot;                            // waits for the row that ends at snapshot_at
  service_order order;
  std::int64_t expires = 0;             // last step it may see; 0 = no deadline
  scheduled_sequence* parent = nullptr; // of a parked branch
  std::uint64_t depends_on =
      0; // step whose failure makes this life worthless: a fork's parent computed its prompt there

  // Its image, as share says.
  std::shared_ptr<const image_bytes> image; // that arrived, until the plan of its first row takes it
  std::int32_t departing = 0, departed = 0; // blocks that were planned to leave, that left
  bool may_go_on = true;                    // false: too much of it waits to be sent

  // Waiting.
  std::int64_t waits_since = 0;   // step
  std::int64_t refused_since = 0; // step of the first refusal; 0 = none
  std::int64_t asked_at = 0;      // step of the last one

  std::int32_t prompt_tokens() const { return ends.prompt_tokens(); }
  // Prompt and output that the host knows.
  std::int32_t length() const { return prompt_tokens() + static_cast<std::int32_t>(output.size()); }
  std::int32_t token(std::int32_t position) const {
    return position < prompt_tokens() ? (*prompt)[static_cast<std::size_t>(position)]
                                      : output[static_cast<std::size_t>(position - prompt_tokens())];
  }
  // Has what a row needs beside the record on its way while other sequences are looked at.
  void fetch_row_parts() const {
    __builtin_prefetch(output.data() + output.size());
    __builtin_prefetch(blocks.data());
    __builtin_prefetch(blocks.data() + blocks.size());
  }
  bool constrained() const { return host_paced && matcher != nullptr; } // looks at the matcher only if there may be one
  bool waits_for_masks() const { return host_paced && window != nullptr && !window->ready; }
  bool holds_cache() const { return in == phase::prefill || in == phase::decode || in == phase::held; }
  // Positions of the prompt that are computed here.
  std::int32_t prompt_end() const { return prompt_tokens() - (share == sequence_share::prompt ? 1 : 0); }
};

struct before {
  bool operator()(const scheduled_sequence* a, const scheduled_sequence* b) const { return a->order < b->order; }
};
struct expires_before {
  bool operator()(const scheduled_sequence* a, const scheduled_sequence* b) const {
    return a->expires != b->expires ? a->expires < b->expires : a->order < b->order;
  }
};

} // namespace troupe
