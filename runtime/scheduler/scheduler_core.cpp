#include "runtime/scheduler/scheduler_core.hpp"
#include "runtime/base/check.hpp"
#include <algorithm>

namespace troupe {

namespace {

// Positions whose rows are ever computed: the last token of an output has none.
std::int32_t reach_of(const sequence_spec& spec, std::int32_t max_model_len, sequence_share share) {
  if (share == sequence_share::prompt)
    return spec.prompt_tokens - 1;
  return std::max<std::int32_t>(spec.prompt_tokens, static_cast<std::int32_t>(longest_length(spec, max_model_len)) - 1);
}

// Cuts off what an earlier life of the sequence has delivered already (D5).
void keep_new(const sequence_spec& spec, std::int32_t start, std::int32_t end, std::int32_t delivered,
              sequence_result& r) {
  if (delivered <= start)
    return;
  auto& p = r.prompt_logprobs;
  p.erase(p.begin(), p.begin() + std::min<std::ptrdiff_t>(delivered - start, std::ssize(p)));
  if (r.logits.empty())
    return;
  const auto below = [&](std::int32_t position) {
    return std::lower_bound(spec.logit_rows.begin(), spec.logit_rows.end(), position) - spec.logit_rows.begin();
  };
  const std::ptrdiff_t rows = below(end) - below(start), old = below(std::min(delivered, end)) - below(start);
  if (rows > 0)
    r.logits.erase(r.logits.begin(), r.logits.begin() + std::ssize(r.logits) / rows * old);
}

} // namespace

// A result that cannot be that of its rows, which begin at `start`, is a failure.
void scheduler_core::examine(const flown& f, std::int32_t start, sequence_result& r) {
  const auto unusable = [](const drawn_token& t) { return t.id < 0; };
  if (r.tokens.empty() || std::ranges::any_of(r.tokens, unusable))
    r.failure = "the executor gave no token";
  else if (std::ssize(r.tokens) > f.drafts + 1)
    r.failure =
        "the executor gave " + std::to_string(r.tokens.size()) + " tokens for " + std::to_string(f.drafts) + " drafts";
  else if (f.slack > 0 && r.start != start)
    r.failure =
        "the executor computed position " + std::to_string(r.start) + " where " + std::to_string(start) + " was due";
}

scheduler_core::scheduler_core(const scheduler_limits& limits, step_cost cost, std::shared_ptr<mask_helpers> helpers)
    : limits_(limits), free_blocks_(limits.kv_blocks - 1),
      planner_({limits.nextn, limits.varlen, limits.max_num_batched_tokens}, std::move(cost)),
      masks_(std::move(helpers), limits.mask_work) {
  TROUPE_CHECK(limits.max_num_seqs >= 1 && limits.max_num_batched_tokens >= 1 && limits.max_model_len >= 1 &&
                   limits.ageing_steps >= 1,
               "scheduler limits");
}

status scheduler_core::submit(scheduling_request request, events& out) {
  const sequence_spec& spec = *request.spec;
  const std::string who = "request " + spec.request_id + ": ";
  if (sequences_.contains(spec.id))
    return error{"duplicate_id", who + "this id is in use"};
  if (!request.prompt || request.prompt->empty() || spec.prompt_tokens != std::ssize(*request.prompt))
    return error{"invalid_prompt", who + "the prompt is empty or its length is not the stated one"};
  if (spec.prompt_tokens > limits_.max_model_len)
    return error{"prompt_too_long", who + "the prompt has " + std::to_string(spec.prompt_tokens) +
                                        " tokens, max_model_len is " + std::to_string(limits_.max_model_len)};
  if (!limits_.chunked_prefill && spec.prompt_tokens > limits_.max_num_batched_tokens)
    return error{"prompt_too_long", who + "the prompt has " + std::to_string(spec.prompt_tokens) +
                                        " tokens, a step without chunked prefill takes max_num_batched_tokens = " +
                                        std::to_string(limits_.max_num_batched_tokens)};
  if (request.share != sequence_share::whole && (spec.prompt_tokens < 2 || needs_whole_prompt(spec)))
    return error{"invalid_prompt", who + "results of its prompt's rows are wanted, or it has one token: it cannot be "
                                         "computed by two engines"};
  if (request.share == sequence_share::rest && places() <= static_cast<std::int32_t>(reserving_.size()))
    return error{"no_room", who + "there is no place for another sequence at the moment"};
  const std::int32_t needed = blocks_for(reach_of(spec, limits_.max_model_len, request.share));
  if (needed > limits_.kv_blocks - 1)
    return error{"no_space", who + "prompt and max_tokens need " + std::to_string(needed) +
                                 " KV blocks, the pool has " + std::to_string(limits_.kv_blocks - 1) +
                                 "; lower max_tokens or raise kv_blocks"};
  std::unique_ptr<constraint_matcher> matcher;
  if (request.constraint) {
    matcher = std::make_unique<constraint_matcher>(request.constraint->grammar, request.constraint->trigger,
                                                   static_cast<std::size_t>(limits_.nextn) + 2);
    for (const std::int32_t token : request.emitted)
      if (!matcher->accept(token))
        return error{"so_internal", who + "its output so far is not within its constraint"};
  }
  sequence& s = new_record();
  s.matcher = std::move(matcher);
  constrained_ += s.matcher != nullptr;
  s.spec = std::move(request.spec);
  s.id = s.spec->id;
  s.prompt = std::move(request.prompt);
  s.salt = std::move(request.salt);
  s.chunk_checkpoints = std::move(request.chunk_checkpoints);
  s.host_paced = request.host_paced || s.matcher;
  s.share = request.share;
  s.ends = end_rule(*s.spec, limits_.max_model_len);
  s.reach = reach_of(*s.spec, limits_.max_model_len, s.share);
  s.output.assign(request.emitted.begin(), request.emitted.end());
  s.delivered = s.output.empty() ? 0 : s.length() - 1;
  s.acknowledged = static_cast<std::int32_t>(s.output.size());
  s.order = {std::int64_t{request.priority} * limits_.ageing_steps + step_, ++arrivals_};
  sequences_.emplace(s.id, &s);
  if (request.deadline_steps > 0) {
    s.expires = step_ + request.deadline_steps;
    deadlines_.insert(&s);
  }
  if (s.share == sequence_share::rest) {
    s.in = phase::reserving;
    reserving_.push_back(&s);
  } else {
    queue(s);
  }
  if (!s.output.empty()) { // a replay may have nothing left to do
    const finish_state f = finish_of(s);
    if (f.reason != finish_reason::none) {
      sequence_event e = event_of(s);
      e.end = f.reason;
      e.stop_id = f.stop_id;
      end(s, std::move(e), out);
      return nothing{};
    }
  }
  const auto parent = sequences_.find(request.fork_of);
  if (parent != sequences_.end() && parent->second != &s)
    park(s, *parent->second);
  return nothing{};
}

std::int64_t scheduler_core::outstanding_tokens() const {
  std::int64_t tokens = 0;
  for (const auto& [id, s] : sequences_) // a parked branch gets its prompt from its parent
    tokens += std::max(0, s->reach - (s->in == phase::parked ? s->prompt_tokens() : s->computed));
  return tokens;
}

scheduler_core::sequence& scheduler_core::new_record() {
  if (unused_.empty()) {
    store_.emplace_back();
    unused_.push_back(&store_.back());
  }
  sequence& s = *unused_.back();
  unused_.pop_back();
  s.life = ++lives_;
  return s;
}

void scheduler_core::queue(sequence& s) {
  s.in = phase::waiting;
  s.parent = nullptr;
  s.waits_since = step_;
  s.refused_since = 0;
  waiting_.insert(&s);
}

// A branch waits for its parent's prompt if it can share it; else it stays in the queue.
void scheduler_core::park(sequence& s, sequence& parent) {
  const bool prompt_to_come = parent.in == phase::waiting || parent.in == phase::reserving ||
                              parent.in == phase::admitting || parent.in == phase::held ||
                              parent.in == phase::prefill ||
                              (parent.in == phase::decode && parent.computed < parent.prompt_tokens());
  const bool shares = prompt_to_come && s.in == phase::waiting && s.output.empty() && s.prompt_tokens() > 1 &&
                      !needs_whole_prompt(*s.spec) && (s.prompt == parent.prompt || *s.prompt == *parent.prompt);
  if (!shares)
    return;
  waiting_.erase(&s);
  s.in = phase::parked;
  s.parent = &parent;
  parent.branches.push_back(&s);
  ++parked_;
}

// They compute their prompt on their own, with what the prefix cache has of it.
void scheduler_core::release_branches(sequence& parent) {
  for (sequence* b : parent.branches) {
    std::erase(forks_, b);
    --parked_;
    queue(*b);
  }
  parent.branches.clear();
}

sequence_event scheduler_core::event_of(const sequence& s) {
  sequence_event e;
  e.id = e.output.id = s.id;
  e.outputs_before = std::ssize(s.output);
  put_usage(s, e);
  return e;
}

void scheduler_core::put_usage(const sequence& s, sequence_event& e) {
  e.steps = s.steps;
  e.drafted = s.drafts_verified;
  e.accepted = s.drafts_accepted;
  e.preemptions = s.preemptions;
  e.cached_tokens = s.cached;
}

// The terminal event. Rows that are out stop counting; cache and slot go back with the next turn, which is safe because
// steps run in order.
void scheduler_core::end(sequence& s, sequence_event event, events& out) {
  out.push_back(std::move(event));
  retire(s);
}

void scheduler_core::retire(sequence& s) {
  if (s.in == phase::waiting)
    waiting_.erase(&s);
  if (s.in == phase::reserving)
    std::erase(reserving_, &s);
  if (s.in == phase::parked) {
    std::erase(s.parent->branches, &s);
    std::erase(forks_, &s);
    --parked_;
  }
  if (s.holds_cache())
    drop_cache(s);
  release_branches(s);
  if (s.expires > 0)
    deadlines_.erase(&s);
  sequences_.erase(s.id);
  constrained_ -= s.matcher != nullptr;
  if (s.window)
    s.window->given_up.store(true, std::memory_order_relaxed);
  auto output = std::move(s.output); // keeps its memory
  auto blocks = std::move(s.blocks);
  auto branches = std::move(s.branches);
  auto drafts = std::move(s.drafts);
  output.clear(), blocks.clear(), drafts.clear();
  s = sequence{};
  s.life = ++lives_;
  s.output = std::move(output);
  s.blocks = std::move(blocks);
  s.branches = std::move(branches);
  s.drafts = std::move(drafts);
  unused_.push_back(&s);
}

void scheduler_core::end_with(sequence& s, std::string code, std::string text, events& out) {
  sequence_event e = event_of(s);
  e.end = finish_reason::error;
  e.failure = {std::move(code), "request " + s.spec->request_id + ": " + std::move(text)};
  end(s, std::move(e), out);
}

void scheduler_core::expire(events& out) {
  while (!deadlines_.empty() && (*deadlines_.begin())->expires <= step_)
    end_with(**deadlines_.begin(), "deadline",
             "it did not end within its deadline_steps; give it more, or leave them out", out);
}

// What has been computed for good and fills whole blocks, from now on for everybody.
void scheduler_core::publish(sequence& s) {
  if (!limits_.prefix_cache || s.committed < (s.published + 1) * tokens_per_kv_block)
    return;
  std::int32_t usable = limits_.cache_output_blocks ? s.committed : std::min(s.committed, s.prompt_tokens());
  for (const std::int32_t at : {s.hold_at, s.filling})
    if (at > 0)
      usable = std::min(usable, at - 1);
  const std::int32_t blocks = usable / tokens_per_kv_block - s.published;
  if (blocks <= 0)
    return;
  next_.publish.push_back({s.id, blocks});
  for (std::int32_t p = s.published * tokens_per_kv_block, last = p + blocks * tokens_per_kv_block; p < last; ++p)
    next_.ids.push_back(s.token(p));
  s.published += blocks;
}

void scheduler_core::drop_cache(sequence& s) {
  publish(s);
  next_.release.push_back(s.id);
  released_blocks_ += static_cast<std::int32_t>(s.blocks.size());
  ++released_slots_;
  active_.erase(std::lower_bound(active_.begin(), active_.end(), &s, before{}));
  s.life = ++lives_;
  s.computed = s.slack = s.committed = s.unresolved = s.published = s.parts_at = s.snapshot_at = s.hold_at = s.filling =
      0;
  s.drafted = false;
  s.confidences.reset();
  s.blocks.clear();
  s.slot = s.snapshot = slot_id{};
  s.depends_on = 0;
  s.departing = s.departed; // the rest is computed again
  s.image.reset();
  if (s.share == sequence_share::rest) // computes its prompt itself, should it go on
    s.share = sequence_share::whole;
}

bool scheduler_core::arrived(sequence_id id, std::shared_ptr<const image_bytes> image, std::int32_t cached) {
  const auto at = sequences_.find(id);
  if (at == sequences_.end() || at->second->in != phase::held)
    return false;
  sequence& s = *at->second;
  s.in = phase::decode;
  s.computed = s.committed = s.prompt_tokens() - 1;
  s.delivered = std::max(s.delivered, s.computed);
  s.cached = cached;
  s.image = std::move(image);
  return true;
}

void scheduler_core::let_go_on(sequence_id id, bool may) {
  if (const auto at = sequences_.find(id); at != sequences_.end())
    at->second->may_go_on = may;
}

bool scheduler_core::acknowledge(sequence_id id, std::int64_t outputs) {
  const auto at = sequences_.find(id);
  if (at == sequences_.end())
    return false;
  sequence& s = *at->second;
  const bool waited = runs_ahead(s);
  s.acknowledged = std::max(s.acknowledged, static_cast<std::int32_t>(std::min(outputs, std::ssize(s.output))));
  return waited && !runs_ahead(s);
}

std::size_t scheduler_core::paused() const {
  return static_cast<std::size_t>(std::ranges::count_if(active_, [&](const sequence* s) {
    return s->in == phase::decode && s->unresolved == 0 && runs_ahead(*s); // else it may wait for its own step
  }));
}

bool scheduler_core::abort(sequence_id id, events& out) {
  const auto at = sequences_.find(id);
  if (at == sequences_.end())
    return false;
  sequence_event e = event_of(*at->second);
  e.end = finish_reason::abort;
  end(*at->second, std::move(e), out);
  return true;
}

void scheduler_core::masks_made() {
  for (const auto& [id, s] : sequences_)
    if (s->waits_for_masks() && s->window->made.load(std::memory_order_acquire)) {
      s->window->ready = true;
      masks_.count(*s->window);
    }
}

void scheduler_core::fail_all(const error& why, events& out) {
  flights_out_ = 0;
  std::vector<sequence_id> ids;
  for (const auto& [id, s] : sequences_)
    ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  for (const sequence_id id : ids) {
    sequence& s = *sequences_.at(id);
    sequence_event e = event_of(s);
    e.end = finish_reason::error;
    e.failure = why;
    end(s, std::move(e), out);
  }
}

void scheduler_core::complete(step_result& result, events& out) {
  flight& f = flights_[first_flight_];
  if (flights_out_ == 0 || result.number != f.number)
    return;
  first_flight_ = 1 - first_flight_;
  --flights_out_;
  if (result.failure.empty() && result.sequences.size() != f.rows.size())
    result.failure = "the executor answered for " + std::to_string(result.sequences.size()) + " of " +
                     std::to_string(f.rows.size()) + " sequences";
  begin_outcome(f);
  if (!result.failure.empty())
    fail_step(f, result.failure, out);
  else
    for (std::size_t i = 0; i < f.rows.size(); ++i) {
      if (i + 2 < f.rows.size()) {
        f.rows[i + 2].s->fetch_row_parts();
        __builtin_prefetch(result.sequences[i + 2].tokens.data());
      }
      if (f.rows[i].s->life == f.rows[i].life)
        apply(f.rows[i], result.sequences[i], result, out);
    }
}

// Nothing of the step counts: its sequences end, and branches that copied from them start over.
void scheduler_core::fail_step(const flight& f, const std::string& why, events& out) {
  outcome_.rows = 0;
  for (const flown& r : f.rows)
    if (r.s->life == r.life) {
      ++r.s->steps;
      end_with(*r.s, "device_error", why, out);
    }
  candidates_.clear();
  for (const auto& [id, s] : sequences_)
    if (s->depends_on == f.number)
      candidates_.push_back(s);
  std::sort(candidates_.begin(), candidates_.end(), before{}); // a replay does the same in the same order
  for (sequence* s : candidates_) {
    if (s->holds_cache()) {
      drop_cache(*s);
      queue(*s);
    } else if (s->in == phase::admitting) {
      s->life = ++lives_;
      s->depends_on = 0;
      queue(*s);
    }
  }
}

void scheduler_core::apply(const flown& f, sequence_result& r, step_result& all, events& out) {
  sequence& s = *f.s;
  ++s.steps;
  const auto departure = static_cast<std::size_t>(f.departure); // of none: behind all
  std::shared_ptr<const image_bytes> departed;
  if (departure < all.departed.size())
    departed = std::move(all.departed[departure]);
  if (f.departure >= 0 && !departed && r.failure.empty())
    r.failure = "the executor gave no image of its cache";
  const std::int32_t start = f.slack > 0 ? s.committed : f.start; // all rows before it have come back
  if (r.failure.empty() && f.sample)
    examine(f, start, r);
  if (!r.failure.empty()) {
    end_with(s, r.nothing_left && s.constrained() ? "so_internal" : "device_error", std::move(r.failure), out);
    return;
  }
  if (limits_.nextn > 0)
    take_drafts(f, r);
  sequence_event& e = out.emplace_back(s.id, std::ssize(s.output), std::move(r)); // filled where it stays
  put_usage(s, e);
  if (s.host_paced)
    s.drafts.swap(e.output.block);
  std::int32_t reached = start + f.rows - f.drafts;
  if (f.sample) {
    const auto accepted = static_cast<std::int32_t>(e.output.tokens.size()) - 1;
    --s.unresolved;
    s.computed += accepted;
    s.slack -= f.drafts;
    if (const drawn_token& first = e.output.tokens.front();
        accepted == 0 && !s.host_paced && !s.ends.may_end(first.id, std::ssize(s.output) + 1))
      s.output.push_back(first.id); // as it is nearly always
    else
      take_tokens(s, e, f.masked);
    if (const auto behind_end = accepted - static_cast<std::int32_t>(e.output.tokens.size()); behind_end > 0) {
      e.accepted = s.drafts_accepted -= behind_end;
      outcome_.kept.back() -= behind_end;
    }
    outcome_.emitted += std::ssize(e.output.tokens);
    reached += static_cast<std::int32_t>(e.output.tokens.size()) - 1;
  } else {
    e.output.tokens.clear();
    if (reached >= limits_.max_model_len)
      e.end = finish_reason::length; // the prompt fills the model's length
  }
  keep_new(*s.spec, start, reached, s.delivered, e.output);
  s.committed = reached;
  s.delivered = std::max(s.delivered, reached);
  if (s.filling == f.fills)
    s.filling = 0;
  if (f.departure >= 0) {
    s.departed = f.departed;
    e.handoff = reached == s.prompt_end() ? handoff_news::whole : handoff_news::part;
    e.image = std::move(departed);
  }
  if (e.end != finish_reason::none || e.handoff == handoff_news::whole) {
    retire(s);
    return;
  }
  if (s.constrained())
    keep_worthy_drafts(s);
  publish(s);
  if (!f.sample && e.output.prompt_logprobs.empty() && e.output.logits.empty() && !e.image)
    out.pop_back();
}

void scheduler_core::begin_outcome(const flight& f) {
  outcome_.rows = f.row_count;
  outcome_.sequences = static_cast<std::int32_t>(f.rows.size());
  outcome_.kv_tokens = f.kv_tokens;
  outcome_.drafted = f.drafted;
  outcome_.expected_tokens = f.expected_tokens;
  outcome_.expected_ms = f.expected_ms;
  outcome_.emitted = 0;
  outcome_.verified.clear(), outcome_.accepted.clear(), outcome_.kept.clear(), outcome_.confidences.clear();
  outcome_.not_finite = 0;
}

// What became of the drafts that a row verified, and the confidences of those that it leaves.
void scheduler_core::take_drafts(const flown& f, const sequence_result& r) {
  sequence& s = *f.s;
  if (r.drafts > 0) {
    const auto known = s.confidences.for_split(); // of the block that the step before left
    const auto verified = std::min(r.drafts, f.drafts);
    const auto accepted = static_cast<std::int32_t>(r.tokens.size()) - 1;
    s.drafts_verified += verified;
    s.drafts_accepted += accepted;
    planner_.observe(s.confidences.before(), verified, accepted);
    outcome_.verified.push_back(verified);
    outcome_.accepted.push_back(accepted);
    outcome_.kept.push_back(accepted);
    for (std::int32_t j = 0; j < verified; ++j)
      outcome_.confidences.push_back(j < std::ssize(known) ? known[static_cast<std::size_t>(j)] : 1);
  }
  const std::size_t left = std::min(r.confidence.size(), static_cast<std::size_t>(limits_.nextn));
  outcome_.not_finite += static_cast<std::uint64_t>(s.confidences.process(std::span(r.confidence).first(left)));
}

// Why its matcher did not take its next token.
error scheduler_core::refusal_of(const sequence& s, std::int32_t token) {
  const std::string who = "request " + s.spec->request_id + ": ";
  if (s.matcher->overflowed())
    return {"so_too_complex", who + too_complex_to_follow};
  const std::string which = who + "output token " + std::to_string(s.output.size()) + ", id " + std::to_string(token);
  if (s.output.size() < s.spec->params.golden_token_ids.size()) // what the request says contradicts itself
    return {"invalid_params",
            which + " of golden_token_ids, is not within the constraint; give ids that so_args allows"};
  return {"so_internal", which + ", is not within the constraint"};
}

// Up to the one that ends the sequence; what was accepted behind it never was. A token outside the constraint is not
// given out: the model cannot draw one, but a request may force it. Nor is what was drawn without the mask that belongs
// there, behind the first `masked` ones.
void scheduler_core::take_tokens(sequence& s, sequence_event& e, std::int32_t masked) {
  auto& tokens = e.output.tokens;
  const bool constrained = s.constrained();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (std::cmp_equal(i, masked)) {
      e.end = finish_reason::error;
      e.failure = {"so_too_complex", "request " + s.spec->request_id + ": " + too_complex_to_follow};
      tokens.resize(i);
      return;
    }
    if (constrained && !s.matcher->accept(tokens[i].id)) {
      e.end = finish_reason::error;
      e.failure = refusal_of(s, tokens[i].id);
      tokens.resize(i);
      return;
    }
    s.output.push_back(tokens[i].id);
    if (!constrained && !s.ends.may_end(tokens[i].id, std::ssize(s.output)))
      continue;
    const finish_state state = finish_of(s);
    if (state.reason == finish_reason::none)
      continue;
    e.end = state.reason;
    e.stop_id = state.stop_id;
    tokens.resize(i + 1);
  }
}

