#include "runtime/model/safetensors.hpp"
#include "runtime/base/check.hpp"
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

namespace troupe {
namespace {

using json = nlohmann::json;

constexpr std::uint64_t max_header_bytes = 100'000'000; // the limit of the reference implementation
const char* const remedy = "the file is damaged or incomplete: copy or download it again";

struct type_info {
  tensor_type type;
  std::string_view name;
  std::size_t size;
};
constexpr std::array<type_info, 16> types{{
    {tensor_type::f32, "F32", 4},
    {tensor_type::bf16, "BF16", 2},
    {tensor_type::f16, "F16", 2},
    {tensor_type::f64, "F64", 8},
    {tensor_type::f8_e4m3, "F8_E4M3", 1},
    {tensor_type::f8_e5m2, "F8_E5M2", 1},
    {tensor_type::f8_e8m0, "F8_E8M0", 1},
    {tensor_type::i8, "I8", 1},
    {tensor_type::u8, "U8", 1},
    {tensor_type::i16, "I16", 2},
    {tensor_type::u16, "U16", 2},
    {tensor_type::i32, "I32", 4},
    {tensor_type::u32, "U32", 4},
    {tensor_type::i64, "I64", 8},
    {tensor_type::u64, "U64", 8},
    {tensor_type::boolean, "BOOL", 1},
}};

const type_info& info(tensor_type type) {
  return types[static_cast<std::size_t>(type)];
}

// A tensor and the place of its bytes behind the header.
struct entry {
  host_tensor tensor;
  std::uint64_t begin = 0, end = 0;
};

// Reads the header's entries; `fail` prefixes the file.
class header_reader {
public:
  header_reader(const std::string& file, std::uint64_t data_bytes) : file_(file), data_bytes_(data_bytes) {}

  // Sorted by place, without holes or overlaps from the start of the data on.
  std::vector<entry> entries(std::string_view text) const {
    json header;
    try {
      header = json::parse(text);
    } catch (const json::exception& e) {
      fail("", std::string("the header is not valid JSON: ") + e.what());
    }
    if (!header.is_object())
      fail("", "the header is not a JSON object");
    std::vector<entry> list;
    for (const auto& [name, e] : header.items())
      if (name != "__metadata__")
        list.push_back(one(name, e));
    // By the start of the bytes, then by their end, so that empty tensors come before the one that starts at the same
    // place.
    std::sort(list.begin(), list.end(),
              [](const entry& a, const entry& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
    std::uint64_t end = 0;
    for (const entry& e : list) {
      if (e.begin != end)
        fail(e.tensor.name,
             e.begin < end ? "its bytes overlap those of another tensor" : "there is a hole before its bytes");
      end = e.end;
    }
    return list;
  }

  [[noreturn]] void fail(const std::string& name, const std::string& why) const {
    throw config_error(file_, name, "", why, remedy);
  }

private:
  entry one(const std::string& name, const json& e) const {
    if (!e.is_object() || !e.contains("dtype") || !e.contains("shape") || !e.contains("data_offsets"))
      fail(name, "entry needs dtype, shape and data_offsets");
    entry out;
    host_tensor& t = out.tensor;
    t.name = name;
    const auto type = std::find_if(types.begin(), types.end(),
                                   [&](const type_info& i) { return e["dtype"] == json(std::string(i.name)); });
    if (type == types.end())
      throw config_error(file_, name, e["dtype"].dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 60),
                         "unknown dtype", remedy);
    t.dtype = type->type;
    if (!e["shape"].is_array() || e["shape"].size() > 8)
      fail(name, "shape must be a list of at most 8 numbers");
    std::uint64_t bytes = type->size;
    for (const json& d : e["shape"]) {
      if (!d.is_number_unsigned() || d.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX))
        fail(name, "shape holds a value that is no size");
      t.shape.push_back(d.get<std::int64_t>());
      if (__builtin_mul_overflow(bytes, d.get<std::uint64_t>(), &bytes))
        fail(name, "the size of the shape overflows");
    }
    const json& at = e["data_offsets"];
    if (!at.is_array() || at.size() != 2 || !at[0].is_number_unsigned() || !at[1].is_number_unsigned())
      fail(name, "data_offsets must be two numbers");
    out.begin = at[0].get<std::uint64_t>(), out.end = at[1].get<std::uint64_t>();
    if (out.begin > out.end || out.end > data_bytes_)
      fail(name, "bytes " + std::to_string(out.begin) + " to " + std::to_string(out.end) + " lie outside the file's " +
                     std::to_string(data_bytes_) + " data bytes");
    if (out.end - out.begin != bytes)
      fail(name, "the shape needs " + std::to_string(bytes) + " bytes but " + std::to_string(out.end - out.begin) +
                     " are given");
    return out;
  }

