#include "runtime/model/check_checkpoint.hpp"
#include "runtime/model/checkpoint_index.hpp"
#include "runtime/model/expected_tensors.hpp"
#include "runtime/model/safetensors.hpp"
#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <set>

namespace troupe {
namespace {

namespace fs = std::filesystem;

// Whether an element of an unquantised tensor or a scale is infinite or no number.
bool is_finite(const host_tensor& t) {
  const auto* at = reinterpret_cast<const std::uint8_t*>(t.bytes.data());
  const std::size_t n = t.bytes.size();
  if (t.dtype == tensor_type::f8_e8m0)
    return std::find(at, at + n, std::uint8_t{255}) == at + n;
  const std::size_t size = size_of(t.dtype);
  if (t.dtype != tensor_type::f32 && t.dtype != tensor_type::bf16)
    return true;
  for (std::size_t i = 0; i < n; i += size) { // the exponent's bits, little endian, all set
    const unsigned high = at[i + size - 1], low = at[i + size - 2];
    if ((high & 0x7fu) == 0x7fu && (low & 0x80u) != 0)
      return false;
  }
  return true;
}

class checker {
public:
  explicit checker(const check_request& request) : request_(request) { out_.config = load_config(request.folder); }

  checkpoint_check run(const std::function<bool(std::int64_t, std::int64_t)>& progress) {
    read_names();
    std::set<std::string> files;
    for (const auto& [name, file] : index_.shard_of)
      files.insert(file);
    out_.shards = static_cast<std::int64_t>(files.size());
    std::int64_t done = 0;
    for (const std::string& file : files) {
      open(file);
      if (!progress(++done, out_.shards))
        break;
    }
    compare();
    for (fault_list* list :
         {&missing_, &wrong_, &unknown_, &repeated_, &misplaced_, &unlisted_, &damaged_, &not_finite_})
      if (!list->names.empty())
        out_.faults.push_back(std::move(*list));
    return std::move(out_);
  }

private:
  std::string path_of(const std::string& file) const { return (fs::path(request_.folder) / file).string(); }

  // From the index, or from the header of a single file.
  void read_names() {
    const std::string single = path_of("model.safetensors");
    out_.index_file = path_of("model.safetensors.index.json");
    std::error_code ignored;
    if (fs::exists(out_.index_file, ignored) || !fs::exists(single, ignored)) {
      index_ = read_checkpoint_index(out_.index_file);
      repeated_.names = index_.repeated;
    } else {
      out_.index_file = single;
      for (const host_tensor& t : read_safetensors_header(single))
        index_.shard_of.emplace(t.name, "model.safetensors");
    }
    out_.total_size = index_.total_size;
    out_.tensors = static_cast<std::int64_t>(index_.shard_of.size());
    std::set<std::string_view> seen;
    for (const auto& [name, file] : index_.shard_of)
      if (!seen.insert(canonical_name(name)).second)
        repeated_.names.push_back(std::string(canonical_name(name)) + " (with and without \"model.\")");
  }

  void open(const std::string& file) {
    std::error_code ignored;
    const bool there = fs::exists(path_of(file), ignored);
    if (!there && request_.index_only)
      return; // known by its tensors' names only
    try {
      if (!there)
        throw config_error(path_of(file), "", "", "is named by the index and does not exist", "");
      take(file);
      ++out_.shards_present;
    } catch (const config_error& e) {
      damaged_.names.push_back(e.what());
    }
  }

  void take(const std::string& file) {
    std::optional<safetensors_file> whole;
    std::vector<host_tensor> header;
    if (request_.index_only)
      header = read_safetensors_header(path_of(file));
    else
      whole.emplace(path_of(file));
    std::set<std::string_view> held;
    for (const host_tensor& t : whole ? whole->tensors() : header) {
      held.insert(t.name);
      const auto listed = index_.shard_of.find(t.name);
      if (listed == index_.shard_of.end())
        unlisted_.names.push_back(t.name + " (" + file + ")");
      else if (listed->second == file)
        seen_.push_back({t.name, t.dtype, t.shape, {}});
      if (whole && !is_finite(t))
        not_finite_.names.push_back(t.name + " (" + file + ")");
    }
    for (const auto& [name, shard] : index_.shard_of)
      if (shard == file && !held.contains(name))
        misplaced_.names.push_back(name + " (" + file + ")");
  }

  void compare() {
    tensor_table table;
    for (const auto& [name, file] : index_.shard_of)
      table.emplace(canonical_name(name), nullptr);
    leave_out_absent_drafter(out_.config, table);
    const std::vector<expected_tensor> expected = expected_tensors(out_.config);
    for (const auto& [name, file] : index_.shard_of)
      out_.ignored += is_ignored_tensor(canonical_name(name), out_.config) ? 1 : 0;
    for (const host_tensor& t : seen_)
      table[std::string(canonical_name(t.name))] = &t;
    tensor_faults faults = find_tensor_faults(expected, out_.config, table);
    missing_.names = std::move(faults.missing);
    wrong_.names = std::move(faults.wrong);
    unknown_.names = std::move(faults.unknown);
    for (const expected_tensor& t : expected) {
      auto bytes = static_cast<std::int64_t>(size_of(t.dtype));
      for (const std::int64_t d : t.shape)
        bytes *= d;
      out_.bytes += bytes;
    }
  }

  const check_request& request_;
  checkpoint_check out_;
  checkpoint_index index_;
  std::deque<host_tensor> seen_; // types and shapes from headers
  fault_list missing_{"missing from the index", {}}, wrong_{"of wrong type or shape", {}},
      unknown_{"not part of this model", {}}, repeated_{"in the index twice", {}},
      misplaced_{"not in the shard that the index names", {}}, unlisted_{"in a shard but not in the index", {}},
      damaged_{"shards that cannot be read", {}}, not_finite_{"with values that are not finite", {}};
};

} // namespace

std::int64_t checkpoint_check::fault_count() const {
  std::int64_t n = 0;
  for (const fault_list& f : faults)
    n += static_cast<std::int64_t>(f.names.size());
  return n;
}

checkpoint_check check_checkpoint(const check_request& request,
                                  const std::function<bool(std::int64_t, std::int64_t)>& progress) {
  return checker(request).run(progress);
}

} // namespace troupe
