#include "actors/branch.hpp"

namespace troupe {

namespace {

const char* text_of(finish_reason why) {
  switch (why) {
  case finish_reason::stop:
    return "stop";
  case finish_reason::length:
    return "length";
  case finish_reason::abort:
    return "abort";
  case finish_reason::error:
  case finish_reason::none:
    break;
  }
  return "error";
}

} // namespace

branch::branch(std::shared_ptr<const tokenizer> vocabulary, const branch_setup& setup)
    : vocabulary_(std::move(vocabulary)), decoder_(*vocabulary_), scanner_(setup.params.stop, setup.params.min_tokens),
      ledger_(setup.prompt_tokens, setup.max_attempts), wants_logprobs_(setup.params.logprobs),
      wants_top_(setup.params.top_logprobs > 0) {
  result_.id = setup.id;
  result_.index = setup.index;
  result_.prompt_tokens = setup.prompt_tokens;
  result_.seq_seed = setup.seed;
}

branch::update branch::take(const tokens& t, double now_ms) {
  update u;
  if (ended_)
    return u;
  const token_ledger::outcome o = ledger_.accept(t.attempt, t.first_pos, t.ids);
  if (o.what == token_ledger::verdict::stale)
    return u;
  if (o.what != token_ledger::verdict::accepted) {
    u = end(finish_reason::error, {"divergence", "the engine sent tokens that do not continue those already given"},
            now_ms);
    u.cancel = true;
    return u;
  }
  append_f32(t.prompt_logprobs, result_.prompt_logprobs);
  append_f32(t.logits, result_.logits);
  result_.usage.steps = earlier_.steps + t.steps;
  result_.usage.preemptions = earlier_.preemptions + t.preemptions;
  result_.usage.drafted = earlier_.drafted + t.drafted;
  result_.usage.accepted = earlier_.accepted + t.accepted;
  const auto here = t.accepted - std::exchange(told_accepted_, t.accepted); // drafts among these tokens
  result_.cached_tokens = t.cached_tokens;
  if (!t.warnings.empty())
    result_.warnings = t.warnings;
  if (o.fresh < t.ids.size())
    note_arrival(now_ms);
  std::vector<float> logprobs;
  std::vector<std::vector<token_logprob>> top;
  append_f32(t.logprobs, logprobs);
  append_top(t.top, top);
  for (std::size_t i = o.fresh; i < t.ids.size() && !ended_; ++i) {
    result_.token_ids.push_back(t.ids[i]);
    if (wants_logprobs_ && i < logprobs.size())
      result_.logprobs.push_back(logprobs[i]);
    if (wants_top_ && i < top.size())
      result_.top_logprobs.push_back(std::move(top[i]));
    if (append(t, i, u)) {
      close(finish_reason::stop, now_ms, u);
      // Drafts come first, behind them the token that was drawn: of those behind the end nobody gets any.
      result_.usage.accepted -= std::max<std::int64_t>(here - static_cast<std::int64_t>(i + 1), 0);
    }
  }
  const auto why = static_cast<finish_reason>(t.end);
  u.cancel = ended_ && why == finish_reason::none;
  if (ended_)
    return u;
  if (why == finish_reason::none) {
    result_.text += u.text;
    return u;
  }
  if (why == finish_reason::error)
    result_.failure = error{t.error_code, t.error_text};
  cause_ = why == finish_reason::abort ? "engine" : t.error_code;
  if (why == finish_reason::stop && t.stop_id >= 0)
    result_.stop_id = t.stop_id;
  auto rest = scanner_.finish(decoder_.flush());
  u.text += rest.text;
  if (rest.stop && why != finish_reason::error)
    result_.stop_text = scanner_.stop_string(*rest.stop);
  close(rest.stop && why == finish_reason::length ? finish_reason::stop : why, now_ms, u);
  return u;
}

// Tokens that arrive together count as one arrival.
void branch::note_arrival(double now_ms) {
  if (result_.token_ids.empty())
    result_.usage.ttft_ms = now_ms;
  else
    gaps_.observe((now_ms - last_token_ms_) / 1000);
  last_token_ms_ = now_ms;
}

branch_record branch::record() const {
  branch_record r;
  r.finish_reason = result_.finish_reason;
  r.cause = cause_;
  r.prompt_tokens = result_.prompt_tokens;
  r.output_tokens = static_cast<std::int64_t>(result_.token_ids.size());
  r.first_token = result_.usage.ttft_ms / 1000;
  r.last_token = last_token_ms_ / 1000;
  r.end = result_.usage.total_ms / 1000;
  r.gaps = gaps_;
  return r;
}

// Text of one more token; true if it completed a stop string. The id that ends a branch has no text.
bool branch::append(const tokens& t, std::size_t index, update& u) {
  if (static_cast<finish_reason>(t.end) == finish_reason::stop && index + 1 == t.ids.size())
    return false;
  auto s = scanner_.feed(decoder_.push(t.ids[index]));
  u.text += s.text;
  if (s.stop)
    result_.stop_text = scanner_.stop_string(*s.stop);
  return s.stop.has_value();
}

branch::update branch::end(finish_reason why, const error& failure, double now_ms) {
  update u;
  if (ended_)
    return u;
  if (why == finish_reason::error)
    result_.failure = failure;
  cause_ = failure.code;
  u.text = scanner_.finish(decoder_.flush()).text;
  close(why, now_ms, u);
  return u;
}

bool branch::begin_next_attempt(bool begun) {
  if (!begun)
    ledger_.go_on_at(ledger_.attempt() + 1);
  else if (!ledger_.next_attempt())
    return false;
  earlier_ = result_.usage;
  told_accepted_ = 0;
  forget_prompt_rows();
  return true;
}

branch::update branch::restore(const tokens& taken, std::uint32_t attempt, double now_ms) {
  update u = take(taken, now_ms);
  ledger_.go_on_at(attempt);
  told_accepted_ = 0;
  forget_prompt_rows();
  return u;
}

// Of a prompt that gave no token yet: they come again. Else all came before the first token, and do not.
void branch::forget_prompt_rows() {
  if (!ledger_.tokens().empty())
    return;
  result_.prompt_logprobs.clear();
  result_.logits.clear();
}

void branch::close(finish_reason why, double now_ms, update& u) {
  ended_ = true;
  u.ended = true;
  result_.finish_reason = text_of(why);
  result_.usage.attempts = ledger_.attempt(); // also of one that brought no token
  result_.usage.total_ms = now_ms;
  result_.text += u.text;
}

} // namespace troupe
