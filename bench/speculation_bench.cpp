#include "bench/speculation_bench.hpp"
#include "runtime/speculation/group_budget.hpp"
#include "runtime/speculation/planner.hpp"
#include <algorithm>
#include <functional>
#include <random>

namespace troupe {

namespace {

using json = nlohmann::ordered_json;

constexpr std::int32_t nextn = 5;

std::vector<timed_size> graph_curve(std::int32_t most) {
  std::vector<timed_size> curve;
  for (std::int32_t rows = 8; rows <= most; rows += 8)
    curve.push_back({rows, 8 + .055 * rows});
  return curve;
}

json line_of(const bench_settings& settings, const std::string& test_case) {
  json line{{"bench", "speculation"}, {"case", test_case}};
  line.update(machine_facts());
  if (settings.smoke)
    line["smoke"] = true;
  return line;
}

void bench_plan(const bench_settings& settings, std::int32_t sequences) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(.3f, 1);
  std::vector<std::vector<float>> confidences(static_cast<std::size_t>(sequences), std::vector<float>(nextn));
  draft_planner planner({.nextn = nextn, .most_rows = sequences * (nextn + 1)},
                        step_cost(graph_curve(sequences * (nextn + 1) + 7)));
  std::vector<draft_candidate> candidates(confidences.size());
  draft_plan plan;
  std::vector<double> times;
  const int repeats = settings.smoke ? 20 : 2000;
  std::int64_t rows = 0;
  for (int n = 0; n < repeats; ++n) {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      for (float& c : confidences[i])
        c = uniform(random);
      candidates[i] = {nextn, 1000, confidences[i], confidences[i]};
    }
    const stopwatch watch;
    planner.plan(static_cast<std::uint64_t>(n), candidates, plan);
    times.push_back(watch.seconds() * 1e6);
    rows += plan.total_rows;
  }
  std::ranges::sort(times);
  json line = line_of(settings, "plan of " + std::to_string(sequences) + " sequences");
  line.update({{"sequences", sequences},
               {"drafts", sequences * nextn},
               {"us_p50", times[times.size() / 2]},
               {"us_p99", times[times.size() * 99 / 100]},
               {"rows_mean", static_cast<double>(rows) / repeats}});
  settings.emit(line);
}

void bench_group(const bench_settings& settings, std::size_t engines) {
  std::mt19937 random(2);
  std::uniform_real_distribution<float> uniform(0, 1);
  const auto curve = graph_curve(256 * (nextn + 1));
  std::vector<std::vector<float>> survivals(engines, std::vector<float>(256 * nextn));
  std::vector<rank_load> loads;
  for (auto& s : survivals) {
    for (float& v : s)
      v = uniform(random);
    std::ranges::sort(s, std::greater<>());
    loads.push_back({256, s, curve, 0});
  }
  std::vector<double> times;
  for (int n = 0; n < (settings.smoke ? 5 : 500); ++n) {
    const stopwatch watch;
    (void)best_group_budget(loads);
    times.push_back(watch.seconds() * 1e6);
  }
  json line = line_of(settings, "budget of " + std::to_string(engines) + " engines");
  line.update({{"engines", engines}, {"us_p50", median(times)}});
  settings.emit(line);
}

} // namespace

void bench_speculation(const bench_settings& settings) {
  for (const std::int32_t sequences : {1, 16, 64, 256})
    bench_plan(settings, sequences);
  bench_group(settings, 8);
}

} // namespace troupe
