// libFuzzer target; see dev/fuzz.
#include "tests/fuzz/one_constraint.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  (void)troupe::fuzz::try_constraint(troupe::constraint_kind::ebnf, {reinterpret_cast<const char*>(data), size});
  return 0;
}
