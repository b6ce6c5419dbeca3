// Random calls of every operation on any device, for tests that compare bits: a row alone against the same row in a
// batch, one device against another of the same numerics id. The inputs of a row depend on (seed, row id) alone, shapes
// and weights on the seed alone.
#pragma once
#include "devices/device.hpp"
#include "runtime/base/noise.hpp"
#include "runtime/base/number_formats.hpp"
#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

namespace troupe::row_cases {

constexpr int most_row_ids = 24; // row ids lie in [0, most_row_ids)

// Numbers from a seed: a stream per (tag, row).
class numbers {
public:
  numbers(std::uint64_t seed, std::uint32_t tag, int row = -1)
      : seed_(seed), tag_(tag), row_(static_cast<std::uint32_t>(row)) {}
  std::uint32_t bits() { return philox(seed_, count_++, tag_, row_, 0x7e57).w[0]; }
  int below(int n) { return static_cast<int>(bits() % static_cast<std::uint32_t>(n)); }
  int between(int low, int high) { return low + below(high - low + 1); } // both included
  float real(float scale = 1) {                                          // in [-scale, scale)
    return static_cast<float>(static_cast<std::int32_t>(bits() >> 8) - (1 << 23)) * 0x1p-23f * scale;
  }
  std::vector<float> reals(std::int64_t n, float scale = 1) {
    std::vector<float> v(static_cast<std::size_t>(n));
    for (float& x : v)
      x = real(scale);
    return v;
  }

private:
  std::uint64_t seed_;
  std::uint32_t tag_, row_, count_ = 0;
};

// Device memory of one call.
class arena {
public:
  explicit arena(device& d) : dev(d), s(d.make_stream()) {}
  template <class T> dev_ptr<T> put(const std::vector<T>& v) {
    const dev_ptr<T> p = room<T>(v.size());
    s->to_device(p.template as<std::byte>(), v.data(), v.size() * sizeof(T));
    return p;
  }
  template <class T> dev_ptr<T> room(std::size_t n) {
    buffers_.push_back(dev.allocate(n * sizeof(T), "a test"));
    return buffers_.back().template as<T>();
  }
  template <class T> std::vector<T> get(dev_ptr<const T> p, std::size_t n) {
    std::vector<T> v(n);
    s->to_host(v.data(), p.template as<const std::byte>(), n * sizeof(T));
    s->synchronise();
    return v;
  }

  device& dev;
  std::unique_ptr<stream> s;

private:
  std::vector<buffer> buffers_;
};

using row_bits = std::vector<std::vector<std::uint32_t>>; // per row of the call, its output words in order

// Appends `per_row` values of every row to its words.
template <class T> void add_words(arena& m, row_bits& out, dev_ptr<T> p, std::size_t per_row) {
  const std::vector<std::remove_const_t<T>> v = m.get(dev_ptr<const std::remove_const_t<T>>(p), out.size() * per_row);
  const std::size_t bytes = per_row * sizeof(T);
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::vector<std::uint32_t> words((bytes + 3) / 4);
    if (bytes != 0)
      std::memcpy(words.data(), reinterpret_cast<const char*>(v.data()) + i * bytes, bytes);
    out[i].insert(out[i].end(), words.begin(), words.end());
  }
}

// Weights in every checkpoint format, from a seed.
struct made_weight {
  std::vector<std::byte> data, scale;
  weight_source source;
};
inline std::shared_ptr<made_weight> make_weight_source(weight_format f, std::int64_t rows, std::int64_t cols,
                                                       numbers n) {
  auto w = std::make_shared<made_weight>();
  const auto fill = [&](std::vector<std::byte>& bytes, std::int64_t count, const auto& value) {
    bytes.resize(static_cast<std::size_t>(count));
    for (std::byte& b : bytes)
      b = static_cast<std::byte>(value());
  };
  const auto scale_byte = [&] { return n.between(118, 126); };
  const std::int64_t blocks = (cols + 31) / 32;
  switch (f) {
  case weight_format::f32:
  case weight_format::bf16:
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      const float v = n.real(0.5f);
      const std::uint32_t b = f == weight_format::f32 ? float_bits(v) : bf16_from_f32(v);
      for (int k = 0; k < (f == weight_format::f32 ? 4 : 2); ++k)
        w->data.push_back(static_cast<std::byte>(b >> (8 * k)));
    }
    break;
  case weight_format::fp8_block:
    fill(w->data, rows * cols, [&] { return e4m3_from_f32(n.real(16)); });
    fill(w->scale, (rows + 31) / 32 * blocks, scale_byte);
    break;
  case weight_format::fp8_row:
    fill(w->data, rows * cols, [&] { return e4m3_from_f32(n.real(16)); });
    fill(w->scale, rows * blocks, scale_byte);
    break;
  case weight_format::mxfp4:
    fill(w->data, rows * cols / 2, [&] { return n.below(256); });
    fill(w->scale, rows * blocks, scale_byte);
    break;
  }
  w->source = {f, rows, cols, w->data, w->scale, w};
  w->source.owner.reset(); // the shared_ptr that is returned keeps the bytes; a source without owner is copied
  return w;
}
inline weight_format pick_format(numbers& n) {
  return static_cast<weight_format>(n.below(5));
}

// One row per sequence: row id r lives in state slot r + 1, at its own position, with its own blocks.
struct made_map {
  static constexpr int blocks_per_row = 4;
  std::vector<std::int32_t> position, sequence, low, high, first, count, start, slot, table;
  row_map map;
};
inline int position_of(std::uint64_t seed, int row) {
  return numbers(seed, 1000, row).between(0, 300);
}
inline made_map make_map(arena& m, std::uint64_t seed, std::span<const int> rows, int window) {
  made_map o;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const int p = position_of(seed, rows[i]);
    o.position.push_back(p);
    o.sequence.push_back(static_cast<std::int32_t>(i));
    o.low.push_back(std::max(p - window + 1, 0));
    o.high.push_back(p);
    o.first.push_back(static_cast<std::int32_t>(i));
    o.count.push_back(1);
    o.start.push_back(p);
    o.slot.push_back(rows[i] + 1);
    for (int b = 0; b < made_map::blocks_per_row; ++b)
      o.table.push_back(1 + rows[i] * made_map::blocks_per_row + (b ^ 1));
  }
  o.map = {static_cast<std::int32_t>(rows.size()),
           static_cast<std::int32_t>(rows.size()),
           static_cast<std::int32_t>(rows.size()),
           m.put(o.position),
           m.put(o.sequence),
           m.put(o.low),
           m.put(o.high),
           m.put(o.first),
           m.put(o.count),
           m.put(o.start),
           m.put(o.slot),
           m.put(o.table),
           made_map::blocks_per_row};
  return o;
}

