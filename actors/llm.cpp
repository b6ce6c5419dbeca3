#include "actors/llm.hpp"
#include "actors/model_process.hpp"
#include "cluster/shutdown.hpp"
#include "runtime/metrics/metrics_text.hpp"
#include "runtime/tokenizer/utf8.hpp"
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <mutex>

namespace troupe {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t pool_threads = 2;

struct local_config : caf::actor_system_config {
  local_config() { prepare_local<caf::id_block::troupe>(*this, pool_threads); }
};

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

std::string name_of(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::path(folder + "/").lexically_normal();
  return path.parent_path().filename().string();
}

// The answer to a query, or a fresh report if none comes.
template <class Report, class Handle, class Query>
Report report_of(caf::scoped_actor& self, const Handle& from, const Query& query) {
  Report report{};
  ask(self.ptr(), from, 5000ms, query).receive([&](const Report& r) { report = r; }, [](const caf::error&) {});
  return report;
}

// Of the engine's own part: its place among the engines that share its verifier.
verifier_snapshot snapshot_of(const spec_report& r, const std::vector<engine_handles>& engines, std::size_t engine) {
  verifier_snapshot s;
  s.tokens_per_step = r.tokens_per_step;
  s.decisions = r.decisions;
  s.late = r.late;
  for (const reliability& p : r.positions)
    s.calibration_error.push_back(p.error());
  s.suggested_temperature = r.temperatures;
  s.useless = r.useless;
  std::size_t place = 0;
  for (std::size_t i = 0; i < engine; ++i)
    place += engines[i].verifier == engines[engine].verifier ? 1 : 0;
  if (place >= r.ranks.size())
    return s;
  const spec_rank_report& own = r.ranks[place];
  s.slope_ms = own.slope_ms;
  s.sampler_ms = own.sampler_ms;
  s.kv_token_ms = own.kv_ms;
  s.total_rows = own.total_q;
  return s;
}

// The engines, if the threads of their actors can be started.
model_process startable(const engine_options& options) {
  model_process p = make_model_process(options);
  std::size_t threads = pool_threads + 2 + p.setup->engines.size() + p.setup->experts.size() + // 2: of CAF
                        static_cast<std::size_t>(p.setup->grammars.compilers) +
                        p.setup->engines.size() * static_cast<std::size_t>(p.setup->mask_threads);
  for (const context_ranks& c : p.setup->context)
    threads += c.engines.size();
  if (!threads_to_be_had(threads))
    throw config_error("", "engine", "", "there is no room for its " + std::to_string(threads) + " threads",
                       "raise the limits on memory (ulimit -v) and threads (ulimit -u), or take smaller caches");
  return p;
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
  explicit impl(const engine_options& options) : process(startable(options)), model(name_of(options.model)) {
    prepare_process<caf::id_block::troupe>();
    const std::string bad = check_messages(system);
    if (!bad.empty())
      throw config_error("", "messages", bad, "does not survive CAF's serializer", "build against CAF 0.17.6");
    process.setup->live = live;
    root = system.spawn(worker_root, std::shared_ptr<const process_setup>(process.setup));
    caf::scoped_actor self{system};
    ask(self.ptr(), root, 30000ms, start{})
        .receive([&](const started& s) { parts = s; },
                 [&](const caf::error& e) {
                   end(10s);
                   throw config_error("", "engine", "", "did not start: " + text(system, e), "");
                 });
  }
  ~impl() { end(120s); }
  void end(std::chrono::milliseconds limit) {
    tell_from_outside(root, stop{}); // the handles stay: an actor without any is destroyed before its children are told
    if (const std::size_t left = wait_for_actors(system, limit))
      give_up_on_actors(left);
  }

  result<std::vector<std::int32_t>> prompt_of(const generation_request& r) const;
  status check(const std::vector<std::int32_t>& prompt, const generation_request& r, const sampling_params& p) const;
  status claim(const std::shared_ptr<request_record>& r);
  result<std::string> queue(const generation_request& request, const sampling_params& params,
                            std::function<void(const generation_event&)> on_event);

  model_process process;
  std::string model; // name for people: the folder's
  std::shared_ptr<live_requests> live = std::make_shared<live_requests>();
  std::atomic<std::uint64_t> next_request{0}, next_name{0};
  local_config config;
  caf::actor_system system{config};
  worker_root_actor root;
  started parts;
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
  const tokenizer& t = *process.vocabulary;
  if (r.raw)
    return t.encode(*r.prompt, encode_mode::full);
  std::vector<std::int32_t> ids = t.encode(*r.prompt, encode_mode::plain);
  ids.insert(ids.begin(), t.bos_id());
  return ids;
}

status LLM::impl::check(const std::vector<std::int32_t>& prompt, const generation_request& r,
                        const sampling_params& p) const {
  const scheduler_limits& l = process.setup->limits;
  const std::int32_t vocab = process.source->config().vocab_size;
  const auto length = static_cast<std::int64_t>(prompt.size());
  if (auto s = check_sampling_params(p, vocab); !s)
    return s;
  if (prompt.empty())
    return error{"empty_prompt", "the prompt has no tokens; give at least one"};
  for (std::size_t i = 0; i < prompt.size(); ++i)
    if (prompt[i] < 0 || prompt[i] >= vocab)
      return error{"invalid_prompt", "prompt_ids[" + std::to_string(i) + "] = " + std::to_string(prompt[i]) +
                                         ": not a token id; legal are 0 to " + std::to_string(vocab - 1)};
  if (length > l.max_model_len)
    return error{"prompt_too_long", "the prompt has " + std::to_string(length) + " tokens, max_model_len is " +
                                        std::to_string(l.max_model_len) +
                                        "; shorten the prompt or raise max_model_len"};
  if (!l.chunked_prefill && length > l.max_num_batched_tokens)
    return error{"prompt_too_long", "the prompt has " + std::to_string(length) +
                                        " tokens, without chunked prefill a step takes max_num_batched_tokens = " +
                                        std::to_string(l.max_num_batched_tokens) +
                                        "; allow chunked prefill or raise it"};
  if (r.deadline_steps < 0)
    return error{"invalid_params", "deadline_steps = " + std::to_string(r.deadline_steps) +
                                       " is out of range: at least 1, or 0 for none"};
  for (const std::int32_t row : r.logit_rows)
    if (row < 0 || row >= length)
      return error{"invalid_params", "rows: " + std::to_string(row) + " is not a prompt position; legal are 0 to " +
                                         std::to_string(length - 1)};
  const std::int32_t blocks = blocks_for(std::min<std::int64_t>(length + p.max_tokens, l.max_model_len));
  if (blocks > l.kv_blocks - 1)
    return error{"no_space", "prompt and max_tokens need " + std::to_string(blocks) + " KV blocks, an engine has " +
                                 std::to_string(l.kv_blocks - 1) + "; lower max_tokens or raise kv_blocks"};
  return nothing{};
}

// Makes the request a live one, under its id or the next free number.
status LLM::impl::claim(const std::shared_ptr<request_record>& r) {
  const bool named = !r->id.empty();
  for (;;) {
    if (!named)
      r->id = std::to_string(next_name++);
    const status s = live->add(r->id, r->req, r);
    if (s || named || s.failure().code != "duplicate_id")
      return s;
  }
}

LLM::LLM(const engine_options& options) : impl_(std::make_unique<impl>(options)) {}
LLM::~LLM() = default;

result<std::string> LLM::impl::queue(const generation_request& request, const sampling_params& params,
                                     std::function<void(const generation_event&)> on_event) {
  auto prompt = prompt_of(request);
  if (!prompt)
    return prompt.failure();
  if (auto good = check(*prompt, request, params); !good)
    return good.failure();
  auto r = std::make_shared<request_record>();
  r->req = {0, ++next_request};
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
  r->live = live;
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
  tell_from_outside(parts.front, open_request{r});
  return id;
}

result<std::string> LLM::submit(const generation_request& request, const sampling_params& params,
                                std::function<void(const generation_event&)> on_event) {
  auto id = impl_->queue(request, params, std::move(on_event));
  if (!id)
    tell_from_outside(impl_->parts.front, request_refused{id.failure().code, std::clamp(params.n, 1, max_branches)});
  return id;
}

bool LLM::abort(const std::string& id) {
  const auto req = impl_->live->find(id);
  if (!req)
    return false;
  tell_from_outside(impl_->parts.front, cancel{{}, *req, 1, 0, "caller"});
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
  caf::scoped_actor self{impl_->system};
  const auto parts = report_of<started>(self, impl_->root, start{}); // a verifier may be another than at the start
  const auto front = report_of<gateway_report>(self, parts.front, gateway_query{});
  std::vector<engine_snapshot> engines(parts.engines.size());
  for (std::size_t i = 0; i < engines.size(); ++i) {
    engine_snapshot& e = engines[i];
    if (i < front.metrics.size())
      e.requests = front.metrics[i];
    const auto s = report_of<scheduler_report>(self, parts.engines[i].scheduler, scheduler_query{});
    e.steps = s.metrics;
    const auto kv = report_of<kv_report>(self, parts.engines[i].kv, kv_query{});
    e.kv = kv.statistics;
    e.verifier = snapshot_of(report_of<spec_report>(self, parts.engines[i].verifier, spec_query{}), parts.engines, i);
    e.running = s.running;
    e.waiting = s.waiting;
    e.preemptions = s.preemptions;
    e.kv_blocks = std::max(kv.blocks - 1, 0);
    e.state_slots = std::max(kv.slots - 1, 0);
  }
  const auto grammars =
      parts.grammars ? report_of<grammar_report>(self, parts.grammars, grammar_query{}) : grammar_report{};
  return metrics_text(impl_->model, engines, grammars);
}

result<std::vector<std::int32_t>> LLM::prompt_ids(const generation_request& request) const {
  return impl_->prompt_of(request);
}
const tokenizer& LLM::vocabulary() const {
  return *impl_->process.vocabulary;
}
const model_config& LLM::config() const {
  return impl_->process.source->config();
}
const std::string& LLM::numerics_id() const {
  return impl_->process.numerics_id;
}
std::string LLM::description() const {
  return impl_->process.description;
}

} // namespace troupe
