#include "bench/drafts_bench.hpp"
#include "runtime/model/config.hpp"
#include <algorithm>
#include <array>

namespace troupe {

namespace {

using json = nlohmann::ordered_json;

constexpr int most_streams = 64, least_rounds = 3;

} // namespace

std::vector<generation_request> trained_questions(int count, int first) {
  constexpr std::array words{"lighthouse", "river",  "harbour", "engine", "turtle", "mirror", "letter", "winter",
                             "garden",     "copper", "market",  "violin", "window", "island", "anchor", "basket"};
  std::vector<generation_request> out;
  for (int i = first; i < first + count; ++i) {
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
      question =
          "Sort these numbers: [" + std::to_string(90 - i % 90) + ", 4, " + std::to_string(7 * (i % 90) + 1) + ", 31]";
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
double speed(LLM& engine, int streams, int tokens, int first_question = 0) {
  sampling_params params;
  params.temperature = 0;
  params.max_tokens = tokens;
  params.ignore_eos = true;
  params.logprobs = false;
  const auto requests = trained_questions(streams, first_question);
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

// Speed of one contestant over that of another in the same round.
std::vector<double> ratios(const contestant& a, const contestant& b) {
  std::vector<double> out;
  for (std::size_t round = 0; round < std::min(a.speeds.size(), b.speeds.size()); ++round)
    out.push_back(a.speeds[round] / b.speeds[round]);
  return out;
}

const contestant& best_fixed(const std::vector<contestant>& all) {
  return *std::max_element(all.begin() + 1, all.end() - 1,
                           [](const auto& a, const auto& b) { return median(a.speeds) < median(b.speeds); });
}

// Whether a fixed length is far from the best one, after a few rounds: the time is better spent on the others.
bool is_beaten(const contestant& c, const std::vector<contestant>& all) {
  constexpr double far = .9;
  return c.speeds.size() >= 2 && &c != &all.front() && &c != &all.back() &&
         median(c.speeds) < far * median(best_fixed(all).speeds);
}

// Fills `speeds`. The first turns do not count: caches are cold, and the adaptive engine, which is one for all loads as
// in service, has to learn the load. more(rounds so far, seconds of the last one): whether there is another one.
template <class F> void run_rounds(std::vector<contestant>& all, int streams, int tokens, const F& more) {
  constexpr int first_turns = 4;
  for (contestant& c : all) {
    c.speeds.clear();
    for (int turn = &c == &all.back() ? 0 : first_turns - 1; turn < first_turns; ++turn)
      speed(*c.engine, streams, tokens, turn * streams);
  }
  double seconds = 0;
  for (int round = 0; more(round, seconds); ++round) {
    const stopwatch watch;
    for (std::size_t i = 0; i < all.size(); ++i) {
      contestant& c = all[(i + static_cast<std::size_t>(round)) % all.size()];
      if (is_beaten(c, all))
        continue;
      c.speeds.push_back(speed(*c.engine, streams, tokens, (first_turns + round) * streams));
    }
    seconds = watch.seconds();
  }
}

json line_of(const bench_settings& settings, int streams, const std::string& what) {
  json line{{"bench", "drafts"},
            {"case", "streams " + std::to_string(streams) + ", " + what},
            {"device", settings.engine.device},
            {"threads", threads_of(settings.engine)}};
  line.update(machine_facts());
  if (settings.smoke)
    line["smoke"] = true;
  line["streams"] = streams;
  return line;
}

void emit(const bench_settings& settings, const contestant& adaptive, const contestant& c, int streams, int tokens) {
  json line = line_of(settings, streams, c.name);
  const auto to_this = ratios(adaptive, c);
  line.update({{"drafts", c.name},
               {"tok_per_s", median(c.speeds)},
               {"tok_per_s_quartiles", quartiles(c.speeds)},
               {"by_confidence_to_this", median(to_this)},
               {"by_confidence_to_this_quartiles", quartiles(to_this)},
               {"rounds", c.speeds.size()},
               {"output_tokens", tokens}});
  settings.emit(line);
}

void emit_comparison(const bench_settings& settings, const std::vector<contestant>& all, int streams) {
  const contestant &none = all.front(), &adaptive = all.back();
  const contestant& best = best_fixed(all);
  json line = line_of(settings, streams, "comparison");
  line.update({{"by_confidence_to_none", median(ratios(adaptive, none))},
               {"best_fixed", best.name},
               {"by_confidence_to_best_fixed", median(ratios(adaptive, best))},
               {"best_fixed_to_none", median(ratios(best, none))}});
  settings.emit(line);
}

} // namespace

void bench_drafts(const bench_settings& settings) {
  std::vector<contestant> all = contestants(settings.engine);
  const std::vector<int> streams = settings.smoke ? std::vector{2} : std::vector{1, 2, 4, 8, 16, 32, most_streams};
  const stopwatch watch;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const int n = streams[i], tokens = settings.smoke ? 8 : n <= 8 ? 96 : 48;
    const double until = settings.seconds * static_cast<double>(i + 1) / static_cast<double>(streams.size());
    const int usual = settings.smoke ? 1 : n <= 8 ? 25 : 13;
    run_rounds(all, n, tokens, [&](int rounds, double seconds) {
      return settings.seconds > 0 ? rounds < least_rounds || watch.seconds() + seconds <= until : rounds < usual;
    });
    for (const contestant& c : all)
      emit(settings, all.back(), c, n, tokens);
    emit_comparison(settings, all, n);
  }
}

} // namespace troupe
