// The determinism matrix: tokens and log-probabilities of a request, bit by bit, under every setting that must not
// matter, alone and in pairs, against the same request run alone.
#include "actors/llm.hpp"
#include "runtime/base/noise.hpp"
#include "runtime/kv/block_pool.hpp"
#include "runtime/model/config.hpp"
#include "tests/support/covering_array.hpp"
#include "tests/support/hand_engine.hpp"
#include "tests/support/metric_text.hpp"
#include "tests/support/sanitizers.hpp"
#include <algorithm>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <span>

using namespace troupe;

namespace {

constexpr int prompts = test::by_build(8, 2, 2), output_tokens = test::by_build(32, 6, 6);
constexpr std::size_t most_rows = test::by_build(20, 6, 4);
constexpr bool fills_the_cache = !test::any_sanitizer; // their prompts are too short for a second block

// What must not matter. The defaults are those of the reference run, except that it runs every request alone.
struct cell {
  int seqs = 16, rows = 1024, threads = 1, engines = 1, ep = 1, cp = 1;
  int order = 0;           // of submission: as given, reversed, or shuffled by this number
  bool strangers = false;  // other requests join when the first output is there
  int spare_blocks = -1;   // of KV, beside what the longest request needs; few: sequences lose their cache to others
  bool group_sync = false; // of two engines at least
  int nextn = 0;           // drafts that a step may verify
  bool varlen = false;     // as many as pay
  bool async = false;
  bool prefix_cache = false; // then all requests run a second time, on what the first has left
  bool yoco_off = false;     // which changes bytes: such cells have a reference of their own
};

// Beside those of one request: two requests of one length take steps side by side, and one loses its cache. With fewer
// that depends on the other axes.
constexpr int few_blocks = 5;

// Batches beyond what the requests make: others fill them.
constexpr int large_batch = 255;

struct axis {
  const char* name;
  std::vector<std::pair<const char*, void (*)(cell&)>> values; // the first one is the reference's
  int crossed = 0; // so many of the first are combined with other axes, the rest only run alone; 0 = all
};

const std::vector<axis> axes{
    {"batch",
     {{"16", [](cell& c) { c.seqs = 16; }},
      {"1", [](cell& c) { c.seqs = 1; }},
      {"2", [](cell& c) { c.seqs = 2; }},
      {"7", [](cell& c) { c.seqs = 7; }},
      {"9", [](cell& c) { c.seqs = 9; }},
      {"8", [](cell& c) { c.seqs = 8; }},
      {"64", [](cell& c) { c.seqs = 64; }},
      {"255", [](cell& c) { c.seqs = 255; }},
      {"256", [](cell& c) { c.seqs = 256; }}},
     5},
    {"order",
     {{"as given", [](cell& c) { c.order = 0; }},
      {"reversed", [](cell& c) { c.order = 1; }},
      {"shuffled", [](cell& c) { c.order = 2; }},
      {"shuffled again", [](cell& c) { c.order = 3; }},
      {"shuffled a third time", [](cell& c) { c.order = 4; }}}},
    {"company", {{"none", [](cell& c) { c.strangers = false; }}, {"strangers", [](cell& c) { c.strangers = true; }}}},
    {"chunk",
     {{"whole", [](cell& c) { c.rows = 1024; }},
      {"3", [](cell& c) { c.rows = 3; }},
      {"64", [](cell& c) { c.rows = 64; }},
      {"127", [](cell& c) { c.rows = 127; }},
      {"128", [](cell& c) { c.rows = 128; }},
      {"129", [](cell& c) { c.rows = 129; }},
      {"1", [](cell& c) { c.rows = 1, c.seqs = 1; }}, // a step has room for a row of each sequence
      {"512", [](cell& c) { c.rows = 512; }}},
     6},
    {"kv blocks",
     {{"enough", [](cell& c) { c.spare_blocks = -1; }},
      {"for one request", [](cell& c) { c.spare_blocks = 0; }},
      {"and one more", [](cell& c) { c.spare_blocks = 1; }},
      {"and five more", [](cell& c) { c.spare_blocks = few_blocks; }}},
     3},
    {"drafts",
     {{"none", [](cell& c) { c.nextn = 0; }},
      {"5", [](cell& c) { c.nextn = 5; }},
      {"1", [](cell& c) { c.nextn = 1; }},
      {"2", [](cell& c) { c.nextn = 2; }},
      {"3", [](cell& c) { c.nextn = 3; }},
      {"4", [](cell& c) { c.nextn = 4; }}}},
    {"verified",
     {{"all", [](cell& c) { c.varlen = false; }},
      {"by confidence", [](cell& c) { c.varlen = true, c.nextn = c.nextn == 0 ? 5 : c.nextn; }}}},
    {"async", {{"off", [](cell& c) { c.async = false; }}, {"on", [](cell& c) { c.async = true; }}}},
    {"prefix cache",
     {{"off", [](cell& c) { c.prefix_cache = false; }}, {"on", [](cell& c) { c.prefix_cache = true; }}}},
    {"yoco", {{"compact", [](cell& c) { c.yoco_off = false; }}, {"off", [](cell& c) { c.yoco_off = true; }}}},
    {"threads",
     {{"1", [](cell& c) { c.threads = 1; }},
      {"2", [](cell& c) { c.threads = 2; }},
      {"3", [](cell& c) { c.threads = 3; }}}},
    {"engines",
     {{"1", [](cell& c) { c.engines = 1; }},
      {"2", [](cell& c) { c.engines = 2; }},
      {"4", [](cell& c) { c.engines = 4; }},
      {"8", [](cell& c) { c.engines = 8; }}},
     3},
    {"group sync",
     {{"off", [](cell& c) { c.group_sync = false; }},
      {"on", [](cell& c) { c.group_sync = true, c.engines = std::max(c.engines, 2); }}}},
    {"ep",
     {{"1", [](cell& c) { c.ep = 1; }},
      {"2", [](cell& c) { c.ep = 2; }},
      {"5", [](cell& c) { c.ep = 5; }},
      {"4", [](cell& c) { c.ep = 4; }},
      {"8", [](cell& c) { c.ep = 8; }}},
     3},
    {"cp", {{"1", [](cell& c) { c.cp = 1; }}, {"2", [](cell& c) { c.cp = 2; }}, {"4", [](cell& c) { c.cp = 4; }}}},
};

std::string name_of(const std::vector<int>& row) {
  std::string name;
  for (std::size_t a = 0; a < row.size(); ++a)
    if (row[a] != 0)
      name += (name.empty() ? "" : ", ") + std::string(axes[a].name) + " " +
              axes[a].values[static_cast<std::size_t>(row[a])].first;
  return name.empty() ? "reference settings in one batch" : name;
}

cell cell_of(const std::vector<int>& row) {
  cell c;
  for (std::size_t a = 0; a < row.size(); ++a)
    axes[a].values[static_cast<std::size_t>(row[a])].second(c);
  return c;
}

// ---- requests

struct work {
  generation_request request;
  sampling_params params;
};

// Every prompt once greedy and once drawn at temperature 1 with top-p 0.95. Lengths lie around the window and the
// block, and some so that the output reaches the next block; of 396 and 524 tokens the prefix cache has two blocks and
// more, with yoco off all but the last 12.
int length_of(int prompt) {
  constexpr std::array first{1, 2, 127, 128, 250, 300, 396, 524}, others{1, 2, 110, 127, 128, 129, 250, 396};
  const std::size_t at = static_cast<std::size_t>(prompt) % first.size();
  return std::cmp_less(prompt, first.size()) ? first[at] : others[at];
}

std::vector<work> requests_of(int count, std::int32_t tokens) {
  std::vector<work> all;
  for (int p = 0; p < count; ++p) {
    std::vector<std::int32_t> ids;
    for (int i = 0; i < length_of(p); ++i)
      ids.push_back(static_cast<std::int32_t>(
          3 + philox(7, static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(p), 0, 0).w[0] % 8000));
    for (const bool greedy : {true, false}) {
      work w;
      w.request.id = std::to_string(p) + (greedy ? " greedy" : " drawn");
      w.request.prompt_ids = ids;
      w.params.temperature = greedy ? 0 : 1;
      w.params.top_p = greedy ? 1 : 0.95f;
      w.params.max_tokens = tokens;
      w.params.ignore_eos = true;
      w.params.seq_seed = static_cast<std::uint64_t>(100 + p);
      all.push_back(std::move(w));
    }
  }
  return all;
}

struct outcome {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint32_t> logprobs; // bits
  auto operator<=>(const outcome&) const = default;
};
using outcomes = std::map<std::string, outcome>; // by request

outcome outcome_of(const generation_result& r) {
  BOOST_REQUIRE_MESSAGE(!r.failure, r.id << ": " << (r.failure ? r.failure->message : ""));
  outcome o;
  o.tokens = r.token_ids;
  for (const float lp : r.logprobs)
    o.logprobs.push_back(std::bit_cast<std::uint32_t>(lp));
  return o;
}

engine_options options_of(const cell& c) {
  engine_options o;
  o.model = TROUPE_SOURCE_DIR "/models/tiny-v41";
  o.max_model_len = 1024;
  o.max_num_seqs = c.seqs;
  o.max_num_batched_tokens = c.rows;
  o.threads = c.threads;
  o.engines = c.engines;
  o.ep = c.ep;
  o.cp = c.cp;
  o.group_sync = c.group_sync;
  o.nextn = c.nextn;
  o.varlen = c.varlen;
  o.async = c.async;
  o.prefix_cache = c.prefix_cache;
  o.prefix_snapshots = c.prefix_cache ? 64 : 0; // all requests of a pass are asked for again
  o.yoco = c.yoco_off ? "off" : "compact";
  return o;
}

std::vector<work> ordered(std::vector<work> all, int order) {
  if (order == 1)
    std::ranges::reverse(all);
  for (std::size_t i = all.size(); order > 1 && i > 1; --i)
    std::swap(all[i - 1],
              all[philox(static_cast<std::uint64_t>(order), static_cast<std::uint32_t>(i), 0, 0, 0).w[0] % i]);
  return all;
}

// Runs requests together and waits for their ends.
class gathering {
public:
  explicit gathering(LLM& llm) : llm_(llm) {}

