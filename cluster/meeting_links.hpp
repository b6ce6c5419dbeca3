// A meeting of ranks that share no memory: each sends every other what it shows, over ZeroMQ (bulk_link.hpp). No thread
// of its own but the link's: whoever meets takes what comes, and between meetings whoever asks for failure().
#pragma once
#include "cluster/bulk_link.hpp"
#include "cluster/meeting.hpp"
#include <memory>
#include <string>
#include <vector>

namespace troupe {

struct meeting_links_options {
  bulk_identity self; // `cluster` tells groups apart, `rank` is that in the group
  std::size_t ranks = 2;
  std::size_t place_bytes = std::size_t{1} << 20; // that a rank may show at a meeting; at most a frame's payload
  std::string bind = "tcp://127.0.0.1:*";
};

class meeting_links final : public meeting {
public:
  // Failures: those of bulk_link::start, "bad_options".
  static result<meeting_links> start(std::shared_ptr<bulk_context> context, const meeting_links_options& options);
  meeting_links(meeting_links&&) noexcept;
  meeting_links& operator=(meeting_links&&) noexcept;
  ~meeting_links() override; // the others hear that it leaves

  std::string endpoint() const; // where the others reach this rank
  // The other ranks that are there. All are needed; one that was there and is not any more ends the meeting.
  void set_peers(const std::vector<bulk_peer>& peers);

  std::size_t rank() const override;
  std::size_t ranks() const override;
  std::size_t place_bytes() const override;
  void be_ready() override;
  bool all_ready() const override;
  std::span<std::byte> mine(std::size_t bytes) override;
  status meet(std::uint64_t number, std::chrono::nanoseconds limit) override;
  std::span<const std::byte> shown(std::size_t rank) const override;
  void end(const std::string& why) override;
  std::optional<error> failure() override;

private:
  struct state;
  explicit meeting_links(std::unique_ptr<state> state);
  std::unique_ptr<state> state_;
};

} // namespace troupe
