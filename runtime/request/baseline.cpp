#include "runtime/request/baseline.hpp"
#include "runtime/base/base64.hpp"
#include "runtime/base/sha256.hpp"
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

namespace troupe {

namespace {

using nlohmann::json;

constexpr double sample_tolerance = 1e-3, mean_tolerance = 1e-4; // nats a token

// ---- numbers as text

template <class T> std::string shown(T v) { // the shortest text that reads back as the same number
  std::array<char, 48> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), v).ptr};
}

std::string hex_float(double v) {
  std::array<char, 64> text{};
  const std::string digits(
      text.data(), std::to_chars(text.data(), text.data() + text.size(), std::abs(v), std::chars_format::hex).ptr);
  return (std::signbit(v) ? "-0x" : "0x") + digits;
}

std::optional<double> double_of_hex(std::string_view text) {
  const bool negative = text.starts_with('-');
  text.remove_prefix(negative ? 1 : 0);
  if (!text.starts_with("0x"))
    return std::nullopt;
  text.remove_prefix(2);
  double v = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), v, std::chars_format::hex);
  if (fault != std::errc() || end != text.data() + text.size() || !std::isfinite(v))
    return std::nullopt;
  return negative ? -v : v;
}

template <class T> std::vector<std::uint8_t> little_endian(std::span<const T> values) {
  static_assert(sizeof(T) == 4);
  std::vector<std::uint8_t> bytes;
  bytes.reserve(4 * values.size());
  for (const T v : values)
    for (int shift = 0; shift < 32; shift += 8)
      bytes.push_back(static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(v) >> shift & 255));
  return bytes;
}

std::vector<float> floats_of(std::span<const std::uint8_t> bytes) {
  std::vector<float> values(bytes.size() / 4);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::bit_cast<float>(bytes[4 * i] | std::uint32_t{bytes[4 * i + 1]} << 8 |
                                     std::uint32_t{bytes[4 * i + 2]} << 16 | std::uint32_t{bytes[4 * i + 3]} << 24);
  return values;
}

template <class T> std::string digest_of(std::span<const T> values) {
  sha256 sum;
  sum.update(little_endian(values));
  return to_hex(sum.finish());
}

double nll_of(std::span<const float> logprobs) {
  double sum = 0;
  for (const float lp : logprobs)
    sum -= static_cast<double>(lp);
  return sum;
}

// ---- reading a line

struct fault { // thrown inside this file only
  std::string what;
};

class line_object {
public:
  line_object(const json& object, std::string where, std::initializer_list<const char*> keys)
      : object_(object), where_(std::move(where)) {
    if (!object.is_object())
      throw fault{where_.empty() ? "the line is not a JSON object"
                                 : where_.substr(0, where_.size() - 1) + " is not an object"};
    for (const auto& [key, value] : object.items())
      if (std::none_of(keys.begin(), keys.end(), [&k = key](const char* known) { return k == known; }))
        throw fault{"unknown key " + json(where_ + key).dump()};
    for (const char* key : keys)
      if (!object.contains(key))
        throw fault{"key " + where_ + key + " is missing"};
  }

  std::string text(const char* key) const {
    if (!object_[key].is_string())
      throw fault{where_ + key + " is not a string"};
    return object_[key].get<std::string>();
  }
  std::string digest(const char* key) const {
    std::string value = text(key);
    if (value.size() != 64 || value.find_first_not_of("0123456789abcdef") != std::string::npos)
      throw fault{where_ + key + " is not a SHA-256 digest in 64 hexadecimal digits"};
    return value;
  }
  std::int32_t count(const char* key) const {
    const json& v = object_[key];
    if (!v.is_number_unsigned() || v.get<std::uint64_t>() > 0x7FFFFFFF)
      throw fault{where_ + key + " is not a count"};
    return v.get<std::int32_t>();
  }
  const json& member(const char* key) const { return object_[key]; }

private:
  const json& object_;
  std::string where_; // with a dot at its end, or empty
};