// Rows of random numbers, one after the other.
inline std::vector<float> row_reals(std::uint64_t seed, std::uint32_t tag, std::span<const int> rows,
                                    std::int64_t per_row, float scale = 1) {
  std::vector<float> v;
  for (const int r : rows) {
    const std::vector<float> x = numbers(seed, tag, r).reals(per_row, scale);
    v.insert(v.end(), x.begin(), x.end());
  }
  return v;
}

// Encoded records [count] filled from a seed, through the device's own encode.
inline dev_ptr<std::byte> make_records(arena& m, kv_format f, std::int64_t dim, std::int64_t count, numbers n) {
  const auto bytes = static_cast<std::size_t>(count * record_bytes(f, dim));
  const dev_ptr<std::byte> records = m.room<std::byte>(bytes);
  m.dev.ops().encode(*m.s, {m.put(n.reals(count * dim, 2)), static_cast<std::int32_t>(count),
                            static_cast<std::int32_t>(dim), f, records});
  return records;
}
inline ring_view make_ring(arena& m, kv_format f, int dim, int entries, numbers n) {
  const std::int64_t slots = most_row_ids + 1;
  return {make_records(m, f, dim, slots * entries, n), entries * record_bytes(f, dim), entries, dim, f};
}
inline block_view make_blocks(arena& m, kv_format f, int dim, int entries, numbers n) {
  const std::int64_t blocks = 1 + most_row_ids * made_map::blocks_per_row;
  return {make_records(m, f, dim, blocks * entries, n), entries * record_bytes(f, dim), entries, dim, f};
}
inline kv_format pick_kv(numbers& n) {
  return static_cast<kv_format>(n.below(4));
}

struct row_case {
  const char* name;
  row_bits (*run)(device& d, std::uint64_t seed, std::span<const int> rows);
};

namespace cases {

inline int count(std::span<const int> rows) {
  return static_cast<int>(rows.size());
}
template <class T> std::size_t size(T n) {
  return static_cast<std::size_t>(n);
}

// A decode step: row id r stands for a sequence in state slot r + 1 with a newest token and up to three drafts behind
// up to two rows whose tokens are known. What the device keeps of the slots is a function of the seed.
struct made_decode {
  static constexpr int ngram = 4, block = 5, vocab = 50;
  std::vector<std::int32_t> position, sequence, low, high, first, count, start, slot, table;
  std::vector<std::int32_t> ids, drafts, draws, moves, limit, history;
  row_map map;
  decode_state state;
};
inline made_decode make_decode(arena& m, std::uint64_t seed, std::span<const int> rows) {
  made_decode o;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    numbers n(seed, 80, rows[i]);
    const int head = n.below(3), drafts = n.below(4), start = n.between(0, 300), q = head + 1 + drafts;
    o.first.push_back(static_cast<std::int32_t>(o.ids.size()));
    o.count.push_back(q);
    o.start.push_back(start);
    o.slot.push_back(rows[i] + 1);
    o.drafts.push_back(drafts);
    o.draws.push_back(n.below(5) == 0 ? 0 : drafts + 1);
    o.moves.push_back(head == 0 && n.below(2) == 0);
    o.limit.push_back(n.below(2) == 0 ? 0 : start + n.below(q + 3));
    for (int r = 0; r < q; ++r) {
      o.position.push_back(start + r);
      o.sequence.push_back(static_cast<std::int32_t>(i));
      o.low.push_back(std::max(start + r - 7, 0));
      o.high.push_back(start + r);
      const bool known = r < head || n.below(3) == 0;
      o.ids.push_back(known ? n.below(made_decode::vocab) : r == head ? token_in_flight : draft_in_flight);
    }
    for (int back = 1; back < made_decode::ngram; ++back)
      o.history.push_back(n.between(-1, made_decode::vocab - 1));
    for (int b = 0; b < made_map::blocks_per_row; ++b)
      o.table.push_back(1 + rows[i] * made_map::blocks_per_row + (b ^ 1));
  }
  const auto sequences = static_cast<std::int32_t>(rows.size()), all = static_cast<std::int32_t>(o.ids.size());
  o.map = {all,
           sequences,
           all,
           m.put(o.position),
           m.put(o.sequence),
           m.put(o.low),
           m.put(o.high),
           m.put(o.first),
           m.put(o.count),
           m.put(o.start),
           m.put(o.slot),
           m.put(o.table),
           made_map::blocks_per_row};
  std::vector<std::int32_t> newest, ids, drafts, stopped;
  std::vector<float> confidence;
  for (int slot = 0; slot <= most_row_ids; ++slot) {
    numbers n(seed, 81, slot);
    newest.push_back(n.between(0, 300));
    stopped.push_back(-7);
    for (int k = 0; k < made_decode::ngram; ++k)
      ids.push_back(n.below(made_decode::vocab));
    for (int k = 0; k < made_decode::block; ++k)
      drafts.push_back(n.below(made_decode::vocab)), confidence.push_back(0.5f + n.real(0.5f));
  }
  o.state = {made_decode::ngram, made_decode::block, m.put(newest),  m.put(ids),
             m.put(drafts),      m.put(confidence),  m.put(stopped), {}};
  return o;
}
// Writable copies of arrays; `out` gets them all, sequence by sequence, numbers of rows relative to the sequence.
inline void add_of_rows(arena& m, row_bits& out, const made_decode& d, dev_ptr<const std::int32_t> p,
                        bool relative = false) {
  const std::vector<std::int32_t> v = m.get(p, d.ids.size());
  for (std::size_t s = 0; s < out.size(); ++s)
    for (std::int32_t r = 0; r < d.count[s]; ++r) {
      const std::int32_t x = v[size(d.first[s] + r)];
      out[s].push_back(static_cast<std::uint32_t>(relative && x >= 0 ? x - d.first[s] : x));
    }
}
inline void add_of_slots(arena& m, row_bits& out, std::span<const int> rows, dev_ptr<const std::int32_t> p,
                         std::size_t per_slot) {
  const std::vector<std::int32_t> v = m.get(p, size(most_row_ids + 1) * per_slot);
  for (std::size_t s = 0; s < out.size(); ++s)
    for (std::size_t k = 0; k < per_slot; ++k)
      out[s].push_back(static_cast<std::uint32_t>(v[size(rows[s] + 1) * per_slot + k]));
}

