// roofline: share of the time that the measured peaks of this machine (fused multiply-adds, reading of weights) would
// need at least. Weights are cycled through copies worth 24 MB, as a token's pass over the model does.
#include "bench/kernels_bench.hpp"
#include "devices/cpu/thread_pool.hpp"
#include "devices/device.hpp"
#include "kernels/cpu/instruction_set.hpp"
#include "kernels/cpu/probe.hpp"
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

namespace troupe {

namespace {

struct peaks {
  double mac_per_ns = 0, byte_per_ns = 0;
};

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
std::size_t size(std::int64_t n) {
  return static_cast<std::size_t>(n);
}
template <class T> dev_ptr<T> at(std::vector<T>& v) {
  return dev_ptr<T>(v.data());
}
template <class T> dev_ptr<const T> read(const std::vector<T>& v) {
  return dev_ptr<const T>(v.data());
}

std::vector<float> some_values(std::int64_t n) {
  std::uint32_t seed = 1;
  std::vector<float> v(size(n));
  for (float& x : v) {
    seed = seed * 1664525u + 1013904223u;
    x = static_cast<float>(static_cast<std::int32_t>(seed) >> 8) * 0x1p-23f;
  }
  return v;
}

std::string cpu_model() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.rfind("model name", 0) == 0)
      return line.substr(line.find(':') + 2);
  return "unknown";
}

// A weight of plausible codes with its source bytes.
struct made_weight {
  std::vector<std::byte> data, scale;
  weight_source source;
  double bytes() const { return static_cast<double>(data.size() + scale.size()); }
};
made_weight make_weight(weight_format f, std::int64_t rows, std::int64_t cols) {
  made_weight w;
  std::uint32_t seed = 1;
  const std::int64_t n = rows * cols;
  std::int64_t bytes = n, scales = 0;
  switch (f) {
  case weight_format::f32:
    bytes = 4 * n;
    break;
  case weight_format::bf16:
    bytes = 2 * n;
    break;
  case weight_format::fp8_block:
    scales = (rows + 31) / 32 * ((cols + 31) / 32);
    break;
  case weight_format::fp8_row:
    scales = n / 32;
    break;
  case weight_format::mxfp4:
    bytes = n / 2;
    scales = n / 32;
    break;
  }
  const int width = f == weight_format::f32 ? 4 : f == weight_format::bf16 ? 2 : 1;
  for (std::int64_t i = 0; i < bytes; ++i) {
    seed = seed * 1664525u + 1013904223u;
    std::uint32_t b = seed >> 24;
    if (width > 1)
      b = (i + 1) % width == 0 ? 0x3e | (b & 0x81) : b; // magnitudes around 1
    else if (f != weight_format::mxfp4)
      b = (b & 0x7f) == 0x7f ? b - 1 : b;
    w.data.push_back(static_cast<std::byte>(b));
  }
  w.scale.assign(size(scales), std::byte{118});
  w.source.format = f;
  w.source.rows = rows;
  w.source.cols = cols;
  w.source.data = w.data;
  w.source.scale = w.scale;
  return w;
}

// One sequence whose rows begin at position 1000.
struct one_step {
  std::vector<std::int32_t> position, sequence, low, first{0}, count, start{1000}, slot{0}, table, visible;
  row_map map;
  explicit one_step(int rows) {
    for (int i = 0; i < rows; ++i) {
      position.push_back(1000 + i);
      sequence.push_back(0);
      low.push_back(1000 + i - 127);
      visible.push_back((1000 + i + 1) / 2);
    }
    count.push_back(rows);
    for (int i = 0; i < 16; ++i)
      table.push_back(i);
    map.rows = rows;
    map.sequences = 1;
    map.position = map.window_hi = read(position);
    map.sequence = read(sequence);
    map.window_lo = read(low);
    map.first_row = read(first);
    map.row_count = read(count);
    map.start = read(start);
    map.slot = read(slot);
    map.block_table = read(table);
    map.block_stride = 16;
  }
};

