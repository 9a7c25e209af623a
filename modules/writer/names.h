// The names in an output so far.
#ifndef ZTSTREAM_WRITER_NAMES_H_
#define ZTSTREAM_WRITER_NAMES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/name_table.h"
#include "core/varint.h"

namespace zt::writer::internal {

using zt::internal::PutVarint, zt::internal::TakeVarint, zt::internal::VarintBytes;

// Maps names to object numbers. One buffer holds them all, each after its object number and its
// size as varints: with a million names every byte counts.
class Names {
 public:
  // Adds a name for object number `of`; false if the name exists already.
  bool Add(std::string_view name, std::uint32_t of) {
    const std::size_t at = kept_.size();
    PutVarint(kept_, of);
    PutVarint(kept_, name.size());
    kept_.insert(kept_.end(), name.begin(), name.end());
    const bool fresh = table_.Add(name, at, [this](std::uint64_t held) { return NameAt(held); });
    if (!fresh) kept_.resize(at);
    return fresh;
  }
  // See NameTable::Prefetch.
  void Prefetch(std::string_view name) const { table_.Prefetch(name); }
  std::optional<std::uint32_t> Find(std::string_view name) const {
    const auto held = table_.Find(name, [this](std::uint64_t at) { return NameAt(at); });
    if (!held) return std::nullopt;
    std::size_t at = *held;
    return static_cast<std::uint32_t>(Load(at));
  }
  // The bytes that a name of this size takes for object number `of`.
  static std::size_t Taken(std::size_t name_bytes, std::uint32_t of) {
    return VarintBytes(of) + VarintBytes(name_bytes) + name_bytes;
  }
  // Reserves room for `count` names of `bytes` bytes in all. Growing while data is copied would
  // evict the table from the cache.
  void Expect(std::size_t count, std::size_t bytes) {
    table_.Reserve(count);
    const std::size_t wanted = kept_.size() + bytes;
    if (wanted > 2 * kept_.capacity()) kept_.reserve(wanted);
  }
  // The capacity in bytes, used ones included.
  std::size_t capacity() const { return kept_.capacity(); }

 private:
  // Decodes the number at `at` and moves `at` past it.
  std::uint64_t Load(std::size_t& at) const {
    return TakeVarint([&] { return kept_[at++]; });
  }
  std::string_view NameAt(std::size_t at) const {
    Load(at);
    const std::uint64_t size = Load(at);
    return {kept_.data() + at, size};
  }

  std::vector<char> kept_;
  zt::internal::NameTable table_;
};

}  // namespace zt::writer::internal

#endif  // ZTSTREAM_WRITER_NAMES_H_
