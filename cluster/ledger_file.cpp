#include "cluster/ledger_file.hpp"
#include "cluster/params_bytes.hpp"
#include "cluster/record_bytes.hpp"
#include "runtime/base/pending_file.hpp"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <unistd.h>
#include <utility>

namespace troupe {

// Bindings name every field: one that is added and forgotten here does not compile.
template <class Archive> void serialize(Archive& a, req_t& v) {
  auto& [origin, number] = v;
  a(origin, number);
}
template <class Archive> void serialize(Archive& a, ledger_request& v) {
  auto& [req, branch, attempt, id, numerics, prompt, params, seed, truncation, eos, rows, priority, deadline, salt,
         checkpoints] = v;
  a(req, branch, attempt, id, numerics, prompt, params, seed, truncation, eos, rows, priority, deadline, salt,
    checkpoints);
}
template <class Archive> void serialize(Archive& a, ledger_tokens& v) {
  auto& [req, branch, attempt, first, ids, bounds, logprobs, top, prompt_logprobs, logits] = v;
  a(req, branch, attempt, first, ids, bounds, logprobs, top, prompt_logprobs, logits);
}
template <class Archive> void serialize(Archive& a, ledger_attempt& v) {
  auto& [req, branch, attempt] = v;
  a(req, branch, attempt);
}
template <class Archive> void serialize(Archive& a, ledger_closed& v) {
  auto& [req, branch] = v;
  a(req, branch);
}

namespace {

constexpr std::uint32_t format_version = 3;
constexpr std::size_t header_bytes = 16, frame_bytes = 8;
constexpr std::uint32_t longest_record = 1u << 30; // of a request with everything at its limits by far

std::string header() {
  std::string out = "TRPLEDGR";
  append_u32(out, format_version);
  append_u32(out, crc32c_of(out));
  return out;
}

std::string reason() {
  return std::strerror(errno);
} // NOLINT(concurrency-mt-unsafe): called by one thread

// What records leave open.
class open_branches {
public:
  void apply(ledger_record& record) {
    std::visit([this](auto& r) { on(r); }, record);
  }
  bool dropped() const { return dropped_; }
  std::vector<ledger_entry> entries() const {
    std::vector<ledger_entry> out;
    for (const ledger_entry& e : all_)
      if (open_.contains(key(e.request)))
        out.push_back(e);
    return out;
  }

private:
  using key_t = std::pair<req_t, std::uint32_t>;
  static key_t key(const auto& r) { return {r.req, r.branch}; }
  ledger_entry* find(const auto& r) {
    const auto it = open_.find(key(r));
    return it == open_.end() ? nullptr : &all_[it->second];
  }
  void on(ledger_request& r) {
    if (find(r))
      return; // admitted twice: the first one counts
    open_[key(r)] = all_.size();
    ledger_tokens none{r.req, r.branch, r.attempt, static_cast<std::int64_t>(r.prompt.size()), {}, {}, {}, {}, {}, {}};
    all_.push_back({std::move(r), std::move(none)});
  }
  void on(ledger_tokens& t) {
    ledger_entry* e = find(t);
    if (!e || t.first_position != e->output.first_position + static_cast<std::int64_t>(e->output.ids.size()))
      return; // a writer appends in order: nothing that a reader could have seen is lost
    on(ledger_attempt{t.req, t.branch, t.attempt});
    e->output.ids.insert(e->output.ids.end(), t.ids.begin(), t.ids.end());
    e->output.bounds.insert(e->output.bounds.end(), t.bounds.begin(), t.bounds.end());
    e->output.logprobs += t.logprobs;
    e->output.top += t.top;
    e->output.prompt_logprobs += t.prompt_logprobs;
    e->output.logits += t.logits;
  }
  void on(const ledger_attempt& a) {
    ledger_entry* e = find(a);
    if (!e || a.attempt <= e->request.attempt)
      return;
    e->request.attempt = e->output.attempt = a.attempt;
    if (e->output.ids.empty()) { // rows of a prompt that gave no token yet come again
      e->output.prompt_logprobs.clear();
      e->output.logits.clear();
    }
  }
  void on(const ledger_closed& c) {
    dropped_ = true;
    if (ledger_entry* e = find(c)) {
      *e = {};
      open_.erase(key(c));
    }
  }

