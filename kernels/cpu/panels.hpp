// Weights of the cpu device. 16 outputs form a panel; inside it everything is ordered by input, so that one 64-byte
// word holds 1 (f32), 2 (bf16), 4 (fp8) or 8 (fp4) consecutive inputs of each of the 16 outputs, one dword per output,
// the earliest input in the lowest bits. Lanes go over outputs: every output keeps its own accumulator at any vector
// width.
#pragma once
#include "kernels/ops.hpp"
#include "kernels/weight_source.hpp"
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

namespace troupe::cpu {

// Zeroed memory of n elements at a 64-byte boundary.
template <class T> class aligned_array {
public:
  aligned_array() = default;
  explicit aligned_array(std::size_t n);
  T* data() const { return data_.get(); }
  std::size_t size() const { return size_; }

private:
  struct release {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T[], release> data_;
  std::size_t size_ = 0;
};

enum class panel_format : std::uint8_t { f32, bf16, fp8, fp4 };
constexpr int inputs_per_word(panel_format f) {
  return f == panel_format::f32 ? 1 : f == panel_format::bf16 ? 2 : f == panel_format::fp8 ? 4 : 8;
}

// Where the words lie; made from panel_weight, or over plain fp32 arrays (attention).
struct panel_view {
  panel_format format = panel_format::f32;
  const std::uint32_t* words = nullptr;
  const std::uint8_t* scales = nullptr; // [panels, blocks of 32 inputs, 16] biased exponents; fp8's count 120 more
  std::int64_t outputs = 0, inputs = 0;
  std::int64_t origin = 0;       // input of the first word: words may begin inside the matrix
  std::int64_t word_stride = 16; // dwords from one word of a panel to its next
  std::int64_t panel_stride = 0; // dwords from panel to panel
  std::int64_t scale_stride = 0; // bytes from panel to panel
  std::int64_t panels() const { return (outputs + 15) / 16; }
};

// Inputs [rows, ld >= 16 * ceil(outputs / 16)] of fp32 as panels: value of output o and input k at data[k*ld + o].
inline panel_view view_of_rows(const float* data, std::int64_t inputs, std::int64_t ld, std::int64_t outputs) {
  panel_view v;
  v.words = reinterpret_cast<const std::uint32_t*>(data);
  v.outputs = outputs;
  v.inputs = inputs;
  v.word_stride = ld;
  v.panel_stride = 16;
  return v;
}

class panel_weight : public weight {
public:
  panel_format format = panel_format::f32;
  aligned_array<std::uint32_t> words;
  aligned_array<std::uint8_t> scales;
  panel_view view() const;
  std::size_t bytes() const { return words.size() * sizeof(std::uint32_t) + scales.size(); }
};

// Experts of one layer. w13 holds the panels of w1 and w3 in turn (2q: channels 16q.. of w1, 2q+1: of w3).
struct panel_expert {
  panel_weight w13, w2;
};
class panel_expert_set : public expert_set {
public:
  std::vector<panel_expert> experts; // [slots]
};

// Exact: a source whose scales or codes the packed form could not express is stored as fp32. Throw device_error for a
// source whose sizes do not agree.
std::shared_ptr<const panel_weight> pack_weight(const weight_source& s);
std::shared_ptr<const panel_expert_set> pack_experts(std::span<const expert_source> sources);

} // namespace troupe::cpu
