#include "runtime/scheduler/engine_choice.hpp"
#include <algorithm>

namespace troupe {

template <class Take>
std::size_t engine_chooser::pick(engine_router& router, std::span<const engine_load> engines, std::int64_t tokens,
                                 std::span<const std::uint64_t> chain, Take take) {
  some_.assign(engines.begin(), engines.end());
  for (engine_load& l : some_)
    l.accepting = l.accepting && take(l);
  return router.choose_engine(some_, tokens, chain);
}

engine_choice engine_chooser::choose(std::span<const engine_load> engines, const request_size& size,
                                     std::span<const std::uint64_t> chain) {
  const auto there = [&](engine_kind kind) {
    return std::ranges::any_of(engines, [=](const engine_load& l) { return l.accepting && l.kind == kind; });
  };
  const bool prompts = there(engine_kind::prompt), outputs = there(engine_kind::completion);
  const bool divided = prompts && outputs && !size.rows_wanted && !size.undivided && size.prompt_tokens >= 2;
  const std::int64_t tokens = size.prompt_tokens + size.output_tokens;
  const bool on_prompts = prompts && outputs && size.rows_wanted;
  const auto wanted = [=](const engine_load& l) {
    return l.kind == engine_kind::normal || (l.kind == engine_kind::prompt) == on_prompts;
  };
  engine_choice c;
  c.engine = pick(router_, engines, tokens, divided ? std::span<const std::uint64_t>() : chain,
                  [=](const engine_load& l) { return wanted(l) && !(divided && l.full); });
  if (c.engine == no_engine)
    c.full = std::ranges::any_of(engines, [=](const engine_load& l) { return l.accepting && wanted(l); });
  else if (divided && engines[c.engine].kind == engine_kind::completion)
    c.prompt = pick(prompts_, engines, size.prompt_tokens, chain,
                    [](const engine_load& l) { return l.kind == engine_kind::prompt; });
  return c;
}

void engine_chooser::forget(std::size_t engine) {
  router_.forget(engine);
  prompts_.forget(engine);
}

} // namespace troupe
