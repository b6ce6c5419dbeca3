#include "bench/engine_bench.hpp"
#include "bench/limits.hpp"
#include "runtime/model/config.hpp"
#include <algorithm>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace troupe {

namespace {

using json = nlohmann::ordered_json;

constexpr double mega = 1 << 20;

// Ids that are the same on every run; small multiplicative generator, away from the control tokens at both ends.
std::vector<std::int32_t> prompt_of(int length, int vocab_size, std::uint32_t seed) {
  std::vector<std::int32_t> ids{0};
  std::uint32_t x = seed * 2654435761u + 1;
  while (static_cast<int>(ids.size()) < length) {
    x = x * 1664525u + 1013904223u;
    ids.push_back(
        static_cast<std::int32_t>(300 + (x >> 8) % static_cast<std::uint32_t>(std::max(vocab_size / 2, 301) - 300)));
  }
  return ids;
}

json base(const bench_settings& settings, const char* name, const std::string& test_case) {
  json line{{"bench", name},
            {"case", test_case},
            {"device", settings.engine.device},
            {"threads", threads_of(settings.engine)}};
  line.update(machine_facts());
  if (settings.smoke)
    line["smoke"] = true;
  return line;
}

sampling_params greedy(int tokens) {
  sampling_params params;
  params.temperature = 0;
  params.max_tokens = tokens;
  params.ignore_eos = true;
  params.logprobs = false;
  return params;
}

void check(const generation_result& r) {
  if (r.failure)
    throw std::runtime_error("bench: a request failed: " + r.failure->message);
}

// Output tokens per second of `streams` equal-length requests, from the first token of the last stream to start until
// all ended.
double decode_speed(LLM& engine, int streams, int prompt, int tokens) {
  std::vector<generation_request> requests;
  for (int s = 0; s < streams; ++s) {
    generation_request r;
    r.prompt_ids = prompt_of(prompt, engine.config().vocab_size, static_cast<std::uint32_t>(s));
    requests.push_back(std::move(r));
  }
  double first_ms = 0, total_ms = 0;
  std::int64_t emitted = 0;
  for (const generation_result& r : engine.generate(requests, greedy(tokens))) {
    check(r);
    first_ms = std::max(first_ms, r.usage.ttft_ms);
    total_ms = std::max(total_ms, r.usage.total_ms);
    emitted += static_cast<std::int64_t>(r.token_ids.size()) - 1;
  }
  return static_cast<double>(emitted) / ((total_ms - first_ms) / 1000);
}

// Wall seconds of `troupe generate` with one output token, as a process of its own.
double process_seconds(const engine_options& options) {
  std::vector<std::string> arguments{"troupe",
                                     "generate",
                                     "--ids",
                                     "0,300,301",
                                     "--max-tokens",
                                     "1",
                                     "--temperature",
                                     "0",
                                     "-q",
                                     "--model",
                                     options.model,
                                     "--device",
                                     options.device,
                                     "--threads",
                                     std::to_string(options.threads)};
  std::vector<char*> argv;
  for (std::string& a : arguments)
    argv.push_back(a.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  const stopwatch watch;
  pid_t pid = 0;
  const int fault = ::posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int wait_status = 0;
  if (fault != 0 || ::waitpid(pid, &wait_status, 0) != pid || wait_status != 0)
    throw std::runtime_error("bench: troupe generate could not be run as a process");
  return watch.seconds();
}

std::vector<double> repeated(int times, const std::function<double()>& measure) {
  std::vector<double> values;
  for (int i = 0; i < times; ++i)
    values.push_back(measure());
  return values;
}

// A limit is the best that was seen: other work on the machine only ever takes away.
double best_of(int times, const std::function<double()>& measure) {
  return std::ranges::max(repeated(times, measure));
}

} // namespace

void bench_decode(const bench_settings& settings) {
  const int repeats = settings.smoke ? 1 : 5, tokens = settings.smoke ? 16 : 256;
  const stopwatch loading;
  auto engine = std::make_unique<LLM>(settings.engine);
  const double load_s = loading.seconds();
  decode_speed(*engine, 1, 16, 8); // warm-up

  std::vector<std::pair<int, std::vector<double>>> speeds;
  for (const int streams : {1, 4, 16})
    if (streams <= settings.engine.max_num_seqs * settings.engine.engines)
      speeds.emplace_back(streams, repeated(repeats, [&] { return decode_speed(*engine, streams, 16, tokens); }));
  const process_memory memory = memory_of_process(); // before the limits are measured: that needs memory of its own
  const std::string description = engine->description();
  engine.reset();

  const int threads = threads_of(settings.engine);
  const double seconds = settings.smoke ? 0.05 : 1;
  const token_work work = work_of_token(settings.engine.model);
  const std::size_t bytes = model_bytes(settings.engine.model);
  const double bandwidth = best_of(5, [&] { return read_bandwidth(threads, bytes, seconds / 5); });
  const double peak = best_of(5, [&] { return multiply_add_peak(threads, seconds / 5); });
  const double memory_limit = bandwidth / work.weight_bytes, compute_limit = peak / work.multiply_adds;
  for (const auto& [streams, values] : speeds) {
    json line = base(settings, "decode", "streams " + std::to_string(streams));
    const double speed = median(values);
    line.update({{"tok_per_s", speed},
                 {"best_tok_per_s", *std::ranges::max_element(values)},
                 {"runs", values},
                 {"output_tokens", tokens}});
    if (streams == 1) {
      const double limit = std::min(memory_limit, compute_limit);
      line.update({{"weight_mb_per_token", work.weight_bytes / 1e6},
                   {"multiply_adds_per_token", work.multiply_adds},
                   {"read_gb_per_s", bandwidth / 1e9},
                   {"multiply_adds_per_s", peak},
                   {"limit_memory_tok_per_s", memory_limit},
                   {"limit_compute_tok_per_s", compute_limit},
                   {"fraction_of_limit", speed / limit}});
    }
    settings.emit(line);
  }
  json line = base(settings, "decode", "memory");
  line.update({{"resident_mb", memory.resident_mb},
               {"peak_mb", memory.peak_mb},
               {"model_mb", static_cast<double>(bytes) / mega},
               {"engine", description}});
  settings.emit(line);
  line = base(settings, "decode", "start");
  const std::vector<double> starts = repeated(settings.smoke ? 1 : 4, [&] { return process_seconds(settings.engine); });
  line.update({{"load_s", load_s}, {"process_start_to_end_with_one_token_s", median(starts)}, {"runs", starts}});
  settings.emit(line);
}

namespace {

double prefill_seconds(LLM& engine, int length) {
  generation_request r;
  r.prompt_ids = prompt_of(length, engine.config().vocab_size, static_cast<std::uint32_t>(length));
  const std::vector<generation_result> results = engine.generate({r}, greedy(1));
  check(results.front());
  return results.front().usage.ttft_ms / 1000;
}

// Share of a prompt's rows that consumer layers leave out.
double left_out(const engine_options& options, const model_config& config, int length) {
  const auto [mode, keep] = resolved_yoco(options, config);
  const bool leaves_out = mode == "compact" || mode == "exact";
  return leaves_out ? std::max(length - keep, 0) / static_cast<double>(length) : 0;
}

} // namespace

void bench_prefill(const bench_settings& settings) {
  const int repeats = settings.smoke ? 1 : 5;
  engine_options cold = settings.engine;
  cold.prefix_cache = false; // every repetition computes the same prompt again
  LLM engine(cold);
  const int longest =
      settings.engine.max_model_len > 0 ? settings.engine.max_model_len : engine.config().max_position_embeddings;
  decode_speed(engine, 1, 64, 2); // warm-up
  std::vector<std::pair<int, double>> speeds;
  const int threads = threads_of(settings.engine);
  const double peak = best_of(5, [&] { return multiply_add_peak(threads, settings.smoke ? 0.01 : 0.2); });
  const token_work whole = work_of_token(settings.engine.model);
  for (const int length : {128, 512, 1024, 2048}) {
    if (length >= longest || (settings.smoke && length > 128))
      continue;
    token_work work = whole;
    work.multiply_adds -= left_out(settings.engine, engine.config(), length) * (whole.consumers - whole.shared_kv);
    const std::vector<double> values = repeated(repeats, [&] { return length / prefill_seconds(engine, length); });
    json line = base(settings, "prefill", "prompt " + std::to_string(length));
    const double speed = median(values);
    line.update({{"yoco", resolved_yoco(settings.engine, engine.config()).first},
                 {"tok_per_s", speed},
                 {"best_tok_per_s", *std::ranges::max_element(values)},
                 {"runs", values},
                 {"multiply_adds_per_token", work.multiply_adds},
                 {"multiply_adds_per_s", peak},
                 {"limit_compute_tok_per_s", peak / work.multiply_adds},
                 {"fraction_of_limit", speed * work.multiply_adds / peak}});
    settings.emit(line);
  }
}

void bench_replay(const bench_settings& settings) {
  const int repeats = settings.smoke ? 1 : 5;
  struct mode {
    engine_options options;
    std::unique_ptr<LLM> engine;
    std::vector<double> seconds;
  };
  std::vector<mode> modes;
  for (const char* name : {"off", "compact", "exact"}) {
    engine_options o = settings.engine;
    o.yoco = name;
    o.prefix_cache = false; // every repetition computes the same prompt again
    o.max_num_seqs = 1;
    modes.push_back({o, std::make_unique<LLM>(o), {}});
    decode_speed(*modes.back().engine, 1, 64, 2); // warm-up
  }
  const model_config& config = modes.front().engine->config();
  const token_work work = work_of_token(settings.engine.model);
  const int longest =
      settings.engine.max_model_len > 0 ? settings.engine.max_model_len : config.max_position_embeddings;
  for (const int length : {300, 512, 1024, 2048, 4096, 8192, 16000}) {
    if (length >= longest || (settings.smoke && length > 300))
      continue;
    for (mode& m : modes)
      m.seconds.clear();
    for (int i = 0; i < repeats; ++i)
      for (mode& m : modes) // in turn, so that a slow minute of the machine hits all of them
        m.seconds.push_back(prefill_seconds(*m.engine, length));
    const double off = median(modes.front().seconds);
    for (const mode& m : modes) {
      json line = base(settings, "replay", "prompt " + std::to_string(length) + ", yoco " + m.options.yoco);
      line.update({{"tok_per_s", length / median(m.seconds)},
                   {"ttft_s", median(m.seconds)},
                   {"runs", m.seconds},
                   {"rows_left_out", left_out(m.options, config, length)},
                   {"saved", 1 - median(m.seconds) / off},
                   {"saved_products", left_out(m.options, config, length) * (work.consumers - work.shared_kv) /
                                          (work.multiply_adds - work.head)}});
      settings.emit(line);
    }
  }
}

} // namespace troupe
