// A table of numbers that are looked up by name, where the names lie elsewhere. Plain header: include it in a global
// module fragment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace zt::internal {

// A hash of a name under a key of this process, so that nobody can make a file of names that collide. Thread-safe.
std::uint64_t HashOfName(std::string_view name);

// That hash, for the standard's tables of names that a file chooses.
struct NameHash {
  std::size_t operator()(std::string_view name) const { return HashOfName(name); }
};

// Numbers below 2^40 by their names, in eight bytes each and some room: a part of the name's hash and the number. With a
// million names the memory that a look-up touches is what costs; most touch one slot. `name_of(number)` gives the name of
// a number that was added.
class NameTable {
 public:
  // Makes room for so many at once, in an empty table.
  void Reserve(std::size_t count) {
    if (slots_.empty()) slots_.resize(Capacity(count), kFree);
  }

  template <class NameOf>
  std::optional<std::uint64_t> Find(std::string_view name, const NameOf& name_of) const {
    if (slots_.empty()) return std::nullopt;
    const std::uint64_t slot = slots_[Seek(name, HashOfName(name), name_of)];
    if (slot == kFree) return std::nullopt;
    return Number(slot);
  }

  // Asks the memory for what Add or Find of this name will look at. A loop over many names calls it for a name some places
  // ahead, so that the answer is there when its turn comes.
  void Prefetch(std::string_view name) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[Place(HashOfName(name))], 1);
  }

  // Takes `number` under a name; false where the name was taken before. The name need not lie there yet.
  template <class NameOf>
  bool Add(std::string_view name, std::uint64_t number, const NameOf& name_of) {
    if (slots_.empty()) Reserve(1);
    const std::uint64_t hash = HashOfName(name);
    std::size_t at = Seek(name, hash, name_of);
    if (slots_[at] != kFree) return false;
    if (Capacity(held_ + 1) > slots_.size()) {
      Rehash(Capacity(2 * held_ + 1), name_of);
      at = FreeFrom(Place(hash));
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
  static std::uint64_t Number(std::uint64_t slot) {
    return slot & ((std::uint64_t{1} << kNumberBits) - 1);
  }

  // By the upper half of the hash; the slot holds the lowest bits.
  std::size_t Place(std::uint64_t hash) const { return (hash >> 32) * slots_.size() >> 32; }
  std::size_t Next(std::size_t at) const { return at + 1 == slots_.size() ? 0 : at + 1; }

  std::size_t FreeFrom(std::size_t at) const {
    while (slots_[at] != kFree) at = Next(at);
    return at;
  }

  // The slot of a name, or the free one that it would take.
  template <class NameOf>
  std::size_t Seek(std::string_view name, std::uint64_t hash, const NameOf& name_of) const {
    std::size_t at = Place(hash);
    while (slots_[at] != kFree &&
           !(Tag(slots_[at]) == Tag(hash << kNumberBits) && name_of(Number(slots_[at])) == name)) {
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
      const std::uint64_t hash = HashOfName(name_of(Number(slot)));
      slots_[FreeFrom(Place(hash))] = hash << kNumberBits | Number(slot);
    }
  }

  std::vector<std::uint64_t> slots_;  // at most three of four are taken
  std::size_t held_ = 0;
};

// How many names ahead NameTable::Prefetch is called in a loop over many.
inline constexpr std::size_t kNamesAhead = 16;

// Two numbers with the same name: the lowest `again` that there is.
struct Twice {
  std::size_t first = 0, again = 0;
};

// Whether the numbers below `count` have names that differ. The one finder of duplicates among names.
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