template <class... T> std::string formatted(const char* format, T... values) {
  char text[512];
  return {text, static_cast<std::size_t>(std::clamp(std::snprintf(text, sizeof text, format, values...), 0,
                                                    static_cast<int>(sizeof text) - 1))};
}

class bench {
public:
  bench(const std::string& name, int threads, std::string filter, const std::function<void(const std::string&)>& emit)
      : device_(make_device(name, {threads, {}})), stream_(device_->make_stream()), threads_(threads),
        filter_(std::move(filter)), model_(cpu_model()), emit_(emit) {
    measure_peaks();
  }

  void run_all() {
    for (const int rows : {1, 2, 4, 16, 256}) {
      linear("wq_a", weight_format::fp8_block, 192, 384, rows);
      linear("wq_b", weight_format::fp8_block, 1024, 192, rows);
      linear("wkv", weight_format::fp8_block, 128, 384, rows);
      linear("wo_a", weight_format::fp8_block, 256, 512, rows, 2);
      linear("wo_b", weight_format::fp8_block, 384, 256, rows);
      linear("engram.wkv", weight_format::fp8_block, 1920, 384, rows);
      linear("gate", weight_format::bf16, 24, 384, rows);
      linear("compressor", weight_format::bf16, 256, 384, rows);
      linear("head", weight_format::bf16, 8192, 384, rows);
      linear("mxfp4", weight_format::mxfp4, 1024, 512, rows);
      linear("f32", weight_format::f32, 512, 512, rows);
      trunk(rows);
      experts(rows);
      attention(rows);
      index(rows);
      small(rows);
    }
  }

private:
  bool wanted(const std::string& op) const { return filter_.empty() || op.find(filter_) != std::string::npos; }

  // Best of many runs: other work on the machine only ever adds time.
  template <class F> void measure(const std::string& op, const std::string& shape, double macs, double bytes, F&& f) {
    if (!wanted(op))
      return;
    for (int i = 0; i < 3; ++i)
      f();
    double best = 1e30;
    const double stop = now_us() + 60000;
    for (int n = 0; n < 5 || (now_us() < stop && n < 2000); ++n) {
      const double t = now_us();
      f();
      best = std::min(best, now_us() - t);
    }
    const double floor_us = std::max(macs / peak_.mac_per_ns, bytes / peak_.byte_per_ns) / 1000;
    emit_(
        formatted("{\"op\":\"%s\",\"shape\":\"%s\",\"us\":%.2f,\"gmac_s\":%.1f,\"weights_gb_s\":%.1f,\"roofline\":%.2f,"
                  "\"device\":\"%s\",\"threads\":%d,\"isa\":\"%s\",\"cpu\":\"%s\"}",
                  op.c_str(), shape.c_str(), best, macs / best / 1000, bytes / best / 1000, floor_us / best,
                  device_->name().c_str(), threads_, cpu::instruction_set().c_str(), model_.c_str()));
  }

  void measure_peaks() {
    thread_pool pool(threads_);
    std::vector<float> sink(size(64 * threads_));
    std::vector<double> done(size(threads_));
    const std::size_t part = std::size_t{4} << 20;
    std::vector<std::byte> memory(part * size(threads_) + 64);
    for (int n = 0; n < 20; ++n) {
      double t = now_us(), sum = 0;
      pool.run(threads_,
               [&](int c, int) { done[size(c)] = static_cast<double>(cpu::probe_fma(200000, &sink[size(c) * 64])); });
      const double fma_us = now_us() - t;
      for (const double d : done)
        sum += d;
      peak_.mac_per_ns = std::max(peak_.mac_per_ns, sum / fma_us / 1000);
      t = now_us();
      pool.run(threads_, [&](int c, int) {
        std::uint32_t x = 0;
        cpu::probe_read(memory.data() + part * size(c), part, &x);
        sink[size(c) * 64] += static_cast<float>(x);
      });
      peak_.byte_per_ns = std::max(peak_.byte_per_ns, static_cast<double>(part) * threads_ / (now_us() - t) / 1000);
    }
    emit_(formatted(
        "{\"op\":\"peaks\",\"threads\":%d,\"fma_gmac_s\":%.1f,\"read_gb_s\":%.1f,\"isa\":\"%s\",\"cpu\":\"%s\"}",
        threads_, peak_.mac_per_ns, peak_.byte_per_ns, cpu::instruction_set().c_str(), model_.c_str()));
  }

