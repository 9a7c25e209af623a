// zt.pipeline — finds the number of threads that this process may use.
module;

#include <errno.h>
#include <sched.h>

module zt.pipeline;

import zt.std;

namespace zt {
namespace {

// The control group's CPU quota, rounded up; 0 if there is none.
unsigned QuotaCpus() {
  std::string quota;
  double period = 0;
  if (std::ifstream file("/sys/fs/cgroup/cpu.max"); file >> quota >> period) {  // version 2
    if (quota == "max" || period <= 0) return 0;
    return static_cast<unsigned>(std::ceil(std::strtod(quota.c_str(), nullptr) / period));
  }
  double limit = 0;
  std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (quota_file >> limit && period_file >> period && limit > 0 && period > 0) {
    return static_cast<unsigned>(std::ceil(limit / period));
  }
  return 0;
}

// The number of CPUs in the affinity mask; 0 if unknown. The system refuses a set
// smaller than its own mask.
unsigned AllowedCpus() {
  constexpr std::size_t kLeast = CPU_SETSIZE, kMost = std::size_t{1} << 20;
  for (std::size_t cpus = kLeast; cpus <= kMost; cpus *= 2) {
    cpu_set_t* const set = CPU_ALLOC(cpus);
    if (set == nullptr) return 0;
    const std::size_t bytes = CPU_ALLOC_SIZE(cpus);
    const bool told = ::sched_getaffinity(0, bytes, set) == 0;
    const bool larger = !told && errno == EINVAL;
    const int count = told ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (!larger) return static_cast<unsigned>(count);
  }
  return 0;
}

}  // namespace

unsigned UsableThreads() {
  unsigned threads = std::max(1U, AllowedCpus());
  if (const unsigned quota = QuotaCpus(); quota > 0) threads = std::min(threads, quota);
  return threads;
}

std::uint64_t MemoryFor(std::uint64_t asked, unsigned threads) {
  constexpr std::uint64_t kEach = std::uint64_t{32} << 20, kLeast = std::uint64_t{64} << 20;
  if (asked != 0) return asked;
  return std::max(kLeast, kEach * (threads == 0 ? UsableThreads() : threads));
}

}  // namespace zt
