// The order of every sum, against the same sum written out in the test. Each case also shows that a wrong order gives
// other bits, so a test of this file cannot pass by luck.
#include "runtime/base/exact_math.hpp"
#include "tests/support/row_cases.hpp"
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <functional>

using namespace troupe;
using namespace troupe::row_cases;

namespace {

using floats = std::vector<float>;
using terms = std::vector<std::pair<float, float>>; // factors

float fused(const terms& t, float acc = 0) {
  for (const auto& [x, y] : t)
    acc = std::fma(x, y, acc);
  return acc;
}
float unfused(const terms& t, float acc = 0) {
  for (const auto& [x, y] : t) {
    const float product = x * y;
    acc = acc + product;
  }
  return acc;
}
float descending(terms t, float acc = 0) {
  std::reverse(t.begin(), t.end());
  return fused(t, acc);
}
float halves(const terms& t, float acc = 0) {
  const auto middle = t.begin() + static_cast<std::ptrdiff_t>(t.size() / 2);
  return fused({t.begin(), middle}, acc) + fused({middle, t.end()});
}
float forwards(const floats& v) {
  float s = 0;
  for (const float x : v)
    s = s + x;
  return s;
}
float backwards(floats v) {
  std::reverse(v.begin(), v.end());
  return forwards(v);
}

// Counts elements whose bits differ between got and each alternative; got must equal want everywhere.
class comparison {
public:
  explicit comparison(std::vector<const char*> alternatives)
      : names_(std::move(alternatives)), differ_(names_.size()) {}
  void add(float got, float want, const floats& others) {
    BOOST_REQUIRE_EQUAL(float_bits(got), float_bits(want));
    for (std::size_t i = 0; i < others.size(); ++i)
      differ_[i] += float_bits(others[i]) != float_bits(want) ? 1 : 0;
  }
  ~comparison() {
    for (std::size_t i = 0; i < names_.size(); ++i)
      BOOST_TEST_CONTEXT(names_[i]) BOOST_TEST(differ_[i] > 0);
  }

private:
  std::vector<const char*> names_;
  std::vector<int> differ_;
};

struct bench {
  std::unique_ptr<device> d = make_device("reference", {});
  arena m{*d};
  numbers n{11, 0};
  floats get(dev_ptr<float> p, std::size_t count) { return m.get(dev_ptr<const float>(p), count); }
  std::shared_ptr<const weight> pack(const floats& w, std::int64_t rows, std::int64_t cols) {
    return d->pack({weight_format::f32, rows, cols, std::as_bytes(std::span(w)), {}, {}});
  }
};

float sum16(const floats& v, const std::function<float(std::size_t, float)>& step) {
  float p[16] = {};
  for (std::size_t i = 0; i < v.size(); ++i)
    p[i % 16] = step(i, p[i % 16]);
  float e[8], q[4];
  for (int l = 0; l < 8; ++l)
    e[l] = p[l] + p[l + 8];
  for (int l = 0; l < 4; ++l)
    q[l] = e[l] + e[l + 4];
  return (q[0] + q[2]) + (q[1] + q[3]);
}
float squares16(const floats& v) {
  return sum16(v, [&](std::size_t i, float p) { return std::fma(v[i], v[i], p); });
}
float squares(const floats& v) {
  float acc = 0;
  for (const float x : v)
    acc = std::fma(x, x, acc);
  return acc;
}

} // namespace

BOOST_FIXTURE_TEST_SUITE(reference_order, bench)

BOOST_AUTO_TEST_CASE(t8_combination_adds_shared_first_then_the_slots) {
  const auto out = m.room<float>(1);
  const auto run = [&](float shared, const floats& y, bool bf16) {
    d->ops().combine(*m.s, {m.put(floats{shared}), m.put(y), 1, static_cast<std::int32_t>(y.size()), 1, bf16, out});
    return get(out, 1)[0];
  };
  const floats y = {16777216, -16777216, .5, .25, 2, 4};
  BOOST_TEST(run(1, y, false) == 6.75f);
  BOOST_TEST(forwards(y) + 1.0f == 7.75f); // routed first
  floats reversed(y.rbegin(), y.rend());
  BOOST_TEST(run(1, reversed, false) == 8.0f);
  // BF16 has 8 significant bits: 1 + 2^-8 is a tie and becomes 1
  BOOST_TEST(run(1.00390625f, {1.00390625f, 0.5f}, true) == 2.5f);
  BOOST_TEST(run(1.00390625f, {1.00390625f, 0.5f}, false) == 2.5078125f);
}

