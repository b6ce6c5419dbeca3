// A checkpoint folder, opened and checked as a whole (model.md §10): configuration, index, mapped shards. Tensors are
// views into the mapped files; nothing is read from disk before it is used.
#pragma once
#include "runtime/model/config.hpp"
#include "runtime/model/safetensors.hpp"
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

// A weight with its exponents (value = element * 2^(byte - 127)); see model.md §10 for the two layouts, FP8 and MXFP4.
struct quantised_weight {
  host_tensor data;
  host_tensor scale;
};

class checkpoint {
public:
  // Reads <folder>/config.json and either model.safetensors.index.json with its shards or a single model.safetensors.
  // Throws config_error for a damaged file, and one that lists all tensors which are missing, unknown or of a wrong
  // type or shape.
  explicit checkpoint(const std::string& folder);

  const model_config& config() const { return config_; }
  std::int64_t total_bytes() const; // of all tensors that the model reads
  const std::map<std::string, host_tensor, std::less<>>& tensors() const { return tensors_; } // by canonical name

  // Canonical names, without "model.". Throws config_error for a name that the model does not have. Views live as long
  // as *this.
  const host_tensor& get(std::string_view name) const;

  // <module>.weight and <module>.scale.
  quantised_weight quantised(std::string_view module) const;

  // Rows first .. first + count - 1 of a matrix; touches no other row. The range must lie inside.
  host_tensor rows(std::string_view name, std::int64_t first, std::int64_t count) const;

private:
  void open_single(const std::string& path);
  void open_indexed(const std::string& folder, const std::string& index_path);
  void take(const host_tensor& tensor, const std::string& file);

  std::string source_; // the file that errors about the whole name
  model_config config_;
  std::vector<safetensors_file> shards_;
  std::map<std::string, host_tensor, std::less<>> tensors_;
};

} // namespace troupe