// After its last output token. Where a constraint leaves nothing but the end, it ends before min_tokens too.
finish_state scheduler_core::finish_of(const sequence& s) const {
  if (s.constrained() && s.matcher->finished() && !s.spec->params.ignore_eos)
    return {finish_reason::stop, s.output.back()};
  return s.ends.after(*s.spec, s.output.back(), std::ssize(s.output));
}

// A draft outside the constraint cannot be drawn; what lies behind it is not worth a row. Nor is itself, but by
// rejection a draft must not decide whether it is verified: the row in front of it then draws what it leaves, not
// afresh (speculation.md §7.5).
void scheduler_core::keep_worthy_drafts(sequence& s) const {
  std::size_t legal = 0;
  const std::size_t most = std::min(s.drafts.size(), static_cast<std::size_t>(limits_.nextn));
  while (legal < most && s.matcher->accept(s.drafts[legal]))
    ++legal;
  s.matcher->rollback(legal);
  s.drafts.resize(limits_.rejection ? std::min(legal + 1, most) : legal);
}

bool scheduler_core::consistent() const {
  std::size_t waiting = 0, parked = 0, active = 0, admitting = 0, reserving = 0;
  for (const auto& [id, s] : sequences_) {
    waiting += s->in == phase::waiting;
    parked += s->in == phase::parked;
    admitting += s->in == phase::admitting;
    reserving += s->in == phase::reserving;
    active += s->holds_cache();
    if (s->in == phase::free || s->spec->id != id)
      return false;
    if (!s->holds_cache()) {
      if (s->computed != 0 || s->slack != 0 || s->committed != 0 || s->unresolved != 0 || !s->blocks.empty() ||
          s->slot.value != 0)
        return false;
      continue;
    }
    std::int32_t out = 0, drawn = 0, drafts = 0;
    for (std::size_t i = 0; i < flights_out_; ++i)
      for (const flown& f : flights_[(first_flight_ + i) % 2].rows)
        if (f.s == s && f.life == s->life)
          ++out, drawn += f.sample, drafts += f.drafts;
    const bool prompt_left = s->computed < s->prompt_tokens(); // behind an image a decode step computes the last row
    const bool behind_image = s->share == sequence_share::rest && s->computed == s->prompt_tokens() - 1;
    // I4: one that decodes and waits for no step has one token without a row, its newest; unless rows of what an
    // earlier life has drawn are left.
    if (s->in == phase::decode && out == 0 && s->computed >= s->delivered && s->computed != s->length() - 1)
      return false;
    if (s->committed > s->computed || s->computed > s->length() + std::max(0, s->unresolved - 1) ||
        drawn != s->unresolved || drafts != s->slack || (out == 0 && s->committed != s->computed) ||
        blocks_for(std::min(s->computed + s->slack, s->reach)) > std::ssize(s->blocks) || s->slot.value == 0 ||
        (s->in == phase::held ? s->computed != 0
                              : prompt_left != (s->in == phase::prefill) && !(s->in == phase::decode && behind_image)))
      return false;
  }
  return waiting == waiting_.size() && reserving == reserving_.size() && parked == parked_ &&
         active == active_.size() &&
         admitting == static_cast<std::size_t>(
                          turn_.open ? std::count_if(turn_.admit.begin(), turn_.admit.end(), current) : 0) &&
         std::is_sorted(active_.begin(), active_.end(), before{}) &&
         active_.size() <= static_cast<std::size_t>(limits_.max_num_seqs) && unused_.size() + live() == store_.size();
}

} // namespace troupe
