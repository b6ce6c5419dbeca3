#include "actors/grammar_compiler.hpp"
#include "actors/processor_time.hpp"

namespace troupe {

namespace {

using self_ptr = grammar_compiler_actor::stateful_pointer<grammar_compiler_state>;

std::string shown_seconds(double s) {
  std::string text = std::to_string(s);
  while (text.ends_with('0'))
    text.pop_back();
  return text.ends_with('.') ? text + '0' : text;
}

grammar_done compile(const grammar_settings& settings, const grammar_job& j) {
  grammar_done done;
  done.number = j.number;
  bool too_long = false;
  const double start = thread_seconds();
  const auto out_of_time = [&] {
    too_long = thread_seconds() - start > settings.compile_seconds;
    return too_long || j.given_up->load(std::memory_order_relaxed);
  };
  try {
    const auto made = compile_constraint(*j.what, settings.vocabulary->get(), settings.limits, out_of_time);
    if (made)
      done.grammar = *made;
    else
      done.failure = made.failure();
  } catch (const std::exception& e) { // not even memory
    done.failure = {"so_internal", std::string("compiling it failed: ") + e.what()};
  }
  done.seconds = thread_seconds() - start;
  if (too_long && done.failure.code == "so_timeout")
    done.failure = {"so_too_complex", "compiling it takes more than " + shown_seconds(settings.compile_seconds) +
                                          " s of processor time; simplify it"};
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
