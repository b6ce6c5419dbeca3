#include "runtime/metrics/metrics_text.hpp"
#include "runtime/metrics/exposition.hpp"
#include <tuple>

namespace troupe {

namespace {

using type = exposition::type;

class writer {
public:
  writer(const std::string& model_name, std::span<const engine_snapshot> engines)
      : engines_(engines), process_{{"model_name", model_name}} {
    for (std::size_t i = 0; i < engines.size(); ++i)
      labels_.push_back({{"model_name", model_name}, {"engine", std::to_string(i)}});
  }

  // A family with one sample for each engine.
  template <class Get> void each(const char* name, type t, const char* help, const Get& get) {
    out_.family(name, t, help);
    for (std::size_t i = 0; i < engines_.size(); ++i)
      out_.sample(labels_[i], get(engines_[i]));
  }
  // A family with samples for each engine that one more label tells apart: get gives pairs of its value and a sample.
  template <class Get> void by_label(const char* name, type t, const char* help, const char* label, const Get& get) {
    out_.family(name, t, help);
    for (std::size_t i = 0; i < engines_.size(); ++i)
      for (const auto& [value, sample] : get(engines_[i])) {
        metric_labels labels = labels_[i];
        labels.emplace_back(label, value);
        out_.sample(labels, sample);
      }
  }
  // A family with samples that two more labels tell apart: get, of an engine's index, gives them.
  template <class Get>
  void by_labels(const char* name, type t, const char* help, const char* label_a, const char* label_b, const Get& get) {
    out_.family(name, t, help);
    for (std::size_t i = 0; i < engines_.size(); ++i)
      for (const auto& [a, b, sample] : get(i)) {
        metric_labels labels = labels_[i];
        labels.emplace_back(label_a, a);
        labels.emplace_back(label_b, b);
        out_.sample(labels, sample);
      }
  }
  // A family with one sample for the process.
  template <class Sample> void once(const char* name, type t, const char* help, const Sample& sample) {
    out_.family(name, t, help);
    out_.sample(process_, sample);
  }
  const std::string& text() const { return out_.text(); }

private:
  std::span<const engine_snapshot> engines_;
  metric_labels process_;
  std::vector<metric_labels> labels_; // [engines]
  exposition out_;
};

template <class T> using labelled = std::vector<std::pair<std::string, T>>;

// Samples by position in a block of drafts, from 0.
template <class T> labelled<T> by_position(const std::vector<T>& values) {
  labelled<T> out;
  for (std::size_t i = 0; i < values.size(); ++i)
    out.emplace_back(std::to_string(i), values[i]);
  return out;
}

// Samples of each bin of confidences, named by its bounds ("0.9-1.0"), at each position.
template <class T, class Get>
std::vector<std::tuple<std::string, std::string, T>> by_bin(const std::vector<reliability>& positions, const Get& get) {
  static_assert(reliability::bins == 10);
  const auto bound = [](std::size_t tenths) { return tenths < 10 ? "0." + std::to_string(tenths) : "1.0"; };
  std::vector<std::tuple<std::string, std::string, T>> out;
  for (std::size_t p = 0; p < positions.size(); ++p)
    for (std::size_t b = 0; b < reliability::bins; ++b)
      out.emplace_back(std::to_string(p), bound(b) + "-" + bound(b + 1), get(positions[p].bin[b]));
  return out;
}

double share(std::int32_t part, std::int32_t all) {
  return all > 0 ? static_cast<double>(part) / all : 0;
}

void write_state(writer& w) {
  using s = engine_snapshot;
  const auto count = [](std::int32_t n) { return static_cast<std::uint64_t>(n); };
  w.each("troupe:num_requests_running", type::gauge, "Sequences that hold KV.", [](const s& e) { return e.running; });
  w.each("troupe:num_requests_waiting", type::gauge, "Sequences that wait for a place.",
         [](const s& e) { return e.waiting; });
  w.by_label("troupe:num_requests_waiting_by_reason", type::gauge,
             "Sequences that wait, by what is short: places (max_num_seqs), KV blocks, state slots; turn: nothing is.",
             "reason", [](const s& e) {
               labelled<std::uint64_t> by_reason{{"turn", 0}, {"places", 0}, {"blocks", 0}, {"slots", 0}};
               for (auto& [reason, sequences] : by_reason)
                 sequences = reason == (e.waits_for.empty() ? "turn" : e.waits_for) ? e.waiting : 0;
               return by_reason;
             });
  w.each("troupe:kv_cache_usage_perc", type::gauge, "Share of the KV blocks that sequences use; 1 means all.",
         [](const s& e) { return share(e.kv.used_blocks, e.kv_blocks); });
  w.each("troupe:kv_blocks", type::gauge, "KV blocks of the engine.", [&](const s& e) { return count(e.kv_blocks); });
  w.each("troupe:kv_blocks_cached", type::gauge, "KV blocks that the prefix cache can find, in use or idle.",
         [&](const s& e) { return count(e.kv.cached_blocks); });
  w.each("troupe:state_slots", type::gauge, "State slots of the engine.",
         [&](const s& e) { return count(e.state_slots); });
  w.each("troupe:state_slot_usage_perc", type::gauge, "Share of the state slots in use; 1 means all.",
         [](const s& e) { return share(e.kv.used_slots, e.state_slots); });
}

void write_engine_counters(writer& w) {
  using s = engine_snapshot;
  using counts = labelled<std::uint64_t>;
  w.each("troupe:prefix_cache_queries_total", type::counter, "Prompt tokens looked up in the prefix cache.",
         [](const s& e) { return e.kv.queried_tokens; });
  w.each("troupe:prefix_cache_hits_total", type::counter, "Prompt tokens found in the prefix cache.",
         [](const s& e) { return e.kv.hit_tokens; });
  w.each("troupe:kv_blocks_evicted_total", type::counter, "KV blocks that left the prefix cache.",
         [](const s& e) { return e.kv.evicted_blocks; });
  w.by_label("troupe:state_snapshots_total", type::counter,
             "Snapshots of states for the prefix cache, by what became of them.", "event", [](const s& e) {
               return counts{{"kept", e.kv.snapshots_kept},
                             {"refused", e.kv.snapshots_refused},
                             {"dropped", e.kv.snapshots_dropped},
                             {"evicted", e.kv.snapshots_evicted}};
             });
  w.each("troupe:forks_total", type::counter, "Branches that took the prompt of another one.",
         [](const s& e) { return e.kv.forks; });
  w.each("troupe:num_preemptions_total", type::counter, "Times that a sequence lost its cache to others.",
         [](const s& e) { return e.preemptions; });
  w.by_label("troupe:steps_total", type::counter, "Steps by kind.", "kind", [](const s& e) {
    return counts{{"prefill", e.steps.prefill_steps}, {"decode", e.steps.decode_steps}};
  });
}

void write_speculation(writer& w) {
  using s = engine_snapshot;
  w.each("troupe:spec_decode_num_drafts_total", type::counter, "Proposals of the drafter.",
         [](const s& e) { return e.steps.speculation.drafts; });
  w.each("troupe:spec_decode_num_draft_tokens_total", type::counter, "Drafted tokens that were verified.",
         [](const s& e) { return e.steps.speculation.draft_tokens; });
  w.each("troupe:spec_decode_num_accepted_tokens_total", type::counter,
         "Drafted tokens that were accepted, with those behind a stop string, which nobody gets.",
         [](const s& e) { return e.steps.speculation.accepted_tokens; });
  w.by_label("troupe:spec_decode_num_accepted_tokens_per_pos_total", type::counter,
             "Drafted tokens that were accepted, by position in their block.", "position",
             [](const s& e) { return by_position(e.steps.speculation.accepted_at); });
  w.by_label("troupe:spec_decode_num_draft_tokens_per_pos_total", type::counter,
             "Drafted tokens that were verified, by position in their block.", "position",
             [](const s& e) { return by_position(e.steps.speculation.verified_at); });
  w.each("troupe:spec_decode_verified_drafts", type::histogram, "Drafts that a sequence verified in a decode step.",
         [](const s& e) { return e.steps.speculation.verified_drafts; });
  w.each("troupe:spec_decode_confidences_not_finite_total", type::counter,
         "Confidences of the drafter that were no finite numbers.",
         [](const s& e) { return e.steps.speculation.not_finite; });
  w.each("troupe:spec_decode_advised_steps_total", type::counter,
         "Decode steps of as many rows as the verifier had given them.",
         [](const s& e) { return e.steps.speculation.advised_steps; });
  w.each("troupe:spec_decode_stale_advice_total", type::counter,
         "Budgets of the verifier that came when no step could follow them any more.",
         [](const s& e) { return e.steps.speculation.stale_advice; });
  w.by_label(
      "troupe:spec_decode_tokens_total", type::counter, "Tokens of planned decode steps: foretold, and what came.",
      "kind", [](const s& e) {
        const draft_counters& d = e.steps.speculation;
        return labelled<double>{{"expected", d.expected_tokens}, {"emitted", static_cast<double>(d.emitted_tokens)}};
      });
  w.by_label("troupe:spec_decode_step_seconds_total", type::counter,
             "Time of planned decode steps: foretold, and what they took.", "kind", [](const s& e) {
               const draft_counters& d = e.steps.speculation;
               return labelled<double>{{"expected", d.expected_seconds}, {"measured", d.measured_seconds}};
             });
  w.by_label("troupe:decode_steps_by_size_total", type::counter,
             "Decode steps by rows, those that fill it up included.", "rows", [](const s& e) {
               labelled<std::uint64_t> out;
               for (const auto& [rows, steps] : e.steps.speculation.steps_by_size)
                 out.emplace_back(std::to_string(rows), steps);
               return out;
             });
}

void write_verifier(writer& w) {
  using s = engine_snapshot;
  w.each("troupe:spec_decode_tokens_per_step", type::gauge,
         "Mean tokens of a sequence in a decode step that verified drafts of it.",
         [](const s& e) { return e.verifier.tokens_per_step; });
  w.each("troupe:spec_decode_budget_rows", type::gauge, "Rows that the verifier gave the last decode step.",
         [](const s& e) { return static_cast<std::uint64_t>(e.verifier.total_rows); });
  w.each("troupe:spec_decode_budgets_total", type::counter, "Budgets that the verifier decided.",
         [](const s& e) { return e.verifier.decisions; });
  w.each("troupe:spec_decode_late_loads_total", type::counter,
         "Budgets that were decided before an engine had reported.", [](const s& e) { return e.verifier.late; });
  w.by_label("troupe:spec_decode_calibration_error", type::gauge,
             "Expected calibration error of the drafter's confidences, by position in the block.", "position",
             [](const s& e) { return by_position(e.verifier.calibration_error); });
  w.by_label("troupe:spec_decode_suggested_temperature", type::gauge,
             "Temperature that would calibrate the confidences, by position in the block.", "position",
             [](const s& e) { return by_position(e.verifier.suggested_temperature); });
  w.by_label("troupe:spec_decode_step_cost_ms", type::gauge,
             "What decode steps take beyond the measured curve: by row, by cached position, for sampling and drafting.",
             "part", [](const s& e) {
               return labelled<double>{{"row", e.verifier.slope_ms},
                                       {"kv_token", e.verifier.kv_token_ms},
                                       {"sampler", e.verifier.sampler_ms}};
             });
  w.each("troupe:spec_decode_useless", type::gauge, "1: of the newest verified drafts none was right.",
         [](const s& e) { return static_cast<std::uint64_t>(e.verifier.useless); });
}

// The reliability curve: of each bin the share accepted (accepted / drafts) over the mean confidence (confidence /
// drafts). Engines that share a verifier share the curve.
void write_reliability(writer& w, const std::vector<std::vector<reliability>>& engines) {
  const auto curve = [&](const char* name, const char* help, const auto& get) {
    using value = decltype(get(reliability_bin{}));
    w.by_labels(name, type::counter, help, "position", "confidence", [&](std::size_t engine) {
      return by_bin<value>(engine < engines.size() ? engines[engine] : std::vector<reliability>{}, get);
    });
  };
  curve("troupe:spec_decode_reliability_drafts_total",
        "Drafts that verification reached, by position in the block and the drafter's confidence.",
        [](const reliability_bin& b) { return b.drafts; });
  curve("troupe:spec_decode_reliability_accepted_total", "Those of them that were accepted.",
        [](const reliability_bin& b) { return b.accepted; });
  curve("troupe:spec_decode_reliability_confidence_total", "Sum of their confidences: the acceptances foretold.",
        [](const reliability_bin& b) { return b.confidence; });
}

void write_compiling(writer& w, const grammar_report& g) {
  w.once("troupe:grammar_requests_waiting", type::gauge, "Requests that wait for their constraint.", g.waiting);
  w.once("troupe:grammar_compilations_queued", type::gauge, "Constraints that no compiler has taken yet.", g.queued);
  w.once("troupe:grammar_compilations_running", type::gauge, "Constraints that are being compiled.", g.running);
  w.once("troupe:grammar_compiled_total", type::counter, "Constraints that were compiled.", g.compiled);
  w.once("troupe:grammar_refused_total", type::counter, "Constraints that could not be compiled.", g.refused);
  w.once("troupe:grammar_cache_hits_total", type::counter, "Requests whose constraint was there already.", g.hits);
  w.once("troupe:grammar_given_up_total", type::counter, "Compilations that nobody waited for any more.", g.given_up);
  w.once("troupe:grammar_compilers_lost_total", type::counter, "Compilers that ended over their work.", g.lost);
  w.once("troupe:grammar_cache_entries", type::gauge, "Compiled constraints and refusals in the cache.", g.kept);
  w.once("troupe:grammar_cache_bytes", type::gauge, "Memory of the constraints in the cache.", g.kept_bytes);
  w.once("troupe:grammar_compile_seconds", type::histogram, "Processor time to compile a constraint or refuse it.",
         g.compile_time);
}

void write_masks(writer& w) {
  using s = engine_snapshot;
  w.by_label("troupe:mask_windows_total", type::counter,
             "Masks of one sequence for one step: made in time for it, or more work than a step has for them.", "made",
             [](const s& e) {
               return labelled<std::uint64_t>{{"in_time", e.steps.masks.in_time}, {"late", e.steps.masks.late}};
             });
  w.each("troupe:mask_fill_seconds", type::histogram, "Time to make the masks of one sequence for one step.",
         [](const s& e) { return e.steps.masks.fill_time; });
}

void write_request_counters(writer& w) {
  using s = engine_snapshot;
  w.each("troupe:prompt_tokens_total", type::counter, "Prompt tokens of the branches whose output has begun.",
         [](const s& e) { return e.requests.prompt_tokens; });
  w.each("troupe:generation_tokens_total", type::counter, "Output tokens, as they come.",
         [](const s& e) { return e.requests.generation_tokens; });
  w.each("troupe:held_messages_total", type::counter,
         "Messages to an engine that waited because too many were not answered.",
         [](const s& e) { return e.requests.held_messages; });
  w.by_label("troupe:request_success_total", type::counter, "Branches that have ended, by finish reason.",
             "finished_reason", [](const s& e) {
               return labelled<std::uint64_t>{{"stop", e.requests.stop},
                                              {"length", e.requests.length},
                                              {"abort", e.requests.abort},
                                              {"error", e.requests.error}};
             });
  w.by_label("troupe:request_aborts_total", type::counter, "Aborted branches, by cause.", "cause",
             [](const s& e) { return e.requests.abort_causes; });
  w.by_label("troupe:request_errors_total", type::counter,
             "Branches that have ended with an error or were refused, by its code.", "code",
             [](const s& e) { return e.requests.error_codes; });
}

void write_sizes(writer& w) {
  using s = engine_snapshot;
  w.each("troupe:iteration_tokens_total", type::histogram, "Rows of a step.",
         [](const s& e) { return e.steps.iteration_tokens; });
  w.each("troupe:request_prompt_tokens", type::histogram, "Prompt tokens of a branch.",
         [](const s& e) { return e.requests.request_prompt_tokens; });
  w.each("troupe:request_generation_tokens", type::histogram, "Output tokens of a branch.",
         [](const s& e) { return e.requests.request_generation_tokens; });
  w.each("troupe:request_params_max_tokens", type::histogram, "max_tokens of a branch.",
         [](const s& e) { return e.requests.params_max_tokens; });
  w.each("troupe:request_params_n", type::histogram, "Branches of a request.",
         [](const s& e) { return e.requests.params_n; });
}

void write_times(writer& w) {
  using s = engine_snapshot;
  w.each("troupe:time_to_first_token_seconds", type::histogram, "From acceptance to the first output token.",
         [](const s& e) { return e.requests.time_to_first_token; });
  w.each("troupe:inter_token_latency_seconds", type::histogram, "Between two arrivals of output tokens of a branch.",
         [](const s& e) { return e.requests.inter_token_latency; });
  w.each("troupe:request_time_per_output_token_seconds", type::histogram,
         "Mean time for each output token of a branch behind its first.",
         [](const s& e) { return e.requests.time_per_output_token; });
  w.each("troupe:e2e_request_latency_seconds", type::histogram, "From acceptance to the end of a branch.",
         [](const s& e) { return e.requests.end_to_end; });
  w.each("troupe:request_queue_time_seconds", type::histogram, "From arrival at the engine to the first step.",
         [](const s& e) { return e.steps.queue_time; });
  w.each("troupe:request_prefill_time_seconds", type::histogram, "From the first step to the first output token.",
         [](const s& e) { return e.steps.prefill_time; });
  w.each("troupe:request_decode_time_seconds", type::histogram, "From the first output token to the last.",
         [](const s& e) { return e.requests.decode_time; });
  w.by_label("troupe:step_time_seconds", type::histogram, "Parts of a step: planning it, running it on the device.",
             "phase", [](const s& e) {
               return labelled<histogram<bounds::step>>{{"plan", e.steps.plan_time}, {"run", e.steps.run_time}};
             });
}

} // namespace

std::string metrics_text(const std::string& model_name, std::span<const engine_snapshot> engines,
                         const metric_parts& parts) {
  writer w(model_name, engines);
  write_state(w);
  write_engine_counters(w);
  write_speculation(w);
  if (parts.verifiers) {
    write_verifier(w);
    write_reliability(w, *parts.verifiers);
  }
  if (parts.grammars)
    write_compiling(w, *parts.grammars);
  write_masks(w);
  write_request_counters(w);
  write_sizes(w);
  write_times(w);
  return w.text();
}

} // namespace troupe
