#include "actors/control_bench.hpp"
#include "actors/worker_root.hpp"
#include "cluster/shutdown.hpp"
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>

namespace troupe {

namespace {

using clock_type = std::chrono::steady_clock;

// Gives every sequence a token at once and remembers when each step began.
class null_engine final : public step_engine {
public:
  explicit null_engine(std::size_t steps) { started.reserve(steps + 8); }
  void launch(const step_plan& plan) override {
    if (plan.kind == step_kind::decode)
      started.push_back(clock_type::now());
    plans_.push_back(&plan);
  }
  bool finished() override { return true; }
  void collect(step_result& out) override {
    const step_plan& plan = *plans_.front();
    plans_.pop_front();
    out.sequences.resize(plan.sequences.size());
    for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
      sequence_result& r = out.sequences[i];
      r.id = plan.sequences[i].spec->id;
      r.sampled = plan.sequences[i].sample;
      r.token = 300 + plan.sequences[i].start % 97; // any ordinary id
    }
  }
  std::vector<clock_type::time_point> started;

private:
  std::deque<const step_plan*> plans_;
};

struct bench_config : caf::actor_system_config {
  bench_config() { prepare_local<caf::id_block::troupe>(*this, 2); }
};

struct finish_line {
  std::mutex mutex;
  std::condition_variable changed;
  int left = 0;
};

std::shared_ptr<const request_record> request_of(int number, int steps, const std::shared_ptr<live_requests>& live,
                                                 const std::shared_ptr<finish_line>& line) {
  auto r = std::make_shared<request_record>();
  r->id = std::to_string(number);
  r->req = {0, static_cast<std::uint64_t>(number) + 1};
  r->prompt = {0, 5, 6, 7};
  r->params.max_tokens = steps + 1;
  r->params.ignore_eos = true;
  r->live = live;
  r->accepted = clock_type::now();
  r->on_event = [line](const generation_event& e) {
    if (!e.result)
      return;
    const std::lock_guard lock(line->mutex);
    --line->left;
    line->changed.notify_all();
  };
  live->add(r->id, r->req);
  return r;
}

control_path_figures figures_of(const std::vector<clock_type::time_point>& started, int sequences) {
  std::vector<double> gaps;
  for (std::size_t i = 1; i < started.size(); ++i)
    gaps.push_back(std::chrono::duration<double, std::micro>(started[i] - started[i - 1]).count());
  control_path_figures f;
  f.steps = static_cast<int>(started.size());
  f.sequences = sequences;
  if (gaps.empty())
    return f;
  f.mean_us = std::chrono::duration<double, std::micro>(started.back() - started.front()).count() /
              static_cast<double>(gaps.size());
  std::sort(gaps.begin(), gaps.end());
  f.p50_us = gaps[gaps.size() / 2];
  f.p99_us = gaps[gaps.size() * 99 / 100];
  return f;
}

} // namespace

control_path_figures measure_control_path(const std::string& tokenizer_file, int sequences, int steps) {
  auto setup = std::make_shared<process_setup>();
  const auto engine = std::make_shared<null_engine>(static_cast<std::size_t>(steps));
  setup->limits.max_num_seqs = sequences;
  setup->limits.max_num_batched_tokens = std::max(4 * sequences, 16);
  setup->limits.max_model_len = steps + 16;
  setup->limits.kv_blocks = 1 + sequences * blocks_for(steps + 16);
  setup->kv.blocks = setup->limits.kv_blocks;
  setup->kv.slots = sequences + 1;
  setup->engines = {engine};
  setup->front.vocabulary = std::make_shared<const tokenizer>(tokenizer::load(tokenizer_file));
  setup->front.seed = 0;
  bench_config config;
  caf::actor_system system{config};
  const auto live = std::make_shared<live_requests>();
  const auto line = std::make_shared<finish_line>();
  line->left = sequences;
  {
    const worker_root_actor root = system.spawn(worker_root, std::shared_ptr<const process_setup>(setup));
    caf::scoped_actor self{system};
    gateway_actor front;
    ask(self.ptr(), root, std::chrono::seconds(30), start{})
        .receive([&](const started& s) { front = s.front; }, [](const caf::error&) {});
    for (int i = 0; i < sequences; ++i)
      tell_from_outside(front, open_request{request_of(i, steps, live, line)});
    std::unique_lock lock(line->mutex);
    line->changed.wait(lock, [&] { return line->left == 0; });
    lock.unlock();
    tell_from_outside(root, stop{});
    if (const std::size_t left = wait_for_actors(system, std::chrono::seconds(30), 1))
      give_up_on_actors(left);
  }
  return figures_of(engine->started, sequences);
}

} // namespace troupe
