// What a step costs that was planned before the host saw that its sequences had ended (engine.md §8.3, D22).
#include "tests/support/gpu.hpp"
#include "tests/support/hand_engine.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

std::vector<hand_request> made_requests() {
  std::vector<hand_request> out;
  for (std::uint64_t i = 0; i < 4; ++i) {
    hand_request r;
    std::mt19937_64 random(i);
    r.prompt = {0};
    while (r.prompt.size() < 8 + 20 * i) // repetitive, so that drafts are right now and then
      r.prompt.push_back(r.prompt.size() > 6 ? r.prompt[r.prompt.size() - 3]
                                             : static_cast<std::int32_t>(300 + random() % 4000));
    r.params.max_tokens = 60;
    r.params.temperature = i % 2 == 0 ? 0.0f : 0.7f;
    r.seed = i;
    out.push_back(std::move(r));
  }
  return out;
}

// Each now stops with a token that it gave before, somewhere in the middle.
void let_stop(std::vector<hand_request>& requests, const std::map<int, hand_output>& free) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto& tokens = free.at(static_cast<int>(i)).tokens;
    requests[i].params.stop_token_ids = {tokens.at(10 + 7 * i)};
  }
}

const std::vector<int> everybody{0, 1, 2, 3};

} // namespace

BOOST_AUTO_TEST_SUITE(late_step)

BOOST_AUTO_TEST_CASE(a_sequence_that_has_stopped_costs_one_row_more) {
  for (const bool rejection : {false, true}) {
    std::vector<hand_request> requests = made_requests();
    hand_engine_options o{.nextn = 5, .rejection = rejection, .whole_blocks = true};
    let_stop(requests, hand_engine(o).run(requests, everybody));
    hand_engine sync(o);
    const auto expected = sync.run(requests, everybody);
    BOOST_TEST((rejection || expected == hand_engine({}).run(requests, everybody)));
    o.async = true;
    for (const std::string& name : with_gpu({"cpu", "queued cpu"}))
      for (const decode_form form : {decode_form::automatic, decode_form::padded}) {
        o.device = name, o.decode = form;
        hand_engine late(o);
        BOOST_TEST((late.run(requests, everybody) == expected), name);
        std::int64_t stopped = 0;
        for (const auto& [i, out] : expected)
          stopped += out.end == finish_reason::stop;
        BOOST_TEST(stopped == 4);
        BOOST_TEST_CONTEXT(name << ", rejection " << rejection)
        BOOST_TEST(late.rows() == sync.rows() + stopped);
      }
  }
}

BOOST_AUTO_TEST_SUITE_END()
