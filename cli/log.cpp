#include "cli/log.hpp"
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

class text_formatter final : public spdlog::formatter {
public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const std::string head =
        message.level == spdlog::level::info ? "troupe: " : "troupe: " + level_text(message.level) + ": ";
    out.append(head.data(), head.data() + head.size());
    out.append(message.payload.data(), message.payload.data() + message.payload.size());
    out.push_back('\n');
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<text_formatter>(); }
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
    logger->set_formatter(std::make_unique<text_formatter>());
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
