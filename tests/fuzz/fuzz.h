// What the fuzz targets share: the standard library, and reading a source to its end.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "check.h"

inline std::span<const std::byte> FuzzBytes(const std::uint8_t* data, std::size_t size) {
  return std::as_bytes(std::span(data, size));
}

// Reads every component of a TensorSource as it declares them, up to `limit` bytes in all, and asks
// that declarations of what is readable are valid. `Id` is zt::ComponentId (this header imports
// nothing). True where every byte was read and every read succeeded.
template <class Id, class Source>
bool FuzzReadAll(Source& source, std::uint64_t limit) {
  std::vector<std::byte> piece(std::size_t{1} << 16);
  const auto& objects = source.objects();
  bool whole = true;
  for (std::uint32_t o = 0; o < objects.size(); ++o) {
    if (!source.CheckReadable(o).ok()) continue;
    ZT_FUZZ_CHECK(ValidateObject(objects[o]).ok());
    for (std::uint32_t c = 0; c < objects[o].components.size(); ++c) {
      const std::uint64_t bytes = objects[o].components[c].bytes;
      const std::uint64_t count = std::min(bytes, limit);
      whole = whole && count == bytes;
      limit -= count;
      for (std::uint64_t at = 0; at < count; at += piece.size()) {
        const std::size_t part = std::min<std::uint64_t>(count - at, piece.size());
        if (!source.Read(Id{o, c}, at, std::span(piece).first(part)).ok()) {
          whole = false;
          break;
        }
      }
    }
  }
  return whole;
}

// The most bytes FuzzReadAll serves of one input: hostile sizes cost time, not findings.
inline constexpr std::uint64_t kFuzzReadLimit = std::uint64_t{4} << 20;

// Reads all of an open source, and finishes it.
template <class Id, class Source>
void FuzzUse(Source& source) {
  (void)FuzzReadAll<Id>(source, kFuzzReadLimit);
  (void)source.Finish().ok();
}
