// The grids of ggml's iq types, unpacked at compile time: one byte per coordinate.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "transform/dequant_iq_grids.h"

namespace zt::kernel {

// Entry type Word holds sizeof(Word) coordinates, the first in its lowest byte.
template <typename Word, std::size_t N, std::size_t Values>
constexpr std::array<Word, N / 4> UnpackGrid(const char (&packed)[N],
                                             const std::uint8_t (&values)[Values]) {
  constexpr unsigned kBits = 16 / sizeof(Word);
  std::array<Word, N / 4> out{};
  for (std::size_t i = 0; i < N / 4; ++i) {
    unsigned point = 0;
    for (std::size_t k = 4 * i; k < 4 * i + 4; ++k) {
      point = point << 4 | static_cast<unsigned>(packed[k] - (packed[k] > '9' ? 'a' - 10 : '0'));
    }
    for (unsigned j = 0; j < sizeof(Word); ++j) {
      const unsigned index = point >> (kBits * j) & ((1u << kBits) - 1);
      out[i] |= static_cast<Word>(values[index]) << (8 * j);
    }
  }
  return out;
}

inline constexpr std::uint8_t kIq2Coordinates[] = {0x08, 0x19, 0x2b};
inline constexpr std::uint8_t kIq3XxsCoordinates[] = {0x04, 0x0c, 0x14, 0x1c,
                                                      0x24, 0x2c, 0x34, 0x3e};
inline constexpr std::uint8_t kIq3SCoordinates[] = {1, 3, 5, 7, 9, 11, 13, 15};
inline constexpr std::uint8_t kIq1Coordinates[] = {0xff, 0x00, 0x01};  // -1, 0, 1

inline constexpr auto kGridIq2Xxs = UnpackGrid<std::uint64_t>(packed::kIq2Xxs, kIq2Coordinates);
inline constexpr auto kGridIq2Xs = UnpackGrid<std::uint64_t>(packed::kIq2Xs, kIq2Coordinates);
inline constexpr auto kGridIq2S = UnpackGrid<std::uint64_t>(packed::kIq2S, kIq2Coordinates);
inline constexpr auto kGridIq3Xxs = UnpackGrid<std::uint32_t>(packed::kIq3Xxs, kIq3XxsCoordinates);
inline constexpr auto kGridIq3S = UnpackGrid<std::uint32_t>(packed::kIq3S, kIq3SCoordinates);
inline constexpr auto kGridIq1S = UnpackGrid<std::uint64_t>(packed::kIq1S, kIq1Coordinates);

// Byte j is 0xff if bit j of the index is set.
inline constexpr std::array<std::uint64_t, 256> kSignMasks = [] {
  std::array<std::uint64_t, 256> out{};
  for (unsigned i = 0; i < 256; ++i) {
    for (unsigned j = 0; j < 8; ++j) {
      if (i >> j & 1) out[i] |= std::uint64_t{0xff} << (8 * j);
    }
  }
  return out;
}();

// Seven sign bits are stored; the eighth makes the number of set bits even.
inline constexpr std::array<std::uint64_t, 128> kEvenSignMasks = [] {
  std::array<std::uint64_t, 128> out{};
  for (unsigned i = 0; i < 128; ++i) out[i] = kSignMasks[i | (std::popcount(i) & 1u) << 7];
  return out;
}();

}  // namespace zt::kernel
