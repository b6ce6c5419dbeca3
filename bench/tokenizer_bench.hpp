// Speed of the tokenizer; targets in tokenizer_recipe.md 1.4.
#pragma once
#include <iosfwd>
#include <string>

namespace troupe {

// Loads `tokenizer_path` and encodes texts of about 4 KB made of the lines of `lines_path` (JSON lines with `cat` and
// `text`, as tests/data/tokenizer/encode.jsonl), then single pieces of 1 MB. One JSON line per case: CPU seconds of the
// fastest of five runs and MB/s. Returns 0, or throws config_error if a file cannot be used.
int bench_tokenizer(const std::string& tokenizer_path, const std::string& lines_path, std::ostream& out);

} // namespace troupe
