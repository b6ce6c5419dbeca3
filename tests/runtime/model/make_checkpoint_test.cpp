#include "runtime/base/number_formats.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/sha256.hpp"
#include "runtime/model/checkpoint.hpp"
#include "runtime/model/config.hpp"
#include "runtime/model/generated_weights.hpp"
#include "runtime/model/make_checkpoint.hpp"
#include "runtime/model/reduced_config.hpp"
#include "tests/support/process.hpp"
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <sys/resource.h>

namespace fs = std::filesystem;
using namespace troupe;
using test_support::read_text;
using test_support::temporary_folder;

namespace {

const std::string tiny_folder = TROUPE_SOURCE_DIR "/models/tiny-v41";

std::vector<std::byte> whole(const generated_tensor& t) {
  std::vector<std::byte> bytes(t.bytes());
  t.fill(0, bytes);
  return bytes;
}

std::string digest(const std::vector<std::byte>& bytes) {
  return to_hex(sha256_of({reinterpret_cast<const char*>(bytes.data()), bytes.size()})).substr(0, 16);
}

checkpoint_recipe tiny_recipe(const std::string& folder) {
  model_reduction r;
  r.layers = -1;
  r.experts = 4;
  r.drafter_experts = 2;
  r.engram_vocab = 100;
  const auto base = nlohmann::ordered_json::parse(read_text(tiny_folder + "/config.json"));
  checkpoint_recipe recipe;
  recipe.folder = folder;
  recipe.config_text = reduced_config(base, "config.json", r, 5687).dump(1);
  recipe.config_file = "config.json";
  recipe.tokenizer = tiny_folder + "/tokenizer.json";
  recipe.shard_bytes = 1 << 20;
  return recipe;
}

bool go_on(std::uint64_t, std::uint64_t) {
  return true;
}

std::string refusal(const checkpoint_recipe& recipe) {
  try {
    make_checkpoint(recipe, go_on);
  } catch (const config_error& e) {
    return e.what();
  }
  return "accepted";
}

double deviation(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const double v : values)
    sum += v, squares += v * v;
  const double mean = sum / static_cast<double>(values.size());
  return std::sqrt(squares / static_cast<double>(values.size()) - mean * mean);
}

} // namespace

BOOST_AUTO_TEST_SUITE(model_make_checkpoint)

// Digests made on one machine: another one, or another compiler, must make the same bytes.
BOOST_AUTO_TEST_CASE(the_same_bytes_on_every_machine) {
  const model_config c = load_config(tiny_folder);
  const auto of = [&](const expected_tensor& t, std::uint64_t seed) { return digest(whole({t, c, seed})); };
  const expected_tensor fp8{"layers.0.attn.wq_a.weight", tensor_type::f8_e4m3, {192, 384}},
      scale{"layers.0.attn.wq_a.scale", tensor_type::f8_e8m0, {6, 12}},
      fp4{"layers.3.ffn.experts.5.w1.weight", tensor_type::i8, {128, 192}},
      bf16{"head.weight", tensor_type::bf16, {100, 384}}, f32{"layers.2.hc_ffn_base", tensor_type::f32, {24}};
  BOOST_TEST(of(fp8, 0) == "6a4aa18c96891f5f");
  BOOST_TEST(of(scale, 0) == "3d5c9cd9d07de484");
  BOOST_TEST(of(fp4, 0) == "316280eda988dde8");
  BOOST_TEST(of(bf16, 0) == "0270311f88fc90d9");
  BOOST_TEST(of(f32, 0) == "66a16b52444e567a");
  BOOST_TEST(of(fp8, 1) != of(fp8, 0));
  expected_tensor other = fp8;
  other.name = "layers.1.attn.wq_a.weight";
  BOOST_TEST(of(other, 0) != of(fp8, 0));
}

