#include "runtime/model/make_checkpoint.hpp"
#include "runtime/base/pending_file.hpp"
#include "runtime/base/result.hpp"
#include "runtime/model/config.hpp"
#include "runtime/model/generated_weights.hpp"
#include "runtime/model/read_file.hpp"
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t piece_bytes = 1 << 20;
const char* const index_name = "model.safetensors.index.json";

std::uint64_t bytes_of(const expected_tensor& t) {
  std::uint64_t bytes = size_of(t.dtype);
  for (const std::int64_t d : t.shape)
    bytes *= static_cast<std::uint64_t>(d);
  return bytes;
}

std::string numbered(std::size_t i, std::size_t of) {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i, of);
  return name;
}

// Removes what was written unless it is kept.
class new_folder {
public:
  explicit new_folder(const std::string& path) : path_(path) {
    std::error_code fault;
    made_ = fs::create_directories(path, fault);
    if (fault)
      throw config_error(path, "", "", "the folder cannot be made: " + fault.message(), "choose another place");
  }
  ~new_folder() {
    std::error_code ignored;
    if (kept_)
      return;
    for (const std::string& file : files_)
      fs::remove(fs::path(path_) / file, ignored);
    if (made_)
      fs::remove(path_, ignored);
  }
  new_folder(const new_folder&) = delete;
  new_folder& operator=(const new_folder&) = delete;

  std::string add(const std::string& file) {
    files_.push_back(file);
    return (fs::path(path_) / file).string();
  }
  void keep() { kept_ = true; }

private:
  std::string path_;
  std::vector<std::string> files_;
  bool made_ = false, kept_ = false;
};

void throw_failed(const status& s) {
  if (!s)
    throw config_error("", "", "", s.failure().message, "");
}

void expect_empty(const std::string& folder) {
  std::error_code fault;
  if (!fs::exists(folder, fault))
    return;
  if (!fs::is_directory(folder, fault) || !fs::is_empty(folder, fault) || fault)
    throw config_error(folder, "", "", "is there already and is not an empty folder", "name a new one");
}

// Free bytes where the folder is or will be.
std::uint64_t free_bytes(const std::string& folder) {
  fs::path at = fs::absolute(folder);
  std::error_code fault;
  while (!fs::exists(at, fault) && at.has_parent_path() && at != at.parent_path())
    at = at.parent_path();
  const fs::space_info space = fs::space(at, fault);
  return fault ? 0 : space.available;
}

class shard_writer {
public:
  shard_writer(const checkpoint_recipe& recipe, const model_config& config, std::uint64_t total,
               const std::function<bool(std::uint64_t, std::uint64_t)>& progress)
      : recipe_(recipe), config_(config), total_(total), progress_(progress), piece_(piece_bytes) {}

  // False if progress ended the work.
  bool write(const shard_plan& shard, const std::string& path) {
    std::vector<host_tensor> header;
    for (const expected_tensor& t : shard.tensors)
      header.push_back({t.name, t.dtype, t.shape, {}});
    result<safetensors_writer> file = safetensors_writer::create(path, header, {{"format", "pt"}});
    if (!file)
      throw config_error("", "", "", file.failure().message, "");
    for (const expected_tensor& t : shard.tensors) {
      const generated_tensor made(t, config_, recipe_.seed);
      for (std::uint64_t at = 0; at < made.bytes(); at += piece_bytes) {
        const auto piece = std::span(piece_).first(std::min<std::uint64_t>(piece_bytes, made.bytes() - at));
        made.fill(at, piece);
        throw_failed(file->append(piece));
        done_ += piece.size();
        if (!progress_(done_, total_))
          return false;
      }
    }
    throw_failed(file->commit());
    return true;
  }

private:
  const checkpoint_recipe& recipe_;
  const model_config& config_;
  std::uint64_t done_ = 0, total_;
  const std::function<bool(std::uint64_t, std::uint64_t)>& progress_;
  std::vector<std::byte> piece_;
};

} // namespace

std::vector<shard_plan> plan_shards(const model_config& config, std::uint64_t shard_bytes) {
  const std::vector<expected_tensor> tensors = expected_tensors(config);
  std::vector<shard_plan> shards(1);
  for (std::size_t i = 0; i < tensors.size();) {
    const std::size_t unit = i + 1 < tensors.size() && tensors[i + 1].name.ends_with(".scale") ? 2 : 1;
    std::uint64_t bytes = 0;
    for (std::size_t j = 0; j < unit; ++j)
      bytes += bytes_of(tensors[i + j]);
    if (!shards.back().tensors.empty() && shards.back().bytes + bytes > shard_bytes)
      shards.emplace_back();
    shards.back().bytes += bytes;
    for (std::size_t j = 0; j < unit; ++j)
      shards.back().tensors.push_back(tensors[i + j]);
    i += unit;
  }
  for (std::size_t i = 0; i < shards.size(); ++i)
    shards[i].file = numbered(i + 1, shards.size());
  return shards;
}

std::string index_text(const std::vector<shard_plan>& shards) {
  nlohmann::json index;
  std::uint64_t total = 0;
  for (const shard_plan& s : shards) {
    total += s.bytes;
    for (const expected_tensor& t : s.tensors)
      index["weight_map"][t.name] = s.file;
  }
  index["metadata"]["total_size"] = total;
  return index.dump(1) + "\n";
}

void expect_space(const std::string& folder, std::uint64_t needed, std::uint64_t available) {
  if (needed > available)
    throw config_error(folder, "", "",
                       "the checkpoint needs " + std::to_string(needed) + " bytes of disk, " +
                           std::to_string(available) + " bytes are available",
                       "free space, choose another place or make a smaller model (--layers, --experts, --vocab)");
}

made_checkpoint make_checkpoint(const checkpoint_recipe& recipe,
                                const std::function<bool(std::uint64_t, std::uint64_t)>& progress) {
  const model_config config = parse_config(recipe.config_text, recipe.config_file);
  expect_empty(recipe.folder);
  const std::vector<shard_plan> shards = plan_shards(config, recipe.shard_bytes);
  const std::string index = index_text(shards), tokenizer = read_text_file(recipe.tokenizer, std::size_t{1} << 30,
                                                                           "give the tokenizer.json of a model");
  made_checkpoint made;
  std::uint64_t needed = 2 * index.size() + tokenizer.size() + recipe.config_text.size(); // headers are like the index
  for (const shard_plan& s : shards) {
    ++made.shards;
    made.tensors += static_cast<std::int64_t>(s.tensors.size());
    made.bytes += s.bytes;
  }
  needed += recipe.index_only ? 0 : made.bytes;
  expect_space(recipe.folder, needed, free_bytes(recipe.folder));

  new_folder folder(recipe.folder);
  shard_writer writer(recipe, config, made.bytes, progress);
  for (const shard_plan& s : shards)
    if (!recipe.index_only && !writer.write(s, folder.add(s.file)))
      return {};
  throw_failed(write_whole_file(folder.add("tokenizer.json"), tokenizer));
  throw_failed(write_whole_file(folder.add("config.json"), recipe.config_text));
  throw_failed(write_whole_file(folder.add(index_name), index));
  folder.keep();
  return made;
}

} // namespace troupe
