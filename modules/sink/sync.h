// What an error of a sync means, whoever syncs.
#pragma once

#include <cerrno>

#include "core/retry.h"

namespace zt::sink_io {

// call() syncs a folder or a file system, which some cannot do: that is no error. 0, or errno.
template <typename Call>
int SyncError(Call&& call) {
  const int error = internal::ErrorOf(call);
  return error == EINVAL ? 0 : error;
}

}  // namespace zt::sink_io