BOOST_AUTO_TEST_CASE(linear_is_one_fused_ascending_sum) {
  comparison c({"descending", "two halves", "unfused"});
  constexpr std::int32_t in = 200, out = 70;
  const floats x = n.reals(in), w = n.reals(in * out);
  const auto y = m.room<float>(out);
  const auto packed = pack(w, out, in);
  d->ops().linear(*m.s, {m.put(x), packed.get(), 1, 1, y});
  const floats got = get(y, out);
  for (std::size_t o = 0; o < out; ++o) {
    terms t;
    for (std::size_t k = 0; k < in; ++k)
      t.emplace_back(x[k], w[o * in + k]);
    c.add(got[o], fused(t), {descending(t), halves(t), unfused(t)});
  }
}

BOOST_AUTO_TEST_CASE(grouped_linear_sees_its_own_inputs) {
  constexpr std::int32_t in = 40, out = 12, groups = 3;
  const floats x = n.reals(in * groups), w = n.reals(in * out);
  const auto y = m.room<float>(out);
  const auto packed = pack(w, out, in);
  d->ops().linear(*m.s, {m.put(x), packed.get(), 1, groups, y});
  const floats got = get(y, out);
  for (std::size_t o = 0; o < out; ++o) {
    terms t;
    for (std::size_t k = 0; k < in; ++k)
      t.emplace_back(x[o / 4 * in + k], w[o * in + k]);
    BOOST_TEST(float_bits(got[o]) == float_bits(fused(t)));
  }
}

BOOST_AUTO_TEST_CASE(norm_uses_sixteen_partials_and_divisions) {
  comparison c({"sequential mean square", "weight first", "reciprocal of the length"});
  for (int round = 0; round < 20; ++round) {
    const std::int32_t cols = n.between(50, 300);
    const floats x = n.reals(cols), w = n.reals(cols);
    const auto y = m.room<float>(x.size());
    d->ops().rms_norm(*m.s, {m.put(x), m.put(w), 1, cols, 1e-20f, y});
    const floats got = get(y, x.size());
    const auto length = static_cast<float>(cols);
    const auto r_of = [](float mean) { return 1.0f / std::sqrt(mean + 1e-20f); };
    const float r = r_of(squares16(x) / length), wrong = r_of(squares(x) / length);
    const float inverse = r_of(squares16(x) * (1.0f / length));
    for (std::size_t i = 0; i < x.size(); ++i)
      c.add(got[i], x[i] * r * w[i], {x[i] * wrong * w[i], x[i] * (r * w[i]), x[i] * inverse * w[i]});
  }
}

BOOST_AUTO_TEST_CASE(streams_collapse_expand_and_mean_ascending) {
  comparison collapse({"descending", "unfused"}), expand({"descending", "own term last", "unfused"}),
      mean({"descending"});
  constexpr std::int32_t streams = 4, hidden = 120;
  const floats S = n.reals(streams * hidden), pre = n.reals(streams), y = n.reals(hidden), post = n.reals(streams);
  const floats comb = n.reals(streams * streams);
  const auto trunk = m.put(S), out = m.room<float>(hidden), average = m.room<float>(hidden);
  d->ops().hc_collapse(*m.s, {trunk, m.put(pre), 1, streams, hidden, out});
  d->ops().hc_mean(*m.s, {trunk, 1, streams, hidden, average, hidden});
  d->ops().hc_expand(*m.s, {m.put(y), m.put(post), m.put(comb), 1, streams, hidden, trunk});
  const floats collapsed = get(out, hidden), expanded = get(trunk, S.size()), mean_of = get(average, hidden);
  for (std::size_t i = 0; i < hidden; ++i) {
    terms t;
    floats column;
    for (std::size_t j = 0; j < streams; ++j) {
      column.push_back(S[j * hidden + i]);
      t.emplace_back(pre[j], column[j]);
    }
    collapse.add(collapsed[i], fused(t), {descending(t), unfused(t)});
    mean.add(mean_of[i], forwards(column) / 4.0f, {backwards(column) / 4.0f});
    for (std::size_t k = 0; k < streams; ++k) {
      for (std::size_t j = 0; j < streams; ++j)
        t[j].first = comb[j * streams + k];
      const float own = post[k] * y[i];
      expand.add(expanded[k * hidden + i], fused(t, own), {descending(t, own), fused(t) + own, unfused(t, own)});
    }
  }
}

