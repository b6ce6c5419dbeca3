// The keys of a cluster in mode "mutual" (cluster.md §3.12), as troupe keygen makes them: an authority of its own, one
// certificate for each node and for each other role (key_role.hpp), and CURVE keys of their names.
#pragma once
#include "cluster/curve.hpp"
#include "cluster/tls.hpp"
#include "runtime/base/result.hpp"
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

// Writes into the folder, which is made (0700) if it is not there: ca.pem and ca.key; NAME.pem, NAME.key and
// NAME.curve for each name. An authority that is there is used again, so that nodes can be added; files of a name that
// are there already are an error ("keys_exist"). Keys are readable by their owner only. A certificate that is no node's
// is good for reaching nodes only: nobody takes what listens with it for a node. Gives the files written.
// Further codes: write_failed, no_keys.
result<std::vector<std::string>> make_cluster_keys(const std::string& folder, const std::vector<std::string>& names);

// From a NAME.curve. Code: no_keys (not there, not such keys, or readable by others than their owner).
result<curve_keys> read_curve_keys(const std::string& file);

// What proves to a coordinator whose certificate a process has: CAF does not say who is at the other end of a
// connection, only that the cluster's authority knows it.
struct proof {
  std::string certificate, signature; // PEM; by its key, of the words
};
// Code: no_keys.
result<proof> prove(const tls_files& keys, std::string_view words);
// Whether the node of that name has said so: its certificate is the authority's (a file), is one of nodes and not of
// clients, bears the name, and its key has signed the words. Code: not_proven.
status check_proof(const std::string& authority, const std::string& node, const proof& p, std::string_view words);
// The role of whoever has said so: the certificate is the authority's, and its key has signed the words. Likewise.
result<key_role> proven_role(const std::string& authority, const proof& p, std::string_view words);

} // namespace troupe
