// What came over a connection that is nothing of this cluster: who listens ends the connection and says so here.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace troupe {

struct refused_bytes {
  std::string at;          // where this process listens
  std::string why;         // what was wrong
  std::uint64_t since = 0; // others there that nothing was said of: at most one a second is spoken of
};

// Of the process. Called by any thread that listens; must not block.
void on_refused_bytes(std::function<void(const refused_bytes&)> report);
void refuse_bytes(const std::string& at, const std::string& why);

} // namespace troupe