BOOST_AUTO_TEST_CASE(mixes_of_one_site) {
  comparison c({"sequential mean square", "descending product", "unfused scale and base"});
  comparison sinkhorn({"last iteration left out", "backward sums"});
  constexpr std::size_t streams = 4, hidden = 60, all = streams * hidden;
  const floats v = n.reals(all, 2), fn = n.reals(24 * all), scale = n.reals(3), base = n.reals(24, 2);
  const auto pre = m.room<float>(streams), post = m.room<float>(streams), comb = m.room<float>(16);
  const auto packed = pack(fn, 24, all);
  constexpr int iterations = 3;
  d->ops().hc_mixes(*m.s, {m.put(v), packed.get(), m.put(scale), m.put(base), 1, streams, hidden, iterations, 1e-6f,
                           1e-20f, pre, post, comb});
  const auto r_of = [&](float sum) { return 1.0f / std::sqrt(sum / static_cast<float>(all) + 1e-20f); };
  const float r = r_of(squares16(v)), wrong_r = r_of(squares(v));
  const auto factors = [&](std::size_t o) {
    terms t;
    for (std::size_t k = 0; k < all; ++k)
      t.emplace_back(v[k], fn[o * all + k]);
    return t;
  };
  const floats got_pre = get(pre, streams), got_post = get(post, streams), got_comb = get(comb, 16);
  for (std::size_t o = 0; o < 2 * streams; ++o) {
    const terms t = factors(o);
    const std::size_t part = o / streams;
    const auto value = [&](float product, float by, bool fuse) {
      const float z = product * by, scaled = z * scale[part];
      const float s = sigmoid_f32(fuse ? std::fma(z, scale[part], base[o]) : scaled + base[o]);
      return part == 0 ? s + 1e-6f : 2.0f * s;
    };
    c.add(part == 0 ? got_pre[o] : got_post[o - streams], value(fused(t), r, true),
          {value(fused(t), wrong_r, true), value(descending(t), r, true), value(fused(t), r, false)});
  }
  const auto comb_of = [&](int rounds, bool forward) {
    const auto sum = [&](const floats& x) { return forward ? forwards(x) : backwards(x); };
    floats C(16);
    for (std::size_t i = 0; i < 16; ++i)
      C[i] = std::fma(fused(factors(8 + i)) * r, scale[2], base[8 + i]);
    for (std::size_t j = 0; j < 4; ++j) {
      const float top = *std::max_element(&C[4 * j], &C[4 * j] + 4);
      floats e;
      for (std::size_t k = 0; k < 4; ++k)
        e.push_back(exp_f32(C[4 * j + k] - top));
      for (std::size_t k = 0; k < 4; ++k)
        C[4 * j + k] = e[k] / sum(e) + 1e-6f;
    }
    for (int step = 1; step < 2 * rounds; ++step) // columns first, then rows and columns in turn
      for (std::size_t a = 0; a < 4; ++a) {
        floats line;
        const auto at = [&](std::size_t b) -> float& { return step % 2 == 1 ? C[4 * b + a] : C[4 * a + b]; };
        for (std::size_t b = 0; b < 4; ++b)
          line.push_back(at(b));
        for (std::size_t b = 0; b < 4; ++b)
          at(b) = line[b] / (sum(line) + 1e-6f);
      }
    return C;
  };
  const floats want = comb_of(iterations, true), fewer = comb_of(iterations - 1, true),
               back = comb_of(iterations, false);
  for (std::size_t i = 0; i < 16; ++i)
    sinkhorn.add(got_comb[i], want[i], {fewer[i], back[i]});
}

