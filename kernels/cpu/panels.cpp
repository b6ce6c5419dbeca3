#include "kernels/cpu/panels.hpp"

#include "kernels/reference/weights.hpp"
#include "runtime/base/device_error.hpp"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace troupe::cpu {

std::shared_ptr<std::byte> weight_arena::take(std::size_t bytes) {
  constexpr std::size_t huge_page = std::size_t{2} << 20, chunk_bytes = 16 * huge_page;
  const std::size_t rounded = (bytes + 63) / 64 * 64;
  const std::lock_guard lock(mutex_);
  if (size_ - used_ < rounded) {
    const std::size_t size = std::max(chunk_bytes, (rounded + huge_page - 1) / huge_page * huge_page);
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(huge_page, size));
    if (memory == nullptr)
      throw device_error("cpu: no memory for weights: needs " + std::to_string(size) + " bytes");
#if defined(MADV_HUGEPAGE)
    (void)madvise(memory, size, MADV_HUGEPAGE); // a wish: small pages are only slower
#endif
    chunk_ = std::shared_ptr<std::byte>(memory, [](std::byte* p) { std::free(p); });
    size_ = size;
    used_ = 0;
  }
  std::shared_ptr<std::byte> piece(chunk_, chunk_.get() + used_);
  used_ += rounded;
  std::memset(piece.get(), 0, rounded);
  return piece;
}

namespace {

constexpr std::int64_t fp8_scale_bias = 120; // an e4m3 code moved to an fp32's place counts 2^-120

std::uint8_t byte_of(std::span<const std::byte> bytes, std::int64_t i) {
  return std::to_integer<std::uint8_t>(bytes[static_cast<std::size_t>(i)]);
}

// The packed format that gives exactly the values of this source.
panel_format exact_format(const weight_source& s) {
  switch (s.format) {
  case weight_format::f32:
    return panel_format::f32;
  case weight_format::bf16:
    return panel_format::bf16;
  case weight_format::fp8_block:
  case weight_format::fp8_row:
    for (const std::byte b : s.scale)
      if (std::to_integer<std::int64_t>(b) + fp8_scale_bias > 254)
        return panel_format::f32;
    for (const std::byte b : s.data)
      if ((b & std::byte{0x7f}) == std::byte{0x7f}) // NaN
        return panel_format::f32;
    return panel_format::fp8;
  case weight_format::mxfp4:
    for (const std::byte b : s.scale)
      if (b == std::byte{0} || b == std::byte{255}) // not a normal power of two
        return panel_format::f32;
    return panel_format::fp4;
  }
  return panel_format::f32;
}

// One source row's dwords go to lane `lane` of its panel.
void pack_row(panel_weight& w, const weight_source& s, std::int64_t row, std::int64_t panel, int lane) {
  const panel_place place = place_of(w.view(), panel);
  std::uint32_t* out = const_cast<std::uint32_t*>(place.words) + lane; // w owns them
  const std::int64_t cols = w.cols, stride = place.word_stride;
  switch (w.format) {
  case panel_format::f32: {
    std::vector<float> values(static_cast<std::size_t>(cols));
    reference::dequantise_row(s, row, values.data());
    for (std::int64_t k = 0; k < cols; ++k)
      std::memcpy(out + k * stride, &values[static_cast<std::size_t>(k)], sizeof(float));
    return;
  }
  case panel_format::bf16:
    for (std::int64_t k = 0; k < cols; ++k) {
      const std::int64_t at = 2 * (row * cols + k); // little endian in the file
      const auto code = static_cast<std::uint32_t>(byte_of(s.data, at) | byte_of(s.data, at + 1) << 8);
      out[k / 2 * stride] |= code << (k % 2 * 16);
    }
    return;
  case panel_format::fp8:
    for (std::int64_t k = 0; k < cols; ++k)
      out[k / 4 * stride] |= static_cast<std::uint32_t>(byte_of(s.data, row * cols + k)) << (k % 4 * 8);
    break;
  case panel_format::fp4:
    for (std::int64_t k = 0; k < cols; k += 2)
      out[k / 8 * stride] |= static_cast<std::uint32_t>(byte_of(s.data, (row * cols + k) / 2)) << (k % 8 * 4);
    break;
  }
  const std::int64_t blocks = (cols + 31) / 32;
  std::uint8_t* scales = const_cast<std::uint8_t*>(place.scales) + lane;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t at = (s.format == weight_format::fp8_block ? row / 32 : row) * blocks + b;
    const int bias = w.format == panel_format::fp8 ? static_cast<int>(fp8_scale_bias) : 0;
    scales[b * place.scale_stride] = static_cast<std::uint8_t>(byte_of(s.scale, at) + bias);
  }
}

