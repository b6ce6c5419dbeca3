#include "actors/control_bench.hpp"
#include "actors/worker_root.hpp"
#include "cluster/actor_system.hpp"
#include "cluster/shutdown.hpp"
#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>

namespace troupe {

namespace {

using clock_type = std::chrono::steady_clock;

// Of so many drafts, how many are accepted.
std::int32_t right(std::int32_t drafts) {
  return std::min(drafts, 2);
}

// Any ordinary token for every sequence, behind its right drafts.
void answer(const step_plan& plan, step_result& out) {
  out.sequences.resize(plan.sequences.size());
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    const planned_sequence& p = plan.sequences[i];
    sequence_result& r = out.sequences[i];
    r.id = p.spec->id;
    r.start = p.start + right(p.slack);
    r.drafts = p.drafts;
    r.tokens.assign(p.sample ? static_cast<std::size_t>(1 + right(p.drafts)) : 0, {300 + p.start % 97, 0, {}});
    r.confidence.clear();
    if (p.propose)
      r.confidence = {0.9f, 0.8f, 0.7f, 0.6f, 0.5f};
  }
}

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
    answer(*plans_.front(), out);
    plans_.pop_front();
  }
  std::vector<clock_type::time_point> started;

private:
  std::deque<const step_plan*> plans_;
};

// A device of known speed.
class timed_engine final : public step_engine {
public:
  struct busy {
    clock_type::time_point begin, end;
    bool decode = false;
  };

  timed_engine(std::chrono::microseconds step, std::size_t steps) : step_(step) {
    work.reserve(steps);
    device_ = std::thread([this] { run(); });
  }
  ~timed_engine() override {
    stopping_.store(true);
    device_.join();
  }
  void launch(const step_plan& plan) override {
    const std::uint64_t n = launched_.load(std::memory_order_relaxed);
    plans_[n % most_steps_out] = &plan;
    launched_.store(n + 1, std::memory_order_release);
  }
  bool finished() override { return ended_.load(std::memory_order_acquire) > collected_; }
  void collect(step_result& out) override {
    while (!finished())
      std::this_thread::yield();
    answer(*plans_[collected_++ % most_steps_out], out);
  }
  std::vector<busy> work; // to read when nothing is out

private:
  void run() {
    for (std::uint64_t n = 0;; ++n) {
      while (launched_.load(std::memory_order_acquire) <= n) {
        if (stopping_.load())
          return;
        std::this_thread::yield();
      }
      busy b;
      b.begin = clock_type::now();
      b.decode = plans_[n % most_steps_out]->kind == step_kind::decode;
      do
        b.end = clock_type::now();
      while (b.end - b.begin < step_);
      work.push_back(b);
      ended_.store(n + 1, std::memory_order_release);
    }
  }

  std::chrono::microseconds step_;
  std::array<const step_plan*, most_steps_out> plans_{};
  std::atomic<std::uint64_t> launched_{0}, ended_{0};
  std::uint64_t collected_ = 0;
  std::atomic<bool> stopping_{false};
  std::thread device_;
};

// Gives every sequence an arbitrary token at once.
class dice_engine final : public step_engine {
public:
  void launch(const step_plan& plan) override { plans_.push_back(&plan); }
  bool finished() override { return true; }
  void collect(step_result& out) override {
    answer(*plans_.front(), out);
    for (sequence_result& r : out.sequences)
      for (drawn_token& t : r.tokens)
        t.id = soak_tokens + static_cast<std::int32_t>(random_() % 100);
    plans_.pop_front();
  }
  static constexpr std::int32_t soak_tokens = 300;

private:
  std::deque<const step_plan*> plans_;
  std::minstd_rand random_{1};
};

struct bench_config : caf::actor_system_config {
  bench_config() { prepare_local(*this, 2); }
};

struct finish_line {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t left = 0, ended = 0;
};

std::shared_ptr<request_record> request_of(std::uint64_t number, int steps, const std::shared_ptr<live_requests>& live,
                                           const std::shared_ptr<finish_line>& line) {
  auto r = std::make_shared<request_record>();
  r->id = std::to_string(number);
  r->req = {0, number + 1};
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
    ++line->ended;
    line->changed.notify_all();
  };
  [[maybe_unused]] const status fresh = live->add(r->id, r->req);
  return r;
}

// Mean, median and 99th percentile of what was measured, in any order.
template <class Figures> void summarise(std::vector<double> us, Figures& f) {
  if (us.empty())
    return;
  f.mean_us = std::accumulate(us.begin(), us.end(), 0.0) / static_cast<double>(us.size());
  std::sort(us.begin(), us.end());
  f.p50_us = us[us.size() / 2];
  f.p99_us = us[us.size() * 99 / 100];
}

// drive(front, settle) while a whole process of actors lives. settle() waits for the actors of ended requests to end.
template <class Drive> void with_process(const std::shared_ptr<process_setup>& setup, const Drive& drive) {
  bench_config config;
  caf::actor_system system{config};
  const worker_root_actor root = system.spawn(worker_root, std::shared_ptr<const process_setup>(setup));
  caf::scoped_actor self{system};
  gateway_actor front;
  ask(self.ptr(), root, std::chrono::seconds(30), start{})
      .receive([&](const started& s) { front = s.front; }, [](const caf::error&) {});
  const std::size_t lasting = system.registry().running();
  drive(front, [&] { wait_for_actors(system, std::chrono::seconds(5), lasting); });
  tell_from_outside(root, stop{});
  if (const std::size_t left = wait_for_actors(system, std::chrono::seconds(30), 1))
    give_up_on_actors(left);
}