json parse_without_repeated_keys(std::string_view line) {
  std::vector<std::set<std::string>> keys; // of the open objects
  const auto look = [&keys](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start)
      keys.emplace_back();
    else if (event == json::parse_event_t::object_end)
      keys.pop_back();
    else if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
      throw fault{"key " + value.dump() + " occurs twice"};
    return true;
  };
  try {
    return json::parse(line, look);
  } catch (const json::exception& e) {
    const std::string why = e.what(); // "[json.exception...] parse error at ...": keep what follows the tag
    const std::size_t tag = why.find("] ");
    throw fault{"the line is not JSON: " + why.substr(tag == std::string::npos ? 0 : tag + 2)};
  }
}

baseline_fingerprint fingerprint_of(const json& v) {
  const line_object in(v, "fingerprint.", {"checkpoint", "numerics", "roundings", "yoco", "yoco_keep"});
  return {in.digest("checkpoint"), in.text("numerics"), in.text("roundings"), in.text("yoco"), in.count("yoco_keep")};
}

baseline_sample sample_of(const json& v) {
  const line_object in(
      v, "", {"id", "mode", "n_prompt", "n_target", "tokens_sha256", "nll_f64", "lp_sha256", "lp_f32", "fingerprint"});
  baseline_sample s;
  s.id = in.text("id");
  const auto mode = baseline_mode_of(in.text("mode"));
  if (!mode)
    throw fault{"mode is neither prefill nor decode"};
  s.mode = *mode;
  s.n_prompt = in.count("n_prompt");
  s.n_target = in.count("n_target");
  if (s.n_prompt < 1 || (s.mode == baseline_mode::prefill && s.n_target != s.n_prompt - 1))
    throw fault{"n_prompt = " + std::to_string(s.n_prompt) + " and n_target = " + std::to_string(s.n_target) +
                " do not fit together"};
  s.tokens_sha256 = in.digest("tokens_sha256");
  const auto nll = double_of_hex(in.text("nll_f64"));
  if (!nll)
    throw fault{"nll_f64 is not a hexadecimal number"};
  s.nll = *nll;
  s.lp_sha256 = in.digest("lp_sha256");
  const auto bytes = bytes_of_base64(in.text("lp_f32"));
  if (!bytes || bytes->size() != 4 * static_cast<std::size_t>(s.n_target))
    throw fault{"lp_f32 is not the base64 text of n_target = " + std::to_string(s.n_target) + " numbers of 4 bytes"};
  s.logprobs = floats_of(*bytes);
  s.fingerprint = fingerprint_of(in.member("fingerprint"));
  return s;
}

// ---- comparing

// Distance on the line of all binary32 numbers, -0 and +0 at one place.
std::int64_t ulps_between(float a, float b) {
  const auto place = [](float v) {
    const auto bits = static_cast<std::int64_t>(std::bit_cast<std::uint32_t>(v));
    return bits < 0x80000000 ? bits : 0x80000000 - bits;
  };
  return std::abs(place(a) - place(b));
}

// What is wrong with a line by itself; empty if its parts agree.
std::string damage(const baseline_sample& s) {
  if (digest_of(std::span(s.logprobs)) != s.lp_sha256)
    return "its lp_sha256 is not the digest of its lp_f32";
  if (std::bit_cast<std::uint64_t>(nll_of(s.logprobs)) != std::bit_cast<std::uint64_t>(s.nll))
    return "its nll_f64 is not the sum of its lp_f32";
  return {};
}

