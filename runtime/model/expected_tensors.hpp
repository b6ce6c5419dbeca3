// The tensors that a checkpoint of a given configuration must hold (model.md §10), and the comparison with what is
// there.
#pragma once
#include "runtime/model/safetensors.hpp"
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

struct model_config;

struct expected_tensor {
  std::string name; // without the optional "model." prefix
  tensor_type dtype = tensor_type::bf16;
  std::vector<std::int64_t> shape;
  bool also_f32 = false; // F32 is as good as BF16: releases differ here (model.md §14)
};

// In checkpoint order: global tensors, layers, drafter. Needs no data.
std::vector<expected_tensor> expected_tensors(const model_config& config);

// Names that a text-only server accepts and does not read: the vision tower and the drafter's copies of tied tensors.
bool is_ignored_tensor(std::string_view name, const model_config& config);

// By canonical name. A null tensor is known by name only (from the index), its type and shape are not compared.
using tensor_table = std::map<std::string, const host_tensor*, std::less<>>;

// Conversions leave the drafter out and config.json as it was. Where no tensor of it is there, `config` becomes that of
// a model without one.
void leave_out_absent_drafter(model_config& config, const tensor_table& present);

// What is wrong with a table, by tensor. `wrong` also says what is there and what should be.
struct tensor_faults {
  std::vector<std::string> missing, wrong, unknown;
  bool none() const { return missing.empty() && wrong.empty() && unknown.empty(); }
};
tensor_faults find_tensor_faults(const std::vector<expected_tensor>& expected, const model_config& config,
                                 const tensor_table& present);

// "3 tensors missing: a, b and 1 more"; empty for no names.
std::string name_list(const char* what, const std::vector<std::string>& names, std::size_t max_names);

// Empty if the table is complete; else one text that counts and names (the first `max_names` of each kind) all tensors
// that are missing, unknown, or of a wrong type or shape.
std::string compare_tensors(const model_config& config, const tensor_table& present, std::size_t max_names = 8);

} // namespace troupe