inline row_bits lay_out_rows(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  const made_decode step = make_decode(m, seed, rows);
  const std::size_t n = step.ids.size();
  lay_out_rows_args a;
  a.map = step.map;
  a.state = step.state;
  a.window = 8;
  a.drafts = m.put(step.drafts), a.limit = m.put(step.limit), a.moves = m.put(step.moves);
  a.ids = m.put(step.ids);
  const auto writable = [](dev_ptr<const std::int32_t> p) {
    return dev_ptr<std::int32_t>(const_cast<std::int32_t*>(p.raw()));
  };
  a.position = writable(step.map.position);
  a.window_lo = writable(step.map.window_lo), a.window_hi = writable(step.map.window_hi);
  a.verifies = m.room<std::int32_t>(n);
  a.start = writable(step.map.start);
  a.history = m.put(step.history);
  for (int c = 0; c < 2; ++c) {
    const std::vector<std::int32_t> before(n, -7);
    a.ratio[c] = {c + 1,         128 / (c + 1), m.put(before),
                  m.put(before), m.put(before), m.put(std::vector<std::int64_t>(n, -7))};
  }
  d.ops().lay_out_rows(*m.s, a);
  row_bits o(rows.size());
  for (const auto p : {a.ids, a.position, a.window_lo, a.window_hi, a.verifies})
    add_of_rows(m, o, step, p);
  for (const compressed_layout& c : a.ratio) {
    for (const auto p : {c.visible, c.last_row, c.first_position})
      add_of_rows(m, o, step, p, p.raw() == c.last_row.raw());
    const std::vector<std::int64_t> entry = m.get(dev_ptr<const std::int64_t>(c.entry), n);
    for (std::size_t i = 0; i < n; ++i)
      o[size(step.sequence[i])].push_back(static_cast<std::uint32_t>(entry[i]));
  }
  add_words(m, o, a.start, 1);
  add_words(m, o, a.history, made_decode::ngram - 1);
  return o;
}

inline row_bits verify_drafts(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  const made_decode step = make_decode(m, seed, rows);
  std::vector<std::int32_t> ids, token, status, stops;
  std::vector<sample_row_params> rules;
  for (std::size_t s = 0; s < rows.size(); ++s) {
    numbers n(seed, 82, rows[s]);
    sample_row_params& rule = rules.emplace_back();
    rule.first_suppressed = static_cast<std::int32_t>(stops.size());
    rule.suppressed = n.below(30);
    for (std::int32_t i = 0; i < rule.suppressed; ++i)
      stops.push_back(n.below(made_decode::vocab));
    rule.suppressed_until = static_cast<std::uint64_t>(step.start[s] + n.below(step.count[s] + 3));
    for (std::int32_t r = 0; r < step.count[s]; ++r) {
      ids.push_back(n.below(made_decode::vocab));
      if (r > 0)
        token.push_back(n.below(4) == 0 ? made_decode::vocab : ids.back()); // mostly right
      status.push_back(n.below(9) == 0 ? 1 : 0);
    }
    token.push_back(n.below(made_decode::vocab));
  }
  verify_drafts_args a;
  a.map = step.map;
  a.state = step.state;
  a.ids = m.put(ids);
  a.history = m.put(step.history);
  a.draws = m.put(step.draws), a.limit = m.put(step.limit);
  a.token = m.put(token), a.status = m.put(status);
  stops.push_back(0); // memory of some size
  a.rules = m.put(rules), a.suppressed = m.put(stops);
  a.outcome = m.room<std::int32_t>(4 * rows.size());
  d.ops().verify_drafts(*m.s, a);
  row_bits o(rows.size());
  add_words(m, o, a.outcome, 4);
  for (std::size_t s = 0; s < rows.size(); ++s)
    o[s].back() -= static_cast<std::uint32_t>(step.first[s]);
  add_of_slots(m, o, rows, a.state.position, 1);
  add_of_slots(m, o, rows, a.state.ids, made_decode::ngram);
  add_of_slots(m, o, rows, a.state.stopped, 1);
  return o;
}

inline row_bits lay_out_drafts(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  const made_decode step = make_decode(m, seed, rows);
  const std::size_t sequences = rows.size(), n = sequences * made_decode::block;
  lay_out_drafts_args a;
  a.state = step.state;
  a.sequences = count(rows);
  a.window = 8;
  a.noise = 77;
  a.slot = step.map.slot;
  for (auto* p : {&a.ids, &a.position, &a.sequence, &a.window_lo, &a.window_hi, &a.position_of})
    *p = m.room<std::int32_t>(n);
  for (auto* p : {&a.first_row, &a.row_count, &a.start})
    *p = m.room<std::int32_t>(sequences);
  a.before = m.room<std::int64_t>(sequences);
  d.ops().lay_out_drafts(*m.s, a);
  row_bits o(sequences);
  for (const auto p : {a.ids, a.position, a.window_lo, a.window_hi})
    add_words(m, o, p, made_decode::block);
  add_words(m, o, a.row_count, 1);
  add_words(m, o, a.start, 1);
  add_words(m, o, a.before, 1);
  const auto sequence = m.get(dev_ptr<const std::int32_t>(a.sequence), n),
             first = m.get(dev_ptr<const std::int32_t>(a.first_row), sequences),
             position_of = m.get(dev_ptr<const std::int32_t>(a.position_of), n);
  for (std::size_t s = 0; s < sequences; ++s) {
    o[s].push_back(static_cast<std::uint32_t>(first[s]) - static_cast<std::uint32_t>(s * made_decode::block));
    for (std::size_t j = 0; j < made_decode::block; ++j) {
      o[s].push_back(static_cast<std::uint32_t>(sequence[s * made_decode::block + j]) - static_cast<std::uint32_t>(s));
      o[s].push_back(static_cast<std::uint32_t>(position_of[j * sequences + s]));
    }
  }
  return o;
}

