// troupe keygen: the keys of a cluster whose processes trust nobody else.
#include "cli/verbs.hpp"
#include "cluster/certificates.hpp"
#include <algorithm>
#include <filesystem>
#include <iostream>

namespace troupe {

int run_keygen(const keygen_options& o) {
  std::vector<std::string> names = o.nodes;
  if (!std::filesystem::exists(o.folder + "/" + client_key_name + ".key"))
    names.emplace_back(client_key_name);
  for (const std::string& name : names)
    if (name.empty() || name == "ca" || name.find('/') != std::string::npos)
      throw config_error("command line", "--node", name, "makes no file name", "give the name of a [[node]]");
  const auto files = make_cluster_keys(o.folder, names);
  if (!files)
    throw config_error("", "keygen", o.folder, files.failure().message,
                       files.failure().code == "keys_exist"
                           ? "these keys are in use perhaps: remove them first, or leave the node out"
                           : "see the message");
  for (const std::string& file : *files)
    std::cout << file << "\n";
  const std::string folder = std::filesystem::absolute(o.folder).lexically_normal().string();
  std::cout << "# for the cluster's file; give every host ca.pem, its own NAME.* and, for clients, client.*;\n"
               "# ca.key stays where keys are made\n[security]\nmode = \"mutual\"\nca = \""
            << folder << "/ca.pem\"\ncert = \"" << folder << "/{node}.pem\"\nkey = \"" << folder
            << "/{node}.key\"\ncurve_dir = \"" << folder << "\"\n";
  return exit_ok;
}

} // namespace troupe