BOOST_AUTO_TEST_CASE(engram_gate_sums) {
  comparison c({"sequential squares", "factors in another order", "unfused update"});
  constexpr std::size_t hidden = 150;
  for (int round = 0; round < 20; ++round) {
    const floats S = n.reals(hidden, 2), k = n.reals(hidden, 2), v = n.reals(hidden), w = n.reals(hidden);
    floats kv = k;
    kv.insert(kv.end(), v.begin(), v.end());
    const auto trunk = m.put(S);
    d->ops().engram_gate(*m.s, {trunk, m.put(kv), m.put(w), 1, 1, hidden, 1e-20f});
    const floats got = get(trunk, hidden);
    const auto rs = [&](float sum) { return 1.0f / std::sqrt(sum / 150.0f + 1e-20f); };
    const float raw = sum16(S, [&](std::size_t i, float p) {
      const float product = S[i] * k[i];
      return std::fma(product, w[i], p);
    });
    const float h = 1.0f / std::sqrt(150.0f);
    const auto gate = [&](float d_) {
      const float root = std::sqrt(std::max(std::fabs(d_), 1e-6f));
      return sigmoid_f32(d_ < 0 ? -root : root);
    };
    const float right = gate(raw * rs(squares16(S)) * rs(squares16(k)) * h);
    const float sequential = gate(raw * rs(squares(S)) * rs(squares(k)) * h);
    const float reordered = gate(raw * (h * rs(squares16(S)) * rs(squares16(k))));
    for (std::size_t i = 0; i < hidden; ++i) {
      const float product = right * v[i];
      c.add(got[i], std::fma(right, v[i], S[i]),
            {std::fma(sequential, v[i], S[i]), std::fma(reordered, v[i], S[i]), S[i] + product});
    }
  }
}

BOOST_AUTO_TEST_CASE(attention_scores_softmax_and_values) {
  comparison c(
      {"sink first", "keys descending", "two halves of the keys", "channels descending", "division at the end"});
  constexpr std::int32_t heads = 3, dim = 32, keys = 40;
  const floats q = n.reals(heads * dim, 2), kv = n.reals(keys * dim), sink = n.reals(heads, 2);
  std::vector<std::int32_t> position, low, zero(keys, 0);
  for (std::int32_t i = 0; i < keys; ++i)
    position.push_back(i);
  const auto p = m.put(position), z = m.put(zero);
  const row_map map{keys, 1, keys, p, z, z, p, z, m.put(std::vector<std::int32_t>{keys}), z, z, z, 0};
  floats all_q(static_cast<std::size_t>(keys * heads * dim));
  std::copy(q.begin(), q.end(), all_q.end() - heads * dim); // the last row sees every key
  const auto records = m.room<std::byte>(kv.size() * 4), ring = m.room<std::byte>(dim * 4);
  d->ops().encode(*m.s, {m.put(kv), keys, dim, kv_format::f32, records});
  const auto out = m.room<float>(all_q.size());
  d->ops().attention(
      *m.s,
      {map, heads, dim, 0.3f, m.put(all_q), records, {ring, 0, 1, dim, kv_format::f32}, {}, {}, 0, m.put(sink), out});
  const floats got = get(out, all_q.size());
  for (std::size_t h = 0; h < heads; ++h) {
    floats s, reversed;
    for (std::size_t k = 0; k < keys; ++k) {
      terms t;
      for (std::size_t ch = 0; ch < dim; ++ch)
        t.emplace_back(kv[k * dim + ch], q[h * dim + ch]);
      s.push_back(fused(t) * 0.3f);
      reversed.push_back(descending(t) * 0.3f);
    }
    const auto output = [&](const floats& score, std::size_t ch, int kind) {
      const float top = std::max(sink[h], *std::max_element(score.begin(), score.end()));
      floats e;
      for (const float x : score)
        e.push_back(exp_f32(x - top));
      const float last = exp_f32(sink[h] - top);
      floats with_sink = e;
      with_sink.insert(kind == 1 ? with_sink.begin() : with_sink.end(), last);
      const float sum = forwards(with_sink);
      terms t;
      for (std::size_t k = 0; k < keys; ++k)
        t.emplace_back(kind == 4 ? e[k] : e[k] / sum, kv[k * dim + ch]);
      return kind == 2 ? descending(t) : kind == 3 ? halves(t) : kind == 4 ? fused(t) / sum : fused(t);
    };
    for (std::size_t ch = 0; ch < dim; ++ch)
      c.add(got[static_cast<std::size_t>((keys - 1) * heads * dim) + h * dim + ch], output(s, ch, 0),
            {output(s, ch, 1), output(s, ch, 2), output(s, ch, 3), output(reversed, ch, 0), output(s, ch, 4)});
  }
}