inline row_bits keep_drafts(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  const made_decode step = make_decode(m, seed, rows);
  numbers all(seed, 83);
  keep_drafts_args a;
  a.state = step.state;
  a.sequences = count(rows);
  a.number = all.below(made_decode::block);
  a.vocab = made_decode::vocab;
  a.temperature = 0.5f + static_cast<float>(all.below(4));
  a.state.logits = m.put(std::vector<float>(size((most_row_ids + 1) * made_decode::block * made_decode::vocab), 0.0f));
  std::vector<std::int32_t> token;
  std::vector<float> score;
  for (const int r : rows) {
    numbers n(seed, 84, r);
    token.push_back(n.between(-1, made_decode::vocab - 1));
    const std::uint32_t odd[] = {0x7fc00000u, 0x7f800000u, 0xff800000u, 0x7149f2cau}; // NaN, +-inf, 1e30
    score.push_back(n.below(5) == 0 ? bits_float(odd[n.below(4)]) : n.real(9));
  }
  a.slot = step.map.slot;
  a.token = m.put(token);
  a.score = m.put(score);
  a.logits = m.put(row_reals(seed, 85, rows, made_decode::vocab));
  a.before = m.room<std::int64_t>(rows.size());
  const std::size_t n = rows.size() * made_decode::block;
  a.drafts = m.put(std::vector<std::int32_t>(n, -7));
  a.confidence = m.put(std::vector<float>(n, -7.0f));
  d.ops().keep_drafts(*m.s, a);
  row_bits o(rows.size());
  add_words(m, o, a.before, 1);
  add_words(m, o, a.drafts, made_decode::block);
  add_words(m, o, a.confidence, made_decode::block);
  add_of_slots(m, o, rows, a.state.drafts, made_decode::block);
  const auto as_words = [](dev_ptr<float> p) { return p.as<const std::int32_t>(); };
  add_of_slots(m, o, rows, as_words(a.state.confidence), made_decode::block);
  add_of_slots(m, o, rows, as_words(a.state.logits), size(made_decode::block * made_decode::vocab));
  return o;
}

inline row_bits embed(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  numbers n(seed, 1);
  const int cols = 32 * n.between(1, 5), streams = n.between(1, 4);
  const auto w = make_weight_source(pick_format(n), 50, cols, n);
  const auto table = d.pack_table(w->source);
  std::vector<std::int32_t> ids;
  for (const int r : rows)
    ids.push_back(numbers(seed, 2, r).below(50));
  const auto out = m.room<float>(rows.size() * size(streams * cols));
  d.ops().embed(*m.s, {table.get(), m.put(ids), count(rows), streams, out});
  row_bits o(rows.size());
  add_words(m, o, out, size(streams * cols));
  return o;
}

inline row_bits engram_rows(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  numbers n(seed, 3);
  const made_map map = make_map(m, seed, rows, 8);
  const int ngram = n.between(2, 4), heads = n.between(1, 3), hashes = (ngram - 1) * heads;
  std::vector<std::int32_t> tokens, history, token_map;
  for (int i = 0; i < 100; ++i)
    token_map.push_back(n.below(60));
  for (const int r : rows) {
    numbers row(seed, 4, r);
    tokens.push_back(row.below(100));
    for (int j = 1; j < ngram; ++j)
      history.push_back(row.between(-1, 99));
  }
  std::vector<std::int64_t> multipliers, primes, offsets;
  for (int i = 0; i < ngram; ++i)
    multipliers.push_back((std::int64_t{n.between(1, 1 << 30)} << 25) + 2 * n.below(1 << 20) + 1);
  for (int i = 0; i < hashes; ++i) {
    primes.push_back(std::array{101, 1009, 10007}[size(n.below(3))]);
    offsets.push_back(20000 * i);
  }
  const auto out = m.room<std::int64_t>(rows.size() * size(hashes));
  d.ops().engram_rows(*m.s, {map.map, m.put(tokens), m.put(history), m.put(token_map), 7, ngram, heads,
                             m.put(multipliers), m.put(primes), m.put(offsets), out});
  row_bits o(rows.size());
  add_words(m, o, out, size(hashes));
  return o;
}

inline row_bits gather(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  numbers n(seed, 5);
  const int cols = 32 * n.between(1, 3), per_row = n.between(1, 5);
  const auto w = make_weight_source(pick_format(n), 40, cols, n);
  const auto table = d.pack_table(w->source);
  std::vector<std::int64_t> index;
  for (const int r : rows)
    for (int j = 0; j < per_row; ++j)
      index.push_back(numbers(seed, static_cast<std::uint32_t>(600 + j), r).below(40));
  const auto out = m.room<float>(rows.size() * size(per_row * cols));
  d.ops().gather(*m.s, {table.get(), m.put(index), count(rows), per_row, out});
  row_bits o(rows.size());
  add_words(m, o, out, size(per_row * cols));
  return o;
}

inline row_bits engram_gate(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  numbers n(seed, 7);
  const int streams = n.between(1, 4), hidden = n.between(1, 150);
  const auto trunk = m.put(row_reals(seed, 8, rows, streams * hidden));
  d.ops().engram_gate(*m.s, {trunk, m.put(row_reals(seed, 9, rows, (streams + 1) * hidden)),
                             m.put(n.reals(streams * hidden)), count(rows), streams, hidden, 1e-20f});
  row_bits o(rows.size());
  add_words(m, o, trunk, size(streams * hidden));
  return o;
}

inline row_bits hc_collapse(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  numbers n(seed, 10);
  const int streams = n.between(1, 5), hidden = n.between(1, 150);
  const auto out = m.room<float>(rows.size() * size(hidden));
  d.ops().hc_collapse(*m.s, {m.put(row_reals(seed, 11, rows, streams * hidden)),
                             m.put(row_reals(seed, 12, rows, streams)), count(rows), streams, hidden, out});
  row_bits o(rows.size());
  add_words(m, o, out, size(hidden));
  return o;
}

