#include "runtime/scheduler/engine_choice.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;

namespace {

engine_load load_of(engine_kind kind, std::int64_t outstanding = 0) {
  return {true, outstanding, 100, 100, kind, false};
}
constexpr auto normal = engine_kind::normal, prompt = engine_kind::prompt, completion = engine_kind::completion;

} // namespace

BOOST_AUTO_TEST_SUITE(engine_choices)

BOOST_AUTO_TEST_CASE(prompts_and_outputs_go_to_engines_of_their_own) {
  engine_chooser chooser;
  std::vector<engine_load> e{load_of(prompt, 500), load_of(prompt, 5), load_of(completion, 9), load_of(completion, 3)};
  const engine_choice c = chooser.choose(e, {50, 10, false, false}, {});
  BOOST_TEST(c.engine == 3u);
  BOOST_TEST(c.prompt == 1u);
  // One token has nothing to hand over.
  const engine_choice one = chooser.choose(e, {1, 10, false, false}, {});
  BOOST_TEST(one.engine == 3u);
  BOOST_TEST(one.prompt == no_engine);
  const engine_choice whole = chooser.choose(e, {50, 10, false, true}, {});
  BOOST_TEST(whole.engine == 3u);
  BOOST_TEST(whole.prompt == no_engine);
  // Rows of the prompt are wanted: one engine for everything, one for prompts.
  const engine_choice rows = chooser.choose(e, {50, 10, true, false}, {});
  BOOST_TEST(rows.engine == 1u);
  BOOST_TEST(rows.prompt == no_engine);
}

BOOST_AUTO_TEST_CASE(a_prompt_goes_where_its_beginning_is) {
  engine_chooser chooser;
  std::vector<engine_load> e{load_of(prompt), load_of(prompt), load_of(completion)};
  const std::vector<std::uint64_t> chain{11, 12};
  BOOST_TEST(chooser.choose(e, {300, 10, false, false}, chain).prompt == 0u);
  e[0].outstanding_tokens = 500; // a little busier
  BOOST_TEST(chooser.choose(e, {300, 10, false, false}, chain).prompt == 0u);
  BOOST_TEST(chooser.choose(e, {300, 10, false, false}, {}).prompt == 1u);
  chooser.forget(0);
  BOOST_TEST(chooser.choose(e, {300, 10, false, false}, chain).prompt == 1u);
}

BOOST_AUTO_TEST_CASE(without_engines_for_prompts_the_others_compute_everything) {
  engine_chooser chooser;
  std::vector<engine_load> e{load_of(prompt), load_of(completion, 9), load_of(completion, 3)};
  e[0].accepting = false;
  for (const bool rows : {false, true}) {
    const engine_choice c = chooser.choose(e, {50, 10, rows, false}, {});
    BOOST_TEST(c.engine == 2u);
    BOOST_TEST(c.prompt == no_engine);
  }
}

BOOST_AUTO_TEST_CASE(without_engines_for_outputs_requests_wait) {
  engine_chooser chooser;
  std::vector<engine_load> e{load_of(prompt), load_of(completion)};
  e[1].accepting = false;
  const engine_choice c = chooser.choose(e, {50, 10, false, false}, {});
  BOOST_TEST(c.engine == no_engine);
  BOOST_TEST(!c.full);
}

BOOST_AUTO_TEST_CASE(another_one_is_chosen_where_there_is_no_room) {
  engine_chooser chooser;
  std::vector<engine_load> e{load_of(prompt), load_of(completion, 3), load_of(completion, 9)};
  e[1].full = true;
  BOOST_TEST(chooser.choose(e, {50, 10, false, false}, {}).engine == 2u);
  BOOST_TEST(chooser.choose(e, {1, 10, false, false}, {}).engine == 1u); // it keeps its own queue of whole requests
  e[2].full = true;
  const engine_choice c = chooser.choose(e, {50, 10, false, false}, {});
  BOOST_TEST(c.engine == no_engine);
  BOOST_TEST(c.full);
}

BOOST_AUTO_TEST_CASE(engines_for_everything_take_part) {
  engine_chooser chooser;
  std::vector<engine_load> e{load_of(normal, 2), load_of(prompt), load_of(completion, 9)};
  const engine_choice c = chooser.choose(e, {50, 10, false, false}, {});
  BOOST_TEST(c.engine == 0u);
  BOOST_TEST(c.prompt == no_engine);
  e[0].outstanding_tokens = 20;
  BOOST_TEST(chooser.choose(e, {50, 10, false, false}, {}).prompt == 1u);
  BOOST_TEST(engine_chooser().choose({}, {50, 10, false, false}, {}).engine == no_engine);
}

BOOST_AUTO_TEST_SUITE_END()
