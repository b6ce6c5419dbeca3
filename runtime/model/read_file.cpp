#include "runtime/model/read_file.hpp"
#include "runtime/base/result.hpp"
#include "runtime/model/mapped_file.hpp"

namespace troupe {

std::string read_text_file(const std::string& path, std::size_t max_bytes, const std::string& remedy) {
  const mapped_file file(path, remedy);
  if (file.bytes().size() > max_bytes)
    throw config_error(path, "", "", "is larger than " + std::to_string(max_bytes) + " bytes", remedy);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

} // namespace troupe
