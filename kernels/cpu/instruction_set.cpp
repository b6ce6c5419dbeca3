#include "kernels/cpu/instruction_set.hpp"

#include "kernels/cpu/targets.hpp"

#include "hwy/highway.h"
#include "runtime/base/check.hpp"
#include <cstdint>

namespace troupe::cpu {
namespace {

std::vector<std::int64_t> targets() { // lower bits are better sets
  const std::int64_t here = hwy::SupportedTargets() & HWY_TARGETS;
  std::vector<std::int64_t> v;
  for (int bit = 0; bit < 63; ++bit)
    if ((here >> bit & 1) != 0)
      v.push_back(std::int64_t{1} << bit);
  return v;
}

} // namespace

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const std::int64_t t : targets())
    names.emplace_back(hwy::TargetName(t));
  return names;
}

void use_instruction_set(const std::string& name) {
  hwy::SetSupportedTargetsForTest(0);
  if (name.empty())
    return;
  for (const std::int64_t t : targets())
    if (name == hwy::TargetName(t))
      return hwy::SetSupportedTargetsForTest(t);
  TROUPE_CHECK(false, "unknown instruction set");
}

} // namespace troupe::cpu
