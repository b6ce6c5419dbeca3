#include "runtime/metrics/exposition.hpp"
#include <charconv>
#include <cmath>

namespace troupe {

namespace {

std::string number(double v) { // shortest text that reads back as the same number
  if (std::isnan(v))
    return "NaN";
  if (std::isinf(v))
    return v > 0 ? "+Inf" : "-Inf";
  std::array<char, 40> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), v).ptr};
}

// Bounds are compared as text by whoever reads them: always with a decimal point, as other exporters write them.
std::string bound(double v) {
  std::string text = number(v);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

void append_escaped(std::string& out, std::string_view text, bool quotes) {
  for (const char c : text)
    if (c == '\\')
      out += "\\\\";
    else if (c == '\n')
      out += "\\n";
    else if (c == '"' && quotes)
      out += "\\\"";
    else
      out += c;
}

const char* name_of(exposition::type type) {
  switch (type) {
  case exposition::type::counter:
    return "counter";
  case exposition::type::gauge:
    return "gauge";
  case exposition::type::histogram:
    break;
  }
  return "histogram";
}

} // namespace

void exposition::family(std::string_view name, type of, std::string_view help) {
  family_ = name;
  text_ += "# HELP " + family_ + " ";
  append_escaped(text_, help, false);
  text_ += "\n# TYPE " + family_ + " " + name_of(of) + "\n";
}

void exposition::sample(const metric_labels& labels, std::uint64_t value) {
  line("", labels, "", std::to_string(value));
}

void exposition::sample(const metric_labels& labels, double value) {
  line("", labels, "", number(value));
}

void exposition::buckets(const metric_labels& labels, std::span<const double> bounds,
                         std::span<const std::uint64_t> counts, double sum) {
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    below += counts[i];
    line("_bucket", labels, i < bounds.size() ? bound(bounds[i]) : "+Inf", std::to_string(below));
  }
  line("_sum", labels, "", number(sum));
  line("_count", labels, "", std::to_string(below));
}

void exposition::line(std::string_view suffix, const metric_labels& labels, std::string_view le,
                      std::string_view value) {
  text_ += family_;
  text_ += suffix;
  char before = '{';
  const auto add = [&](std::string_view name, std::string_view content) {
    text_ += std::exchange(before, ',');
    text_ += name;
    text_ += "=\"";
    append_escaped(text_, content, true);
    text_ += '"';
  };
  for (const auto& [name, content] : labels)
    add(name, content);
  if (!le.empty())
    add("le", le);
  if (before == ',')
    text_ += '}';
  text_ += ' ';
  text_ += value;
  text_ += '\n';
}

} // namespace troupe
