// Request lines of a JSONL file as a source of engine requests. Lines that cannot become a request are reported, each
// by itself, and do not disturb the others.
#pragma once
#include "cli/line_io.hpp"
#include "cli/requests.hpp"
#include <optional>
#include <string>
#include <unordered_set>

namespace troupe {

// A line that was refused: id absent if the line has no usable one.
struct bad_line {
  std::int64_t line = 0;
  std::optional<std::string> id;
  error why;
};

std::string bad_line_text(const bad_line& bad); // its result line, no line feed

// Ids in bounded memory: long ones are kept as their digest.
std::string id_key(const std::string& id);

class request_lines : public request_source {
public:
  // Conversations are rendered for the engine's vocabulary, without reasoning.
  request_lines(file_handle input, const LLM& engine) : in_(std::move(input)), engine_(engine) {}

  state next(engine_request& out) final;
  int fd() const final { return in_.fd(); }
  const line_reader& reader() const { return in_; }
  bool failed() const { return failed_; } // reading failed, or a report could not be delivered

protected:
  // A well-formed request: may change it, or leave it out by returning false.
  virtual bool accept(engine_request& request) = 0;
  virtual bool report(const bad_line& bad) = 0; // false: stop reading
  void read_no_more() { ended_ = true; }        // the next one is the end

private:
  result<engine_request> request_of(const std::string& line, bad_line& bad);

  line_reader in_;
  const LLM& engine_;
  std::unordered_set<std::string> seen_;
  bool failed_ = false, ended_ = false;
};

} // namespace troupe
