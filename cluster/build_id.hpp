// What two processes must have in common to be parts of one cluster: version and messages.
#pragma once
#include <string>

namespace troupe {

const std::string& build_id(); // a digest, the same in all processes of equal builds

} // namespace troupe
