#include "actors/llm.hpp"
#include "actors/backend.hpp"
#include "actors/request_checks.hpp"
#include "runtime/tokenizer/utf8.hpp"
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>

namespace troupe {

namespace {

// The logits of the rows in the order that the request names them; the engine gives them ascending, each once.
std::vector<float> in_request_order(const std::vector<float>& ascending, const std::vector<std::int32_t>& sorted,
                                    const std::vector<std::int32_t>& wanted) {
  if (sorted == wanted || ascending.size() % sorted.size() != 0)
    return ascending;
  const std::size_t row = ascending.size() / sorted.size();
  std::vector<float> out;
  for (const std::int32_t r : wanted) {
    const auto at = std::lower_bound(sorted.begin(), sorted.end(), r) - sorted.begin();
    const auto first = ascending.begin() + at * static_cast<std::ptrdiff_t>(row);
    out.insert(out.end(), first, first + static_cast<std::ptrdiff_t>(row));
  }
  return out;
}

generation_result refused(const std::string& id, const error& why) {
  generation_result r;
  r.id = id;
  r.finish_reason = "error";
  r.failure = why;
  return r;
}

} // namespace

struct LLM::impl {
  explicit impl(std::unique_ptr<backend> b) : back(std::move(b)), front(back->front()) {}

  result<std::vector<std::int32_t>> prompt_of(const generation_request& r) const;
  status claim(const std::shared_ptr<request_record>& r);
  result<std::string> queue(const generation_request& request, const sampling_params& params,
                            std::function<void(const generation_event&)> on_event);

