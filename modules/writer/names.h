// The names an output holds so far.
#ifndef ZTSTREAM_WRITER_NAMES_H_
#define ZTSTREAM_WRITER_NAMES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <string_view>
#include <unordered_map>

namespace zt::writer::internal {

// Names, and the number of the object each stands for. Names and nodes lie in one piece of memory.
class Names {
 public:
  // Takes a name for object number `of`; false where it was taken before.
  bool Add(std::string_view name, std::uint32_t of) {
    auto* const kept = static_cast<char*>(memory_.allocate(name.size(), 1));
    std::copy(name.begin(), name.end(), kept);
    return held_.try_emplace(std::string_view(kept, name.size()), of).second;
  }
  std::optional<std::uint32_t> Find(std::string_view name) const {
    const auto held = held_.find(name);
    if (held == held_.end()) return std::nullopt;
    return held->second;
  }
  // Makes room for so many more at once: between copies of data the table would not stay in the cache.
  void Expect(std::size_t count) {
    if (count > held_.size()) held_.reserve(held_.size() + count);
  }

 private:
  std::pmr::monotonic_buffer_resource memory_;
  std::pmr::unordered_map<std::string_view, std::uint32_t> held_{&memory_};
};

}  // namespace zt::writer::internal

#endif  // ZTSTREAM_WRITER_NAMES_H_
