#include "bench/drafts_bench.hpp"
#include "runtime/model/config.hpp"
#include <algorithm>
#include <array>

namespace troupe {

namespace {

using json = nlohmann::ordered_json;

constexpr int most_streams = 64;

} // namespace

std::vector<generation_request> trained_questions(int count) {
  constexpr std::array words{"lighthouse", "river",  "harbour", "engine", "turtle", "mirror", "letter", "winter",
                             "garden",     "copper", "market",  "violin", "window", "island", "anchor", "basket"};
  std::vector<generation_request> out;
  for (int i = 0; i < count; ++i) {
    const std::string word = words[static_cast<std::size_t>(i) % words.size()];
    std::string question;
    switch ((i + i / 16) % 4) {
    case 0:
      question = "What is the meaning of \"" + word + "\"?";
      break;
    case 1:
      question = "Describe \"" + word + "\" as JSON.";
      break;
    case 2:
      question = "Sort these numbers: [" + std::to_string(90 - i) + ", 4, " + std::to_string(7 * i + 1) + ", 31]";
      break;
    default:
      question = "Give synonyms of \"" + word + "\".";
    }
    generation_request r;
    r.prompt = "<｜begin▁of▁sentence｜><｜User｜>" + question + "<｜Assistant｜></think>";
    r.raw = true;
    out.push_back(std::move(r));
  }
  return out;
}

namespace {

// Output tokens per second of wall time, prompts included: they are short.
double speed(LLM& engine, int streams, int tokens) {
  sampling_params params;
  params.temperature = 0;
  params.max_tokens = tokens;
  params.ignore_eos = true;
  params.logprobs = false;
  const auto requests = trained_questions(streams);
  const stopwatch watch;
  std::int64_t emitted = 0;
  for (const generation_result& r : engine.generate(requests, params)) {
    if (r.failure)
      throw std::runtime_error("bench: a request failed: " + r.failure->message);
    emitted += static_cast<std::int64_t>(r.token_ids.size());
  }
  return static_cast<double>(emitted) / watch.seconds();
}

struct contestant {
  std::string name;
  std::unique_ptr<LLM> engine;
  std::vector<double> speeds; // [rounds] at the current number of streams
};

std::vector<contestant> contestants(const engine_options& options) {
  std::vector<contestant> out;
  const auto add = [&](std::string name, int nextn, bool varlen) {
    engine_options o = options;
    o.nextn = nextn;
    if (nextn > 0)
      o.varlen = varlen;
    o.prefix_cache = false;
    o.max_num_seqs = std::max(o.max_num_seqs, most_streams);
    out.push_back({std::move(name), std::make_unique<LLM>(o), {}});
    speed(*out.back().engine, 1, 8); // warm-up
  };
  add("none", 0, false);
  const int block = out.front().engine->config().dspark_block_size;
  if (out.front().engine->config().num_nextn_predict_layers == 0)
    throw config_error("", "model", options.model, "the checkpoint has no drafter", "measure one that has");
  for (int nextn = 1; nextn <= block; ++nextn)
    add("fixed " + std::to_string(nextn), nextn, false);
  add("by confidence", block, true);
  return out;
}

std::array<double, 3> quartiles(std::vector<double> v) {
  std::ranges::sort(v);
  return {v[v.size() / 4], v[v.size() / 2], v[v.size() * 3 / 4]};
}

} // namespace

void bench_drafts(const bench_settings& settings) {
  std::vector<contestant> all = contestants(settings.engine);
  const std::vector<int> streams = settings.smoke ? std::vector{2} : std::vector{1, 2, 4, 8, 16, 32, most_streams};
  for (const int n : streams) {
    // The adaptive engine has decided by its first run; it is one for all, as in service.
    const int tokens = settings.smoke ? 8
                       : n <= 2       ? 192
                       : n <= 8       ? 96
                                      : 48,
              rounds = settings.smoke ? 1
                       : n <= 8       ? 13
                                      : 9;
    for (contestant& c : all) {
      c.speeds.clear();
      speed(*c.engine, n, std::min(tokens, 32));
    }
    for (int round = 0; round < rounds; ++round)
      for (std::size_t i = 0; i < all.size(); ++i) {
        contestant& c = all[(i + static_cast<std::size_t>(round)) % all.size()];
        c.speeds.push_back(speed(*c.engine, n, tokens));
      }
    for (const contestant& c : all) {
      std::vector<double> ratios;
      for (std::size_t round = 0; round < c.speeds.size(); ++round)
        ratios.push_back(all.back().speeds[round] / c.speeds[round]);
      json line{{"bench", "drafts"},
                {"case", "streams " + std::to_string(n) + ", " + c.name},
                {"device", settings.engine.device},
                {"threads", threads_of(settings.engine)}};
      line.update(machine_facts());
      if (settings.smoke)
        line["smoke"] = true;
      line.update({{"streams", n},
                   {"drafts", c.name},
                   {"tok_per_s", median(c.speeds)},
                   {"tok_per_s_quartiles", quartiles(c.speeds)},
                   {"by_confidence_to_this", median(ratios)},
                   {"by_confidence_to_this_quartiles", quartiles(ratios)},
                   {"rounds", rounds},
                   {"output_tokens", tokens}});
      settings.emit(line);
    }
  }
}

} // namespace troupe
