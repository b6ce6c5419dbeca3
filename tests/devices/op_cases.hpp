// Random inputs of every operation, run on any device whose memory is the host's. A case is a function of (device,
// seed) that returns all bytes the operation wrote; equal seeds give equal inputs, so results of two devices compare
// bit by bit.
#pragma once
#include "devices/device.hpp"
#include "kernels/reference/records.hpp"
#include "runtime/base/number_formats.hpp"
#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

namespace troupe::test {

struct random_source {
  std::uint64_t state;
  explicit random_source(std::uint64_t seed) : state(seed * 0x9e3779b97f4a7c15u + 1) {}
  std::uint64_t bits() {
    std::uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  int below(int n) { return static_cast<int>(bits() % static_cast<std::uint64_t>(n)); }
  int between(int a, int b) { return a + below(b - a + 1); }
  float unit() { return static_cast<float>(bits() >> 40) * 0x1p-23f - 1.0f; } // [-1, 1)
  float value() { // mostly ordinary, sometimes zero, tiny or large
    switch (below(32)) {
    case 0:
      return 0.0f;
    case 1:
      return -0.0f;
    case 2:
      return unit() * 1e-30f;
    case 3:
      return unit() * 300.0f;
    default:
      return unit() * 2.0f;
    }
  }
  std::vector<float> values(std::int64_t n) {
    std::vector<float> v(static_cast<std::size_t>(n));
    for (float& x : v)
      x = value();
    return v;
  }
};

using bytes = std::vector<std::byte>;
// Sign and payload of a NaN depend on the order in which an instruction names its operands: every NaN counts as one.
template <class T> void append(bytes& to, std::vector<T> v) {
  if constexpr (std::is_same_v<T, float>)
    for (float& x : v)
      if (x != x)
        x = std::numeric_limits<float>::quiet_NaN();
  const auto* p = reinterpret_cast<const std::byte*>(v.data());
  to.insert(to.end(), p, p + v.size() * sizeof(T));
}

// A weight of random codes. mood: 0 ordinary scales, 1 any scale and code (NaN, ends of the exponent range).
struct random_weight {
  bytes data, scale;
  weight_source source;
  random_weight(random_source& r, weight_format f, std::int64_t rows, std::int64_t cols, int mood = 0) {
    const auto fill = [&](bytes& b, std::int64_t n, auto byte) {
      b.resize(static_cast<std::size_t>(n));
      for (std::byte& x : b)
        x = static_cast<std::byte>(byte());
    };
    const auto code = [&] { return r.below(256); };
    const auto finite_code = [&] {
      const int c = r.below(256);
      return (c & 127) == 127 ? c - 1 : c;
    };
    const auto exponent = [&] { return mood == 0 ? r.between(110, 130) : r.below(256); };
    const auto floats = [&] {
      const std::vector<float> v = r.values(rows * cols);
      append(data, v);
    };
    switch (f) {
    case weight_format::f32:
      floats();
      break;
    case weight_format::bf16:
      for (std::int64_t i = 0; i < rows * cols; ++i) {
        const float v = r.value();
        std::byte b[4];
        std::memcpy(b, &v, 4);
        data.push_back(b[2]);
        data.push_back(b[3]);
      }
      break;
    case weight_format::fp8_block:
    case weight_format::fp8_row:
      if (mood == 0)
        fill(data, rows * cols, finite_code);
      else
        fill(data, rows * cols, code);
      fill(scale, f == weight_format::fp8_block ? (rows + 31) / 32 * ((cols + 31) / 32) : rows * cols / 32, exponent);
      break;
    case weight_format::mxfp4:
      fill(data, rows * cols / 2, code);
      fill(scale, rows * cols / 32, exponent);
      break;
    }
    source.format = f;
    source.rows = rows;
    source.cols = cols;
    source.data = data;
    source.scale = scale;
  }
  random_weight(const random_weight&) = delete;
  random_weight(random_weight&& o) noexcept : data(std::move(o.data)), scale(std::move(o.scale)), source(o.source) {
    source.data = data;
    source.scale = scale;
  }
};
inline constexpr weight_format all_weight_formats[] = {
    weight_format::f32, weight_format::bf16, weight_format::fp8_block, weight_format::fp8_row, weight_format::mxfp4};

template <class T> dev_ptr<T> at(std::vector<T>& v) {
  return dev_ptr<T>(v.data());
}
template <class T> dev_ptr<const T> at(const std::vector<T>& v) {
  return dev_ptr<const T>(v.data());
}

// A step of a few sequences with a block table: what attention, the index and the caches read.
struct random_step {
  std::vector<std::int32_t> position, sequence, window_lo, window_hi, first_row, row_count, start, slot, block_table;
  row_map map;
  int sequences = 0, rows = 0, table_width = 0, blocks = 0;

