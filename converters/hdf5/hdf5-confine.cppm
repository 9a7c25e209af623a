// zt.convert.hdf5:confine — what the process that runs libhdf5 may do. Internal.
module;

#include <sys/types.h>

module zt.convert.hdf5:confine;

import zt.std;

namespace zt::hdf5::internal {

// Limits the memory of this process to `more` bytes above its present size. False if the system
// refuses.
bool LimitMemory(std::uint64_t more);

// Limits the processor time of this process to `seconds` from now on; then SIGXCPU ends it.
void LimitTime(std::uint64_t seconds);

// Drops every privilege that this process, forked by `parent`, does not need: signals from the
// terminal, which the parent handles; output on standard error, as the parent reports failures
// better; core dumps; writing files and opening more of them; and, if the kernel has seccomp, every
// system call except those that read open files, move bytes through sockets, and manage its memory.
// The process ends with the thread that forked it.
void Retire(pid_t parent);

}  // namespace zt::hdf5::internal
