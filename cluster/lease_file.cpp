#include "cluster/lease_file.hpp"
#include "cluster/record_bytes.hpp"
#include "runtime/base/pending_file.hpp"
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

namespace troupe {

template <class Archive> void serialize(Archive& a, candidate_id& v) {
  auto& [node, incarnation] = v;
  a(node.value, incarnation);
}
template <class Archive> void serialize(Archive& a, remembered_epochs& v) {
  auto& [mepoch, config_hash] = v;
  a(mepoch, config_hash);
}
template <class Archive> void serialize(Archive& a, voter_state& v) {
  auto& [term, candidate, known] = v;
  a(term, candidate, known);
}

namespace {

constexpr std::string_view magic = "TRPLEAS2";

} // namespace

std::string lease_bytes(const voter_state& state) {
  std::string out = std::string(magic) + to_bytes(state);
  append_u32(out, crc32c_of(out));
  return out;
}

std::optional<voter_state> lease_from_bytes(std::string_view bytes) {
  if (bytes.size() < magic.size() + 4 || bytes.substr(0, magic.size()) != magic)
    return std::nullopt;
  const std::string_view body = bytes.substr(0, bytes.size() - 4);
  if (crc32c_of(body) != u32_at(bytes, body.size()))
    return std::nullopt;
  return from_bytes<voter_state>(body.substr(magic.size()));
}

status write_lease(const std::string& path, const voter_state& state) {
  if (status s = write_whole_file(path, lease_bytes(state)); !s)
    return s;
  return sync_folder_of(path);
}

result<std::optional<voter_state>> read_lease(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in && errno == ENOENT)
    return std::optional<voter_state>{};
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (auto state = lease_from_bytes(bytes))
    return state;
  return error{"lease_damaged",
               path + ": cannot be read as this node's votes; if every other node keeps its votes, remove "
                      "the file, wait for one lease and start this node again"};
}

} // namespace troupe
