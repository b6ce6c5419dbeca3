// A file mapped into memory for reading, for as long as the object lives.
#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace troupe {

class mapped_file {
public:
  // Throws config_error(path, ..., remedy) if the path is not a readable regular file. An empty file maps to an empty
  // span.
  explicit mapped_file(const std::string& path, const std::string& remedy = "");
  ~mapped_file();
  mapped_file(mapped_file&& other) noexcept;
  mapped_file& operator=(mapped_file&& other) noexcept;
  mapped_file(const mapped_file&) = delete;
  mapped_file& operator=(const mapped_file&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

} // namespace troupe
