// The token ledgers of a gateway's requests on disk (cluster.md §3.5): a restart goes on with every open request at the
// token that was written last. One file, appended to by one process; a record is whole or it is not there.
//
// File: 16 bytes of header, then records [u32 length][u32 CRC-32C of length and payload][payload], integers little
// endian, payload cereal's portable binary.
#pragma once
#include "cluster/file_lock.hpp"
#include "cluster/identity.hpp"
#include "runtime/base/result.hpp"
#include "runtime/request/sampling_params.hpp"
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace troupe {

// One branch of a request, as it was admitted: all that its tokens depend on, and what its computation is told.
struct ledger_request {
  req_t req;
  std::uint32_t branch = 0, attempt = 1;
  std::string request_id, numerics_id;
  std::vector<std::int32_t> prompt;
  sampling_params params;
  std::uint64_t seed = 0;      // of this branch
  std::int64_t truncation = 0; // R, the first position that consumers see (exactness.md §7)
  std::vector<std::int32_t> eos_ids, logit_rows;
  std::int32_t priority = 0, deadline_steps = 0;
  std::string cache_salt;
  std::vector<std::int32_t> chunk_checkpoints;
  bool operator==(const ledger_request&) const = default;
};

// Output that the session accepted: it goes on where the tokens before it end.
struct ledger_tokens {
  req_t req;
  std::uint32_t branch = 0, attempt = 1;
  std::int64_t first_position = 0;
  std::vector<std::int32_t> ids;
  std::vector<std::uint32_t> bounds;       // tokens of each step, in sum those of ids
  std::string logprobs, top;               // packed as in `tokens`
  std::string prompt_logprobs{}, logits{}; // likewise; all of it comes before the first token
  bool operator==(const ledger_tokens&) const = default;
};

struct ledger_attempt { // the branch starts over somewhere else
  req_t req;
  std::uint32_t branch = 0, attempt = 1;
  bool operator==(const ledger_attempt&) const = default;
};

struct ledger_closed { // finished or failed, or nobody will go on with it
  req_t req;
  std::uint32_t branch = 0;
  bool operator==(const ledger_closed&) const = default;
};

using ledger_record = std::variant<ledger_request, ledger_tokens, ledger_attempt, ledger_closed>;

// An open branch: its attempt is the last one, its tokens are all.
struct ledger_entry {
  ledger_request request;
  ledger_tokens output; // all tokens in one
  bool operator==(const ledger_entry&) const = default;
};

enum class ledger_sync : std::uint8_t {
  none,     // the system writes when it likes: survives the process, not the machine
  interval, // at most interval_ms late
  each      // before append() returns
};

struct ledger_settings {
  std::string path;
  ledger_sync sync = ledger_sync::interval;
  std::int64_t interval_ms = 10;
};

class ledger_file {
public:
  struct recovered {
    std::vector<ledger_entry> open; // in the order in which they were admitted
    std::uint64_t records = 0;      // that were read
    std::uint64_t cut_bytes = 0;    // behind the last good record
  };

  // Opens or makes the file, takes its lock, cuts a damaged tail and drops what is closed. Fails: "ledger_locked"
  // (another process writes it), "ledger_damaged" (something else, or of another version: it is left alone),
  // "write_failed".
  static result<ledger_file> open(const ledger_settings& settings, recovered& out);

  ledger_file(ledger_file&& other) noexcept;
  ledger_file& operator=(ledger_file&&) = delete;
  ~ledger_file();

  // Time: steady, ms. Fails with "write_failed" and changes nothing, a full disk for example: the caller admits nothing
  // more, what runs goes on and is not durable.
  status append(const ledger_record& record, std::int64_t now);
  // Call at least every interval_ms. Fails when the system could not make the records durable; then only rewrite()
  // helps.
  status tick(std::int64_t now);
  status sync();
  // The same ledger with these open branches alone, all at once.
  status rewrite(std::span<const ledger_entry> open);
  // The same without what is closed.
  status compact();

  std::uint64_t appended() const { return appended_; } // records since open()
  std::uint64_t durable() const { return durable_; }   // of these, surely on disk
  std::uint64_t bytes() const { return end_; }

private:
  ledger_file(const ledger_settings& settings, file_lock lock) : settings_(settings), lock_(std::move(lock)) {}
  status start_at(std::uint64_t end);
  status failed(const std::string& what) const;

  ledger_settings settings_;
  file_lock lock_; // goes last, when the file is closed
  int fd_ = -1;
  std::uint64_t end_ = 0, appended_ = 0, durable_ = 0;
  std::optional<std::int64_t> unsynced_since_;
  bool broken_ = false; // the tail could not be taken back, or a sync failed
};

// A record as the file holds it, and all of a file with these records.
std::string ledger_bytes(const ledger_record& record);
std::string ledger_image(std::span<const ledger_record> records);

} // namespace troupe
