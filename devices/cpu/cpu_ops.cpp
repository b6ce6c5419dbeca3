#include "devices/cpu/cpu_ops.hpp"

#include "kernels/cpu/attention.hpp"
#include "kernels/cpu/records.hpp"
#include "kernels/cpu/rows.hpp"
#include "kernels/cpu/select.hpp"
#include "kernels/plain/moe.hpp"
#include "kernels/reference/cache.hpp"
#include "kernels/reference/drafts.hpp"
#include "kernels/reference/index.hpp"
#include "kernels/reference/moe.hpp"
#include "kernels/reference/rows.hpp"
#include "kernels/reference/sample_rows.hpp"
#include "kernels/reference/table.hpp"
#include "kernels/reference/trunk.hpp"
#include <algorithm>

namespace troupe {
namespace {

void expect(bool condition, const char* what) {
  if (!condition)
    throw device_error(std::string("cpu: ") + what);
}
// Objects made by another device have another layout.
template <class T, class Base> const T& own(const Base* object, const char* what) {
  const auto* p = dynamic_cast<const T*>(object);
  expect(p != nullptr, what);
  return *p;
}
cpu_stream& own(stream& s) {
  auto* p = dynamic_cast<cpu_stream*>(&s);
  expect(p != nullptr, "the stream belongs to another device");
  return *p;
}

// Rough costs, used only to decide whether and how finely to cut an operation.
constexpr double fork_ns = 800;        // below twice this an operation is not cut
constexpr double products_per_ns = 40; // multiply-adds of one thread
constexpr int chunks_per_thread = 4;

// Each worker's share of the stream's working space.
template <class T> class worker_space {
public:
  worker_space(stream& s, int workers, std::size_t each)
      : each_((each + 15) / 16 * 16), all_(space(own(s), each_ * static_cast<std::size_t>(workers))) {}
  std::span<T> of(int worker) const { return all_.subspan(each_ * static_cast<std::size_t>(worker), each_); }

private:
  static std::span<T> space(cpu_stream& s, std::size_t n) {
    if constexpr (std::is_same_v<T, float>)
      return s.scratch(n);
    else
      return s.words(n);
  }
  std::size_t each_;
  std::span<T> all_;
};
using worker_scratch = worker_space<float>;
using worker_words = worker_space<std::uint32_t>;

} // namespace

int cpu_ops::chunks_for(std::int64_t units, double unit_ns) const {
  const std::int64_t threads = pool_.threads();
  const double total = static_cast<double>(units) * unit_ns;
  if (threads == 1 || units <= 1 || total < 2 * fork_ns)
    return 1;
  std::int64_t chunks = std::min(static_cast<std::int64_t>(total / fork_ns), threads * chunks_per_thread);
  if (chunks > threads) // a last round with idle threads wastes more than finer chunks gain
    chunks -= chunks % threads;
  return static_cast<int>(std::min(chunks, units));
}

void cpu_ops::share_drafts(stream&, const share_drafts_args& a) {
  reference::share_drafts(a);
}
void cpu_ops::lay_out_rows(stream&, const lay_out_rows_args& a) {
  reference::lay_out_rows(a);
}
void cpu_ops::verify_drafts(stream&, const verify_drafts_args& a) {
  reference::verify_drafts(a);
}
void cpu_ops::lay_out_drafts(stream&, const lay_out_drafts_args& a) {
  reference::lay_out_drafts(a);
}
void cpu_ops::keep_drafts(stream&, const keep_drafts_args& a) {
  reference::keep_drafts(a);
}
void cpu_ops::embed(stream&, const embed_args& a) {
  own<reference::host_table>(a.table, "embed: the table was not packed by this device");
  rows(a.rows, 1.0 * static_cast<double>(a.table->cols), [&](int b, int e, int) { reference::embed(a, b, e); });
}
void cpu_ops::engram_rows(stream&, const engram_rows_args& a) {
  rows(a.map.rows, 10.0 * a.ngram * a.heads, [&](int b, int e, int) { reference::engram_rows(a, b, e); });
}
void cpu_ops::gather(stream&, const gather_args& a) {
  own<reference::host_table>(a.table, "gather: the table was not packed by this device");
  rows(a.rows, 1.0 * a.per_row * static_cast<double>(a.table->cols),
       [&](int b, int e, int) { reference::gather(a, b, e); });
}
void cpu_ops::engram_gate(stream&, const engram_gate_args& a) {
  rows(a.rows, 0.2 * a.streams * a.hidden, [&](int b, int e, int) { cpu::engram_gate(a, b, e); });
}
void cpu_ops::hc_collapse(stream&, const hc_collapse_args& a) {
  rows(a.rows, 0.05 * a.streams * a.hidden, [&](int b, int e, int) { cpu::hc_collapse(a, b, e); });
}
void cpu_ops::hc_mixes(stream& s, const hc_mixes_args& a) {
  const auto& fn = own<cpu::panel_weight>(a.fn, "hc_mixes: fn was not packed by this device");
  expect(a.streams >= 1 && a.streams <= reference::max_streams, "hc_mixes: between 1 and 16 streams");
  expect(fn.rows == std::int64_t{a.streams} * (a.streams + 2) && fn.cols == std::int64_t{a.streams} * a.hidden,
         "hc_mixes: fn must be [M*(M+2), M*H]");
  const std::span<float> products = own(s).scratch(static_cast<std::size_t>(a.rows * fn.rows));
  linear_args l;
  l.x = a.trunk;
  l.w = a.fn;
  l.rows = a.rows;
  l.out = dev_ptr<float>(products.data());
  rows(a.rows, static_cast<double>(fn.rows * fn.cols) / products_per_ns + 1000, [&](int b, int e, int) {
    cpu::linear(l, 0, fn.rows, b, e);
    for (int i = b; i < e; ++i)
      cpu::hc_mixes_row(a, i, products.data() + i * fn.rows);
  });
}
void cpu_ops::hc_expand(stream&, const hc_expand_args& a) {
  expect(a.streams >= 1 && a.streams <= reference::max_streams, "hc_expand: between 1 and 16 streams");
  rows(a.rows, 0.15 * a.streams * a.hidden, [&](int b, int e, int) { cpu::hc_expand(a, b, e); });
}
void cpu_ops::hc_mean(stream&, const hc_mean_args& a) {
  rows(a.rows, 0.05 * a.streams * a.hidden, [&](int b, int e, int) { cpu::hc_mean(a, b, e); });
}
void cpu_ops::rms_norm(stream&, const rms_norm_args& a) {
  rows(a.rows, 0.15 * a.cols, [&](int b, int e, int) { cpu::rms_norm(a, b, e); });
}
void cpu_ops::round(stream&, const round_args& a) {
  expect(a.cols % 32 == 0, "round: columns must be a multiple of 32");
  rows(a.rows, 0.3 * a.cols, [&](int b, int e, int) { cpu::round(a, b, e); });
}

void cpu_ops::linear(stream&, const linear_args& a) {
  const auto& w = own<cpu::panel_weight>(a.w, "linear: the weight was not packed by this device");
  expect(a.groups >= 1 && w.rows % a.groups == 0, "linear: the groups do not divide the outputs");
  const std::int64_t panels = (w.rows + 15) / 16;
  const double panel_ns = static_cast<double>(a.rows) * static_cast<double>(w.cols) * 16 / products_per_ns;
  // Panels are cut first: each thread then reads its own part of the weights. Few panels and many rows: rows.
  const std::int64_t unit = a.rows == 1 ? 4 : 2; // panels computed together
  if (panels < unit * pool_.threads() && a.rows > 1)
    return rows(a.rows, panel_ns * static_cast<double>(panels) / a.rows,
                [&](int b, int e, int) { cpu::linear(a, 0, w.rows, b, e); });
  split((panels + unit - 1) / unit, panel_ns * static_cast<double>(unit), [&](std::int64_t b, std::int64_t e, int) {
    cpu::linear(a, b * unit * 16, std::min(e * unit * 16, w.rows), 0, a.rows);
  });
}

void cpu_ops::rope(stream&, const rope_args& a) {
  rows(a.rows, 0.15 * a.heads * a.rope_dim, [&](int b, int e, int) { cpu::rope(a, b, e); });
}
void cpu_ops::encode(stream&, const encode_args& a) {
  expect(a.format == kv_format::f32 || a.dim % 32 == 0, "encode: the dimension must be a multiple of 32");
  rows(a.rows, 1.0 * a.dim, [&](int b, int e, int) { cpu::encode(a, b, e); });
}
void cpu_ops::ring_commit(stream&, const ring_commit_args& a) {
  rows(a.map.rows, 30, [&](int b, int e, int) { reference::ring_commit(a, b, e); });
}
void cpu_ops::block_store(stream&, const block_store_args& a) {
  expect(a.blocks.format == kv_format::f32 || a.blocks.dim % 32 == 0,
         "block_store: the dimension must be a multiple of 32");
  rows(a.rows, 1.0 * a.blocks.dim, [&](int b, int e, int) { cpu::block_store(a, b, e); });
}
void cpu_ops::compress(stream&, const compress_args& a) {
  expect(a.pending.format == kv_format::f32 && a.pending.dim == 2 * a.dim, "compress: the ring must be f32 of 2*dim");
  rows(a.blocks, 20.0 * a.dim, [&](int b, int e, int) { reference::compress(a, b, e); });
}
void cpu_ops::index_scores(stream& s, const index_scores_args& a) {
  expect(a.keys.dim == a.dim, "index_scores: keys and queries differ in dimension");
  std::int64_t most = 0;
  for (int i = 0; i < a.count; ++i)
    most = std::max<std::int64_t>(most, a.visible.raw()[a.first + i]);
  if (most <= 0)
    return;
  const worker_scratch scratch(s, pool_.threads(), cpu::index_scores_scratch(a));
  // pieces: a tile of rows times a stretch of keys
  const std::int64_t tiles = (a.count + cpu::index_tile - 1) / cpu::index_tile;
  const std::int64_t stretch = 4 * cpu::index_keys, stretches = (most + stretch - 1) / stretch;
  const double row_ns = static_cast<double>(stretch * a.dim * a.heads) / products_per_ns;
  split(tiles * stretches, row_ns * std::min(a.count, cpu::index_tile),
        [&](std::int64_t b, std::int64_t e, int worker) {
          for (std::int64_t t = b; t < e; ++t) {
            const int row = static_cast<int>(t / stretches) * cpu::index_tile;
            const std::int64_t key = t % stretches * stretch;
            cpu::index_scores(a, row, std::min(row + cpu::index_tile, a.count), key, key + stretch, scratch.of(worker));
          }
        });
}
void cpu_ops::candidates(stream& s, const candidate_args& a) {
  const worker_words scratch(s, pool_.threads(), cpu::candidates_scratch(a, 0, a.count));
  rows(a.count, 1000, [&](int b, int e, int worker) { cpu::candidates(a, b, e, scratch.of(worker)); });
}
void cpu_ops::select(stream& s, const select_args& a) {
  const worker_words scratch(s, pool_.threads(), cpu::select_scratch(a, 0, a.count));
  rows(a.count, 2000, [&](int b, int e, int worker) { cpu::select(a, b, e, scratch.of(worker)); });
}
void cpu_ops::attention(stream& s, const attention_args& a) {
  expect(a.ring.dim == a.dim && (!a.selected || a.blocks.dim == a.dim),
         "attention: keys and queries differ in dimension");
  const worker_scratch scratch(s, pool_.threads(), cpu::attention_scratch(a));
  const int groups = cpu::head_groups(a);
  if (a.map.rows >= pool_.threads() || groups == 1)
    return rows(a.map.rows, 8000.0 * groups,
                [&](int b, int e, int worker) { cpu::attention(a, b, e, 0, groups, scratch.of(worker)); });
  // few rows, many heads: each thread decodes the keys for its own heads
  split(std::int64_t{a.map.rows} * groups, 8000, [&](std::int64_t b, std::int64_t e, int worker) {
    for (std::int64_t u = b; u < e; ++u) {
      const int row = static_cast<int>(u / groups), first = static_cast<int>(u % groups);
      const int last = static_cast<int>(std::min<std::int64_t>(groups, first + e - u));
      cpu::attention(a, row, row + 1, first, last, scratch.of(worker));
      u += last - first - 1;
    }
  });
}
void cpu_ops::route(stream& s, const route_args& a) {
  expect(a.k <= a.experts, "route: more experts per token than experts");
  const worker_scratch scratch(s, pool_.threads(), reference::route_scratch(a));
  rows(a.rows, 5.0 * a.experts, [&](int b, int e, int worker) { cpu::route(a, b, e, scratch.of(worker)); });
  reference::count_routed(a);
}
void cpu_ops::swiglu(stream&, const swiglu_args& a) {
  rows(a.rows, 1.0 * a.cols, [&](int b, int e, int) { cpu::swiglu(a, b, e); });
}

void cpu_ops::experts(stream& s, const experts_args& a) {
  const auto& set = own<cpu::panel_expert_set>(a.set, "experts: the set was not packed by this device");
  expect(!a.round_inner || set.intermediate % 32 == 0, "experts: the inner width must be a multiple of 32");
  const std::int64_t entries = std::int64_t{a.rows} * a.k, inner = set.intermediate, hidden = set.hidden;
  auto& r = own(s).routed;
  // counting sort of the routed rows by slot
  r.next.assign(static_cast<std::size_t>(set.slots) + 1, 0);
  const auto slot_at = [&](std::int64_t i) { return plain::expert_slot(a, i); };
  for (std::int64_t i = 0; i < entries; ++i)
    if (const std::int32_t slot = slot_at(i); slot >= 0)
      ++r.next[static_cast<std::size_t>(slot) + 1];
  r.first.clear();
  r.slot.clear();
  for (std::int32_t slot = 0; slot < set.slots; ++slot) {
    auto& after = r.next[static_cast<std::size_t>(slot) + 1];
    if (after > 0) {
      r.first.push_back(r.next[static_cast<std::size_t>(slot)]);
      r.slot.push_back(slot);
    }
    after += r.next[static_cast<std::size_t>(slot)];
  }
  const std::int64_t count = r.next.back();
  if (count == 0)
    return;
  r.first.push_back(static_cast<std::int32_t>(count));
  const auto n = static_cast<std::size_t>(count);
  r.x.resize(n);
  r.weight.resize(n);
  r.inner.resize(n);
  r.inner_read.resize(n);
  r.y.resize(n);
  float* space = own(s).scratch(n * static_cast<std::size_t>(inner)).data();
  for (std::int64_t i = 0; i < entries; ++i)
    if (const std::int32_t slot = slot_at(i); slot >= 0) {
      const auto at = static_cast<std::size_t>(r.next[static_cast<std::size_t>(slot)]++);
      r.x[at] = a.x.raw() + i / a.k * hidden;
      r.weight[at] = a.weight.raw() + i;
      r.inner[at] = space + static_cast<std::int64_t>(at) * inner;
      r.inner_read[at] = r.inner[at];
      r.y[at] = a.y.raw() + i * hidden;
    }

  const auto groups = static_cast<std::int64_t>(r.slot.size());
  const double rows_per_group = static_cast<double>(count) / static_cast<double>(groups);
  // Pieces are (group, stretch) pairs: stretches of inner channels, then of outputs. While one is computed, memory is
  // asked for the next: experts lie apart from each other.
  const std::int64_t stretches = (inner + cpu::inner_step - 1) / cpu::inner_step;
  const auto expert_of = [&](std::int64_t group) -> const cpu::panel_expert& {
    return set.experts[static_cast<std::size_t>(r.slot[static_cast<std::size_t>(group)])];
  };
  const auto ask_inner = [&](std::int64_t t) {
    cpu::ask_ahead(expert_of(t / stretches).w13.view(), t % stretches * cpu::inner_step * 2);
  };
  constexpr std::int64_t out_step = 128;
  const std::int64_t parts = (hidden + out_step - 1) / out_step;
  const auto ask_out = [&](std::int64_t t) { cpu::ask_ahead(expert_of(t / parts).w2.view(), t % parts * out_step); };
  split(groups * stretches, rows_per_group * 2 * cpu::inner_step * static_cast<double>(hidden) / products_per_ns,
        [&](std::int64_t b, std::int64_t e, int) {
          ask_inner(b);
          for (std::int64_t t = b; t < e; ++t) {
            t + 1 < e ? ask_inner(t + 1) : ask_out(b / stretches * parts);
            const auto g = static_cast<std::size_t>(t / stretches), first = static_cast<std::size_t>(r.first[g]);
            cpu::expert_inner_job job;
            job.expert = &expert_of(t / stretches);
            job.intermediate = inner;
            job.first = t % stretches * cpu::inner_step;
            job.last = std::min(job.first + cpu::inner_step, inner);
            job.rows = r.first[g + 1] - r.first[g];
            job.x = r.x.data() + first;
            job.weight = r.weight.data() + first;
            job.inner = r.inner.data() + first;
            job.limit = a.limit;
            job.round = a.round_inner;
            cpu::expert_inner(job);
          }
        });
  split(groups * parts, rows_per_group * out_step * static_cast<double>(inner) / products_per_ns,
        [&](std::int64_t b, std::int64_t e, int) {
          ask_out(b);
          for (std::int64_t t = b; t < e; ++t) {
            if (t + 1 < e)
              ask_out(t + 1);
            const auto g = static_cast<std::size_t>(t / parts), first = static_cast<std::size_t>(r.first[g]);
            const std::int64_t o = t % parts * out_step;
            cpu::product(expert_of(t / parts).w2.view(), o, std::min(o + out_step, hidden), r.first[g + 1] - r.first[g],
                         r.inner_read.data() + first, r.y.data() + first);
          }
        });
}

void cpu_ops::combine(stream&, const combine_args& a) {
  rows(a.rows, 0.1 * a.k * a.hidden, [&](int b, int e, int) { cpu::combine(a, b, e); });
}
void cpu_ops::copy_rows(stream&, const copy_rows_args& a) {
  rows(a.rows, 0.1 * static_cast<double>(a.cols), [&](int b, int e, int) { reference::copy_rows(a, b, e); });
}
void cpu_ops::copy_columns(stream&, const copy_columns_args& a) {
  rows(a.rows, 0.2 * static_cast<double>(a.cols), [&](int b, int e, int) { cpu::copy_columns(a, b, e); });
}

void cpu_ops::sample_rows(stream& s, const sample_rows_args& a) {
  cpu_stream& st = own(s);
  st.make_samplers(pool_.threads(), static_cast<std::size_t>(a.vocab));
  rows(a.rows, 3.0 * a.vocab, [&](int b, int e, int worker) { reference::sample_rows(a, b, e, st.sampler(worker)); });
}

} // namespace troupe