  const std::string& file_;
  std::uint64_t data_bytes_; // behind the header
};

// The header's text at the start of an image, whose data may be cut off.
std::string_view header_text(std::span<const std::byte> image, const std::string& file) {
  const header_reader whole(file, 0);
  if (image.size() < 8)
    whole.fail("", "has " + std::to_string(image.size()) + " bytes, too few for a safetensors file");
  std::uint64_t length;
  std::memcpy(&length, image.data(), 8);
  if (length > max_header_bytes || length > image.size() - 8)
    whole.fail("", "the header is said to have " + std::to_string(length) + " bytes in a file of " +
                       std::to_string(image.size()));
  return {reinterpret_cast<const char*>(image.data() + 8), length};
}

float half_to_float(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16, exponent = (h >> 10) & 31u,
                      fraction = h & 0x3ffu;
  if (exponent == 0) { // zero and subnormals: fraction * 2^-24, exact in fp32
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 31 ? 255u : exponent + 112u;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

} // namespace

std::string_view name_of(tensor_type type) {
  return info(type).name;
}
std::size_t size_of(tensor_type type) {
  return info(type).size;
}

std::string describe(const host_tensor& tensor) {
  return std::string(name_of(tensor.dtype)) + " " + json(tensor.shape).dump();
}

std::int64_t element_count(const host_tensor& tensor) {
  return static_cast<std::int64_t>(tensor.bytes.size() / size_of(tensor.dtype));
}

std::vector<float> read_f32(const host_tensor& t) {
  std::vector<float> out(static_cast<std::size_t>(element_count(t)));
  if (t.dtype == tensor_type::f32) {
    if (!out.empty())
      std::memcpy(out.data(), t.bytes.data(), t.bytes.size());
    return out;
  }
  TROUPE_CHECK(t.dtype == tensor_type::bf16 || t.dtype == tensor_type::f16, "read_f32: not a floating-point tensor");
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, t.bytes.data() + 2 * i, 2);
    out[i] = t.dtype == tensor_type::bf16 ? std::bit_cast<float>(std::uint32_t{bits} << 16) : half_to_float(bits);
  }
  return out;
}

std::vector<host_tensor> parse_safetensors(std::span<const std::byte> image, const std::string& file) {
  const std::string_view text = header_text(image, file);
  const auto data = image.subspan(8 + text.size());
  const header_reader reader(file, data.size());
  std::vector<host_tensor> tensors;
  std::uint64_t end = 0;
  for (entry& e : reader.entries(text)) {
    e.tensor.bytes = data.subspan(e.begin, e.end - e.begin);
    end = e.end;
    tensors.push_back(std::move(e.tensor));
  }
  if (end != data.size())
    reader.fail("", "has bytes behind the last tensor");
  return tensors;
}

std::vector<host_tensor> read_safetensors_header(const std::string& path) {
  const mapped_file file(path, "check that the checkpoint folder is complete");
  std::vector<host_tensor> tensors;
  for (entry& e : header_reader(path, UINT64_MAX).entries(header_text(file.bytes(), path)))
    tensors.push_back(std::move(e.tensor));
  return tensors;
}

safetensors_file::safetensors_file(const std::string& path)
    : file_(path, "check that the checkpoint folder is complete"), tensors_(parse_safetensors(file_.bytes(), path)) {
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    index_.emplace(tensors_[i].name, i);
}

const host_tensor* safetensors_file::find(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

} // namespace troupe
