// Which addresses stay inside the host (cluster.md §3.12).
#pragma once
#include <string>

namespace troupe {

// 127.0.0.0/8 or ::1, in digits. Names are not: what they stand for is for others to say.
bool is_loopback_address(const std::string& address);

} // namespace troupe
