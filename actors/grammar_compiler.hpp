// Compiles constraints, one at a time. Detached: a compilation may take seconds, and nothing waits for it but the
// requests that asked. Nothing leaves it but an answer: a limit, a refusal, a fault.
#pragma once
#include "cluster/messages.hpp"
#include <functional>
#include <mutex>

namespace troupe {

// The token texts of a process, made when its first constraint is compiled: most never see one. Any thread.
class lazy_vocabulary {
public:
  using make_function = std::function<std::shared_ptr<const token_vocabulary>()>;
  explicit lazy_vocabulary(make_function make) : make_(std::move(make)) {}
  std::shared_ptr<const token_vocabulary> get() { // what make throws leaves here; the next call tries again
    const std::lock_guard hold(lock_);
    if (!made_)
      made_ = make_();
    return made_;
  }

private:
  std::mutex lock_;
  make_function make_;
  std::shared_ptr<const token_vocabulary> made_;
};

struct grammar_settings {
  std::shared_ptr<lazy_vocabulary> vocabulary; // null: constraints are refused
  compile_limits limits;
  double compile_seconds = 2;                     // of processor time for one constraint
  std::chrono::milliseconds time_limit{20000};    // from a request's arrival to its compiled constraint
  std::size_t cache_bytes = std::size_t{2} << 30; // 0 = nothing is kept
  int compilers = 4;                              // threads, started with the first constraint
};

struct grammar_compiler_state {
  grammar_compiler_state() = default;
  static inline const char* name = "grammar_compiler";
  grammar_settings settings;
  watch_list watched;
};

// It ends with its pool.
grammar_compiler_actor::behavior_type
grammar_compiler(grammar_compiler_actor::stateful_pointer<grammar_compiler_state> self,
                 const grammar_settings& settings, const grammar_pool_actor& pool);

} // namespace troupe
