#include "devices/cuda/gpu_device.hpp"

#include "devices/cuda/memory.hpp"
#include "devices/cuda/ops.hpp"
#include "devices/cuda/stream.hpp"
#include "kernels/reference/weights.hpp"
#include "runtime/base/result.hpp"
#include <charconv>
#include <cuda_runtime.h>

namespace troupe::cuda {
namespace {

std::string version_text(int v) { // 13000 -> "13.0"
  return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10);
}

[[noreturn]] void refuse(const std::string& name, const std::string& why, const std::string& remedy) {
  throw config_error("", "device", name, why, remedy);
}

// Index behind the colon; 0 without one.
int index_of(const std::string& name) {
  const std::size_t colon = name.find(':');
  if (colon == std::string::npos)
    return 0;
  int index = -1;
  const char *from = name.data() + colon + 1, *to = name.data() + name.size();
  const auto [end, failed] = std::from_chars(from, to, index);
  if (failed != std::errc{} || end != to || index < 0)
    refuse(name, "the index of a GPU is a number", "use cuda-reference or cuda-reference:0");
  return index;
}

// Finds out why the driver offers no GPU, or returns their number.
int expect_driver(const std::string& name) {
  int count = 0;
  const cudaError_t e = cudaGetDeviceCount(&count);
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess)
    driver = 0;
  if (e == cudaSuccess && count > 0)
    return count;
  cudaGetLastError();
  const std::string needed = version_text(CUDART_VERSION);
  if (driver == 0)
    refuse(name, "no NVIDIA driver was found (one for CUDA " + needed + " or later is needed)",
           "install the driver or use --device cpu");
  if (e == cudaErrorInsufficientDriver)
    refuse(name, "the NVIDIA driver is too old: it supports CUDA " + version_text(driver) + ", needed is " + needed,
           "update the driver or use --device cpu");
  refuse(name,
         "the driver offers no GPU (" + std::string(cudaGetErrorString(e == cudaSuccess ? cudaErrorNoDevice : e)) + ")",
         "check nvidia-smi and CUDA_VISIBLE_DEVICES or use --device cpu");
}

// A stored weight's bytes in GPU memory while it is unpacked, or for good.
plain::stored_view upload(stream_state& s, const weight_source& from, std::byte* to) {
  s.to_device(to, from.data.data(), from.data.size());
  plain::stored_view view{from.format, from.rows, from.cols, to, nullptr};
  if (!from.scale.empty()) {
    std::byte* scale = to + (from.data.size() + 255) / 256 * 256;
    s.to_device(scale, from.scale.data(), from.scale.size());
    view.scale = scale;
  }
  return view;
}
std::size_t upload_bytes(const weight_source& from) {
  return (from.data.size() + 255) / 256 * 256 + from.scale.size();
}

class gpu_device : public device {
public:
  gpu_device(std::string name, int index, const cudaDeviceProp& facts)
      : name_(std::move(name)), index_(index), loader_(std::make_shared<stream_state>(index, name_)) {
    description_ = std::string(facts.name) + ", compute capability " + std::to_string(facts.major) + "." +
                   std::to_string(facts.minor) + ", plain kernels in fp32";
  }

  std::string name() const override { return name_; }
  std::string description() const override { return description_; }
  std::string numerics_id() const override { return "cpu-1"; }
  device_memory memory() const override {
    use_gpu(index_);
    device_memory m;
    check(cudaMemGetInfo(&m.available, &m.total), "asking for memory");
    return m;
  }
  buffer allocate(std::size_t bytes, const std::string& what) override {
    use_gpu(index_);
    return buffer(device_memory_of(bytes, name_, what));
  }
  std::unique_ptr<stream> make_stream() override {
    use_gpu(index_);
    return std::make_unique<gpu_stream>(std::make_shared<stream_state>(index_, name_));
  }

  std::shared_ptr<const weight> pack(const weight_source& s) override { return pack_one(s); }

  std::shared_ptr<const row_table> pack_table(const weight_source& s) override {
    reference::check_source(s);
    use_gpu(index_);
    auto table = std::make_shared<gpu_table>();
    table->rows = s.rows;
    table->cols = s.cols;
    const std::size_t bytes = upload_bytes(s);
    if (bytes <= memory().available / 4) {
      table->memory = device_memory_of(bytes, name_, "a table of " + reference::describe(s));
      table->view = upload(*loader_, s, table->memory->data);
      loader_->wait(loader_->mark());
      return table;
    }
    table->mapped = host_memory(bytes, true, name_, "a table of " + reference::describe(s));
    const std::size_t scale_at = (s.data.size() + 255) / 256 * 256;
    std::copy(s.data.begin(), s.data.end(), table->mapped.host());
    std::copy(s.scale.begin(), s.scale.end(), table->mapped.host() + scale_at);
    table->view = {s.format, s.rows, s.cols, table->mapped.device(), table->mapped.device() + scale_at};
    return table;
  }

