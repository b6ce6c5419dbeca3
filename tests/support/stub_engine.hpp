// A model without arithmetic: the next token is a hash of the whole prefix and the seed. The hash of each prefix lives
// in the KV blocks that the plan names, as real KV would, and a window of the last hashes in the state slot, as the
// window rings would; so a wrong block table, snapshot, fork or hit, a lost row or a wrong position shows: as a
// complaint if it can be seen on the spot, and in the text in any case.
//
// Its drafter foretells each token with a given share of right ones. Drafts, the newest token and its position live in
// the state slot, as on a device, and drafts that turn out wrong leave their rows behind.
#pragma once
#include "runtime/base/draft_split.hpp"
#include "runtime/grammar/constraint_matcher.hpp"
#include "runtime/kv/block_pool.hpp"
#include "runtime/scheduler/finish.hpp"
#include "runtime/scheduler/plan.hpp"
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

inline std::uint64_t stub_hash(std::uint64_t prefix, std::int32_t token) {
  std::uint64_t h = (prefix ^ static_cast<std::uint64_t>(token)) * 0xBF58476D1CE4E5B9ull + 0x9E3779B97F4A7C15ull;
  return h ^ (h >> 29);
}

// Drawn for a sequence with this seed behind a prefix; what `mask` forbids is masked (null: nothing), and EOS and stop
// ids are while fewer than min_tokens are out, unless that leaves nothing.
inline std::int32_t stub_draw(std::uint64_t prefix, std::uint64_t seed, std::int32_t vocab,
                              const sequence_spec* spec = nullptr, std::int64_t outputs = 0,
                              const std::uint32_t* mask = nullptr) {
  const std::uint64_t h = stub_hash(stub_hash(prefix, 0x5eed) ^ seed, 0x70f3);
  auto token = static_cast<std::int32_t>(h % static_cast<std::uint64_t>(vocab));
  const auto masked = [&](std::int32_t t) {
    const auto in = [t](const std::vector<std::int32_t>& v) { return std::find(v.begin(), v.end(), t) != v.end(); };
    return spec && outputs < spec->params.min_tokens &&
           ((!spec->params.ignore_eos && in(spec->eos_ids)) || in(spec->params.stop_token_ids));
  };
  const auto legal = [&](std::int32_t t) { return mask == nullptr || (mask[t / 32] >> (t % 32) & 1u) != 0; };
  for (std::int32_t i = 0; i < vocab && (masked(token) || !legal(token)); ++i)
    token = (token + 1) % vocab;
  for (std::int32_t i = 0; i < vocab && !legal(token); ++i)
    token = (token + 1) % vocab;
  return token;
}

inline std::int32_t stub_token(std::span<const std::int32_t> prefix, std::uint64_t seed, std::int32_t vocab) {
  std::uint64_t h = 0;
  for (const std::int32_t t : prefix)
    h = stub_hash(h, t);
  return stub_draw(h, seed, vocab);
}

struct stub_model {
  static constexpr std::int32_t window = 16, ring = window + 12; // positions that a row reads, and that a slot holds
  struct cell {
    std::uint64_t hash = 0; // of the prefix that ends with this token
    std::int32_t token = -7, position = -7;
    bool operator==(const cell&) const = default;
  };
  struct slot {
    std::array<cell, ring> cells;
    std::array<cell, ring> draft_cells;      // the drafter's own window
    std::int32_t drawn = -7, drawn_for = -7; // the last token drawn in this slot and its position
    std::vector<std::int32_t> drafts;        // the block behind it; empty = none
    std::vector<float> confidence;           // of each of them
    bool stopped = false;                    // nothing comes behind it
  };
  // Where a sequence's rows lie and what they hold, as the device finds out.
  struct placed {
    std::int32_t start = 0, rows = 0, drafts = 0; // the last two without those beyond the limit
    std::vector<std::int32_t> tokens;
  };