std::string first_difference(const baseline_sample& stored, const baseline_sample& found) {
  std::int64_t different = 0, first = -1;
  for (std::size_t i = 0; i < stored.logprobs.size(); ++i)
    if (std::bit_cast<std::uint32_t>(stored.logprobs[i]) != std::bit_cast<std::uint32_t>(found.logprobs[i])) {
      first = different++ == 0 ? static_cast<std::int64_t>(i) : first;
    }
  if (different == 0)
    return {};
  const float a = stored.logprobs[static_cast<std::size_t>(first)], b = found.logprobs[static_cast<std::size_t>(first)];
  const std::int64_t token = (stored.mode == baseline_mode::prefill ? 1 : stored.n_prompt) + first;
  return std::to_string(different) + " of " + std::to_string(stored.n_target) +
         " log-probabilities differ, the first is number " + std::to_string(first) + " (token " +
         std::to_string(token) + "): " + shown(a) + " stored, " + shown(b) + " now, " +
         std::to_string(ulps_between(a, b)) + " ulp apart";
}

struct totals {
  std::int64_t samples = 0, targets = 0;
  double stored = 0, found = 0; // nats

  void add(const baseline_sample& s, const baseline_sample& f) {
    ++samples;
    targets += s.n_target;
    stored += s.nll;
    found += f.nll;
  }
  double per_token(double nats) const { return targets > 0 ? nats / static_cast<double>(targets) : 0; }
};

// Why two samples of one id cannot be compared at all; empty if they can.
std::string mismatch(const baseline_sample& s, const baseline_sample& f) {
  if (s.mode != f.mode)
    return "the baseline was made by " + std::string(name_of(s.mode)) + ", this run by " + std::string(name_of(f.mode));
  if (s.tokens_sha256 != f.tokens_sha256 || s.n_prompt != f.n_prompt || s.n_target != f.n_target)
    return "its tokens are not those of the baseline (" + std::to_string(s.n_prompt) + " + " +
           std::to_string(s.mode == baseline_mode::decode ? s.n_target : 0) + " there, " + std::to_string(f.n_prompt) +
           " + " + std::to_string(f.mode == baseline_mode::decode ? f.n_target : 0) + " now)";
  return {};
}

std::string exact_failure(const baseline_sample& s, const baseline_sample& f) {
  const std::string difference = first_difference(s, f), broken = damage(s);
  if (broken.empty())
    return difference;
  return "the stored line is damaged: " + broken + (difference.empty() ? "" : "; " + difference);
}

std::string tolerance_failure(const baseline_sample& s, const baseline_sample& f) {
  const std::string broken = damage(s);
  if (!broken.empty())
    return "the stored line is damaged: " + broken;
  const double per_token = std::abs(f.nll - s.nll) / std::max(s.n_target, 1);
  if (per_token <= sample_tolerance)
    return {};
  return "differs by " + shown(per_token) + " nats a token, more than " + shown(sample_tolerance) + " (" +
         difference(s.fingerprint, f.fingerprint) + ")";
}

} // namespace

std::string_view name_of(baseline_mode mode) {
  return mode == baseline_mode::prefill ? "prefill" : "decode";
}

std::optional<baseline_mode> baseline_mode_of(std::string_view name) {
  for (const baseline_mode mode : {baseline_mode::prefill, baseline_mode::decode})
    if (name == name_of(mode))
      return mode;
  return std::nullopt;
}

std::string difference(const baseline_fingerprint& stored, const baseline_fingerprint& found) {
  std::string text;
  const auto compare = [&text](const char* name, const std::string& a, const std::string& b) {
    if (a != b)
      text += (text.empty() ? "" : ", ") + std::string(name) + " " + a + " -> " + b;
  };
  compare("checkpoint", stored.checkpoint.substr(0, 12), found.checkpoint.substr(0, 12));
  compare("numerics", stored.numerics, found.numerics);
  compare("roundings", stored.roundings, found.roundings);
  compare("yoco", stored.yoco, found.yoco);
  compare("yoco_keep", std::to_string(stored.yoco_keep), std::to_string(found.yoco_keep));
  return text;
}