BOOST_AUTO_TEST_CASE(pieces_are_parts_of_the_whole) {
  const model_config c = load_config(tiny_folder);
  for (const tensor_type type : {tensor_type::f8_e4m3, tensor_type::i8, tensor_type::bf16, tensor_type::f32}) {
    const generated_tensor t({"layers.0.x.weight", type, {3, 333}}, c, 9);
    const auto all = whole(t);
    std::vector<std::byte> joined(all.size());
    for (std::size_t at = 0; at < all.size(); at += 112)
      t.fill(at, std::span(joined).subspan(at, std::min<std::size_t>(112, all.size() - at)));
    BOOST_TEST((joined == all));
  }
}

// A matrix keeps the magnitude of its input, whatever its format: deviation about 1 / sqrt(inputs).
BOOST_AUTO_TEST_CASE(spreads_follow_from_the_sizes) {
  const model_config c = load_config(tiny_folder);
  for (const std::int64_t inputs : {384, 1280, 5120}) {
    const double wanted = 1 / std::sqrt(static_cast<double>(inputs));
    const auto fp8 = whole({{"layers.0.attn.wq_a.weight", tensor_type::f8_e4m3, {64, inputs}}, c, 3});
    const auto scale = whole({{"layers.0.attn.wq_a.scale", tensor_type::f8_e8m0, {2, inputs / 32}}, c, 3});
    std::vector<double> values;
    for (std::int64_t r = 0; r < 64; ++r)
      for (std::int64_t k = 0; k < inputs; ++k) {
        const auto code = static_cast<std::uint8_t>(fp8[static_cast<std::size_t>(r * inputs + k)]);
        BOOST_REQUIRE((code & 0x7f) != 0x7f);
        values.push_back(static_cast<double>(f32_from_e4m3(code)) *
                         static_cast<double>(f32_from_ue8m0(static_cast<std::uint8_t>(
                             scale[static_cast<std::size_t>(r / 32 * (inputs / 32) + k / 32)]))));
      }
    BOOST_TEST(deviation(values) / wanted > 0.6);
    BOOST_TEST(deviation(values) / wanted < 1.4);
    values.clear();
    const auto fp4 = whole({{"layers.0.ffn.experts.0.w1.weight", tensor_type::i8, {64, inputs / 2}}, c, 3});
    const auto step = whole({{"layers.0.ffn.experts.0.w1.scale", tensor_type::f8_e8m0, {64, inputs / 32}}, c, 3});
    for (std::int64_t i = 0; i < 64 * inputs; ++i) {
      const auto pair = static_cast<std::uint8_t>(fp4[static_cast<std::size_t>(i / 2)]);
      values.push_back(
          static_cast<double>(f32_from_e2m1(static_cast<std::uint8_t>(i % 2 == 0 ? pair & 15 : pair >> 4))) *
          static_cast<double>(f32_from_ue8m0(static_cast<std::uint8_t>(step[static_cast<std::size_t>(i / 32)]))));
    }
    BOOST_TEST(deviation(values) / wanted > 0.6);
    BOOST_TEST(deviation(values) / wanted < 1.4);
  }
  // The codes of e4m3 that are made are whole numbers from -15 to 15.
  std::set<float> seen;
  for (const std::byte b : whole({{"layers.0.attn.wkv.weight", tensor_type::f8_e4m3, {64, 384}}, c, 3}))
    seen.insert(f32_from_e4m3(static_cast<std::uint8_t>(b)));
  BOOST_TEST(seen.size() == 31u);
  BOOST_TEST(*seen.begin() == -15.0f);
  BOOST_TEST(*seen.rbegin() == 15.0f);
}