  std::int32_t vocab = 50, history = 3, nextn = 0;
  double right = 0.5;      // share of drafts that are what the model draws
  bool rejection = false;  // where a draft is not what it draws, it draws once more: tokens depend on drafts
  bool vary = false;       // confidences that differ, the higher the likelier
  std::vector<cell> cache; // [blocks, 128]
  std::vector<slot> slots;
  std::string complaint;     // first thing wrong with a plan
  std::int64_t rows = 0;     // computed so far
  std::int64_t reshared = 0; // steps in which the device gave somebody other drafts than the plan
  std::int64_t beyond = 0;   // sequences whose newest token lay at their limit: they had ended in the step before

  explicit stub_model(std::int32_t blocks) : cache(static_cast<std::size_t>(blocks) * 128) {}

  void complain(const std::string& what) {
    if (complaint.empty())
      complaint = what;
  }

  slot& slot_at(slot_id id) {
    if (id.value <= 0)
      complain("slot 0");
    const auto at = static_cast<std::size_t>(std::max(0, id.value));
    if (at >= slots.size())
      slots.resize(at + 1);
    return slots[at];
  }

  // The entry of a position, as the block table of the sequence finds it.
  cell& at(const step_plan& p, const planned_sequence& s, std::int32_t position) {
    if (position / 128 >= s.blocks)
      complain("position " + std::to_string(position) + " of " + s.spec->request_id + " lies behind its blocks");
    const auto block = p.blocks[static_cast<std::size_t>(s.first_block + position / 128)];
    if (block <= 0 || static_cast<std::size_t>(block) * 128 >= cache.size())
      complain("block 0 or outside the pool");
    return cache[static_cast<std::size_t>(block) * 128 + static_cast<std::size_t>(position % 128)];
  }

  void copy_in(const step_plan& p) {
    for (const slot_copy& c : p.restores) {
      const slot from = slot_at(c.from);
      slot_at(c.to).cells = from.cells, slot_at(c.to).draft_cells = from.draft_cells;
    }
    for (const block_copy& c : p.block_copies)
      std::copy_n(cache.begin() + c.from.value * 128, 128, cache.begin() + c.to.value * 128);
  }

  void copy_out(const step_plan& p) {
    for (const slot_copy& c : p.snapshots) {
      const slot from = slot_at(c.from);
      slot_at(c.to) = from;
    }
  }

  // An image: 128 cells for each block, then those of both windows.
  static constexpr std::size_t block_bytes = 128 * sizeof(cell), state_bytes = 2 * ring * sizeof(cell);

  cell* block_of(const step_plan& p, std::int32_t at) {
    const auto block = static_cast<std::size_t>(p.image_blocks.at(static_cast<std::size_t>(at)));
    if (block == 0 || block * 128 >= cache.size())
      complain("block 0 or outside the pool in an image");
    return cache.data() + block * 128;
  }
  void take_images(const step_plan& p) {
    for (const image_arrival& a : p.arrivals) {
      const std::size_t blocks = static_cast<std::size_t>(a.blocks);
      if (a.bytes->size() != blocks * block_bytes + state_bytes) {
        complain("an image of the wrong size");
        continue;
      }
      for (std::int32_t b = 0; b < a.blocks; ++b)
        std::memcpy(block_of(p, a.first_block + b), a.bytes->data() + static_cast<std::size_t>(b) * block_bytes,
                    block_bytes);
      slot& s = slot_at(a.state) = slot{};
      std::memcpy(s.cells.data(), a.bytes->data() + blocks * block_bytes, state_bytes / 2);
      std::memcpy(s.draft_cells.data(), a.bytes->data() + blocks * block_bytes + state_bytes / 2, state_bytes / 2);
    }
  }
  void give_images(const step_plan& p, step_result& r) {
    r.departed.clear();
    for (const image_part& part : p.departures) {
      image_bytes bytes(static_cast<std::size_t>(part.blocks) * block_bytes +
                        (part.state.value != 0 ? state_bytes : 0));
      for (std::int32_t b = 0; b < part.blocks; ++b)
        std::memcpy(bytes.data() + static_cast<std::size_t>(b) * block_bytes, block_of(p, part.first_block + b),
                    block_bytes);
      if (part.state.value != 0) {
        const slot& s = slot_at(part.state);
        std::memcpy(bytes.data() + bytes.size() - state_bytes, s.cells.data(), state_bytes / 2);
        std::memcpy(bytes.data() + bytes.size() - state_bytes / 2, s.draft_cells.data(), state_bytes / 2);
      }
      r.departed.push_back(std::make_shared<const image_bytes>(std::move(bytes)));
    }
  }

