// What an earlier run of a batch has already written to its output file.
#pragma once
#include "cli/line_io.hpp"
#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace troupe {

class finished_results {
public:
  bool has(const std::string& id, int index) const;
  bool has_all(const std::string& id, int branches) const;
  bool has_line(std::int64_t line) const { return lines_.contains(line); }
  std::int64_t failed() const { return failed_; }
  std::int64_t count() const { return count_; }

  // One complete line of the file; false if it is no result line.
  bool add(const std::string& line);

private:
  std::unordered_map<std::string, std::vector<int>> branches_; // by id key
  std::unordered_set<std::int64_t> lines_;                     // answered with id null
  std::int64_t failed_ = 0, count_ = 0;
};

// Reads the complete lines of an output file and cuts off a torn last line. Throws config_error if the file holds
// something else than result lines: it is not ours to append to.
finished_results keep_finished_results(const file_handle& output);

// Lines of a regular file of moderate size, for progress lines; 0 if that would take long or is unknown.
std::int64_t count_lines(const std::string& path, const file_handle& input);

} // namespace troupe
