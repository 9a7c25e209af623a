// ztstream — the program: prepares descriptors, limits and signals before the command line is read.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <new>

import zt.cli;
import zt.convert.hdf5;
import zt.open;

namespace hwy::platform {

// Highway 1.0 computes this when its shared library is loaded, for its benchmark helper, by three
// milliseconds of timing loops. The program does not use that helper. The dynamic linker uses this
// definition for the call of the library; a static Highway omits its helper.
__attribute__((visibility("default"))) std::uint64_t TimerResolution() { return 1; }

}  // namespace hwy::platform

namespace {

// If descriptor 0, 1 or 2 is closed, the next file that is opened gets its number, and messages are
// written into that file. Opens /dev/null for each of them, in a mode in which using it is still an
// error.
void SecureDescriptors() {
  constexpr int kModes[] = {O_WRONLY, O_RDONLY, O_RDONLY};
  for (int fd = 0; fd < 3; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", kModes[fd]) != fd) ::_exit(6);
  }
}

// A checkpoint of a thousand shards needs a thousand open files, the usual limit. A program may
// raise its own limit.
void RaiseFileLimit() {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int main(int argc, char** argv) {
  SecureDescriptors();
  RaiseFileLimit();
  zt::cli::InstallSignals();
  zt::SetHdf5(zt::OpenHdf5);
  try {
    return zt::cli::EndBySignal(zt::cli::Run({argv + 1, argv + std::max(argc, 1)}));
  } catch (const std::bad_alloc&) {
    std::fputs("ztstream: out of memory\n", stderr);
    return 6;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ztstream: internal error: %s\n", error.what());
    return 70;
  }
}
