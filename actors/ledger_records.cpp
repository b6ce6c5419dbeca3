#include "actors/ledger_records.hpp"
#include "actors/session.hpp"
#include "runtime/request/seeds.hpp"
#include "runtime/scheduler/prefix_rules.hpp"

namespace troupe {

namespace {

// The lists of log-probabilities behind the first `count`.
std::string lists_behind(const std::string& packed, std::size_t count) {
  std::vector<std::vector<token_logprob>> lists;
  append_top(packed, lists);
  std::string out;
  for (std::size_t i = count; i < lists.size(); ++i)
    out += pack_top(lists[i]);
  return out;
}

// Names what differs, for people; empty: the same tokens come of both.
std::string difference(const ledger_request& a, const ledger_request& b) {
  if (a.prompt != b.prompt)
    return "prompt";
  if (a.params != b.params)
    return "parameters";
  if (a.seed != b.seed)
    return "seed";
  if (a.logit_rows != b.logit_rows)
    return "rows";
  if (a.numerics_id != b.numerics_id || a.eos_ids != b.eos_ids || a.truncation != b.truncation)
    return "model or engine options";
  return {};
}

} // namespace

ledger_request ledger_request_of(const request_record& r, std::uint64_t seed, std::uint32_t branch,
                                 const ledger_terms& terms) {
  const bool whole = r.params.prompt_logprobs || !r.logit_rows.empty();
  ledger_request l;
  l.req = r.req;
  l.branch = branch;
  l.request_id = r.id;
  l.numerics_id = terms.numerics;
  l.prompt = r.prompt;
  l.params = r.params;
  l.seed = branch_seed(seed, branch);
  l.truncation =
      replay_from(whole ? yoco_mode::off : terms.yoco, static_cast<std::int32_t>(r.prompt.size()), terms.yoco_keep);
  l.eos_ids = terms.eos_ids;
  l.logit_rows = r.logit_rows;
  l.priority = r.priority;
  l.deadline_steps = r.deadline_steps;
  l.cache_salt = r.cache_salt;
  l.chunk_checkpoints = r.chunk_checkpoints;
  return l;
}

std::optional<ledger_tokens> news_of(const tokens& t, std::int64_t from) {
  const auto known = static_cast<std::size_t>(std::max<std::int64_t>(from - t.first_pos, 0));
  if (known >= t.ids.size() && t.prompt_logprobs.empty() && t.logits.empty())
    return std::nullopt;
  ledger_tokens l;
  l.req = t.req;
  l.branch = t.branch;
  l.attempt = t.attempt;
  l.first_position = from;
  l.prompt_logprobs = t.prompt_logprobs;
  l.logits = t.logits;
  if (known >= t.ids.size())
    return l;
  l.ids.assign(t.ids.begin() + static_cast<std::ptrdiff_t>(known), t.ids.end());
  l.bounds = {static_cast<std::uint32_t>(l.ids.size())};
  l.logprobs = t.logprobs.substr(std::min(4 * known, t.logprobs.size()));
  l.top = known == 0 ? t.top : lists_behind(t.top, known);
  return l;
}

tokens tokens_of(const ledger_tokens& taken) {
  tokens t;
  t.req = taken.req;
  t.branch = taken.branch;
  t.first_pos = taken.first_position;
  t.ids = taken.ids;
  t.logprobs = taken.logprobs;
  t.top = taken.top;
  t.prompt_logprobs = taken.prompt_logprobs;
  t.logits = taken.logits;
  return t;
}

recovered_branches::recovered_branches(std::vector<ledger_entry> open, bool shared) : shared_(shared) {
  for (ledger_entry& e : open) {
    auto key = std::pair(e.request.request_id, e.request.branch);
    open_.emplace(std::move(key), std::move(e));
  }
}

recovered_branches::found recovered_branches::take(const ledger_request& wanted) {
  found f;
  const auto [begin, end] = open_.equal_range({wanted.request_id, wanted.branch});
  auto longest = end;
  for (auto at = begin; at != end; ++at) {
    if (const std::string differs = difference(at->second.request, wanted); !differs.empty())
      f.why_not = differs;
    else if (longest == end || at->second.output.ids.size() > longest->second.output.ids.size())
      longest = at;
  }
  if (shared_)
    f.why_not.clear();
  for (auto at = begin; at != end && !shared_; ++at)
    if (at != longest)
      f.useless.push_back({at->second.request.req, wanted.branch});
  if (longest != end)
    f.entry = std::move(longest->second);
  if (!shared_)
    open_.erase(begin, end);
  else if (longest != end)
    open_.erase(longest);
  return f;
}

std::vector<ledger_closed> recovered_branches::take_all() {
  std::vector<ledger_closed> all;
  for (const auto& [key, e] : std::exchange(open_, {}))
    all.push_back({e.request.req, e.request.branch});
  return all;
}

} // namespace troupe
