// How long decode steps of an engine take, measured before it serves anybody (speculation.md §6.4).
#pragma once
#include "runtime/scheduler/limits.hpp"
#include "runtime/scheduler/step_engine.hpp"
#include "runtime/speculation/starting_curve.hpp"
#include "runtime/speculation/step_cost.hpp"

namespace troupe {

// Runs one step of `rows` rows without a draft round through an engine that nothing else uses yet: sequences with
// drafts of their own at the beginning of their text, so many that their rows make up the step, of ids below
// `vocabulary`. What they leave in caches and slots is read by nobody. Returns its time in ms, 0 if the step failed.
double time_decode_step(step_engine& engine, const scheduler_limits& limits, std::int32_t vocabulary,
                        std::int32_t rows);

// What a draft round adds to such steps, from steps of one and of up to 4 sequences with one row each. No step begins
// when `most_ms` are spent; what is not known then is 0, until real steps teach it.
drafting_time time_drafting(step_engine& engine, const scheduler_limits& limits, std::int32_t vocabulary,
                            double most_ms = 40);

// Row counts of decode steps: every one up to the most that a step can have, or the sizes that an engine fills steps
// up to.
std::vector<std::int32_t> decode_sizes(const scheduler_limits& limits, bool filled);

} // namespace troupe
