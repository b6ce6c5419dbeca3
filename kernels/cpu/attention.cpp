#include "kernels/cpu/attention.hpp"

#include "kernels/cpu/targets.hpp"
#include "kernels/reference/records.hpp"
#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cpp"
#include "hwy/foreach_target.h"

#include "kernels/cpu/activation-inl.hpp"
#include "kernels/cpu/record-inl.hpp"

#ifndef TROUPE_KERNELS_CPU_ATTENTION_ONCE
#define TROUPE_KERNELS_CPU_ATTENTION_ONCE
namespace troupe::cpu {

constexpr std::int64_t up16(std::int64_t n) {
  return (n + 15) / 16 * 16;
}

// Window positions [low, high) of a row that exist: in the ring or among the step's rows.
struct key_range {
  std::int64_t low = 0, high = 0;
};
inline key_range window_of(const attention_args& a, int row) {
  const std::int64_t s = a.map.sequence.raw()[row], start = a.map.start.raw()[s];
  const std::int64_t low =
      std::max({std::int64_t{a.map.window_lo.raw()[row]}, std::int64_t{0}, start - a.ring.entries});
  const std::int64_t high =
      std::min(std::int64_t{a.map.window_hi.raw()[row]}, start + a.map.row_count.raw()[s] - 1) + 1;
  return {low, std::max(low, high)};
}

// Working space of a call, in floats.
struct attention_space {
  std::int64_t groups = 0, window = 0, selected = 0;
  std::int64_t queries_at = 0, window_at = 0, selected_at = 0, scores_at = 0, size = 0;
  explicit attention_space(const attention_args& a) {
    groups = up16(a.heads) / 16;
    std::int64_t most = 0; // keys of one row's window
    for (int i = 0; i < a.map.rows; ++i) {
      const key_range w = window_of(a, i);
      most = std::max(most, w.high - w.low);
    }
    window = most + attention_tile;
    selected = a.selected ? a.topk : 0;
    const std::int64_t keys = most + selected;
    window_at = queries_at + groups * 16 * a.dim;
    selected_at = window_at + up16(window * a.dim + 16);
    scores_at = selected_at + up16(selected * a.dim + 16);
    size = scores_at + groups * keys * 16;
  }
};

// The rows from `row` on, at most attention_tile, of its sequence whose windows together hold at most most_keys
// keys; and these keys.
struct row_tile {
  int end = 0;
  key_range keys;
};
inline row_tile tile_at(const attention_args& a, std::int64_t most_keys, int row, int end) {
  row_tile t{row, window_of(a, row)};
  for (; t.end < end && t.end < row + attention_tile; ++t.end) {
    if (a.map.sequence.raw()[t.end] != a.map.sequence.raw()[row])
      break;
    const key_range w = window_of(a, t.end);
    const key_range both{std::min(t.keys.low, w.low), std::max(t.keys.high, w.high)};
    if (both.high - both.low > most_keys)
      break;
    t.keys = both;
  }
  return t;
}

} // namespace troupe::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace troupe::cpu {
namespace HWY_NAMESPACE {

// scores[k*16 + h] -> probabilities, for 16 heads; keys in order, the sink last.
HWY_INLINE void softmax16(float* scores, std::int64_t keys, float scale, const float* sinks) {
  const f32v factor = set1(scale);
  for (int part = 0; part < 16; part += vector_lanes) {
    float* s = scores + part;
    const f32v sink = hn::LoadU(f32_tag(), sinks + part);
    f32v top = sink, sum = hn::Zero(f32_tag());
    for (std::int64_t k = 0; k < keys; ++k) {
      const f32v v = hn::Mul(hn::LoadU(f32_tag(), s + k * 16), factor);
      hn::StoreU(v, f32_tag(), s + k * 16);
      top = larger(v, top);
    }
    for (std::int64_t k = 0; k < keys; ++k) {
      const f32v e = exact::exp_lanes<vector_lanes_policy>(hn::Sub(hn::LoadU(f32_tag(), s + k * 16), top));
      hn::StoreU(e, f32_tag(), s + k * 16);
      sum = hn::Add(sum, e);
    }
    sum = hn::Add(sum, exact::exp_lanes<vector_lanes_policy>(hn::Sub(sink, top)));
    for (std::int64_t k = 0; k < keys; ++k)
      hn::StoreU(hn::Div(hn::LoadU(f32_tag(), s + k * 16), sum), f32_tag(), s + k * 16);
  }
}

constexpr int address_chunk = 128; // rows of a product whose addresses are held at a time, at least 16

// One row: `window` decoded keys of its window (ascending), then its selected ones.
void attend(const attention_args& a, const attention_space& space, int row, int first_group, int last_group,
            const float* window, std::int64_t in_window, float* scratch) {
  const std::int64_t dim = a.dim, heads = a.heads;
  const std::int32_t sequence = a.map.sequence.raw()[row];
  float* chosen = scratch + space.selected_at;
  std::int64_t in_selected = 0;
  if (a.selected) {
    const std::int64_t limit = std::int64_t{a.map.block_stride} * a.blocks.entries;
    const std::int32_t* selected = a.selected.raw() + std::int64_t{row} * a.topk;
    for (int j = 0; j < a.topk; ++j)
      if (selected[j] >= 0 && selected[j] < limit)
        decode_record(a.blocks.format, reference::context_record(a.map, sequence, a.blocks, selected[j]), dim,
                      chosen + dim * in_selected++);
  }
  const std::int64_t keys = in_window + in_selected;
  float* scores = scratch + space.scores_at;
  const float* x[address_chunk];
  float* out[address_chunk];
  // Queries with heads in lanes: the keys are the rows, the heads the outputs of a product.
  float* queries = scratch + space.queries_at;
  const float* q = a.q.raw() + std::int64_t{row} * heads * dim;
  const std::int64_t width = space.groups * 16;
  for (std::int64_t c = 0; c < dim; ++c)
    for (std::int64_t h = 0; h < heads; ++h)
      queries[c * width + h] = q[h * dim + c];
  HWY_ALIGN float sinks[16];
  float* row_out = a.out.raw() + std::int64_t{row} * heads * dim;
  for (std::int64_t g = first_group; g < last_group; ++g) {
    float* s = scores + g * keys * 16;
    for (std::int64_t first = 0; first < keys; first += address_chunk) {
      const std::int64_t n = std::min<std::int64_t>(keys - first, address_chunk);
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t k = first + i;
        x[i] = k < in_window ? window + k * dim : chosen + (k - in_window) * dim;
        out[i] = s + k * 16;
      }
      product_of_rows<decode_f32, 1>(
          {view_of_rows(queries, dim, width, width), g * 16, g * 16 + 16, static_cast<int>(n), x, out, g * 16, false});
    }
    const std::int64_t here = std::min<std::int64_t>(heads - g * 16, 16);
    std::fill(std::copy_n(a.sink.raw() + g * 16, here, sinks), sinks + 16, 0.0f);
    softmax16(s, keys, a.scale, sinks);
  }
  // Values: the heads are the rows, the channels the outputs, the keys are summed over.
  for (std::int64_t g = first_group; g < last_group; ++g) {
    const float* p = scores + g * keys * 16;
    const std::int64_t here = std::min<std::int64_t>(heads - g * 16, 16);
    for (std::int64_t h = 0; h < here; ++h) {
      x[h] = p + h;
      out[h] = row_out + (g * 16 + h) * dim;
    }
    const int rows = static_cast<int>(here);
    product_of_rows<decode_f32, 16>({view_of_rows(window, in_window, dim, dim), 0, dim, rows, x, out, 0, false});
    for (std::int64_t h = 0; h < here; ++h)
      x[h] = p + in_window * 16 + h;
    if (in_selected > 0)
      product_of_rows<decode_f32, 16>({view_of_rows(chosen, in_selected, dim, dim), 0, dim, rows, x, out, 0, true});
  }
}