inline row_bits hc_mixes(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  numbers n(seed, 13);
  const int streams = n.between(1, 4), hidden = n.between(1, 100), mixes = streams * (streams + 2);
  const auto w = make_weight_source(weight_format::f32, mixes, streams * hidden, n);
  const auto fn = d.pack(w->source);
  const auto pre = m.room<float>(rows.size() * size(streams)), post = m.room<float>(rows.size() * size(streams));
  const auto comb = m.room<float>(rows.size() * size(streams * streams));
  d.ops().hc_mixes(*m.s, {m.put(row_reals(seed, 14, rows, streams * hidden, 3)), fn.get(), m.put(n.reals(3, 2)),
                          m.put(n.reals(mixes, 3)), count(rows), streams, hidden, n.between(1, 20), 1e-6f, 1e-20f, pre,
                          post, comb});
  row_bits o(rows.size());
  add_words(m, o, pre, size(streams));
  add_words(m, o, post, size(streams));
  add_words(m, o, comb, size(streams * streams));
  return o;
}

inline row_bits hc_expand(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  numbers n(seed, 15);
  const int streams = n.between(1, 5), hidden = n.between(1, 150);
  const auto trunk = m.put(row_reals(seed, 16, rows, streams * hidden));
  d.ops().hc_expand(*m.s, {m.put(row_reals(seed, 17, rows, hidden)), m.put(row_reals(seed, 18, rows, streams)),
                           m.put(row_reals(seed, 19, rows, streams * streams)), count(rows), streams, hidden, trunk});
  row_bits o(rows.size());
  add_words(m, o, trunk, size(streams * hidden));
  return o;
}

inline row_bits hc_mean(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  numbers n(seed, 20);
  const int streams = n.between(1, 5), hidden = n.between(1, 150), stride = hidden + n.below(20);
  const auto out = m.room<float>(rows.size() * size(stride));
  d.ops().hc_mean(*m.s,
                  {m.put(row_reals(seed, 21, rows, streams * hidden)), count(rows), streams, hidden, out, stride});
  row_bits o(rows.size());
  add_words(m, o, out, size(stride)); // the gap stays 0
  return o;
}

inline row_bits rms_norm(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  numbers n(seed, 22);
  const int cols = n.between(1, 400);
  const auto x = m.put(row_reals(seed, 23, rows, cols));
  const bool in_place = n.below(2) == 0;
  const auto out = in_place ? x : m.room<float>(rows.size() * size(cols));
  d.ops().rms_norm(*m.s, {x, m.put(n.reals(cols)), count(rows), cols, 1e-20f, out});
  row_bits o(rows.size());
  add_words(m, o, out, size(cols));
  return o;
}

inline row_bits round(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  numbers n(seed, 24);
  const int cols = 32 * n.between(1, 8);
  const kv_format f = pick_kv(n);
  const auto x = m.put(row_reals(seed, 25, rows, cols, n.below(2) == 0 ? 1e-3f : 100.0f));
  const auto out = n.below(2) == 0 ? x : m.room<float>(rows.size() * size(cols));
  d.ops().round(*m.s, {x, count(rows), cols, f, out});
  row_bits o(rows.size());
  add_words(m, o, out, size(cols));
  return o;
}

inline row_bits linear(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  numbers n(seed, 26);
  const int groups = n.between(1, 3), outputs = groups * n.between(1, 90), cols = 32 * n.between(1, 5);
  const auto source = make_weight_source(pick_format(n), outputs, cols, n);
  const auto w = d.pack(source->source);
  const auto out = m.room<float>(rows.size() * size(outputs));
  d.ops().linear(*m.s, {m.put(row_reals(seed, 27, rows, groups * cols)), w.get(), count(rows), groups, out});
  row_bits o(rows.size());
  add_words(m, o, out, size(outputs));
  return o;
}

inline row_bits rope(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  numbers n(seed, 28);
  const int heads = n.between(1, 4), rope_dim = 2 * n.between(1, 20), dim = rope_dim + n.below(40);
  std::vector<std::int32_t> position;
  for (const int r : rows)
    position.push_back(numbers(seed, 29, r).below(50));
  const auto x = m.put(row_reals(seed, 30, rows, heads * dim));
  d.ops().rope(*m.s,
               {x, count(rows), heads, dim, rope_dim, m.put(position), m.put(n.reals(50 * rope_dim)), n.below(2) == 0});
  row_bits o(rows.size());
  add_words(m, o, x, size(heads * dim));
  return o;
}

inline row_bits encode(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  numbers n(seed, 31);
  const int dim = 32 * n.between(1, 6);
  const kv_format f = pick_kv(n);
  const auto bytes = size(record_bytes(f, dim));
  const auto out = m.room<std::byte>(rows.size() * bytes);
  d.ops().encode(*m.s, {m.put(row_reals(seed, 32, rows, dim, 10)), count(rows), dim, f, out});
  row_bits o(rows.size());
  add_words(m, o, out, bytes);
  return o;
}

inline row_bits ring_commit(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  numbers n(seed, 33);
  const int dim = 32 * n.between(1, 3), entries = n.between(1, 9);
  const kv_format f = pick_kv(n);
  const made_map map = make_map(m, seed, rows, 8);
  const ring_view ring = make_ring(m, f, dim, entries, n);
  const auto bytes = size(record_bytes(f, dim));
  std::vector<std::byte> records;
  for (const int r : rows) {
    numbers row(seed, 34, r);
    for (std::size_t i = 0; i < bytes; ++i)
      records.push_back(static_cast<std::byte>(row.below(256)));
  }
  d.ops().ring_commit(*m.s, {map.map, m.put(records), ring});
  row_bits o(rows.size());
  const std::size_t slot_bytes = bytes * size(entries);
  const std::vector<std::byte> all = m.get(dev_ptr<const std::byte>(ring.base), size(most_row_ids + 1) * slot_bytes);
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t b = 0; b < slot_bytes; ++b)
      o[i].push_back(std::to_integer<std::uint32_t>(all[size(rows[i] + 1) * slot_bytes + b]));
  return o;
}

