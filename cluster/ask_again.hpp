// Questions to a peer that may be slow (timeouts.request_ms, request_tries).
#pragma once
#include "cluster/caf.hpp"
#include "runtime/base/result.hpp"
#include <chrono>
#include <random>
#include <thread>

namespace troupe {

struct question_limits {
  std::chrono::milliseconds each{2000}; // try
  int tries = 3;
};

// For what may be asked twice: an answer that comes too late is not heard. Between two tries lies a pause, each about
// twice as long as the one before, so that many who wait for one peer do not all come back at once. Blocks. Code:
// unreachable.
template <class Answer, class Handle, class Query>
result<Answer> ask_again(caf::actor_system& system, const Handle& whom, const question_limits& limits,
                         const Query& query) {
  std::minstd_rand random{std::random_device{}()};
  for (int tried = 1;; ++tried) {
    result<Answer> answer = error{"unreachable", "no answer"};
    bool late = false;
    caf::scoped_actor self{system};
    ask(self.ptr(), whom, limits.each, query)
        .receive([&](const Answer& a) { answer = a; },
                 [&](const caf::error& e) {
                   late = e == caf::sec::request_timeout;
                   answer = error{"unreachable", text(system, e)};
                 });
    if (!late)
      return answer;
    if (tried == limits.tries)
      return error{"unreachable", "no answer within " + std::to_string(limits.each.count()) + " ms, " +
                                      std::to_string(tried) + " times"};
    const auto pause = limits.each.count() * (1 << std::min(tried - 1, 10)) / 16;
    std::this_thread::sleep_for(
        std::chrono::milliseconds(std::uniform_int_distribution<std::int64_t>(pause / 2, pause + pause / 2)(random)));
  }
}

} // namespace troupe
