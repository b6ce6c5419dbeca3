// Ranks of one group that meet over loopback (cluster/meeting_links.hpp), all in this process.
#pragma once
#include "cluster/meeting_links.hpp"
#include <cstdint>
#include <memory>
#include <vector>

namespace troupe::test {

inline bulk_identity rank_of_links(std::size_t rank) {
  return {"c.cp0.7", static_cast<std::uint32_t>(rank), 100 + rank, "build"};
}

inline std::vector<std::shared_ptr<meeting_links>> unlinked_ranks(std::size_t ranks, std::size_t place_bytes) {
  std::vector<std::shared_ptr<meeting_links>> all;
  for (std::size_t r = 0; r < ranks; ++r) {
    meeting_links_options o;
    o.self = rank_of_links(r);
    o.ranks = ranks;
    o.place_bytes = place_bytes;
    all.push_back(std::make_shared<meeting_links>(meeting_links::start(std::make_shared<bulk_context>(), o).value()));
  }
  return all;
}

// Each hears of the others.
inline void link(const std::vector<std::shared_ptr<meeting_links>>& all) {
  for (std::size_t r = 0; r < all.size(); ++r) {
    std::vector<bulk_peer> others;
    for (std::size_t o = 0; o < all.size(); ++o)
      if (o != r)
        others.push_back({static_cast<std::uint32_t>(o), rank_of_links(o).incarnation, all[o]->endpoint(), ""});
    all[r]->set_peers(others);
  }
}

inline std::vector<std::shared_ptr<meeting_links>> linked_ranks(std::size_t ranks, std::size_t place_bytes) {
  auto all = unlinked_ranks(ranks, place_bytes);
  link(all);
  return all;
}

} // namespace troupe::test
