#include "actors/grammar_compiler.hpp"
#include "actors/processor_time.hpp"

namespace troupe {

namespace {

using self_ptr = grammar_compiler_actor::stateful_pointer<grammar_compiler_state>;

grammar_done compile(const grammar_settings& settings, const grammar_job& j) {
  grammar_done done;
  done.number = j.number;
  double start = thread_seconds();
  const auto out_of_time = [&] {
    return thread_seconds() - start > settings.compile_seconds || j.given_up->load(std::memory_order_relaxed);
  };
  try {
    const auto vocabulary = settings.vocabulary->get(); // made for all constraints by the first one
    start = thread_seconds();
    const auto made = compile_constraint(*j.what, vocabulary, settings.limits, out_of_time);
    if (made)
      done.grammar = *made;
    else
      done.failure = made.failure();
  } catch (const std::exception& e) { // not even memory
    done.failure = {"so_internal", std::string("compiling it failed: ") + e.what()};
  }
  done.seconds = thread_seconds() - start;
  return done;
}

} // namespace

grammar_compiler_actor::behavior_type grammar_compiler(self_ptr self, const grammar_settings& settings,
                                                       const grammar_pool_actor& pool) {
  state_of(self).settings = settings;
  watch(self, state_of(self).watched, pool, [=](const caf::error&) { self->quit(); });
  return {
      [=](const grammar_job& j) { return compile(state_of(self).settings, j); },
      [=](const stop&) { self->quit(); },
  };
}

} // namespace troupe
