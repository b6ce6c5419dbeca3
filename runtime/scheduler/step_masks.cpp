#include "runtime/scheduler/step_masks.hpp"
#include <algorithm>

namespace troupe {

namespace {

// Rows that are known already must not fail because others of their grammar took all: so much each may do in any case.
constexpr std::size_t least_work = 4096;
constexpr std::size_t worth_waking = 16'384; // work of a step that is worth the waking of threads, about 0.1 ms

std::size_t put_rows(const std::uint32_t* rows, const std::uint8_t* constrained, std::size_t count, std::size_t words,
                     step_plan& out) {
  out.mask_words = static_cast<std::int32_t>(words);
  for (std::size_t i = 0; i < count; ++i) {
    out.mask_rows.push_back(constrained[i] != 0 ? static_cast<std::int32_t>(out.masks.size() / words) : -1);
    if (constrained[i] != 0)
      out.masks.insert(out.masks.end(), rows + i * words, rows + (i + 1) * words);
  }
  return count;
}

std::size_t fill_rows(constraint_matcher& matcher, std::span<const std::int32_t> drafts, std::uint32_t* rows,
                      std::span<std::uint8_t> constrained, std::size_t words, mask_work& work) {
  std::vector<std::uint32_t*> pointers;
  for (std::size_t i = 0; i < constrained.size(); ++i)
    pointers.push_back(rows + i * words);
  return matcher.fill_window(drafts, pointers, constrained, work);
}

} // namespace

void mask_window::make() {
  const std::size_t words = matcher.grammar().vocabulary().words();
  rows.resize(constrained.size() * words);
  matcher.part_from_others();
  mask_work work(SIZE_MAX, &given_up);
  filled = fill_rows(matcher, drafts, rows.data(), constrained, words, work);
}

std::size_t step_masks::want(constraint_matcher& matcher, std::span<const std::int32_t> drafts) {
  if (wanted_.empty())
    count_ = 0;
  words_ = matcher.grammar().vocabulary().words();
  wanted_.push_back({.matcher = &matcher, .drafts = drafts, .first = count_});
  count_ += drafts.size() + 1;
  return wanted_.size() - 1;
}

void step_masks::make() {
  if (wanted_.empty())
    return;
  if (rows_.size() < count_ * words_)
    rows_.resize(count_ * words_);
  constrained_.assign(count_, 0);
  groups_.clear();
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    const compiled_grammar* grammar = &wanted_[i].matcher->grammar();
    auto at = std::ranges::find(groups_, grammar, &group::grammar);
    if (at == groups_.end())
      at = groups_.insert(groups_.end(), {grammar, {}});
    at->members.push_back(i);
  }
  if (helpers_ && groups_.size() > 1 && (last_work_ >= worth_waking || groups_.size() >= 16))
    helpers_->all(groups_.size(), [this](std::size_t i) { make_group(groups_[i]); });
  else
    for (const group& g : groups_)
      make_group(g);
  last_work_ = 0;
  for (const wanted& w : wanted_) {
    last_work_ += w.work;
    counters_.fill_time.observe(w.seconds);
    ++(w.late ? counters_.late : counters_.in_time);
  }
}

// Each may do half of what the group's share of the step has left.
void step_masks::make_group(const group& g) {
  std::size_t left = most_work_ / wanted_.size() * g.members.size();
  for (const std::size_t i : g.members) {
    wanted& w = wanted_[i];
    fill(w, std::max(left / 2, std::min(least_work, most_work_)));
    left -= std::min(left, w.work);
  }
}

void step_masks::fill(wanted& w, std::size_t limit) {
  const double begin = now();
  mask_work work(limit);
  w.filled = fill_rows(*w.matcher, w.drafts, row(w.first),
                       std::span(constrained_).subspan(w.first, w.drafts.size() + 1), words_, work);
  w.work = work.done();
  w.late = work.spent();
  w.seconds = now() - begin;
}

std::shared_ptr<mask_window> step_masks::keep(std::size_t number) const {
  const wanted& w = wanted_[number];
  auto kept = std::make_shared<mask_window>(*w.matcher, w.drafts);
  const auto from = static_cast<std::ptrdiff_t>(w.first), count = std::ssize(w.drafts) + 1;
  const auto words = static_cast<std::ptrdiff_t>(words_);
  kept->rows.assign(rows_.begin() + from * words, rows_.begin() + (from + count) * words);
  kept->constrained.assign(constrained_.begin() + from, constrained_.begin() + from + count);
  kept->filled = w.filled;
  kept->made = kept->ready = true;
  return kept;
}

std::size_t step_masks::put(std::size_t number, step_plan& out) const {
  const wanted& w = wanted_[number];
  return put_rows(rows_.data() + w.first * words_, constrained_.data() + w.first, w.filled, words_, out);
}

std::size_t step_masks::put(const mask_window& w, std::size_t rows, step_plan& out) {
  return put_rows(w.rows.data(), w.constrained.data(), std::min(rows, w.filled),
                  w.matcher.grammar().vocabulary().words(), out);
}

std::shared_ptr<mask_window> step_masks::make_later(const constraint_matcher& matcher,
                                                    std::span<const std::int32_t> drafts) {
  auto window = std::make_shared<mask_window>(matcher, drafts);
  auto work = [window, helpers = helpers_.get()] {
    const double begin = helpers != nullptr ? helpers->seconds() : 0;
    window->make();
    window->seconds = helpers != nullptr ? helpers->seconds() - begin : 0;
    window->made.store(true, std::memory_order_release);
  };
  if (helpers_) {
    helpers_->later(std::move(work));
  } else {
    work();
    window->ready = true;
    count(*window);
  }
  return window;
}

void step_masks::count(const mask_window& w) {
  counters_.fill_time.observe(w.seconds);
}

} // namespace troupe
