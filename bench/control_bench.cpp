#include "bench/control_bench.hpp"
#include "actors/model_process.hpp"
#include "cluster/shutdown.hpp"
#include <condition_variable>
#include <mutex>

namespace troupe {

namespace {

using namespace std::chrono_literals;

// Answers every plan at once with a token that ends nothing.
class null_engine final : public step_engine {
public:
  void forward(const step_plan&) override {}
  void sample(const step_plan& plan, step_result& out) override {
    out.number = plan.number;
    out.sequences.resize(plan.sequences.size());
    for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
      out.sequences[i] = {};
      out.sequences[i].id = plan.sequences[i].spec->id;
      out.sequences[i].sampled = plan.sequences[i].sample;
      out.sequences[i].token = 300;
    }
    out.expert_counts.clear();
    out.failure.clear();
  }
};

struct bench_config : caf::actor_system_config {
  bench_config() { prepare_local<caf::id_block::troupe>(*this, 2); }
};

// An engine's actors without a model behind them.
class control_path {
public:
  explicit control_path(const engine_options& options) : process_(make_model_process(options)) {
    process_.setup->engines = {std::make_shared<null_engine>()};
    process_.setup->engine_cores.clear();
    root_ = system_.spawn(worker_root, std::shared_ptr<const process_setup>(process_.setup));
    caf::scoped_actor self{system_};
    ask(self.ptr(), root_, 30000ms, start{})
        .receive([&](const started& s) { front_ = s.front; },
                 [&](const caf::error& e) {
                   throw std::runtime_error("bench: the actors did not start: " + text(system_, e));
                 });
  }
  ~control_path() {
    tell_from_outside(root_,
                      stop{}); // the handles stay: an actor without any is destroyed before its children are told
    if (const std::size_t left = wait_for_actors(system_, 60s))
      give_up_on_actors(left);
  }
  control_path(const control_path&) = delete;
  control_path& operator=(const control_path&) = delete;

  // Seconds from the submission of `sequences` requests to the end of the last, each `tokens` long.
  double run(int sequences, int tokens) {
    std::mutex mutex;
    std::condition_variable ended;
    int left = sequences;
    const stopwatch watch;
    for (int i = 0; i < sequences; ++i) {
      auto r = std::make_shared<request_record>();
      r->req = {0, ++next_};
      r->id = std::to_string(next_);
      r->prompt = {0, 300, 301};
      r->params.max_tokens = tokens;
      r->params.ignore_eos = true;
      r->params.logprobs = false;
      r->live = live_;
      r->accepted = std::chrono::steady_clock::now();
      r->on_event = [&](const generation_event& e) {
        if (!e.result)
          return;
        const std::lock_guard lock(mutex);
        if (--left == 0)
          ended.notify_all();
      };
      live_->add(r->id, r->req);
      tell_from_outside(front_, open_request{r});
    }
    std::unique_lock lock(mutex);
    if (!ended.wait_for(lock, 120s, [&] { return left == 0; }))
      throw std::runtime_error("bench: the control path did not finish");
    return watch.seconds();
  }

private:
  model_process process_;
  std::shared_ptr<live_requests> live_ = std::make_shared<live_requests>();
  std::uint64_t next_ = 0;
  bench_config config_;
  caf::actor_system system_{config_};
  worker_root_actor root_;
  gateway_actor front_;
};

} // namespace

void bench_control(const bench_settings& settings) {
  engine_options options = settings.engine;
  options.engines = 1;
  options.ep = 1;
  prepare_process<caf::id_block::troupe>();
  control_path path(options);
  const int tokens = settings.smoke ? 50 : 2000, repeats = settings.smoke ? 1 : 5;
  path.run(1, 20); // warm-up
  for (const int sequences : {1, 16, 64}) {
    if (sequences > options.max_num_seqs)
      continue;
    std::vector<double> values;
    for (int i = 0; i < repeats; ++i)
      values.push_back(path.run(sequences, tokens) * 1e6 /
                       tokens); // one prefill step more than decode steps: tokens in all
    nlohmann::ordered_json line{{"bench", "control"}, {"case", "sequences " + std::to_string(sequences)}};
    line.update(machine_facts());
    line.update({{"us_per_step", median(values)}, {"runs", values}, {"tokens", tokens}});
    if (settings.smoke)
      line["smoke"] = true;
    settings.emit(line);
  }
}

} // namespace troupe
