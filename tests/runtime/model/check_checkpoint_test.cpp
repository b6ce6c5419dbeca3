#include "runtime/base/result.hpp"
#include "runtime/model/check_checkpoint.hpp"
#include "runtime/model/make_checkpoint.hpp"
#include "runtime/model/memory_plan.hpp"
#include "runtime/model/safetensors.hpp"
#include "tests/support/process.hpp"
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

namespace fs = std::filesystem;
using namespace troupe;
using nlohmann::json;
using test_support::read_text;
using test_support::temporary_folder;
using test_support::write_text;

namespace {

const std::string flash_folder = TROUPE_SOURCE_DIR "/models/v41-flash",
                  tiny_folder = TROUPE_SOURCE_DIR "/models/tiny-v41";

bool go_on(std::int64_t, std::int64_t) {
  return true;
}

// The faults of a folder, "kind: name | name"; empty if there is none.
std::string faults_of(const std::string& folder, bool index_only) {
  std::string text;
  for (const fault_list& f : check_checkpoint({folder, index_only}, go_on).faults) {
    text += f.kind + ":";
    for (const std::string& name : f.names)
      text += " " + name + " |";
  }
  return text;
}

// A full-size index of the released model, changed; its faults.
std::string flash_faults(const std::function<void(json& map)>& change) {
  static const std::string original = index_text(plan_shards(load_config(flash_folder), std::uint64_t{1} << 32));
  const temporary_folder folder;
  fs::copy_file(flash_folder + "/config.json", folder / "config.json");
  json index = json::parse(original);
  change(index["weight_map"]);
  write_text(folder / "model.safetensors.index.json", index.dump());
  return faults_of(folder / "", true);
}

// The embedded model with its one shard, as a copy that a test may damage.
struct tiny_copy {
  temporary_folder folder;
  std::string shard = folder / "model-00001-of-00001.safetensors", index = folder / "model.safetensors.index.json";
  tiny_copy() {
    for (const char* file : {"config.json", "model.safetensors.index.json", "model-00001-of-00001.safetensors"})
      fs::copy_file(tiny_folder + "/" + file, folder / file);
  }
  std::string faults(bool index_only) const { return faults_of(folder / "", index_only); }
  void change_map(const std::function<void(json&)>& change) const {
    json i = json::parse(read_text(index));
    change(i["weight_map"]);
    write_text(index, i.dump());
  }
  void change_tensor(const std::string& name, const std::function<void(host_tensor&)>& change) const {
    const std::string other = shard + ".new";
    const safetensors_file file(shard);
    std::vector<host_tensor> tensors = file.tensors();
    for (host_tensor& t : tensors)
      if (t.name == name)
        change(t);
    BOOST_REQUIRE(write_safetensors(other, tensors));
    fs::rename(other, shard);
  }
};

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

} // namespace

BOOST_AUTO_TEST_SUITE(model_check_checkpoint)

BOOST_AUTO_TEST_CASE(a_full_size_index_is_complete_without_data) {
  BOOST_TEST(flash_faults([](json&) {}) == "");
  const temporary_folder folder;
  fs::copy_file(flash_folder + "/config.json", folder / "config.json");
  const auto shards = plan_shards(load_config(flash_folder), std::uint64_t{1} << 32);
  write_text(folder / "model.safetensors.index.json", index_text(shards));
  const checkpoint_check check = check_checkpoint({folder / "", true}, go_on);
  // 3 + 40 (30 + 6*384) + 11 + 24 + 8 + 12 of the backbone (checkpoint_test.cpp), 3 (30 + 6*128) + 7 of the drafter
  BOOST_TEST(check.tensors == 95819);
  BOOST_TEST(check.shards == static_cast<std::int64_t>(shards.size()));
  BOOST_TEST(check.shards_present == 0);
  BOOST_TEST(*check.total_size == check.bytes);
  BOOST_TEST(check.bytes == 509315486040);
}

