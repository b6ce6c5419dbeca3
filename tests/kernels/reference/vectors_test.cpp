// Single operations against the PyTorch reference model (tests/data/kernels/make_vectors.py): bits where the operation
// has no sum and no transcendental, else closeness at the level of fp32 noise.
#include "tests/support/row_cases.hpp"
#include "tests/support/tensor_file.hpp"
#include <boost/test/unit_test.hpp>
#include <cmath>

using namespace troupe;
using namespace troupe::row_cases;
using namespace troupe::test;

namespace {

// Root of the mean square of the difference, over that of the wanted values.
double distance(const std::vector<float>& got, const std::vector<float>& want) {
  BOOST_REQUIRE_EQUAL(got.size(), want.size());
  double wrong = 0, all = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    wrong += std::pow(static_cast<double>(got[i]) - static_cast<double>(want[i]), 2);
    all += std::pow(static_cast<double>(want[i]), 2);
  }
  return std::sqrt(wrong / all);
}
std::vector<std::uint32_t> bits(const std::vector<float>& v) {
  std::vector<std::uint32_t> b;
  for (const float x : v)
    b.push_back(float_bits(x));
  return b;
}

struct vectors {
  std::map<std::string, tensor> file = read_tensor_file(TROUPE_TEST_DATA "/kernels/vectors.safetensors");
  std::unique_ptr<device> d = make_device("reference", {});
  arena m{*d};
  std::int64_t dim(const char* name, std::size_t axis) const { return file.at(name).shape.at(axis); }
  std::int32_t dim32(const char* name, std::size_t axis) const { return static_cast<std::int32_t>(dim(name, axis)); }
  std::vector<float> f32(const char* name) const { return file.at(name).f32(); }
  std::vector<std::int32_t> i32(const char* name) const { return file.at(name).i32(); }
  dev_ptr<float> put(const char* name) { return m.put(f32(name)); }
  std::vector<float> get(dev_ptr<float> p, const char* like) {
    return m.get(dev_ptr<const float>(p), f32(like).size());
  }
  dev_ptr<float> room(const char* like) { return m.room<float>(f32(like).size()); }
  std::shared_ptr<const weight> pack_f32(const char* name) {
    const tensor& t = file.at(name);
    return d->pack({weight_format::f32, t.shape.at(0), t.shape.at(1), std::as_bytes(std::span(t.bytes)), {}, {}});
  }
};

} // namespace

BOOST_FIXTURE_TEST_SUITE(reference_vectors, vectors)

BOOST_AUTO_TEST_CASE(round_trips_have_the_bits_of_the_reference_model) {
  const std::int32_t rows = dim32("fmt_x", 0), cols = dim32("fmt_x", 1);
  const std::pair<kv_format, const char*> formats[] = {{kv_format::f32, "fmt_x"},
                                                       {kv_format::fp8_ue8m0_32, "fmt_fp8"},
                                                       {kv_format::fp4_ue8m0_32, "fmt_fp4"},
                                                       {kv_format::fp4_e4m3_16, "fmt_fp4_kv"}};
  for (const auto& [format, name] : formats) {
    const auto x = put("fmt_x"), rounded = room("fmt_x");
    d->ops().round(*m.s, {x, rows, cols, format, rounded});
    BOOST_TEST_CONTEXT(name)
    BOOST_TEST(bits(get(rounded, "fmt_x")) == bits(f32(name)), boost::test_tools::per_element());
    // through records: attention with one key and no sink returns the decoded key
    const auto records = m.room<std::byte>(static_cast<std::size_t>(rows * record_bytes(format, cols)));
    d->ops().encode(*m.s, {x, rows, cols, format, records});
    std::vector<std::int32_t> position(static_cast<std::size_t>(rows), 0), sequence;
    for (std::int32_t i = 0; i < rows; ++i)
      sequence.push_back(i);
    const std::vector<std::int32_t> ones(static_cast<std::size_t>(rows), 1);
    const auto zeros = m.put(position);
    const row_map map{rows,  rows,  rows,  zeros, m.put(sequence), zeros, zeros, m.put(sequence), m.put(ones),
                      zeros, zeros, zeros, 0};
    const auto out = room("fmt_x");
    const std::vector<float> no_sink = {-INFINITY};
    d->ops().attention(*m.s, {map,
                              1,
                              cols,
                              0.0f,
                              m.put(std::vector<float>(f32("fmt_x").size(), 0.0f)),
                              records,
                              {records, 0, 1, cols, format},
                              {},
                              {},
                              0,
                              m.put(no_sink),
                              out});
    const std::vector<float> got = get(out, "fmt_x"), want = f32(name);
    for (std::size_t i = 0; i < got.size(); ++i)
      BOOST_REQUIRE_EQUAL(got[i], want[i]); // by value: the sum turns -0 into 0
  }
}

