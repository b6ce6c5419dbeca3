// Segments of shared memory under /dev/shm, named troupe.<cluster>.<node>.<a>-<b>, mode 0600 (cluster.md §3.10, §3.12).
// One process owns a segment: it makes it and unlinks it. While the owner lives it holds a lock on the file, which the
// kernel drops however the owner ends, so that a segment left by a dead owner can be told and taken over.
#pragma once
#include "runtime/base/result.hpp"
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace troupe {

// "troupe.<cluster>.<node>.<a>-<b>". Parts are of letters, digits, '_' and, inside <a> and <b>, '.'; failure
// ("bad_name") otherwise or when the whole is longer than a file name may be.
result<std::string> segment_name(std::string_view cluster, std::string_view node, std::string_view a,
                                 std::string_view b);

// A name of the configuration as a part of a segment's: what may not stand there becomes '_'.
std::string segment_part(std::string_view name);
// What the names of all segments of a cluster's node begin with.
std::string segment_prefix(std::string_view cluster, std::string_view node);

// Which process stands at one end of something shared. Lives inside the segment; written by that process alone.
class shared_end {
public:
  // Takes the end for this process. Failure ("in_use"): another living process has it.
  status take();
  // Gives it up in order, the other side sees left().
  void leave();
  void beat() { beats_.store(beats() + 1, std::memory_order_relaxed); } // by one thread: no read-modify-write is needed

  std::uint64_t beats() const { return beats_.load(std::memory_order_relaxed); }
  pid_t pid() const { return static_cast<pid_t>(pid_.load(std::memory_order_seq_cst)); }
  bool taken() const { return pid() != 0; }
  bool left() const { return left_.load(std::memory_order_seq_cst) != 0; }
  // Whether a process took it and is gone without leave(). Asks the system: not for every record.
  bool died() const;
  // Whether a process had it and has it no more; asks the system, too.
  bool gone() const { return taken() && (left() || died()); }

private:
  std::atomic<std::uint64_t> beats_{0};
  std::atomic<std::uint64_t> started_{0}; // of the process, in clock ticks since boot: pids are used again
  std::atomic<std::uint32_t> pid_{0};
  std::atomic<std::uint32_t> left_{0};
};

// For how long an end has not beaten, by the observer's clock.
class beat_watch {
public:
  std::chrono::nanoseconds silent_for(const shared_end& end, std::chrono::steady_clock::time_point now) {
    if (end.beats() != seen_) {
      seen_ = end.beats();
      since_ = now;
    }
    return now - since_;
  }

private:
  std::uint64_t seen_ = ~std::uint64_t{0};
  std::chrono::steady_clock::time_point since_{};
};

class shared_memory {
public:
  // A new segment of `bytes` zeros behind its own header, owned by the caller. One of that name whose owner is dead is
  // replaced. Failures: "in_use" (its owner lives), "no_space" (/dev/shm is full), "shm_failed" (the system's reason).
  static result<shared_memory> create(const std::string& name, std::size_t bytes);
  // Somebody else's segment. Failures: "unknown" (there is none), "owner_gone" (a dead owner left it), "bad_segment"
  // (not ours, or of another layout), "shm_failed".
  static result<shared_memory> open(const std::string& name);

  shared_memory(shared_memory&& other) noexcept;
  shared_memory& operator=(shared_memory&& other) noexcept;
  ~shared_memory(); // unmaps; the owner's unlinks, unless the name belongs to another segment by now

  const std::string& name() const { return name_; }
  std::byte* data() const;
  std::size_t size() const; // bytes behind data()
  bool owner() const { return owner_; }
  // Whether the owner has died. An owner that left in order counts as gone, too.
  bool owner_gone() const;

private:
  shared_memory() = default;
  void close();

  std::string name_;
  int fd_ = -1; // the owner's holds the lock
  void* map_ = nullptr;
  std::size_t mapped_ = 0;
  bool owner_ = false;
  pid_t owner_pid_ = 0; // a forked child has copies of its parent's objects, and unlinks nothing
};

// Unlinks every segment whose name begins with `prefix` ("troupe.<cluster>.<node>.") and whose owner is dead; their
// names.
std::vector<std::string> reap_segments(std::string_view prefix);
// Names that begin with `prefix`, living or not.
std::vector<std::string> list_segments(std::string_view prefix);

} // namespace troupe
