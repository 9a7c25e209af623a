// Preloaded into the program by fault_test.py and signal_test.py: makes the Nth call of chosen system calls fail.
//
// FAULT_CALLS  the calls that count, as ",pread,preadv,"
// FAULT_AT     which of them fails, from 1; 0: none
// FAULT_KIND   an errno as a number, "short" (one byte is done) or "end" (a read finds the end of the file);
//              "slow": none fails, and each of them takes FAULT_AT milliseconds longer
//              "confined": none fails; a process that is forked tries, at its first recvfrom, what it must not do, and FAULT_LOG
//              gets a line "confined" with what came of it: a signal to the program, a mapped file, a signal to itself
//              "signal": none fails; at that call the process sends itself FAULT_SIGNAL, and the call takes
//              FAULT_SLEEP milliseconds longer
// FAULT_LOG    a file that gets one line for the fault, "CALL OFFSET PATH", and at the end one "calls COUNT"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long g_count;
static long g_at;
static const char* g_calls = "";
static const char* g_kind = "";
static int g_log = -1;
static long g_program;      // the process that loaded this
static volatile int* g_tried;  // errors of the forked process, shared with it

__attribute__((constructor)) static void Begin(void) {
  const char* at = getenv("FAULT_AT");
  const char* log = getenv("FAULT_LOG");
  if (at == NULL || log == NULL || getenv("FAULT_CALLS") == NULL || getenv("FAULT_KIND") == NULL) return;
  g_calls = getenv("FAULT_CALLS");
  g_kind = getenv("FAULT_KIND");
  g_at = atol(at);
  g_program = syscall(SYS_getpid);
  if (strcmp(g_kind, "confined") == 0)
    g_tried = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  g_log = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
}

static void Log(const char* line) { syscall(SYS_write, g_log, line, strlen(line)); }

__attribute__((destructor)) static void End(void) {
  char line[64];
  if (g_tried != NULL) {
    snprintf(line, sizeof line, "confined %d %d %d %d\n", g_tried[0], g_tried[1], g_tried[2], g_tried[3]);
    Log(line);
  }
  snprintf(line, sizeof line, "calls %ld\n", (long)g_count);
  if (g_log >= 0) Log(line);
}

enum Fault { NONE, FAIL, SHORT, END };

// Whether this call is the one, and how it goes wrong.
static enum Fault Decide(const char* call, int fd, const char* path, long long offset) {
  if (g_log < 0 || fd == g_log) return NONE;
  char word[32];
  snprintf(word, sizeof word, ",%s,", call);
  if (strstr(g_calls, word) == NULL) return NONE;
  if (strcmp(g_kind, "slow") == 0) {
    usleep((useconds_t)g_at * 1000);
    return NONE;
  }
  if (atomic_fetch_add(&g_count, 1) + 1 != g_at) return NONE;
  char name[4096] = "", link[64], line[4200];
  if (path != NULL) {
    snprintf(name, sizeof name, "%s", path);
  } else if (fd >= 0) {
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t size = readlink(link, name, sizeof name - 1);
    name[size < 0 ? 0 : size] = '\0';
  }
  snprintf(line, sizeof line, "%s %lld %s\n", call, offset, name);
  Log(line);
  if (strcmp(g_kind, "signal") == 0) {
    kill(getpid(), atoi(getenv("FAULT_SIGNAL")));
    usleep((useconds_t)atoi(getenv("FAULT_SLEEP")) * 1000);
    return NONE;
  }
  if (strcmp(g_kind, "short") == 0) return SHORT;
  if (strcmp(g_kind, "end") == 0) return END;
  errno = atoi(g_kind);
  return FAIL;
}

#define REAL(type, name, ...)                                                 \
  static type (*real)(__VA_ARGS__);                                           \
  if (real == NULL) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

// The first byte of the vectors alone.
static struct iovec One(const struct iovec* v, int count) {
  struct iovec one = {NULL, 0};
  for (int i = 0; i < count && one.iov_len == 0; ++i) {
    if (v[i].iov_len > 0) one = (struct iovec){v[i].iov_base, 1};
  }
  return one;
}

ssize_t read(int fd, void* out, size_t size) {
  REAL(ssize_t, read, int, void*, size_t);
  switch (Decide("read", fd, NULL, -1)) {
    case FAIL: return -1;
    case END: return 0;
    case SHORT: return real(fd, out, size > 0);
    default: return real(fd, out, size);
  }
}

ssize_t pread(int fd, void* out, size_t size, off_t at) {
  REAL(ssize_t, pread, int, void*, size_t, off_t);
  switch (Decide("pread", fd, NULL, at)) {
    case FAIL: return -1;
    case END: return 0;
    case SHORT: return real(fd, out, size > 0, at);
    default: return real(fd, out, size, at);
  }
}

