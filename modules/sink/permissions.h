// Gives a new file the owner and the permissions of the one that it replaces.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

namespace zt::sink_io {

// As far as the user and the file system allow: the superuser may give the file to another user, a
// member of the group to the group.
inline void CopyPermissions(int fd, const struct stat& older) {
  if (::fchown(fd, older.st_uid, older.st_gid) != 0) {
    [[maybe_unused]] const int refused = ::fchown(fd, static_cast<uid_t>(-1), older.st_gid);
  }
  (void)::fchmod(fd, older.st_mode & 0777);
}

}  // namespace zt::sink_io