baseline_sample make_baseline_sample(std::string id, baseline_mode mode, std::int32_t n_prompt,
                                     std::span<const std::int32_t> tokens, std::vector<float> logprobs,
                                     baseline_fingerprint fingerprint) {
  baseline_sample s;
  s.id = std::move(id);
  s.mode = mode;
  s.n_prompt = n_prompt;
  s.n_target = static_cast<std::int32_t>(logprobs.size());
  s.tokens_sha256 = digest_of(tokens);
  s.nll = nll_of(logprobs);
  s.lp_sha256 = digest_of(std::span<const float>(logprobs));
  s.logprobs = std::move(logprobs);
  s.fingerprint = std::move(fingerprint);
  return s;
}

std::string baseline_line(const baseline_sample& s) {
  nlohmann::ordered_json line{{"id", s.id},
                              {"mode", std::string(name_of(s.mode))},
                              {"n_prompt", s.n_prompt},
                              {"n_target", s.n_target},
                              {"tokens_sha256", s.tokens_sha256},
                              {"nll_f64", hex_float(s.nll)},
                              {"lp_sha256", s.lp_sha256},
                              {"lp_f32", base64_of(little_endian(std::span(s.logprobs)))},
                              {"fingerprint",
                               {{"checkpoint", s.fingerprint.checkpoint},
                                {"numerics", s.fingerprint.numerics},
                                {"roundings", s.fingerprint.roundings},
                                {"yoco", s.fingerprint.yoco},
                                {"yoco_keep", s.fingerprint.yoco_keep}}}};
  return line.dump();
}

result<baseline_sample> parse_baseline_line(std::string_view line) {
  try {
    return sample_of(parse_without_repeated_keys(line));
  } catch (const fault& f) {
    return error{"invalid_baseline", f.what};
  }
}

baseline_report compare_baselines(std::span<const baseline_sample> stored, std::span<const baseline_sample> found) {
  baseline_report report;
  const auto fail = [&report](const std::string& id, const std::string& why) {
    report.failures.push_back("sample " + json(id).dump() + ": " + why);
  };
  totals exact, tolerant;
  std::string changed;
  auto f = found.begin();
  for (const baseline_sample& s : stored) {
    for (; f != found.end() && f->id < s.id; ++f)
      fail(f->id, "not in the baseline");
    if (f == found.end() || f->id != s.id) {
      fail(s.id, "in the baseline, but the run has none of this id");
      continue;
    }
    if (const std::string why = mismatch(s, *f); !why.empty()) {
      fail(s.id, why);
    } else {
      const bool same = s.fingerprint == f->fingerprint;
      if (!same && changed.empty())
        changed = difference(s.fingerprint, f->fingerprint);
      (same ? exact : tolerant).add(s, *f);
      if (const std::string differs = same ? exact_failure(s, *f) : tolerance_failure(s, *f); !differs.empty())
        fail(s.id, differs);
    }
    ++f;
  }
  for (; f != found.end(); ++f)
    fail(f->id, "not in the baseline");

  const double drift = std::abs(tolerant.per_token(tolerant.found - tolerant.stored));
  if (drift > mean_tolerance)
    report.failures.push_back("all samples together differ by " + shown(drift) + " nats a token, more than " +
                              shown(mean_tolerance) + " (" + changed + ")");
  totals all = exact;
  all.samples += tolerant.samples;
  all.targets += tolerant.targets;
  all.found += tolerant.found;
  report.summary = std::to_string(all.samples) + " samples, " + std::to_string(all.targets) +
                   " log-probabilities, mean " + shown(all.per_token(all.found)) + " nats: ";
  if (tolerant.samples > 0)
    report.summary += "tolerance mode for " + std::to_string(tolerant.samples) + " (" + changed + "), together " +
                      shown(drift) + " nats a token apart, ";
  report.summary += report.failures.empty() ? (tolerant.samples > 0 ? "within tolerance" : "equal bit for bit")
                                            : std::to_string(report.failures.size()) + " failures";
  return report;
}

} // namespace troupe
