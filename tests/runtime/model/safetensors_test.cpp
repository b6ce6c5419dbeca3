#include "runtime/model/safetensors.hpp"
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sys/resource.h>

namespace fs = std::filesystem;
using namespace troupe;

namespace {

struct temp_folder {
  fs::path path;
  temp_folder() {
    std::string pattern = (fs::temp_directory_path() / "troupe-XXXXXX").string();
    BOOST_REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path = pattern;
  }
  ~temp_folder() { fs::remove_all(path); }
};

std::vector<std::byte> bytes_of(const std::string& s) {
  std::vector<std::byte> b(s.size());
  if (!s.empty())
    std::memcpy(b.data(), s.data(), s.size());
  return b;
}

std::vector<std::byte> read_all(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return bytes_of({std::istreambuf_iterator<char>(in), {}});
}

std::vector<std::byte> image_of(const std::string& header, const std::string& data) {
  const std::uint64_t n = header.size();
  std::string s(8, '\0');
  std::memcpy(s.data(), &n, 8);
  return bytes_of(s + header + data);
}

std::string why(std::span<const std::byte> image) {
  try {
    parse_safetensors(image, "x.safetensors");
  } catch (const config_error& e) {
    return e.what();
  }
  return "accepted";
}

// Three tensors, one of them without elements.
std::vector<std::byte> small_image() {
  return image_of(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[1,9]},)"
      R"("b":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},"empty":{"dtype":"I64","shape":[0,5],"data_offsets":[1,1]}})",
      std::string("\x07\0\0\x80\x3f\0\0\0\xc0", 9));
}

} // namespace

BOOST_AUTO_TEST_SUITE(safetensors)

BOOST_AUTO_TEST_CASE(reads_names_types_shapes_and_bytes) {
  const auto image = small_image();
  const auto tensors = parse_safetensors(image, "x");
  BOOST_REQUIRE(tensors.size() == 3u);
  BOOST_TEST(tensors[0].name == "b");
  BOOST_TEST(tensors[1].name == "empty");
  BOOST_TEST(tensors[1].shape == (std::vector<std::int64_t>{0, 5}));
  BOOST_TEST(tensors[2].name == "a");
  BOOST_TEST(describe(tensors[2]) == "F32 [2,1]");
  BOOST_TEST(read_f32(tensors[2]) == (std::vector<float>{1.0f, -2.0f})); // at an odd address
  BOOST_TEST((tensors[0].bytes[0] == std::byte{7}));
  BOOST_TEST(element_count(tensors[1]) == 0);
}

BOOST_AUTO_TEST_CASE(widens_half_precision_exactly) {
  const std::uint16_t half[] = {0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x3c00, 0xc100, 0x7bff, 0x7c00};
  host_tensor t{"h", tensor_type::f16, {9}, std::as_bytes(std::span(half))};
  const std::vector<float> expected{0.0f, -0.0f, 0x1p-24f, -0x3ffp-24f, 0x1p-14f, 1.0f, -2.5f, 65504.0f, INFINITY};
  BOOST_TEST(read_f32(t) == expected);
  const std::uint16_t brain[] = {0x3f80, 0xc040, 0x0001};
  t = {"b", tensor_type::bf16, {3}, std::as_bytes(std::span(brain))};
  BOOST_TEST(read_f32(t) == (std::vector<float>{1.0f, -3.0f, 0x1p-133f}));
}

BOOST_AUTO_TEST_CASE(every_truncation_is_refused) {
  const auto image = small_image();
  for (std::size_t n = 0; n < image.size(); ++n) {
    std::vector<std::byte> cut(image.begin(),
                               image.begin() + static_cast<std::ptrdiff_t>(n)); // own block, for the address checker
    BOOST_TEST(why(cut) != "accepted", "truncated to " << n);
  }
  BOOST_TEST(why(image) == "accepted");
  for (std::uint64_t length :
       {std::uint64_t{image.size()} - 7, std::uint64_t{image.size()}, UINT64_MAX, UINT64_MAX - 7}) {
    auto longer = image;
    std::memcpy(longer.data(), &length, 8);
    BOOST_TEST(why(longer).find("the header is said to have") != std::string::npos, why(longer));
  }
}

BOOST_AUTO_TEST_CASE(damaged_headers_are_refused_or_stay_inside_the_image) {
  const auto image = small_image();
  std::mt19937 random(7);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    auto damaged = image;
    for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips)
      damaged[random() % (image.size() - 9)] ^= static_cast<std::byte>(1u << random() % 8);
    try {
      std::size_t total = 0;
      for (const auto& t : parse_safetensors(damaged, "x")) {
        BOOST_REQUIRE(t.bytes.data() >= damaged.data());
        BOOST_REQUIRE(t.bytes.data() + t.bytes.size() <= damaged.data() + damaged.size());
        for (std::byte b : t.bytes)
          total += static_cast<std::size_t>(b);
      }
      accepted += total > 0;
    } catch (const config_error&) {
    }
  }
  BOOST_TEST(accepted > 0); // a flip inside a name or the metadata is no damage to the container
  BOOST_TEST(accepted < 10000);
}