  std::vector<ledger_entry> all_;
  std::map<key_t, std::size_t> open_;
  bool dropped_ = false;
};

// Reads good records from the front; the place behind the last of them.
std::uint64_t read_records(std::ifstream& in, std::uint64_t size, open_branches& open, std::uint64_t& records) {
  std::uint64_t at = header_bytes;
  std::string frame(frame_bytes, '\0'), payload;
  in.seekg(static_cast<std::streamoff>(at));
  while (size - at >= frame_bytes) {
    if (!in.read(frame.data(), frame_bytes))
      break;
    const std::uint32_t length = u32_at(frame, 0);
    if (length > longest_record || length > size - at - frame_bytes)
      break;
    payload.resize(length);
    if (!in.read(payload.data(), length) ||
        crc32c_of(payload, crc32c_of(std::string_view(frame).substr(0, 4))) != u32_at(frame, 4))
      break;
    auto record = from_bytes<ledger_record>(payload);
    if (!record)
      break;
    open.apply(*record);
    ++records;
    at += frame_bytes + length;
  }
  return at;
}

std::vector<ledger_record> records_of(std::span<const ledger_entry> open) {
  std::vector<ledger_record> out;
  for (const ledger_entry& e : open) {
    out.emplace_back(e.request);
    if (!e.output.ids.empty() || !e.output.prompt_logprobs.empty() || !e.output.logits.empty())
      out.emplace_back(e.output);
  }
  return out;
}

result<file_lock> take_lock(const std::string& path) {
  auto lock = file_lock::take(path);
  if (lock)
    return lock;
  if (lock.failure().code == "held")
    return error{"ledger_locked", path + ": another process writes this ledger; stop it, or give each gateway its own "
                                         "ledger"};
  return error{"write_failed",
               path + ": cannot be made: " + lock.failure().message + "; choose another place for the ledger"};
}

} // namespace

std::string ledger_bytes(const ledger_record& record) {
  const std::string payload = to_bytes(record);
  std::string out;
  append_u32(out, static_cast<std::uint32_t>(payload.size()));
  append_u32(out, crc32c_of(payload, crc32c_of(out)));
  return out + payload;
}

std::string ledger_image(std::span<const ledger_record> records) {
  std::string out = header();
  for (const ledger_record& r : records)
    out += ledger_bytes(r);
  return out;
}

result<ledger_file> ledger_file::open(const ledger_settings& settings, recovered& out) {
  out = {};
  auto lock = take_lock(settings.path + ".lock");
  if (!lock)
    return lock.failure();
  ledger_file file(settings, std::move(*lock));
  std::error_code none;
  const auto found = std::filesystem::file_size(settings.path, none);
  const std::uint64_t size = none ? 0 : found;
  open_branches open;
  if (size > 0) {
    std::ifstream in(settings.path, std::ios::binary);
    std::string head(std::min<std::uint64_t>(size, header_bytes), '\0');
    in.read(head.data(), static_cast<std::streamsize>(head.size()));
    if (!in || header().compare(0, head.size(), head) != 0)
      return error{"ledger_damaged", settings.path + ": is no request ledger, or one of another version; move it away, "
                                                     "or name another file"};
    const std::uint64_t good = size < header_bytes ? 0 : read_records(in, size, open, out.records);
    out.cut_bytes = size - good;
    out.open = open.entries();
    if (good >= header_bytes && !open.dropped()) {
      const status s = file.start_at(good);
      return s ? result<ledger_file>(std::move(file)) : s.failure();
    }
  }
  const status s = file.rewrite(out.open);
  return s ? result<ledger_file>(std::move(file)) : s.failure();
}

ledger_file::ledger_file(ledger_file&& other) noexcept
    : settings_(std::move(other.settings_)), lock_(std::move(other.lock_)), fd_(std::exchange(other.fd_, -1)),
      end_(other.end_), appended_(other.appended_), durable_(other.durable_), unsynced_since_(other.unsynced_since_),
      broken_(other.broken_) {}

ledger_file::~ledger_file() {
  if (fd_ >= 0) {
    if (settings_.sync != ledger_sync::none)
      ::fdatasync(fd_);
    ::close(fd_);
  }
}

status ledger_file::failed(const std::string& what) const {
  return error{"write_failed",
               settings_.path + ": " + what + ": " + reason() + "; free space, or set ledger.mode = \"memory\""};
}

// Goes on behind the last good record; what is behind it is gone for good.
status ledger_file::start_at(std::uint64_t end) {
  fd_ = ::open(settings_.path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd_ < 0)
    return failed("cannot be opened");
  const off_t size = ::lseek(fd_, 0, SEEK_END);
  if (size != static_cast<off_t>(end) && (::ftruncate(fd_, static_cast<off_t>(end)) != 0 || ::fsync(fd_) != 0))
    return failed("cannot be cut");
  end_ = end;
  return nothing{};
}

status ledger_file::append(const ledger_record& record, std::int64_t now) {
  if (broken_)
    return error{"write_failed", settings_.path +
                                     ": an earlier record could not be written; the ledger must be written "
                                     "anew"};
  const std::string bytes = ledger_bytes(record);
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::pwrite(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(end_ + done));
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0) {
      const status s = failed("a record cannot be written");
      broken_ = ::ftruncate(fd_, static_cast<off_t>(end_)) != 0; // half a record would hide those behind it
      return s;
    }
    done += static_cast<std::size_t>(n);
  }
  end_ += bytes.size();
  ++appended_;
  if (!unsynced_since_)
    unsynced_since_ = now;
  return settings_.sync == ledger_sync::each ? sync() : status(nothing{});
}

status ledger_file::tick(std::int64_t now) {
  if (settings_.sync != ledger_sync::interval || !unsynced_since_ || now - *unsynced_since_ < settings_.interval_ms)
    return nothing{};
  return sync();
}

// After a failed sync the system has forgotten which pages are not on disk: asking again would succeed and say nothing.
status ledger_file::sync() {
  if (broken_ || ::fdatasync(fd_) != 0) {
    broken_ = true;
    return failed("records are not durable");
  }
  durable_ = appended_;
  unsynced_since_.reset();
  return nothing{};
}

status ledger_file::compact() {
  open_branches open;
  std::uint64_t records = 0;
  std::ifstream in(settings_.path, std::ios::binary);
  if (read_records(in, end_, open, records) != end_)
    return failed("it cannot be read again");
  return rewrite(open.entries());
}

status ledger_file::rewrite(std::span<const ledger_entry> open) {
  const std::string image = ledger_image(records_of(open));
  if (status s = write_whole_file(settings_.path, image); !s)
    return s;
  if (status s = sync_folder_of(settings_.path); !s)
    return s;
  if (fd_ >= 0)
    ::close(std::exchange(fd_, -1));
  if (status s = start_at(image.size()); !s)
    return s;
  durable_ = appended_;
  unsynced_since_.reset();
  broken_ = false;
  return nothing{};
}

} // namespace troupe
