// zt.core:mutex — locks that clang's thread-safety analysis understands, and objects kept from one use to the next.
export module zt.core:mutex;

import zt.std;

// For the library's own modules: users have std::mutex.
export namespace zt::internal {

// Over std::mutex: absl::Mutex is opaque to the thread sanitizer here.
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

// A condition to wait for under a Mutex.
class CondVar {
 public:
  // Releases `mutex` while waiting; spurious wake-ups happen, so callers loop.
  inline void Wait(Mutex& mutex) __attribute__((requires_capability(mutex))) {
    std::unique_lock<std::mutex> held(mutex.mutex_, std::adopt_lock);
    variable_.wait(held);
    held.release();
  }
  inline void NotifyOne() { variable_.notify_one(); }
  inline void NotifyAll() { variable_.notify_all(); }

 private:
  std::condition_variable variable_;
};

// A thread-safe pool of objects that are expensive to make (contexts, buffers). It grows to the largest number in use.
template <typename T>
class Idle {
 public:
  // An object that was given back, or nullopt where there is none: the caller makes one then.
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
