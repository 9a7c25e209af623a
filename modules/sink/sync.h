// Interprets the errors of a sync.
#pragma once

#include <cerrno>

#include "core/retry.h"

namespace zt::sink_io {

// Calls call(), which syncs a folder or a file system. Some file systems cannot do that, which is
// no error. Returns 0 or errno.
template <typename Call>
int SyncError(Call&& call) {
  const int error = internal::ErrorOf(call);
  return error == EINVAL ? 0 : error;
}

}  // namespace zt::sink_io
