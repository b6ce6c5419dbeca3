#include "cluster/name_pattern.hpp"
#include "cluster/loopback.hpp"
#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <charconv>
#include <cstring>
#include <ifaddrs.h>
#include <memory>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace troupe {

namespace {

constexpr std::size_t most_names = 8192;

error bad_pattern(std::string_view pattern, const std::string& why) {
  return {"pattern", "\"" + std::string(pattern) + "\": " + why + "; write gpu[001-017], or gpu[1,3-5]"};
}

bool parse_bound(std::string_view text, std::uint32_t& value) {
  const auto [rest, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  return fault == std::errc() && rest == text.data() + text.size() && text.size() <= 9;
}

// "001-003,7" -> 001, 002, 003, 7. False if it is no such list.
bool expand_range(std::string_view list, std::vector<std::string>& numbers) {
  while (true) {
    const std::string_view part = list.substr(0, list.find(','));
    const std::size_t dash = part.find('-');
    const std::string_view first = part.substr(0, dash), last = dash == part.npos ? first : part.substr(dash + 1);
    std::uint32_t low = 0, high = 0;
    if (!parse_bound(first, low) || !parse_bound(last, high) || low > high || high - low >= most_names)
      return false;
    for (std::uint32_t n = low; n <= high; ++n) {
      std::string digits = std::to_string(n);
      if (digits.size() < first.size())
        digits.insert(0, first.size() - digits.size(), '0');
      numbers.push_back(std::move(digits));
    }
    if (part.size() == list.size())
      return true;
    list.remove_prefix(part.size() + 1);
  }
}

struct interface_list {
  interface_list() {
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) == 0)
      first.reset(all);
  }
  struct release {
    void operator()(ifaddrs* p) const { ::freeifaddrs(p); }
  };
  std::unique_ptr<ifaddrs, release> first;
};

std::string address_text(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = address->sa_family == AF_INET
                          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr)
                          : &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return ::inet_ntop(address->sa_family, bytes, text.data(), text.size()) == nullptr ? "" : text.data();
}

} // namespace

result<std::vector<std::string>> expand_names(std::string_view pattern) {
  std::vector<std::string> names{""};
  std::string_view rest = pattern;
  while (!rest.empty()) {
    const std::size_t open = rest.find('['), close = rest.find(']');
    const std::string_view plain = rest.substr(0, open);
    if (plain.find(']') != plain.npos)
      return bad_pattern(pattern, "a ] without its [");
    for (std::string& name : names)
      name += plain;
    if (open == rest.npos)
      break;
    std::vector<std::string> numbers;
    if (close == rest.npos || !expand_range(rest.substr(open + 1, close - open - 1), numbers))
      return bad_pattern(pattern, "between [ and ] there is no list of numbers or ascending ranges");
    if (names.size() * numbers.size() > most_names)
      return bad_pattern(pattern, "it stands for more than " + std::to_string(most_names) + " names");
    std::vector<std::string> longer;
    for (const std::string& name : names)
      for (const std::string& number : numbers)
        longer.push_back(name + number);
    names = std::move(longer);
    rest.remove_prefix(close + 1);
  }
  return names;
}

std::string with_node(std::string_view text, std::string_view node) {
  constexpr std::string_view mark = "{node}";
  std::string out;
  for (std::size_t at; (at = text.find(mark)) != text.npos; text.remove_prefix(at + mark.size()))
    out.append(text.substr(0, at)).append(node);
  return out.append(text);
}

std::string_view interface_of(std::string_view bind) {
  constexpr std::string_view head = "{ip:";
  if (!bind.starts_with(head) || !bind.ends_with('}'))
    return {};
  return bind.substr(head.size(), bind.size() - head.size() - 1);
}

result<std::string> resolved_address(std::string_view bind) {
  if (bind.find('{') == bind.npos)
    return std::string(bind);
  const std::string name(interface_of(bind));
  if (name.empty())
    return error{"pattern", "\"" + std::string(bind) + "\" is no address; write one, or {ip:eth0}"};
  const interface_list interfaces;
  for (const int family : {AF_INET, AF_INET6})
    for (const ifaddrs* i = interfaces.first.get(); i != nullptr; i = i->ifa_next)
      if (i->ifa_addr != nullptr && i->ifa_addr->sa_family == family && name == i->ifa_name)
        if (const std::string text = address_text(i->ifa_addr); !text.empty())
          return text;
  return error{"no_interface", "this host has no interface " + name + " with an address"};
}

bool is_address(std::string_view text) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  const std::string name(text);
  return name == "localhost" || ::inet_pton(AF_INET, name.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, name.c_str(), bytes.data()) == 1;
}

bool is_loopback(std::string_view address) {
  return address == "localhost" || is_loopback_address(std::string(address));
}

bool is_this_machine(std::string_view host) {
  if (is_loopback(host))
    return true;
  std::array<char, 256> own{};
  if (::gethostname(own.data(), own.size() - 1) == 0) {
    const std::string_view name(own.data());
    const auto first_part = [](std::string_view h) { return h.substr(0, h.find('.')); };
    if (name == host || (first_part(name) == first_part(host) && !is_address(host)))
      return true;
  }
  const interface_list interfaces;
  for (const ifaddrs* i = interfaces.first.get(); i != nullptr; i = i->ifa_next)
    if (i->ifa_addr != nullptr && (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6))
      if (address_text(i->ifa_addr) == host)
        return true;
  return false;
}

} // namespace troupe