BOOST_AUTO_TEST_CASE(names_of_a_full_size_index) {
  BOOST_TEST(flash_faults([](json& m) { m.erase("layers.39.ffn.experts.383.w2.scale"); }) ==
             "missing from the index: layers.39.ffn.experts.383.w2.scale |");
  BOOST_TEST(flash_faults([](json& m) { m["layers.40.attn_norm.weight"] = "x.safetensors"; }) ==
             "not part of this model: layers.40.attn_norm.weight |");
  BOOST_TEST(flash_faults([](json& m) { m["model.norm.weight"] = "x.safetensors"; }) ==
             "in the index twice: norm.weight (with and without \"model.\") |");
  BOOST_TEST(flash_faults([](json& m) {
               json renamed;
               for (const auto& [name, file] : m.items())
                 renamed["model." + name] = file;
               m = renamed;
             }) == "");
  BOOST_TEST(flash_faults([](json& m) {
               for (const char* name :
                    {"vision.blocks.0.wqkv.weight", "aligner.w1.weight", "image_start", "mtp.1.head.weight"})
                 m[name] = "v.safetensors";
             }) == "");
  const std::string many = flash_faults([](json& m) {
    for (int e = 0; e < 384; ++e)
      m.erase("layers.7.ffn.experts." + std::to_string(e) + ".w1.weight");
  });
  BOOST_TEST(holds(many, "layers.7.ffn.experts.0.w1.weight |"));
  BOOST_TEST(holds(many, "layers.7.ffn.experts.383.w1.weight |"));
}

BOOST_AUTO_TEST_CASE(a_name_that_stands_twice_is_seen) {
  const tiny_copy tiny;
  std::string text = read_text(tiny.index);
  const std::string line = "\"embed.weight\": \"model-00001-of-00001.safetensors\",";
  text.insert(text.find(line), line);
  write_text(tiny.index, text);
  BOOST_TEST(tiny.faults(true) == "in the index twice: embed.weight |");
}

BOOST_AUTO_TEST_CASE(headers_are_enough_for_types_and_shapes) {
  const tiny_copy tiny;
  BOOST_TEST(tiny.faults(true) == "");
  BOOST_TEST(tiny.faults(false) == "");
  tiny.change_tensor("layers.0.attn.wq_a.weight", [](host_tensor& t) { std::swap(t.shape[0], t.shape[1]); });
  const std::string wrong = "of wrong type or shape: layers.0.attn.wq_a.weight (F8_E4M3 [384,192] instead of F8_E4M3 "
                            "[192,384]) |";
  BOOST_TEST(tiny.faults(true) == wrong);
  fs::resize_file(tiny.shard, fs::file_size(tiny.shard) / 2); // the data is cut off, the header is whole
  BOOST_TEST(tiny.faults(true) == wrong);
  BOOST_TEST(holds(tiny.faults(false), "shards that cannot be read: "), tiny.faults(false));
  BOOST_TEST(holds(tiny.faults(false), "outside the file"), tiny.faults(false));
  fs::resize_file(tiny.shard, 1000);
  BOOST_TEST(holds(tiny.faults(true), "the header is said to have"), tiny.faults(true));
}

BOOST_AUTO_TEST_CASE(shards_and_index_must_agree) {
  {
    const tiny_copy tiny;
    tiny.change_map([](json& m) { m["head.weight"] = "b.safetensors"; });
    BOOST_TEST(tiny.faults(true) == ""); // that shard may come later; the copy elsewhere is not used
    BOOST_TEST(holds(tiny.faults(false), "b.safetensors: is named by the index and does not exist"),
               tiny.faults(false));
  }
  {
    const tiny_copy tiny;
    tiny.change_tensor("head.weight", [](host_tensor& t) { t.name = "heat.weight"; });
    BOOST_TEST(tiny.faults(true) ==
               "not in the shard that the index names: head.weight (model-00001-of-00001.safetensors) |"
               "in a shard but not in the index: heat.weight (model-00001-of-00001.safetensors) |");
  }
}

BOOST_AUTO_TEST_CASE(values_must_be_finite) {
  const auto with = [](const std::string& name, std::vector<std::uint8_t> bytes, bool index_only = false) {
    const tiny_copy tiny;
    std::vector<std::byte> data;
    tiny.change_tensor(name, [&](host_tensor& t) {
      data.assign(t.bytes.begin(), t.bytes.end());
      for (std::size_t i = 0; i < bytes.size(); ++i) // the last element
        data[data.size() - bytes.size() + i] = static_cast<std::byte>(bytes[i]);
      t.bytes = data;
    });
    return tiny.faults(index_only);
  };
  const std::string kind = "with values that are not finite: ", shard = " (model-00001-of-00001.safetensors) |";
  BOOST_TEST(with("layers.0.attn.wq_a.scale", {255}) == kind + "layers.0.attn.wq_a.scale" + shard);
  BOOST_TEST(with("layers.0.attn.wq_a.scale", {254}) == "");
  BOOST_TEST(with("norm.weight", {0x80, 0x7f}) == kind + "norm.weight" + shard); // +infinity
  BOOST_TEST(with("norm.weight", {0x7f, 0x7f}) == "");
  BOOST_TEST(with("layers.2.attn.attn_sink", {0, 0, 0xc0, 0xff}) == kind + "layers.2.attn.attn_sink" + shard);
  BOOST_TEST(with("layers.2.attn.attn_sink", {0xff, 0xff, 0x7f, 0xff}) == "");
  BOOST_TEST(with("norm.weight", {0x80, 0x7f}, true) == ""); // no data is read
}

