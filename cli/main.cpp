// Entry of the binary: verbs to functions, errors to exit codes.
#include "cli/line_io.hpp"
#include "cli/log.hpp"
#include "cli/verbs.hpp"
#include "cluster/cluster_identity.hpp"
#include "cluster/passing_fault.hpp"
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <spdlog/spdlog.h>
#include <string_view>
#include <unistd.h>

namespace {

// For those who ask a cluster that runs, its absence is no fault of what they wrote.
template <class Verb> int of_running(const Verb& verb) {
  try {
    return verb();
  } catch (const troupe::no_coordinator& e) {
    spdlog::error("{}", e.what());
    return troupe::exit_no_leader;
  }
}

struct verb_runner {
  int operator()(std::monostate) const { return troupe::exit_ok; }
  int operator()(const troupe::generate_options& o) const { return troupe::run_generate(o); }
  int operator()(const troupe::chat_options& o) const { return troupe::run_chat(o); }
  int operator()(const troupe::batch_options& o) const { return troupe::run_batch(o); }
  int operator()(const troupe::score_options& o) const { return troupe::run_score(o); }
  int operator()(const troupe::baseline_options& o) const { return troupe::run_baseline(o); }
  int operator()(const troupe::tokenize_options& o) const { return troupe::run_tokenize(o); }
  int operator()(const troupe::grammar_check_options& o) const { return troupe::run_grammar_check(o); }
  int operator()(const troupe::bench_options& o) const { return troupe::run_bench(o); }
  int operator()(const troupe::make_model_options& o) const { return troupe::run_make_model(o); }
  int operator()(const troupe::check_model_options& o) const { return troupe::run_check_model(o); }
  int operator()(const troupe::launch_options& o) const { return troupe::run_launch(o); }
  int operator()(const troupe::status_options& o) const {
    return of_running([&] { return troupe::run_status(o); });
  }
  int operator()(const troupe::stop_options& o) const { return troupe::run_stop(o); }
  int operator()(const troupe::migrate_options& o) const {
    return of_running([&] { return troupe::run_migrate(o); });
  }
  int operator()(const troupe::logs_options& o) const { return troupe::run_logs(o); }
  int operator()(const troupe::coordinator_options& o) const { return troupe::run_coordinator(o); }
  int operator()(const troupe::node_options& o) const { return troupe::run_node(o); }
  int operator()(const troupe::worker_options& o) const { return troupe::run_worker(o); }
  int operator()(const troupe::gateway_options& o) const { return troupe::run_gateway(o); }
  int operator()(const troupe::remote_options& o) const { return troupe::run_remote(o); }
  int operator()(const troupe::keygen_options& o) const { return troupe::run_keygen(o); }
  int operator()(const troupe::check_options& o) const { return troupe::run_check(o); }
};

// Memory that is short on a thread of the engine has nobody to tell it to: one line instead of a crash report. Anything
// else that comes here is a fault of the program.
[[noreturn]] void end_at_once() {
  try {
    if (std::current_exception())
      std::rethrow_exception(std::current_exception());
  } catch (const std::bad_alloc&) {
    constexpr std::string_view text =
        "troupe: error: out of memory: use a smaller --max-num-seqs, --kv-blocks or --max-model-len\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
    std::_Exit(troupe::exit_request_failed);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "troupe: error: %s\n", e.what());
  } catch (...) {
  }
  std::abort();
}

} // namespace

int main(int argc, char** argv) {
  std::set_terminate(end_at_once);
  troupe::occupy_standard_streams();
  troupe::set_up_logging({});
  try {
    const troupe::command_line line = troupe::parse_command_line(argc, argv);
    if (line.exit_code)
      return *line.exit_code;
    troupe::set_up_logging(line.log);
    return std::visit(verb_runner{}, line.verb);
  } catch (const troupe::passing_fault& e) {
    spdlog::error("{}", e.what());
    return troupe::exit_passing;
  } catch (const troupe::config_error& e) {
    spdlog::error("{}", e.what());
    return troupe::exit_usage;
  } catch (const std::bad_alloc&) {
    spdlog::error("out of memory: use a smaller --max-num-seqs, --kv-blocks or --max-model-len");
    return troupe::exit_request_failed;
  } catch (const std::exception& e) {
    spdlog::error("{}", e.what());
    return troupe::exit_request_failed;
  }
}