  std::unique_ptr<backend> back;
  const engine_front& front; // of back
  std::atomic<std::uint64_t> next_request{0}, next_name{0};
};

result<std::vector<std::int32_t>> LLM::impl::prompt_of(const generation_request& r) const {
  if (r.prompt.has_value() == r.prompt_ids.has_value())
    return error{"invalid_prompt", "give exactly one of prompt and prompt_ids"};
  if (r.prompt_ids)
    return *r.prompt_ids;
  if (!is_valid_utf8(*r.prompt))
    return error{"invalid_prompt", "the prompt is not valid UTF-8"};
  if (r.prompt->empty())
    return error{"empty_prompt", "the prompt is empty; give at least one character"};
  const tokenizer& t = *front.vocabulary;
  if (r.raw)
    return t.encode(*r.prompt, encode_mode::full);
  std::vector<std::int32_t> ids = t.encode(*r.prompt, encode_mode::plain);
  ids.insert(ids.begin(), t.bos_id());
  return ids;
}

// Makes the request a live one, under its id or the next free number.
status LLM::impl::claim(const std::shared_ptr<request_record>& r) {
  const bool named = !r->id.empty();
  for (;;) {
    if (!named)
      r->id = std::to_string(next_name++);
    const status s = front.live->add(r->id, r->req, r);
    if (s || named || s.failure().code != "duplicate_id")
      return s;
  }
}

LLM::LLM(const cluster_access& cluster)
    : impl_(std::make_unique<impl>(cluster.gateway.empty() ? make_cluster_backend(cluster)
                                                           : make_gateway_backend(cluster))) {}
LLM::LLM(const engine_options& options) : impl_(std::make_unique<impl>(make_local_backend(options))) {}
LLM::~LLM() = default;

result<std::string> LLM::impl::queue(const generation_request& request, const sampling_params& params,
                                     std::function<void(const generation_event&)> on_event) {
  auto prompt = prompt_of(request);
  if (!prompt)
    return prompt.failure();
  if (auto good = check_request({*prompt, request.logit_rows, request.chunk_checkpoints, request.deadline_steps},
                                params, front.limits, front.config->vocab_size);
      !good)
    return good.failure();
  auto r = std::make_shared<request_record>();
  r->req = {front.origin, ++next_request};
  r->id = request.id;
  r->prompt = std::move(*prompt);
  r->params = params;
  r->logit_rows = request.logit_rows;
  std::sort(r->logit_rows.begin(), r->logit_rows.end());
  r->logit_rows.erase(std::unique(r->logit_rows.begin(), r->logit_rows.end()), r->logit_rows.end());
  r->seed_from_id = request.seed_from_id;
  r->priority = request.priority;
  r->deadline_steps = request.deadline_steps;
  r->cache_salt = request.cache_salt;
  r->chunk_checkpoints = request.chunk_checkpoints;
  r->live = front.live;
  r->accepted = std::chrono::steady_clock::now();
  if (r->logit_rows == request.logit_rows)
    r->on_event = std::move(on_event);
  else
    r->on_event = [f = std::move(on_event), sorted = r->logit_rows,
                   wanted = request.logit_rows](const generation_event& e) {
      if (!e.result)
        return f(e);
      generation_event copy = e;
      copy.result->logits = in_request_order(e.result->logits, sorted, wanted);
      f(copy);
    };
  if (const status claimed = claim(r); !claimed)
    return claimed.failure();
  std::string id = r->id; // the record belongs to others from here on
  tell_from_outside(front.gateway, open_request{r});
  return id;
}

result<std::string> LLM::submit(const generation_request& request, const sampling_params& params,
                                std::function<void(const generation_event&)> on_event) {
  auto id = impl_->queue(request, params, std::move(on_event));
  if (!id)
    tell_from_outside(impl_->front.gateway, request_refused{id.failure().code, std::clamp(params.n, 1, max_branches)});
  return id;
}

bool LLM::abort(const std::string& id) {
  const auto req = impl_->front.live->abort(id);
  if (!req)
    return false;
  tell_from_outside(impl_->front.gateway, cancel{{}, *req, 1, 0, "caller"});
  return true;
}

std::vector<generation_result> LLM::generate(const std::vector<generation_request>& requests,
                                             const sampling_params& params) {
  return generate(requests, std::vector<sampling_params>(requests.size(), params));
}

std::vector<generation_result> LLM::generate(const std::vector<generation_request>& requests,
                                             const std::vector<sampling_params>& params) {
  struct gathering {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::vector<generation_result>> results; // [requests][branches]
    std::size_t left = 0;                                // branches
  };
  const auto g = std::make_shared<gathering>();
  g->results.resize(requests.size());
  if (params.size() != requests.size()) {
    const error why{"invalid_params", "there are " + std::to_string(requests.size()) + " requests and " +
                                          std::to_string(params.size()) + " params"};
    std::vector<generation_result> all;
    for (const auto& r : requests)
      all.push_back(refused(r.id, why));
    return all;
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    {
      const std::lock_guard lock(g->mutex);
      g->results[i].resize(static_cast<std::size_t>(std::clamp(params[i].n, 1, max_branches)));
      g->left += g->results[i].size();
    }
    const auto id = submit(requests[i], params[i], [g, i](const generation_event& e) {
      if (!e.result)
        return;
      const std::lock_guard lock(g->mutex);
      g->results[i][static_cast<std::size_t>(e.index)] = *e.result;
      if (--g->left == 0)
        g->changed.notify_all();
    });
    if (id)
      continue;
    const std::lock_guard lock(g->mutex);
    g->left -= g->results[i].size();
    g->results[i] = {refused(requests[i].id, id.failure())};
  }
  std::unique_lock lock(g->mutex);
  g->changed.wait(lock, [&] { return g->left == 0; });
  std::vector<generation_result> all;
  for (auto& list : g->results)
    for (auto& r : list)
      all.push_back(std::move(r));
  return all;
}

std::string LLM::metrics() const {
  return impl_->back->metrics();
}

void LLM::ask_what_is_awaited(std::function<void(const std::string&)> told) const {
  impl_->back->ask_what_is_awaited({std::move(told)});
}

result<std::vector<std::int32_t>> LLM::prompt_ids(const generation_request& request) const {
  return impl_->prompt_of(request);
}
const tokenizer& LLM::vocabulary() const {
  return *impl_->front.vocabulary;
}
const model_config& LLM::config() const {
  return *impl_->front.config;
}
const std::string& LLM::numerics_id() const {
  return impl_->front.numerics_id;
}
std::string LLM::description() const {
  return impl_->front.description;
}

} // namespace troupe
