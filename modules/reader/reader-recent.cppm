// zt.reader:recent — an LRU cache with a budget. Internal to the module.
module zt.reader:recent;

import zt.std;

namespace zt::reader::internal {

// An LRU cache: evicts the least recently used values while the total cost exceeds `most`, but
// always keeps the newest.
template <typename Key, typename T>
class Recent {
 public:
  explicit Recent(std::uint64_t most) : most_(most) {}

  std::shared_ptr<T> Find(const Key& key) {
    const auto found = places_.find(key);
    if (found == places_.end()) return nullptr;
    order_.splice(order_.begin(), order_, found->second);
    return order_.front().value;
  }
  // Adds `value` and returns it; if `key` exists (another thread was faster), returns the existing
  // value.
  std::shared_ptr<T> Add(const Key& key, std::shared_ptr<T> value, std::uint64_t cost) {
    if (auto found = Find(key)) return found;
    order_.push_front({key, value, cost});
    places_.emplace(key, order_.begin());
    cost_ += cost;
    while (cost_ > most_ && order_.size() > 1) {
      cost_ -= order_.back().cost;
      places_.erase(order_.back().key);
      order_.pop_back();
    }
    return value;
  }

  void Drop(const Key& key) {
    const auto found = places_.find(key);
    if (found == places_.end()) return;
    cost_ -= found->second->cost;
    order_.erase(found->second);
    places_.erase(found);
  }

 private:
  struct CachedValue {
    Key key;
    std::shared_ptr<T> value;
    std::uint64_t cost;
  };
  const std::uint64_t most_;
  std::uint64_t cost_ = 0;
  std::list<CachedValue> order_;  // most recently used first
  std::map<Key, typename std::list<CachedValue>::iterator> places_;
};

}  // namespace zt::reader::internal
