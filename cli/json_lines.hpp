// Verbs that answer JSON lines one by one: `tokenize`, `grammar check`.
#pragma once
#include "runtime/base/result.hpp"
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace troupe {

// Reads objects from `input` and writes {id, and the fields that `answer` gives} for each to `output`; a line that is
// no JSON object or fails gets {id, error: {code, message}}, with its number where it has no id. Returns the exit code:
// 1 if a line failed. Throws config_error for files that cannot be opened.
int answer_json_lines(const std::string& input, const std::string& output,
                      const std::function<result<nlohmann::ordered_json>(const nlohmann::ordered_json& line)>& answer);

} // namespace troupe