  // The hash of the prefix that ends at `position`.
  std::uint64_t compute(const step_plan& p, const planned_sequence& s, std::int32_t position, std::int32_t token) {
    ++rows;
    slot& state = slot_at(s.slot);
    const auto ring_at = [&](std::int32_t q) -> cell& { return state.cells[static_cast<std::size_t>(q % ring)]; };
    for (std::int32_t q = std::max(0, position - window + 1); q < position; ++q)
      if (ring_at(q).position != q || ring_at(q) != at(p, s, q))
        complain("position " + std::to_string(position) + " of " + s.spec->request_id + ": position " +
                 std::to_string(q) + " differs between window and cache");
    cell c;
    c.token = token;
    c.position = position;
    c.hash = stub_hash(position > 0 ? at(p, s, position - 1).hash : 0, token);
    at(p, s, position) = ring_at(position) = c;
    state.draft_cells[static_cast<std::size_t>(position % ring)] = c;
    return c.hash;
  }

  // Of the newest token and the drafts behind it, where the plan leaves them to the device.
  placed place(const step_plan& p, const planned_sequence& s) {
    const slot& state = slot_at(s.slot);
    placed out;
    out.start = s.slack > 0 ? state.drawn_for : s.start;
    if (out.start < s.start || out.start > s.start + s.slack) {
      complain("the newest token of " + s.spec->request_id + " lies at " + std::to_string(out.start) + ", not in " +
               std::to_string(s.start) + " + " + std::to_string(s.slack));
      out.start = s.start;
    }
    const std::int32_t room = s.limit > 0 ? std::max(0, s.limit - out.start) : s.rows;
    out.rows = std::min(s.rows, room);
    out.drafts = std::max(0, s.drafts - (s.rows - out.rows));
    for (std::int32_t i = 0; i < out.rows; ++i)
      out.tokens.push_back(token_of(p, s, i, out.start + i));
    beyond += out.rows == 0;
    return out;
  }

  std::int32_t token_of(const step_plan& p, const planned_sequence& s, std::int32_t row, std::int32_t position) {
    const bool shared = p.share_drafts && s.slack > 0; // other rows than the plan's, none of them known to the host
    const std::int32_t token = !shared    ? p.tokens[static_cast<std::size_t>(s.first_token + row)]
                               : row == 0 ? token_in_flight
                                          : draft_in_flight;
    const std::int32_t draft = row - (s.rows - s.drafts);
    const slot& state = slot_at(s.slot);
    if (draft >= 0) {
      if (draft >= std::ssize(state.drafts) || position != state.drawn_for + 1 + draft) {
        complain("a draft that is not there");
        return 0;
      }
      const std::int32_t there = state.drafts[static_cast<std::size_t>(draft)];
      if (token != draft_in_flight && token != there)
        complain("another draft than the drafter's");
      return there;
    }
    if (token != token_in_flight) {
      if (token < 0 || s.slack > 0)
        complain("a placeholder among the tokens, or a token where there must be one");
      return token;
    }
    if (state.drawn_for != position)
      complain("the token in flight is not the one that the step before drew");
    return state.drawn;
  }

