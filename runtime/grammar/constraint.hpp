// Constraints as a request states them (structured_output.md §2.1, §6.7), and their compilation.
#pragma once
#include "runtime/base/result.hpp"
#include "runtime/grammar/compiled_grammar.hpp"
#include "runtime/grammar/json_schema.hpp"
#include "runtime/request/sampling_params.hpp"
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace troupe {

enum class constraint_kind : std::uint8_t { json, regex, ebnf };

struct constraint {
  constraint_kind kind = constraint_kind::json;
  std::string text;
  json_schema_options schema;        // json
  bool dot_excludes_newline = false; // regex
};

// "json", "regex" or "ebnf"; so_invalid_args for others.
result<constraint_kind> constraint_kind_of(std::string_view name);

// What a request's so_args ask for; they have passed check_sampling_params.
constraint constraint_of(const structured_output_args& a);

// Compiles within `limits`. `out_of_time` is asked now and then and ends the work when it says so: a limit of processor
// time, a caller that has gone. Errors as in structured_output.md §7, with so_timeout for the latter. Warnings of
// lenient schemas are kept in the grammar.
result<std::shared_ptr<const compiled_grammar>> compile_constraint(const constraint& what,
                                                                   std::shared_ptr<const token_vocabulary> vocabulary,
                                                                   const compile_limits& limits = {},
                                                                   const std::function<bool()>& out_of_time = {});

} // namespace troupe
