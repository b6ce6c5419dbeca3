#include "runtime/model/model_engine.hpp"
#include "runtime/base/check.hpp"
#include "runtime/model/config.hpp"
#include "runtime/model/packed_arrays.hpp"
#include "runtime/model/replay.hpp"
#include <algorithm>
#include <bit>

namespace troupe {

std::vector<logit_job> logit_jobs(const step_plan& plan, std::span<const std::int32_t> order, bool all) {
  std::vector<logit_job> jobs;
  std::int32_t row = 0;
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    const std::int32_t at = order.empty() ? static_cast<std::int32_t>(i) : order[i];
    const planned_sequence& s = plan.sequences[static_cast<std::size_t>(at)];
    const sequence_spec& spec = *s.spec;
    auto wanted = std::lower_bound(spec.logit_rows.begin(), spec.logit_rows.end(), s.start);
    for (std::int32_t r = 0; r < s.rows; ++r, ++row) {
      logit_job j;
      j.sequence = at;
      j.row = row;
      j.position = s.start + r;
      j.sample = s.sample && r + s.drafts + 1 >= s.rows;
      if (spec.params.prompt_logprobs && j.position + 1 < spec.prompt_tokens)
        j.prompt_token = r + 1 < s.rows ? plan.tokens[static_cast<std::size_t>(s.first_token + r) + 1] : s.next;
      for (; wanted != spec.logit_rows.end() && *wanted <= j.position; ++wanted)
        j.logits = j.logits || *wanted == j.position;
      if (all || j.sample || j.logits || j.prompt_token >= 0)
        jobs.push_back(j);
    }
  }
  return jobs;
}

void append_suppressed(const sequence_spec& spec, std::vector<std::int32_t>& out) {
  if (!spec.params.ignore_eos)
    out.insert(out.end(), spec.eos_ids.begin(), spec.eos_ids.end());
  out.insert(out.end(), spec.params.stop_token_ids.begin(), spec.params.stop_token_ids.end());
}