BOOST_AUTO_TEST_CASE(weights_dequantise_to_the_bits_of_the_reference_model) {
  const std::pair<weight_format, std::string> kinds[] = {
      {weight_format::fp8_block, "w_block"}, {weight_format::fp8_row, "w_rows"}, {weight_format::mxfp4, "w_mx"}};
  for (const auto& [format, name] : kinds) {
    const tensor &data = file.at(name), &scale = file.at(name + "_scale"), &value = file.at(name + "_value");
    const weight_source s{format,
                          value.shape[0],
                          value.shape[1],
                          std::as_bytes(std::span(data.bytes)),
                          std::as_bytes(std::span(scale.bytes)),
                          {}};
    const auto rows = static_cast<std::int32_t>(s.rows), cols = static_cast<std::int32_t>(s.cols);
    std::vector<std::int32_t> ids;
    for (std::int32_t i = 0; i < rows; ++i)
      ids.push_back(i);
    const auto out = m.room<float>(static_cast<std::size_t>(rows * cols));
    const auto table = d->pack_table(s);
    d->ops().embed(*m.s, {table.get(), m.put(ids), rows, 1, out});
    BOOST_TEST_CONTEXT(name)
    BOOST_TEST(bits(get(out, (name + "_value").c_str())) == bits(value.f32()), boost::test_tools::per_element());
    // the packed weight holds the same numbers: products with unit vectors
    std::vector<float> unit(static_cast<std::size_t>(cols * cols), 0.0f);
    for (std::size_t c = 0; c < static_cast<std::size_t>(cols); ++c)
      unit[c * static_cast<std::size_t>(cols) + c] = 1;
    const auto w = d->pack(s);
    d->ops().linear(*m.s, {m.put(unit), w.get(), cols, 1, out});
    const std::vector<float> got = get(out, (name + "_value").c_str()), want = value.f32();
    for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r)
      for (std::size_t c = 0; c < static_cast<std::size_t>(cols); ++c)
        BOOST_REQUIRE_EQUAL(got[c * static_cast<std::size_t>(rows) + r], want[r * static_cast<std::size_t>(cols) + c]);
  }
}

BOOST_AUTO_TEST_CASE(norm) {
  const auto y = room("rms_y");
  d->ops().rms_norm(*m.s, {put("rms_x"), put("rms_w"), dim32("rms_x", 0), dim32("rms_x", 1), 1e-20f, y});
  BOOST_TEST(distance(get(y, "rms_y"), f32("rms_y")) < 1e-6);
}

