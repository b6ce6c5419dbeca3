// troupe keygen: the keys of a cluster whose processes trust nobody else.
#include "cli/verbs.hpp"
#include "cluster/certificates.hpp"
#include <filesystem>
#include <iostream>

namespace troupe {

int run_keygen(const keygen_options& o) {
  for (const std::string& name : o.nodes)
    if (name.empty() || name == "ca" || name.find('/') != std::string::npos)
      throw config_error("command line", "--node", name, "makes no file name", "give the name of a [[node]]");
    else if (role_of(name) != key_role::node)
      throw config_error("command line", "--node", name, "keys of this name are no node's, and made anyway",
                         "give the name of a [[node]]");
  std::vector<std::string> names = o.nodes;
  for (const std::string_view role : role_names)
    if (const std::string name(role); !std::filesystem::exists(o.folder + "/" + name + ".key"))
      names.push_back(name);
  const auto files = make_cluster_keys(o.folder, names);
  if (!files)
    throw config_error("", "keygen", o.folder, files.failure().message,
                       files.failure().code == "keys_exist"
                           ? "these keys are in use perhaps: remove them first, or leave the node out"
                           : "see the message");
  for (const std::string& file : *files)
    std::cout << file << "\n";
  const std::string folder = std::filesystem::absolute(o.folder).lexically_normal().string();
  std::cout
      << "# for the cluster's file; give every host ca.pem and its own NAME.*; admin.* to who stops the cluster and\n"
         "# moves its experts, client.* to who has requests, observer.* to who only asks for its status; ca.key stays\n"
         "# where keys are made\n[security]\nmode = \"mutual\"\nca = \""
      << folder << "/ca.pem\"\ncert = \"" << folder << "/{node}.pem\"\nkey = \"" << folder
      << "/{node}.key\"\ncurve_dir = \"" << folder << "\"\n";
  return exit_ok;
}

} // namespace troupe
