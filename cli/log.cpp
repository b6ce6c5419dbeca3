#include "cli/log.hpp"
#include <ctime>
#include <fmt/chrono.h>
#include <nlohmann/json.hpp>
#include <spdlog/details/os.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace troupe {

namespace {

std::string level_text(spdlog::level::level_enum level) {
  const auto text = spdlog::level::to_string_view(level);
  return {text.data(), text.size()};
}

// 2026-11-29T21:40:03.127Z
std::string utc(spdlog::log_clock::time_point time) {
  const auto ms = std::chrono::time_point_cast<std::chrono::milliseconds>(time).time_since_epoch().count();
  const auto seconds = static_cast<std::time_t>(ms / 1000);
  std::tm t{};
  ::gmtime_r(&seconds, &t);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", t, ms % 1000);
}

class text_formatter final : public spdlog::formatter {
public:
  explicit text_formatter(bool timed) : timed_(timed) {}
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    std::string head = timed_ ? utc(message.time) + " troupe: " : "troupe: ";
    if (message.level != spdlog::level::info)
      head += level_text(message.level) + ": ";
    out.append(head.data(), head.data() + head.size());
    out.append(message.payload.data(), message.payload.data() + message.payload.size());
    out.push_back('\n');
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<text_formatter>(timed_); }

private:
  bool timed_;
};

class json_formatter final : public spdlog::formatter {
public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const auto since_epoch = std::chrono::duration_cast<std::chrono::milliseconds>(message.time.time_since_epoch());
    const nlohmann::ordered_json line{{"time", static_cast<double>(since_epoch.count()) / 1000},
                                      {"level", level_text(message.level)},
                                      {"message", std::string(message.payload.data(), message.payload.size())}};
    const std::string text = line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<json_formatter>(); }
};

} // namespace

void set_up_logging(const log_settings& settings) {
  auto logger = std::make_shared<spdlog::logger>("troupe", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  if (settings.json)
    logger->set_formatter(std::make_unique<json_formatter>());
  else
    logger->set_formatter(std::make_unique<text_formatter>(settings.timed));
  logger->set_level(settings.verbosity < 0   ? spdlog::level::err
                    : settings.verbosity > 0 ? spdlog::level::debug
                                             : spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

bool succeeded(const status& s) {
  if (!s)
    spdlog::error("{}", s.failure().message);
  return static_cast<bool>(s);
}

} // namespace troupe