void attention_rows(const attention_args& a, int begin, int end, int first_group, int last_group, float* scratch) {
  const attention_space space(a);
  std::fill_n(scratch + space.queries_at, space.groups * 16 * a.dim, 0.0f); // lanes without a head
  const std::int64_t own_bytes = record_bytes(a.ring.format, a.dim);
  for (int row = begin; row < end;) {
    const row_tile tile = tile_at(a, space.window, row, end);
    const std::int32_t s = a.map.sequence.raw()[row], start = a.map.start.raw()[s];
    float* window = scratch + space.window_at;
    for (std::int64_t p = tile.keys.low; p < tile.keys.high; ++p)
      decode_record(a.ring.format,
                    p < start ? reference::ring_record(a.ring, a.map.slot.raw()[s], p)
                              : a.own.raw() + (a.map.first_row.raw()[s] + p - start) * own_bytes,
                    a.dim, window + (p - tile.keys.low) * a.dim);
    for (; row < tile.end; ++row) {
      const key_range w = window_of(a, row);
      attend(a, space, row, first_group, last_group, window + (w.low - tile.keys.low) * a.dim, w.high - w.low, scratch);
    }
  }
}

// Keys [key, key + n) of a sequence as two panels [dim][index_keys]; lanes past n hold what was there before.
void gather_index_keys(const index_scores_args& a, std::int32_t sequence, std::int64_t key, int n, float* keys,
                       float* row_space) {
  const std::int64_t dim = a.dim;
  const std::byte* records[index_keys];
  bool packed = a.keys.format == kv_format::fp4_ue8m0_32;
  for (int i = 0; i < n; ++i) {
    records[i] = reference::context_record(a.map, sequence, a.keys, key + i);
    for (std::int64_t b = 0; packed && b < dim / 32; ++b)
      packed = records[i][dim / 2 + b] != std::byte{0} && records[i][dim / 2 + b] != std::byte{255};
  }
  if (!packed) {
    for (int i = 0; i < n; ++i) {
      decode_record(a.keys.format, records[i], dim, row_space);
      for (std::int64_t c = 0; c < dim; ++c)
        keys[c * index_keys + i] = row_space[c];
    }
    return;
  }
  // the words of an fp4 panel: eight codes of every key
  HWY_ALIGN std::uint32_t words[index_keys * 4] = {};
  HWY_ALIGN std::uint8_t scales[index_keys] = {};
  for (std::int64_t c = 0; c < dim; c += 32) {
    for (int i = 0; i < n; ++i) {
      std::uint32_t w[4];
      std::memcpy(w, records[i] + c / 2, 16);
      for (int j = 0; j < 4; ++j)
        words[j * index_keys + i] = w[j];
      scales[i] = std::to_integer<std::uint8_t>(records[i][dim / 2 + c / 32]);
    }
    const panel_place place{words, scales, index_keys, index_keys};
    decode_panels<decode_fp4, index_keys / 16>(place, 0, 32, keys + c * index_keys);
  }
}

