#include "runtime/kv/chain_hash.hpp"
#include "runtime/base/sha256.hpp"
#include <bit>

namespace troupe {

namespace {

// Odd multipliers with evenly spread bits, as in multiply-rotate hashes.
constexpr std::uint64_t spread_a = 0x9e3779b185ebca87, spread_b = 0xc2b2ae3d27d4eb4f, spread_c = 0x165667b19e3779f9;

} // namespace

std::uint64_t chain_start(std::string_view numerics_id, std::string_view model_id, std::string_view salt) {
  sha256 digest;
  for (const std::string_view part : {std::string_view("troupe-prefix-1"), numerics_id, model_id, salt}) {
    digest.update_u64(part.size());
    digest.update(part);
  }
  const sha256_digest bytes = digest.finish();
  std::uint64_t h = 0;
  for (std::size_t i = 0; i < 8; ++i)
    h |= std::uint64_t{bytes[i]} << (8 * i);
  return h;
}

std::uint64_t chain_next(std::uint64_t before, std::span<const std::int32_t> ids) {
  std::uint64_t h = before + spread_c;
  for (std::size_t i = 0; i < ids.size(); i += 2) {
    const std::uint64_t low = static_cast<std::uint32_t>(ids[i]);
    const std::uint64_t high = i + 1 < ids.size() ? static_cast<std::uint32_t>(ids[i + 1]) : 0xffffffff;
    h ^= std::rotl((low | high << 32) * spread_b, 31) * spread_a;
    h = std::rotl(h, 27) * spread_a + spread_b;
  }
  h ^= h >> 33;
  h *= spread_b;
  h ^= h >> 29;
  h *= spread_c;
  return h ^ h >> 32;
}

} // namespace troupe
