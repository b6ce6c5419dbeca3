// Weights from a seed: for checkpoints that exercise sizes, layouts and speed without training. Every byte is a
// function of (seed, tensor name, its place in the tensor, configuration), so that two machines make the same
// checkpoint, whatever other tensors are made. Spreads follow from the sizes so that activations keep their magnitude
// through the layers, attention is not uniform, and logits differ by several units.
#pragma once
#include "runtime/model/expected_tensors.hpp"
#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe {

struct model_config;

class generated_tensor {
public:
  generated_tensor(const expected_tensor& tensor, const model_config& config, std::uint64_t seed);

  std::uint64_t bytes() const { return bytes_; }
  // Bytes [first, first + out.size()) of the tensor as it is stored. first is a multiple of 16.
  void fill(std::uint64_t first, std::span<std::byte> out) const;

private:
  tensor_type type_;
  std::uint64_t bytes_ = 0, seed_, name_ = 0;
  float center_ = 0, spread_ = 1; // of the values, or of the weight that a scale belongs to
  int exponent_ = 0;              // middle of the exponents, for scales
  std::vector<float> pattern_;    // added by place, for small vectors
};

} // namespace troupe
