// What a session tells the ledger on disk, and how a request finds what an earlier process had of it. Pure functions
// and values.
#pragma once
#include "cluster/ledger_file.hpp"
#include "cluster/messages.hpp"
#include "runtime/scheduler/limits.hpp"
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

struct request_record;

// What the tokens of all requests of a gateway depend on beside the requests.
struct ledger_terms {
  std::string numerics; // of the engines, with their model
  yoco_mode yoco = yoco_mode::off;
  std::int32_t yoco_keep = 0;
  std::vector<std::int32_t> eos_ids;
};

// One branch, as it is admitted. seed: of the request.
ledger_request ledger_request_of(const request_record& r, std::uint64_t seed, std::uint32_t branch,
                                 const ledger_terms& terms);

// The part of `t` that begins at position `from`, of tokens that were accepted; nothing if there is none.
std::optional<ledger_tokens> news_of(const tokens& t, std::int64_t from);
// The same as if an engine had said it in the first attempt.
tokens tokens_of(const ledger_tokens& taken);

// Open branches of earlier processes, by id and branch.
class recovered_branches {
public:
  // shared: they are of several clients, of whose requests any may have the same ids.
  explicit recovered_branches(std::vector<ledger_entry> open = {}, bool shared = false);

  struct found {
    std::optional<ledger_entry> entry; // whose output is the beginning of this branch's
    // Not where they are shared: another client may ask for them.
    std::vector<ledger_closed> useless; // entries of this id and branch that are given up
    std::string why_not;                // for people, if there was an entry of another request
  };
  found take(const ledger_request& wanted);
  std::vector<ledger_closed> take_all(); // nobody has asked for them

private:
  std::multimap<std::pair<std::string, std::uint32_t>, ledger_entry> open_;
  bool shared_;
};

} // namespace troupe
