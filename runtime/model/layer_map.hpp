// Legality of the maps that say which layer shares whose compressed KV, index keys, selections and candidates (model.md
// §1).
#pragma once
#include "runtime/model/config.hpp"

namespace troupe {

// Fills n_prefill_layer and layers from the other fields. Throws config_error(file, "text_config.<key>", ...) for
// illegal maps.
void derive_layers(model_config& config, const std::string& file);

} // namespace troupe
