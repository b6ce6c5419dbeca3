#include "cli/json_lines.hpp"
#include "cli/line_io.hpp"
#include "cli/log.hpp"
#include "cli/verbs.hpp"
#include <poll.h>
#include <spdlog/spdlog.h>

namespace troupe {

namespace {

using json = nlohmann::ordered_json;

json failed_line(const json& id, std::int64_t number, const error& e) {
  json out{{"id", id}};
  if (id.is_null())
    out["line"] = number;
  out["error"] = {{"code", e.code}, {"message", e.message}};
  return out;
}

json answer_line(const std::function<result<json>(const json&)>& answer, const std::string& line, std::int64_t number,
                 bool& ok) {
  ok = false;
  json in;
  try {
    in = json::parse(line);
  } catch (const json::exception& e) {
    return failed_line(nullptr, number, {"bad_json", "line " + std::to_string(number) + " is not JSON: " + e.what()});
  }
  if (!in.is_object())
    return failed_line(nullptr, number, {"bad_json", "line " + std::to_string(number) + " is not a JSON object"});
  const json id = in.contains("id") ? in["id"] : json(nullptr);
  const result<json> fields = answer(in);
  if (!fields)
    return failed_line(id, number, fields.failure());
  ok = true;
  json out{{"id", id}};
  out.update(*fields);
  return out;
}

} // namespace

int answer_json_lines(const std::string& input, const std::string& output,
                      const std::function<result<json>(const json& line)>& answer) {
  line_reader in(open_input(input));
  line_writer out(open_output_anew(output, in.file()));
  int exit_code = exit_ok;
  std::string line;
  while (true) {
    bool ok = false;
    json answered;
    switch (in.next(line)) {
    case line_reader::state::waiting: {
      pollfd p{in.fd(), POLLIN, 0};
      ::poll(&p, 1, -1);
      continue;
    }
    case line_reader::state::line:
      if (line.find_first_not_of(" \t\r") == std::string::npos)
        continue;
      answered = answer_line(answer, line, in.line_number(), ok);
      break;
    case line_reader::state::too_long:
      answered = failed_line(nullptr, in.line_number(), {"line_too_long", "the line is longer than 64 MiB"});
      break;
    case line_reader::state::failed:
      spdlog::error("{}", in.failure());
      return exit_request_failed;
    case line_reader::state::end:
      return succeeded(out.finish()) ? exit_code : exit_request_failed;
    }
    if (!ok)
      exit_code = exit_request_failed;
    if (!succeeded(out.write_line(answered.dump(-1, ' ', false, json::error_handler_t::replace))))
      return exit_request_failed;
  }
}

} // namespace troupe
