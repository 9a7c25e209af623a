// What the fuzz targets share: a check that stands in every build, and reading a source to its end.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

// Aborts with the condition's text: what must hold whatever the input.
#define ZT_FUZZ_CHECK(condition)                                           \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                        \
    }                                                                      \
  } while (false)

inline std::span<const std::byte> FuzzBytes(const std::uint8_t* data, std::size_t size) {
  return std::as_bytes(std::span(data, size));
}
