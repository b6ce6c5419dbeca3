// Compiled constraints, kept for requests with the same text (structured_output.md §8.6).
#pragma once
#include "runtime/grammar/constraint.hpp"
#include <cstddef>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace troupe {

// What a constraint and its options are known by. The salt keeps tenants apart: what one compiled, another cannot find
// out from how long its own request takes.
std::string constraint_key(const constraint& what, std::string_view salt);

// The least recently used go first when more than the limit is held; sizes are those of the grammars with the masks
// that they have by now. Refusals that the text itself is the reason of are kept too. Belongs to one thread.
class constraint_cache {
public:
  using entry = result<std::shared_ptr<const compiled_grammar>>;

  // max_bytes 0: nothing is kept.
  explicit constraint_cache(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  std::optional<entry> find(const std::string& key);
  void insert(const std::string& key, const entry& compiled);

  std::size_t size() const { return by_key_.size(); }
  std::size_t bytes() const { return bytes_; } // as of the last look at each

private:
  struct kept {
    std::string key;
    entry compiled;
    std::size_t bytes;
  };
  static std::size_t bytes_of(const std::string& key, const entry& compiled);
  void measure(kept& k);
  void drop_old();

  std::size_t max_bytes_, bytes_ = 0;
  std::list<kept> by_age_; // newest first
  std::unordered_map<std::string_view, std::list<kept>::iterator> by_key_;
};

} // namespace troupe
