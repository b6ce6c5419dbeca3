// Patterns in names, addresses and paths of a cluster file (cluster.md §3.13).
#pragma once
#include "runtime/base/result.hpp"
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

// "gpu[001-017]" and "r[1-2]n[0,4-5]": every name, the last range running fastest; numbers keep the width of the first
// bound. A text without brackets is one name. Codes: pattern.
result<std::vector<std::string>> expand_names(std::string_view pattern);

// "{node}" replaced by a node's name.
std::string with_node(std::string_view text, std::string_view node);

// "{ip:eth0}" -> the first address of that interface of this host, IPv4 before IPv6; another text as it is. Codes:
// no_interface, pattern.
result<std::string> resolved_address(std::string_view bind);

// Whether an address text is one of this machine only: 127.0.0.0/8, ::1 or localhost.
bool is_loopback(std::string_view address);
// An IPv4 or IPv6 address, or localhost.
bool is_address(std::string_view text);
// "{ip:NAME}": NAME; empty for another text.
std::string_view interface_of(std::string_view bind);

// Whether a host name or an address means this machine: localhost, its name, or an address of one of its interfaces.
bool is_this_machine(std::string_view host);

} // namespace troupe
