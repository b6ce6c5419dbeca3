#include "runtime/grammar/compiled_grammar.hpp"

namespace troupe {

namespace {

constexpr std::size_t overflow_factor = 8; // a single mask may need this many times what is kept

}

compiled_grammar::compiled_grammar(rule_network network, std::shared_ptr<const token_vocabulary> vocabulary,
                                   const compile_limits& limits, std::size_t kept_bytes,
                                   std::vector<std::string> warnings)
    : network_(std::make_shared<const rule_network>(std::move(network))), vocabulary_(std::move(vocabulary)),
      max_items_(limits.frontier_items), kept_bytes_(kept_bytes), warnings_(std::move(warnings)) {
  for (const byte_dfa& round : network_->round_dfas)
    known_tables_.push_back(vocabulary_->known_table(round));
}

std::size_t compiled_grammar::bytes() const {
  const std::lock_guard hold(masks_lock_);
  return sizeof(*this) + network_->bytes() + mask_maker::bytes_of(known_tables_) +
         (masks_ ? masks_->store().bytes() + masks_->table_bytes() : 0);
}

std::shared_ptr<mask_maker> compiled_grammar::masks() const {
  const std::lock_guard hold(masks_lock_);
  if (!masks_ || outgrown(*masks_) || masks_->store().overflowed())
    masks_ = own_masks();
  return masks_;
}

std::shared_ptr<mask_maker> compiled_grammar::own_masks() const {
  return std::make_shared<mask_maker>(network_, vocabulary_, known_tables_, max_items_, overflow_factor * kept_bytes_);
}

std::shared_ptr<const compiled_grammar> compile_grammar(const grammar_builder& builder, grammar_rule root,
                                                        std::shared_ptr<const token_vocabulary> vocabulary,
                                                        std::vector<std::string> warnings) {
  compile_budget& budget = builder.budget();
  rule_network network = make_rule_network(builder, root, budget);
  const compile_limits& limits = budget.limits();
  return std::make_shared<const compiled_grammar>(std::move(network), std::move(vocabulary), limits,
                                                  compiled_grammar::usual_kept_bytes, std::move(warnings));
}

} // namespace troupe