BOOST_AUTO_TEST_CASE(index_scores_over_channels_then_heads) {
  comparison c({"heads descending", "channels descending", "unfused"});
  constexpr std::int32_t heads = 8, dim = 64, keys = 50;
  const floats q = n.reals(heads * dim), a = n.reals(heads), k = n.reals(keys * dim);
  const block_view blocks{m.room<std::byte>(k.size() * 4), keys * dim * 4, keys, dim, kv_format::f32};
  std::vector<std::int64_t> entry;
  for (std::int64_t i = 0; i < keys; ++i)
    entry.push_back(i);
  d->ops().block_store(*m.s, {m.put(k), m.put(entry), keys, blocks});
  const auto z = m.put(std::vector<std::int32_t>{0});
  const row_map map{1, 1, 1, z, z, z, z, z, m.put(std::vector<std::int32_t>{1}), z, z, z, 1};
  const auto scores = m.put(floats(keys + 1, 7.0f));
  d->ops().index_scores(*m.s, {map, 0, 1, heads, dim, m.put(q), m.put(a), blocks,
                               m.put(std::vector<std::int32_t>{keys - 1}), scores, keys + 1});
  const floats got = get(scores, keys + 1);
  BOOST_TEST(got[keys - 1] == 7.0f); // not visible: left alone
  for (std::size_t b = 0; b < keys - 1; ++b) {
    terms right, reversed;
    for (std::size_t h = 0; h < heads; ++h) {
      terms t;
      for (std::size_t ch = 0; ch < dim; ++ch)
        t.emplace_back(k[b * dim + ch], q[h * dim + ch]);
      right.emplace_back(a[h], std::max(fused(t), 0.0f));
      reversed.emplace_back(a[h], std::max(descending(t), 0.0f));
    }
    c.add(got[b], fused(right), {descending(right), fused(reversed), unfused(right)});
  }
}

BOOST_AUTO_TEST_CASE(routing_weights_sum_best_first) {
  comparison c({"worst first", "product with the reciprocal"});
  constexpr std::int32_t experts = 40, k = 6, rows = 40;
  const floats logits = n.reals(rows * experts, 3), bias = n.reals(experts, 0.1f);
  const auto chosen = m.room<std::int32_t>(rows * k);
  const auto weights = m.room<float>(rows * k);
  d->ops().route(*m.s, {m.put(logits), m.put(bias), rows, experts, k, 1.5f, chosen, weights, {}, {}});
  const floats got = get(weights, rows * k);
  const auto ids = m.get(dev_ptr<const std::int32_t>(chosen), rows * k);
  for (std::size_t r = 0; r < rows; ++r) {
    std::vector<std::pair<float, int>> order; // by -(s + bias), then id
    floats s;
    for (std::size_t e = 0; e < experts; ++e) {
      s.push_back(std::sqrt(softplus_f32(logits[r * experts + e])));
      order.emplace_back(-(s[e] + bias[e]), static_cast<int>(e));
    }
    std::sort(order.begin(), order.end());
    floats best;
    for (std::size_t j = 0; j < k; ++j) {
      BOOST_REQUIRE_EQUAL(ids[r * k + j], order[j].second);
      best.push_back(s[static_cast<std::size_t>(order[j].second)]);
    }
    for (std::size_t j = 0; j < k; ++j)
      c.add(got[r * k + j], best[j] / (forwards(best) + 1e-20f) * 1.5f,
            {best[j] / (backwards(best) + 1e-20f) * 1.5f, best[j] * (1.0f / (forwards(best) + 1e-20f)) * 1.5f});
  }
}