void index_score_rows(const index_scores_args& a, int begin, int end, std::int64_t first_key, std::int64_t last_key,
                      float* scratch) {
  const std::int64_t dim = a.dim, heads = a.heads;
  float* keys = scratch;                        // [dim, index_keys]
  float* dots = keys + dim * index_keys;        // [heads, index_keys]
  float* row_space = dots + heads * index_keys; // [dim]
  const float* x[address_chunk];
  float* out[address_chunk];
  std::fill_n(keys, dim * index_keys, 0.0f);
  const std::int64_t table = std::int64_t{a.map.block_stride} * a.keys.entries;
  const auto visible_of = [&](int i) TROUPE_INLINED {
    return std::min<std::int64_t>({a.visible.raw()[a.first + i], table, last_key});
  };
  for (int tile = begin; tile < end;) {
    const std::int32_t sequence = a.map.sequence.raw()[a.first + tile];
    int tile_end = tile;
    std::int64_t most = 0;
    for (; tile_end < end && a.map.sequence.raw()[a.first + tile_end] == sequence; ++tile_end)
      most = std::max(most, visible_of(tile_end));
    for (std::int64_t key = first_key; key < most; key += index_keys) {
      gather_index_keys(a, sequence, key, static_cast<int>(std::min<std::int64_t>(most - key, index_keys)), keys,
                        row_space);
      for (int i = tile; i < tile_end; ++i) {
        const std::int64_t n = std::min<std::int64_t>(visible_of(i) - key, index_keys);
        if (n <= 0)
          continue;
        const float* q = a.q.raw() + (std::int64_t{a.first} + i) * heads * dim;
        const float* weight = a.a.raw() + (std::int64_t{a.first} + i) * heads;
        for (std::int64_t first = 0; first < heads; first += address_chunk) {
          const std::int64_t here = std::min<std::int64_t>(heads - first, address_chunk);
          for (std::int64_t h = 0; h < here; ++h) {
            x[h] = q + (first + h) * dim;
            out[h] = dots + (first + h) * index_keys;
          }
          product_of_rows<decode_f32, 1>({view_of_rows(keys, dim, index_keys, index_keys), 0, index_keys,
                                          static_cast<int>(here), x, out, 0, false});
        }
        HWY_ALIGN float sums[index_keys];
        for (int part = 0; part < index_keys; part += vector_lanes) {
          f32v acc = hn::Zero(f32_tag());
          for (std::int64_t h = 0; h < heads; ++h) {
            const f32v dot = hn::LoadU(f32_tag(), dots + h * index_keys + part);
            acc = fused(set1(weight[h]), larger(dot, hn::Zero(f32_tag())), acc);
          }
          hn::StoreU(acc, f32_tag(), sums + part);
        }
        std::copy_n(sums, n, a.scores.raw() + i * a.stride + key);
      }
    }
    tile = tile_end;
  }
}

} // namespace HWY_NAMESPACE
} // namespace troupe::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace troupe::cpu {
HWY_EXPORT(attention_rows);
HWY_EXPORT(index_score_rows);

std::size_t attention_scratch(const attention_args& a) {
  return static_cast<std::size_t>(attention_space(a).size);
}
int head_groups(const attention_args& a) {
  return (a.heads + 15) / 16;
}
void attention(const attention_args& a, int begin, int end, int first_group, int last_group, std::span<float> scratch) {
  HWY_DYNAMIC_DISPATCH(attention_rows)(a, begin, end, first_group, last_group, scratch.data());
}
std::size_t index_scores_scratch(const index_scores_args& a) {
  const std::int64_t dim = a.dim, heads = a.heads;
  return static_cast<std::size_t>(dim * index_keys + heads * index_keys + up16(dim));
}
void index_scores(const index_scores_args& a, int begin, int end, std::int64_t first_key, std::int64_t last_key,
                  std::span<float> scratch) {
  HWY_DYNAMIC_DISPATCH(index_score_rows)(a, begin, end, first_key, last_key, scratch.data());
}
} // namespace troupe::cpu
#endif