// Zeroed memory for a weight; what it had already, if that fits.
void reserve(panel_weight& w, panel_format format, std::int64_t rows, std::int64_t cols, weight_arena& arena) {
  w.format = format;
  w.rows = rows;
  w.cols = cols;
  const panel_view v = w.view();
  const auto words = static_cast<std::size_t>(v.panels() * v.words_per_panel() * 16);
  const bool scaled = format == panel_format::fp8 || format == panel_format::fp4;
  const std::size_t scales = scaled ? static_cast<std::size_t>(v.panels() * v.blocks() * 16) : 0;
  if (w.words.size() == words && w.scales.size() == scales) {
    std::fill_n(w.words.data(), words, 0u);
    std::fill_n(w.scales.data(), scales, std::uint8_t{0});
    return;
  }
  w.words = aligned_array<std::uint32_t>(words, arena);
  w.scales = scales > 0 ? aligned_array<std::uint8_t>(scales, arena) : aligned_array<std::uint8_t>();
}

void fill(panel_weight& w, const weight_source& s, weight_arena& arena) {
  reserve(w, exact_format(s), s.rows, s.cols, arena);
  for (std::int64_t r = 0; r < s.rows; ++r)
    pack_row(w, s, r, r / 16, static_cast<int>(r % 16));
}

} // namespace

panel_view panel_weight::view() const {
  panel_view v;
  v.format = format;
  v.words = words.data();
  v.scales = scales.data();
  v.outputs = rows;
  v.inputs = cols;
  return v;
}

std::shared_ptr<const panel_weight> pack_weight(const weight_source& s, weight_arena& arena) {
  reference::check_source(s);
  auto w = std::make_shared<panel_weight>();
  fill(*w, s, arena);
  return w;
}

static void pack_expert(panel_expert& e, const expert_source& s, weight_arena& arena) {
  const panel_format f1 = exact_format(s.w1), f3 = exact_format(s.w3);
  reserve(e.w13, f1 == f3 ? f1 : panel_format::f32, (s.w1.rows + 15) / 16 * 32, s.w1.cols, arena);
  for (std::int64_t r = 0; r < s.w1.rows; ++r) {
    pack_row(e.w13, s.w1, r, r / 16 * 2, static_cast<int>(r % 16));
    pack_row(e.w13, s.w3, r, r / 16 * 2 + 1, static_cast<int>(r % 16));
  }
  fill(e.w2, s.w2, arena);
}

std::shared_ptr<panel_expert_set> pack_experts(std::span<const expert_source> sources, weight_arena& arena) {
  reference::check_experts(sources);
  auto set = std::make_shared<panel_expert_set>();
  set->slots = static_cast<std::int32_t>(sources.size());
  set->experts.resize(sources.size());
  for (std::size_t e = 0; e < sources.size(); ++e) {
    set->intermediate = sources[e].w1.rows;
    set->hidden = sources[e].w1.cols;
    pack_expert(set->experts[e], sources[e], arena);
  }
  return set;
}

void replace_expert(panel_expert_set& set, std::int32_t slot, const expert_source& source, weight_arena& arena) {
  reference::check_replacement(set, slot, source);
  pack_expert(set.experts[static_cast<std::size_t>(slot)], source, arena);
}

} // namespace troupe::cpu
