// troupe bench: names to the measurements of bench/.
#include "bench/control_bench.hpp"
#include "bench/drafts_bench.hpp"
#include "bench/engine_bench.hpp"
#include "bench/expert_bench.hpp"
#include "bench/grammar_bench.hpp"
#include "bench/kernels_bench.hpp"
#include "bench/mask_bench.hpp"
#include "bench/scheduler_bench.hpp"
#include "bench/speculation_bench.hpp"
#include "bench/text_bench.hpp"
#include "bench/transport_bench.hpp"
#include "cli/engine_settings.hpp"
#include "cli/line_io.hpp"
#include "cli/log.hpp"
#include "cli/verbs.hpp"
#include <array>

namespace troupe {

namespace {

struct named_bench {
  const char* name;
  void (*run)(const bench_settings&);
};
void bench_operations(const bench_settings& settings) {
  bench_kernels(settings.engine.device, threads_of(settings.engine), settings.smoke ? "wq_a" : "",
                [&settings](const std::string& text) {
                  nlohmann::ordered_json line{{"bench", "kernels"}};
                  line.update(nlohmann::ordered_json::parse(text));
                  line.update(machine_facts());
                  if (settings.smoke)
                    line["smoke"] = true;
                  settings.emit(line);
                });
}

constexpr std::array benches{named_bench{"decode", bench_decode},
                             named_bench{"prefill", bench_prefill},
                             named_bench{"replay", bench_replay},
                             named_bench{"drafts", bench_drafts},
                             named_bench{"acceptance", bench_acceptance},
                             named_bench{"control", bench_control},
                             named_bench{"idle", bench_idle},
                             named_bench{"scheduler", bench_scheduler},
                             named_bench{"soak", bench_soak},
                             named_bench{"tokenizer", bench_text},
                             named_bench{"grammar", bench_grammar},
                             named_bench{"masks", bench_masks},
                             named_bench{"speculation", bench_speculation},
                             named_bench{"transport", bench_transport},
                             named_bench{"experts", bench_experts},
                             named_bench{"kernels", bench_operations}};

} // namespace

std::string bench_names() {
  std::string names;
  for (const named_bench& b : benches)
    names += (names.empty() ? "" : ", ") + std::string(b.name);
  return names;
}

int run_bench(const bench_options& options) {
  for (const named_bench& b : benches) {
    if (options.name != b.name)
      continue;
    std::optional<line_writer> file;
    if (!options.json_file.empty())
      file.emplace(open_output_anew(options.json_file, open_input("-")));
    line_writer out(open_output("-"));
    bool written = true;
    bench_settings settings;
    settings.engine = resolve_engine_options(options.engine, process_environment());
    settings.smoke = options.smoke;
    settings.seconds = options.seconds;
    settings.emit = [&](const nlohmann::ordered_json& line) {
      for (line_writer* to : {&out, file ? &*file : nullptr})
        if (to != nullptr)
          written = succeeded(to->write_line(line.dump())) && written;
    };
    b.run(settings);
    return written ? exit_ok : exit_request_failed;
  }
  throw config_error("command line", "NAME", options.name, "there is no benchmark of this name",
                     "use one of: " + bench_names());
}

} // namespace troupe
