// troupe batch: request lines in, result lines out, resumed by request id.
#include "cli/batch_ledger.hpp"
#include "cli/cluster_session.hpp"
#include "cli/finished_results.hpp"
#include "cli/log.hpp"
#include "cli/progress.hpp"
#include "cli/request_lines.hpp"
#include "cli/verbs.hpp"
#include "runtime/request/result_line.hpp"
#include <algorithm>
#include <spdlog/spdlog.h>

namespace troupe {

namespace {

class batch_run final : public request_lines {
public:
  batch_run(file_handle input, const LLM& engine, line_writer& out, const finished_results& kept)
      : request_lines(std::move(input), engine), out_(out), kept_(kept) {
    failed_count_ = kept.failed();
  }

  bool receive(const generation_event& event) {
    if (!event.result || kept_.has(event.result->id, event.result->index))
      return true;
    if (event.result->finish_reason == "abort")
      return true; // not a result; the next run of the same command computes it
    if (event.result->failure && is_not_its_own(event.result->failure->code)) {
      if (not_done_++ == 0) // likewise
        spdlog::error("request {}: {}", event.result->id, event.result->failure->message);
      const std::string& code = event.result->failure->code;
      if (code != "gateway_lost" && code != "engine_lost") // the rest would have the same fate
        read_no_more();
      return true;
    }
    ++done_;
    failed_count_ += event.result->failure ? 1 : 0;
    return succeeded(out_.write_line(result_line(*event.result)));
  }

  std::int64_t done() const { return done_; }
  std::int64_t failed_count() const { return failed_count_; }
  std::int64_t not_done() const {
    return not_done_;
  } // branches that ended for want of a ledger, a gateway or a cluster

protected:
  bool accept(engine_request& r) override {
    r.request.seed_from_id = true;
    r.request.logit_rows.clear(); // rows are for score
    if (!kept_.has_all(r.request.id, r.params.n))
      return true;
    ++done_;
    return false;
  }

  bool report(const bad_line& bad) override {
    if (bad.id ? kept_.has(*bad.id, 0) : kept_.has_line(bad.line))
      return true;
    ++done_;
    ++failed_count_;
    return succeeded(out_.write_line(bad_line_text(bad)));
  }

private:
  // What ended every engine that began it (attempts_exhausted) is the request's own, as far as anybody can tell.
  static bool is_not_its_own(const std::string& code) {
    return code == "ledger_failed" || code == "gateway_lost" || code == "overloaded" || code == "expelled" ||
           code == "engine_lost" || code == cluster_stopped || code == engine_missing;
  }

  line_writer& out_;
  const finished_results& kept_;
  std::int64_t done_ = 0, failed_count_ = 0, not_done_ = 0;
};

// With a cluster whose file wants it and that has no gateway to keep one, beside results that stay; else null.
std::shared_ptr<request_ledger> give_ledger(std::optional<named_cluster>& cluster, bool is_file,
                                            const batch_options& options, const finished_results& kept) {
  if (!cluster || !is_file || !cluster->access.gateway.empty() || cluster->ledger.mode != ledger_mode::disk)
    return nullptr;
  return cluster->access.ledger = open_batch_ledger(options.output, cluster->ledger, kept);
}

} // namespace

int run_batch(const batch_options& options) {
  check_engine(options.engine);
  file_handle input = open_input(options.input);
  file_handle output = open_output(options.output);
  check_distinct(input, output);
  const std::int64_t total = count_lines(options.input, input);
  const bool is_file = output.is_regular() && options.output != "-";
  const finished_results kept = is_file ? keep_finished_results(output) : finished_results();
  line_writer out(std::move(output));
  std::optional<named_cluster> cluster = find_cluster(options.engine);
  const std::shared_ptr<request_ledger> ledger = give_ledger(cluster, is_file, options, kept);
  std::unique_ptr<engine_session> made = make_session(options.engine, cluster);
  engine_session& session = *made;

  batch_run run(std::move(input), *session.engine, out, kept);
  progress_line progress("batch");
  const run_outcome outcome = run_requests(
      session, run, std::min(4 * session.most_sequences, session.most_requests), false,
      [&run](const generation_event& e) { return run.receive(e); },
      [&] { progress.show(run.done(), total, fmt::format("results, {} failed,", run.failed_count())); });
  progress.clear();
  if (run.failed() && !run.reader().failure().empty())
    spdlog::error("{}", run.reader().failure());
  const bool finished = succeeded(out.finish());
  if (outcome.interrupted) {
    spdlog::warn("interrupted: the same command continues the batch");
    return exit_interrupted;
  }
  if (run.not_done() > 0)
    spdlog::error("not all requests were computed: the same command continues the batch");
  const bool complete = !run.failed() && !outcome.stopped && finished && run.not_done() == 0;
  made.reset();
  if (ledger && complete)
    remove_batch_ledger(*ledger);
  return !complete || outcome.metrics_lost || run.failed_count() > 0 ? exit_request_failed : exit_ok;
}

} // namespace troupe