inline row_bits block_store(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  numbers n(seed, 35);
  const int dim = 32 * n.between(1, 3), entries = n.between(1, 4);
  const kv_format f = pick_kv(n);
  const block_view blocks = make_blocks(m, f, dim, entries, n);
  std::vector<std::int64_t> entry;
  for (const int r : rows)
    entry.push_back(r % 5 == 4 ? -1 : (std::int64_t{r} + 1) * entries + numbers(seed, 36, r).below(entries));
  d.ops().block_store(*m.s, {m.put(row_reals(seed, 37, rows, dim)), m.put(entry), count(rows), blocks});
  row_bits o(rows.size());
  const std::size_t block_bytes = size(entries * record_bytes(f, dim));
  const std::vector<std::byte> all = m.get(dev_ptr<const std::byte>(blocks.base), size(most_row_ids + 2) * block_bytes);
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t b = 0; b < block_bytes; ++b)
      o[i].push_back(std::to_integer<std::uint32_t>(all[size(rows[i] + 1) * block_bytes + b]));
  return o;
}

inline row_bits compress(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  numbers n(seed, 38);
  const int dim = n.between(1, 100);
  made_map map = make_map(m, seed, rows, 8);
  for (std::int32_t& p : map.position)
    p |= 1; // the second token of its block
  map.map.position = m.put(map.position);
  const ring_view ring = make_ring(m, kv_format::f32, 2 * dim, n.between(1, 5), n);
  std::vector<std::int32_t> last;
  for (int i = 0; i < count(rows); ++i)
    last.push_back(rows[size(i)] % 7 == 5 ? -1 : i); // left out: stays zero
  const auto out = m.room<float>(rows.size() * size(dim));
  d.ops().compress(*m.s,
                   {map.map, m.put(row_reals(seed, 39, rows, 2 * dim, 4)), ring, m.put(last), count(rows), dim, out});
  row_bits o(rows.size());
  add_words(m, o, out, size(dim));
  return o;
}

inline std::vector<std::int32_t> visible_of(std::uint64_t seed, std::span<const int> rows, int most) {
  std::vector<std::int32_t> v;
  for (const int r : rows)
    v.push_back(numbers(seed, 40, r).between(0, most));
  return v;
}

inline row_bits index_scores(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  numbers n(seed, 41);
  const int heads = n.between(1, 9), dim = 32 * n.between(1, 4), entries = n.between(1, 12);
  const int stride = entries * made_map::blocks_per_row + n.below(5);
  const made_map map = make_map(m, seed, rows, 8);
  const block_view keys = make_blocks(m, pick_kv(n), dim, entries, n);
  // the call computes all rows but those in front of `first`; these keep the zeros of the buffer
  const int first = rows.size() > 2 ? 1 : 0;
  const auto scores = m.room<float>(rows.size() * size(stride));
  const index_scores_args a{map.map,
                            0,
                            count(rows),
                            heads,
                            dim,
                            m.put(row_reals(seed, 42, rows, heads * dim)),
                            m.put(row_reals(seed, 43, rows, heads)),
                            keys,
                            m.put(visible_of(seed, rows, entries * made_map::blocks_per_row)),
                            scores,
                            stride};
  index_scores_args head = a, tail = a;
  head.count = first;
  tail.first = first;
  tail.count = count(rows) - first;
  tail.scores = scores + std::int64_t{first} * stride;
  d.ops().index_scores(*m.s, head);
  d.ops().index_scores(*m.s, tail);
  row_bits o(rows.size());
  add_words(m, o, scores, size(stride));
  return o;
}

// Scores with many ties, signed zeros and a few NaN and infinities.
inline std::vector<float> tied_scores(std::uint64_t seed, std::span<const int> rows, int stride) {
  std::vector<float> v;
  for (const int r : rows) {
    numbers n(seed, 44, r);
    for (int i = 0; i < stride; ++i) {
      const int kind = n.below(40);
      v.push_back(kind == 0   ? bits_float(0x7fc00000u)
                  : kind == 1 ? bits_float(0xff800000u)
                  : kind == 2 ? -0.0f
                              : static_cast<float>(n.between(-4, 4)) * 0.5f);
    }
  }
  return v;
}

inline row_bits candidates(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  numbers n(seed, 45);
  const int block = n.below(2) == 0 ? 8 : 16, stride = n.between(block, 200), limit = n.between(1, 12);
  const auto out = m.room<std::int32_t>(rows.size() * size(limit));
  d.ops().candidates(*m.s, {0, count(rows), m.put(tied_scores(seed, rows, stride)), stride,
                            m.put(visible_of(seed, rows, stride)), block, limit, out});
  row_bits o(rows.size());
  add_words(m, o, out, size(limit));
  return o;
}

inline row_bits select(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  numbers n(seed, 46);
  const int stride = n.between(1, 200), topk = n.between(1, 40), kind = n.below(3), block = 8, limit = n.between(2, 10);
  select_args a{0,  count(rows), {},    stride, m.put(visible_of(seed, rows, kind == 0 ? topk : stride)),
                {}, block,       limit, topk,   m.room<std::int32_t>(rows.size() * size(topk))};
  if (kind > 0)
    a.scores = m.put(tied_scores(seed, rows, stride));
  if (kind == 2) { // as candidates() gives them
    const auto chosen = m.room<std::int32_t>(rows.size() * size(limit));
    d.ops().candidates(*m.s, {0, count(rows), a.scores, stride, a.visible, block, limit, chosen});
    a.candidates = chosen;
  }
  d.ops().select(*m.s, a);
  row_bits o(rows.size());
  add_words(m, o, a.selected, size(topk));
  return o;
}

inline row_bits attention(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  numbers n(seed, 47);
  const int heads = n.between(1, 9), dim = 32 * n.between(1, 4), entries = n.between(10, 40),
            per_block = n.between(4, 12);
  const int topk = n.between(1, 20);
  const made_map map = make_map(m, seed, rows, n.between(1, entries));
  const kv_format f = n.below(2) == 0 ? kv_format::f32 : kv_format::fp8_ue8m0_32;
  const ring_view ring = make_ring(m, f, dim, entries, n);
  const auto own = m.room<std::byte>(rows.size() * size(record_bytes(f, dim)));
  d.ops().encode(*m.s, {m.put(row_reals(seed, 48, rows, dim)), count(rows), dim, f, own});
  attention_args a{map.map,
                   heads,
                   dim,
                   0.2f,
                   m.put(row_reals(seed, 49, rows, heads * dim, 2)),
                   own,
                   ring,
                   {},
                   {},
                   topk,
                   m.put(n.reals(heads, 2)),
                   m.room<float>(rows.size() * size(heads * dim))};
  if (n.below(3) > 0) {
    a.blocks = make_blocks(m, pick_kv(n), dim, per_block, n);
    std::vector<std::int32_t> selected;
    for (const int r : rows) {
      numbers row(seed, 50, r);
      const int wanted = row.between(0, topk), all = per_block * made_map::blocks_per_row;
      std::vector<std::int32_t> s;
      for (int p = row.below(3); p < all && static_cast<int>(s.size()) < wanted; p += row.between(1, 3))
        s.push_back(p);
      s.resize(size(topk), -1);
      selected.insert(selected.end(), s.begin(), s.end());
    }
    a.selected = m.put(selected);
  }
  d.ops().attention(*m.s, a);
  row_bits o(rows.size());
  add_words(m, o, a.out, size(heads * dim));
  return o;
}

