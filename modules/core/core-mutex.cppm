// zt.core:mutex — locks with annotations for clang's thread-safety analysis, and a pool of reusable
// objects.
export module zt.core:mutex;

import zt.std;

// For the library's own modules: users have std::mutex.
export namespace zt::internal {

// Wraps std::mutex, because the thread sanitizer cannot see into absl::Mutex in this build.
class __attribute__((capability("mutex"))) Mutex {
 public:
  inline void lock() __attribute__((acquire_capability())) { mutex_.lock(); }
  inline void unlock() __attribute__((release_capability())) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a Mutex while it lives.
class __attribute__((scoped_lockable)) MutexLock {
 public:
  inline explicit MutexLock(Mutex& mutex) __attribute__((acquire_capability(mutex)))
      : mutex_(mutex) {
    mutex_.lock();
  }
  inline ~MutexLock() __attribute__((release_capability())) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// A condition variable for Mutex, and for std::mutex. Its Wait is the C library's: the one of
// std::condition_variable would need the libstdc++ of GCC 12, and systems that are served have 11's.
class CondVar {
 public:
  // Releases the mutex while waiting. Wake-ups may be spurious: call it in a loop.
  inline void Wait(Mutex& mutex) __attribute__((requires_capability(mutex))) {
    pthread_cond_wait(variable_.native_handle(), mutex.mutex_.native_handle());
  }
  inline void Wait(std::unique_lock<std::mutex>& lock) {
    pthread_cond_wait(variable_.native_handle(), lock.mutex()->native_handle());
  }
  inline void NotifyOne() { variable_.notify_one(); }
  inline void NotifyAll() { variable_.notify_all(); }

 private:
  std::condition_variable variable_;
};

// A thread-safe pool of objects that are expensive to make (contexts, buffers). It holds at most as
// many as were in use at once.
template <typename T>
class ObjectPool {
 public:
  // Takes an object from the pool; nullopt if it is empty, and the caller makes one.
  std::optional<T> Take() {
    const MutexLock lock(mutex_);
    if (idle_.empty()) return std::nullopt;
    std::optional<T> taken(std::move(idle_.back()));
    idle_.pop_back();
    return taken;
  }
  void Give(T value) {
    const MutexLock lock(mutex_);
    idle_.push_back(std::move(value));
  }

 private:
  Mutex mutex_;
  std::vector<T> idle_ __attribute__((guarded_by(mutex_)));
};

}  // namespace zt::internal