  void check(const step_plan& p, const planned_sequence& s) {
    const bool shared = p.share_drafts && s.slack > 0;
    const std::int32_t highest_end = s.start + s.slack + (shared ? 1 + nextn : s.rows);
    if (s.slot.value <= 0 || s.rows <= 0 || s.slack < 0 || s.drafts < 0 || s.drafts >= s.rows || s.drafts > nextn ||
        s.slack > nextn || s.blocks != blocks_for(s.limit > 0 ? std::min(highest_end, s.limit) : highest_end))
      complain("slot, rows or block table");
    if ((s.drafts > 0 || s.slack > 0) && (s.limit == 0 || s.rows != 1 + s.drafts || !s.sample))
      complain("drafts without a limit, or behind other rows than the newest token's");
    if (s.limit > 0 && s.start + s.rows > s.limit)
      complain("rows that could never be of use");
    if (s.propose && (!s.sample || nextn == 0))
      complain("a draft block behind no token");
    for (std::int32_t h = 0; h < history && s.slack == 0; ++h) {
      const std::int32_t position = s.start - history + h;
      if (p.history[static_cast<std::size_t>(s.history + h)] != (position < 0 ? -1 : at(p, s, position).token))
        complain("history");
    }
    const std::int32_t end = s.start + s.rows;
    if (p.kind == step_kind::prefill && (end > s.spec->prompt_tokens || s.drafts > 0))
      complain("rows of an output in a prefill step");
    if (p.kind == step_kind::decode && s.start < s.spec->prompt_tokens - 1)
      complain("rows of a prompt in a decode step");
  }

  std::int32_t draw(const planned_sequence& s, std::uint64_t hash, std::int32_t position,
                    const std::uint32_t* mask = nullptr, std::uint64_t residual = 0) const {
    const auto& golden = s.spec->params.golden_token_ids;
    const std::int32_t outputs = position - s.spec->prompt_tokens;
    return outputs < std::ssize(golden)
               ? golden[static_cast<std::size_t>(outputs)]
               : stub_draw(hash, s.spec->seq_seed ^ residual, vocab, s.spec.get(), outputs, mask);
  }

  // Of the k-th row that draws; null: everything is allowed.
  const std::uint32_t* mask_of(const step_plan& p, const planned_sequence& s, std::int32_t k) {
    if (s.first_mask < 0)
      return nullptr;
    if (s.slack > 0 || !s.sample || p.mask_words != (vocab + 31) / 32 ||
        s.first_mask + s.drafts >= std::ssize(p.mask_rows)) {
      complain("masks");
      return nullptr;
    }
    const std::int32_t row = p.mask_rows[static_cast<std::size_t>(s.first_mask + k)];
    return row < 0 ? nullptr : p.masks.data() + std::ptrdiff_t{row} * p.mask_words;
  }

  // Draws behind the newest token and each draft that is right, and leaves the last token in the slot.
  void draw_all(const step_plan& p, const planned_sequence& s, const placed& at, std::span<const std::uint64_t> hashes,
                sequence_result& out) {
    const std::int32_t first = at.rows - at.drafts - 1;
    for (std::int32_t i = first; i < at.rows; ++i) {
      drawn_token& drawn = out.tokens.emplace_back();
      const auto draw_with = [&](std::uint64_t residual) {
        return draw(s, hashes[static_cast<std::size_t>(i)], at.start + i + 1, mask_of(p, s, i - first), residual);
      };
      drawn.id = s.next >= 0 ? s.next : draw_with(0);
      if (rejection && i + 1 < at.rows && drawn.id != at.tokens[static_cast<std::size_t>(i + 1)])
        drawn.id = draw_with(0x2E5D);
      drawn.logprob = -static_cast<float>(drawn.id) / 8;
      slot_at(s.slot).drawn = drawn.id;
      slot_at(s.slot).drawn_for = at.start + i + 1;
      note_stop(s, drawn.id);
      if (i + 1 < at.rows && drawn.id != at.tokens[static_cast<std::size_t>(i + 1)])
        break;
    }
  }

