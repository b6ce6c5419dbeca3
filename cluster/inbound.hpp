// Connections that CAF has accepted, and a look at what they bring before CAF sees it (basp_bytes.hpp). Of the process.
#pragma once
#include "cluster/key_role.hpp"
#include <cstddef>
#include <sys/types.h>

namespace troupe {

// This number is that of a connection which CAF has accepted, or of another socket from now on.
void note_inbound(int fd);
void forget_inbound(int fd);

// Whose key it was opened with.
void note_inbound_role(int fd, key_role role);

// So many bytes of a message stream have come over it, 0: it has ended. Gives that number, -1 where they are no
// message: the caller closes the connection then. Of other sockets nothing is looked at.
ssize_t look_at_inbound(int fd, const void* bytes, ssize_t size);

// What comes over the connection is none of the cluster's.
void refuse_inbound(int fd, const char* why);

} // namespace troupe
