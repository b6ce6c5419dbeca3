// Weights of the reference device: every format dequantised to fp32, stored [inputs][outputs].
#pragma once
#include "kernels/ops.hpp"
#include "kernels/weight_source.hpp"
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe::reference {

std::string describe(const weight_source& s); // "fp8_block [384, 192]"

// Throws device_error when rows, cols and the sizes of data and scale do not agree.
void check_source(const weight_source& s);

// Row `row` of a checked source as fp32: out[cols]. UE8M0 scales make every value exact.
void dequantise_row(const weight_source& s, std::int64_t row, float* out);

struct reference_weight : weight {
  std::vector<float> w; // [cols][rows]
};
struct reference_expert {
  reference_weight w1, w3, w2;
};
struct reference_expert_set : expert_set {
  std::vector<reference_expert> experts; // [slots]
};

// Throw device_error for a bad source, or experts of differing shapes.
reference_weight make_weight(const weight_source& s);
std::shared_ptr<reference_expert_set> make_experts(std::span<const expert_source> sources);
void replace_expert(reference_expert_set& set, std::int32_t slot, const expert_source& source);
void check_experts(std::span<const expert_source> sources);
// That an expert has the shapes of a set with this slot.
void check_replacement(const expert_set& set, std::int32_t slot, const expert_source& source);

} // namespace troupe::reference
