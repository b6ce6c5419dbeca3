// What start-up has to see to, so that no later step fails for want of memory (C21).
#include "tests/support/hand_driver.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

// A device that writes down what is allocated.
class watched_device final : public device {
public:
  explicit watched_device(std::unique_ptr<device> inner) : inner_(std::move(inner)) {}

  std::vector<std::string> allocated;

  std::string name() const override { return inner_->name(); }
  std::string description() const override { return inner_->description(); }
  std::string numerics_id() const override { return inner_->numerics_id(); }
  device_memory memory() const override { return inner_->memory(); }
  buffer allocate(std::size_t bytes, const std::string& what) override {
    allocated.push_back(what);
    return inner_->allocate(bytes, what);
  }
  std::unique_ptr<stream> make_stream() override { return inner_->make_stream(); }
  std::shared_ptr<const weight> pack(const weight_source& s) override { return inner_->pack(s); }
  std::shared_ptr<const row_table> pack_table(const weight_source& s) override { return inner_->pack_table(s); }
  std::shared_ptr<expert_set> pack_experts(std::span<const expert_source> s) override {
    return inner_->pack_experts(s);
  }
  void replace_expert(expert_set& set, std::int32_t slot, const expert_source& s) override {
    inner_->replace_expert(set, slot, s);
  }
  op_table& ops() override { return inner_->ops(); }
  bool records() const override { return inner_->records(); }

private:
  std::unique_ptr<device> inner_;
};

std::vector<std::int32_t> text(std::int32_t length) {
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < length; ++i)
    ids.push_back(300 + i * 7 % 4000);
  return ids;
}

} // namespace

BOOST_AUTO_TEST_SUITE(startup)

// The largest steps need not run at the start: working memory is taken for them when the engine is made, whatever runs
// first. Only what requests bring as lists grows later (rules of sampling and likeliest tokens: kilobytes). The cpu
// device keeps scratch of its own on the heap, which grows with steps. With drafts and varlen every size of decode step
// has run once besides, to be timed (actors/timed_steps).
BOOST_AUTO_TEST_CASE(c21_the_largest_steps_find_their_memory) {
  const auto dev = std::make_shared<watched_device>(make_device("cpu", {.threads = 1, .cores = {}}));
  runner_options o;
  o.max_rows = 160;
  o.max_sequences = 12;
  o.kv_blocks = 100;
  o.state_slots = 24;
  o.max_model_len = 1024;
  o.max_logit_rows = 12;
  model_engine engine(
      load_weights(tiny_checkpoint(), *dev, {.experts = true, .max_positions = 1024 + 8}, tiny_token_map()), dev, o);
  const std::size_t at_start = dev->allocated.size();
  BOOST_TEST(at_start > 20u);

  sampling_params p;
  p.temperature = 0;
  p.max_tokens = 3;
  std::vector<hand_run> runs;
  for (std::uint64_t id = 1; id <= 12; ++id)
    runs.emplace_back(id, text(id == 1 ? 1021 : 14), p);
  step_driver d(engine, 2);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    runs[i].place(static_cast<std::int32_t>(i) + 1, i == 0 ? 1 : 8 + static_cast<std::int32_t>(i), i == 0 ? 1024 : 20);
    d.know(runs[i]);
  }
  const auto prefill = [&](std::size_t run, std::int32_t rows) {
    step_plan& plan = d.next();
    plan.kind = step_kind::prefill;
    add_rows(plan, runs[run], rows);
    d.launch();
  };
  prefill(0, 1);
  while (runs[0].prompt_left() > 0) // up to the model's length, as many rows as a step may have
    prefill(0, std::min(runs[0].prompt_left(), o.max_rows));
  step_plan& many = d.next(); // as many sequences as a step may have
  many.kind = step_kind::prefill;
  for (std::size_t i = 1; i < runs.size(); ++i)
    add_rows(many, runs[i], 14);
  d.launch();
  while (!runs[0].planned_out()) {
    step_plan& plan = d.next();
    for (hand_run& r : runs)
      add_rows(plan, r, 1);
    d.launch();
  }
  d.finish();
  for (const hand_run& r : runs)
    BOOST_TEST(r.output().size() == 3u);
  std::vector<std::string> later(dev->allocated.begin() + static_cast<std::ptrdiff_t>(at_start), dev->allocated.end());
  std::erase_if(later, [](const std::string& what) { return what == "sampling rules" || what == "sampled tokens"; });
  BOOST_TEST(later == std::vector<std::string>{}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