inline row_bits route(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  numbers n(seed, 51);
  const int experts = n.between(1, 64), k = n.between(1, std::min(experts, 8));
  std::vector<float> logits;
  for (const int r : rows) {
    numbers row(seed, 52, r);
    for (int e = 0; e < experts; ++e) // half of the rows have many equal logits
      logits.push_back(r % 2 == 0 ? row.real(4) : static_cast<float>(row.between(-3, 3)));
  }
  std::vector<float> bias(size(experts), 0.0f);
  if (n.below(2) == 0)
    bias = n.reals(experts, 0.1f);
  const auto expert = m.room<std::int32_t>(rows.size() * size(k));
  const auto weight = m.room<float>(rows.size() * size(k));
  d.ops().route(*m.s, {m.put(logits), m.put(bias), count(rows), experts, k, 1.5f, expert, weight, {}, {}});
  row_bits o(rows.size());
  add_words(m, o, expert, size(k));
  add_words(m, o, weight, size(k));
  return o;
}

inline row_bits swiglu(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  numbers n(seed, 53);
  const int cols = n.between(1, 200);
  const auto gate = m.put(row_reals(seed, 54, rows, cols, 15));
  const auto out = n.below(2) == 0 ? gate : m.room<float>(rows.size() * size(cols));
  d.ops().swiglu(
      *m.s, {gate, m.put(row_reals(seed, 55, rows, cols, 15)), count(rows), cols, n.below(3) == 0 ? 0.0f : 10.0f, out});
  row_bits o(rows.size());
  add_words(m, o, out, size(cols));
  return o;
}

inline row_bits experts(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  numbers n(seed, 56);
  const int hidden = 32 * n.between(1, 4), inner = 32 * n.between(1, 3), all = n.between(2, 6), k = n.between(1, all);
  const weight_format f = n.below(2) == 0 ? weight_format::mxfp4 : pick_format(n);
  std::vector<std::shared_ptr<made_weight>> keep;
  std::vector<expert_source> sources;
  std::vector<std::int32_t> slot_of(size(all), -1);
  for (int e = 0; e < all; ++e) {
    if (e % 3 == 1)
      continue; // lives elsewhere
    slot_of[size(e)] = static_cast<std::int32_t>(sources.size());
    const auto add = [&](int rows_, int cols) {
      keep.push_back(make_weight_source(f, rows_, cols, numbers(seed, 57, static_cast<int>(keep.size()))));
      return keep.back()->source;
    };
    const weight_source w1 = add(inner, hidden), w3 = add(inner, hidden), w2 = add(hidden, inner);
    sources.push_back({w1, w3, w2});
  }
  const auto set = d.pack_experts(sources);
  std::vector<std::int32_t> chosen;
  for (const int r : rows) {
    const int first = numbers(seed, 58, r).below(all);
    for (int j = 0; j < k; ++j)
      chosen.push_back(r % 9 == 8 ? -1 : (first + j) % all); // row 8 is nobody's
  }
  const auto y = m.room<float>(rows.size() * size(k * hidden));
  d.ops().experts(*m.s, {set.get(), m.put(slot_of), m.put(row_reals(seed, 59, rows, hidden)), m.put(chosen),
                         m.put(row_reals(seed, 60, rows, k)), count(rows), k, 10.0f, n.below(2) == 0, y});
  row_bits o(rows.size());
  add_words(m, o, y, size(k * hidden)); // absent experts and nobody's rows leave zeros
  return o;
}

inline row_bits combine(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  numbers n(seed, 61);
  const int k = n.between(1, 8), hidden = n.between(1, 150);
  const auto shared = m.put(row_reals(seed, 62, rows, hidden));
  const auto out = n.below(2) == 0 ? shared : m.room<float>(rows.size() * size(hidden));
  d.ops().combine(*m.s,
                  {shared, m.put(row_reals(seed, 63, rows, k * hidden)), count(rows), k, hidden, n.below(2) == 0, out});
  row_bits o(rows.size());
  add_words(m, o, out, size(hidden));
  return o;
}

inline row_bits copy_rows(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  numbers n(seed, 64);
  const int cols = n.between(1, 90);
  std::vector<std::int32_t> index;
  for (const int r : rows)
    index.push_back(numbers(seed, 65, r).below(30));
  const auto out = m.room<float>(rows.size() * size(cols));
  d.ops().copy_rows(*m.s, {m.put(n.reals(30 * cols)), m.put(index), count(rows), cols, out});
  row_bits o(rows.size());
  add_words(m, o, out, size(cols));
  return o;
}

inline row_bits copy_columns(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  numbers n(seed, 66);
  const int cols = n.between(1, 90), x_stride = cols + n.below(9), out_stride = cols + n.below(9);
  const auto out = m.put(row_reals(seed, 67, rows, out_stride));
  d.ops().copy_columns(*m.s, {m.put(row_reals(seed, 68, rows, x_stride)), x_stride, count(rows), cols, out, out_stride,
                              n.below(2) == 0});
  row_bits o(rows.size());
  add_words(m, o, out, size(out_stride));
  return o;
}