BOOST_AUTO_TEST_CASE(a_made_checkpoint_loads) {
  const temporary_folder folder;
  std::uint64_t last = 0, total = 0;
  const checkpoint_recipe recipe = tiny_recipe(folder / "made");
  const made_checkpoint made = make_checkpoint(recipe, [&](std::uint64_t done, std::uint64_t all) {
    BOOST_TEST(done > last);
    last = done, total = all;
    return true;
  });
  BOOST_TEST(last == total);
  BOOST_TEST(made.bytes == total);
  BOOST_TEST(made.shards > 5);
  const checkpoint loaded(folder / "made");
  BOOST_TEST(loaded.total_bytes() == static_cast<std::int64_t>(total));
  BOOST_TEST(describe(loaded.get("layers.1.engram.embed.weight")).starts_with("F8_E4M3"));
  for (const float v : read_f32(loaded.get("layers.1.attn.q_norm.weight"))) {
    BOOST_TEST(v > 0.4f);
    BOOST_TEST(v < 1.6f);
  }
  // Weight and scale stand in the same shard.
  for (const shard_plan& s : plan_shards(loaded.config(), recipe.shard_bytes))
    for (std::size_t i = 0; i < s.tensors.size(); ++i)
      if (s.tensors[i].name.ends_with(".scale")) {
        BOOST_REQUIRE(i > 0);
        BOOST_TEST(s.tensors[i - 1].name == s.tensors[i].name.substr(0, s.tensors[i].name.size() - 5) + "weight");
      }
  make_checkpoint(tiny_recipe(folder / "again"), go_on);
  for (const auto& entry : fs::directory_iterator(folder / "made"))
    BOOST_TEST((read_text(entry.path()) == read_text(fs::path(folder / "again") / entry.path().filename())),
               entry.path());
}

BOOST_AUTO_TEST_CASE(an_existing_folder_is_left_alone) {
  const temporary_folder folder;
  fs::create_directory(folder / "there");
  test_support::write_text(folder / "there/a", "mine");
  BOOST_TEST(refusal(tiny_recipe(folder / "there")).find("is there already") != std::string::npos);
  BOOST_TEST(refusal(tiny_recipe(folder / "there/a")).find("is there already") != std::string::npos);
  BOOST_TEST(read_text(folder / "there/a") == "mine");
  fs::remove(folder / "there/a");
  BOOST_TEST(refusal(tiny_recipe(folder / "there")) == "accepted"); // an empty one is fine
}

BOOST_AUTO_TEST_CASE(what_is_interrupted_vanishes) {
  const temporary_folder folder;
  int calls = 0;
  const made_checkpoint made =
      make_checkpoint(tiny_recipe(folder / "made"), [&](std::uint64_t, std::uint64_t) { return ++calls < 40; });
  BOOST_TEST(made.tensors == 0);
  BOOST_TEST(!fs::exists(folder / "made"));
  fs::create_directory(folder / "empty");
  calls = 0;
  make_checkpoint(tiny_recipe(folder / "empty"), [&](std::uint64_t, std::uint64_t) { return ++calls < 40; });
  BOOST_TEST(fs::is_empty(folder / "empty"));
}

// A limit on file sizes stands for a disk that becomes full: write() fails in the same place.
BOOST_AUTO_TEST_CASE(a_full_disk_is_named_and_nothing_stays) {
  const temporary_folder folder;
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  const rlimit low{800000, old.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &low);
  const std::string text = refusal(tiny_recipe(folder / "made"));
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  BOOST_TEST(text.find("model-00001-of-") != std::string::npos, text);
  BOOST_TEST(text.find("cannot be written") != std::string::npos, text);
  BOOST_TEST(!fs::exists(folder / "made"));
}

BOOST_AUTO_TEST_CASE(too_little_space_is_seen_before) {
  try {
    expect_space("here", 1000, 999);
    BOOST_ERROR("accepted");
  } catch (const config_error& e) {
    BOOST_TEST(std::string(e.what()).find("here: the checkpoint needs 1000 bytes of disk, 999 bytes are available") ==
               0u);
  }
  expect_space("here", 1000, 1000);
  const temporary_folder folder;
  checkpoint_recipe huge = tiny_recipe(folder / "made");
  auto config = nlohmann::ordered_json::parse(huge.config_text);
  model_reduction r;
  r.engram_vocab = 1 << 29; // 400 GiB of rows
  r.set = {{"engram_n_heads", "64"}};
  huge.config_text = reduced_config(config, "config.json", r, 5687).dump();
  BOOST_TEST(refusal(huge).find("bytes are available; free space") != std::string::npos, refusal(huge));
  BOOST_TEST(!fs::exists(folder / "made"));
}

BOOST_AUTO_TEST_SUITE_END()
