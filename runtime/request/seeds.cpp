#include "runtime/request/seeds.hpp"

#include "runtime/base/noise.hpp"
#include "runtime/base/sha256.hpp"

namespace troupe {

std::uint64_t derived_seed(std::uint64_t run_seed, std::string_view request_id) {
  constexpr std::string_view domain{"troupe-seed-1\0", 14}; // the zero byte ends the domain name
  sha256 hash;
  hash.update(domain);
  hash.update_u64(run_seed);
  hash.update(request_id);
  const sha256_digest digest = hash.finish();
  std::uint64_t first = 0;
  for (unsigned i = 0; i < 8; ++i)
    first |= std::uint64_t{digest[i]} << (8 * i);
  return first >> 11;
}

std::uint64_t branch_seed(std::uint64_t seed, std::uint32_t branch) {
  if (branch == 0)
    return seed;
  const philox_words r = philox(seed, branch, noise_branch, 0, 0);
  return r.w[0] | std::uint64_t{r.w[1]} << 32;
}

} // namespace troupe
