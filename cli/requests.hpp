// Runs requests through an engine with a bounded number in flight, and hands their events to the calling thread.
#pragma once
#include "actors/llm.hpp"
#include "cli/interrupts.hpp"
#include "cli/options.hpp"
#include <functional>
#include <limits>
#include <memory>

namespace troupe {

// A loaded engine together with the signals of the process; made and used by the main thread.
class engine_session {
public:
  // Loads the model, with a progress line. Ends the process (130) on Ctrl-C while loading: nothing has begun by then.
  // metrics_file: where run_requests writes the engine's metrics at its end; empty is nowhere. Throws config_error or
  // device_error.
  explicit engine_session(const engine_options& options, const std::string& metrics_file = {});
  // The engines of a running cluster.
  engine_session(const cluster_access& cluster, const std::string& metrics_file);
  // Gives the signals their usual effect again, so that Ctrl-C also ends a shutdown, and stops the engine.
  ~engine_session();
  engine_session(const engine_session&) = delete;
  engine_session& operator=(const engine_session&) = delete;

  interrupts signals; // before the engine: its threads must not take them
  std::unique_ptr<LLM> engine;
  std::string metrics_file;
  int most_sequences = 256;                            // that run at once, over all engines
  int most_requests = std::numeric_limits<int>::max(); // that are taken at once
};

struct engine_request {
  generation_request request;
  sampling_params params;
};

// Where requests come from. next is called by the thread of run_requests.
class request_source {
public:
  enum class state { ready, waiting, end };
  virtual ~request_source() = default;
  // ready: `out` is set. waiting: ask again when fd() is readable.
  virtual state next(engine_request& out) = 0;
  virtual int fd() const { return -1; }
};

struct run_outcome {
  bool interrupted = false; // the first Ctrl-C: no new requests were taken
  bool stopped =
      false; // the second, or the receiver asked to stop: live requests were aborted, their ends not delivered
  bool metrics_lost = false; // the metrics file could not be written; the reason was logged
};

// `window`: branches in flight at most (one request always fits). `receive` gets every event of a branch in order,
// among them exactly one end per branch; a request that the engine refuses gives one end with an error. Text events
// come only with `streaming`. It returns false to stop everything. `idle` is called about ten times a second, for
// progress lines.
run_outcome run_requests(engine_session& session, request_source& source, int window, bool streaming,
                         const std::function<bool(const generation_event&)>& receive,
                         const std::function<void()>& idle = {});

} // namespace troupe
