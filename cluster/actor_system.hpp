// Settings of our actor systems and the messages that they carry. One file instantiates what CAF keeps of every message
// type: seconds of compile time, which else each file that makes a system would pay.
#pragma once
#include "cluster/caf.hpp"
#include <chrono>
#include <cstddef>
#include <string>

namespace troupe {

// Before the first actor system of a process.
void prepare_process();
// The messages of one engine (messages.hpp), for a system that sets the rest itself.
void add_engine_messages(caf::actor_system_config& cfg);
// A system that stays inside its process: no middleman, `threads` workers for the pooled actors.
void prepare_local(caf::actor_system_config& cfg, std::size_t threads);
// A system that talks to other processes of the same build. Both times must be the same on all nodes.
void prepare(caf::actor_system_config& cfg, const std::string& build, std::size_t threads,
             std::chrono::milliseconds beat, std::chrono::milliseconds dead);

} // namespace troupe