BOOST_AUTO_TEST_CASE(a_single_file_needs_no_index) {
  const tiny_copy tiny;
  fs::rename(tiny.shard, tiny.folder / "model.safetensors");
  fs::remove(tiny.index);
  BOOST_TEST(tiny.faults(true) == "");
  BOOST_TEST(tiny.faults(false) == "");
  fs::remove(tiny.folder / "model.safetensors");
  BOOST_CHECK_THROW(tiny.faults(true), config_error);
}

// engine.md §10.4 with a ring of 140.
BOOST_AUTO_TEST_CASE(memory_of_the_released_model) {
  const model_config c = load_config(flash_folder);
  memory_question q;
  memory_plan m = plan_memory(c, q);
  BOOST_TEST(m.block_bytes == 114048);
  BOOST_TEST(m.block_bytes == 891 * 128);
  BOOST_TEST(m.slot_bytes == 3339072);
  BOOST_TEST(m.state_slots == 65);
  BOOST_TEST(m.blocks_of_a_request() == 8192);
  BOOST_TEST(m.rotary_tables == 2 * std::int64_t{1048576 + 6} * 64 * 4);
  // an expert: three matrices of 2304 x 5120 at half a byte, one exponent per 32
  const std::int64_t expert = 3 * 2304 * 5120 / 2 + 3 * 2304 * 5120 / 32;
  BOOST_TEST(m.experts == 40 * 384 * expert);
  BOOST_TEST(m.engram_tables == (384006168 + 384016682) * std::int64_t{264});
  BOOST_TEST(m.backbone + m.experts + m.drafter + m.engram_tables == 509315486040); // the whole checkpoint
  BOOST_TEST(!m.kv_blocks.has_value());

  q.ep = 7; // 384 = 6 * 55 + 54
  q.device_bytes = std::int64_t{139} << 30;
  m = plan_memory(c, q);
  BOOST_TEST(m.experts_per_layer == 55);
  BOOST_TEST(m.experts == 40 * 55 * expert);
  BOOST_TEST(*m.kv_blocks == (*q.device_bytes - m.fixed()) / 114048);
  BOOST_TEST(*m.kv_blocks > 500000);
  q.device_bytes = std::int64_t{1} << 30;
  m = plan_memory(c, q);
  BOOST_TEST(*m.kv_blocks == *q.device_bytes - m.fixed());

  // 65 slots of a position, whether it has stopped, the last 4 tokens, 5 drafts and their confidences; with rejection 5
  // rows of logits too.
  memory_question by_rejection;
  by_rejection.device_bytes = std::int64_t{1} << 40;
  const memory_plan coupled = plan_memory(c, by_rejection);
  by_rejection.rejection = true;
  const memory_plan rejection = plan_memory(c, by_rejection);
  BOOST_TEST(coupled.decode_state == 4 * 65 * (1 + 1 + 4 + 2 * 5));
  BOOST_TEST(rejection.decode_state == coupled.decode_state + 4 * std::int64_t{65} * 5 * 129280);
  BOOST_TEST(rejection.fixed() == coupled.fixed() + 4 * std::int64_t{65} * 5 * 129280);
  BOOST_TEST(*rejection.kv_blocks < *coupled.kv_blocks);

  // features of the newest 140 rows, of the three layers that the drafter reads
  memory_question deferred;
  deferred.defers_drafter = true;
  BOOST_TEST(plan_memory(c, deferred).decode_state == coupled.decode_state + 4 * std::int64_t{65} * 140 * 3 * 5120);

  memory_question small;
  small.max_model_len = 4096;
  small.max_num_seqs = 3;
  BOOST_TEST(plan_memory(c, small).state_slots == 4);
  BOOST_TEST(plan_memory(c, small).blocks_of_a_request() == 32);
  small.max_num_batched_tokens = 16;
  BOOST_TEST(plan_memory(c, small).step_buffers < plan_memory(c, q).step_buffers);
}

BOOST_AUTO_TEST_SUITE_END()