  void submit(const work& w, bool wanted = true) {
    {
      const std::lock_guard lock(mutex_);
      ++left_;
    }
    const auto id = llm_.submit(w.request, w.params, [this, wanted](const generation_event& e) {
      const std::lock_guard lock(mutex_);
      begun_ = true;
      if (e.result) {
        --left_;
        if (wanted)
          results_.push_back(*e.result);
      }
      changed_.notify_all();
    });
    BOOST_REQUIRE_MESSAGE(id, (id ? "" : id.failure().message));
  }
  void wait_for_output() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return begun_; });
  }
  std::vector<generation_result> wait_for_ends() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return left_ == 0; });
    return results_;
  }

private:
  LLM& llm_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t left_ = 0;
  bool begun_ = false;
  std::vector<generation_result> results_;
};

using cached_counts = std::map<std::string, std::int64_t>; // prompt tokens from the prefix cache, by request

outcomes run_once(LLM& llm, const cell& c, const std::vector<work>& all, bool backwards, cached_counts& cached) {
  gathering g(llm);
  if (c.seqs >= large_batch) // others fill it before
    for (auto n = static_cast<int>(all.size()); n < c.seqs; ++n) {
      work w = all[static_cast<std::size_t>(n) % all.size()];
      w.request.id = "company " + std::to_string(n);
      w.request.prompt_ids = std::vector<std::int32_t>{0, 300 + n};
      w.params.max_tokens *= 2;
      g.submit(w, false);
    }
  std::vector<work> asked = ordered(all, c.order);
  if (backwards)
    std::ranges::reverse(asked);
  for (const work& w : asked)
    g.submit(w);
  if (c.strangers) {
    g.wait_for_output();
    for (work w : requests_of(3, 20)) {
      w.request.id = "stranger " + w.request.id;
      w.request.prompt_ids->push_back(77);
      g.submit(w, false);
    }
  }
  outcomes found;
  for (const generation_result& r : g.wait_for_ends()) {
    found[r.id] = outcome_of(r);
    cached[r.id] = r.cached_tokens;
  }
  return found;
}

