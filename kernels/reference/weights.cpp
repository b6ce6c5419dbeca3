#include "kernels/reference/weights.hpp"

#include "kernels/plain/weights.hpp"
#include "runtime/base/device_error.hpp"
#include <cstring>
#include <limits>

namespace troupe::reference {
namespace {

const char* format_name(weight_format f) {
  switch (f) {
  case weight_format::f32:
    return "f32";
  case weight_format::bf16:
    return "bf16";
  case weight_format::fp8_block:
    return "fp8_block";
  case weight_format::fp8_row:
    return "fp8_row";
  case weight_format::mxfp4:
    return "mxfp4";
  }
  return "unknown format";
}

[[noreturn]] void refuse(const weight_source& s, const std::string& why) {
  throw device_error("weight " + describe(s) + ": " + why);
}

std::int64_t blocks32(std::int64_t n) {
  return n / 32 + (n % 32 != 0 ? 1 : 0);
}

void expect_bytes(const weight_source& s, const char* what, std::size_t have, std::int64_t want) {
  if (have != static_cast<std::size_t>(want))
    refuse(s, std::string(what) + " has " + std::to_string(have) + " bytes, expected " + std::to_string(want));
}

} // namespace

std::string describe(const weight_source& s) {
  return std::string(format_name(s.format)) + " [" + std::to_string(s.rows) + ", " + std::to_string(s.cols) + "]";
}

void check_source(const weight_source& s) {
  if (s.rows <= 0 || s.cols <= 0)
    refuse(s, "rows and columns must be positive");
  if (s.rows > std::numeric_limits<std::int64_t>::max() / 8 / s.cols)
    refuse(s, "too large");
  const std::int64_t elements = s.rows * s.cols;
  if ((s.format == weight_format::fp8_row || s.format == weight_format::mxfp4) && s.cols % 32 != 0)
    refuse(s, "columns must be a multiple of 32");
  switch (s.format) {
  case weight_format::f32:
    expect_bytes(s, "data", s.data.size(), 4 * elements);
    return expect_bytes(s, "scale", s.scale.size(), 0);
  case weight_format::bf16:
    expect_bytes(s, "data", s.data.size(), 2 * elements);
    return expect_bytes(s, "scale", s.scale.size(), 0);
  case weight_format::fp8_block:
    expect_bytes(s, "data", s.data.size(), elements);
    return expect_bytes(s, "scale", s.scale.size(), blocks32(s.rows) * blocks32(s.cols));
  case weight_format::fp8_row:
    expect_bytes(s, "data", s.data.size(), elements);
    return expect_bytes(s, "scale", s.scale.size(), elements / 32);
  case weight_format::mxfp4:
    expect_bytes(s, "data", s.data.size(), elements / 2);
    return expect_bytes(s, "scale", s.scale.size(), elements / 32);
  }
  refuse(s, "unknown format");
}

void dequantise_row(const weight_source& s, std::int64_t row, float* out) {
  if (s.format == weight_format::f32) {
    std::memcpy(out, s.data.data() + row * s.cols * 4, static_cast<std::size_t>(s.cols) * 4);
    return;
  }
  const plain::stored_view view{s.format, s.rows, s.cols, s.data.data(), s.scale.data()};
  plain::with_format(s.format, [&](auto format) {
    for (std::int64_t c = 0; c < s.cols; ++c)
      out[c] = plain::stored_value<decltype(format)::value>(view, row, c);
  });
}

reference_weight make_weight(const weight_source& s) {
  check_source(s);
  reference_weight w;
  w.rows = s.rows;
  w.cols = s.cols;
  w.w.resize(static_cast<std::size_t>(s.rows * s.cols));
  std::vector<float> row(static_cast<std::size_t>(s.cols));
  for (std::int64_t r = 0; r < s.rows; ++r) {
    dequantise_row(s, r, row.data());
    for (std::int64_t c = 0; c < s.cols; ++c)
      w.w[static_cast<std::size_t>(c * s.rows + r)] = row[static_cast<std::size_t>(c)];
  }
  return w;
}

void check_experts(std::span<const expert_source> sources) {
  if (sources.empty())
    return;
  const std::int64_t inner = sources[0].w1.rows, hidden = sources[0].w1.cols;
  for (std::size_t e = 0; e < sources.size(); ++e) {
    const auto expect = [&](const weight_source& s, const char* name, std::int64_t rows, std::int64_t cols) {
      check_source(s);
      if (s.rows != rows || s.cols != cols)
        refuse(s, std::string(name) + " of the expert in slot " + std::to_string(e) + " must be [" +
                      std::to_string(rows) + ", " + std::to_string(cols) + "]");
    };
    expect(sources[e].w1, "w1", inner, hidden);
    expect(sources[e].w3, "w3", inner, hidden);
    expect(sources[e].w2, "w2", hidden, inner);
  }
}

void check_replacement(const expert_set& set, std::int32_t slot, const expert_source& source) {
  check_experts(std::span(&source, 1));
  if (slot < 0 || slot >= set.slots || source.w1.rows != set.intermediate || source.w1.cols != set.hidden)
    refuse(source.w1, "w1 of an expert for slot " + std::to_string(slot) + " of " + std::to_string(set.slots) +
                          ", whose experts are [" + std::to_string(set.intermediate) + ", " +
                          std::to_string(set.hidden) + "]");
}

void replace_expert(reference_expert_set& set, std::int32_t slot, const expert_source& source) {
  check_replacement(set, slot, source);
  set.experts[static_cast<std::size_t>(slot)] = {make_weight(source.w1), make_weight(source.w3),
                                                 make_weight(source.w2)};
}

std::shared_ptr<reference_expert_set> make_experts(std::span<const expert_source> sources) {
  check_experts(sources);
  auto set = std::make_shared<reference_expert_set>();
  set->slots = static_cast<std::int32_t>(sources.size());
  if (!sources.empty()) {
    set->intermediate = sources[0].w1.rows;
    set->hidden = sources[0].w1.cols;
  }
  set->experts.reserve(sources.size());
  for (const expert_source& s : sources)
    set->experts.push_back({make_weight(s.w1), make_weight(s.w3), make_weight(s.w2)});
  return set;
}

} // namespace troupe::reference
