#include "bench/control_bench.hpp"
#include "actors/control_bench.hpp"

namespace troupe {

void bench_control(const bench_settings& settings) {
  const std::string tokenizer_file = settings.engine.model + "/tokenizer.json";
  for (const int sequences : {1, 16, 64}) {
    const int steps = settings.smoke ? 50 : sequences > 16 ? 2000 : 5000;
    const control_path_figures figures = measure_control_path(tokenizer_file, sequences, steps);
    nlohmann::ordered_json line{{"bench", "control"}, {"case", "sequences " + std::to_string(sequences)}};
    line.update(machine_facts());
    line.update({{"us_per_step", figures.mean_us},
                 {"p50_us", figures.p50_us},
                 {"p99_us", figures.p99_us},
                 {"steps", figures.steps}});
    if (settings.smoke)
      line["smoke"] = true;
    settings.emit(line);
  }
}

void bench_idle(const bench_settings& settings) {
  const std::string tokenizer_file = settings.engine.model + "/tokenizer.json";
  constexpr int step_us = 1000;
  const auto measure = [&](int sequences, int nextn, bool async) {
    const idle_figures figures =
        measure_idle_gap(tokenizer_file, sequences, nextn, settings.smoke ? 50 : 2000, step_us, async);
    nlohmann::ordered_json line{{"bench", "idle"},
                                {"case", "sequences " + std::to_string(sequences) +
                                             (nextn > 0 ? ", " + std::to_string(nextn) + " drafts each" : "") +
                                             (async ? ", async" : ", one step out")}};
    line.update(machine_facts());
    line.update({{"step_us", step_us},
                 {"gap_us", figures.mean_us},
                 {"p50_us", figures.p50_us},
                 {"p99_us", figures.p99_us},
                 {"gaps", figures.gaps}});
    if (settings.smoke)
      line["smoke"] = true;
    settings.emit(line);
  };
  for (const int sequences : {1, 16, 64, 256})
    for (const bool async : {false, true})
      measure(sequences, 0, async);
  for (const int sequences : {1, 16, 64, 256})
    measure(sequences, 5, true);
}

} // namespace troupe