struct cell_run {
  std::vector<outcomes> passes;
  std::vector<cached_counts> cached; // by pass
  double preemptions = 0, cached_tokens = 0, accepted = 0;
  double evicted = 0;     // blocks and states that left the prefix cache
  double large_steps = 0; // of 129 to 256 rows
};

cell_run run(const cell& c, const engine_options& options, const std::vector<work>& all) {
  LLM llm(options);
  cell_run r;
  // The second pass backwards: of more than the prefix cache keeps it has what came last.
  for (int pass = 0; pass < (c.prefix_cache ? 2 : 1); ++pass) {
    r.passes.push_back(run_once(llm, c, all, pass > 0, r.cached.emplace_back()));
    BOOST_REQUIRE(r.passes.back().size() == all.size());
  }
  const std::string text = llm.metrics();
  r.preemptions = test_support::metric(text, "num_preemptions_total");
  r.cached_tokens = test_support::metric(text, "prefix_cache_hits_total");
  r.accepted = test_support::metric(text, "spec_decode_num_accepted_tokens_total");
  r.evicted = test_support::metric(text, "kv_blocks_evicted_total") +
              test_support::metric(text, "state_snapshots_total", "event=\"evicted\"");
  r.large_steps = test_support::metric(text, "iteration_tokens_total_bucket", "le=\"256.0\"") -
                  test_support::metric(text, "iteration_tokens_total_bucket", "le=\"128.0\"");
  return r;
}
cell_run run(const cell& c, const std::vector<work>& all) {
  engine_options o = options_of(c);
  if (c.spare_blocks >= 0)
    for (const work& w : all)
      o.kv_blocks =
          std::max(o.kv_blocks, c.spare_blocks + blocks_for(std::ssize(*w.request.prompt_ids) + w.params.max_tokens));
  return run(c, o, all);
}

