#include "runtime/request/stop.hpp"

#include "runtime/base/check.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

stop_scanner::stop_scanner(std::vector<std::string> stops, std::int32_t min_tokens) : min_tokens_(min_tokens) {
  for (std::string& s : stops) {
    TROUPE_CHECK(!s.empty(), "empty stop string");
    automaton a{std::move(s), {}, 0};
    a.fallback.assign(a.text.size() + 1, 0);
    for (std::size_t n = 2, border = 0; n <= a.text.size(); ++n) {
      while (border > 0 && a.text[border] != a.text[n - 1])
        border = a.fallback[border];
      if (a.text[border] == a.text[n - 1])
        ++border;
      a.fallback[n] = border;
    }
    stops_.push_back(std::move(a));
  }
}

stop_scanner::step stop_scanner::scan(std::string_view text, bool may_stop) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::optional<std::size_t> winner;
    for (std::size_t k = 0; k < stops_.size(); ++k) {
      automaton& a = stops_[k];
      while (a.matched > 0 && a.text[a.matched] != text[i])
        a.matched = a.fallback[a.matched];
      if (a.text[a.matched] == text[i])
        ++a.matched;
      if (a.matched == a.text.size()) {
        if (!winner)
          winner = k;
        a.matched = a.fallback[a.matched];
      }
    }
    if (winner && may_stop) {
      held_ += text.substr(0, i + 1);
      held_.resize(held_.size() - stops_[*winner].text.size());
      return {std::exchange(held_, {}), winner};
    }
  }
  held_ += text;
  std::size_t keep = 0;
  for (const automaton& a : stops_)
    keep = std::max(keep, a.matched);
  step out{held_.substr(0, held_.size() - keep), std::nullopt};
  held_.erase(0, held_.size() - keep);
  return out;
}

stop_scanner::step stop_scanner::feed(std::string_view text) {
  ++tokens_;
  return scan(text, tokens_ >= min_tokens_);
}

stop_scanner::step stop_scanner::finish(std::string_view rest) {
  step out = scan(rest, tokens_ >= min_tokens_);
  if (!out.stop)
    out.text += std::exchange(held_, {});
  return out;
}

} // namespace troupe
