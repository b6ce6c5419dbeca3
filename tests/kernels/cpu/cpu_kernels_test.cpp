// SIMD forms against their scalar definitions with every instruction set of this machine, and the vectors T7 and T8 of
// exactness.md on the device.
#include "devices/device.hpp"
#include "kernels/cpu/exact.hpp"
#include "kernels/cpu/instruction_set.hpp"
#include "kernels/cpu/panels.hpp"
#include "runtime/base/device_error.hpp"
#include "runtime/base/exact_math.hpp"
#include "runtime/base/noise.hpp"
#include "runtime/base/number_formats.hpp"
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>

using namespace troupe;

namespace {

template <class F> void with_every_instruction_set(F&& f) {
  for (const std::string& name : cpu::instruction_sets()) {
    cpu::use_instruction_set(name);
    f(name);
  }
  cpu::use_instruction_set("");
}

// Any NaN counts as one; everything else bit by bit.
bool same(float a, float b) {
  return (a != a && b != b) || float_bits(a) == float_bits(b);
}

// Every exponent and sign with dense mantissas, the ends of every range, NaNs and infinities.
std::vector<float> interesting_floats() {
  std::vector<float> v;
  std::uint32_t mix = 12345;
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent)
    for (std::uint32_t sign = 0; sign < 2; ++sign) {
      const std::uint32_t base = sign << 31 | exponent << 23;
      for (const std::uint32_t mantissa : {0u, 1u, 2u, 0x3504f3u, 0x3504f4u, 0x400000u, 0x7ffffeu, 0x7fffffu})
        v.push_back(bits_float(base | mantissa));
      for (int i = 0; i < 120; ++i) {
        mix = mix * 1664525u + 1013904223u;
        v.push_back(bits_float(base | mix >> 9));
      }
    }
  for (int i = -20000; i < 20000; ++i) // where exp and its relatives live
    v.push_back(static_cast<float>(i) * 0.0061f);
  return v;
}

weight_source source_of(weight_format f, std::int64_t rows, std::int64_t cols, const std::vector<std::byte>& data,
                        const std::vector<std::byte>& scale) {
  weight_source s;
  s.format = f;
  s.rows = rows;
  s.cols = cols;
  s.data = data;
  s.scale = scale;
  return s;
}

} // namespace

BOOST_AUTO_TEST_SUITE(cpu_kernels)

BOOST_AUTO_TEST_CASE(exact_functions_have_the_scalar_bits) {
  const std::vector<float> x = interesting_floats();
  std::vector<float> out(x.size());
  struct entry {
    cpu::exact_function f;
    float (*scalar)(float);
    bool domain; // log1p: 0 <= y <= 2^100
  };
  const entry all[] = {
      {cpu::exact_function::exp, exp_f32, false},           {cpu::exact_function::log1p, log1p_f32, true},
      {cpu::exact_function::softplus, softplus_f32, false}, {cpu::exact_function::sigmoid, sigmoid_f32, false},
      {cpu::exact_function::silu, silu_f32, false},         {cpu::exact_function::rsqrt, rsqrt_f32, false},
  };
  int sets = 0;
  with_every_instruction_set([&](const std::string& name) {
    ++sets;
    for (const entry& e : all) {
      cpu::apply(e.f, x.data(), out.data(), x.size());
      for (std::size_t i = 0; i < x.size(); ++i)
        if (!e.domain || (x[i] >= 0 && x[i] <= 0x1p100f) || x[i] != x[i])
          BOOST_REQUIRE_MESSAGE(same(out[i], e.scalar(x[i])),
                                name << " function " << static_cast<int>(e.f) << " of " << std::hexfloat << x[i]);
    }
  });
  BOOST_TEST(sets >= 1);
}

BOOST_AUTO_TEST_CASE(fused_multiply_add_rounds_once) {
  std::vector<float> a, b, c;
  const std::vector<float> values = interesting_floats();
  std::uint32_t mix = 99;
  const auto pick = [&] {
    mix = mix * 1664525u + 1013904223u;
    return values[mix % values.size()];
  };
  for (int i = 0; i < 300000; ++i) {
    a.push_back(pick());
    b.push_back(pick());
    switch (i % 4) { // the hard cases: sums that cancel or lie half way between two floats
    case 0:
      c.push_back(pick());
      break;
    case 1:
      c.push_back(-(a.back() * b.back()));
      break;
    case 2:
      c.push_back(a.back() * b.back() * 0x1p24f);
      break;
    default:
      c.push_back(a.back() * b.back() * -0x1p-24f);
      break;
    }
  }
  std::vector<float> out(a.size());
  with_every_instruction_set([&](const std::string& name) {
    cpu::fused_multiply_add(a.data(), b.data(), c.data(), out.data(), a.size());
    for (std::size_t i = 0; i < a.size(); ++i)
      BOOST_REQUIRE_MESSAGE(same(out[i], std::fma(a[i], b[i], c[i])),
                            name << std::hexfloat << " " << a[i] << " " << b[i] << " " << c[i]);
  });
}

