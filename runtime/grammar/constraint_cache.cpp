#include "runtime/grammar/constraint_cache.hpp"
#include "runtime/base/sha256.hpp"

namespace troupe {

std::string constraint_key(const constraint& what, std::string_view salt) {
  const json_schema_options& s = what.schema;
  sha256 hash;
  for (const std::string_view part : {salt, std::string_view(what.text)}) {
    hash.update_u64(part.size());
    hash.update(part);
  }
  std::uint64_t flags = static_cast<std::uint64_t>(what.kind);
  for (const bool flag : {what.dot_excludes_newline, s.strict, s.any_whitespace, s.any_order, s.infer_type, s.lenient,
                          s.indent.has_value()})
    flags = flags << 1 | (flag ? 1u : 0u);
  hash.update_u64(flags);
  hash.update_u64(std::uint64_t{s.max_whitespace} << 32 | s.indent.value_or(0));
  return to_hex(hash.finish());
}

std::size_t constraint_cache::bytes_of(const std::string& key, const entry& compiled) {
  return sizeof(kept) + key.size() + 64 +
         (compiled ? (*compiled)->bytes() : compiled.failure().code.size() + compiled.failure().message.size());
}

void constraint_cache::measure(kept& k) {
  const std::size_t now = bytes_of(k.key, k.compiled);
  bytes_ = bytes_ - k.bytes + now;
  k.bytes = now;
}

std::optional<constraint_cache::entry> constraint_cache::find(const std::string& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end())
    return std::nullopt;
  by_age_.splice(by_age_.begin(), by_age_, found->second);
  const entry compiled = found->second->compiled;
  measure(*found->second);
  drop_old();
  return compiled;
}

namespace {

// Of the text alone, so that it fails in the same way every time.
bool lasting(const error& why) {
  return why.code == "so_syntax" || why.code == "so_unsupported" || why.code == "so_unsatisfiable" ||
         why.code == "so_too_complex";
}

} // namespace

void constraint_cache::insert(const std::string& key, const entry& compiled) {
  if (max_bytes_ == 0 || (!compiled && !lasting(compiled.failure())) || by_key_.contains(key))
    return;
  by_age_.push_front({key, compiled, 0});
  by_key_.emplace(by_age_.front().key, by_age_.begin());
  measure(by_age_.front());
  drop_old();
}

void constraint_cache::drop_old() {
  while (bytes_ > max_bytes_ && !by_age_.empty()) {
    bytes_ -= by_age_.back().bytes;
    by_key_.erase(by_age_.back().key);
    by_age_.pop_back();
  }
}

} // namespace troupe
