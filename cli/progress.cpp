#include "cli/progress.hpp"
#include <cstdio>
#include <fmt/format.h>
#include <unistd.h>

namespace troupe {

namespace {

std::string bar(std::int64_t done, std::int64_t total) {
  constexpr std::int64_t width = 24;
  const std::int64_t filled = done >= total ? width : done * width / total;
  return "[" + std::string(static_cast<std::size_t>(filled), '#') +
         std::string(static_cast<std::size_t>(width - filled), '.') + "] ";
}

} // namespace

progress_line::progress_line(std::string title, bool enabled)
    : title_(std::move(title)), enabled_(enabled && ::isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()) {}

progress_line::~progress_line() {
  clear();
}

void progress_line::show(std::int64_t done, std::int64_t total, const std::string& note) {
  const auto now = std::chrono::steady_clock::now();
  if (!enabled_ || now - last_ < std::chrono::milliseconds(100))
    return;
  last_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  std::string text = title_ + " ";
  if (total > 0)
    text += bar(done, total) + fmt::format("{}/{} ", done, total);
  else if (done > 0)
    text += fmt::format("{} ", done);
  text += fmt::format("{} {:.1f} s", note, seconds);
  std::fprintf(stderr, "\r\x1b[K%s", text.substr(0, 118).c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void progress_line::clear() {
  if (!drawn_)
    return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
  last_ = {};
}

} // namespace troupe
