// troupe check-model: is a checkpoint complete, and how much memory does it take.
#include "cli/interrupts.hpp"
#include "cli/line_io.hpp"
#include "cli/log.hpp"
#include "cli/progress.hpp"
#include "cli/verbs.hpp"
#include "runtime/model/check_checkpoint.hpp"
#include "runtime/model/memory_plan.hpp"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace troupe {

namespace {

using json = nlohmann::ordered_json;

constexpr double gibibyte = 1 << 30;

std::string grouped(std::int64_t n) { // 3339072 -> "3,339,072"
  std::string s = std::to_string(n);
  for (auto at = static_cast<std::ptrdiff_t>(s.size()) - 3; at > 0; at -= 3)
    s.insert(static_cast<std::size_t>(at), ",");
  return s;
}

std::string counted(std::int64_t n, const char* what) { // "1 layer", "2 layers"
  return grouped(n) + " " + what + (n == 1 ? "" : "s");
}

memory_question question_of(const check_model_options& o, const model_config& c) {
  if (o.ep > c.n_routed_experts)
    throw config_error("command line", "--ep", std::to_string(o.ep),
                       "there are " + std::to_string(c.n_routed_experts) + " routed experts to share", "give fewer");
  if (o.max_model_len > c.max_position_embeddings)
    throw config_error("command line", "--max-model-len", std::to_string(o.max_model_len),
                       "the model has " + std::to_string(c.max_position_embeddings) + " positions",
                       "give less, or leave the option out");
  memory_question q{o.ep,  0, o.max_num_seqs, o.max_num_batched_tokens, o.max_model_len, o.verify == "rejection",
                    false, {}};
  if (o.device_gibibytes > 0)
    q.device_bytes = static_cast<std::int64_t>(o.device_gibibytes * gibibyte);
  return q;
}

std::string faults_text(const checkpoint_check& check, int max_names) {
  std::string text;
  for (const fault_list& f : check.faults) {
    text += fmt::format("  {} {}:\n", grouped(static_cast<std::int64_t>(f.names.size())), f.kind);
    for (std::size_t i = 0; i < f.names.size() && i < static_cast<std::size_t>(max_names); ++i)
      text += "    " + f.names[i] + "\n";
    if (f.names.size() > static_cast<std::size_t>(max_names))
      text += fmt::format("    and {} more\n", grouped(static_cast<std::int64_t>(f.names.size()) - max_names));
  }
  return text;
}

std::string checkpoint_text(const checkpoint_check& check, const check_model_options& o) {
  const model_config& c = check.config;
  std::string text =
      fmt::format("{}: {}, {}, drafter of {}\n", o.folder, counted(c.num_hidden_layers, "layer"),
                  counted(c.n_routed_experts, "routed expert"), counted(c.num_nextn_predict_layers, "layer"));
  text += fmt::format("  {} named in {}, {} here{}\n", counted(check.tensors, "tensor"), counted(check.shards, "shard"),
                      check.shards_present, o.index_only ? ": headers are compared, no data is read" : "");
  if (check.ignored > 0)
    text += fmt::format("  {} of other parts (vision), not used\n", counted(check.ignored, "tensor"));
  text += fmt::format("  {:.3f} GiB of weights demanded by the configuration\n",
                      static_cast<double>(check.bytes) / gibibyte);
  const std::int64_t faults = check.fault_count();
  return text + (faults == 0 ? std::string("complete\n") : counted(faults, "fault") + "\n") +
         faults_text(check, o.max_names);
}

std::string memory_text(const memory_plan& m, const check_model_options& o, const model_config& c) {
  const auto line = [](const std::string& what, std::int64_t bytes) {
    return fmt::format("  {:<62} {:>9.3f} GiB\n", what, static_cast<double>(bytes) / gibibyte);
  };
  std::string text = fmt::format("memory of a device, weights as stored, --ep {}\n", o.ep);
  text += line("backbone", m.backbone);
  text +=
      line(fmt::format("routed experts, {} of {} in each layer", m.experts_per_layer, c.n_routed_experts), m.experts);
  text += line("drafter", m.drafter);
  text += line(fmt::format("rotary tables, {} positions", grouped(m.max_model_len)), m.rotary_tables);
  text += line(fmt::format("buffers of a step of {} rows", o.max_num_batched_tokens), m.step_buffers);
  text += line(fmt::format("{} state slots of {} bytes", m.state_slots, grouped(m.slot_bytes)),
               m.state_slots * m.slot_bytes);
  text += line("newest tokens and drafts, verified by " + o.verify, m.decode_state);
  text += line("together", m.fixed());
  text += fmt::format("KV block of 128 tokens: {} bytes, {} a token; a request of {} tokens: {} blocks, {:.3f} GiB\n",
                      grouped(m.block_bytes), m.block_bytes / 128, grouped(m.max_model_len),
                      grouped(m.blocks_of_a_request()),
                      static_cast<double>(m.blocks_of_a_request() * m.block_bytes) / gibibyte);
  if (m.kv_blocks && *m.kv_blocks < 0)
    text += fmt::format("a device of {} GiB is too small: {:.3f} GiB are missing before the first KV block\n",
                        o.device_gibibytes, static_cast<double>(-*m.kv_blocks) / gibibyte);
  else if (m.kv_blocks)
    text += fmt::format("a device of {} GiB: {} KV blocks beside this, {} tokens\n", o.device_gibibytes,
                        grouped(*m.kv_blocks), grouped(*m.kv_blocks * 128));
  return text + "memory of the host\n" + line("Engram tables", m.engram_tables);
}

json report(const checkpoint_check& check, const memory_plan& m, const check_model_options& o) {
  json faults = json::array();
  for (const fault_list& f : check.faults) {
    json names = json::array();
    for (std::size_t i = 0; i < f.names.size() && i < static_cast<std::size_t>(o.max_names); ++i)
      names.push_back(f.names[i]);
    faults.push_back({{"kind", f.kind}, {"count", f.names.size()}, {"names", names}});
  }
  json memory{{"ep", o.ep},
              {"backbone", m.backbone},
              {"experts", m.experts},
              {"experts_per_layer", m.experts_per_layer},
              {"drafter", m.drafter},
              {"rotary_tables", m.rotary_tables},
              {"step_buffers", m.step_buffers},
              {"state_slots", m.state_slots},
              {"slot_bytes", m.slot_bytes},
              {"decode_state", m.decode_state},
              {"fixed", m.fixed()},
              {"block_bytes", m.block_bytes},
              {"max_model_len", m.max_model_len},
              {"blocks_of_a_request", m.blocks_of_a_request()},
              {"kv_blocks", m.kv_blocks ? json(*m.kv_blocks) : json(nullptr)},
              {"host_engram_tables", m.engram_tables}};
  return {{"folder", o.folder},
          {"index_only", o.index_only},
          {"complete", check.fault_count() == 0},
          {"tensors", check.tensors},
          {"ignored", check.ignored},
          {"shards", check.shards},
          {"shards_present", check.shards_present},
          {"bytes", check.bytes},
          {"total_size", check.total_size ? json(*check.total_size) : json(nullptr)},
          {"faults", faults},
          {"memory", memory}};
}

} // namespace

int run_check_model(const check_model_options& o) {
  interrupts signals;
  progress_line progress("checking " + o.folder);
  const checkpoint_check check = check_checkpoint({o.folder, o.index_only}, [&](std::int64_t done, std::int64_t total) {
    progress.show(done, total, "shards,");
    return signals.count() == 0;
  });
  progress.clear();
  if (signals.count() > 0)
    return exit_interrupted;
  const memory_plan memory = plan_memory(check.config, question_of(o, check.config));
  line_writer out(open_output("-"));
  const std::string text = o.json ? report(check, memory, o).dump(-1, ' ', false, json::error_handler_t::replace) + "\n"
                                  : checkpoint_text(check, o) + memory_text(memory, o, check.config);
  if (!succeeded(out.write_text(text)))
    return exit_request_failed;
  if (check.fault_count() == 0)
    return exit_ok;
  throw config_error(check.index_file, "", "",
                     "the checkpoint has " + counted(check.fault_count(), "fault") +
                         ", first: " + check.faults.front().names.front() + ": " + check.faults.front().kind,
                     "use files and config.json of one release, complete and without conversion");
}

} // namespace troupe
