// The names an output holds so far.
#ifndef ZTSTREAM_WRITER_NAMES_H_
#define ZTSTREAM_WRITER_NAMES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "core/name_table.h"

namespace zt::writer::internal {

// Names, and the number of the object each stands for. They lie one after another in one piece of memory, each behind its
// number and its size.
class Names {
 public:
  // Takes a name for object number `of`; false where it was taken before.
  bool Add(std::string_view name, std::uint32_t of) {
    const std::size_t at = kept_.size();
    const std::uint32_t head[] = {of, static_cast<std::uint32_t>(name.size())};
    const auto* const bytes = reinterpret_cast<const char*>(head);
    kept_.insert(kept_.end(), bytes, bytes + sizeof head);
    kept_.insert(kept_.end(), name.begin(), name.end());
    const bool fresh = table_.Add(name, at, [this](std::uint64_t held) { return NameAt(held); });
    if (!fresh) kept_.resize(at);
    return fresh;
  }
  std::optional<std::uint32_t> Find(std::string_view name) const {
    const auto held = table_.Find(name, [this](std::uint64_t at) { return NameAt(at); });
    if (!held) return std::nullopt;
    return Load(*held);
  }
  // Makes room for so many at once, with so many bytes in all: between copies of data the table would not stay in the cache.
  void Expect(std::size_t count, std::size_t bytes) {
    table_.Reserve(count);
    const std::size_t wanted = kept_.size() + count * 2 * sizeof(std::uint32_t) + bytes;
    if (wanted > 2 * kept_.capacity()) kept_.reserve(wanted);
  }

 private:
  std::uint32_t Load(std::uint64_t at) const {
    std::uint32_t number;
    std::memcpy(&number, kept_.data() + at, sizeof number);
    return number;
  }
  std::string_view NameAt(std::uint64_t at) const {
    return {kept_.data() + at + 2 * sizeof(std::uint32_t), Load(at + sizeof(std::uint32_t))};
  }

  std::vector<char> kept_;
  zt::internal::NameTable table_;
};

}  // namespace zt::writer::internal

#endif  // ZTSTREAM_WRITER_NAMES_H_
