#include "runtime/model/model_engine.hpp"
#include "runtime/base/check.hpp"
#include "runtime/model/config.hpp"
#include "runtime/model/packed_arrays.hpp"
#include "runtime/model/replay.hpp"
#include <algorithm>

namespace troupe {

std::vector<logit_job> logit_jobs(const step_plan& plan) {
  std::vector<logit_job> jobs;
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    const planned_sequence& s = plan.sequences[i];
    const sequence_spec& spec = *s.spec;
    auto wanted = std::lower_bound(spec.logit_rows.begin(), spec.logit_rows.end(), s.start);
    for (std::int32_t r = 0; r < s.rows; ++r) {
      logit_job j;
      j.sequence = static_cast<std::int32_t>(i);
      j.row = s.first_token + r;
      j.position = s.start + r;
      j.sample = s.sample && r + 1 == s.rows;
      if (spec.params.prompt_logprobs && j.position + 1 < spec.prompt_tokens)
        j.prompt_token = r + 1 < s.rows ? plan.tokens[static_cast<std::size_t>(j.row) + 1] : s.next;
      for (; wanted != spec.logit_rows.end() && *wanted <= j.position; ++wanted)
        j.logits = j.logits || *wanted == j.position;
      if (j.sample || j.logits || j.prompt_token >= 0)
        jobs.push_back(j);
    }
  }
  return jobs;
}

void append_suppressed(const sequence_spec& spec, std::int64_t outputs, std::vector<std::int32_t>& out) {
  if (outputs >= spec.params.min_tokens)
    return;
  if (!spec.params.ignore_eos)
    out.insert(out.end(), spec.eos_ids.begin(), spec.eos_ids.end());
  out.insert(out.end(), spec.params.stop_token_ids.begin(), spec.params.stop_token_ids.end());
}

namespace {

// One step that is out: what was asked and, once its end has been reached, what came back.
struct flight {
  const step_plan* plan = nullptr;
  std::vector<logit_job> jobs;
  std::int32_t max_top = 0; // entries of the longest list of top log-probabilities
  std::unique_ptr<event> end;
  std::string failure; // found by finished(): a device error that collect() reports
  bool counted = true; // its rows count in expert_counts
  // What the sampler wrote, in one piece: for each job its token, state and log-probability; [jobs, max_top] top lists.
  std::vector<std::byte> results;
  std::size_t token = 0, status = 0, logprob = 0, top = 0; // offsets
  std::vector<float> logits;                               // [jobs that want them, vocab]
  std::vector<std::uint32_t> expert_counts;

  template <class T> const T* at(std::size_t offset) const {
    return reinterpret_cast<const T*>(results.data() + offset);
  }
};

const char* fault_text(std::int32_t status) { // a sample_status of the sampler
  switch (status) {
  case 1:
    return "not a number";
  case 2:
    return "+infinity";
  case 3:
    return "nothing that may be drawn";
  default:
    return "an unknown fault";
  }
}

// What came back, by sequence.
void book(const flight& f, std::int32_t vocab, step_result& out) {
  out.sequences.assign(f.plan->sequences.size(), {});
  for (std::size_t i = 0; i < out.sequences.size(); ++i)
    out.sequences[i].id = f.plan->sequences[i].spec->id, out.sequences[i].start = f.plan->sequences[i].start;
  auto logits = f.logits.begin();
  const auto* token = f.at<std::int32_t>(f.token);
  const auto* status = f.at<std::int32_t>(f.status);
  const auto* logprob = f.at<float>(f.logprob);
  for (std::size_t i = 0; i < f.jobs.size(); ++i) {
    const logit_job& j = f.jobs[i];
    sequence_result& r = out.sequences[static_cast<std::size_t>(j.sequence)];
    if (j.logits) {
      r.logits.insert(r.logits.end(), logits, logits + vocab);
      logits += vocab;
    }
    if (status[i] != 0 && (j.sample || j.prompt_token >= 0)) {
      if (r.failure.empty())
        r.failure = "the logits at position " + std::to_string(j.position) + " hold " + fault_text(status[i]);
      continue;
    }
    if (j.prompt_token >= 0)
      r.prompt_logprobs.push_back(logprob[i]);
    if (!j.sample)
      continue;
    drawn_token& t = r.tokens.emplace_back();
    t.id = token[i];
    t.logprob = logprob[i];
    const std::int32_t wanted = f.plan->sequences[static_cast<std::size_t>(j.sequence)].spec->params.top_logprobs;
    const auto* list = f.at<token_logprob>(f.top) + static_cast<std::ptrdiff_t>(i) * f.max_top;
    t.top.assign(list, list + std::min(wanted, vocab));
  }
}

} // namespace

