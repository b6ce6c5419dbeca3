#include "devices/cpu/cpu.hpp"

#include "devices/cpu/cpu_ops.hpp"
#include "devices/host.hpp"
#include "kernels/cpu/instruction_set.hpp"
#include "runtime/base/result.hpp"
#include <algorithm>
#include <thread>

namespace troupe {
namespace {

constexpr int most_threads = 1024;

int thread_count(const device_options& o) {
  if (o.threads < 0 || o.threads > most_threads)
    throw config_error("", "threads", std::to_string(o.threads), "not between 0 and " + std::to_string(most_threads),
                       "0 takes one thread per available core");
  for (const int core : o.cores)
    if (core < 0)
      throw config_error("", "cores", std::to_string(core), "core numbers are not negative", "");
  if (!o.cores.empty()) {
    const auto cores = static_cast<int>(o.cores.size());
    if (o.threads > cores)
      throw config_error("", "threads", std::to_string(o.threads), "more threads than cores to pin them to",
                         "name as many cores as threads, or none");
    return o.threads == 0 ? std::min(cores, most_threads) : o.threads;
  }
  if (o.threads > 0)
    return o.threads;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, most_threads); // counts allowed cores
}

class cpu_device : public host_device {
public:
  explicit cpu_device(const device_options& o) : pool_(thread_count(o), o.cores), ops_(pool_) {}
  std::string name() const override { return "cpu"; }
  std::string description() const override {
    return cpu::instruction_set() + ", " + std::to_string(pool_.threads()) +
           (pool_.threads() == 1 ? " thread" : " threads");
  }
  std::unique_ptr<stream> make_stream() override { return std::make_unique<cpu_stream>(); }
  std::shared_ptr<const weight> pack(const weight_source& s) override { return cpu::pack_weight(s, arena_); }
  std::shared_ptr<expert_set> pack_experts(std::span<const expert_source> sources) override {
    return cpu::pack_experts(sources, arena_);
  }
  void replace_expert(expert_set& set, std::int32_t slot, const expert_source& source) override {
    auto* own = dynamic_cast<cpu::panel_expert_set*>(&set);
    if (own == nullptr)
      throw device_error("replace_expert: the set was not packed by this device");
    cpu::replace_expert(*own, slot, source, arena_);
  }
  op_table& ops() override { return ops_; }

private:
  cpu::weight_arena arena_;
  thread_pool pool_;
  cpu_ops ops_;
};

} // namespace

std::unique_ptr<device> make_cpu_device(const device_options& options) {
  return std::make_unique<cpu_device>(options);
}

} // namespace troupe
