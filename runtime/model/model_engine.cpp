#include "runtime/model/model_engine.hpp"
#include "runtime/model/config.hpp"
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

// Host and device copies of one array of a call, both only ever growing.
template <class T> struct mirrored {
  std::vector<T> host;
  buffer memory;

  void fit(device& dev, std::size_t count, const char* what) {
    if (memory.bytes() < count * sizeof(T))
      memory = dev.allocate(std::max(2 * memory.bytes(), count * sizeof(T)), what);
  }
  dev_ptr<const T> send(device& dev, stream& s, const char* what) {
    fit(dev, std::max<std::size_t>(host.size(), 1), what);
    if (!host.empty())
      s.to_device(memory.as<std::byte>(), host.data(), host.size() * sizeof(T));
    return memory.as<const T>();
  }
  void receive(stream& s, std::size_t count) {
    host.resize(count);
    if (count > 0)
      s.to_host(host.data(), memory.as<const std::byte>(), count * sizeof(T));
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

} // namespace

struct model_engine::impl {
  impl(std::shared_ptr<const model_weights> weights, std::shared_ptr<device> d, const runner_options& o,
       std::unique_ptr<expert_backend> e)
      : dev(std::move(d)), experts(std::move(e)), runner(std::move(weights), *dev, o, experts.get()),
        vocab(runner.config().vocab_size), piece(static_cast<std::size_t>(std::max(o.max_logit_rows, 1))) {}

  void add_rule(const step_plan& plan, const logit_job& j);
  void run_piece(const step_plan& plan, std::span<const logit_job> jobs, step_result& out);
  void book(const step_plan& plan, std::span<const logit_job> jobs, step_result& out);

  std::shared_ptr<device> dev;
  std::unique_ptr<expert_backend> experts;
  model_runner runner;
  std::int32_t vocab;
  std::size_t piece; // rows of logits at once
  // Kept between steps for their memory.
  step_rows rows;
  std::vector<std::int32_t> logit_rows;
  mirrored<sample_row_params> rules;
  mirrored<std::pair<std::int32_t, float>> bias, top;
  mirrored<std::int32_t> suppressed, token, status;
  mirrored<float> logprob;
  std::int32_t max_top = 0;
};

model_engine::model_engine(std::shared_ptr<const model_weights> weights, std::shared_ptr<device> dev,
                           const runner_options& options, std::unique_ptr<expert_backend> experts)
    : impl_(std::make_unique<impl>(std::move(weights), std::move(dev), options, std::move(experts))) {}
model_engine::~model_engine() = default;

void model_engine::forward(const step_plan& plan) {
  step_rows& r = impl_->rows;
  r.slot.clear(), r.start.clear(), r.rows.clear(), r.first_block.clear(), r.blocks_of.clear();
  for (const planned_sequence& s : plan.sequences) {
    r.slot.push_back(s.slot.value);
    r.start.push_back(s.start);
    r.rows.push_back(s.rows);
    r.first_block.push_back(s.first_block);
    r.blocks_of.push_back(s.blocks);
  }
  r.tokens = plan.tokens;
  r.blocks = plan.blocks;
  r.history = plan.history;
  impl_->runner.forward(r);
  impl_->runner.work().synchronise();
}

void model_engine::sample(const step_plan& plan, step_result& out) {
  out.sequences.assign(plan.sequences.size(), {});
  for (std::size_t i = 0; i < plan.sequences.size(); ++i)
    out.sequences[i].id = plan.sequences[i].spec->id;
  const std::vector<logit_job> jobs = logit_jobs(plan);
  for (std::size_t first = 0; first < jobs.size(); first += impl_->piece)
    impl_->run_piece(plan, std::span(jobs).subspan(first, std::min(impl_->piece, jobs.size() - first)), out);
  const auto counts = impl_->runner.expert_counts();
  out.expert_counts.assign(counts.begin(), counts.end());
}

// The sampling rule of one row, appended to the arrays of the call.
void model_engine::impl::add_rule(const step_plan& plan, const logit_job& j) {
  const sequence_spec& spec = *plan.sequences[static_cast<std::size_t>(j.sequence)].spec;
  const sampling_params& p = spec.params;
  sample_row_params r;
  r.position = static_cast<std::uint64_t>(j.position) + 1;
  if (!j.sample) { // a prompt row: its log-probability is the model's own, or only its logits are wanted
    r.forced = std::max(j.prompt_token, 0);
    r.logprob = j.prompt_token >= 0;
    rules.host.push_back(r);
    return;
  }
  r.temperature = p.temperature;
  r.top_p = p.top_p;
  r.min_p = p.min_p;
  r.top_k = p.top_k;
  r.seed = spec.seq_seed;
  r.logprob = p.logprobs;
  r.processed = p.logprobs_mode == logprobs_source::processed;
  r.top_logprobs = p.top_logprobs;
  max_top = std::max(max_top, p.top_logprobs);
  const std::int64_t outputs = std::int64_t{j.position} + 1 - spec.prompt_tokens;
  if (outputs < static_cast<std::int64_t>(p.golden_token_ids.size()))
    r.forced = p.golden_token_ids[static_cast<std::size_t>(outputs)];
  r.first_bias = static_cast<std::int32_t>(bias.host.size());
  r.biases = static_cast<std::int32_t>(p.logit_bias.size());
  bias.host.insert(bias.host.end(), p.logit_bias.begin(), p.logit_bias.end());
  r.first_suppressed = static_cast<std::int32_t>(suppressed.host.size());
  append_suppressed(spec, outputs, suppressed.host);
  r.suppressed = static_cast<std::int32_t>(suppressed.host.size()) - r.first_suppressed;
  rules.host.push_back(r);
}

void model_engine::impl::run_piece(const step_plan& plan, std::span<const logit_job> jobs, step_result& out) {
  logit_rows.clear(), rules.host.clear(), bias.host.clear(), suppressed.host.clear();
  max_top = 0;
  for (const logit_job& j : jobs) {
    logit_rows.push_back(j.row);
    add_rule(plan, j);
  }
  const std::size_t n = jobs.size();
  stream& s = runner.work();
  sample_rows_args a;
  a.logits = runner.logits(logit_rows);
  a.rows = static_cast<std::int32_t>(n);
  a.vocab = vocab;
  a.params = rules.send(*dev, s, "sampling rules");
  a.bias = bias.send(*dev, s, "logit bias");
  a.suppressed = suppressed.send(*dev, s, "suppressed ids");
  a.max_top = max_top;
  token.fit(*dev, n, "sampled tokens");
  logprob.fit(*dev, n, "log-probabilities");
  status.fit(*dev, n, "sampler states");
  top.fit(*dev, std::max<std::size_t>(n * static_cast<std::size_t>(max_top), 1), "top log-probabilities");
  a.token = token.memory.as<std::int32_t>();
  a.logprob = logprob.memory.as<float>();
  a.status = status.memory.as<std::int32_t>();
  a.top = top.memory.as<std::pair<std::int32_t, float>>();
  dev->ops().sample_rows(s, a);
  token.receive(s, n);
  logprob.receive(s, n);
  status.receive(s, n);
  top.receive(s, n * static_cast<std::size_t>(max_top));
  for (std::size_t i = 0; i < n; ++i) {
    if (!jobs[i].logits)
      continue;
    auto& rows_out = out.sequences[static_cast<std::size_t>(jobs[i].sequence)].logits;
    rows_out.resize(rows_out.size() + static_cast<std::size_t>(vocab));
    s.to_host(rows_out.data() + rows_out.size() - vocab,
              (a.logits + static_cast<std::int64_t>(i) * vocab).as<const std::byte>(),
              static_cast<std::size_t>(vocab) * sizeof(float));
    s.synchronise(); // the next row of this sequence may move the vector
  }
  s.synchronise();
  book(plan, jobs, out);
}

void model_engine::impl::book(const step_plan& plan, std::span<const logit_job> jobs, step_result& out) {
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const logit_job& j = jobs[i];
    sequence_result& r = out.sequences[static_cast<std::size_t>(j.sequence)];
    if (status.host[i] != 0 && (j.sample || j.prompt_token >= 0)) {
      if (r.failure.empty())
        r.failure = "the logits at position " + std::to_string(j.position) + " hold " + fault_text(status.host[i]);
      continue;
    }
    if (j.prompt_token >= 0)
      r.prompt_logprobs.push_back(logprob.host[i]);
    if (!j.sample)
      continue;
    r.sampled = true;
    r.token = token.host[i];
    r.logprob = logprob.host[i];
    const std::size_t wanted = static_cast<std::size_t>(
        std::min(plan.sequences[static_cast<std::size_t>(j.sequence)].spec->params.top_logprobs, vocab));
    const auto* list = top.host.data() + i * static_cast<std::size_t>(max_top);
    r.top.assign(list, list + wanted);
  }
}

} // namespace troupe