inline row_bits sample_rows(device& d, std::uint64_t seed, std::span<const int> rows) {
  arena m(d);
  numbers n(seed, 69);
  const int vocab = n.between(5, 300), words = (vocab + 31) / 32, max_top = n.between(0, 6);
  const bool by_rule = n.below(2) == 0; // rules and positions in arrays of their own
  std::vector<float> logits;
  std::vector<sample_row_params> params;
  std::vector<std::int32_t> rule, position, forced, verifies;
  std::vector<std::pair<std::int32_t, float>> bias;
  std::vector<std::int32_t> suppressed;
  std::vector<std::uint32_t> masks;
  for (const int r : rows) {
    numbers row(seed, 70, r);
    for (int i = 0; i < vocab; ++i) // some rows are full of ties, one cannot be sampled
      logits.push_back(r % 8 == 6 ? static_cast<float>(row.between(-3, 3)) : row.real(6));
    if (r == 20)
      logits.back() = bits_float(0x7fc00000u);
    sample_row_params p;
    p.temperature = row.below(4) == 0 ? 0.0f : 0.3f + 0.1f * static_cast<float>(row.below(15));
    p.top_p = row.below(2) == 0 ? 1.0f : 0.8f;
    p.top_k = row.below(2) == 0 ? -1 : row.between(1, 9);
    p.min_p = row.below(2) == 0 ? 0.0f : 0.05f;
    p.seed = row.bits();
    position.push_back(row.below(1 << 20));
    p.position = by_rule ? row.bits() : static_cast<std::uint64_t>(position.back()) + 1;
    p.first_forced = static_cast<std::int32_t>(forced.size());
    p.forced = row.below(3);
    p.forced_at = static_cast<std::uint64_t>(position.back() + row.below(3));
    for (int k = 0; k < p.forced; ++k)
      forced.push_back(row.below(vocab));
    p.top_logprobs = row.between(0, 8);
    p.processed = row.below(2) == 0 ? 1 : 0;
    p.first_bias = static_cast<std::int32_t>(bias.size());
    for (p.biases = row.below(3); static_cast<std::int32_t>(bias.size()) < p.first_bias + p.biases;)
      bias.emplace_back(static_cast<std::int32_t>(bias.size()) - p.first_bias, row.real(3));
    p.first_suppressed = static_cast<std::int32_t>(suppressed.size());
    for (p.suppressed = row.below(3); static_cast<std::int32_t>(suppressed.size()) < p.first_suppressed + p.suppressed;)
      suppressed.push_back(row.below(vocab));
    p.suppressed_until = static_cast<std::uint64_t>(position.back() + row.below(4));
    if (row.below(2) == 0) {
      p.mask = static_cast<std::int32_t>(masks.size()) / words;
      for (int w = 0; w < words; ++w)
        masks.push_back(row.bits() | 1u);
    }
    p.draw = static_cast<draw_rule>(row.below(3));
    verifies.push_back(row.below(3) == 0 ? -1 : r);
    if (by_rule)
      params.emplace_back(); // every second rule is nobody's
    rule.push_back(static_cast<std::int32_t>(params.size()));
    params.push_back(p);
  }
  std::vector<std::int32_t> drafts;
  std::vector<float> draft_logits;
  for (int r = 0; r < most_row_ids; ++r) {
    numbers row(seed, 71, r);
    drafts.push_back(row.below(vocab));
    for (int i = 0; i < vocab; ++i)
      draft_logits.push_back(r == 7 ? bits_float(0x7fc00000u) : row.real(3));
    if (row.below(2) == 0)
      draft_logits[draft_logits.size() - size(vocab - drafts.back())] = 9; // likely to have been drawn
  }
  bias.emplace_back(0, 0.0f); // no empty arrays
  suppressed.push_back(0);
  forced.push_back(0);
  masks.push_back(0);
  sample_rows_args a;
  a.logits = m.put(logits);
  a.rows = count(rows);
  a.vocab = vocab;
  a.params = m.put(params);
  if (by_rule) {
    a.rule = m.put(rule);
    a.row_position = m.put(position);
  }
  a.forced = m.put(forced);
  a.bias = m.put(bias);
  a.suppressed = m.put(suppressed);
  a.blacklist = m.put(std::vector<std::int32_t>{1, vocab - 2});
  a.blacklisted = seed % 2 == 0 ? 2 : 0; // without, some rows are read where they lie
  a.masks = m.put(masks);
  a.verifies = m.put(verifies);
  a.drafts = m.put(drafts);
  a.draft_logits = m.put(draft_logits);
  a.draft_number = static_cast<std::int32_t>(seed % 5);
  a.max_top = max_top;
  a.token = m.room<std::int32_t>(rows.size()), a.status = m.room<std::int32_t>(rows.size());
  a.logprob = m.room<float>(rows.size());
  a.top = m.room<std::pair<std::int32_t, float>>(rows.size() * size(max_top));
  d.ops().sample_rows(*m.s, a);
  row_bits o(rows.size());
  add_words(m, o, a.token, 1);
  add_words(m, o, a.status, 1);
  add_words(m, o, a.logprob, 1);
  add_words(m, o, a.top, size(max_top));
  return o;
}

} // namespace cases

inline std::span<const row_case> op_cases() {
  static constexpr row_case all[] = {
      {"lay_out_rows", cases::lay_out_rows},
      {"verify_drafts", cases::verify_drafts},
      {"lay_out_drafts", cases::lay_out_drafts},
      {"keep_drafts", cases::keep_drafts},
      {"embed", cases::embed},
      {"engram_rows", cases::engram_rows},
      {"gather", cases::gather},
      {"engram_gate", cases::engram_gate},
      {"hc_collapse", cases::hc_collapse},
      {"hc_mixes", cases::hc_mixes},
      {"hc_expand", cases::hc_expand},
      {"hc_mean", cases::hc_mean},
      {"rms_norm", cases::rms_norm},
      {"round", cases::round},
      {"linear", cases::linear},
      {"rope", cases::rope},
      {"encode", cases::encode},
      {"ring_commit", cases::ring_commit},
      {"block_store", cases::block_store},
      {"compress", cases::compress},
      {"index_scores", cases::index_scores},
      {"candidates", cases::candidates},
      {"select", cases::select},
      {"attention", cases::attention},
      {"route", cases::route},
      {"swiglu", cases::swiglu},
      {"experts", cases::experts},
      {"combine", cases::combine},
      {"copy_rows", cases::copy_rows},
      {"copy_columns", cases::copy_columns},
      {"sample_rows", cases::sample_rows},
  };
  return all;
}

} // namespace troupe::row_cases