namespace {

// One step that is out: what was asked and, once its end has been reached, what came back.
struct flight {
  const step_plan* plan = nullptr;
  std::vector<logit_job> jobs;
  std::int32_t max_top = 0;             // entries of the longest list of top log-probabilities
  std::unique_ptr<event> drafting, end; // drafting: the draft round begins; null = there is none
  std::string failure;                  // found by finished(): a device error that collect() reports
  bool counted = true;                  // its rows count in expert_counts
  // What the sampler wrote, in one piece: for each job its token, state and log-probability; [jobs, max_top] top lists.
  // Then for each sequence the outcome of its verification, and for those that propose their draft blocks.
  std::vector<std::byte> results;
  std::size_t token = 0, status = 0, logprob = 0, top = 0, outcome = 0, drafts = 0, confidence = 0; // offsets
  std::vector<std::int32_t> place; // [sequences of the plan] their places in the step
  std::vector<float> logits;       // [jobs that want them, vocab]
  std::vector<std::uint32_t> expert_counts;
  std::vector<std::shared_ptr<image_bytes>> departed; // one for each of the plan's departures

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

std::string fault_of(std::int32_t position, std::int32_t status) {
  return "the logits at position " + std::to_string(position) + " hold " + fault_text(status);
}

// Who says how many drafts of a sequence are verified: the plan; the plan, unless the device finds that the sequence
// has stopped; or the device.
enum class draft_choice { planned, unless_stopped, shared };

draft_choice choice_of(const step_plan& plan, const planned_sequence& s) {
  if (plan.share_drafts && s.slack > 0)
    return draft_choice::shared;
  const bool in_flight = s.drafts > 0 && plan.tokens[static_cast<std::size_t>(s.first_token)] == token_in_flight;
  return in_flight ? draft_choice::unless_stopped : draft_choice::planned;
}

// What the sampler and the verification gave one sequence.
void book_drawn(const flight& f, std::size_t i, std::int32_t vocab, sequence_result& r) {
  const planned_sequence& s = f.plan->sequences[i];
  const auto* outcome = f.at<std::int32_t>(f.outcome) + 4 * static_cast<std::ptrdiff_t>(f.place[i]);
  const std::int32_t drawn = outcome[2] + 1, first = outcome[3]; // drawn is 0 if all its rows lie behind the limit
  r.start = outcome[0];
  r.drafts = outcome[1];
  const auto* status = f.at<std::int32_t>(f.status) + first;
  if (drawn > 0 && status[0] != 0) {
    if (r.failure.empty()) {
      r.failure = fault_of(r.start + (s.slack > 0 ? 0 : s.rows - s.drafts - 1), status[0]);
      r.nothing_left = status[0] == 3;
    }
    return;
  }
  const std::int32_t wanted = std::min(s.spec->params.top_logprobs, vocab);
  for (std::int32_t k = first; k < first + drawn; ++k) {
    drawn_token& t = r.tokens.emplace_back();
    t.id = f.at<std::int32_t>(f.token)[k];
    t.logprob = f.at<float>(f.logprob)[k];
    const auto* list = f.at<token_logprob>(f.top) + static_cast<std::ptrdiff_t>(k) * f.max_top;
    t.top.assign(list, list + wanted);
  }
}

// What came back, by sequence. Jobs that draw are booked by the outcome of their sequence.
void book(const flight& f, std::int32_t vocab, std::int32_t block, step_result& out) {
  out.sequences.assign(f.plan->sequences.size(), {});
  for (std::size_t i = 0; i < out.sequences.size(); ++i)
    out.sequences[i].id = f.plan->sequences[i].spec->id, out.sequences[i].start = f.plan->sequences[i].start;
  auto logits = f.logits.begin();
  const auto* status = f.at<std::int32_t>(f.status);
  for (std::size_t i = 0; i < f.jobs.size(); ++i) {
    const logit_job& j = f.jobs[i];
    sequence_result& r = out.sequences[static_cast<std::size_t>(j.sequence)];
    if (j.logits) {
      r.logits.insert(r.logits.end(), logits, logits + vocab);
      logits += vocab;
    }
    if (j.prompt_token < 0)
      continue;
    if (status[i] == 0)
      r.prompt_logprobs.push_back(f.at<float>(f.logprob)[i]);
    else if (r.failure.empty())
      r.failure = fault_of(j.position, status[i]);
  }
  std::ptrdiff_t proposed = 0;
  for (std::size_t i = 0; i < out.sequences.size(); ++i) {
    const planned_sequence& s = f.plan->sequences[i];
    sequence_result& r = out.sequences[i];
    if (s.sample)
      book_drawn(f, i, vocab, r);
    if (!s.propose || block == 0)
      continue;
    const std::ptrdiff_t at = proposed++ * block;
    const auto* drafts = f.at<std::int32_t>(f.drafts) + at;
    const auto* confidence = f.at<float>(f.confidence) + at;
    r.block.assign(drafts, drafts + block);
    r.confidence.assign(confidence, confidence + block);
  }
}

// The mask of a row that draws, -1 = none.
std::int32_t mask_of(const step_plan& plan, const logit_job& j) {
  const planned_sequence& s = plan.sequences[static_cast<std::size_t>(j.sequence)];
  if (s.first_mask < 0)
    return -1;
  return plan.mask_rows[static_cast<std::size_t>(s.first_mask + j.position - (s.start + s.rows - s.drafts - 1))];
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
        sizes(cache_size(runner.config(), o.rounding)), yoco(o.yoco),
        yoco_keep(kept_rows(o.yoco, o.yoco_keep, runner.config())),
        draw(o.rejection ? draw_rule::fresh : draw_rule::coupled),
        rules_there(*dev, "sampling rules", sizeof(sample_row_params) * piece),
        results_there(*dev, "sampled tokens", 16 * piece) {}

  flight& oldest() { return flights[first % most_steps_out]; }
  template <class F> void as_rank(const F& work);
  void arrange(flight& f);
  void forward(const step_plan& plan);
  void add_rule_of(const planned_sequence& s);
  void add_job(const step_plan& plan, const logit_job& j, std::int32_t place);
  void make_rules(flight& f);
  void sample(flight& f);
  void sample_piece(flight& f, std::size_t from, std::size_t count, float*& logits_to);
  void take_images(const step_plan& plan);
  void give_images(flight& f);
  bool plan_drafts(const step_plan& plan);
  void draft(const flight& f);
  void send_back(flight& f);
  void drain() noexcept;

  std::shared_ptr<device> dev;
  std::unique_ptr<expert_backend> experts;
  std::unique_ptr<context_group> context;
  model_runner runner;
  std::int32_t vocab;
  std::size_t piece;        // rows of logits at once
  std::size_t expert_count; // entries of step_result::expert_counts
  cache_sizes sizes;
  yoco_mode yoco;
  std::int32_t yoco_keep;
  draw_rule draw;
  flight flights[most_steps_out];
  std::size_t first = 0, out = 0; // number of the oldest step that is out, how many are
  // Of the step that is being launched; kept for their memory.
  step_rows rows;
  std::vector<std::int32_t> order;       // [places in the step] sequences of the plan
  std::int32_t in_flight_row = -1;       // first row of the sequences whose drafts the device decides about; -1 = none
  bool all_rows = false;                 // every row is a job, at a position that the device knows
  std::vector<std::int32_t> first_drawn; // [places] job of the first row that draws
  std::vector<std::int32_t> logit_rows;
  std::vector<sample_row_params> rules;               // of the places, then of single rows
  std::vector<std::int32_t> rule_of_job, position_of; // [jobs]
  std::vector<token_logprob> bias;
  std::vector<std::int32_t> suppressed, forced;
  std::vector<std::int32_t> draft_slots; // of the sequences that propose
  std::vector<sample_row_params> draft_rules;
  // In device memory: of the last launched step.
  packed_arrays rules_there;
  std::size_t rules_at = 0, bias_at = 0, suppressed_at = 0, forced_at = 0, rule_of_at = 0, position_at = 0,
              first_drawn_at = 0, masks_at = 0;
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
  m.arrange(f);
  f.failure.clear();
  try {
    m.as_rank([&] {
      for (const slot_copy& c : plan.restores)
        m.runner.copy_slot(c.from, c.to);
      for (const block_copy& c : plan.block_copies)
        m.runner.copy_block(c.from, c.to);
      m.take_images(plan);
      m.forward(plan);
      for (const slot_copy& c : plan.snapshots)
        m.runner.copy_slot(c.from, c.to);
      m.give_images(f);
      m.sample(f);
      f.drafting = nullptr;
      if (m.plan_drafts(plan)) {
        m.runner.make_up(m.draft_slots); // which is not the draft round's own time
        f.drafting = m.runner.work().record();
      }
      if (f.drafting)
        m.draft(f);
      m.send_back(f);
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
  book(f, m.vocab, m.runner.draft_block(), out);
  out.draft_ms = f.drafting ? f.end->ms_since(*f.drafting) : 0;
  out.expert_counts.clear();
  if (f.counted)
    out.expert_counts = f.expert_counts;
  out.departed.assign(f.departed.begin(), f.departed.end());
  f.departed.clear();
}

// Waits for everything that was queued, whatever becomes of it.
void model_engine::impl::drain() noexcept {
  try {
    runner.work().synchronise();
  } catch (const std::exception&) { // the step is void already
  }
}

// The order of the sequences in the step, those whose drafts the device decides about last, and the rows whose logits
// are wanted.
void model_engine::impl::arrange(flight& f) {
  const auto& planned = f.plan->sequences;
  std::int32_t row = 0;
  order.clear();
  rows.first_in_flight = in_flight_row = -1;
  rows.sharing = 0;
  for (const draft_choice kind : {draft_choice::planned, draft_choice::unless_stopped, draft_choice::shared})
    for (std::size_t i = 0; i < planned.size(); ++i) {
      if (choice_of(*f.plan, planned[i]) != kind)
        continue;
      if (kind != draft_choice::planned && in_flight_row < 0) {
        rows.first_in_flight = static_cast<std::int32_t>(order.size());
        in_flight_row = row;
      }
      rows.sharing += kind == draft_choice::shared;
      order.push_back(static_cast<std::int32_t>(i));
      row += planned[i].rows;
    }
  f.place.resize(order.size());
  for (std::size_t p = 0; p < order.size(); ++p)
    f.place[static_cast<std::size_t>(order[p])] = static_cast<std::int32_t>(p);
  all_rows = std::ranges::any_of(planned, [](const planned_sequence& s) { return s.slack > 0 || s.drafts > 0; });
  f.jobs = logit_jobs(*f.plan, order, all_rows);
}

void model_engine::impl::forward(const step_plan& plan) {
  for (auto* v : {&rows.slot, &rows.start, &rows.rows, &rows.first_block, &rows.blocks_of, &rows.replay_from,
                  &rows.drafts, &rows.draws, &rows.moves, &rows.limit, &rows.tokens, &rows.history})
    v->clear();
  const auto ngram = static_cast<std::ptrdiff_t>(runner.state().ngram) - 1;
  for (const std::int32_t i : order) {
    const planned_sequence& s = plan.sequences[static_cast<std::size_t>(i)];
    rows.slot.push_back(s.slot.value);
    rows.start.push_back(s.start);
    rows.rows.push_back(s.rows);
    rows.first_block.push_back(s.first_block);
    rows.blocks_of.push_back(s.blocks);
    rows.replay_from.push_back(needs_whole_prompt(*s.spec) ? 0 : replay_from(yoco, s.spec->prompt_tokens, yoco_keep));
    rows.drafts.push_back(s.drafts);
    rows.draws.push_back(s.sample ? s.drafts + 1 : 0);
    rows.moves.push_back(s.slack > 0 || choice_of(plan, s) != draft_choice::planned);
    rows.limit.push_back(s.limit);
    const auto tokens = plan.tokens.begin() + s.first_token, history = plan.history.begin() + s.history;
    rows.tokens.insert(rows.tokens.end(), tokens, tokens + s.rows);
    rows.history.insert(rows.history.end(), history, history + ngram);
  }
  rows.blocks = plan.blocks;
  rows.shared = context && plan.kind == step_kind::prefill && context_split_pays(rows.rows, context->ranks());
  for (std::size_t i = 0; rows.shared && i < rows.tokens.size(); ++i)
    rows.shared = rows.tokens[i] >= 0; // filled in for whole steps only
  if (context)
    context->meet(plan.number);
  runner.forward(rows);
}

// The rule of all rows of a sequence that draw, appended to the arrays of the call. What it says of single tokens, it
// says by their positions, so it needs nothing that is still in flight.
void model_engine::impl::add_rule_of(const planned_sequence& s) {
  const sequence_spec& spec = *s.spec;
  const sampling_params& p = spec.params;
  sample_row_params r;
  r.temperature = p.temperature;
  r.top_p = p.top_p;
  r.min_p = p.min_p;
  r.top_k = p.top_k;
  r.seed = spec.seq_seed;
  r.draw = draw;
  r.logprob = p.logprobs;
  r.processed = p.logprobs_mode == logprobs_source::processed;
  r.top_logprobs = p.top_logprobs;
  // Tokens [lowest, lowest + many) may be drawn, counted from the end of the prompt.
  const std::int64_t lowest =
                         std::int64_t{s.start} + (s.slack > 0 ? 0 : s.rows - s.drafts - 1) + 1 - spec.prompt_tokens,
                     many = std::int64_t{s.slack} + s.drafts + 1;
  const auto golden = static_cast<std::int64_t>(p.golden_token_ids.size());
  r.first_forced = static_cast<std::int32_t>(forced.size());
  r.forced = static_cast<std::int32_t>(std::clamp<std::int64_t>(golden - lowest, 0, many));
  r.forced_at = static_cast<std::uint64_t>(lowest + spec.prompt_tokens);
  if (r.forced > 0)
    forced.insert(forced.end(), p.golden_token_ids.begin() + lowest, p.golden_token_ids.begin() + lowest + r.forced);
  if (s.next >= 0) {
    r.forced = 1;
    forced.push_back(s.next);
  }
  r.first_bias = static_cast<std::int32_t>(bias.size());
  r.biases = static_cast<std::int32_t>(p.logit_bias.size());
  bias.insert(bias.end(), p.logit_bias.begin(), p.logit_bias.end());
  r.first_suppressed = static_cast<std::int32_t>(suppressed.size());
  append_suppressed(spec, suppressed);
  r.suppressed = static_cast<std::int32_t>(suppressed.size()) - r.first_suppressed;
  r.suppressed_until = static_cast<std::uint64_t>(std::int64_t{spec.prompt_tokens} + p.min_tokens);
  rules.push_back(r);
}

// Which rule a row has: its sequence's if it draws, with a mask added where it has one; else one of its own, by which
// its log-probability is the model's own, or only its logits are wanted.
void model_engine::impl::add_job(const step_plan& plan, const logit_job& j, std::int32_t place) {
  position_of.push_back(j.position);
  if (j.sample) {
    const std::int32_t mask = mask_of(plan, j);
    rule_of_job.push_back(mask < 0 ? place : static_cast<std::int32_t>(rules.size()));
    if (mask >= 0) {
      rules.push_back(rules[static_cast<std::size_t>(place)]);
      rules.back().mask = mask;
    }
    return;
  }
  rule_of_job.push_back(static_cast<std::int32_t>(rules.size()));
  sample_row_params r;
  r.first_forced = static_cast<std::int32_t>(forced.size());
  r.forced = 1;
  r.forced_at = static_cast<std::uint64_t>(j.position) + 1;
  r.logprob = j.prompt_token >= 0;
  forced.push_back(std::max(j.prompt_token, 0));
  rules.push_back(r);
}

void model_engine::impl::make_rules(flight& f) {
  rules.clear(), rule_of_job.clear(), position_of.clear(), bias.clear(), suppressed.clear(), forced.clear();
  f.max_top = 0;
  for (const std::int32_t i : order) {
    const planned_sequence& s = f.plan->sequences[static_cast<std::size_t>(i)];
    if (s.sample)
      add_rule_of(s);
    else
      rules.emplace_back();
    f.max_top = std::max(f.max_top, rules.back().top_logprobs);
  }
  if (rows.first_in_flight >= 0) { // rows that become placeholders draw a token that nobody looks at
    sample_row_params r;
    r.first_forced = static_cast<std::int32_t>(forced.size());
    r.forced = 1;
    r.forced_at = 1;
    r.logprob = 0;
    forced.push_back(0);
    rules.push_back(r);
  }
  first_drawn.assign(std::bit_ceil(order.size() + 1), 0); // with room for a filled step's sequences
  for (std::size_t i = f.jobs.size(); i-- > 0;)
    if (f.jobs[i].sample)
      first_drawn[static_cast<std::size_t>(f.place[static_cast<std::size_t>(f.jobs[i].sequence)])] =
          static_cast<std::int32_t>(i);
  for (const logit_job& j : f.jobs)
    add_job(*f.plan, j, f.place[static_cast<std::size_t>(j.sequence)]);
  rules_there.clear();
  rules_at = rules_there.append(rules);
  bias_at = rules_there.append(bias);
  suppressed_at = rules_there.append(suppressed);
  forced_at = rules_there.append(forced);
  rule_of_at = rules_there.append(rule_of_job);
  position_at = rules_there.append(position_of);
  first_drawn_at = rules_there.append(first_drawn);
  masks_at = rules_there.append(f.plan->masks);
  rules_there.send(runner.work());
}

// Queues logits, sampler and verification.
void model_engine::impl::sample(flight& f) {
  TROUPE_CHECK(f.plan->masks.empty() || f.plan->mask_words == (vocab + 31) / 32, "masks of another vocabulary");
  make_rules(f);
  const std::size_t n = f.jobs.size(),
                    blocks = f.plan->sequences.size() * static_cast<std::size_t>(runner.draft_block());
  array_places places;
  f.token = places.add(n, sizeof(std::int32_t));
  f.status = places.add(n, sizeof(std::int32_t));
  f.logprob = places.add(n, sizeof(float));
  f.top = places.add(n * static_cast<std::size_t>(f.max_top), sizeof(token_logprob));
  f.outcome = places.add(4 * first_drawn.size(), sizeof(std::int32_t));
  f.drafts = places.add(blocks, sizeof(std::int32_t));
  f.confidence = places.add(blocks, sizeof(float));
  results_there.fit(runner.work(), places.bytes());
  f.results.resize(places.bytes());
  f.logits.resize(static_cast<std::size_t>(std::ranges::count_if(f.jobs, &logit_job::logits)) *
                  static_cast<std::size_t>(vocab));
  float* logits_to = f.logits.data();
  const std::size_t decided_from = in_flight_row < 0 ? n : static_cast<std::size_t>(in_flight_row);
  for (std::size_t from = 0, count = 0; from < n; from += count) {
    count = std::min(piece, (from < decided_from ? decided_from : n) - from);
    sample_piece(f, from, count, logits_to);
  }
  runner.verify(results_there.at<const std::int32_t>(f.token), results_there.at<const std::int32_t>(f.status),
                all_rows ? dev_ptr<const std::int32_t>() : rules_there.at<const std::int32_t>(first_drawn_at),
                results_there.at<std::int32_t>(f.outcome), rules_there.at<const sample_row_params>(rules_at),
                rules_there.at<const std::int32_t>(suppressed_at));
}

// Caches that another engine has filled, blocks first (image_bytes).
void model_engine::impl::take_images(const step_plan& plan) {
  for (const image_arrival& a : plan.arrivals) {
    TROUPE_CHECK(std::ssize(*a.bytes) == a.blocks * sizes.block_bytes + sizes.slot_bytes,
                 "the image of a cache of another size");
    const std::uint8_t* from = a.bytes->data();
    for (std::int32_t b = a.first_block; b < a.first_block + a.blocks; ++b, from += sizes.block_bytes)
      runner.load_block(from, block_id{plan.image_blocks[static_cast<std::size_t>(b)]});
    runner.load_slot(from, a.state);
  }
}

// Queues the way out of what leaves for another engine. One rank of a group is enough.
void model_engine::impl::give_images(flight& f) {
  f.departed.clear();
  for (const image_part& part : f.plan->departures) {
    auto& bytes = *f.departed.emplace_back(std::make_shared<image_bytes>());
    if (context && context->rank() != 0)
      continue;
    const bool state = part.state.value != 0;
    bytes.resize(static_cast<std::size_t>(part.blocks * sizes.block_bytes + (state ? sizes.slot_bytes : 0)));
    std::uint8_t* to = bytes.data();
    for (std::int32_t b = part.first_block; b < part.first_block + part.blocks; ++b, to += sizes.block_bytes)
      runner.save_block(block_id{f.plan->image_blocks[static_cast<std::size_t>(b)]}, to);
    if (state)
      runner.save_slot(part.state, to);
  }
}

// Which sequences propose, and by which rules; false: none does.
bool model_engine::impl::plan_drafts(const step_plan& plan) {
  draft_slots.clear(), draft_rules.clear();
  for (const planned_sequence& s : plan.sequences) {
    if (!s.propose || runner.draft_block() == 0)
      continue;
    sample_row_params r;
    r.temperature = s.spec->params.temperature;
    r.top_p = s.spec->params.top_p;
    r.min_p = s.spec->params.min_p;
    r.top_k = s.spec->params.top_k;
    r.seed = s.spec->seq_seed;
    r.logprob = 0;
    r.draw = draw == draw_rule::coupled ? draw_rule::coupled : draw_rule::proposal;
    draft_slots.push_back(s.slot.value);
    draft_rules.push_back(r);
  }
  return !draft_slots.empty();
}

// Draft blocks behind the newest tokens of those sequences.
void model_engine::impl::draft(const flight& f) {
  runner.draft(draft_slots, draft_rules, results_there.at<std::int32_t>(f.drafts),
               results_there.at<float>(f.confidence));
}

// Queues the way back of the results.
void model_engine::impl::send_back(flight& f) {
  stream& s = runner.work();
  s.to_host(f.results.data(), results_there.at<const std::byte>(), f.results.size());
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
  const auto first_row = static_cast<std::int64_t>(from);
  a.params = rules_there.at<const sample_row_params>(rules_at);
  const bool decided = in_flight_row >= 0 && first_row >= in_flight_row; // rows whose sequences the device chose
  a.rule = (decided ? runner.row_sequences() : rules_there.at<const std::int32_t>(rule_of_at)) + first_row;
  a.row_position = (all_rows ? runner.row_positions() : rules_there.at<const std::int32_t>(position_at)) + first_row;
  if (all_rows && draw == draw_rule::fresh) {
    a.verifies = runner.row_verifies() + first_row;
    a.drafts = runner.state().drafts;
    a.draft_logits = runner.state().logits;
  }
  a.forced = rules_there.at<const std::int32_t>(forced_at);
  a.bias = rules_there.at<const token_logprob>(bias_at);
  a.suppressed = rules_there.at<const std::int32_t>(suppressed_at);
  a.masks = rules_there.at<const std::uint32_t>(masks_at);
  a.max_top = f.max_top;
  a.token = results_there.at<std::int32_t>(f.token) + first_row;
  a.status = results_there.at<std::int32_t>(f.status) + first_row;
  a.logprob = results_there.at<float>(f.logprob) + first_row;
  a.top = results_there.at<token_logprob>(f.top) + first_row * f.max_top;
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