BOOST_AUTO_TEST_CASE(malformed_entries_are_named) {
  auto one = [](const std::string& entry, std::size_t bytes = 8) {
    return why(image_of("{\"w\":" + entry + "}", std::string(bytes, 'x')));
  };
  BOOST_TEST(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})") == "accepted");
  const std::pair<const char*, const char*> table[] = {
      {R"({"dtype":"F33","shape":[2],"data_offsets":[0,8]})", "unknown dtype"},
      {R"({"dtype":4,"shape":[2],"data_offsets":[0,8]})", "unknown dtype"},
      {R"({"dtype":"F32","data_offsets":[0,8]})", "entry needs"},
      {R"([1,2])", "entry needs"},
      {R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})", "no size"},
      {R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})", "no size"},
      {R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})", "list"},
      {R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})", "needs 12 bytes"},
      {R"({"dtype":"F32","shape":[4611686018427387906],"data_offsets":[0,8]})", "overflows"},
      {R"({"dtype":"I8","shape":[4294967296,4294967296,8],"data_offsets":[0,8]})", "overflows"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})", "outside"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[8,16]})", "outside"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[18446744073709551612,4]})", "outside"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0]})", "two numbers"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})", "hole"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})", "behind the last"},
  };
  for (const auto& [entry, reason] : table)
    BOOST_TEST(one(entry).find(reason) != std::string::npos, entry << " gave " << one(entry));
  BOOST_TEST(
      why(image_of(
              R"({"a":{"dtype":"I8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"I8","shape":[2],"data_offsets":[2,4]}})",
              "xxxx"))
          .find("b: its bytes overlap") != std::string::npos);
  BOOST_TEST(why(image_of(std::string(200000, '['), "")) != "accepted");
}

BOOST_AUTO_TEST_CASE(files_that_cannot_be_mapped) {
  const temp_folder folder;
  BOOST_CHECK_THROW(safetensors_file(folder.path / "absent"), config_error);
  BOOST_CHECK_THROW(safetensors_file(folder.path.string()), config_error); // a folder
  std::ofstream(folder.path / "empty").flush();
  BOOST_CHECK_THROW(safetensors_file(folder.path / "empty"), config_error);
}

BOOST_AUTO_TEST_CASE(written_files_are_read_back) {
  const temp_folder folder;
  const std::string path = folder.path / "out.safetensors";
  const float logits[] = {1.5f, -2.25f, 3.0f, 0.0f, 5.0f, 6.0f};
  const std::int32_t ids[] = {7, 8};
  const host_tensor tensors[] = {{"ids", tensor_type::i32, {2}, std::as_bytes(std::span(ids))},
                                 {"logits", tensor_type::f32, {2, 3}, std::as_bytes(std::span(logits))}};
  BOOST_REQUIRE(write_safetensors(path, tensors, {{"numerics", "serving"}}));
  const safetensors_file file(path);
  BOOST_REQUIRE(file.find("logits") != nullptr);
  BOOST_TEST(read_f32(*file.find("logits")) == std::vector<float>(logits, logits + 6));
  BOOST_TEST(describe(*file.find("ids")) == "I32 [2]");
  BOOST_TEST(file.find("absent") == nullptr);
  std::uint64_t length;
  std::memcpy(&length, read_all(path).data(), 8);
  BOOST_TEST(length % 8 == 0u);
  BOOST_TEST(std::distance(fs::directory_iterator(folder.path), {}) == 1); // no temporary left
  const host_tensor wrong[] = {{"x", tensor_type::f32, {7}, std::as_bytes(std::span(logits))}};
  BOOST_TEST(!write_safetensors(path, wrong));
}

// A limit on file sizes stands for a full disk: write() fails in the same place.
BOOST_AUTO_TEST_CASE(a_failed_write_leaves_the_old_file) {
  const temp_folder folder;
  const std::string path = folder.path / "out.safetensors";
  const std::vector<float> small(4, 1.0f), large(100000, 2.0f);
  const host_tensor first[] = {{"x", tensor_type::f32, {4}, std::as_bytes(std::span(small))}};
  const host_tensor second[] = {{"x", tensor_type::f32, {100000}, std::as_bytes(std::span(large))}};
  BOOST_REQUIRE(write_safetensors(path, first));
  const auto before = read_all(path);
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  const rlimit low{4096, old.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &low);
  const status failed = write_safetensors(path, second);
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  BOOST_REQUIRE(!failed);
  BOOST_TEST(failed.failure().message.find(path) != std::string::npos);
  BOOST_TEST((read_all(path) == before));
  BOOST_TEST(std::distance(fs::directory_iterator(folder.path), {}) == 1);
  BOOST_TEST(!write_safetensors((folder.path / "absent" / "x").string(), first));
}

BOOST_AUTO_TEST_CASE(golden_files_are_readable) {
  const safetensors_file file(TROUPE_TEST_DATA "/model/golden/one_token.safetensors");
  BOOST_TEST(describe(*file.find("raw.logits")) == "F32 [1,8192]");
  BOOST_TEST((file.find("ids")->dtype == tensor_type::i32));
}

BOOST_AUTO_TEST_SUITE_END()
