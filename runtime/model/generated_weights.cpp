#include "runtime/model/generated_weights.hpp"
#include "runtime/base/check.hpp"
#include "runtime/base/noise.hpp"
#include "runtime/base/number_formats.hpp"
#include "runtime/base/sha256.hpp"
#include "runtime/model/config.hpp"
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

namespace troupe {
namespace {

// Sums of two uniform integers have a triangular distribution; these are the roots of their variances.
constexpr float spread_of_nibbles = 6.519202f; // two of 0..15
constexpr float spread_of_bytes = 104.5110f;   // two of 0..255
constexpr float spread_of_halves = 26754.27f;  // two of 0..65535
constexpr float spread_of_e2m1 = 2.926175f;    // one of the sixteen codes

// e4m3 codes of -15..15, by the two nibbles of a byte.
constexpr std::array<std::uint8_t, 256> make_fp8_codes() {
  std::array<std::uint8_t, 256> codes{};
  for (int b = 0; b < 256; ++b) {
    const int v = (b & 15) + (b >> 4) - 15;
    int m = v < 0 ? -v : v, exponent = 7;
    if (m == 0)
      continue;
    int fraction = m * 8;                 // in eighths of 2^0
    for (; fraction >= 16; fraction /= 2) // exact: m has at most four bits
      ++exponent;
    codes[static_cast<std::size_t>(b)] = static_cast<std::uint8_t>((v < 0 ? 0x80 : 0) | exponent << 3 | (fraction - 8));
  }
  return codes;
}
constexpr std::array<std::uint8_t, 256> fp8_codes = make_fp8_codes();

bool ends(std::string_view name, std::string_view suffix) {
  return name.ends_with(suffix);
}

struct distribution {
  float center = 0, spread = 1;
};

float inverse_root(std::int64_t n) {
  return 1.0f / std::sqrt(static_cast<float>(n));
}

// Of the values of a tensor's module. inputs: columns of a matrix, unpacked.
distribution distribution_of(std::string_view name, std::int64_t inputs) {
  if (ends(name, "norm.weight") || ends(name, "engram.q_weight") || ends(name, "engram.k_weight"))
    return {1, 0.2f};
  if (ends(name, "_scale")) // of the mixes
    return {0.5f, 0.05f};
  if (ends(name, "_base"))
    return {0, 0.3f};
  if (ends(name, "gate.bias") || ends(name, "gate.bias_vl"))
    return {0, 0.05f};
  if (ends(name, "attn_sink"))
    return {0, 1};
  if (name == "embed" || ends(name, "markov_head.embed"))
    return {0, 1};
  if (ends(name, "engram.embed"))
    return {0, 1};
  if (name == "head")
    return {0, 4 * inverse_root(inputs)};
  if (ends(name, "attn.wq_b")) // attention that prefers some keys
    return {0, 3 * inverse_root(inputs)};
  return {0, inverse_root(inputs)};
}

// Start values of a mixing site (model.md §3): each layer reads mostly one stream and carries the streams on.
std::vector<float> base_pattern(int streams, int layer) {
  std::vector<float> base(static_cast<std::size_t>(streams * (streams + 2)));
  for (int m = 0; m < streams; ++m) {
    base[static_cast<std::size_t>(m)] = m == layer % streams ? 1.5f : -1.5f;
    for (int k = 0; k < streams; ++k)
      base[static_cast<std::size_t>((m + 2) * streams + k)] = m == k ? 1.5f : -1.5f;
  }
  return base;
}

int layer_number(std::string_view name) { // "layers.12.…" -> 12
  const std::size_t dot = name.find('.');
  int layer = 0;
  if (dot != std::string_view::npos)
    std::from_chars(name.data() + dot + 1, name.data() + name.size(), layer);
  return layer;
}

// "x.weight" and "x.scale" belong to module "x"; other names stand for themselves, as do norms.
std::string_view module_of(std::string_view name) {
  for (const std::string_view suffix : {std::string_view(".weight"), std::string_view(".scale")})
    if (ends(name, suffix) && !ends(name, "norm.weight"))
      return name.substr(0, name.size() - suffix.size());
  return name;
}

// Columns of the weight that a tensor is or scales.
std::int64_t inputs_of(const expected_tensor& t) {
  const std::int64_t columns = t.shape.back();
  if (t.dtype == tensor_type::i8)
    return 2 * columns;
  return t.dtype == tensor_type::f8_e8m0 ? 32 * columns : columns;
}

bool is_expert(std::string_view name) {
  return name.find(".experts.") != std::string_view::npos;
}

template <class T> void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

} // namespace

generated_tensor::generated_tensor(const expected_tensor& tensor, const model_config& config, std::uint64_t seed)
    : type_(tensor.dtype), seed_(seed) {
  bytes_ = size_of(tensor.dtype);
  for (const std::int64_t d : tensor.shape)
    bytes_ *= static_cast<std::uint64_t>(d);
  const sha256_digest digest = sha256_of(tensor.name);
  for (std::size_t i = 8; i-- > 0;)
    name_ = name_ << 8 | digest[i];
  const distribution d = distribution_of(module_of(tensor.name), inputs_of(tensor));
  center_ = d.center;
  spread_ = d.spread;
  // The power of two next below makes, with its two neighbours, about the wanted spread.
  exponent_ = 127 + std::ilogb(spread_ / (is_expert(tensor.name) ? spread_of_e2m1 : spread_of_nibbles));
  if (ends(tensor.name, "_base"))
    pattern_ = base_pattern(config.hc_mult, layer_number(tensor.name));
}

void generated_tensor::fill(std::uint64_t first, std::span<std::byte> out) const {
  TROUPE_CHECK(first % 16 == 0 && first + out.size() <= bytes_, "generated_tensor: range outside the tensor");
  const float byte_step = spread_ / spread_of_bytes, half_step = spread_ / spread_of_halves;
  for (std::size_t at = 0; at < out.size(); at += 16) {
    const std::uint64_t block = (first + at) / 16;
    const philox_words w = philox(seed_, static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                                  static_cast<std::uint32_t>(name_), static_cast<std::uint32_t>(name_ >> 32));
    std::array<std::byte, 16> made{};
    for (std::size_t i = 0; i < 4; ++i) {
      const std::uint32_t bits = w.w[i];
      const auto byte = [bits](std::size_t k) { return bits >> (8 * k) & 255u; };
      std::byte* to = made.data() + 4 * i;
      switch (type_) {
      case tensor_type::f8_e4m3:
        for (std::size_t k = 0; k < 4; ++k)
          put(to + k, fp8_codes[byte(k)]);
        break;
      case tensor_type::f8_e8m0: // one step up or down for a quarter each
        for (std::size_t k = 0; k < 4; ++k)
          put(to + k, static_cast<std::uint8_t>(exponent_ + ((byte(k) & 3u) == 0u) - ((byte(k) & 3u) == 1u)));
        break;
      case tensor_type::bf16:
        for (std::size_t k = 0; k < 4; k += 2) {
          const int sum = static_cast<int>(byte(k) + byte(k + 1)) - 255;
          put(to + k, bf16_from_f32(center_ + static_cast<float>(sum) * byte_step));
        }
        break;
      case tensor_type::f32: {
        const int sum = static_cast<int>((bits & 0xffffu) + (bits >> 16)) - 65535;
        const std::uint64_t element = block * 4 + i;
        const float middle = element < pattern_.size() ? pattern_[static_cast<std::size_t>(element)] : center_;
        put(to, middle + static_cast<float>(sum) * half_step);
        break;
      }
      default: // packed e2m1: every code
        put(to, bits);
      }
    }
    std::memcpy(out.data() + at, made.data(), std::min<std::size_t>(16, out.size() - at));
  }
}

} // namespace troupe