  static std::size_t copies(double bytes) { return static_cast<std::size_t>(std::clamp(24e6 / bytes, 1.0, 400.0)); }

  void linear(const std::string& which, weight_format f, std::int64_t outputs, std::int64_t cols, int rows,
              int groups = 1) {
    const std::string op = "linear " + which;
    if (!wanted(op))
      return;
    const made_weight w = make_weight(f, outputs, cols);
    std::vector<std::shared_ptr<const weight>> packed;
    for (std::size_t i = 0; i < copies(w.bytes()); ++i)
      packed.push_back(device_->pack(w.source));
    const std::vector<float> x = some_values(rows * cols * groups);
    std::vector<float> out(size(rows * outputs));
    linear_args a;
    a.x = read(x);
    a.rows = rows;
    a.groups = groups;
    a.out = at(out);
    std::size_t n = 0;
    measure(op, std::to_string(rows) + "x" + std::to_string(cols) + "x" + std::to_string(outputs),
            static_cast<double>(rows * cols * outputs), w.bytes(), [&] {
              a.w = packed[n++ % packed.size()].get();
              device_->ops().linear(*stream_, a);
            });
  }

  void trunk(int rows) {
    const std::string shape = std::to_string(rows) + "x4x384";
    const made_weight w = make_weight(weight_format::f32, 24, 1536);
    const auto fn = device_->pack(w.source);
    const std::vector<float> start = some_values(rows * 1536), scale = some_values(3), base = some_values(24);
    std::vector<float> streams = start, pre(size(rows * 4)), post(pre), comb(size(rows * 16)), x(size(rows * 384));
    hc_mixes_args a;
    a.trunk = read(start);
    a.fn = fn.get();
    a.scale = read(scale);
    a.base = read(base);
    a.rows = rows;
    a.streams = 4;
    a.hidden = 384;
    a.sinkhorn_iters = 20;
    a.hc_eps = 1e-6f;
    a.norm_eps = 1e-20f;
    a.pre = at(pre);
    a.post = at(post);
    a.comb = at(comb);
    measure("hc_mixes", shape, rows * 24.0 * 1536, w.bytes(), [&] { device_->ops().hc_mixes(*stream_, a); });
    hc_collapse_args c;
    c.trunk = a.trunk;
    c.pre = read(pre);
    c.rows = rows;
    c.streams = 4;
    c.hidden = 384;
    c.out = at(x);
    measure("hc_collapse", shape, rows * 1536.0, 0, [&] { device_->ops().hc_collapse(*stream_, c); });
    hc_expand_args e;
    e.y = read(x);
    e.post = read(post);
    e.comb = read(comb);
    e.rows = rows;
    e.streams = 4;
    e.hidden = 384;
    e.trunk = at(streams);
    measure("hc_expand", shape, rows * 384.0 * 20, 0, [&] {
      std::copy(start.begin(), start.end(), streams.begin());
      device_->ops().hc_expand(*stream_, e);
    });
    const std::vector<float> kv = some_values(rows * 5 * 384), qk = some_values(4 * 384);
    engram_gate_args g;
    g.trunk = at(streams);
    g.kv = read(kv);
    g.qk_weight = read(qk);
    g.rows = rows;
    g.streams = 4;
    g.hidden = 384;
    g.eps = 1e-20f;
    measure("engram_gate", shape, rows * 384.0 * 16, 0, [&] {
      std::copy(start.begin(), start.end(), streams.begin());
      device_->ops().engram_gate(*stream_, g);
    });
  }

