// The model engine driven by plans that a test writes: launched and collected with one or two steps out.
#pragma once
#include "runtime/model/model_engine.hpp"
#include "tests/support/hand_plan.hpp"
#include "tests/support/tiny_model.hpp"
#include <deque>
#include <map>

namespace troupe::test {

// The embedded model on one device, for several engines.
struct tiny_device {
  explicit tiny_device(const std::string& device_name, int positions = 1024)
      : name(device_name), max_model_len(positions), dev(open_device(name, {.threads = 1, .cores = {}})),
        weights(load_weights(tiny_checkpoint(), *dev, {.experts = true, .max_positions = positions + 8},
                             tiny_token_map())) {}

  std::unique_ptr<model_engine> engine(decode_form decode = decode_form::eager, int max_logit_rows = 64, int nextn = 0,
                                       bool rejection = false) const {
    runner_options o;
    o.max_rows = 160;
    o.max_sequences = 12;
    o.kv_blocks = 100;
    o.state_slots = 24;
    o.max_model_len = max_model_len;
    o.max_logit_rows = max_logit_rows;
    o.decode = decode;
    o.nextn = nextn;
    o.rejection = rejection;
    o.defers_drafter = nextn > 0;
    return std::make_unique<model_engine>(weights, dev, o);
  }

  std::string name;
  int max_model_len;
  std::shared_ptr<device> dev;
  std::shared_ptr<const model_weights> weights;
};

// Launches plans and collects results, at most `depth` steps out.
class step_driver {
public:
  step_driver(step_engine& engine, std::size_t depth) : engine_(engine), depth_(depth) {}
  ~step_driver() { finish(); }

  void know(hand_run& s) { runs_[s.spec->id] = &s; }
  // The plan to fill next; waits until one more step may be out.
  step_plan& next() {
    while (out_.size() >= depth_)
      collect();
    out_.emplace_back(std::make_unique<step_plan>());
    out_.back()->number = ++number_;
    return *out_.back();
  }
  void launch() { engine_.launch(*out_.back()); } // of the plan that next() gave
  void drop() { out_.pop_back(); }                // of that plan, instead
  void finish() {
    while (!out_.empty())
      collect();
  }

private:
  void collect() {
    const step_plan& plan = *out_.front();
    step_result r;
    engine_.collect(r);
    BOOST_REQUIRE(r.sequences.size() == plan.sequences.size());
    for (const sequence_result& s : r.sequences)
      take(*runs_.at(s.id), s);
    const auto& c = tiny_checkpoint()->config();
    BOOST_TEST(std::accumulate(r.expert_counts.begin(), r.expert_counts.end(), std::uint64_t{0}) ==
               plan.tokens.size() * static_cast<std::size_t>(c.num_hidden_layers * c.num_experts_per_tok));
    out_.pop_front();
  }

  step_engine& engine_;
  std::size_t depth_;
  std::uint64_t number_ = 0;
  std::deque<std::unique_ptr<step_plan>> out_;
  std::map<sequence_id, hand_run*> runs_;
};

// One sequence from its prompt to its end; `place` says where it lives.
inline void run_to_end(step_engine& engine, hand_run& s, std::size_t depth, std::int32_t most_rows) {
  step_driver d(engine, depth);
  d.know(s);
  while (s.prompt_left() > 0) {
    add_rows(d.next(), s, std::min(s.prompt_left(), most_rows));
    d.launch();
  }
  while (!s.planned_out()) {
    step_plan& plan = d.next();
    add_rows(plan, s, 1);
    d.launch();
  }
}

} // namespace troupe::test