BOOST_AUTO_TEST_CASE(t7_product_and_row_reduction) {
  const auto value = [](std::uint32_t key, std::uint32_t i) {
    const std::uint32_t w = philox(std::uint64_t{key}, i, 0, 0, 0).w[0];
    return static_cast<float>(static_cast<std::int32_t>(w >> 8) - (1 << 23)) * 0x1p-23f;
  };
  std::vector<float> a, b;
  for (std::uint32_t i = 0; i < 1000; ++i) {
    a.push_back(value(1, i));
    b.push_back(value(2, i));
  }
  BOOST_TEST(float_bits(a[0]) == 0x3f47d00cu);
  BOOST_TEST(float_bits(b[0]) == 0xbe18af10u);
  std::vector<std::byte> data(4000);
  std::memcpy(data.data(), b.data(), 4000);
  with_every_instruction_set([&](const std::string& name) {
    const auto d = make_device("cpu", {2, {}});
    const auto s = d->make_stream();
    const auto w = d->pack(source_of(weight_format::f32, 1, 1000, data, {}));
    float product = 0;
    linear_args l;
    l.x = dev_ptr<const float>(a.data());
    l.w = w.get();
    l.rows = 1;
    l.out = dev_ptr<float>(&product);
    d->ops().linear(*s, l);
    BOOST_TEST(float_bits(product) == 0xbf1355c9u, name);
    // out = x * r * w with r = 1 / sqrt(sum / 1000), so the order of the sum shows in every element
    const std::vector<float> ones(1000, 1.0f);
    std::vector<float> out(1000);
    rms_norm_args n;
    n.x = l.x;
    n.w = dev_ptr<const float>(ones.data());
    n.rows = 1;
    n.cols = 1000;
    n.out = dev_ptr<float>(out.data());
    d->ops().rms_norm(*s, n);
    const float r = 1.0f / std::sqrt(bits_float(0x43a1c8fau) / 1000.0f + 0.0f);
    for (std::size_t i = 0; i < 1000; ++i)
      BOOST_REQUIRE(float_bits(out[i]) == float_bits(a[i] * r));
  });
}

BOOST_AUTO_TEST_CASE(t8_combination_order) {
  const std::vector<float> shared(40, 1.0f);
  std::vector<float> y, out(40);
  for (const float v : {16777216.0f, -16777216.0f, 0.5f, 0.25f, 2.0f, 4.0f})
    y.insert(y.end(), 40, v);
  with_every_instruction_set([&](const std::string& name) {
    const auto d = make_device("cpu", {1, {}});
    combine_args a;
    a.shared = dev_ptr<const float>(shared.data());
    a.y = dev_ptr<const float>(y.data());
    a.rows = 1;
    a.k = 6;
    a.hidden = 40;
    a.out = dev_ptr<float>(out.data());
    for (const bool rounded : {false, true}) {
      a.round_bf16 = rounded;
      d->ops().combine(*d->make_stream(), a);
      for (const float v : out)
        BOOST_REQUIRE_MESSAGE(v == 6.75f, name);
    }
  });
}

BOOST_AUTO_TEST_CASE(packed_weights_stay_small_where_they_are_exact) {
  const std::int64_t rows = 64, cols = 96;
  std::vector<std::byte> codes(rows * cols, std::byte{0x35}), block_scales(2 * 3, std::byte{120});
  cpu::weight_arena arena;
  const auto format_of = [&](const weight_source& s) { return cpu::pack_weight(s, arena)->format; };
  BOOST_TEST(
      (format_of(source_of(weight_format::fp8_block, rows, cols, codes, block_scales)) == cpu::panel_format::fp8));
  // bytes: one a code and one scale for each output and 32 inputs
  const auto packed = cpu::pack_weight(source_of(weight_format::fp8_block, rows, cols, codes, block_scales), arena);
  BOOST_TEST(packed->bytes() == static_cast<std::size_t>(rows * cols + rows * cols / 32));
  // the largest scale that still fits, then one more
  block_scales[4] = std::byte{134};
  BOOST_TEST(
      (format_of(source_of(weight_format::fp8_block, rows, cols, codes, block_scales)) == cpu::panel_format::fp8));
  block_scales[4] = std::byte{135};
  BOOST_TEST(
      (format_of(source_of(weight_format::fp8_block, rows, cols, codes, block_scales)) == cpu::panel_format::f32));
  block_scales[4] = std::byte{120};
  codes[100] = std::byte{0xff}; // NaN
  BOOST_TEST(
      (format_of(source_of(weight_format::fp8_block, rows, cols, codes, block_scales)) == cpu::panel_format::f32));
  std::vector<std::byte> nibbles(rows * cols / 2, std::byte{0x7f}), row_scales(rows * cols / 32, std::byte{1});
  BOOST_TEST((format_of(source_of(weight_format::mxfp4, rows, cols, nibbles, row_scales)) == cpu::panel_format::fp4));
  row_scales[5] = std::byte{254};
  BOOST_TEST((format_of(source_of(weight_format::mxfp4, rows, cols, nibbles, row_scales)) == cpu::panel_format::fp4));
  for (const int odd : {0, 255}) {
    row_scales[5] = static_cast<std::byte>(odd);
    BOOST_TEST((format_of(source_of(weight_format::mxfp4, rows, cols, nibbles, row_scales)) == cpu::panel_format::f32));
  }
  BOOST_CHECK_THROW((void)cpu::pack_weight(source_of(weight_format::mxfp4, rows, 33, nibbles, row_scales), arena),
                    device_error);
}

BOOST_AUTO_TEST_SUITE_END()
