// A line on standard error that shows how far work has come; nothing at all when standard error is no terminal.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace troupe {

class progress_line {
public:
  explicit progress_line(std::string title, bool enabled = true);
  ~progress_line(); // clears the line
  progress_line(const progress_line&) = delete;
  progress_line& operator=(const progress_line&) = delete;

  // Draws at most ten times a second. total 0: unknown. note: shown behind the figures.
  void show(std::int64_t done, std::int64_t total, const std::string& note);
  void clear(); // before other text goes to standard error

private:
  std::string title_;
  bool enabled_, drawn_ = false;
  std::chrono::steady_clock::time_point start_, last_{};
};

} // namespace troupe
