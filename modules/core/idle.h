// Keeps what is expensive to make (contexts, buffers) from one use to the next, for several threads.
// Plain header: include it in a global module fragment.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "core/mutex.h"

namespace zt::internal {

// As many as were ever in use at once are kept. Thread-safe.
template <typename T>
class Idle {
 public:
  // One that was given back, or nullopt where there is none: the caller makes one then.
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
  std::vector<T> idle_ ZT_GUARDED_BY(mutex_);
};

}  // namespace zt::internal