BOOST_AUTO_TEST_CASE(hyper_connections) {
  const std::int32_t rows = dim32("hc_S", 0), streams = dim32("hc_S", 1), hidden = dim32("hc_S", 2);
  const auto trunk = put("hc_S"), pre = room("hc_pre"), post = room("hc_post"), comb = room("hc_comb");
  const auto fn = pack_f32("hc_fn");
  d->ops().hc_mixes(*m.s, {trunk, fn.get(), put("hc_scale"), put("hc_base"), rows, streams, hidden, 20, 1e-6f, 1e-20f,
                           pre, post, comb});
  BOOST_TEST(distance(get(pre, "hc_pre"), f32("hc_pre")) < 2e-6);
  BOOST_TEST(distance(get(post, "hc_post"), f32("hc_post")) < 2e-6);
  BOOST_TEST(distance(get(comb, "hc_comb"), f32("hc_comb")) < 2e-6);
  const auto collapsed = room("hc_collapsed"), mean = room("hc_mean");
  d->ops().hc_collapse(*m.s, {trunk, put("hc_pre"), rows, streams, hidden, collapsed});
  BOOST_TEST(distance(get(collapsed, "hc_collapsed"), f32("hc_collapsed")) < 5e-7);
  d->ops().hc_mean(*m.s, {trunk, rows, streams, hidden, mean, hidden});
  BOOST_TEST(distance(get(mean, "hc_mean"), f32("hc_mean")) < 5e-7);
  d->ops().hc_expand(*m.s, {put("hc_y"), put("hc_post"), put("hc_comb"), rows, streams, hidden, trunk});
  BOOST_TEST(distance(get(trunk, "hc_expanded"), f32("hc_expanded")) < 5e-7);
}

