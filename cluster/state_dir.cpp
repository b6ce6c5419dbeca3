#include "cluster/state_dir.hpp"
#include "cluster/child_process.hpp"
#include "runtime/base/pending_file.hpp"
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

namespace troupe {

namespace {

namespace fs = std::filesystem;
using json = nlohmann::json;

void make_folder(const fs::path& path) {
  std::error_code why;
  const bool made = fs::create_directories(path, why);
  if (why || !fs::is_directory(path))
    throw config_error("", "cluster.state_dir", path.string(), "cannot be made: " + why.message(),
                       "name a folder that this user may write");
  if (made)
    ::chmod(path.c_str(), 0700);
}

std::optional<process_record> parse(const fs::path& file) {
  std::ifstream in(file);
  const json j = json::parse(in, nullptr, false);
  try {
    process_record r;
    r.name = j.at("name");
    r.pid = j.at("pid");
    r.ticks = j.at("ticks");
    r.incarnation = j.at("incarnation");
    r.at = {j.at("host"), j.at("port")};
    r.configuration = j.at("configuration");
    return r;
  } catch (const json::exception&) { // not ours, or torn
    return {};
  }
}

} // namespace

bool is_running(const process_record& r) {
  return start_ticks(r.pid) == r.ticks;
}

void state_dir::make() const {
  for (const char* folder : {"", "run", "log"})
    make_folder(fs::path(path_) / folder);
}

std::string state_dir::log_file(const std::string& name, std::uint64_t incarnation) const {
  return path_ + "/log/" + name + "." + std::to_string(incarnation) + ".log";
}

std::string state_dir::ledger_file(const std::string& gateway) const {
  return path_ + "/" + gateway + ".ledger";
}

std::string state_dir::launch_lock() const {
  return path_ + "/launch.lock";
}

std::string state_dir::configuration_file() const {
  return path_ + "/cluster.toml";
}

void state_dir::write(const process_record& r) const {
  const json j{{"name", r.name},
               {"pid", r.pid},
               {"ticks", r.ticks},
               {"incarnation", r.incarnation},
               {"host", r.at.host},
               {"port", r.at.port},
               {"configuration", r.configuration}};
  const std::string file = path_ + "/run/" + r.name + ".json";
  if (const status s = write_whole_file(file, j.dump() + "\n"); !s)
    throw config_error("", "cluster.state_dir", file, s.failure().message, "name a folder that this user may write");
}

void state_dir::remove(const std::string& name) const {
  std::error_code ignored;
  fs::remove(path_ + "/run/" + name + ".json", ignored);
}

std::optional<process_record> state_dir::read(const std::string& name) const {
  auto r = parse(path_ + "/run/" + name + ".json");
  return r && is_running(*r) ? r : std::nullopt;
}

std::vector<process_record> state_dir::all() const {
  std::vector<process_record> found;
  std::error_code why;
  for (const auto& entry : fs::directory_iterator(path_ + "/run", why))
    if (entry.path().extension() == ".json")
      if (auto r = parse(entry.path()))
        found.push_back(std::move(*r));
  std::ranges::sort(found, {}, &process_record::name);
  return found;
}

std::vector<process_record> state_dir::running() const {
  std::vector<process_record> found = all();
  std::erase_if(found, [](const process_record& r) { return !is_running(r); });
  return found;
}

void state_dir::remove_stale() const {
  for (const process_record& r : all())
    if (!is_running(r))
      remove(r.name);
  for (const char* folder : {"", "/run"})
    remove_abandoned_files(path_ + folder);
}

} // namespace troupe
