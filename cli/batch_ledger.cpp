#include "cli/batch_ledger.hpp"
#include <filesystem>
#include <set>
#include <spdlog/spdlog.h>

namespace troupe {

namespace {

// "each" is an interval of 0: one sync for all records that wait. Nobody waits for the file, so no more is promised.
ledger_settings settings_of(const std::string& path, const ledger_section& s) {
  if (!s.fsync.ms)
    return {path, ledger_sync::none, 0};
  return {path, ledger_sync::interval, *s.fsync.ms};
}

void say_what_goes_on(const std::string& path, const ledger_file::recovered& found, const finished_results& kept) {
  std::set<std::string> requests;
  std::size_t tokens = 0;
  for (const ledger_entry& e : found.open) {
    if (e.output.ids.empty() || kept.has(e.request.request_id, static_cast<int>(e.request.branch)))
      continue;
    requests.insert(e.request.request_id);
    tokens += e.output.ids.size();
  }
  if (!requests.empty())
    spdlog::info("{}: {} requests go on behind {} tokens", path, requests.size(), tokens);
}

ledger_file opened(const ledger_settings& s, ledger_file::recovered& found) {
  auto file = ledger_file::open(s, found);
  if (!file)
    throw config_error("", "", "", file.failure().message, "");
  if (found.cut_bytes > 0)
    spdlog::warn("{}: cut off a damaged end of {} bytes", s.path, found.cut_bytes);
  return std::move(*file);
}

} // namespace

std::shared_ptr<request_ledger> open_batch_ledger(const std::string& output, const ledger_section& settings,
                                                  const finished_results& kept) {
  const ledger_settings s = settings_of(output + ".ledger", settings);
  ledger_file::recovered found;
  ledger_file file = opened(s, found);
  say_what_goes_on(s.path, found, kept);
  return std::make_shared<request_ledger>(s, std::move(file), std::move(found.open));
}

std::shared_ptr<request_ledger> open_gateway_ledger(const std::string& path, const ledger_section& settings) {
  const ledger_settings s = settings_of(path, settings);
  ledger_file::recovered found;
  ledger_file file = opened(s, found);
  spdlog::info("event=ledger_opened file={} open={}", path, found.open.size());
  return std::make_shared<request_ledger>(s, std::move(file), std::move(found.open));
}

void remove_batch_ledger(const request_ledger& ledger) {
  std::error_code ignored; // what stays is read and dropped by the next batch of this name
  std::filesystem::remove(ledger.settings.path, ignored);
}

} // namespace troupe
