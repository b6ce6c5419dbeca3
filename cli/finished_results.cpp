#include "cli/finished_results.hpp"
#include "cli/request_lines.hpp"
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

namespace troupe {

bool finished_results::has(const std::string& id, int index) const {
  const auto found = branches_.find(id_key(id));
  return found != branches_.end() && std::ranges::find(found->second, index) != found->second.end();
}

bool finished_results::has_all(const std::string& id, int branches) const {
  const auto found = branches_.find(id_key(id));
  return found != branches_.end() && static_cast<int>(found->second.size()) >= branches;
}

bool finished_results::add(const std::string& line) {
  const auto parsed = nlohmann::json::parse(line, nullptr, false);
  if (!parsed.is_object() || !parsed.contains("id") || !parsed.contains("error"))
    return false;
  const auto& id = parsed["id"];
  if (id.is_string() && parsed.contains("index") && parsed["index"].is_number_integer()) {
    const int index = parsed["index"].get<int>();
    std::vector<int>& branches = branches_[id_key(id.get<std::string>())];
    if (std::ranges::find(branches, index) == branches.end())
      branches.push_back(index);
  } else if (id.is_null() && parsed.contains("line") && parsed["line"].is_number_integer()) {
    lines_.insert(parsed["line"].get<std::int64_t>());
  } else {
    return false;
  }
  ++count_;
  failed_ += parsed["error"].is_null() ? 0 : 1;
  return true;
}

finished_results keep_finished_results(const file_handle& output) {
  struct stat s {};
  if (::fstat(output.fd(), &s) != 0 || s.st_size == 0)
    return {};
  off_t end = s.st_size; // of the complete lines
  char last = 0;
  while (end > 0 && ::pread(output.fd(), &last, 1, end - 1) == 1 && last != '\n')
    --end;
  const auto refuse = [&output](std::int64_t number) {
    throw config_error(output.name(), "line " + std::to_string(number), "",
                       "this is not a result line, so the file is not the output of a batch",
                       "name another output file, or remove this one");
  };
  finished_results kept;
  // Result lines have no limit: 1000 top_logprobs of some thousand tokens are more than a request line may hold.
  line_reader in(open_input(output.name()), std::numeric_limits<std::size_t>::max());
  std::string line;
  off_t read = 0;
  while (in.next(line) == line_reader::state::line) {
    const bool complete = read < end;
    read += static_cast<off_t>(line.size()) + 1;
    if (complete ? !kept.add(line) : !line.starts_with('{'))
      refuse(in.line_number());
  }
  if (end != s.st_size) {
    if (::ftruncate(output.fd(), end) != 0)
      throw config_error(output.name(), "", "", "the torn last line cannot be cut off", "name another output file");
    spdlog::warn("{}: cut off a torn last line of {} bytes", output.name(), s.st_size - end);
  }
  if (kept.count() > 0)
    spdlog::info("{}: keeping {} results of an earlier run", output.name(), kept.count());
  return kept;
}

std::int64_t count_lines(const std::string& path, const file_handle& input) {
  struct stat s {};
  if (path == "-" || ::fstat(input.fd(), &s) != 0 || !S_ISREG(s.st_mode) || s.st_size > (off_t{64} << 20))
    return 0;
  line_reader in(open_input(path));
  std::string line;
  std::int64_t lines = 0;
  while (true) {
    const line_reader::state state = in.next(line);
    if (state != line_reader::state::line && state != line_reader::state::too_long)
      return lines;
    lines += line.find_first_not_of(" \t\r") != std::string::npos ? 1 : 0;
  }
}

} // namespace troupe