// One engine, one thread, one request at a time, prompts in one piece.
outcomes run_alone(const std::vector<work>& all, bool yoco_off = false) {
  cell c;
  c.seqs = 1;
  c.yoco_off = yoco_off;
  LLM llm(options_of(c));
  outcomes found;
  for (const work& w : all)
    found[w.request.id] = outcome_of(llm.generate({w.request}, w.params).at(0));
  return found;
}

// ---- comparison

std::string first_divergence(const outcome& want, const outcome& got) {
  for (std::size_t i = 0; i < want.tokens.size(); ++i) {
    if (i >= got.tokens.size())
      return "ends after " + std::to_string(i) + " tokens";
    if (got.tokens[i] != want.tokens[i])
      return "token " + std::to_string(i) + " is " + std::to_string(got.tokens[i]) + " instead of " +
             std::to_string(want.tokens[i]);
    if (got.logprobs[i] != want.logprobs[i])
      return "log-probability " + std::to_string(i) + " is " + std::to_string(std::bit_cast<float>(got.logprobs[i])) +
             " instead of " + std::to_string(std::bit_cast<float>(want.logprobs[i]));
  }
  return got.tokens.size() > want.tokens.size() ? "goes on behind the last token" : "";
}

// How many outputs each request had, over all cells; every divergence from the reference as a line.
class comparison {
public:
  explicit comparison(outcomes compact, outcomes off = {}) : references_{std::move(compact), std::move(off)} {
    for (const bool off_too : {false, true})
      for (const auto& [id, o] : references_[off_too])
        unique_[key_of(id, off_too)].insert(o);
  }
  // How many requests diverged.
  std::size_t add(const std::string& cell_name, const cell_run& found, bool yoco_off = false) {
    const std::size_t before = divergences_.size();
    ++cells_;
    preemptions_.add(found.preemptions);
    cached_tokens_.add(found.cached_tokens);
    accepted_.add(found.accepted);
    for (const outcomes& pass : found.passes) {
      for (const auto& [id, got] : pass) {
        const outcome& want = references_[yoco_off].at(id);
        unique_[key_of(id, yoco_off)].insert(got);
        if (got != want)
          divergences_.push_back(cell_name + ": request \"" + id + "\": " + first_divergence(want, got));
      }
    }
    return divergences_.size() - before;
  }
  // What had to happen for the settings to mean anything.
  struct happened {
    double times = 0;
    int cells = 0; // in which it did
    void add(double n) {
      times += n;
      cells += n > 0;
    }
    std::string in_cells(const char* what) const {
      return std::to_string(times) + " " + what + " in " + std::to_string(cells) + " cells";
    }
  };
  const happened& preemptions() const { return preemptions_; }
  const happened& cached_tokens() const { return cached_tokens_; }
  const happened& accepted() const { return accepted_; }
  std::size_t most_outputs(const std::string& kind = "") const {
    std::size_t most = 0;
    for (const auto& [id, set] : unique_)
      if (id.ends_with(kind))
        most = std::max(most, set.size());
    return most;
  }
  const std::vector<std::string>& divergences() const { return divergences_; }
  std::string summary() const {
    return std::to_string(cells_) + " cells, " + std::to_string(references_[0].size()) + " requests, at most " +
           std::to_string(most_outputs()) + " outputs for one request, " + preemptions_.in_cells("preemptions") + ", " +
           cached_tokens_.in_cells("prompt tokens from the prefix cache") + ", " +
           accepted_.in_cells("drafts accepted");
  }

private:
  static std::string key_of(const std::string& id, bool yoco_off) { return (yoco_off ? "yoco off, " : "") + id; }