BOOST_AUTO_TEST_CASE(compressor_and_rotation) {
  comparison compress({"second token first", "unfused"}), rotate({"fused"});
  constexpr std::size_t dim = 200;
  const floats kg0 = n.reals(2 * dim, 2), kg1 = n.reals(2 * dim, 2);
  floats both = kg0;
  both.insert(both.end(), kg1.begin(), kg1.end());
  const auto z = m.put(std::vector<std::int32_t>{0, 0});
  const row_map map{2, 1, 2, m.put(std::vector<std::int32_t>{0, 1}), z, z, z, z, m.put(std::vector<std::int32_t>{2}), z,
                    z, z, 0};
  const auto out = m.room<float>(dim);
  d->ops().compress(*m.s, {map,
                           m.put(both),
                           {z.as<std::byte>(), 0, 1, 2 * dim, kv_format::f32},
                           m.put(std::vector<std::int32_t>{1}),
                           1,
                           dim,
                           out});
  const floats got = get(out, dim);
  for (std::size_t i = 0; i < dim; ++i) {
    const float g0 = kg0[dim + i], g1 = kg1[dim + i], top = std::max(g0, g1);
    const float e0 = exp_f32(g0 - top), e1 = exp_f32(g1 - top), s = e0 + e1;
    const terms t = {{kg0[i], e0 / s}, {kg1[i], e1 / s}};
    compress.add(got[i], fused(t), {descending(t), unfused(t)});
  }
  const floats x = n.reals(64), table = n.reals(64);
  const auto turned = m.put(x);
  d->ops().rope(*m.s, {turned, 1, 1, 64, 64, z, m.put(table), false});
  const floats y = get(turned, 64);
  for (std::size_t j = 0; j < 32; ++j) {
    const float a = x[2 * j], b = x[2 * j + 1], cosine = table[j], sine = table[32 + j];
    const float ac = a * cosine, bs = b * sine, as = a * sine, bc = b * cosine;
    rotate.add(y[2 * j], ac - bs, {std::fma(a, cosine, -bs)});
    rotate.add(y[2 * j + 1], as + bc, {std::fma(b, cosine, as)});
  }
}

BOOST_AUTO_TEST_CASE(expert_applies_the_weight_before_the_rounding) {
  comparison c({"weight after the rounding", "descending"});
  constexpr std::int32_t hidden = 32, inner = 64;
  const floats w1 = n.reals(inner * hidden), w3 = n.reals(inner * hidden), w2 = n.reals(hidden * inner),
               x = n.reals(hidden, 3);
  const auto source = [](const floats& w, std::int64_t r, std::int64_t cols) {
    return weight_source{weight_format::f32, r, cols, std::as_bytes(std::span(w)), {}, {}};
  };
  const std::vector<expert_source> sources = {
      {source(w1, inner, hidden), source(w3, inner, hidden), source(w2, hidden, inner)}};
  const auto set = d->pack_experts(sources);
  const auto z = m.put(std::vector<std::int32_t>{0});
  const float weight_of = 0.37f;
  const auto y = m.room<float>(hidden);
  d->ops().experts(*m.s, {set.get(), z, m.put(x), z, m.put(floats{weight_of}), 1, 1, 2.0f, true, y});
  const floats got = get(y, hidden);
  const auto product_of = [](const floats& v, const floats& w, std::size_t o) {
    terms t;
    for (std::size_t k = 0; k < v.size(); ++k)
      t.emplace_back(v[k], w[o * v.size() + k]);
    return t;
  };
  const auto rounded = [](floats v) {
    for (std::size_t b = 0; b < v.size(); b += 32) {
      float top = 0;
      for (std::size_t i = b; i < b + 32; ++i)
        top = std::max(top, std::fabs(v[i]));
      for (std::size_t i = b; i < b + 32; ++i)
        v[i] = fp8_round_trip(v[i], fp8_scale(top));
    }
    return v;
  };
  floats inside, plain;
  for (std::size_t i = 0; i < inner; ++i) {
    const float g = std::min(fused(product_of(x, w1, i)), 2.0f),
                u = std::clamp(fused(product_of(x, w3, i)), -2.0f, 2.0f);
    plain.push_back(silu_f32(g) * u);
    inside.push_back(plain.back() * weight_of);
  }
  const floats a = rounded(inside), b = rounded(plain);
  for (std::size_t o = 0; o < hidden; ++o)
    c.add(got[o], fused(product_of(a, w2, o)),
          {fused(product_of(b, w2, o)) * weight_of, descending(product_of(a, w2, o))});
}

BOOST_AUTO_TEST_SUITE_END()
