// The identity of a model: one digest over the files that its numbers come from.
#pragma once
#include "runtime/model/checkpoint.hpp"
#include <string>

namespace troupe {

// SHA-256 in hexadecimal over "<name> <SHA-256 of the file>\n" of config.json, tokenizer.json (Engram rows depend on
// it) and every *.safetensors of the folder, in order of their names. Reads every byte. Throws config_error.
std::string checkpoint_digest(const std::string& folder);

// What processes compare before they compute for one another, at every start: both are quick whatever the model's size.
// Of config.json and tokenizer.json, whole. Throws config_error.
std::string texts_digest(const std::string& folder);
// Of the tensors that the model reads, by name: types, shapes, and 64 bytes of every started 64 MiB. Tells models and
// stages of their training apart, wherever they lie and however they are cut into files; a byte that has rotted between
// two samples is not seen.
std::string weights_digest(const checkpoint& source);

} // namespace troupe