  std::array<outcomes, 2> references_; // with yoco compact and off
  std::map<std::string, std::set<outcome>> unique_;
  std::vector<std::string> divergences_;
  int cells_ = 0;
  happened preemptions_, cached_tokens_, accepted_;
};

std::vector<std::vector<int>> single_axis_rows() {
  std::vector<std::vector<int>> rows{std::vector<int>(axes.size(), 0)};
  for (std::size_t a = 0; a < axes.size(); ++a)
    for (std::size_t v = 1; v < axes[a].values.size(); ++v) {
      rows.emplace_back(axes.size(), 0);
      rows.back()[a] = static_cast<int>(v);
    }
  return rows;
}

std::vector<std::vector<int>> pairwise_rows() {
  std::vector<int> sizes;
  for (const axis& a : axes)
    sizes.push_back(a.crossed > 0 ? a.crossed : static_cast<int>(a.values.size()));
  return test_support::covering_array(sizes);
}

// Longest hit of a prompt in the cache, exactness.md §8: what is left must be computed.
std::int64_t hit_cap_of(const cell& c, const work& w) {
  return std::max<std::int64_t>(0, std::ssize(*w.request.prompt_ids) - (c.yoco_off ? 1 : 140)) / 128 * 128;
}

// Where blocks are few, not those prompts that by themselves would make them many.
std::vector<work> asked_in(const cell& c, std::vector<work> all) {
  if (c.spare_blocks >= 0)
    std::erase_if(all, [](const work& w) { return w.request.prompt_ids->size() > 300; });
  return all;
}

// What the whole matrix asks for is more than the prefix cache keeps.
bool fit_the_cache(const std::vector<work>& all) {
  return std::ssize(all) <= 2 * prompts;
}

// Nobody finds more than may be found, and where nothing leaves the cache each finds all of it in the second
// pass.
void check_hits(const cell& c, const cell_run& found, const std::vector<work>& all, const std::string& name) {
  std::int64_t total = 0;
  for (std::size_t pass = 0; pass < found.cached.size(); ++pass)
    for (const work& w : all) {
      const std::int64_t cached = found.cached[pass].at(w.request.id), cap = c.prefix_cache ? hit_cap_of(c, w) : 0;
      BOOST_TEST((cached <= cap && cached % 128 == 0), name << ": " << w.request.id << " found " << cached);
      total += cached;
      if (pass == 1 && found.evicted == 0 && c.engines == 1)
        BOOST_TEST(cached == cap, name << ": " << w.request.id << " found " << cached << " of " << cap);
    }
  if (fills_the_cache && fit_the_cache(all) && c.prefix_cache &&
      c.spare_blocks < 0) // several engines too: routing looks where prefixes are
    BOOST_TEST(total >= 4 * 256, name << ": " << total << " tokens found");
}

comparison compare(const std::vector<std::vector<int>>& rows, const std::vector<work>& all) {
  const outcomes compact = run_alone(all), off = run_alone(all, true);
  if (fills_the_cache)
    BOOST_TEST((compact != off), "yoco is no axis: it changes nothing");
  comparison c(compact, off);
  for (const std::vector<int>& row : rows) {
    const cell settings = cell_of(row);
    const std::vector<work> asked = asked_in(settings, all);
    const cell_run found = run(settings, asked);
    if (fills_the_cache && std::ranges::count(row, 0) == std::ssize(row) - 1) { // an axis alone, that meant something
      BOOST_TEST((settings.spare_blocks < few_blocks || found.preemptions > 0), name_of(row));
      BOOST_TEST((!settings.prefix_cache || (found.cached_tokens > 0 && (found.evicted == 0 || !fit_the_cache(all)))),
                 name_of(row));
      BOOST_TEST((settings.nextn == 0 || settings.varlen || found.accepted > 0), name_of(row));
      BOOST_TEST((settings.seqs < large_batch || found.large_steps >= all.front().params.max_tokens / 2), name_of(row));
    }
    check_hits(settings, found, asked, name_of(row));
    BOOST_TEST((settings.spare_blocks >= 0 || found.preemptions == 0), name_of(row)); // else blocks are no axis
    const std::size_t differ = c.add(name_of(row), found, settings.yoco_off);
    BOOST_TEST_MESSAGE(name_of(row) << ": " << (differ == 0 ? "equal" : std::to_string(differ) + " differ"));
  }
  BOOST_TEST_MESSAGE(c.summary());
  for (const std::string& line : c.divergences())
    BOOST_ERROR(line);
  BOOST_TEST(c.most_outputs() == 1u);
  return c;
}

