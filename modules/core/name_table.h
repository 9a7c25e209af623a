// A hash table from names to numbers that does not store the names. Plain header: include it in a
// global module fragment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace zt::internal {

// Hashes a name with a random key of this process, so that no file can be crafted with colliding
// names. Thread-safe.
std::uint64_t HashOfName(std::string_view name);

// The same hash for standard containers keyed by names from a file.
struct NameHash {
  std::size_t operator()(std::string_view name) const { return HashOfName(name); }
};

// Maps names to numbers below 2^40. A slot has eight bytes: 24 bits of the hash, and the number.
// With a million names a lookup costs its cache misses, so most lookups touch one slot.
// `name_of(number)` returns the name of a number in the table.
class NameTable {
 public:
  // Reserves space for `count` names. Does nothing unless the table is empty.
  void Reserve(std::size_t count) {
    if (slots_.empty()) slots_.resize(Capacity(count), kFree);
  }

  template <class NameOf>
  std::optional<std::uint64_t> Find(std::string_view name, const NameOf& name_of) const {
    if (slots_.empty()) return std::nullopt;
    const std::uint64_t slot = slots_[Seek(name, HashOfName(name), name_of)];
    if (slot == kFree) return std::nullopt;
    return NumberIn(slot);
  }

  // Prefetches the slot that Add or Find of this name will read first. A loop over many names calls
  // it kNamesAhead names early.
  void Prefetch(std::string_view name) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[SlotOf(HashOfName(name))], 1);
  }

  // Adds `number` under a name; false if the name exists. name_of(number) need not work yet.
  template <class NameOf>
  bool Add(std::string_view name, std::uint64_t number, const NameOf& name_of) {
    if (slots_.empty()) Reserve(1);
    const std::uint64_t hash = HashOfName(name);
    std::size_t at = Seek(name, hash, name_of);
    if (slots_[at] != kFree) return false;
    if (Capacity(held_ + 1) > slots_.size()) {
      Rehash(Capacity(2 * held_ + 1), name_of);
      at = FreeFrom(SlotOf(hash));
    }
    slots_[at] = hash << kNumberBits | number;
    ++held_;
    return true;
  }

 private:
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  static constexpr unsigned kNumberBits = 40;

  static std::size_t Capacity(std::size_t count) { return count + count / 3 + 8; }
  static std::uint64_t Tag(std::uint64_t slot) { return slot >> kNumberBits; }  // 24 bits
  static std::uint64_t NumberIn(std::uint64_t slot) {
    return slot & ((std::uint64_t{1} << kNumberBits) - 1);
  }

  // Uses the upper half of the hash; the slot stores the lowest bits.
  std::size_t SlotOf(std::uint64_t hash) const { return (hash >> 32) * slots_.size() >> 32; }
  std::size_t Next(std::size_t at) const { return at + 1 == slots_.size() ? 0 : at + 1; }

  std::size_t FreeFrom(std::size_t at) const {
    while (slots_[at] != kFree) at = Next(at);
    return at;
  }

  // The slot of a name, or the free slot where it belongs.
  template <class NameOf>
  std::size_t Seek(std::string_view name, std::uint64_t hash, const NameOf& name_of) const {
    std::size_t at = SlotOf(hash);
    while (slots_[at] != kFree && !(Tag(slots_[at]) == Tag(hash << kNumberBits) &&
                                    name_of(NumberIn(slots_[at])) == name)) {
      at = Next(at);
    }
    return at;
  }

  template <class NameOf>
  void Rehash(std::size_t capacity, const NameOf& name_of) {
    const std::vector<std::uint64_t> old =
        std::exchange(slots_, std::vector<std::uint64_t>(capacity, kFree));
    for (const std::uint64_t slot : old) {
      if (slot == kFree) continue;
      const std::uint64_t hash = HashOfName(name_of(NumberIn(slot)));
      slots_[FreeFrom(SlotOf(hash))] = hash << kNumberBits | NumberIn(slot);
    }
  }

  std::vector<std::uint64_t> slots_;  // at most 3/4 full
  std::size_t held_ = 0;
};

// How many names ahead loops call NameTable::Prefetch.
inline constexpr std::size_t kNamesAhead = 16;

// Two numbers with the same name; `again` is the lowest number whose name occurred before.
struct Twice {
  std::size_t first = 0, again = 0;
};

// Finds the first duplicate among the names of the numbers below `count`; nullopt if there is none.
// All checks for duplicate names call it.
template <class NameOf>
std::optional<Twice> FindTwice(std::size_t count, const NameOf& name_of) {
  constexpr std::size_t kFew = 8;
  if (count <= kFew) {
    for (std::size_t i = 1; i < count; ++i) {
      for (std::size_t held = 0; held < i; ++held) {
        if (name_of(held) == name_of(i)) return Twice{held, i};
      }
    }
    return std::nullopt;
  }
  NameTable names;
  names.Reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (i + kNamesAhead < count) names.Prefetch(name_of(i + kNamesAhead));
    if (!names.Add(name_of(i), i, name_of)) return Twice{*names.Find(name_of(i), name_of), i};
  }
  return std::nullopt;
}

}  // namespace zt::internal
