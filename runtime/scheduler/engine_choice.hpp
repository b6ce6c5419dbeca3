// Which engines compute a request: one all of it, or one its prompt and another what comes behind (cluster.md §3.7).
// Owned by whoever places requests.
#pragma once
#include "runtime/scheduler/routing.hpp"
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

struct request_size {
  std::int32_t prompt_tokens = 0;
  std::int64_t output_tokens = 0; // of all branches, at most
  bool rows_wanted = false;       // results of the prompt's rows: one engine computes everything
  bool undivided = false;         // so it does for another reason
};

struct engine_choice {
  std::size_t engine = no_engine; // that computes it, or goes on behind its prompt
  std::size_t prompt = no_engine; // that computes its prompt; none: the one above
  bool full = false;              // without an engine: there are some, and none has room
};

// Rules. Where engines for prompts and engines for outputs are there, each does its own; a request whose prompt cannot
// be handed over goes to an engine for prompts if the results of its rows are wanted, else to one for outputs. Without
// engines for prompts those for outputs compute everything; without any for outputs requests wait. Of several the one
// with the least work is chosen, and for prompts one that has the beginning cached.
class engine_chooser {
public:
  engine_choice choose(std::span<const engine_load> engines, const request_size& size,
                       std::span<const std::uint64_t> chain);
  void forget(std::size_t engine); // as engine_router

private:
  template <class Take>
  std::size_t pick(engine_router& router, std::span<const engine_load> engines, std::int64_t tokens,
                   std::span<const std::uint64_t> chain, Take take);

  engine_router router_, prompts_;
  std::vector<engine_load> some_; // of the engines, those that are in question
};

} // namespace troupe