struct model_engine::impl {
  impl(std::shared_ptr<const model_weights> weights, std::shared_ptr<device> d, const runner_options& o,
       std::unique_ptr<expert_backend> e, std::unique_ptr<context_group> g)
      : dev(std::move(d)), experts(std::move(e)), context(std::move(g)),
        runner(std::move(weights), *dev, o, experts.get(), context.get()), vocab(runner.config().vocab_size),
        piece(static_cast<std::size_t>(std::max(o.max_logit_rows, 1))),
        expert_count(static_cast<std::size_t>(runner.config().num_hidden_layers) *
                     static_cast<std::size_t>(runner.config().n_routed_experts)),
        yoco(o.yoco), yoco_keep(kept_rows(o.yoco, o.yoco_keep, runner.config())),
        rules_there(*dev, "sampling rules", sizeof(sample_row_params) * piece),
        results_there(*dev, "sampled tokens", 16 * piece) {}

  flight& oldest() { return flights[first % most_steps_out]; }
  template <class F> void as_rank(const F& work);
  void forward(const step_plan& plan);
  void add_rule(const step_plan& plan, const logit_job& j);
  void sample(flight& f);
  void sample_piece(flight& f, std::size_t from, std::size_t count, float*& logits_to);
  void drain() noexcept;

  std::shared_ptr<device> dev;
  std::unique_ptr<expert_backend> experts;
  std::unique_ptr<context_group> context;
  model_runner runner;
  std::int32_t vocab;
  std::size_t piece;        // rows of logits at once
  std::size_t expert_count; // entries of step_result::expert_counts
  yoco_mode yoco;
  std::int32_t yoco_keep;
  flight flights[most_steps_out];
  std::size_t first = 0, out = 0; // number of the oldest step that is out, how many are
  // Of the step that is being launched; kept for their memory.
  step_rows rows;
  std::vector<std::int32_t> logit_rows;
  std::vector<sample_row_params> rules;
  std::vector<token_logprob> bias;
  std::vector<std::int32_t> suppressed;
  // In device memory: of the last launched step.
  packed_arrays rules_there;
  std::size_t rules_at = 0, bias_at = 0, suppressed_at = 0;
  growing_memory results_there;
};

model_engine::model_engine(std::shared_ptr<const model_weights> weights, std::shared_ptr<device> dev,
                           const runner_options& options, std::unique_ptr<expert_backend> experts,
                           std::unique_ptr<context_group> context)
    : impl_(std::make_unique<impl>(std::move(weights), std::move(dev), options, std::move(experts),
                                   std::move(context))) {}
model_engine::~model_engine() {
  impl_->drain();
}

// What a rank of a context-parallel group does; if it fails, the others do not wait for it.
template <class F> void model_engine::impl::as_rank(const F& work) {
  try {
    work();
  } catch (const std::exception& e) {
    if (context)
      context->abandon(e.what());
    throw;
  }
}

