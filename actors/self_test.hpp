// Whether engines of one numerics id do compute the same here and there (cluster.md §3.14).
#pragma once
#include "runtime/scheduler/limits.hpp"
#include "runtime/scheduler/step_engine.hpp"
#include <string>

namespace troupe {

// A digest of all logits behind a short prompt, and behind one given token more, from an engine that nothing else uses
// yet; what that leaves in caches and slots is read by nobody. Empty where the engine's steps are too short for it.
// Throws device_error.
std::string self_test(step_engine& engine, const scheduler_limits& limits);

} // namespace troupe
