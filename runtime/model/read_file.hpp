// Whole small files of a checkpoint folder, read at start-up.
#pragma once
#include <cstddef>
#include <string>

namespace troupe {

// Throws config_error(path, ..., remedy) if the file cannot be opened or read or is larger than max_bytes.
std::string read_text_file(const std::string& path, std::size_t max_bytes, const std::string& remedy);

} // namespace troupe