BOOST_AUTO_TEST_CASE(rotation_has_the_bits_of_the_reference_model) {
  std::vector<std::int32_t> position = {0, 1, 2, 3, 4}; // the table holds the rows of the positions only
  for (const bool inverse : {false, true}) {
    const auto x = put("rope_x");
    d->ops().rope(*m.s, {x, 5, 3, 128, 64, m.put(position), put("rope_table"), inverse});
    BOOST_TEST(bits(get(x, "rope_x")) == bits(f32(inverse ? "rope_back" : "rope_y")), boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(engram_rows_and_gate) {
  const std::int32_t rows = dim32("eng_ids", 0);
  const std::vector<std::int32_t> ids = i32("eng_ids"), map_of = i32("eng_map");
  // in one step, and in two steps with the history of the first: the same rows
  for (const std::int32_t cut : {0, 1, 2, 13}) {
    std::vector<std::int64_t> got;
    for (const auto& [first, count] : {std::pair(0, cut), std::pair(cut, rows - cut)}) {
      std::vector<std::int32_t> history;
      for (std::int32_t b = 3; b > 0; --b)
        history.push_back(first - b >= 0 ? ids[static_cast<std::size_t>(first - b)] : -1);
      row_map map;
      map.rows = count;
      map.sequences = 1;
      map.key_rows = count;
      std::vector<std::int32_t> position;
      for (std::int32_t i = 0; i < count; ++i)
        position.push_back(first + i);
      map.position = m.put(position);
      map.sequence = m.put(std::vector<std::int32_t>(static_cast<std::size_t>(count), 0));
      map.first_row = m.put(std::vector<std::int32_t>{0});
      map.start = m.put(std::vector<std::int32_t>{first});
      const auto out = m.room<std::int64_t>(static_cast<std::size_t>(count) * 6);
      d->ops().engram_rows(
          *m.s,
          {map, m.put(std::vector<std::int32_t>(ids.begin() + first, ids.begin() + first + count)), m.put(history),
           m.put(map_of), map_of[2], 4, 2, m.put(file.at("eng_mult").as<std::int64_t>()),
           m.put(file.at("eng_primes").as<std::int64_t>()), m.put(file.at("eng_offsets").as<std::int64_t>()), out});
      const auto part = m.get(dev_ptr<const std::int64_t>(out), static_cast<std::size_t>(count) * 6);
      got.insert(got.end(), part.begin(), part.end());
    }
    BOOST_TEST(got == file.at("eng_rows").as<std::int64_t>(), boost::test_tools::per_element());
  }
  const auto trunk = put("gate_S");
  d->ops().engram_gate(*m.s,
                       {trunk, put("gate_kv"), put("gate_qk"), dim32("gate_S", 0), 4, dim32("gate_S", 2), 1e-20f});
  BOOST_TEST(distance(get(trunk, "gate_y"), f32("gate_y")) < 1e-6);
}

BOOST_AUTO_TEST_CASE(mixture_of_experts) {
  const std::int32_t rows = dim32("moe_x", 0), hidden = dim32("moe_x", 1), experts = dim32("moe_logits", 1);
  const std::int64_t inner = dim("moe_w13", 1) / 2;
  const auto expert = m.room<std::int32_t>(static_cast<std::size_t>(rows) * 4);
  const auto weight_out = room("moe_weight");
  d->ops().route(*m.s, {put("moe_logits"), put("moe_bias"), rows, experts, 4, 1.5f, expert, weight_out, {}, {}});
  const auto chosen = m.get(dev_ptr<const std::int32_t>(expert), static_cast<std::size_t>(rows) * 4);
  BOOST_TEST(chosen == i32("moe_expert"), boost::test_tools::per_element());
  BOOST_TEST(chosen[0] == 3); // planted: experts 3 and 7 are equal
  BOOST_TEST(chosen[1] == 7);
  BOOST_TEST(distance(get(weight_out, "moe_weight"), f32("moe_weight")) < 1e-6);

  const auto floats = [&](const char* name, std::int64_t first, std::int64_t r, std::int64_t c) {
    const auto all = std::as_bytes(std::span(file.at(name).bytes));
    return weight_source{weight_format::f32,
                         r,
                         c,
                         all.subspan(static_cast<std::size_t>(4 * first), static_cast<std::size_t>(4 * r * c)),
                         {},
                         {}};
  };
  std::vector<expert_source> sources;
  std::vector<std::int32_t> slots;
  for (std::int64_t e = 0; e < experts; ++e) {
    sources.push_back({floats("moe_w13", 2 * e * inner * hidden, inner, hidden),
                       floats("moe_w13", (2 * e + 1) * inner * hidden, inner, hidden),
                       floats("moe_w2", e * inner * hidden, hidden, inner)});
    slots.push_back(static_cast<std::int32_t>(e));
  }
  const auto set = d->pack_experts(sources);
  for (const bool act : {false, true}) {
    const auto x = put("moe_x"), y = m.room<float>(static_cast<std::size_t>(rows * 4 * hidden)), out = room("moe_y");
    const auto run_shared = [&](dev_ptr<float> in, const char* name, std::int64_t n) {
      const auto w = pack_f32(name);
      const auto o = m.room<float>(static_cast<std::size_t>(rows * n));
      d->ops().linear(*m.s, {in, w.get(), rows, 1, o});
      return o;
    };
    if (act)
      d->ops().round(*m.s, {x, rows, hidden, kv_format::fp8_ue8m0_32, x});
    const auto gate = run_shared(x, "moe_s1", inner), up = run_shared(x, "moe_s3", inner);
    d->ops().swiglu(*m.s, {gate, up, rows, static_cast<std::int32_t>(inner), 10.0f, gate});
    if (act)
      d->ops().round(*m.s, {gate, rows, static_cast<std::int32_t>(inner), kv_format::fp8_ue8m0_32, gate});
    const auto shared = run_shared(gate, "moe_s2", hidden);
    if (!act)
      BOOST_TEST(distance(get(shared, "moe_shared"), f32("moe_shared")) < 1e-6);
    d->ops().experts(*m.s, {set.get(), m.put(slots), x, expert, put("moe_weight"), rows, 4, 10.0f, act, y});
    d->ops().combine(*m.s, {shared, y, rows, 4, hidden, false, out});
    // a rounding of an activation may fall to the other side of a tie
    const char* want = act ? "moe_y_act" : "moe_y";
    BOOST_TEST(distance(get(out, want), f32(want)) < (act ? 2e-3 : 1e-6));
    // the rounding is visible: the other mode's result is far off
    BOOST_TEST(distance(get(out, want), f32(act ? "moe_y" : "moe_y_act")) > 1e-2);
  }
  const auto glu = room("glu_y");
  d->ops().swiglu(*m.s, {put("glu_g"), put("glu_u"), dim32("glu_g", 0), dim32("glu_g", 1), 10.0f, glu});
  BOOST_TEST(distance(get(glu, "glu_y"), f32("glu_y")) < 1e-6);
}

BOOST_AUTO_TEST_SUITE_END()