void model_engine::launch(const step_plan& plan) {
  impl& m = *impl_;
  TROUPE_CHECK(m.out < most_steps_out, "more steps are launched than may be out");
  flight& f = m.flights[(m.first + m.out) % most_steps_out];
  f.plan = &plan;
  f.jobs = logit_jobs(plan);
  f.failure.clear();
  try {
    m.as_rank([&] {
      for (const slot_copy& c : plan.restores)
        m.runner.copy_slot(c.from, c.to);
      for (const block_copy& c : plan.block_copies)
        m.runner.copy_block(c.from, c.to);
      m.forward(plan);
      for (const slot_copy& c : plan.snapshots)
        m.runner.copy_slot(c.from, c.to);
      m.sample(f);
      f.end = m.runner.work().record();
    });
  } catch (...) {
    m.drain(); // copies into f may be under way
    throw;
  }
  ++m.out;
}

bool model_engine::finished() {
  TROUPE_CHECK(impl_->out > 0, "no step is out");
  flight& f = impl_->oldest();
  try {
    return !f.failure.empty() || f.end->done();
  } catch (const device_error& e) {
    f.failure = e.what();
    return true;
  }
}

void model_engine::collect(step_result& out) {
  impl& m = *impl_;
  TROUPE_CHECK(m.out > 0, "no step is out");
  flight& f = m.oldest();
  ++m.first;
  --m.out;
  m.as_rank([&] {
    if (!f.failure.empty())
      throw device_error(f.failure);
    f.end->wait();
  });
  book(f, m.vocab, out);
  out.expert_counts.clear();
  if (f.counted)
    out.expert_counts = f.expert_counts;
}

// Waits for everything that was queued, whatever becomes of it.
void model_engine::impl::drain() noexcept {
  try {
    runner.work().synchronise();
  } catch (const std::exception&) { // the step is void already
  }
}

void model_engine::impl::forward(const step_plan& plan) {
  rows.slot.clear(), rows.start.clear(), rows.rows.clear(), rows.first_block.clear(), rows.blocks_of.clear();
  rows.replay_from.clear();
  for (const planned_sequence& s : plan.sequences) {
    rows.slot.push_back(s.slot.value);
    rows.start.push_back(s.start);
    rows.rows.push_back(s.rows);
    rows.first_block.push_back(s.first_block);
    rows.blocks_of.push_back(s.blocks);
    rows.replay_from.push_back(needs_whole_prompt(*s.spec) ? 0 : replay_from(yoco, s.spec->prompt_tokens, yoco_keep));
  }
  rows.tokens = plan.tokens;
  rows.blocks = plan.blocks;
  rows.history = plan.history;
  rows.shared = context && plan.kind == step_kind::prefill && context_split_pays(rows.rows, context->ranks());
  for (std::size_t i = 0; rows.shared && i < rows.tokens.size(); ++i)
    rows.shared = rows.tokens[i] != token_in_flight; // filled in for whole steps only
  if (context)
    context->meet(plan.number);
  runner.forward(rows);
}

// The sampling rule of one row, appended to the arrays of the call: a function of the row's position and its sequence's
// parameters, so it needs no token that is still in flight.
void model_engine::impl::add_rule(const step_plan& plan, const logit_job& j) {
  const sequence_spec& spec = *plan.sequences[static_cast<std::size_t>(j.sequence)].spec;
  const sampling_params& p = spec.params;
  sample_row_params r;
  r.position = static_cast<std::uint64_t>(j.position) + 1;
  if (!j.sample) { // a prompt row: its log-probability is the model's own, or only its logits are wanted
    r.forced = std::max(j.prompt_token, 0);
    r.logprob = j.prompt_token >= 0;
    rules.push_back(r);
    return;
  }
  r.slot = plan.sequences[static_cast<std::size_t>(j.sequence)].slot.value;
  r.temperature = p.temperature;
  r.top_p = p.top_p;
  r.min_p = p.min_p;
  r.top_k = p.top_k;
  r.seed = spec.seq_seed;
  r.logprob = p.logprobs;
  r.processed = p.logprobs_mode == logprobs_source::processed;
  r.top_logprobs = p.top_logprobs;
  const std::int64_t outputs = std::int64_t{j.position} + 1 - spec.prompt_tokens;
  if (outputs < static_cast<std::int64_t>(p.golden_token_ids.size()))
    r.forced = p.golden_token_ids[static_cast<std::size_t>(outputs)];
  r.first_bias = static_cast<std::int32_t>(bias.size());
  r.biases = static_cast<std::int32_t>(p.logit_bias.size());
  bias.insert(bias.end(), p.logit_bias.begin(), p.logit_bias.end());
  r.first_suppressed = static_cast<std::int32_t>(suppressed.size());
  append_suppressed(spec, outputs, suppressed);
  r.suppressed = static_cast<std::int32_t>(suppressed.size()) - r.first_suppressed;
  rules.push_back(r);
}