  std::shared_ptr<expert_set> pack_experts(std::span<const expert_source> sources) override {
    reference::check_experts(sources);
    use_gpu(index_);
    auto set = std::make_shared<gpu_expert_set>();
    set->slots = static_cast<std::int32_t>(sources.size());
    if (sources.empty())
      return set;
    set->intermediate = sources[0].w1.rows;
    set->hidden = sources[0].w1.cols;
    std::vector<expert_weights> places;
    for (const expert_source& s : sources) {
      expert_weights at;
      for (auto [source, place] : {std::pair{&s.w1, &at.w1}, {&s.w3, &at.w3}, {&s.w2, &at.w2}}) {
        set->weights.push_back(pack_one(*source));
        *place = set->weights.back()->w();
      }
      places.push_back(at);
    }
    const std::size_t bytes = places.size() * sizeof(expert_weights);
    set->places = device_memory_of(bytes, name_, "the table of experts");
    loader_->to_device(set->places->data, places.data(), bytes);
    loader_->wait(loader_->mark());
    return set;
  }

  void replace_expert(expert_set& set, std::int32_t slot, const expert_source& source) override {
    auto* own = dynamic_cast<gpu_expert_set*>(&set);
    if (own == nullptr)
      throw device_error("replace_expert: the set was not packed by this device");
    reference::check_replacement(set, slot, source);
    use_gpu(index_);
    const auto stream = std::make_shared<stream_state>(index_, name_);
    auto at = own->weights.begin() + 3 * std::ptrdiff_t{slot};
    for (const weight_source* w : {&source.w1, &source.w3, &source.w2})
      fill(**at++, *w, *stream);
  }

  op_table& ops() override { return ops_; }
  bool records() const override { return true; }

private:
  std::unique_ptr<gpu_weight> pack_one(const weight_source& s) {
    reference::check_source(s);
    use_gpu(index_);
    auto w = std::make_unique<gpu_weight>();
    w->rows = s.rows;
    w->cols = s.cols;
    w->memory = device_memory_of(static_cast<std::size_t>(s.rows * s.cols) * sizeof(float), name_,
                                 "weight " + reference::describe(s));
    fill(*w, s, *loader_);
    return w;
  }
  static void fill(gpu_weight& w, const weight_source& s, stream_state& by) {
    std::byte* stored = by.scratch(upload_bytes(s));
    unpack(by.next(), upload(by, s, stored), reinterpret_cast<float*>(w.memory->data));
    by.wait(by.mark());
  }

  std::string name_, description_;
  int index_;
  std::shared_ptr<stream_state> loader_; // uploads of weights
  gpu_ops ops_;
};

} // namespace

int gpu_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess)
    return count;
  cudaGetLastError();
  return 0;
}

std::string toolkit_description() {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess)
    driver = 0;
  const int count = gpu_count();
  return "CUDA runtime " + version_text(CUDART_VERSION) + ", " +
         (driver == 0 ? std::string("no driver") : "driver " + version_text(driver)) + ", " + std::to_string(count) +
         (count == 1 ? " GPU" : " GPUs");
}

std::unique_ptr<device> make_gpu_device(const std::string& name) {
  const int index = index_of(name), count = expect_driver(name);
  if (index >= count)
    refuse(name, "there is no GPU of this index: the driver offers " + std::to_string(count),
           "use an index below " + std::to_string(count));
  try {
    use_gpu(index);
    cudaDeviceProp facts{};
    check(cudaGetDeviceProperties(&facts, index), "asking for the GPU's properties");
    if (!has_code())
      refuse(name,
             std::string(facts.name) + " has compute capability " + std::to_string(facts.major) + "." +
                 std::to_string(facts.minor) + ", this build has code for " TROUPE_CUDA_ARCHITECTURES,
             "configure with -DTROUPE_CUDA_ARCHITECTURES=" + std::to_string(facts.major) + std::to_string(facts.minor) +
                 " and build again");
    return std::make_unique<gpu_device>(name, index, facts);
  } catch (const device_error& e) {
    refuse(name, e.what(), "check nvidia-smi");
  }
}

} // namespace troupe::cuda
