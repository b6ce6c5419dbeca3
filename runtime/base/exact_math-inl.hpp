// Bodies of exact_math.hpp, templates over a lanes policy L (scalar_lanes documents the names). No include guard and no
// includes on purpose: included inside a namespace, once for scalars and once for every SIMD target, whose compile
// options apply to the text between its begin and end marks. TROUPE_EXACT_FN: attributes of the functions.
// The order of operations in here is part of the numerics id.

// e^x, at most 1 ulp off. Subnormal results are kept, -inf -> 0, overflow and inf -> inf, NaN -> NaN.
template <class L> TROUPE_EXACT_FN typename L::f32 exp_lanes(typename L::f32 x) {
  const auto high = L::set(89.0f), low = L::set(-104.5f);
  auto c = L::select(L::less(x, high), x, high); // both bounds are beyond the last finite result; NaN becomes `high`
  c = L::select(L::less(low, c), c, low);
  const auto n = L::round_int(L::mul(c, L::set(0x1.715476p+0f))); // c / ln 2
  const auto nf = L::to_float(n);
  auto r = L::fma(nf, L::set(-0x1.62e4p-1f), c); // ln 2 in two parts; the first product is exact
  r = L::fma(nf, L::set(-0x1.7f7d1cp-20f), r);   // |r| <= 0.3466
  auto p = L::set(1.0f / 5040);
  p = L::fma(p, r, L::set(1.0f / 720));
  p = L::fma(p, r, L::set(1.0f / 120));
  p = L::fma(p, r, L::set(1.0f / 24));
  p = L::fma(p, r, L::set(1.0f / 6));
  p = L::fma(p, r, L::set(0.5f));
  p = L::fma(p, L::mul(r, r), r);
  p = L::add(p, L::set(1.0f));
  // times 2^n in two steps: 2^n itself may lie outside the normal range; only the second product may round
  const auto n1 = L::template shift_right<1>(n), n2 = L::sub_int(n, n1);
  const auto bias = L::set_int(127);
  p = L::mul(p, L::as_float(L::template shift_left<23>(L::add_int(n1, bias))));
  p = L::mul(p, L::as_float(L::template shift_left<23>(L::add_int(n2, bias))));
  return L::select(L::equal(x, x), p, x);
}

// ln(1 + y) for 0 <= y <= 2^100, at most 2 ulp off; NaN -> NaN.
template <class L> TROUPE_EXACT_FN typename L::f32 log1p_lanes(typename L::f32 y) {
  const auto one = L::set(1.0f);
  const auto u = L::add(y, one);
  const auto t = L::sub(u, one);
  const auto lost = L::add(L::sub(one, L::sub(u, t)), L::sub(y, t)); // u + lost = 1 + y exactly
  // u = m * 2^k with sqrt(1/2) <= m < sqrt 2: moving the exponent by the mantissa of sqrt(1/2) makes the carry choose k
  const auto moved = L::sub_int(L::as_int(u), L::set_int(0x3f3504f3));
  const auto k = L::template shift_right<23>(moved);
  const auto m = L::as_float(L::add_int(L::and_int(moved, L::set_int(0x7fffff)), L::set_int(0x3f3504f3)));
  const auto scale = L::as_float(L::template shift_left<23>(L::sub_int(L::set_int(127), k))); // 2^-k
  const auto f = L::fma(lost, scale, L::sub(m, one));
  const auto s = L::div(f, L::add(L::set(2.0f), f));
  const auto z = L::mul(s, s);
  auto q = L::set(2.0f / 9);
  q = L::fma(q, z, L::set(2.0f / 7));
  q = L::fma(q, z, L::set(2.0f / 5));
  q = L::fma(q, z, L::set(2.0f / 3));
  q = L::mul(q, z);
  // ln(1 + f) = f - (h - s * (h + q)), h = f^2 / 2
  const auto h = L::mul(L::mul(L::set(0.5f), f), f);
  const auto kf = L::to_float(k);
  const auto tail = L::fma(kf, L::set(0x1.7f7d1cp-20f), L::mul(s, L::add(h, q)));
  const auto small = L::sub(f, L::sub(h, tail));
  return L::fma(kf, L::set(0x1.62e4p-1f), small);
}

// z beyond 20, else ln(1 + e^z) (model.md §7).
template <class L> TROUPE_EXACT_FN typename L::f32 softplus_lanes(typename L::f32 z) {
  const auto limit = L::set(20.0f);
  const auto c = L::select(L::less(limit, z), limit, z); // keeps log1p inside its domain
  return L::select(L::less(limit, z), z, log1p_lanes<L>(exp_lanes<L>(c)));
}

// 1 + e^-x, inf when e^-x overflows.
template <class L> TROUPE_EXACT_FN typename L::f32 one_plus_exp_minus_lanes(typename L::f32 x) {
  return L::add(L::set(1.0f), exp_lanes<L>(L::sub(L::set(0.0f), x)));
}

// 1 / (1 + e^-x): 0 at -inf, 1 at inf.
template <class L> TROUPE_EXACT_FN typename L::f32 sigmoid_lanes(typename L::f32 x) {
  return L::div(L::set(1.0f), one_plus_exp_minus_lanes<L>(x));
}

// x / (1 + e^-x); finite for every finite x.
template <class L> TROUPE_EXACT_FN typename L::f32 silu_lanes(typename L::f32 x) {
  return L::div(x, one_plus_exp_minus_lanes<L>(x));
}

// 1 / sqrt x, both correctly rounded.
template <class L> TROUPE_EXACT_FN typename L::f32 rsqrt_lanes(typename L::f32 x) {
  return L::div(L::set(1.0f), L::sqrt(x));
}