// In so many cells at least: with few blocks, with the prefix cache, with drafts.
void check_meant_something(const comparison& c, int preempt, int hit, int accept) {
  if (fills_the_cache) {
    BOOST_TEST(c.preemptions().cells >= preempt);
    BOOST_TEST(c.cached_tokens().cells >= hit);
    BOOST_TEST(c.accepted().cells >= accept);
  }
}

// Part k of n of the rows: every n-th one.
std::vector<std::vector<int>> part_of(const std::vector<std::vector<int>>& rows, std::size_t k, std::size_t n) {
  std::vector<std::vector<int>> part;
  for (std::size_t i = k; i < rows.size(); i += n)
    part.push_back(rows[i]);
  return part;
}

// ---- preemption at a given decode step (the engine without actors: who arrives when is up to the test)

// The victim has two blocks, and the request before it needs its third one in decode step `at`, when none is free.
// Twice: a third request ends soon after and leaves room for the victim to come back, and both grow until that is used
// up.
struct preemption {
  std::size_t at;
  bool twice = false;
};

test::hand_request victim_of(std::uint64_t seed, int tokens) {
  std::mt19937_64 random(seed);
  test::hand_request r;
  r.seed = seed;
  r.params.max_tokens = tokens;
  r.params.ignore_eos = true;
  r.params.temperature = seed % 2 == 0 ? 0 : 1;
  r.params.top_p = seed % 2 == 0 ? 1 : 0.95f;
  for (std::uint64_t n = 150 + seed % 50; n > 0; --n) // its output reaches the next block behind the last step
    r.prompt.push_back(static_cast<std::int32_t>(3 + random() % 8000));
  return r;
}

std::string name_of(const preemption& p, const test::hand_engine_options& o) {
  return "preempted at step " + std::to_string(p.at) + (p.twice ? " and again" : "") + ", async " +
         (o.async ? "on" : "off") + ", prefix cache " + (o.prefix_cache ? "on" : "off") + ", drafts " +
         std::to_string(o.nextn);
}

test::hand_output alone_of(const test::hand_request& victim) {
  const test::hand_output alone = test::hand_engine({}).run({victim}, {0}).at(0);
  BOOST_REQUIRE(std::ssize(alone.tokens) == victim.params.max_tokens);
  return alone;
}

void check_preempted(const preemption& p, test::hand_engine_options o, const test::hand_request& victim,
                     const test::hand_output& alone) {
  const auto beside = [&](std::size_t prompt, std::size_t tokens) {
    test::hand_request r = victim_of(77, static_cast<int>(tokens));
    r.prompt.resize(prompt, 300);
    return r;
  };
  std::vector<test::hand_request> requests{victim, beside(257 - p.at, p.at + (p.twice ? 400 : 8))};
  std::vector<int> order{1, 0};
  o.max_rows = 1024;
  o.kv_blocks = 1 + 4;
  if (p.twice) {
    requests.push_back(beside(520, p.at + 10));
    order = {1, 2, 0};
    o.kv_blocks += 5;
  }
  test::hand_engine engine(o);
  const test::hand_output found = engine.run(requests, order).at(0);
  BOOST_TEST(engine.most_steps_out() == (o.async ? 2u : 1u), name_of(p, o)); // no metric tells it
  BOOST_TEST((found == alone), name_of(p, o));
  // With drafts those beside it may end before it has lost its cache again.
  BOOST_TEST(found.lost_at.size() >= (p.twice && o.nextn == 0 ? 2u : 1u), name_of(p, o));
  if (o.nextn == 0 && !o.prefix_cache) { // else the steps of the two are not those of a token each
    BOOST_TEST(found.lost_at.size() == (p.twice ? 2u : 1u), name_of(p, o));
    BOOST_TEST(found.lost_at.front() == p.at - (o.async ? 1 : 0), name_of(p, o)); // one was in flight
  }
}

