// The team of one (kernels/plain/team.hpp): the reference kernels' shell around the plain set.
#pragma once
#include "kernels/plain/qualifiers.hpp"
#include "kernels/reference/sums.hpp"

namespace troupe::reference {

struct alone {
  TROUPE_PLAIN static constexpr int rank() { return 0; }
  TROUPE_PLAIN static constexpr int size() { return 1; }
  TROUPE_PLAIN static void sync() {}
  TROUPE_PLAIN static std::uint64_t total(std::uint64_t n) { return n; }
  TROUPE_PLAIN static std::uint64_t largest(std::uint64_t k) { return k; }
  TROUPE_PLAIN static std::int32_t before(bool flag, std::int32_t& all) {
    all = flag ? 1 : 0;
    return 0;
  }
  static float sum16(const float* a, const float* b, std::int64_t n) { return dot16(a, b, n); }
  static float sum16_weighted(const float* a, const float* b, const float* w, std::int64_t n) {
    return dot16_weighted(a, b, w, n);
  }
};

} // namespace troupe::reference