// `sequences` requests decode for `steps` steps through a whole process of actors over `engine`.
void run_decodes(const std::shared_ptr<step_engine>& engine, const std::string& tokenizer_file, int sequences,
                 int nextn, int steps, bool async) {
  const int tokens = steps * (1 + right(nextn));
  auto setup = std::make_shared<process_setup>();
  setup->limits.max_num_seqs = sequences;
  setup->limits.nextn = nextn;
  setup->limits.max_num_batched_tokens = std::max(std::max(4, 1 + nextn) * sequences, 16);
  setup->limits.max_model_len = tokens + 16;
  setup->limits.kv_blocks = 1 + sequences * (blocks_for(tokens + 16) + 1); // room for all to run together
  setup->limits.prefix_cache = false;
  setup->limits.async = async;
  setup->kv.blocks = setup->limits.kv_blocks;
  setup->kv.slots = sequences + 1;
  setup->engines = {engine};
  setup->front.vocabulary = std::make_shared<const tokenizer>(tokenizer::load(tokenizer_file));
  setup->front.seed = 0;
  const auto live = std::make_shared<live_requests>();
  const auto line = std::make_shared<finish_line>();
  line->left = static_cast<std::uint64_t>(sequences);
  with_process(setup, [&](const gateway_actor& front, const auto&) {
    for (int i = 0; i < sequences; ++i)
      tell_from_outside(front, open_request{request_of(static_cast<std::uint64_t>(i), tokens, live, line)});
    std::unique_lock lock(line->mutex);
    line->changed.wait(lock, [&] { return line->left == 0; });
  });
}

double us_between(clock_type::time_point from, clock_type::time_point to) {
  return std::chrono::duration<double, std::micro>(to - from).count();
}

} // namespace

control_path_figures measure_control_path(const std::string& tokenizer_file, int sequences, int steps) {
  const auto engine = std::make_shared<null_engine>(static_cast<std::size_t>(steps));
  run_decodes(engine, tokenizer_file, sequences, 0, steps, true);
  control_path_figures f;
  f.steps = static_cast<int>(engine->started.size());
  f.sequences = sequences;
  std::vector<double> us;
  for (std::size_t i = 1; i < engine->started.size(); ++i)
    us.push_back(us_between(engine->started[i - 1], engine->started[i]));
  summarise(std::move(us), f);
  return f;
}

soak_figures soak_process(const std::string& tokenizer_file, std::uint64_t requests,
                          const std::function<void()>& look) {
  auto setup = std::make_shared<process_setup>();
  setup->limits.max_num_seqs = 64;
  setup->limits.max_num_batched_tokens = 1024;
  setup->limits.max_model_len = 2048;
  setup->limits.kv_blocks = 70; // too few for all: sequences lose their cache now and then
  setup->kv.blocks = setup->limits.kv_blocks;
  setup->kv.snapshot_slots = 64;
  setup->kv.slots = 1 + 2 * 64;
  setup->kv.numerics_id = setup->kv.model_id = "none";
  setup->engines = {std::make_shared<dice_engine>()};
  setup->front.vocabulary = std::make_shared<const tokenizer>(tokenizer::load(tokenizer_file));
  setup->front.seed = 0;
  const auto live = std::make_shared<live_requests>();
  const auto line = std::make_shared<finish_line>();
  std::mt19937_64 random(1);
  soak_figures f;
  with_process(setup, [&](const gateway_actor& front, const auto& settle) {
    const auto look_when_all_ended = [&] {
      std::unique_lock lock(line->mutex);
      line->changed.wait(lock, [&] { return line->left == 0; });
      f.branches = line->ended;
      lock.unlock();
      settle();
      look();
    };
    for (std::uint64_t next = 0; next < requests; ++next) {
      if (next == requests / 10 || next == requests / 2)
        look_when_all_ended();
      const auto r = request_of(next, static_cast<int>(random() % (random() % 8 == 0 ? 200 : 30)), live, line);
      r->prompt.resize(1 + random() % (random() % 8 == 0 ? 1000 : 100));
      const std::uint64_t first = random() % 20; // prefixes that come again
      for (std::size_t i = 0; i < r->prompt.size(); ++i)
        r->prompt[i] = static_cast<std::int32_t>(300 + (first + 7 * i) % 1009);
      r->params.stop_token_ids = {dice_engine::soak_tokens};
      r->params.n = random() % 10 == 0 ? 2 : 1;
      std::unique_lock lock(line->mutex);
      line->changed.wait(lock, [&] { return line->left < 200; });
      line->left += static_cast<std::uint64_t>(r->params.n);
      lock.unlock();
      tell_from_outside(front, open_request{r});
      if (random() % 20 == 0)
        if (const auto req = live->abort(std::to_string(next - random() % std::min<std::uint64_t>(next + 1, 100)))) {
          tell_from_outside(front, cancel{{}, *req, 1, 0, "caller"});
          ++f.aborts;
        }
    }
    look_when_all_ended();
  });
  return f;
}

idle_figures measure_idle_gap(const std::string& tokenizer_file, int sequences, int nextn, int steps, int step_us,
                              bool async) {
  const auto engine =
      std::make_shared<timed_engine>(std::chrono::microseconds(step_us), static_cast<std::size_t>(2 * steps + 64));
  run_decodes(engine, tokenizer_file, sequences, nextn, steps, async);
  std::vector<double> us;
  for (std::size_t i = 1; i < engine->work.size(); ++i)
    if (engine->work[i - 1].decode && engine->work[i].decode)
      us.push_back(us_between(engine->work[i - 1].end, engine->work[i].begin));
  idle_figures f;
  f.gaps = static_cast<int>(us.size());
  summarise(std::move(us), f);
  return f;
}

} // namespace troupe