const std::vector<preemption> preemptions{{1}, {5}, {37}, {5, true}};

} // namespace

BOOST_AUTO_TEST_SUITE(determinism_matrix)

BOOST_AUTO_TEST_CASE(preempted_at_the_first_the_fifth_and_the_37th_step_and_twice) {
  for (const preemption& p : std::span(preemptions).first(test::any_sanitizer ? 1 : preemptions.size()))
    for (const bool async : {false, true})
      if (async || !test::any_sanitizer) {
        const test::hand_request victim = victim_of(p.at + async, p.twice ? 400 : 48);
        check_preempted(p, {.async = async}, victim, alone_of(victim));
      }
}

BOOST_AUTO_TEST_CASE(every_axis_alone) {
  if (test::any_sanitizer) {
    BOOST_TEST_MESSAGE("skipped: every cell loads the model, and the pairs below have all the same code and threads");
    return;
  }
  check_meant_something(compare(single_axis_rows(), requests_of(prompts, output_tokens)), 1, 1, 5);
}

BOOST_AUTO_TEST_CASE(axes_in_pairs) {
  std::vector<std::vector<int>> rows = pairwise_rows();
  BOOST_TEST_MESSAGE(rows.size() << " rows cover all pairs");
  rows.resize(std::min(rows.size(), most_rows)); // the greedy array has most new pairs in its first rows
  check_meant_something(compare(rows, requests_of(prompts, output_tokens)), 4, 8, 14);
}

// By parts, each in a process of its own: TROUPE_WHOLE_MATRIX=K/N runs part K of N, from 0.
BOOST_AUTO_TEST_CASE(the_whole_matrix) {
  const char* part = std::getenv("TROUPE_WHOLE_MATRIX");
  if (part == nullptr) {
    BOOST_TEST_MESSAGE("skipped: takes many minutes; by hand it is dev/test matrix");
    return;
  }
  std::size_t k = 0, n = 0;
  BOOST_REQUIRE_MESSAGE(std::sscanf(part, "%zu/%zu", &k, &n) == 2 && k < n, "TROUPE_WHOLE_MATRIX=" << part);
  std::vector<std::vector<int>> rows = single_axis_rows();
  std::ranges::copy(pairwise_rows(), std::back_inserter(rows));
  compare(part_of(rows, k, n), requests_of(32, 256));
  for (std::uint64_t seed = k; seed < 32; seed += n)
    for (const preemption& p : preemptions) {
      const test::hand_request victim = victim_of(seed, p.twice ? 400 : 256);
      const test::hand_output alone = alone_of(victim);
      for (const bool async : {false, true})
        for (const bool prefix_cache : {false, true})
          for (const int nextn : {0, 5})
            check_preempted(p, {.async = async, .prefix_cache = prefix_cache, .nextn = nextn}, victim, alone);
    }
}

// The comparison has to see what it is there for: seeds taken from the order of submission, and other roundings.
BOOST_AUTO_TEST_CASE(a_defect_is_seen) {
  if (test::any_sanitizer) {
    BOOST_TEST_MESSAGE("skipped: it tests the comparison above, which is the same without a sanitizer");
    return;
  }
  const std::vector<work> all = requests_of(4, 16);
  comparison seeds(run_alone(all)), bits(run_alone(all));
  cell reversed;
  reversed.order = 1;
  for (const cell& c : {cell{}, reversed}) {
    std::vector<work> in_order = ordered(all, c.order);
    for (std::size_t i = 0; i < in_order.size(); ++i)
      in_order[i].params.seq_seed = i;
    seeds.add("seeds by order", run(cell{}, in_order));
  }
  BOOST_TEST(seeds.most_outputs("drawn") == 3u);
  BOOST_TEST(seeds.most_outputs("greedy") == 1u);
  BOOST_TEST(seeds.divergences().size() >= 8u);

  engine_options other = options_of(cell{});
  other.roundings = "model";
  bits.add("other roundings", run(cell{}, other, all));
  BOOST_TEST(bits.most_outputs("greedy") == 2u);
  BOOST_TEST(bits.divergences().size() == all.size());
}

BOOST_AUTO_TEST_SUITE_END()