  void experts(int rows) {
    if (!wanted("experts"))
      return;
    const int hidden = 384, inner = 128, count = 24, k = 4;
    const made_weight w1 = make_weight(weight_format::mxfp4, inner, hidden);
    const made_weight w2 = make_weight(weight_format::mxfp4, hidden, inner);
    const std::vector<expert_source> sources(count, expert_source{w1.source, w1.source, w2.source});
    const double expert_bytes = 3 * w1.bytes();
    std::vector<std::shared_ptr<const expert_set>> sets;
    for (std::size_t i = 0; i < copies(expert_bytes * count); ++i)
      sets.push_back(device_->pack_experts(sources));
    std::vector<std::int32_t> slot_of, expert;
    for (int e = 0; e < count; ++e)
      slot_of.push_back(e);
    for (int i = 0; i < rows * k; ++i)
      expert.push_back((i / k * 7 + i % k * 5) % count);
    const std::vector<float> x = some_values(rows * hidden), weight(expert.size(), 0.4f);
    std::vector<float> y(size(rows * k * hidden));
    experts_args a;
    a.slot_of = read(slot_of);
    a.x = read(x);
    a.expert = read(expert);
    a.weight = read(weight);
    a.rows = rows;
    a.k = k;
    a.limit = 10;
    a.round_inner = true;
    a.y = at(y);
    std::size_t n = 0;
    measure("experts", std::to_string(rows) + "x4 of 24, 384-128", rows * k * 3.0 * hidden * inner,
            expert_bytes * std::min(count, rows * k), [&] {
              a.set = sets[n++ % sets.size()].get();
              device_->ops().experts(*stream_, a);
            });
  }

  void attention(int rows) {
    const int heads = 8, dim = 128, topk = 64;
    const one_step s(rows);
    std::vector<std::byte> ring(140 * 132, std::byte{0x31}), own(size(rows) * 132, std::byte{0x32});
    std::vector<std::byte> blocks(16 * 64 * 72, std::byte{0x33});
    for (auto* records : {&ring, &own})
      for (std::size_t i = 0; i < records->size(); ++i)
        if (i % 132 >= 128)
          (*records)[i] = std::byte{120};
    attention_args a;
    a.map = s.map;
    a.heads = heads;
    a.dim = dim;
    a.scale = 0.088f;
    a.ring = {at(ring), 0, 140, dim, kv_format::fp8_ue8m0_32};
    a.own = read(own);
    a.blocks = {at(blocks), 64 * 72, 64, dim, kv_format::fp4_e4m3_16};
    std::vector<std::int32_t> selected;
    for (int i = 0; i < rows * topk; ++i)
      selected.push_back(i % topk * 7);
    const std::vector<float> q = some_values(rows * heads * dim), sink = some_values(8), x = some_values(rows * dim);
    std::vector<float> out(q.size());
    a.q = read(q);
    a.selected = read(selected);
    a.topk = topk;
    a.sink = read(sink);
    a.out = at(out);
    measure("attention", std::to_string(rows) + " rows, 8x128, 128+64 keys", rows * 2.0 * heads * dim * 192, 0,
            [&] { device_->ops().attention(*stream_, a); });
    encode_args e;
    e.x = read(x);
    e.rows = rows;
    e.dim = dim;
    e.format = kv_format::fp8_ue8m0_32;
    e.records = at(own);
    measure("encode fp8", std::to_string(rows) + "x128", 0, 0, [&] { device_->ops().encode(*stream_, e); });
    e.format = kv_format::fp4_e4m3_16;
    measure("encode fp4", std::to_string(rows) + "x128", 0, 0, [&] { device_->ops().encode(*stream_, e); });
  }

