#include "cli/yoco_check.hpp"
#include "cli/requests.hpp"
#include "cli/verbs.hpp"
#include "runtime/model/config.hpp"
#include "runtime/request/result_line.hpp"
#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <spdlog/spdlog.h>

namespace troupe {

namespace {

constexpr std::int32_t decoded_tokens = 16;

using top_list = std::vector<std::pair<std::int32_t, float>>;

class prompt_source final : public request_source {
public:
  explicit prompt_source(const std::vector<generation_request>& prompts) : prompts_(prompts) {}
  state next(engine_request& out) override {
    if (next_ == prompts_.size())
      return state::end;
    out.request = prompts_[next_++];
    out.params = {.temperature = 0,
                  .max_tokens = decoded_tokens,
                  .ignore_eos = true,
                  .logprobs = true,
                  .top_logprobs = max_top_logprobs,
                  .seq_seed = 0};
    return state::ready;
  }

private:
  const std::vector<generation_request>& prompts_;
  std::size_t next_ = 0;
};

using results = std::map<std::string, generation_result>; // by id

// What one mode gives; nothing if it was interrupted.
std::optional<results> results_of(engine_options engine, const std::string& mode,
                                  const std::vector<generation_request>& prompts) {
  engine.yoco = mode;
  engine_session session(engine);
  prompt_source source(prompts);
  results all;
  const run_outcome outcome =
      run_requests(session, source, 4 * engine.max_num_seqs * engine.engines, false, [&](const generation_event& e) {
        if (e.result)
          all.insert_or_assign(e.id, *e.result);
        return true;
      });
  if (outcome.interrupted || outcome.stopped)
    return std::nullopt;
  return all;
}

bool same_bits(const top_list& a, const top_list& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.first == y.first && std::bit_cast<std::uint32_t>(x.second) == std::bit_cast<std::uint32_t>(y.second);
  });
}

// The first output token at which two results are not the same; nothing if there is none.
std::optional<std::size_t> first_difference(const generation_result& a, const generation_result& b) {
  const std::size_t tokens = std::min(a.token_ids.size(), b.token_ids.size());
  for (std::size_t i = 0; i < tokens; ++i)
    if (a.token_ids[i] != b.token_ids[i] ||
        std::bit_cast<std::uint32_t>(a.logprobs[i]) != std::bit_cast<std::uint32_t>(b.logprobs[i]) ||
        !same_bits(a.top_logprobs[i], b.top_logprobs[i]))
      return i;
  if (a.token_ids.size() != b.token_ids.size())
    return tokens;
  return std::nullopt;
}

} // namespace

int check_yoco(const engine_options& engine, const std::vector<generation_request>& prompts) {
  int differences = 0;
  for (const auto& [mode, other] : {std::pair("compact", "mask"), std::pair("exact", "off")}) {
    const std::optional<results> have = results_of(engine, mode, prompts);
    const std::optional<results> want = have ? results_of(engine, other, prompts) : std::nullopt;
    if (!have || !want)
      return exit_interrupted;
    int here = 0;
    std::int64_t truncated = 0;
    engine_options resolved = engine;
    resolved.yoco = mode;
    const int keep = resolved_yoco(resolved, load_config(engine.model)).second;
    for (const auto& [id, result] : *have) {
      truncated += result.prompt_tokens > keep;
      if (const auto at = first_difference(result, want->at(id))) {
        spdlog::error("yoco check: request {}: {} differs from {} at output token {} of a prompt of {}",
                      json_quoted(id), mode, other, *at, result.prompt_tokens);
        ++here;
      }
    }
    spdlog::info("yoco check: {} (keeps {} rows) and {}: {} of {} prompts equal bit for bit, {} of them longer than {}",
                 mode, keep, other, static_cast<int>(have->size()) - here, have->size(), truncated, keep);
    differences += here;
  }
  return differences > 0 ? exit_request_failed : exit_ok;
}

} // namespace troupe
