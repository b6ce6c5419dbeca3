#include "bench/limits.hpp"
#include "bench/harness.hpp"
#include "kernels/cpu/probe.hpp"
#include "runtime/model/config.hpp"
#include "runtime/model/safetensors.hpp"
#include <atomic>
#include <filesystem>
#include <thread>

namespace troupe {

namespace {

// Runs work(thread) over and over in `threads` threads for about `seconds`; returns how often per second, all together.
template <class F> double rate(int threads, double seconds, F&& work) {
  std::atomic<bool> go{false}, stop{false};
  std::atomic<std::int64_t> done{0};
  std::vector<std::thread> pool;
  for (int t = 0; t < threads; ++t)
    pool.emplace_back([&, t] {
      work(t); // first touch and warm-up
      while (!go.load())
        std::this_thread::yield();
      std::int64_t mine = 0;
      do // once at least, however late the thread comes to run
        work(t), ++mine;
      while (!stop.load(std::memory_order_relaxed));
      done += mine;
    });
  const stopwatch watch;
  go = true;
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  stop = true;
  for (std::thread& t : pool)
    t.join();
  return static_cast<double>(done.load()) / watch.seconds();
}

std::vector<std::filesystem::path> weight_files(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors")
      files.push_back(entry.path());
  return files;
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// Number of the backbone layer that a tensor belongs to; -1 if it belongs to none.
int layer_of(const std::string& name) {
  const std::size_t at = name.find("layers.");
  return at == std::string::npos ? -1 : std::stoi(name.substr(at + std::string_view("layers.").size()));
}

} // namespace

double read_bandwidth(int threads, std::size_t bytes, double seconds) {
  constexpr std::size_t unit = 1024;
  struct alignas(64) line {
    std::byte bytes[64];
  };
  const std::size_t part = std::max<std::size_t>(bytes / static_cast<std::size_t>(threads) / unit * unit, unit);
  std::vector<std::vector<line>> blocks(static_cast<std::size_t>(threads), std::vector<line>(part / sizeof(line)));
  std::vector<std::uint32_t> sinks(static_cast<std::size_t>(threads));
  const double passes = rate(threads, seconds, [&](int t) {
    const auto i = static_cast<std::size_t>(t);
    cpu::probe_read(blocks[i].data()->bytes, part, &sinks[i]);
  });
  return passes * static_cast<double>(part);
}

double multiply_add_peak(int threads, double seconds) {
  std::vector<float> sinks(64 * static_cast<std::size_t>(threads));
  std::atomic<std::int64_t> done{1};
  const double calls =
      rate(threads, seconds, [&](int t) { done = cpu::probe_fma(20000, &sinks[64 * static_cast<std::size_t>(t)]); });
  return calls * static_cast<double>(done.load());
}

token_work work_of_token(const std::string& model_folder) {
  const model_config config = load_config(model_folder);
  token_work work;
  for (const auto& path : weight_files(model_folder)) {
    const safetensors_file file(path.string());
    for (const host_tensor& tensor : file.tensors()) {
      if (contains(tensor.name, "mtp.") || contains(tensor.name, "vision") || contains(tensor.name, "image") ||
          contains(tensor.name, "engram.embed") || tensor.shape.size() < 2 || tensor.name == "embed.weight" ||
          tensor.name == "model.embed.weight")
        continue;
      const bool routed = contains(tensor.name, ".experts.");
      const double share = routed ? static_cast<double>(config.num_experts_per_tok) / config.n_routed_experts : 1;
      work.weight_bytes += share * static_cast<double>(tensor.bytes.size());
      if (tensor.name.ends_with(".scale"))
        continue;
      const double adds =
          share * static_cast<double>(element_count(tensor)) * (tensor.dtype == tensor_type::i8 ? 2 : 1);
      work.multiply_adds += adds;
      const int layer = layer_of(tensor.name);
      if (layer < 0)
        work.head += adds;
      if (layer >= config.n_prefill_layer)
        work.consumers += adds;
      if (layer == config.n_prefill_layer &&
          (contains(tensor.name, "attn.compressor.") || contains(tensor.name, "attn.indexer.wk")))
        work.shared_kv += adds;
    }
  }
  return work;
}

std::size_t model_bytes(const std::string& model_folder) {
  std::size_t bytes = 0;
  for (const auto& path : weight_files(model_folder))
    bytes += std::filesystem::file_size(path);
  return bytes;
}

} // namespace troupe
