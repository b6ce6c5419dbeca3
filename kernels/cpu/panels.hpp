// Weights of the cpu device. 16 outputs form a panel; inside it everything is ordered by input, so that one 64-byte
// word holds 1 (f32), 2 (bf16), 4 (fp8) or 8 (fp4) consecutive inputs of each of the 16 outputs, one dword per output,
// the earliest input in the lowest bits. Lanes go over outputs: every output keeps its own accumulator at any vector
// width.
#pragma once
#include "kernels/ops.hpp"
#include "kernels/weight_source.hpp"
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace troupe::cpu {

// Memory of packed weights, handed out piece by piece from large chunks that the system is asked to back with huge
// pages: a token reads all of the weights, with small pages more of them than the address caches hold. A chunk lives as
// long as a piece of it. Calls may come from several threads.
class weight_arena {
public:
  // Zeroed, at a 64-byte boundary. Throws device_error.
  std::shared_ptr<std::byte> take(std::size_t bytes);

private:
  std::mutex mutex_;
  std::shared_ptr<std::byte> chunk_;
  std::size_t used_ = 0, size_ = 0;
};

// n elements of an arena.
template <class T> class aligned_array {
public:
  aligned_array() = default;
  aligned_array(std::size_t n, weight_arena& arena) : bytes_(arena.take(n * sizeof(T))), size_(n) {}
  T* data() const { return reinterpret_cast<T*>(bytes_.get()); }
  std::size_t size() const { return size_; }

private:
  std::shared_ptr<std::byte> bytes_;
  std::size_t size_ = 0;
};

enum class panel_format : std::uint8_t { f32, bf16, fp8, fp4 };
constexpr int inputs_per_word(panel_format f) {
  return f == panel_format::f32 ? 1 : f == panel_format::bf16 ? 2 : f == panel_format::fp8 ? 4 : 8;
}

// Where the words lie; made from panel_weight, or over a plain fp32 matrix. Eight panels form a strip (the last one may
// be narrower) whose words alternate: word 0 of its panels, word 1 of its panels, ... Whoever computes a strip reads
// one stream of memory. The scales of a strip alternate in the same way.
constexpr std::int64_t panels_per_strip = 8;
struct panel_view {
  panel_format format = panel_format::f32;
  const std::uint32_t* words = nullptr;
  const std::uint8_t* scales = nullptr; // 16 biased exponents per panel and block of 32 inputs; fp8's count 120 more
  std::int64_t outputs = 0, inputs = 0;
  std::int64_t plain_row = 0; // plain: floats from input to input; 0: strips
  std::int64_t panels() const { return (outputs + 15) / 16; }
  std::int64_t words_per_panel() const { return (inputs + inputs_per_word(format) - 1) / inputs_per_word(format); }
  std::int64_t blocks() const { return (inputs + 31) / 32; }
};

// Panel p of a view: its word i at words + i*word_stride (dwords), its scales of block b at scales + b*scale_stride.
// The next panels of the strip follow 16 dwords (16 bytes) later.
struct panel_place {
  const std::uint32_t* words = nullptr;
  const std::uint8_t* scales = nullptr;
  std::int64_t word_stride = 0, scale_stride = 0;
};
inline panel_place place_of(const panel_view& v, std::int64_t panel) {
  if (v.plain_row != 0)
    return {v.words + panel * 16, nullptr, v.plain_row, 0};
  const std::int64_t first = panel / panels_per_strip * panels_per_strip;
  const std::int64_t width = v.panels() - first < panels_per_strip ? v.panels() - first : panels_per_strip;
  panel_place p{v.words + first * v.words_per_panel() * 16 + (panel - first) * 16, nullptr, width * 16, 0};
  if (v.scales != nullptr) {
    p.scales = v.scales + first * v.blocks() * 16 + (panel - first) * 16;
    p.scale_stride = width * 16;
  }
  return p;
}

// fp32 [inputs, row >= 16 * ceil(outputs / 16)] as panels: value of output o and input k at data[k*row + o].
inline panel_view view_of_rows(const float* data, std::int64_t inputs, std::int64_t row, std::int64_t outputs) {
  panel_view v;
  v.words = reinterpret_cast<const std::uint32_t*>(data);
  v.outputs = outputs;
  v.inputs = inputs;
  v.plain_row = row;
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
std::shared_ptr<const panel_weight> pack_weight(const weight_source& s, weight_arena& arena);
std::shared_ptr<panel_expert_set> pack_experts(std::span<const expert_source> sources, weight_arena& arena);
void replace_expert(panel_expert_set& set, std::int32_t slot, const expert_source& source, weight_arena& arena);

} // namespace troupe::cpu
