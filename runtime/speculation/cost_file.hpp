// The step-cost curve of a model on a machine in a file, so that an engine need not measure it at every start
// (speculation.md §6.4). JSON:
//   {"version": 1, "written": unix seconds, "model": "...", "device": "...", "curve": [[rows, ms], ...]}
#pragma once
#include "runtime/base/result.hpp"
#include "runtime/speculation/budget.hpp"
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace troupe {

// What a curve belongs to: another model, another device or other sizes, and it says nothing.
struct cost_key {
  std::string model;  // digest of the checkpoint and how it is computed, with what changes its speed
  std::string device; // name and numerics id
  std::vector<std::int32_t> sizes;
};

// Seconds that a curve counts: the machine may be another by then.
inline constexpr std::int64_t cost_file_life = 3600;

// Failure: code not_found where there is no file, else unusable with what is wrong and what happens instead. Neither
// keeps an engine from starting.
// Whether a curve may be kept there: nothing is there yet, in a folder that is, or a curve of whatever engine. Code:
// unusable.
status check_curve_file(const std::string& path);
// `now`: unix seconds.
result<std::vector<timed_size>> load_cost_curve(const std::string& path, const cost_key& key, std::int64_t now);

// Written whole or not at all.
status save_cost_curve(const std::string& path, const cost_key& key, std::span<const timed_size> curve,
                       std::int64_t now);

} // namespace troupe