ssize_t preadv(int fd, const struct iovec* v, int count, off_t at) {
  REAL(ssize_t, preadv, int, const struct iovec*, int, off_t);
  const struct iovec one = One(v, count);
  switch (Decide("preadv", fd, NULL, at)) {
    case FAIL: return -1;
    case END: return 0;
    case SHORT: return real(fd, &one, 1, at);
    default: return real(fd, v, count, at);
  }
}

ssize_t write(int fd, const void* in, size_t size) {
  REAL(ssize_t, write, int, const void*, size_t);
  switch (Decide("write", fd, NULL, -1)) {
    case FAIL: return -1;
    case SHORT: return real(fd, in, size > 0);
    default: return real(fd, in, size);
  }
}

ssize_t writev(int fd, const struct iovec* v, int count) {
  REAL(ssize_t, writev, int, const struct iovec*, int);
  const struct iovec one = One(v, count);
  switch (Decide("writev", fd, NULL, -1)) {
    case FAIL: return -1;
    case SHORT: return real(fd, &one, 1);
    default: return real(fd, v, count);
  }
}

ssize_t pwrite(int fd, const void* in, size_t size, off_t at) {
  REAL(ssize_t, pwrite, int, const void*, size_t, off_t);
  switch (Decide("pwrite", fd, NULL, at)) {
    case FAIL: return -1;
    case SHORT: return real(fd, in, size > 0, at);
    default: return real(fd, in, size, at);
  }
}

ssize_t pwritev(int fd, const struct iovec* v, int count, off_t at) {
  REAL(ssize_t, pwritev, int, const struct iovec*, int, off_t);
  const struct iovec one = One(v, count);
  switch (Decide("pwritev", fd, NULL, at)) {
    case FAIL: return -1;
    case SHORT: return real(fd, &one, 1, at);
    default: return real(fd, v, count, at);
  }
}

int open(const char* path, int flags, ...) {
  REAL(int, open, const char*, int, ...);
  va_list more;
  va_start(more, flags);
  const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
  va_end(more);
  return Decide("open", -1, path, -1) == FAIL ? -1 : real(path, flags, mode);
}

int close(int fd) {
  REAL(int, close, int);
  const int fault = Decide("close", fd, NULL, -1), error = errno;
  const int result = real(fd);  // the descriptor is gone, whatever close says
  if (fault != FAIL) return result;
  errno = error;
  return -1;
}

int fsync(int fd) {
  REAL(int, fsync, int);
  return Decide("fsync", fd, NULL, -1) == FAIL ? -1 : real(fd);
}

int syncfs(int fd) {
  REAL(int, syncfs, int);
  return Decide("syncfs", fd, NULL, -1) == FAIL ? -1 : real(fd);
}

int ftruncate(int fd, off_t size) {
  REAL(int, ftruncate, int, off_t);
  return Decide("ftruncate", fd, NULL, size) == FAIL ? -1 : real(fd, size);
}

int fallocate(int fd, int mode, off_t at, off_t size) {
  REAL(int, fallocate, int, int, off_t, off_t);
  return Decide("fallocate", fd, NULL, at) == FAIL ? -1 : real(fd, mode, at, size);
}

int flock(int fd, int operation) {
  REAL(int, flock, int, int);
  return Decide("flock", fd, NULL, -1) == FAIL ? -1 : real(fd, operation);
}

int renameat2(int from_dir, const char* from, int to_dir, const char* to, unsigned flags) {
  REAL(int, renameat2, int, const char*, int, const char*, unsigned);
  return Decide("renameat2", -1, to, -1) == FAIL ? -1 : real(from_dir, from, to_dir, to, flags);
}

// Of whole pages for data; the loader's and malloc's own do not come by here.
void* mmap(void* where, size_t size, int protection, int flags, int fd, off_t at) {
  REAL(void*, mmap, void*, size_t, int, int, int, off_t);
  return Decide("mmap", fd, NULL, at) == FAIL ? MAP_FAILED : real(where, size, protection, flags, fd, at);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) {
  REAL(int, pthread_create, pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  return Decide("pthread_create", -1, NULL, -1) == FAIL ? errno : real(thread, attributes, body, argument);
}

// What the process of libhdf5 asks for first. It may end itself alone, and map no file.
long syscall(long number, ...) {
  REAL(long, syscall, long, ...);
  va_list words;
  va_start(words, number);
  long word[6];
  for (int i = 0; i < 6; ++i) word[i] = va_arg(words, long);
  va_end(words);
  const long self = number == SYS_recvfrom ? real(SYS_getpid) : g_program;
  if (g_tried != NULL && self != g_program && g_tried[0] == 0) {
    g_tried[0] = 1;
    g_tried[1] = real(SYS_tgkill, g_program, g_program, 0) == 0 ? 0 : errno;
    g_tried[2] = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, (int)word[0], 0) != MAP_FAILED ? 0 : errno;
    g_tried[3] = real(SYS_tgkill, self, self, 0) == 0 ? 0 : errno;
  }
  return real(number, word[0], word[1], word[2], word[3], word[4], word[5]);
}
