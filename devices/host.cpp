#include "devices/host.hpp"

#include "kernels/reference/table.hpp"
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>

namespace troupe {
namespace {

constexpr std::size_t alignment = 64;
constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

// Large calloc blocks come from the kernel as zero pages that are taken only when they are touched.
class host_storage : public buffer::storage {
public:
  explicit host_storage(std::size_t n) : block_(n <= unlimited - alignment ? std::calloc(n + alignment, 1) : nullptr) {
    if (block_ == nullptr)
      return;
    void* at = block_;
    std::size_t room = n + alignment;
    data = static_cast<std::byte*>(std::align(alignment, n, at, room));
    bytes = n;
  }
  host_storage(const host_storage&) = delete;
  host_storage& operator=(const host_storage&) = delete;
  ~host_storage() override { std::free(block_); }

private:
  void* block_;
};

class finished : public event {
public:
  bool done() const override { return true; }
  void wait() override {}
  double ms_since(const event& earlier) const override {
    const auto* e = dynamic_cast<const finished*>(&earlier);
    return e == nullptr ? 0 : std::chrono::duration<double, std::milli>(at_ - e->at_).count();
  }

private:
  std::chrono::steady_clock::time_point at_ = std::chrono::steady_clock::now();
};

// The number behind `key` in a file of lines "key value"; with an empty key the file's first word. unlimited when
// absent.
std::size_t read_number(const std::string& path, const std::string& key) {
  std::ifstream in(path);
  std::string word;
  while (in >> word)
    if (key.empty() || word == key) {
      if (!key.empty() && !(in >> word))
        return unlimited;
      try {
        return std::stoull(word);
      } catch (const std::exception&) {
        return unlimited; // "max"
      }
    }
  return unlimited;
}

// Lowers m by one control group's limit. Page cache of the group counts as available: the kernel drops it on demand.
void apply_group(device_memory& m, const std::string& folder, const char* limit_file, const char* usage_file) {
  const std::size_t limit = read_number(folder + limit_file, ""), used = read_number(folder + usage_file, "");
  if (limit == unlimited || used == unlimited)
    return;
  std::size_t cache = 0;
  for (const char* key : {"inactive_file", "active_file"})
    if (const std::size_t n = read_number(folder + "/memory.stat", key); n != unlimited)
      cache += n;
  const std::size_t held = used - std::min(used, cache);
  m.total = std::min(m.total, limit);
  m.available = std::min(m.available, limit - std::min(limit, held));
}

} // namespace

device_memory host_memory() {
  device_memory m;
  const std::size_t total = read_number("/proc/meminfo", "MemTotal:");
  const std::size_t available = read_number("/proc/meminfo", "MemAvailable:");
  m.total = total == unlimited ? unlimited : total * 1024;
  m.available = available == unlimited ? m.total : available * 1024;
  std::ifstream groups("/proc/self/cgroup"); // lines "number:controllers:path"
  for (std::string line; std::getline(groups, line);) {
    const std::size_t a = line.find(':'), b = a == std::string::npos ? a : line.find(':', a + 1);
    if (b == std::string::npos)
      continue;
    const std::string controllers = line.substr(a + 1, b - a - 1), path = line.substr(b + 1);
    const bool v2 = controllers.empty();
    if (!v2 && controllers.find("memory") == std::string::npos)
      continue;
    const std::string root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    const char *limit = v2 ? "/memory.max" : "/memory.limit_in_bytes",
               *used = v2 ? "/memory.current" : "/memory.usage_in_bytes";
    // every group on the way up may have a limit; inside a container the path is often not mounted, the root is
    for (std::string at = path == "/" ? "" : path;; at.resize(at.rfind('/'))) {
      apply_group(m, root + at, limit, used);
      if (at.find('/') == std::string::npos)
        break;
    }
  }
  return m;
}

void host_stream::to_device(dev_ptr<std::byte> dst, const void* src, std::size_t bytes) {
  if (bytes != 0)
    std::memcpy(dst.raw(), src, bytes);
}
void host_stream::to_host(void* dst, dev_ptr<const std::byte> src, std::size_t bytes) {
  if (bytes != 0)
    std::memcpy(dst, src.raw(), bytes);
}
void host_stream::copy(dev_ptr<std::byte> dst, dev_ptr<const std::byte> src, std::size_t bytes) {
  if (bytes != 0)
    std::memmove(dst.raw(), src.raw(), bytes);
}
void host_stream::zero(dev_ptr<std::byte> dst, std::size_t bytes) {
  if (bytes != 0)
    std::memset(dst.raw(), 0, bytes);
}
std::unique_ptr<event> host_stream::record() {
  return std::make_unique<finished>();
}

std::span<float> host_stream::scratch(std::size_t n) {
  if (scratch_.size() < n)
    scratch_.resize(n);
  return {scratch_.data(), n};
}

void host_stream::make_samplers(int workers, std::size_t vocab) {
  if (!samplers_.empty() && samplers_.front().row.size() < vocab)
    samplers_.clear();
  while (samplers_.size() < static_cast<std::size_t>(workers))
    samplers_.emplace_back(vocab);
}

buffer host_device::allocate(std::size_t bytes, const std::string& what) {
  const auto refuse = [&](std::size_t available) {
    throw device_error(name() + ": no memory for " + what + ": needs " + std::to_string(bytes) + " bytes, " +
                       std::to_string(available) + " bytes are available");
  };
  // small requests are not worth reading /proc for
  if (bytes > (std::size_t{1} << 20))
    if (const std::size_t available = memory().available; bytes > available)
      refuse(available);
  auto storage = std::make_unique<host_storage>(bytes);
  if (storage->data == nullptr)
    refuse(memory().available);
  return buffer(std::move(storage));
}

std::unique_ptr<stream> host_device::make_stream() {
  return std::make_unique<host_stream>();
}

std::shared_ptr<const row_table> host_device::pack_table(const weight_source& s) {
  return std::make_shared<reference::host_table>(s);
}

} // namespace troupe
