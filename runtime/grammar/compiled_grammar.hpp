// A constraint ready for use: immutable rules, and masks that are made when first needed (structured_output.md §8.1).
#pragma once
#include "runtime/grammar/grammar_builder.hpp"
#include "runtime/grammar/mask_maker.hpp"
#include "runtime/grammar/token_vocabulary.hpp"
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace troupe {

// Shared by all requests with the same constraint and by all threads.
class compiled_grammar {
public:
  static constexpr std::size_t usual_kept_bytes = std::size_t{8} << 20;

  // kept_bytes: of frontiers and masks. When they are more, readers move on to a fresh set, one by one as they go.
  compiled_grammar(rule_network network, std::shared_ptr<const token_vocabulary> vocabulary,
                   const compile_limits& limits, std::size_t kept_bytes = usual_kept_bytes,
                   std::vector<std::string> warnings = {});

  // What of the constraint has no effect, for people; only lenient schemas have any.
  const std::vector<std::string>& warnings() const { return warnings_; }

  const token_vocabulary& vocabulary() const { return *vocabulary_; }
  const rule_network& network() const { return *network_; }
  std::size_t bytes() const; // now; grows with use up to about kept_bytes and the rules

  std::shared_ptr<mask_maker> masks() const;     // those to begin with
  std::shared_ptr<mask_maker> own_masks() const; // new ones that nobody else uses
  bool outgrown(mask_maker& masks) const { return masks.store().bytes() > kept_bytes_; }

private:
  std::shared_ptr<const rule_network> network_;
  std::shared_ptr<const token_vocabulary> vocabulary_;
  mask_maker::table_list known_tables_; // when it was compiled
  std::size_t max_items_, kept_bytes_;
  std::vector<std::string> warnings_;
  mutable std::mutex masks_lock_;
  mutable std::shared_ptr<mask_maker> masks_;
};

// Compiles what `root` can read. Throws grammar_failure: so_unsatisfiable where root has no finite word, so_syntax for
// a rule without definition, so_too_complex, so_timeout. Token ids must be of the vocabulary.
std::shared_ptr<const compiled_grammar> compile_grammar(const grammar_builder& builder, grammar_rule root,
                                                        std::shared_ptr<const token_vocabulary> vocabulary,
                                                        std::vector<std::string> warnings = {});

} // namespace troupe
