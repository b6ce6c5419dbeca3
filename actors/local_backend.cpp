#include "actors/backend.hpp"
#include "actors/engine_snapshot_of.hpp"
#include "actors/model_process.hpp"
#include "cluster/actor_system.hpp"
#include "cluster/shutdown.hpp"
#include <filesystem>

namespace troupe {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t pool_threads = 2;

struct local_config : caf::actor_system_config {
  local_config() { prepare_local(*this, pool_threads); }
};

std::string name_of(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::path(folder + "/").lexically_normal();
  return path.parent_path().filename().string();
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

class local_backend final : public backend {
public:
  explicit local_backend(const engine_options& options) : process_(startable(options)), model_(name_of(options.model)) {
    prepare_process();
    const std::string bad = check_messages(system_);
    if (!bad.empty())
      throw config_error("", "messages", bad, "does not survive CAF's serializer", "build against CAF 0.17.6");
    process_.setup->live = front_.live;
    root_ = system_.spawn(worker_root, std::shared_ptr<const process_setup>(process_.setup));
    caf::scoped_actor self{system_};
    ask(self.ptr(), root_, 30000ms, start{})
        .receive([&](const started& s) { front_.gateway = s.front; },
                 [&](const caf::error& e) {
                   const config_error why("", "engine", "", "did not start: " + text(system_, e),
                                          "if memory is short (ulimit -v), raise that limit or take smaller caches");
                   end(1s, why.what());
                   throw why;
                 });
    front_.vocabulary = process_.vocabulary;
    front_.config = std::shared_ptr<const model_config>(process_.source, &process_.source->config());
    front_.limits = process_.setup->limits;
    front_.numerics_id = process_.numerics_id;
    front_.description = process_.description;
  }
  ~local_backend() override { end(120s); }

  const engine_front& front() const override { return front_; }
  std::string metrics() const override;

private:
  // The handles stay: an actor without any is destroyed before its children are told.
  void end(std::chrono::milliseconds limit, const std::string& why = {}) {
    tell_from_outside(root_, stop{});
    if (const std::size_t left = wait_for_actors(system_, limit))
      give_up_on_actors(left, why);
  }

  model_process process_;
  std::string model_; // name for people: the folder's
  engine_front front_;
  local_config config_;
  mutable caf::actor_system system_{config_};
  worker_root_actor root_;
};

std::string local_backend::metrics() const {
  caf::scoped_actor self{system_};
  const auto parts = report_of<started>(self, root_, start{}); // a verifier may be another than at the start
  const auto front = report_of<gateway_report>(self, parts.front, gateway_query{});
  std::vector<engine_snapshot> engines(parts.engines.size());
  std::vector<std::vector<reliability>> confidences;
  for (std::size_t i = 0; i < engines.size(); ++i) {
    engine_snapshot& e = engines[i];
    e = snapshot_of(self, parts.engines[i].scheduler, parts.engines[i].kv);
    if (i < front.metrics.size())
      e.requests = front.metrics[i];
    auto verifier = report_of<spec_report>(self, parts.engines[i].verifier, spec_query{});
    e.verifier = snapshot_of(verifier, parts.engines, i);
    confidences.push_back(std::move(verifier.positions));
  }
  const auto grammars =
      parts.grammars ? report_of<grammar_report>(self, parts.grammars, grammar_query{}) : grammar_report{};
  return metrics_text(model_, engines, {.grammars = &grammars, .verifiers = &confidences});
}

} // namespace

std::unique_ptr<backend> make_local_backend(const engine_options& options) {
  return std::make_unique<local_backend>(options);
}

} // namespace troupe