  // Whether the token that was drawn last ends the sequence, or one of the same step before it.
  void note_stop(const planned_sequence& s, std::int32_t token) {
    slot& state = slot_at(s.slot);
    const std::int64_t outputs = state.drawn_for - s.spec->prompt_tokens + 1;
    const bool at_limit = s.limit > 0 && state.drawn_for == s.limit;
    state.stopped =
        state.stopped || at_limit ||
        finish_after(*s.spec, token, outputs, std::numeric_limits<std::int32_t>::max()).reason == finish_reason::stop;
  }

  // Drafts behind a token in flight: of one that ends its sequence none.
  bool cut(const step_plan& p, const planned_sequence& s) {
    return s.drafts > 0 && p.tokens[static_cast<std::size_t>(s.first_token)] == token_in_flight &&
           slot_at(s.slot).stopped;
  }

  // The drafter reads its window of all rows up to the newest token's.
  void propose(const planned_sequence& s, std::uint64_t hash, sequence_result& out) {
    slot& state = slot_at(s.slot);
    const auto in = [&](std::int32_t q) { return static_cast<std::size_t>(q % ring); };
    for (std::int32_t q = std::max(0, state.drawn_for - window); q < state.drawn_for; ++q)
      if (state.draft_cells[in(q)] != state.cells[in(q)] || state.cells[in(q)].position != q)
        complain("the drafter reads position " + std::to_string(q) + " of " + s.spec->request_id +
                 " where another lies");
    hash = stub_hash(hash, state.drawn);
    for (std::int32_t j = 0; j < nextn; ++j) {
      const std::int32_t token = draw(s, hash, state.drawn_for + 1 + j);
      const double luck = static_cast<double>(stub_hash(hash, 0xD4AF) >> 11) * 0x1p-53;
      const std::int32_t draft = luck < right ? token : (token + 1) % vocab;
      state.drafts.push_back(draft);
      out.block.push_back(draft);
      out.confidence.push_back(static_cast<float>(vary ? 1 - luck : right));
      state.confidence.push_back(out.confidence.back());
      hash = stub_hash(hash, draft);
    }
  }

  // Drafts of the sequences that share theirs, as the device splits them.
  std::vector<std::int32_t> shared_lengths(const step_plan& p) {
    std::vector<float> survival;
    std::int32_t sharing = 0, wanted = 0;
    for (const planned_sequence& s : p.sequences)
      if (s.slack > 0) {
        const slot& state = slot_at(s.slot);
        if (std::ssize(state.confidence) != nextn)
          complain("a sequence without a whole block shares drafts");
        std::vector<float> confidence = state.confidence;
        confidence.resize(static_cast<std::size_t>(nextn));
        survival.resize(survival.size() + static_cast<std::size_t>(nextn));
        survivals_of(confidence.data(), state.stopped ? 0 : nextn, nextn, survival.data() + survival.size() - nextn);
        ++sharing, wanted += s.drafts;
      }
    std::vector<std::int32_t> lengths(static_cast<std::size_t>(sharing));
    split_drafts(survival.data(), sharing, nextn, wanted, lengths.data());
    return lengths;
  }

  void run(const step_plan& p, step_result& r) {
    r.number = p.number;
    r.failure.clear();
    r.sequences.clear();
    copy_in(p);
    take_images(p);
    const std::vector<std::int32_t> lengths = p.share_drafts ? shared_lengths(p) : std::vector<std::int32_t>();
    auto length = lengths.begin();
    bool changed = false;
    for (planned_sequence s : p.sequences) {
      check(p, s);
      if (p.share_drafts && s.slack > 0) {
        changed = changed || s.drafts != *length;
        s.drafts = *length++;
        s.rows = 1 + s.drafts;
      } else if (cut(p, s)) {
        s.drafts = 0, s.rows = 1;
      }
      const placed at = place(p, s);
      std::vector<std::uint64_t> hashes;
      for (std::int32_t i = 0; i < at.rows; ++i)
        hashes.push_back(compute(p, s, at.start + i, at.tokens[static_cast<std::size_t>(i)]));
      sequence_result& out = r.sequences.emplace_back();
      out.id = s.spec->id;
      out.start = at.start;
      out.drafts = at.drafts;
      if (s.sample && at.rows > 0) {
        slot_at(s.slot).drafts.clear(), slot_at(s.slot).confidence.clear();
        slot_at(s.slot).stopped = false;
        draw_all(p, s, at, hashes, out);
        if (s.propose)
          propose(s, hashes[static_cast<std::size_t>(slot_at(s.slot).drawn_for - 1 - at.start)], out);
      }
      add_prompt_results(p, s, out);
    }
    reshared += changed;
    copy_out(p);
    give_images(p, r);
  }

