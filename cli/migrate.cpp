// troupe migrate: an expert moves while requests run.
#include "cli/cluster_file.hpp"
#include "cli/interrupts.hpp"
#include "cli/verbs.hpp"
#include <charconv>
#include <iostream>
#include <spdlog/spdlog.h>

namespace troupe {

namespace {

std::optional<std::int32_t> number_in(std::string_view text) {
  std::int32_t n = 0;
  const auto [end, why] = std::from_chars(text.data(), text.data() + text.size(), n);
  return why == std::errc{} && end == text.data() + text.size() && n >= 0 ? std::optional(n) : std::nullopt;
}

migrate wish_of(const migrate_options& o) {
  migrate m;
  m.layer = o.layer;
  m.expert = o.expert;
  const std::string_view to = o.to;
  const auto colon = to.find(':');
  const auto rank = number_in(to.substr(0, colon));
  const auto slot = colon == std::string_view::npos ? std::optional(-1) : number_in(to.substr(colon + 1));
  if (!rank || !slot)
    throw config_error("command line", "--to", o.to, "not a rank, or a rank and a slot", "give RANK or RANK:SLOT");
  m.rank = static_cast<std::uint32_t>(*rank);
  m.slot = *slot;
  return m;
}

} // namespace

int run_migrate(const migrate_options& o) {
  interrupts signals;
  const loaded_cluster c = load_running(o.file);
  const migrate wish = wish_of(o);
  coordinator_client client(
      identity_of(c.configuration, key_name_for(c.configuration, key_role::admin), c.layout, *c.state));
  const auto answer = client.migrate(wish);
  if (!answer) {
    spdlog::error("{}: {}", c.configuration.cluster.name, answer.failure().message);
    return exit_no_leader;
  }
  const std::string text = error_of(*answer).message;
  if (answer->code != ack_code::ok) {
    spdlog::error("refused: {}", text);
    return exit_refused;
  }
  std::cout << text << "\n";
  return exit_ok;
}

} // namespace troupe
