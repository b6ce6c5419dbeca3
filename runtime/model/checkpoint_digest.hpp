// The identity of a model: one digest over the files that its numbers come from.
#pragma once
#include <string>

namespace troupe {

// SHA-256 in hexadecimal over "<name> <SHA-256 of the file>\n" of config.json, tokenizer.json (Engram rows depend on
// it) and every *.safetensors of the folder, in order of their names. Reads every byte. Throws config_error.
std::string checkpoint_digest(const std::string& folder);

} // namespace troupe