  void index(int rows) {
    const int heads = 8, dim = 128;
    const one_step s(rows);
    std::vector<std::byte> keys(16 * 64 * 68);
    for (std::size_t i = 0; i < keys.size(); ++i)
      keys[i] = static_cast<std::byte>(i % 68 < 64 ? i * 37 + i / 68 * 11 : 124 + i / 68 % 5);
    index_scores_args a;
    a.map = s.map;
    a.count = rows;
    a.heads = heads;
    a.dim = dim;
    a.keys = {at(keys), 64 * 68, 64, dim, kv_format::fp4_ue8m0_32};
    const std::vector<float> q = some_values(rows * heads * dim), weight = some_values(rows * heads);
    std::vector<float> scores(size(rows) * 1024);
    a.q = read(q);
    a.a = read(weight);
    a.visible = read(s.visible);
    a.scores = at(scores);
    a.stride = 1024;
    measure("index_scores", std::to_string(rows) + " rows, 8x128, 500 keys", rows * 500.0 * heads * dim, 0,
            [&] { device_->ops().index_scores(*stream_, a); });
    std::vector<std::int32_t> chosen(size(rows) * 64);
    select_args e;
    e.count = rows;
    e.scores = read(scores);
    e.stride = a.stride;
    e.visible = a.visible;
    e.topk = 64;
    e.selected = at(chosen);
    measure("select", std::to_string(rows) + " rows, 64 of 500", 0, 0, [&] { device_->ops().select(*stream_, e); });
    candidate_args c;
    c.count = rows;
    c.scores = e.scores;
    c.stride = a.stride;
    c.visible = a.visible;
    c.limit = 32;
    c.candidates = at(chosen);
    measure("candidates", std::to_string(rows) + " rows, 32 of 63", 0, 0,
            [&] { device_->ops().candidates(*stream_, c); });
  }

  void small(int rows) {
    const std::string shape = std::to_string(rows) + "x384";
    const std::vector<float> x = some_values(rows * 1024), w = some_values(1024), table = some_values(64 * 8);
    const std::vector<float> y = some_values(rows * 4 * 384);
    std::vector<float> out(x.size()), weight(size(rows * 4));
    const std::vector<std::int32_t> position(size(rows), 7);
    std::vector<std::int32_t> expert(weight.size());
    op_table& ops = device_->ops();
    rms_norm_args n{read(x), read(w), rows, 384, 1e-20f, at(out)};
    measure("rms_norm", shape, 0, 0, [&] { ops.rms_norm(*stream_, n); });
    round_args r{read(x), rows, 384, kv_format::fp8_ue8m0_32, at(out)};
    measure("round fp8", shape, 0, 0, [&] { ops.round(*stream_, r); });
    r.cols = 1024;
    r.format = kv_format::fp4_ue8m0_32;
    measure("round fp4", std::to_string(rows) + "x1024", 0, 0, [&] { ops.round(*stream_, r); });
    swiglu_args g{read(x), read(x), rows, 128, 10, at(out)};
    measure("swiglu", std::to_string(rows) + "x128", 0, 0, [&] { ops.swiglu(*stream_, g); });
    rope_args p{at(out), rows, 8, 128, 64, read(position), read(table), false};
    measure("rope", std::to_string(rows) + "x8x128", 0, 0, [&] { ops.rope(*stream_, p); });
    route_args e{read(x), read(w), rows, 24, 4, 1.5f, at(expert), at(weight), {}, {}};
    measure("route", std::to_string(rows) + " rows, 4 of 24", 0, 0, [&] { ops.route(*stream_, e); });
    combine_args c{read(x), read(y), rows, 4, 384, true, at(out)};
    measure("combine", std::to_string(rows) + "x4x384", 0, 0, [&] { ops.combine(*stream_, c); });
  }

  std::unique_ptr<device> device_;
  std::unique_ptr<stream> stream_;
  int threads_;
  std::string filter_, model_;
  const std::function<void(const std::string&)>& emit_;
  peaks peak_;
};

} // namespace

void bench_kernels(const std::string& device, int threads, const std::string& filter,
                   const std::function<void(const std::string&)>& emit) {
  bench(device, threads, filter, emit).run_all();
}

} // namespace troupe