// Queues logits, sampler and the way back of one step's rows.
void model_engine::impl::sample(flight& f) {
  rules.clear(), bias.clear(), suppressed.clear();
  f.max_top = 0;
  std::size_t logit_rows_wanted = 0;
  for (const logit_job& j : f.jobs) {
    add_rule(*f.plan, j);
    f.max_top = std::max(f.max_top, rules.back().top_logprobs);
    logit_rows_wanted += j.logits;
  }
  stream& s = runner.work();
  rules_there.clear();
  rules_at = rules_there.append(rules);
  bias_at = rules_there.append(bias);
  suppressed_at = rules_there.append(suppressed);
  rules_there.send(s);
  const std::size_t n = f.jobs.size();
  array_places places;
  f.token = places.add(n, sizeof(std::int32_t));
  f.status = places.add(n, sizeof(std::int32_t));
  f.logprob = places.add(n, sizeof(float));
  f.top = places.add(n * static_cast<std::size_t>(f.max_top), sizeof(token_logprob));
  results_there.fit(s, places.bytes());
  f.logits.resize(logit_rows_wanted * static_cast<std::size_t>(vocab));
  float* logits_to = f.logits.data();
  for (std::size_t from = 0; from < n; from += piece)
    sample_piece(f, from, std::min(piece, n - from), logits_to);
  f.results.resize(places.bytes());
  s.to_host(f.results.data(), results_there.at<const std::byte>(), places.bytes());
  f.counted = !context || context->rank() == 0 || rows.shared; // rows that every rank computes count once
  if (!f.counted)
    return;
  f.expert_counts.resize(expert_count);
  s.to_host(f.expert_counts.data(), runner.expert_counts().as<const std::byte>(), expert_count * sizeof(std::uint32_t));
}

// Jobs [from, from + count): one buffer of logits serves all pieces in turn.
void model_engine::impl::sample_piece(flight& f, std::size_t from, std::size_t count, float*& logits_to) {
  logit_rows.clear();
  for (std::size_t i = from; i < from + count; ++i)
    logit_rows.push_back(f.jobs[i].row);
  stream& s = runner.work();
  sample_rows_args a;
  a.logits = runner.logits(logit_rows);
  a.rows = static_cast<std::int32_t>(count);
  a.vocab = vocab;
  a.params = rules_there.at<const sample_row_params>(rules_at) + static_cast<std::int64_t>(from);
  a.bias = rules_there.at<const token_logprob>(bias_at);
  a.suppressed = rules_there.at<const std::int32_t>(suppressed_at);
  a.max_top = f.max_top;
  const auto first_row = static_cast<std::int64_t>(from);
  a.token = results_there.at<std::int32_t>(f.token) + first_row;
  a.status = results_there.at<std::int32_t>(f.status) + first_row;
  a.logprob = results_there.at<float>(f.logprob) + first_row;
  a.top = results_there.at<token_logprob>(f.top) + first_row * f.max_top;
  a.drawn = runner.drawn_tokens();
  dev->ops().sample_rows(s, a);
  for (std::size_t i = 0; i < count; ++i) {
    if (!f.jobs[from + i].logits)
      continue;
    const auto row = a.logits + static_cast<std::int64_t>(i) * vocab;
    s.to_host(logits_to, row.as<const std::byte>(), static_cast<std::size_t>(vocab) * sizeof(float));
    logits_to += vocab;
  }
}

} // namespace troupe
