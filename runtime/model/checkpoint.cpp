#include "runtime/model/checkpoint.hpp"
#include "runtime/base/check.hpp"
#include "runtime/model/checkpoint_index.hpp"
#include "runtime/model/expected_tensors.hpp"
#include <filesystem>

namespace troupe {
namespace {

const char* const remedy = "check that the checkpoint folder is complete";

} // namespace

checkpoint::checkpoint(const std::string& folder) : config_(load_config(folder)) {
  const std::string index_path = folder + "/model.safetensors.index.json", single = folder + "/model.safetensors";
  std::error_code ignored;
  if (!std::filesystem::exists(index_path, ignored) && std::filesystem::exists(single, ignored))
    open_single(single);
  else
    open_indexed(folder, index_path);

  tensor_table table;
  for (const auto& [name, tensor] : tensors_)
    table.emplace(name, &tensor);
  leave_out_absent_drafter(config_, table);
  const std::string faults = compare_tensors(config_, table);
  if (!faults.empty())
    throw config_error(source_, "", "", faults, "use files and config.json of one release, without conversion");
}

void checkpoint::open_single(const std::string& path) {
  source_ = path;
  shards_.emplace_back(path);
  for (const host_tensor& t : shards_.back().tensors())
    take(t, path);
}

void checkpoint::open_indexed(const std::string& folder, const std::string& index_path) {
  source_ = index_path;
  const checkpoint_index index = read_checkpoint_index(index_path);
  if (!index.repeated.empty())
    throw config_error(index_path, "weight_map." + index.repeated.front(), "", "is there twice", remedy);
  std::map<std::string, std::size_t> shard_of;
  for (const auto& [name, file] : index.shard_of)
    shard_of.emplace(file, 0);
  for (auto& [file, at] : shard_of) {
    at = shards_.size();
    shards_.emplace_back(folder + "/" + file);
  }
  // A name that its shard does not hold stays absent and is reported as missing.
  for (const auto& [name, file] : index.shard_of)
    if (const host_tensor* t = shards_[shard_of[file]].find(name))
      take(*t, index_path);
}

void checkpoint::take(const host_tensor& tensor, const std::string& file) {
  const std::string name(canonical_name(tensor.name));
  const auto [it, fresh] = tensors_.emplace(name, tensor);
  if (!fresh)
    throw config_error(file, name, "", "is there twice, with and without the prefix \"model.\"", remedy);
  it->second.name = name;
}

std::int64_t checkpoint::total_bytes() const {
  std::int64_t total = 0;
  for (const auto& [name, tensor] : tensors_)
    if (!is_ignored_tensor(name, config_))
      total += static_cast<std::int64_t>(tensor.bytes.size());
  return total;
}

const host_tensor& checkpoint::get(std::string_view name) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end())
    throw config_error(source_, std::string(name), "", "this tensor is not in the checkpoint", remedy);
  return it->second;
}

quantised_weight checkpoint::quantised(std::string_view module) const {
  return {get(std::string(module) + ".weight"), get(std::string(module) + ".scale")};
}

host_tensor checkpoint::rows(std::string_view name, std::int64_t first, std::int64_t count) const {
  host_tensor t = get(name);
  TROUPE_CHECK(!t.shape.empty() && first >= 0 && count >= 0 && first <= t.shape[0] && count <= t.shape[0] - first,
               "checkpoint::rows: range outside the tensor");
  const std::size_t row_bytes = t.shape[0] ? t.bytes.size() / static_cast<std::size_t>(t.shape[0]) : 0;
  t.bytes = t.bytes.subspan(static_cast<std::size_t>(first) * row_bytes, static_cast<std::size_t>(count) * row_bytes);
  t.shape[0] = count;
  return t;
}

} // namespace troupe
