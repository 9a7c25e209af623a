// Locks that clang's thread-safety analysis understands, over std::mutex (absl::Mutex is opaque to TSan here).
// Plain header: include it in a global module fragment.
#pragma once

#include <condition_variable>
#include <mutex>

#define ZT_GUARDED_BY(x) __attribute__((guarded_by(x)))
#define ZT_REQUIRES(x) __attribute__((requires_capability(x)))
#define ZT_EXCLUDES(x) __attribute__((locks_excluded(x)))

namespace zt::internal {

class __attribute__((capability("mutex"))) Mutex {
 public:
  void lock() __attribute__((acquire_capability())) { mutex_.lock(); }
  void unlock() __attribute__((release_capability())) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class __attribute__((scoped_lockable)) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) __attribute__((acquire_capability(mutex))) : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() __attribute__((release_capability())) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  // Releases `mutex` while waiting; spurious wake-ups happen, so callers loop.
  void Wait(Mutex& mutex) __attribute__((requires_capability(mutex))) {
    std::unique_lock<std::mutex> held(mutex.mutex_, std::adopt_lock);
    variable_.wait(held);
    held.release();
  }
  void NotifyOne() { variable_.notify_one(); }
  void NotifyAll() { variable_.notify_all(); }

 private:
  std::condition_variable variable_;
};

}  // namespace zt::internal
