#include "runtime/scheduler/batch.hpp"
#include "runtime/base/check.hpp"
#include <algorithm>

namespace troupe {

batch_scheduler::batch_scheduler(const scheduler_limits& limits) : limits_(limits) {
  TROUPE_CHECK(limits.max_num_seqs >= 1 && limits.max_num_batched_tokens >= 1 && limits.max_model_len >= 1,
               "scheduler limits");
}

status batch_scheduler::submit(std::shared_ptr<const sequence_spec> spec, std::vector<std::int32_t> prompt,
                               scheduler_output& out) {
  const std::string who = "request " + spec->request_id + ": ";
  if (sequences_.contains(spec->id))
    return error{"duplicate_id", who + "this id is in use"};
  if (prompt.empty() || spec->prompt_tokens != static_cast<std::int32_t>(prompt.size()))
    return error{"invalid_prompt", who + "the prompt is empty or its length is not the stated one"};
  if (spec->prompt_tokens > limits_.max_model_len)
    return error{"prompt_too_long", who + "the prompt has " + std::to_string(prompt.size()) +
                                        " tokens, max_model_len is " + std::to_string(limits_.max_model_len)};
  if (!limits_.chunked_prefill && spec->prompt_tokens > limits_.max_num_batched_tokens)
    return error{"prompt_too_long", who + "the prompt has " + std::to_string(prompt.size()) +
                                        " tokens, a step without chunked prefill takes max_num_batched_tokens = " +
                                        std::to_string(limits_.max_num_batched_tokens)};
  const std::int32_t needed = blocks_for(longest_length(*spec, limits_.max_model_len));
  if (needed > limits_.kv_blocks - 1)
    return error{"no_space", who + "prompt and max_tokens need " + std::to_string(needed) +
                                 " KV blocks, the pool has " + std::to_string(limits_.kv_blocks - 1) +
                                 "; lower max_tokens or raise kv_blocks"};
  sequence& s = sequences_[spec->id];
  s.tokens = std::move(prompt);
  s.tokens.reserve(static_cast<std::size_t>(longest_length(*spec, limits_.max_model_len)));
  s.spec = std::move(spec);
  waiting_.push_back(&s);
  ++live_;
  admit(out);
  return nothing{};
}

// Asks for the KV of the head of the queue.
void batch_scheduler::admit(scheduler_output& out) {
  if (reserving_ || no_space_ || ending_all_ || waiting_.empty() ||
      admitted_ >= static_cast<std::size_t>(limits_.max_num_seqs))
    return;
  reserving_ = waiting_.front();
  waiting_.pop_front();
  reserving_->in = state::reserving;
  released_since_demand_ = false;
  ++admitted_;
  out.kv.push_back({kv_order::kind::reserve, reserving_->spec->id,
                    blocks_for(longest_length(*reserving_->spec, limits_.max_model_len))});
}

void batch_scheduler::grant(sequence_id id, fit outcome, std::span<const block_id> blocks, slot_id slot,
                            scheduler_output& out) {
  if (!reserving_ || reserving_->spec->id != id)
    return;
  sequence& s = *std::exchange(reserving_, nullptr);
  if (outcome == fit::ok) {
    s.blocks.assign(blocks.begin(), blocks.end());
    s.slot = slot;
    s.in = state::prefill;
    prefilling_.push_back(&s);
  } else if (outcome == fit::later && (released_since_demand_ || admitted_ > 1)) {
    s.in = state::waiting;
    waiting_.push_front(&s);
    --admitted_;
    no_space_ = !released_since_demand_; // a release ordered after the demand may have made room
  } else {                               // never, or later although nobody else holds anything
    sequence_event e = event_of(s);
    e.end = finish_reason::error;
    e.failure = {"no_space", "request " + s.spec->request_id + ": the KV pool can never hold it"};
    end(s, std::move(e), out);
  }
  admit(out);
}

sequence_event batch_scheduler::event_of(const sequence& s) const {
  sequence_event e;
  e.id = s.spec->id;
  e.output.id = s.spec->id;
  e.outputs_before = s.outputs();
  e.steps = s.steps;
  return e;
}

// The terminal event; the sequence leaves now or, if rows of it are being computed, with the step.
void batch_scheduler::end(sequence& s, sequence_event event, scheduler_output& out) {
  out.events.push_back(std::move(event));
  --live_;
  switch (s.in) {
  case state::waiting:
    std::erase(waiting_, &s);
    break;
  case state::prefill:
    std::erase(prefilling_, &s);
    break;
  case state::decode:
    std::erase(decoding_, &s);
    break;
  case state::reserving:
    reserving_ = reserving_ == &s ? nullptr : reserving_;
    break;
  case state::ended:
    break;
  }
  const bool holds = s.in != state::waiting;
  s.in = state::ended;
  if (!holds)
    sequences_.erase(s.spec->id);
  else if (!s.in_flight)
    leave(s, out);
}

void batch_scheduler::leave(sequence& s, scheduler_output& out) {
  out.kv.push_back({kv_order::kind::release, s.spec->id, 0});
  --admitted_;
  no_space_ = false;
  released_since_demand_ = true;
  sequences_.erase(s.spec->id);
  admit(out);
}

bool batch_scheduler::abort(sequence_id id, scheduler_output& out) {
  const auto at = sequences_.find(id);
  if (at == sequences_.end() || at->second.in == state::ended)
    return false;
  sequence_event e = event_of(at->second);
  e.end = finish_reason::abort;
  end(at->second, std::move(e), out);
  return true;
}

void batch_scheduler::fail_all(const error& why, scheduler_output& out) {
  in_flight_ = false;
  flying_.clear();
  std::vector<sequence_id> ids;
  for (auto& [id, s] : sequences_) {
    s.in_flight = false;
    ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  ending_all_ = true; // nobody is admitted between two ends
  for (const sequence_id id : ids) {
    sequence& s = sequences_.at(id);
    if (s.in == state::ended) {
      leave(s, out);
      continue;
    }
    sequence_event e = event_of(s);
    e.end = finish_reason::error;
    e.failure = why;
    end(s, std::move(e), out);
  }
  ending_all_ = false;
}

bool batch_scheduler::prefill_is_next() const {
  return !prefilling_.empty() && (decoding_.empty() || decode_steps_since_prefill_ >= limits_.decode_steps_between);
}

bool batch_scheduler::plan(step_plan& out) {
  if (in_flight_ || (prefilling_.empty() && decoding_.empty()))
    return false;
  out.sequences.clear(), out.tokens.clear(), out.blocks.clear(), out.history.clear();
  out.number = ++number_;
  if (prefill_is_next())
    plan_prefill(out);
  else
    plan_decode(out);
  in_flight_ = true;
  return true;
}

void batch_scheduler::plan_prefill(step_plan& out) {
  out.kind = step_kind::prefill;
  decode_steps_since_prefill_ = 0;
  std::int32_t room = limits_.max_num_batched_tokens;
  for (sequence* s : prefilling_) {
    const std::int32_t rows = std::min(s->remaining(), room);
    if (rows == 0 || (rows < s->remaining() && !limits_.chunked_prefill))
      break;
    add_rows(*s, rows, out);
    room -= rows;
  }
}

// All decoding sequences, or as many as the row budget allows, in turn.
void batch_scheduler::plan_decode(step_plan& out) {
  out.kind = step_kind::decode;
  ++decode_steps_since_prefill_;
  const std::size_t count = std::min(decoding_.size(), static_cast<std::size_t>(limits_.max_num_batched_tokens));
  for (std::size_t i = 0; i < count; ++i)
    add_rows(*decoding_[i], 1, out);
  if (count < decoding_.size())
    std::rotate(decoding_.begin(), decoding_.begin() + static_cast<std::ptrdiff_t>(count), decoding_.end());
}

void batch_scheduler::add_rows(sequence& s, std::int32_t rows, step_plan& out) {
  const std::int32_t start = s.computed, stop = start + rows, prompt = s.spec->prompt_tokens;
  planned_sequence p;
  p.spec = s.spec;
  p.slot = s.slot;
  p.start = start;
  p.rows = rows;
  p.first_token = static_cast<std::int32_t>(out.tokens.size());
  p.first_block = static_cast<std::int32_t>(out.blocks.size());
  p.blocks = blocks_for(stop);
  p.history = static_cast<std::int32_t>(out.history.size());
  p.sample = stop == static_cast<std::int32_t>(s.tokens.size()) && stop < limits_.max_model_len;
  p.next = stop < prompt ? s.tokens[static_cast<std::size_t>(stop)] : -1;
  out.tokens.insert(out.tokens.end(), s.tokens.begin() + start, s.tokens.begin() + stop);
  for (std::int32_t b = 0; b < p.blocks; ++b)
    out.blocks.push_back(s.blocks[static_cast<std::size_t>(b)].value);
  for (std::int32_t h = start - limits_.history; h < start; ++h)
    out.history.push_back(h >= 0 ? s.tokens[static_cast<std::size_t>(h)] : -1);
  out.sequences.push_back(std::move(p));
  flying_.emplace_back(s.spec->id, rows);
  s.in_flight = true;
}

void batch_scheduler::complete(step_result& result, scheduler_output& out) {
  if (!in_flight_ || result.number != number_)
    return;
  in_flight_ = false;
  if (result.failure.empty() && result.sequences.size() != flying_.size())
    result.failure = "the executor answered for " + std::to_string(result.sequences.size()) + " of " +
                     std::to_string(flying_.size()) + " sequences";
  auto flown = std::move(flying_);
  flying_.clear();
  for (std::size_t i = 0; i < flown.size(); ++i) {
    sequence& s = sequences_.at(flown[i].first);
    s.in_flight = false;
    ++s.steps;
    if (s.in == state::ended) {
      leave(s, out);
      continue;
    }
    sequence_result failed;
    failed.failure = result.failure;
    apply(s, flown[i].second, result.failure.empty() ? result.sequences[i] : failed, out);
  }
  flown.clear();
  flying_ = std::move(flown); // keeps its memory
  admit(out);
}

void batch_scheduler::apply(sequence& s, std::int32_t rows, sequence_result& r, scheduler_output& out) {
  sequence_event e = event_of(s);
  if (!r.failure.empty()) {
    e.end = finish_reason::error;
    e.failure = {"device_error", "request " + s.spec->request_id + ": " + r.failure};
    end(s, std::move(e), out);
    return;
  }
  s.computed += rows;
  e.output = std::move(r);
  if (e.output.sampled) {
    s.tokens.push_back(e.output.token);
    const finish_state f = finish_after(*s.spec, e.output.token, s.outputs(), limits_.max_model_len);
    e.end = f.reason;
    e.stop_id = f.stop_id;
  } else if (s.remaining() == 0) {
    e.end = finish_reason::length; // the prompt fills the model's length
    if (s.spec->prompt_tokens < limits_.max_model_len) {
      e.end = finish_reason::error;
      e.failure = {"device_error", "request " + s.spec->request_id + ": the executor gave no token"};
    }
  }
  if (e.end != finish_reason::none) {
    end(s, std::move(e), out);
    return;
  }
  if (s.in == state::prefill && e.output.sampled) {
    s.in = state::decode;
    std::erase(prefilling_, &s);
    decoding_.push_back(&s);
  }
  if (e.output.sampled || !e.output.prompt_logprobs.empty() || !e.output.logits.empty())
    out.events.push_back(std::move(e));
}

bool batch_scheduler::consistent() const {
  std::size_t count[5] = {}, flying = 0;
  for (const auto& [id, s] : sequences_) {
    ++count[static_cast<std::size_t>(s.in)];
    flying += s.in_flight ? 1 : 0;
    const auto covered = static_cast<std::int64_t>(s.blocks.size()) * tokens_per_kv_block;
    if ((s.in == state::prefill || s.in == state::decode) && covered < static_cast<std::int64_t>(s.tokens.size()))
      return false;
    if (s.in == state::decode && s.remaining() != 1)
      return false;
  }
  const auto of = [&](state x) { return count[static_cast<std::size_t>(x)]; };
  return of(state::waiting) == waiting_.size() && of(state::prefill) == prefilling_.size() &&
         of(state::decode) == decoding_.size() && of(state::reserving) == (reserving_ ? 1u : 0u) &&
         flying == flying_.size() && sequences_.size() == live_ + of(state::ended) &&
         admitted_ == sequences_.size() - of(state::waiting) &&
         admitted_ <= static_cast<std::size_t>(limits_.max_num_seqs);
}

} // namespace troupe
