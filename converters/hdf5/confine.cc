// zt.convert.hdf5:confine — limits, and a filter of system calls.
module;

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

module zt.convert.hdf5;

import zt.std;
import :confine;

namespace zt::hdf5::internal {
namespace {

// The shadow memory of a sanitizer exceeds any limit, and sanitizers use a pipe to test whether
// memory can be read.
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer) || \
    __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// The numbers of system calls are those of an architecture.
#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#elif defined(__s390x__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_S390X;
#else
constexpr std::uint32_t kArchitecture = 0;  // not known: no filter
#endif

constexpr std::uint32_t kAllowed[] = {__NR_read,
                                      __NR_pread64,
                                      __NR_lseek,
                                      __NR_fstat,
                                      __NR_close,
                                      __NR_recvfrom,
                                      __NR_sendto,
                                      __NR_brk,
                                      __NR_munmap,
                                      __NR_mremap,
                                      __NR_mprotect,
                                      __NR_madvise,
                                      __NR_futex,
                                      __NR_getrandom,
                                      __NR_getrusage,
                                      __NR_setrlimit,
                                      __NR_rt_sigaction,
                                      __NR_rt_sigprocmask,
                                      __NR_rt_sigreturn,
                                      __NR_getpid,
                                      __NR_gettid,
                                      __NR_clock_gettime,
                                      __NR_gettimeofday,
                                      __NR_sched_yield,
                                      __NR_restart_syscall,
                                      __NR_exit,
                                      __NR_exit_group};

constexpr std::uint32_t At(std::size_t offset) { return static_cast<std::uint32_t>(offset); }
// Where the lower half of an argument of a system call is.
constexpr std::uint32_t Lower(std::size_t argument) {
  return At(offsetof(seccomp_data, args) + 8 * argument +
            (std::endian::native == std::endian::big ? 4 : 0));
}

// Refuses every system call that is not among kAllowed. prlimit64 may change limits of this process
// alone, tgkill may end it alone, and mmap may map no file.
void FilterCalls() {
  if (kSanitized || kArchitecture == 0) return;
  constexpr std::uint32_t kLoad = BPF_LD | BPF_W | BPF_ABS, kIfEqual = BPF_JMP | BPF_JEQ | BPF_K;
  constexpr std::uint32_t kReturn = BPF_RET | BPF_K, kNo = SECCOMP_RET_ERRNO | EPERM;
  std::vector<sock_filter> program;
  const auto add = [&](std::uint32_t code, std::uint32_t k, std::uint8_t yes = 0,
                       std::uint8_t no = 0) {
    program.push_back({static_cast<std::uint16_t>(code), yes, no, k});
  };
  add(kLoad, At(offsetof(seccomp_data, arch)));
  add(kIfEqual, kArchitecture, 1, 0);
  add(kReturn, kNo);
  add(kLoad, At(offsetof(seccomp_data, nr)));
  for (const std::uint32_t number : kAllowed) {
    add(kIfEqual, number, 0, 1);
    add(kReturn, SECCOMP_RET_ALLOW);
  }
  // A call that is allowed where the lower half of an argument, an int of the kernel, is `value`.
  const auto allow_if = [&](std::uint32_t number, std::size_t argument, std::uint32_t value) {
    add(kIfEqual, number, 0, 4);
    add(kLoad, Lower(argument));
    add(kIfEqual, value, 0, 1);
    add(kReturn, SECCOMP_RET_ALLOW);
    add(kReturn, kNo);
  };
  allow_if(__NR_prlimit64, 0, 0);
  allow_if(__NR_tgkill, 0, static_cast<std::uint32_t>(::getpid()));
#if defined(__s390x__)  // its arguments are in memory, which a filter cannot read
  add(kIfEqual, __NR_mmap, 0, 1);
  add(kReturn, SECCOMP_RET_ALLOW);
#else
  allow_if(__NR_mmap, 4, ~std::uint32_t{0});
#endif
  add(kReturn, kNo);
  const sock_fprog all{static_cast<unsigned short>(program.size()), program.data()};
  ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all);
}

}  // namespace

bool LimitMemory(std::uint64_t more) {
  if (kSanitized) return true;
  unsigned long long pages = 0;
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  const bool known = file != nullptr && std::fscanf(file, "%llu", &pages) == 1;
  if (file != nullptr) std::fclose(file);
  if (!known) return false;
  const rlim_t limit = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + more;
  const rlimit both{limit, limit};
  return ::setrlimit(RLIMIT_AS, &both) == 0;
}

void LimitTime(std::uint64_t seconds) {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  rlimit limit{};
  ::getrlimit(RLIMIT_CPU, &limit);
  limit.rlim_cur = static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + 1 + seconds;
  ::setrlimit(RLIMIT_CPU, &limit);
}

void Retire(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(0);  // it ended before the call
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(signal, SIG_IGN);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGXCPU}) ::signal(signal, SIG_DFL);
  // Standard input stays open: it may be the input file.
  const int nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int descriptor : {STDOUT_FILENO, STDERR_FILENO}) {
    if (nowhere >= 0) ::dup2(nowhere, descriptor);
  }
  const rlimit none{0, 0};
  for (const auto resource : {RLIMIT_CORE, RLIMIT_FSIZE, RLIMIT_NPROC})
    ::setrlimit(resource, &none);
  if (!kSanitized) ::setrlimit(RLIMIT_NOFILE, &none);
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  FilterCalls();
}

}  // namespace zt::hdf5::internal
