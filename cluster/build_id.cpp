#include "cluster/build_id.hpp"

namespace troupe {

const std::string& build_id() {
  static const std::string id = TROUPE_CLUSTER_BUILD_ID; // by CMake, of the headers of this folder
  return id;
}

} // namespace troupe
