// The safetensors container: 8 bytes header length (little endian), a JSON header, then the tensors' bytes without
// holes. Reading maps the file and checks everything before any tensor is handed out; writing is atomic.
#pragma once
#include "runtime/base/result.hpp"
#include "runtime/model/mapped_file.hpp"
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

enum class tensor_type : std::uint8_t {
  f32,
  bf16,
  f16,
  f64,
  f8_e4m3,
  f8_e5m2,
  f8_e8m0,
  i8,
  u8,
  i16,
  u16,
  i32,
  u32,
  i64,
  u64,
  boolean // as stored, little endian
};

std::string_view name_of(tensor_type type); // "F8_E4M3"
std::size_t size_of(tensor_type type);      // bytes of one element

// A named tensor in host memory that somebody else owns. The bytes can start at any address: a file may place an F32
// tensor behind an odd number of bytes. Copy them out (read_f32) instead of casting the pointer.
struct host_tensor {
  std::string name;
  tensor_type dtype = tensor_type::u8;
  std::vector<std::int64_t> shape; // row-major
  std::span<const std::byte> bytes;
};

std::string describe(const host_tensor& tensor); // "F32 [3, 4]"
std::int64_t element_count(const host_tensor& tensor);

// All elements widened to fp32, exactly. Only for F32, BF16 and F16 tensors.
std::vector<float> read_f32(const host_tensor& tensor);

// Tensors of a safetensors image, in order of their bytes. Throws config_error(file, tensor name, ...) unless the
// header is well formed and the tensors fill the rest of the image exactly.
std::vector<host_tensor> parse_safetensors(std::span<const std::byte> image, const std::string& file);

// One mapped file. Tensors stay valid as long as this object.
class safetensors_file {
public:
  explicit safetensors_file(const std::string& path);

  const std::vector<host_tensor>& tensors() const& { return tensors_; }
  const std::vector<host_tensor>& tensors() const&& = delete; // would outlive the mapping
  const host_tensor* find(std::string_view name) const;       // null if absent

private:
  mapped_file file_;
  std::vector<host_tensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

// Types and shapes of a file's tensors from its header alone, in order of their bytes; `bytes` of each is empty. The
// data may be absent or cut off. Throws config_error unless the header is whole and well formed.
std::vector<host_tensor> read_safetensors_header(const std::string& path);

// Writes a file from beginning to end without holding its data: the header is known first, the tensors' bytes follow in
// the same order. The file appears under its name with commit(); until then, and without it, there is only a temporary
// beside it, which goes with the object.
class safetensors_writer {
public:
  // `tensors` give names, types and shapes; their bytes are not looked at. Failures of all calls: "write_failed" with
  // the system's reason, for example a full disk.
  static result<safetensors_writer> create(const std::string& path, std::span<const host_tensor> tensors,
                                           const std::map<std::string, std::string>& metadata = {});
  safetensors_writer(safetensors_writer&&) noexcept;
  safetensors_writer& operator=(safetensors_writer&&) noexcept;
  ~safetensors_writer();

  status append(std::span<const std::byte> bytes);
  status commit(); // all bytes must be there; on disk when this returns

private:
  struct file;
  explicit safetensors_writer(std::unique_ptr<file> f);
  std::unique_ptr<file> file_;
};

// The whole file at once, by the same rules.
status write_safetensors(const std::string& path, std::span<const host_tensor> tensors,
                         const std::map<std::string, std::string>& metadata = {});

} // namespace troupe
