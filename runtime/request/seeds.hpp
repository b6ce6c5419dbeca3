// Seeds of requests and of their branches (exactness.md §6).
#pragma once
#include <cstdint>
#include <string_view>

namespace troupe {

// Seed of a request that gives none, from the run's seed and the request's id; 53 bits, so JSON readers keep it exact.
std::uint64_t derived_seed(std::uint64_t run_seed, std::string_view request_id);

// Seed of branch j of n; branch 0 has the request's own.
std::uint64_t branch_seed(std::uint64_t seed, std::uint32_t branch);

} // namespace troupe
