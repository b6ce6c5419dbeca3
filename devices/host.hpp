// Base of the devices whose memory is the host's ("reference", "cpu"): buffers, events and streams whose operations
// have finished when the call returns.
#pragma once
#include "devices/device.hpp"
#include "kernels/reference/sample.hpp"
#include <vector>

namespace troupe {

// Host memory that may be taken: the smaller of what the system and the control groups of this process allow.
device_memory host_memory();

// Runs everything at once on the calling thread. Each stream owns the scratch of its operations, so streams may be used
// from different threads.
class host_stream : public stream {
public:
  void to_device(dev_ptr<std::byte> dst, const void* src, std::size_t bytes) override;
  void to_host(void* dst, dev_ptr<const std::byte> src, std::size_t bytes) override;
  void copy(dev_ptr<std::byte> dst, dev_ptr<const std::byte> src, std::size_t bytes) override;
  void zero(dev_ptr<std::byte> dst, std::size_t bytes) override;
  std::unique_ptr<event> record() override;
  void wait_for(const event&) override {}
  void synchronise() override {}
  void begin_capture() override {}
  std::unique_ptr<graph> end_capture() override { return nullptr; }
  void launch(const graph&) override {}

  // At least n floats that stay valid until the next call; grows and never shrinks.
  std::span<float> scratch(std::size_t n);
  // Working memory of the sampler for rows of `vocab` logits, one for each worker; make_samplers comes first.
  void make_samplers(int workers, std::size_t vocab);
  sample_scratch& sampler(int worker) { return samplers_[static_cast<std::size_t>(worker)]; }

private:
  std::vector<float> scratch_;
  std::vector<sample_scratch> samplers_;
};

// What such devices share. Derived classes add name, weights and operations.
class host_device : public device {
public:
  std::string numerics_id() const override { return "cpu-1"; }
  device_memory memory() const override { return host_memory(); }
  bool records() const override { return false; }
  buffer allocate(std::size_t bytes, const std::string& what) override;
  std::unique_ptr<stream> make_stream() override;
  std::shared_ptr<const row_table> pack_table(const weight_source& s) override; // a reference::host_table
};

} // namespace troupe