  random_step(random_source& r, int most_rows, int window, int most_start) {
    sequences = r.between(1, 3);
    table_width = (most_start + most_rows) / 128 + 1;
    for (int s = 0; s < sequences; ++s) {
      const int n = r.between(1, most_rows), begin = r.below(4) == 0 ? 0 : r.below(most_start);
      first_row.push_back(rows);
      row_count.push_back(n);
      start.push_back(begin);
      slot.push_back(s == 0 ? sequences : s - 1);
      const bool draft = r.below(5) == 0; // rows that see each other
      for (int i = 0; i < n; ++i) {
        position.push_back(begin + i);
        sequence.push_back(s);
        window_lo.push_back(std::max(begin + i - window + 1, r.below(6) == 0 ? begin / 2 : 0));
        window_hi.push_back(draft ? begin + n - 1 : begin + i);
      }
      rows += n;
    }
    blocks = sequences * table_width + 1;
    for (int i = 0; i < sequences * table_width; ++i)
      block_table.push_back((i * 7 + 3) % blocks);
    map.rows = rows;
    map.sequences = sequences;
    map.key_rows = rows;
    map.position = at(std::as_const(position));
    map.sequence = at(std::as_const(sequence));
    map.window_lo = at(std::as_const(window_lo));
    map.window_hi = at(std::as_const(window_hi));
    map.first_row = at(std::as_const(first_row));
    map.row_count = at(std::as_const(row_count));
    map.start = at(std::as_const(start));
    map.slot = at(std::as_const(slot));
    map.block_table = at(std::as_const(block_table));
    map.block_stride = table_width;
  }
  random_step(const random_step&) = delete;
};

// n encoded records of random vectors, made by the scalar kernels.
inline bytes random_records(random_source& r, kv_format f, int dim, std::int64_t n) {
  const auto each = static_cast<std::size_t>(record_bytes(f, dim));
  bytes b(each * static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    const std::vector<float> v = r.values(dim);
    reference::encode_record(f, v.data(), dim, b.data() + static_cast<std::size_t>(i) * each);
  }
  return b;
}
inline ring_view make_ring(bytes& memory, random_source& r, kv_format f, int dim, int entries, int slots) {
  memory = random_records(r, f, dim, std::int64_t{entries} * slots);
  ring_view v;
  v.base = at(memory);
  v.slot_stride = entries * record_bytes(f, dim);
  v.entries = entries;
  v.dim = dim;
  v.format = f;
  return v;
}
inline block_view make_blocks(bytes& memory, random_source& r, kv_format f, int dim, int entries, int blocks) {
  memory = random_records(r, f, dim, std::int64_t{entries} * blocks);
  block_view v;
  v.base = at(memory);
  v.block_stride = entries * record_bytes(f, dim);
  v.entries = entries;
  v.dim = dim;
  v.format = f;
  return v;
}
template <class T> bytes taken(const std::vector<T>& v) {
  bytes b;
  append(b, v);
  return b;
}
inline constexpr kv_format all_kv_formats[] = {kv_format::f32, kv_format::fp8_ue8m0_32, kv_format::fp4_e4m3_16,
                                               kv_format::fp4_ue8m0_32};

// --- one function per operation --------------------------------------------------------------------------------------
inline bytes run_linear(device& d, std::uint64_t seed) {
  random_source r(seed);
  const weight_format f = all_weight_formats[r.below(5)];
  const bool by32 = f == weight_format::fp8_row || f == weight_format::mxfp4;
  const int groups = r.below(4) == 0 ? r.between(2, 3) : 1;
  const int cols = by32 ? 32 * r.between(1, 19) : r.between(1, 600);
  const int per_group = r.below(3) == 0 ? r.between(1, 40) : 16 * r.between(1, 12), outputs = per_group * groups;
  const int rows = r.below(3) == 0 ? 1 : r.below(3) == 0 ? r.between(17, 150) : r.between(2, 20);
  const random_weight w(r, f, outputs, cols, r.below(6) == 0 ? 1 : 0);
  const auto packed = d.pack(w.source);
  const std::vector<float> x = r.values(std::int64_t{rows} * groups * cols);
  std::vector<float> out(static_cast<std::size_t>(rows * outputs), 7.0f);
  linear_args a;
  a.x = at(x);
  a.w = packed.get();
  a.rows = rows;
  a.groups = groups;
  a.out = at(out);
  d.ops().linear(*d.make_stream(), a);
  return taken(out);
}

inline bytes run_experts(device& d, std::uint64_t seed) {
  random_source r(seed);
  const bool round = r.below(2) == 0, fp4 = r.below(4) != 0;
  const int hidden = 32 * r.between(1, 9), inner = fp4 || round ? 32 * r.between(1, 7) : r.between(1, 130);
  const int slots = r.between(1, 6), experts = slots + r.below(3), k = r.between(1, 4);
  const int rows = r.below(2) == 0 ? 1 : r.between(2, 90);
  const weight_format f = fp4 ? weight_format::mxfp4 : round ? weight_format::fp8_block : weight_format::bf16;
  std::vector<random_weight> w;
  std::vector<expert_source> sources;
  for (int e = 0; e < slots; ++e) {
    const int mood = r.below(8) == 0 ? 1 : 0;
    w.emplace_back(r, f, inner, hidden, mood);
    w.emplace_back(r, r.below(5) == 0 ? weight_format::f32 : f, inner, hidden, 0);
    w.emplace_back(r, f, hidden, inner, mood);
  }
  for (std::size_t e = 0; e < w.size(); e += 3)
    sources.push_back({w[e].source, w[e + 1].source, w[e + 2].source});
  const auto set = d.pack_experts(sources);
  std::vector<std::int32_t> slot_of(static_cast<std::size_t>(experts)), expert;
  for (int e = 0; e < experts; ++e)
    slot_of[static_cast<std::size_t>(e)] = e < slots ? (e + 1) % slots : -1;
  for (int i = 0; i < rows * k; ++i)
    expert.push_back(r.below(experts));
  std::vector<float> x = r.values(std::int64_t{rows} * hidden), weight = r.values(rows * k);
  std::vector<float> y(static_cast<std::size_t>(rows * k * hidden), 3.0f);
  experts_args a;
  a.set = set.get();
  a.slot_of = at(slot_of);
  a.x = at(x);
  a.expert = at(expert);
  a.weight = at(weight);
  a.rows = rows;
  a.k = k;
  a.limit = r.below(3) == 0 ? 0.0f : 1.5f;
  a.round_inner = round;
  a.y = at(y);
  const auto s = d.make_stream();
  d.ops().experts(*s, a);
  const std::vector<float> once = y;
  d.ops().experts(*s, a); // the working space is used again
  bytes b = taken(once);
  append(b, y);
  // A slot that is written anew is as if it had been packed so.
  const auto replaced = static_cast<std::size_t>(slots / 2);
  d.replace_expert(*set, slots / 2, sources.front());
  d.ops().experts(*s, a);
  append(b, y);
  sources[replaced] = sources.front();
  const auto packed = d.pack_experts(sources);
  a.set = packed.get();
  const std::vector<float> in_place = y;
  d.ops().experts(*s, a);
  if (std::memcmp(in_place.data(), y.data(), y.size() * sizeof(float)) != 0)
    throw std::logic_error("an expert that was replaced gives other values than one that was packed");
  return b;
}

inline bytes run_attention(device& d, std::uint64_t seed) {
  random_source r(seed);
  const int heads = r.below(3) == 0 ? r.between(1, 40) : 8, dim = 32 * r.between(1, 5), window = r.between(1, 70);
  const random_step step(r, r.below(2) == 0 ? 1 : 50, window, 300);
  const kv_format f = r.below(2) == 0 ? kv_format::fp8_ue8m0_32 : kv_format::f32, bf = all_kv_formats[r.below(4)];
  bytes ring_memory, block_memory;
  attention_args a;
  a.map = step.map;
  a.heads = heads;
  a.dim = dim;
  a.scale = 0.11f;
  a.ring = make_ring(ring_memory, r, f, dim, window + r.below(13), step.sequences + 1);
  const bytes own = random_records(r, f, dim, step.rows);
  const int entries = 128 >> r.below(2);
  a.blocks = make_blocks(block_memory, r, bf, dim, entries, step.blocks);
  const int topk = r.between(1, 70);
  std::vector<std::int32_t> selected(static_cast<std::size_t>(step.rows * topk), -1);
  for (int i = 0; i < step.rows; ++i) {
    const int seen = (step.position[static_cast<std::size_t>(i)] + 1) / (128 / entries);
    int at_most = 0;
    for (int j = r.below(3); j < seen && at_most < topk; j += r.between(1, 1 + seen / topk))
      selected[static_cast<std::size_t>(i * topk + at_most++)] = j;
  }
  std::vector<float> q = r.values(std::int64_t{step.rows} * heads * dim), sink = r.values(heads);
  std::vector<float> out(q.size(), 5.0f);
  a.q = at(std::as_const(q));
  a.own = at(own);
  if (r.below(4) != 0) {
    a.selected = at(std::as_const(selected));
    a.topk = topk;
  }
  a.sink = at(std::as_const(sink));
  a.out = at(out);
  d.ops().attention(*d.make_stream(), a);
  return taken(out);
}

inline bytes run_index(device& d, std::uint64_t seed) {
  random_source r(seed);
  const int heads = r.below(3) == 0 ? r.between(1, 40) : 8, dim = 32 * r.between(1, 4);
  const random_step step(r, r.below(2) == 0 ? 1 : 40, 16, 700);
  bytes key_memory;
  index_scores_args a;
  a.map = step.map;
  a.first = r.below(step.rows);
  a.count = step.rows - a.first;
  a.heads = heads;
  a.dim = dim;
  const int entries = 128 >> r.below(2);
  a.keys =
      make_blocks(key_memory, r, r.below(4) == 0 ? kv_format::f32 : kv_format::fp4_ue8m0_32, dim, entries, step.blocks);
  std::vector<float> q = r.values(std::int64_t{step.rows} * heads * dim), weight = r.values(step.rows * heads);
  std::vector<std::int32_t> visible;
  for (const std::int32_t p : step.position)
    visible.push_back((p + 1) / (128 / entries));
  a.q = at(std::as_const(q));
  a.a = at(std::as_const(weight));
  a.visible = at(std::as_const(visible));
  a.stride = 800;
  std::vector<float> scores(static_cast<std::size_t>(a.count * a.stride), 0.25f);
  a.scores = at(scores);
  const auto s = d.make_stream();
  d.ops().index_scores(*s, a);
  const bytes computed = taken(scores);
  if (r.below(2) == 0) // many equal scores, both zeros and values that are not numbers
    for (float& v : scores)
      v = r.below(9) == 0   ? v
          : r.below(9) == 0 ? std::numeric_limits<float>::quiet_NaN()
                            : static_cast<float>(r.between(-2, 2)) * 0.5f;
  candidate_args c;
  c.first = a.first;
  c.count = a.count;
  c.scores = at(std::as_const(scores));
  c.stride = a.stride;
  c.visible = a.visible;
  c.block = 8;
  c.limit = r.between(1, 40);
  std::vector<std::int32_t> chosen(static_cast<std::size_t>(step.rows * c.limit), -7);
  c.candidates = at(chosen);
  d.ops().candidates(*s, c);
  select_args e;
  e.first = a.first;
  e.count = a.count;
  e.scores = c.scores;
  e.stride = a.stride;
  e.visible = a.visible;
  e.topk = r.between(1, 70);
  std::vector<std::int32_t> selected(static_cast<std::size_t>(step.rows * e.topk), -7);
  e.selected = at(selected);
  d.ops().select(*s, e);
  bytes b = computed;
  append(b, chosen);
  append(b, selected);
  e.candidates = at(std::as_const(chosen));
  e.candidate_limit = c.limit;
  d.ops().select(*s, e);
  append(b, selected);
  e.candidates = {};
  e.scores = {};
  for (std::int32_t& v : visible)
    v = std::min(v, e.topk);
  d.ops().select(*s, e);
  append(b, selected);
  return b;
}

inline bytes run_trunk(device& d, std::uint64_t seed) {
  random_source r(seed);
  const int rows = r.below(2) == 0 ? 1 : r.between(2, 40), m = r.between(1, 5), hidden = r.between(1, 420);
  const auto n = std::int64_t{rows} * m;
  const random_weight fn(r, weight_format::f32, m * (m + 2), m * hidden);
  const auto packed = d.pack(fn.source);
  std::vector<float> trunk = r.values(n * hidden), scale = r.values(3), base = r.values(m * (m + 2)),
                     y = r.values(std::int64_t{rows} * hidden);
  std::vector<float> pre(static_cast<std::size_t>(n)), post(pre), comb(static_cast<std::size_t>(n * m));
  std::vector<float> x(static_cast<std::size_t>(rows * hidden)),
      mean(static_cast<std::size_t>(rows * (hidden + 3)), 1.0f);
  const auto s = d.make_stream();
  hc_mixes_args a;
  a.trunk = at(std::as_const(trunk));
  a.fn = packed.get();
  a.scale = at(std::as_const(scale));
  a.base = at(std::as_const(base));
  a.rows = rows;
  a.streams = m;
  a.hidden = hidden;
  a.sinkhorn_iters = r.between(1, 20);
  a.hc_eps = 1e-6f;
  a.norm_eps = 1e-20f;
  a.pre = at(pre);
  a.post = at(post);
  a.comb = at(comb);
  d.ops().hc_mixes(*s, a);
  hc_collapse_args c;
  c.trunk = a.trunk;
  c.pre = at(std::as_const(pre));
  c.rows = rows;
  c.streams = m;
  c.hidden = hidden;
  c.out = at(x);
  d.ops().hc_collapse(*s, c);
  hc_expand_args e;
  e.y = at(std::as_const(y));
  e.post = at(std::as_const(post));
  e.comb = at(std::as_const(comb));
  e.rows = rows;
  e.streams = m;
  e.hidden = hidden;
  e.trunk = at(trunk);
  d.ops().hc_expand(*s, e);
  hc_mean_args g;
  g.trunk = a.trunk;
  g.rows = rows;
  g.streams = m;
  g.hidden = hidden;
  g.out = at(mean);
  g.out_stride = hidden + 3;
  d.ops().hc_mean(*s, g);
  std::vector<float> kv = r.values(std::int64_t{rows} * (m + 1) * hidden), qk = r.values(m * hidden);
  engram_gate_args t;
  t.trunk = at(trunk);
  t.kv = at(std::as_const(kv));
  t.qk_weight = at(std::as_const(qk));
  t.rows = rows;
  t.streams = m;
  t.hidden = hidden;
  t.eps = 1e-20f;
  const std::vector<float> expanded = trunk;
  d.ops().engram_gate(*s, t);
  bytes b = taken(pre);
  for (const std::vector<float>* v :
       std::initializer_list<const std::vector<float>*>{&post, &comb, &x, &expanded, &mean, &trunk})
    append(b, *v);
  return b;
}

inline bytes run_rows(device& d, std::uint64_t seed) {
  random_source r(seed);
  const int rows = r.below(2) == 0 ? 1 : r.between(2, 60), cols = 32 * r.between(1, 12), odd = r.between(1, 500);
  const auto s = d.make_stream();
  bytes b;
  {
    std::vector<float> x = r.values(std::int64_t{rows} * odd), w = r.values(odd), out(x.size());
    rms_norm_args a;
    a.x = at(std::as_const(x));
    a.w = at(std::as_const(w));
    a.rows = rows;
    a.cols = odd;
    a.eps = 1e-20f;
    a.out = at(out);
    d.ops().rms_norm(*s, a);
    append(b, out);
    a.out = at(x);
    d.ops().rms_norm(*s, a);
    append(b, x);
    std::vector<float> up = r.values(std::int64_t{rows} * odd);
    swiglu_args g;
    g.gate = a.x;
    g.up = at(std::as_const(up));
    g.rows = rows;
    g.cols = odd;
    g.limit = r.below(3) == 0 ? 0.0f : 0.8f;
    g.out = at(x);
    d.ops().swiglu(*s, g);
    append(b, x);
  }
  for (const kv_format f : all_kv_formats) {
    std::vector<float> x = r.values(std::int64_t{rows} * cols), out(x.size());
    for (float& v : x) // the whole range of the format and of its scales
      switch (r.below(64)) {
      case 0:
        v = std::numeric_limits<float>::quiet_NaN();
        break;
      case 1:
        v = r.unit() * 1e38f;
        break;
      case 2:
        v = bits_float(static_cast<std::uint32_t>(r.bits()));
        break;
      default:
        break;
      }
    round_args a;
    a.x = at(std::as_const(x));
    a.rows = rows;
    a.cols = cols;
    a.format = f;
    a.out = at(out);
    d.ops().round(*s, a);
    append(b, out);
  }
  {
    const int heads = r.between(1, 8), dim = 2 * r.between(1, 70), rope = 2 * r.between(1, dim / 2);
    std::vector<float> x = r.values(std::int64_t{rows} * heads * dim), table = r.values(40 * rope);
    std::vector<std::int32_t> position;
    for (int i = 0; i < rows; ++i)
      position.push_back(r.below(40));
    rope_args a;
    a.x = at(x);
    a.rows = rows;
    a.heads = heads;
    a.dim = dim;
    a.rope_dim = rope;
    a.position = at(std::as_const(position));
    a.cos_sin = at(std::as_const(table));
    for (const bool inverse : {false, true}) {
      a.inverse = inverse;
      d.ops().rope(*s, a);
      append(b, x);
    }
  }
  {
    const int k = r.between(1, 6), wide = odd + 5;
    std::vector<float> shared = r.values(std::int64_t{rows} * odd), y = r.values(std::int64_t{rows} * k * odd),
                       out(shared.size());
    combine_args a;
    a.shared = at(std::as_const(shared));
    a.y = at(std::as_const(y));
    a.rows = rows;
    a.k = k;
    a.hidden = odd;
    a.out = at(out);
    for (const bool bf16 : {false, true}) {
      a.round_bf16 = bf16;
      d.ops().combine(*s, a);
      append(b, out);
    }
    std::vector<std::int32_t> index;
    for (int i = 0; i < rows; ++i)
      index.push_back(r.below(rows));
    copy_rows_args c;
    c.x = at(std::as_const(shared));
    c.index = at(std::as_const(index));
    c.rows = rows;
    c.cols = odd;
    c.out = at(out);
    d.ops().copy_rows(*s, c);
    append(b, out);
    std::vector<float> target(static_cast<std::size_t>(rows * wide), 0.5f);
    copy_columns_args e;
    e.x = c.x;
    e.x_stride = odd;
    e.rows = rows;
    e.cols = odd;
    e.out = at(target) + 2;
    e.out_stride = wide;
    for (const bool add : {false, true}) {
      e.add = add;
      d.ops().copy_columns(*s, e);
      append(b, target);
    }
  }
  return b;
}

inline bytes run_route(device& d, std::uint64_t seed) {
  random_source r(seed);
  const int rows = r.below(2) == 0 ? 1 : r.between(2, 60), experts = r.between(1, 400),
            k = r.between(1, std::min(experts, 8));
  std::vector<float> logits = r.values(std::int64_t{rows} * experts), bias = r.values(experts);
  if (r.below(2) == 0) // planted ties
    for (float& v : logits)
      v = static_cast<float>(r.between(-2, 2));
  if (r.below(2) == 0)
    for (float& v : bias)
      v = 0.25f;
  if (r.below(4) == 0)
    logits[0] = std::numeric_limits<float>::quiet_NaN();
  std::vector<std::int32_t> expert(static_cast<std::size_t>(rows * k));
  std::vector<float> weight(expert.size());
  route_args a;
  a.logits = at(std::as_const(logits));
  a.bias = at(std::as_const(bias));
  a.rows = rows;
  a.experts = experts;
  a.k = k;
  a.scale = 1.5f;
  a.expert = at(expert);
  a.weight = at(weight);
  d.ops().route(*d.make_stream(), a);
  bytes b = taken(expert);
  append(b, weight);
  return b;
}

inline bytes run_caches(device& d, std::uint64_t seed) {
  random_source r(seed);
  const random_step step(r, r.below(2) == 0 ? 3 : 60, 20, 200);
  const int dim = 32 * r.between(1, 5);
  const kv_format f = all_kv_formats[r.below(4)];
  const auto s = d.make_stream();
  std::vector<float> x = r.values(std::int64_t{step.rows} * dim), kg = r.values(std::int64_t{step.rows} * 2 * dim);
  for (float& v : x) // any bits at times: NaN, infinities, ends of the range
    if (r.below(40) == 0)
      v = bits_float(static_cast<std::uint32_t>(r.bits()));
  bytes records(static_cast<std::size_t>(step.rows * record_bytes(f, dim))), ring_memory, pending_memory, block_memory,
      b;
  encode_args a;
  a.x = at(std::as_const(x));
  a.rows = step.rows;
  a.dim = dim;
  a.format = f;
  a.records = at(records);
  d.ops().encode(*s, a);
  append(b, records);
  ring_commit_args c;
  c.map = step.map;
  c.records = at(std::as_const(records));
  c.ring = make_ring(ring_memory, r, f, dim, r.between(1, 30), step.sequences + 1);
  d.ops().ring_commit(*s, c);
  append(b, ring_memory);
  block_store_args e;
  e.x = a.x;
  e.rows = step.rows;
  e.blocks = make_blocks(block_memory, r, f, dim, 64, 3);
  std::vector<std::int64_t> entry;
  for (int i = 0; i < step.rows; ++i)
    entry.push_back(r.below(4) == 0 ? -1 : i);
  e.entry = at(std::as_const(entry));
  d.ops().block_store(*s, e);
  append(b, block_memory);
  compress_args g;
  g.map = step.map;
  g.kg = at(std::as_const(kg));
  g.pending = make_ring(pending_memory, r, kv_format::f32, 2 * dim, 5, step.sequences + 1);
  std::vector<std::int32_t> last_row;
  for (int i = 0; i < step.rows; ++i)
    if (step.position[static_cast<std::size_t>(i)] % 2 == 1)
      last_row.push_back(i);
  g.last_row = at(std::as_const(last_row));
  g.blocks = static_cast<std::int32_t>(last_row.size());
  g.dim = dim;
  std::vector<float> out(last_row.size() * static_cast<std::size_t>(dim));
  g.out = at(out);
  d.ops().compress(*s, g);
  append(b, out);
  return b;
}

inline bytes run_tables(device& d, std::uint64_t seed) {
  random_source r(seed);
  const random_step step(r, 30, 20, 200);
  const auto s = d.make_stream();
  bytes b;
  const int cols = 32 * r.between(1, 4), table_rows = r.between(1, 90), streams = r.between(1, 4),
            heads = r.between(1, 3);
  const random_weight w(r, r.below(2) == 0 ? weight_format::fp8_row : weight_format::bf16, table_rows, cols);
  const auto table = d.pack_table(w.source);
  std::vector<std::int32_t> ids, history, token_map;
  std::vector<std::int64_t> multipliers, primes, offsets, rows(static_cast<std::size_t>(step.rows * 3 * heads));
  for (int i = 0; i < step.rows; ++i)
    ids.push_back(r.below(table_rows));
  for (int i = 0; i < step.sequences * 3; ++i)
    history.push_back(r.below(table_rows + 1) - 1);
  for (int i = 0; i < table_rows; ++i)
    token_map.push_back(r.below(50));
  for (int i = 0; i < 4; ++i)
    multipliers.push_back(static_cast<std::int64_t>(r.bits() >> 8 | 1));
  for (int i = 0; i < 3 * heads; ++i) {
    primes.push_back(r.between(1, table_rows));
    offsets.push_back(table_rows - primes.back());
  }
  std::vector<float> out(static_cast<std::size_t>(step.rows * streams * cols)),
      rows_out(rows.size() * static_cast<std::size_t>(cols));
  embed_args a;
  a.table = table.get();
  a.ids = at(std::as_const(ids));
  a.rows = step.rows;
  a.streams = streams;
  a.out = at(out);
  d.ops().embed(*s, a);
  append(b, out);
  engram_rows_args e;
  e.map = step.map;
  e.tokens = a.ids;
  e.history = at(std::as_const(history));
  e.token_map = at(std::as_const(token_map));
  e.pad = 2;
  e.heads = heads;
  e.multipliers = at(std::as_const(multipliers));
  e.primes = at(std::as_const(primes));
  e.offsets = at(std::as_const(offsets));
  e.out = at(rows);
  d.ops().engram_rows(*s, e);
  append(b, rows);
  gather_args g;
  g.table = table.get();
  g.index = at(std::as_const(rows));
  g.rows = step.rows;
  g.per_row = 3 * heads;
  g.out = at(rows_out);
  d.ops().gather(*s, g);
  append(b, rows_out);
  return b;
}

struct op_case {
  const char* name;
  bytes (*run)(device&, std::uint64_t seed);
  int seeds;
};
inline constexpr op_case all_op_cases[] = {
    {"linear", run_linear, 150}, {"experts", run_experts, 60}, {"attention", run_attention, 80},
    {"index", run_index, 40},    {"trunk", run_trunk, 40},     {"rows", run_rows, 40},
    {"route", run_route, 40},    {"caches", run_caches, 80},   {"tables", run_tables, 20},
};

} // namespace troupe::test
