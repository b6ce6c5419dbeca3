#include "runtime/model/checkpoint.hpp"
#include "runtime/model/expected_tensors.hpp"
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

namespace fs = std::filesystem;
using namespace troupe;
using nlohmann::json;

namespace {

const std::string tiny_folder = TROUPE_SOURCE_DIR "/models/tiny-v41";
const std::string tiny_shard = tiny_folder + "/model-00001-of-00001.safetensors";

struct temp_folder {
  fs::path path;
  temp_folder() {
    std::string pattern = (fs::temp_directory_path() / "troupe-XXXXXX").string();
    BOOST_REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path = pattern;
    fs::copy_file(tiny_folder + "/config.json", path / "config.json");
  }
  ~temp_folder() { fs::remove_all(path); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(path / name) << text; }
};

std::string failure(const std::string& folder) {
  try {
    const checkpoint c(folder);
  } catch (const config_error& e) {
    return e.what();
  }
  return "accepted";
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The embedded model as two shards with an index, after `change` had its way with the tensors (those of the second
// shard start at "m") and with the index.
std::string failure_after(const std::function<void(std::vector<host_tensor>&)>& change,
                          const std::function<void(json&)>& change_index = {}) {
  const temp_folder folder;
  const safetensors_file original(tiny_shard);
  std::vector<host_tensor> tensors = original.tensors();
  change(tensors);
  std::vector<host_tensor> shards[2];
  json index;
  for (const auto& t : tensors) {
    const std::size_t at = t.name >= "m" ? 1 : 0;
    shards[at].push_back(t);
    index["weight_map"][t.name] = at ? "b.safetensors" : "a.safetensors";
  }
  if (change_index)
    change_index(index);
  BOOST_REQUIRE(write_safetensors(folder.path / "a.safetensors", shards[0]));
  BOOST_REQUIRE(write_safetensors(folder.path / "b.safetensors", shards[1]));
  folder.write("model.safetensors.index.json", index.dump());
  return failure(folder.path);
}

host_tensor& named(std::vector<host_tensor>& tensors, const std::string& name) {
  const auto it = std::find_if(tensors.begin(), tensors.end(), [&](const host_tensor& t) { return t.name == name; });
  BOOST_REQUIRE(it != tensors.end());
  return *it;
}

void remove_tensors(std::vector<host_tensor>& tensors, const std::function<bool(const std::string&)>& which) {
  std::erase_if(tensors, [&](const host_tensor& t) { return which(t.name); });
}

} // namespace

BOOST_AUTO_TEST_SUITE(model_checkpoint)

BOOST_AUTO_TEST_CASE(the_embedded_model_is_complete) {
  const checkpoint c(tiny_folder);
  BOOST_TEST(c.config().hidden_size == 384);
  BOOST_TEST(describe(c.get("embed.weight")) == "BF16 [8192,384]");
  const auto w = c.quantised("layers.3.ffn.experts.23.w1");
  BOOST_TEST(describe(w.data) == "I8 [128,192]");
  BOOST_TEST(describe(w.scale) == "F8_E8M0 [128,12]");
  BOOST_CHECK_THROW(c.get("layers.0.engram.wkv.weight"), config_error);
  std::int64_t bytes = 0;
  const safetensors_file shard(tiny_shard);
  for (const auto& t : shard.tensors())
    bytes += static_cast<std::int64_t>(t.bytes.size());
  BOOST_TEST(c.total_bytes() == bytes);
}

BOOST_AUTO_TEST_CASE(rows_are_views_of_the_table) {
  const checkpoint c(tiny_folder);
  const host_tensor& table = c.get("layers.1.engram.embed.weight");
  const host_tensor part = c.rows("layers.1.engram.embed.weight", 24000, 64);
  BOOST_TEST(describe(part) == "F8_E4M3 [64,64]");
  BOOST_TEST((part.bytes.data() == table.bytes.data() + 24000 * 64));
  BOOST_TEST((part.bytes.data() + part.bytes.size() == table.bytes.data() + table.bytes.size()));
  BOOST_TEST(describe(c.rows("layers.1.engram.embed.scale", 5, 1)) == "F8_E8M0 [1,2]");
  BOOST_TEST(c.rows("layers.1.engram.embed.weight", 24064, 0).bytes.empty());
}

// Names, types and shapes of the released checkpoint as model.md §10 lists them, derived from its configuration alone.
BOOST_AUTO_TEST_CASE(expected_tensors_of_the_released_model) {
  std::ifstream in(TROUPE_SOURCE_DIR "/models/v41-flash/config.json");
  std::stringstream text;
  text << in.rdbuf();
  const auto list = expected_tensors(parse_config(text.str(), "config.json"));
  std::map<std::string, std::string> by_name;
  for (const auto& t : list)
    by_name[t.name] = describe({"", t.dtype, t.shape, {}});
  BOOST_TEST(by_name.size() == list.size());
  const std::pair<const char*, const char*> table[] = {
      {"embed.weight", "BF16 [129280,5120]"},
      {"norm.weight", "BF16 [5120]"},
      {"layers.0.hc_attn_fn", "F32 [24,20480]"},
      {"layers.39.hc_ffn_scale", "F32 [3]"},
      {"layers.0.attn.wq_a.scale", "F8_E8M0 [40,160]"},
      {"layers.0.attn.wq_b.weight", "F8_E4M3 [32768,1280]"},
      {"layers.0.attn.wq_b.scale", "F8_E8M0 [1024,40]"},
      {"layers.0.attn.wkv.scale", "F8_E8M0 [16,160]"},
      {"layers.0.attn.wo_a.weight", "F8_E4M3 [8192,4096]"},
      {"layers.0.attn.wo_a.scale", "F8_E8M0 [256,128]"},
      {"layers.0.attn.wo_b.scale", "F8_E8M0 [160,256]"},
      {"layers.14.attn.compressor.wgate.weight", "BF16 [512,5120]"},
      {"layers.20.attn.compressor.wkv.weight", "BF16 [512,5120]"},
      {"layers.36.attn.indexer.wq_b.scale", "F8_E8M0 [128,40]"},
      {"layers.36.attn.indexer.weights_proj.weight", "BF16 [32,5120]"},
      {"layers.20.attn.indexer.wk.weight", "BF16 [128,512]"},
      {"layers.20.attn.indexer.k_norm.weight", "BF16 [128]"},
      {"layers.39.ffn.gate.bias_vl", "F32 [384]"},
      {"layers.39.ffn.experts.383.w3.weight", "I8 [2304,2560]"},
      {"layers.39.ffn.experts.383.w3.scale", "F8_E8M0 [2304,160]"},
      {"layers.39.ffn.experts.383.w2.weight", "I8 [5120,1152]"},
      {"layers.39.ffn.experts.383.w2.scale", "F8_E8M0 [5120,72]"},
      {"layers.0.ffn.shared_experts.w1.scale", "F8_E8M0 [72,160]"},
      {"layers.0.ffn.shared_experts.w2.scale", "F8_E8M0 [160,72]"},
      {"layers.1.engram.embed.weight", "F8_E4M3 [384006168,256]"},
      {"layers.14.engram.embed.scale", "F8_E8M0 [384016682,8]"},
      {"layers.14.engram.wkv.weight", "F8_E4M3 [25600,6144]"},
      {"layers.14.engram.wkv.scale", "F8_E8M0 [800,192]"},
      {"layers.1.engram.q_weight", "BF16 [4,5120]"},
      {"mtp.0.main_proj.weight", "F8_E4M3 [5120,15360]"},
      {"mtp.0.main_proj.scale", "F8_E8M0 [160,480]"},
      {"mtp.2.ffn.gate.weight", "BF16 [128,5120]"},
      {"mtp.2.ffn.experts.127.w1.weight", "I8 [2304,2560]"},
      {"mtp.2.norm.weight", "BF16 [5120]"},
      {"mtp.2.markov_head.head.weight", "BF16 [129280,256]"},
      {"mtp.2.confidence_head.proj.weight", "BF16 [1,5376]"},
  };
  for (const auto& [name, description] : table)
    BOOST_TEST(by_name[name] == description, name << " is " << by_name[name]);
  for (const char* absent : {"layers.20.attn.compressor.wgate.weight", "layers.24.attn.compressor.wkv.weight",
                             "layers.24.attn.indexer.wk.weight", "layers.3.attn.indexer.wq_b.weight",
                             "layers.0.engram.q_weight", "mtp.1.main_proj.weight", "mtp.1.norm.weight",
                             "mtp.2.ffn.experts.128.w1.weight", "layers.40.attn_norm.weight", "hc_head_fn"})
    BOOST_TEST(by_name.count(absent) == 0u, absent);
  // 3 global; per layer 30 + 6 per expert; 3 + 3 + 1 + 3 compressor tensors, 8 indexers of 3, 4 index keys of 2, 2
  // Engrams of 6; drafter 3 * (30 + 6 * 128) + 3 + 4.
  const std::size_t per_layer = 30;
  BOOST_TEST(list.size() ==
             3 + 40 * (per_layer + 6 * 384) + (3 * 3 + 2) + 8 * 3 + 4 * 2 + 2 * 6 + 3 * (per_layer + 6 * 128) + 3 + 4);
}

BOOST_AUTO_TEST_CASE(shards_and_prefixes) {
  BOOST_TEST(failure_after([](auto&) {}) == "accepted");
  BOOST_TEST(failure_after([](auto& tensors) {
               for (auto& t : tensors)
                 t.name = "model." + t.name;
             }) == "accepted");
  const temp_folder single;
  fs::copy_file(tiny_shard, single.path / "model.safetensors");
  BOOST_TEST(failure(single.path) == "accepted");
  BOOST_TEST(holds(failure_after([](auto& tensors) {
                     tensors.push_back(named(tensors, "norm.weight"));
                     tensors.back().name = "model.norm.weight";
                   }),
                   "norm.weight: is there twice"));
}

BOOST_AUTO_TEST_CASE(tensors_of_other_parts_are_ignored) {
  BOOST_TEST(failure_after([](auto& tensors) {
               for (const char* name :
                    {"vision.blocks.0.wqkv", "aligner.w1", "image_start", "image_end", "image_newline",
                     "mtp.0.embed.weight", "mtp.1.head.weight", "model.vision.norm.weight"}) {
                 tensors.push_back(named(tensors, "norm.weight"));
                 tensors.back().name = name;
               }
             }) == "accepted");
}

BOOST_AUTO_TEST_CASE(either_type_is_accepted_where_releases_differ) {
  const std::vector<float> ones(4 * 384, 1.0f);
  auto widen = [&](auto& tensors, const std::string& name) {
    auto& t = named(tensors, name);
    t.dtype = tensor_type::f32;
    t.bytes = std::as_bytes(std::span(ones)).first(t.bytes.size() * 2);
  };
  BOOST_TEST(failure_after([&](auto& tensors) {
               for (const char* name :
                    {"norm.weight", "layers.0.attn.q_norm.weight", "layers.1.attn.compressor.norm.weight",
                     "layers.1.engram.q_weight", "mtp.0.main_norm.weight", "mtp.1.confidence_head.proj.weight"})
                 widen(tensors, name);
             }) == "accepted");
  BOOST_TEST(holds(failure_after([&](auto& tensors) {
                     auto& t = named(tensors, "layers.0.hc_attn_scale");
                     t.dtype = tensor_type::bf16;
                     t.bytes = t.bytes.first(6);
                   }),
                   "1 tensor of wrong type or shape: layers.0.hc_attn_scale (BF16 [3] instead of F32 [3])"));
}

BOOST_AUTO_TEST_CASE(everything_wrong_is_listed_at_once) {
  const std::string text = failure_after([](auto& tensors) {
    remove_tensors(tensors, [](const std::string& name) {
      return name == "layers.2.attn.wkv.scale" || name.starts_with("mtp.1.ffn.experts.7.");
    });
    auto& transposed = named(tensors, "layers.0.attn.wq_a.weight");
    std::swap(transposed.shape[0], transposed.shape[1]);
    tensors.push_back(named(tensors, "norm.weight"));
    tensors.back().name = "layers.8.attn_norm.weight";
  });
  BOOST_TEST(
      holds(text,
            "model.safetensors.index.json: 7 tensors missing: layers.2.attn.wkv.scale, mtp.1.ffn.experts.7.w1.weight"),
      text);
  BOOST_TEST(holds(text, "1 tensor of wrong type or shape: layers.0.attn.wq_a.weight (F8_E4M3 [384,192] instead of "
                         "F8_E4M3 [192,384])"),
             text);
  BOOST_TEST(holds(text, "1 tensor not part of this model: layers.8.attn_norm.weight"), text);
}

BOOST_AUTO_TEST_CASE(long_lists_are_cut) {
  const std::string text = failure_after([](auto& tensors) {
    remove_tensors(tensors, [](const std::string& name) { return name.starts_with("layers.4.ffn.experts."); });
  });
  BOOST_TEST(holds(text, "144 tensors missing: layers.4.ffn.experts.0.w1.weight, "), text);
  BOOST_TEST(holds(text, " and 136 more"), text);
  BOOST_TEST(text.size() < 1000u);
}

BOOST_AUTO_TEST_CASE(wrong_indexes_are_refused) {
  auto with_index = [](const std::function<void(json&)>& change) { return failure_after([](auto&) {}, change); };
  BOOST_TEST(holds(with_index([](json& i) { i["weight_map"]["norm.weight"] = "../b.safetensors"; }),
                   "weight_map.norm.weight"));
  BOOST_TEST(holds(with_index([](json& i) { i["weight_map"]["norm.weight"] = 7; }), "weight_map.norm.weight"));
  BOOST_TEST(holds(with_index([](json& i) { i["weight_map"]["norm.weight"] = ".."; }), "weight_map.norm.weight"));
  BOOST_TEST(holds(with_index([](json& i) { i["weight_map"]["norm.weight"] = "c.safetensors"; }),
                   "c.safetensors: cannot be opened"));
  BOOST_TEST(holds(with_index([](json& i) { i["weight_map"]["norm.weight"] = "a.safetensors"; }),
                   "1 tensor missing: norm.weight"));
  BOOST_TEST(holds(with_index([](json& i) { i["weight_map"].erase("norm.weight"); }), "1 tensor missing: norm.weight"));
  BOOST_TEST(holds(with_index([](json& i) { i["weight_map"] = 1; }), "weight_map"));
  BOOST_TEST(holds(with_index([](json& i) { i = json::array(); }), "weight_map"));
}

BOOST_AUTO_TEST_CASE(absent_and_damaged_files_are_named) {
  const temp_folder folder;
  BOOST_TEST(holds(failure(folder.path), "model.safetensors.index.json: cannot be opened"));
  folder.write("model.safetensors.index.json", "{\"weight_map\": {");
  BOOST_TEST(holds(failure(folder.path), "model.safetensors.index.json: not valid JSON"));
  folder.write("model.safetensors.index.json", R"({"weight_map": {"norm.weight": "a.safetensors"}})");
  fs::copy_file(tiny_shard, folder.path / "a.safetensors");
  fs::resize_file(folder.path / "a.safetensors", fs::file_size(tiny_shard) - 1);
  BOOST_TEST(holds(failure(folder.path), "a.safetensors: "));
  BOOST_TEST(holds(failure(folder.path), "outside the file"));
  fs::remove(folder.path / "config.json");
  BOOST_TEST(holds(failure(folder.path), "config.json: cannot be opened"));
}

BOOST_AUTO_TEST_CASE(names_alone_can_be_compared) {
  const model_config config = load_config(tiny_folder);
  tensor_table names;
  for (const auto& t : expected_tensors(config))
    names.emplace(t.name, nullptr);
  BOOST_TEST(compare_tensors(config, names) == "");
  names.erase("head.weight");
  BOOST_TEST(compare_tensors(config, names) == "1 tensor missing: head.weight");
}

// As a whole; a part of it that is missing is a fault like any other.
BOOST_AUTO_TEST_CASE(a_checkpoint_may_leave_its_drafter_out) {
  const model_config config = load_config(tiny_folder);
  tensor_table names;
  for (const auto& t : expected_tensors(config))
    names.emplace(t.name, nullptr);
  const auto left_out = [&] {
    model_config c = config;
    leave_out_absent_drafter(c, names);
    return c;
  };
  const std::string one = "mtp.0.ffn.gate.weight";
  BOOST_REQUIRE(names.erase(one) == 1u);
  BOOST_TEST(left_out().num_nextn_predict_layers == config.num_nextn_predict_layers);
  BOOST_TEST(compare_tensors(left_out(), names) == "1 tensor missing: " + one);
  std::erase_if(names, [](const auto& n) { return n.first.starts_with("mtp."); });
  const model_config plain = left_out();
  BOOST_TEST(plain.num_nextn_predict_layers == 0);
  BOOST_TEST(plain.compress_ratios.size() == static_cast<std::size_t>(plain.num_hidden_layers));
  BOOST_TEST(compare_tensors(plain, names) == "");
  names.emplace("mtp.0.strange", nullptr);
  BOOST_TEST(compare_tensors(left_out(), names).find("missing") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
