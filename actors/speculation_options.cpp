#include "actors/speculation_options.hpp"
#include "runtime/speculation/confidences.hpp"
#include "runtime/speculation/cost_file.hpp"
#include <algorithm>
#include <charconv>

namespace troupe {

namespace {

constexpr double lowest_temperature = 1e-5, highest_temperature = 1e5;

int checked_nextn(const engine_options& o, int block) {
  const int most = std::min(block, most_drafts);
  if (!o.nextn)
    return most;
  const std::string given = std::to_string(*o.nextn);
  if (*o.nextn > 0 && block == 0)
    throw config_error("", "nextn", given, "the checkpoint has no drafter", "use 0, or leave the option out");
  if (*o.nextn < 0 || *o.nextn > most)
    throw config_error("", "nextn", given,
                       "the drafter was trained for blocks of " + std::to_string(block) +
                           " tokens (dspark_block_size); more of them are hardly ever right",
                       "give a number from 0 to " + std::to_string(most));
  return *o.nextn;
}

[[noreturn]] void refuse_without_drafts(const char* key, const std::string& value) {
  throw config_error("", key, value, "this has no effect without speculation, and the engine drafts 0 tokens",
                     "leave the option out, or give nextn");
}

// The file keeps what decode steps take, measured before the engine serves anybody, for plans of verification lengths.
void check_curve(const engine_options& o, const speculation_options& s, bool expert_group) {
  const auto refuse = [&](const std::string& why, const char* remedy) {
    throw config_error("", "spec_curve", o.spec_curve, why, remedy);
  };
  if (o.spec_curve.empty())
    return;
  if (s.nextn == 0)
    refuse_without_drafts("spec_curve", o.spec_curve);
  if (!s.varlen)
    refuse("this has no effect without varlen, which verifies every draft whatever it costs", "leave one of them out");
  if (o.ep > 1 || o.cp > 1 || expert_group)
    refuse(std::string("this has no effect with ") +
               (o.cp > 1   ? "cp = " + std::to_string(o.cp)
                : o.ep > 1 ? "ep = " + std::to_string(o.ep)
                           : "expert_parallel") +
               ": steps of several ranks are not timed at the start, their curve comes from the first steps",
           "leave it out");
  if (const status usable = check_curve_file(o.spec_curve); !usable)
    refuse(usable.failure().message, "name a file that is not there yet, or one that an engine has written");
}

} // namespace

std::vector<double> confidence_temperatures(const std::string& text, int nextn) {
  const auto refuse = [&](const std::string& why) {
    throw config_error("", "confidence_temperature", text, why,
                       "give one number, or " + std::to_string(nextn) + " separated by commas, from 1e-5 to 1e5");
  };
  std::vector<double> values;
  const char *at = text.data(), *const end = at + text.size();
  for (bool more = true; more; ++at) {
    double v = 0;
    const auto [rest, fault] = std::from_chars(at, end, v);
    if (fault != std::errc() || !(v >= lowest_temperature && v <= highest_temperature))
      refuse("this is not a list of positive numbers");
    values.push_back(v);
    more = rest != end && *rest == ',';
    if (!more && rest != end)
      refuse("this is not a list of positive numbers");
    at = rest;
  }
  if (values.size() == 1)
    values.resize(static_cast<std::size_t>(nextn), values.front());
  if (values.size() != static_cast<std::size_t>(nextn))
    refuse("there are " + std::to_string(values.size()) + " temperatures for " + std::to_string(nextn) + " drafts");
  return values;
}

speculation_options checked_speculation(const engine_options& o, int block, bool expert_group) {
  speculation_options s;
  s.nextn = checked_nextn(o, block);
  s.varlen = o.varlen.value_or(true);
  if (o.verify != "coupled" && o.verify != "rejection")
    throw config_error("", "verify", o.verify, "there is no such rule", "use coupled or rejection");
  s.rejection = o.verify == "rejection";
  if (s.rejection && s.nextn == 0)
    refuse_without_drafts("verify", o.verify);
  if (s.nextn == 0 && o.varlen.value_or(false))
    refuse_without_drafts("varlen", "true");
  check_curve(o, s, expert_group);
  if (s.nextn == 0 && !o.confidence_temperature.empty())
    refuse_without_drafts("confidence_temperature", o.confidence_temperature);
  s.temperatures = confidence_temperatures(o.confidence_temperature.empty() ? "1" : o.confidence_temperature, s.nextn);
  if (block == 0 && !o.nextn)
    s.note = "the checkpoint has no drafter: no speculation";
  return s;
}

} // namespace troupe
