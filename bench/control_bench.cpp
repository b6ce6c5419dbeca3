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

} // namespace troupe