  void add_prompt_results(const step_plan& p, const planned_sequence& s, sequence_result& out) {
    const std::int32_t end = s.start + s.rows;
    if (s.spec->params.prompt_logprobs)
      for (std::int32_t i = s.start; i < end; ++i)
        if (i + 1 < s.spec->prompt_tokens)
          out.prompt_logprobs.push_back(static_cast<float>(i + 1 < end ? at(p, s, i + 1).token : s.next));
    for (const std::int32_t row : s.spec->logit_rows)
      if (row >= s.start && row < end)
        out.logits.push_back(static_cast<float>(at(p, s, row).token));
  }

  // A step that went wrong: its rows hold anything.
  void spoil(const step_plan& p) {
    copy_in(p);
    for (const planned_sequence& s : p.sequences) {
      const std::int32_t end = s.start + s.slack + (p.share_drafts && s.slack > 0 ? 1 + nextn : s.rows);
      for (std::int32_t i = s.start; i < (s.limit > 0 ? std::min(end, s.limit) : end); ++i)
        at(p, s, i) = cell{0xBAD, 1, -9};
      slot_at(s.slot) = slot{};
    }
    copy_out(p);
  }
};

// What a sequence alone would give: the oracle for every schedule.
struct stub_expectation {
  std::vector<std::int32_t> output;
  bool stopped = false; // by EOS or a stop id; else by length
};
inline stub_expectation stub_alone(const sequence_spec& spec, std::span<const std::int32_t> prompt, std::int32_t vocab,
                                   std::int32_t max_model_len, const sequence_constraint* constraint = nullptr) {
  stub_expectation e;
  std::optional<constraint_matcher> matcher;
  std::vector<std::uint32_t> mask(static_cast<std::size_t>(vocab + 31) / 32);
  if (constraint != nullptr)
    matcher.emplace(constraint->grammar, constraint->trigger);
  std::uint64_t hash = 0;
  for (const std::int32_t t : prompt)
    hash = stub_hash(hash, t);
  while (std::ssize(prompt) + std::ssize(e.output) < max_model_len && std::ssize(e.output) < spec.params.max_tokens) {
    const std::size_t n = e.output.size();
    const auto& golden = spec.params.golden_token_ids;
    if (matcher)
      matcher->fill(mask.data());
    const std::int32_t t = n < golden.size() ? golden[n]
                                             : stub_draw(hash, spec.seq_seed, vocab, &spec,
                                                         static_cast<std::int64_t>(n), matcher ? mask.data() : nullptr);
    if (matcher && !matcher->accept(t))
      break;
    hash = stub_hash(hash, t);
    e.output.push_back(t);
    if (matcher && matcher->finished() && !spec.params.ignore_eos) {
      e.stopped = true;
      break;
    }
    bool ends = false;
    for (const std::int32_t id : spec.params.stop_token_ids)
      ends = ends || id == t;
    for (const std::int32_t id : spec.eos_ids)
      ends = ends || (id == t && !spec.params.ignore_eos);
    if (ends && static_cast<std::int32_t>(n) >= spec.params.min_tokens) {
      e.stopped = true;
      break;
    }
  }
  return e;
}

} // namespace troupe
