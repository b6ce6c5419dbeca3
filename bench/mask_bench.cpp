#include "bench/mask_bench.hpp"
#include "devices/device.hpp"
#include "kernels/clones.hpp"
#include "kernels/ops.hpp"
#include <array>
#include <limits>
#include <random>

namespace troupe {

namespace {

using json = nlohmann::ordered_json;

constexpr std::size_t vocab = 129'280, words = vocab / 32; // the released vocabulary

TROUPE_CLONES("arch=x86-64-v4", "avx2", "default") void read_modify_write(float* row, const std::uint32_t* mask) {
  for (std::size_t w = 0; w < words; ++w)
    for (std::size_t j = 0; j < 32; ++j)
      row[32 * w + j] = (mask[w] >> j & 1u) != 0 ? row[32 * w + j] : -std::numeric_limits<float>::infinity();
}

struct pattern {
  const char* name;
  std::uint32_t (*word)(std::mt19937&);
};
constexpr std::array patterns{
    pattern{"half", [](std::mt19937& r) { return static_cast<std::uint32_t>(r()); }},
    pattern{"few", [](std::mt19937& r) { return r() % 64 == 0 ? static_cast<std::uint32_t>(r()) : 0u; }},
    pattern{"most", [](std::mt19937& r) { return r() % 64 == 0 ? static_cast<std::uint32_t>(r()) : ~0u; }}};

// A device with logits, masks and two rules a row: [0, rows) without a mask, [rows, 2 * rows) with one.
class masked_rows {
public:
  masked_rows(const engine_options& options, bool smoke)
      : device_(make_device(options.device, {threads_of(options), {}})), stream_(device_->make_stream()),
        host_(device_->name() == "cpu" || device_->name() == "reference"), rows_(rows_of(smoke, host_)) {
    logits_ = device_->allocate(rows_ * vocab * sizeof(float), "logits");
    copy_ = device_->allocate(logits_.bytes(), "a copy of logits");
    written_ = device_->allocate(logits_.bytes(), "masked logits");
    masks_ = device_->allocate(rows_ * words * sizeof(std::uint32_t), "masks");
    rules_ = device_->allocate(2 * rows_ * sizeof(sample_row_params), "rules");
    out_ = device_->allocate(3 * rows_ * sizeof(std::int32_t), "tokens");
    x_.resize(rows_ * vocab);
    for (float& v : x_)
      v = static_cast<float>(random_() % 65'536) / 4096;
    for (std::size_t r = 1; r <= rows_; ++r)
      x_[r * vocab - 1] = 17; // the largest comes last and is allowed: a greedy row is looked through whole either way
    send(logits_, x_);
  }

  void set(const pattern& p, float temperature) {
    std::vector<std::uint32_t> masks(rows_ * words);
    for (std::uint32_t& w : masks)
      w = p.word(random_);
    for (std::size_t r = 1; r <= rows_; ++r)
      masks[r * words - 1] |= 1u << 31;
    send(masks_, masks);
    send(copy_, x_);
    std::vector<float> masked = x_;
    for (std::size_t r = 0; r < rows_; ++r)
      read_modify_write(masked.data() + r * vocab, masks.data() + r * words);
    send(written_, masked);
    std::vector<sample_row_params> rules(2 * rows_);
    for (std::size_t i = 0; i < rules.size(); ++i) {
      rules[i].temperature = temperature;
      rules[i].logprob = 0;
      rules[i].seed = i % rows_;
      rules[i].mask = i < rows_ ? -1 : static_cast<std::int32_t>(i - rows_);
    }
    send(rules_, rules);
  }

  double unmasked_us() { return sample_us(logits_, 0); }
  double masked_us() { return sample_us(logits_, rows_); }
  double masked_before_us() { return sample_us(written_, 0); } // from rows that a pass has masked
  double rewrite_us() {
    return timed([&] {
      if (!host_)
        return stream_->copy(copy_.as<std::byte>(), logits_.as<const std::byte>(), logits_.bytes());
      for (std::size_t r = 0; r < rows_; ++r)
        read_modify_write(copy_.as<float>().raw() + r * vocab, masks_.as<const std::uint32_t>().raw() + r * words);
    });
  }

  std::size_t rows() const { return rows_; }
  bool host() const { return host_; }
  std::string device_name() const { return device_->name(); }

private:
  double sample_us(const buffer& logits, std::size_t first_rule) {
    sample_rows_args a;
    a.logits = logits.as<const float>();
    a.rows = static_cast<std::int32_t>(rows_);
    a.vocab = vocab;
    a.params = rules_.as<const sample_row_params>() + static_cast<std::int64_t>(first_rule);
    a.masks = masks_.as<const std::uint32_t>();
    a.token = out_.as<std::int32_t>();
    a.status = a.token + static_cast<std::int64_t>(rows_);
    a.logprob = (a.status + static_cast<std::int64_t>(rows_)).as<float>();
    return timed([&] { device_->ops().sample_rows(*stream_, a); });
  }
  static std::size_t rows_of(bool smoke, bool host) { return smoke ? 2 : host ? 64 : 512; }
  template <class T> void send(buffer& to, const std::vector<T>& values) {
    stream_->to_device(to.as<std::byte>(), values.data(), values.size() * sizeof(T));
    stream_->synchronise();
  }
  template <class F> double timed(F&& f) {
    const stopwatch watch;
    f();
    stream_->synchronise();
    return 1e6 * watch.seconds() / static_cast<double>(rows_);
  }

  std::unique_ptr<device> device_;
  std::unique_ptr<stream> stream_;
  bool host_;
  std::size_t rows_;
  std::mt19937 random_{1};
  std::vector<float> x_;
  buffer logits_, copy_, written_, masks_, rules_, out_;
};

} // namespace

void bench_masks(const bench_settings& settings) {
  masked_rows rows(settings.engine, settings.smoke);
  for (const pattern& p : patterns)
    for (const float temperature : {0.0f, 1.0f}) {
      rows.set(p, temperature);
      std::vector<double> with, without, before, difference, rewritten;
      for (int turn = settings.smoke ? 24 : -3; turn < 25; ++turn) {
        const double plain = rows.unmasked_us(), masked = rows.masked_us(), masked_before = rows.masked_before_us(),
                     rewrite = rows.rewrite_us();
        if (turn < 0)
          continue; // the first ones make scratch and load code
        without.push_back(plain);
        with.push_back(masked);
        before.push_back(masked_before);
        difference.push_back(masked - masked_before);
        rewritten.push_back(rewrite);
      }
      json line{{"bench", "masks"},
                {"masks", p.name},
                {"temperature", temperature},
                {"rows", rows.rows()},
                {"vocab", vocab},
                {"device", rows.device_name()},
                {"threads", threads_of(settings.engine)},
                {"unmasked_us_a_row", median(without)},
                {"masked_us_a_row", median(with)},
                {"masked_before_us_a_row", median(before)},
                {"mask_us_a_row", median(difference)}, // masked_us less masked_before_us
                {rows.host() ? "read_modify_write_us_a_row" : "copy_of_row_us_a_row", median(rewritten)}};
      line.update(machine_facts());
      if (settings.smoke)
        line["smoke"] = true;
      settings.emit(line);
    }
}

} // namespace troupe
