// The engines of the cluster for one gateway: follows the views, connects to every worker that is active, and tells the
// gateway which engines come and go. While there is none that gives out tokens it asks the coordinator whether node
// agents have given up so many workers that none will be. Detached: connecting blocks.
#pragma once
#include "actors/backend.hpp"
#include "actors/member.hpp"
#include "actors/worker_root.hpp"
#include "cluster/connect.hpp"
#include <map>

namespace troupe {

struct directory_query {}; // -> directory_report
TROUPE_FIELDS(directory_query)
struct directory_report { // LOCAL
  std::uint64_t term = 0, mepoch = 0;
  std::vector<engine_info> engines; // that are connected, by rank
  std::size_t awaited = 0;          // active workers that are not yet
  std::string waits_for;            // no engine is connected that gives out tokens: what is missing
  bool given_up = false;            // likewise, and none will come: waits_for says why
};

// Whether a client may begin. The first engine waits a little for the others: what is placed before they are there does
// not spread over them, and goes without an engine for prompts.
class engines_at_start {
public:
  bool enough(const directory_report& r, std::chrono::steady_clock::time_point now) {
    if (r.engines.empty())
      return false;
    if (!first_)
      first_ = now;
    return r.awaited == 0 || now >= *first_ + std::chrono::seconds(2);
  }

private:
  std::optional<std::chrono::steady_clock::time_point> first_; // engine was there
};

using engine_directory_actor =
    caf::typed_actor<answers<view>, answers<coordinator_found>, answers<tick>,
                     answers<directory_query, directory_report>, answers<awaited_query>, answers<stop>>;

// The workers of each engine of a cluster that gives out tokens, by name: without one of them it does not.
using engine_workers = std::vector<std::vector<std::string>>;

struct engine_directory_state {
  engine_directory_state() = default;
  static inline const char* name = "engine_directory";
  struct engine {
    std::uint64_t incarnation = 0;
    worker_root_actor worker;
    std::optional<engine_info> info; // once it has answered
  };
  gateway_actor gateway;
  engine_workers configured; // empty: unknown, and some engine may always come
  membership_actor coordinator;
  bool asked = false; // the coordinator
  std::optional<std::chrono::steady_clock::time_point> hopeless_since;
  std::string given_up; // what the gateway was told last
  view last;
  std::map<std::uint32_t, engine> engines; // by rank
  watch_list watched;
};

engine_directory_actor::behavior_type
engine_directory(engine_directory_actor::stateful_pointer<engine_directory_state> self, const gateway_actor& gateway,
                 const engine_workers& configured);

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::directory_report)
