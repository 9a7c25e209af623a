// bytes_kernel — Highway vectors for swapping and transposing, plain loops for widening.
#include "transform/bytes_kernel.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "transform/prefetch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "transform/bytes_kernel.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "transform/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zt::kernel::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
HWY_INLINE T Reversed(T value) {
  if constexpr (sizeof(T) == 1) return value;
  if constexpr (sizeof(T) == 2) return static_cast<T>(__builtin_bswap16(value));
  if constexpr (sizeof(T) == 4) return static_cast<T>(__builtin_bswap32(value));
  if constexpr (sizeof(T) == 8) return static_cast<T>(__builtin_bswap64(value));
}

template <typename T>
void SwapElements(const std::uint8_t* in, std::uint8_t* out, std::size_t bytes) {
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  HWY_ALIGN std::uint8_t order[16];
  for (std::size_t b = 0; b < 16; ++b) order[b] = static_cast<std::uint8_t>(b ^ (sizeof(T) - 1));
  const auto indices = hn::LoadDup128(d, order);
  for (; i + lanes <= bytes; i += lanes) {
    PrefetchAhead(in + i);
    hn::StoreU(hn::TableLookupBytes(hn::LoadU(d, in + i), indices), d, out + i);
  }
#endif
  for (; i < bytes; i += sizeof(T)) {
    T value;
    std::memcpy(&value, in + i, sizeof(T));
    value = Reversed(value);
    std::memcpy(out + i, &value, sizeof(T));
  }
}

void RunSwap(const std::uint8_t* in, std::uint8_t* out, std::size_t bytes, std::size_t width) {
  switch (width) {
    case 2:
      return SwapElements<std::uint16_t>(in, out, bytes);
    case 4:
      return SwapElements<std::uint32_t>(in, out, bytes);
    case 8:
      return SwapElements<std::uint64_t>(in, out, bytes);
    default:
      return;
  }
}

template <typename T>
bool Widen(const std::uint8_t* HWY_RESTRICT in, std::size_t count, std::uint8_t* HWY_RESTRICT out) {
  std::make_unsigned_t<T> signs = 0;
  ForEachElement<T>(in, out, count, [&](T value) HWY_ATTR {
    if constexpr (std::endian::native == std::endian::big) value = Reversed(value);
    if constexpr (std::is_signed_v<T>) signs |= static_cast<std::make_unsigned_t<T>>(value);
    return static_cast<std::uint64_t>(static_cast<std::make_unsigned_t<T>>(value));
  });
  return signs >> (sizeof(T) * 8 - 1) == 0;
}

bool RunWiden(const std::uint8_t* in, std::size_t width, bool is_signed, std::size_t count,
              std::uint8_t* out) {
  switch (width) {
    case 1:
      return is_signed ? Widen<std::int8_t>(in, count, out) : Widen<std::uint8_t>(in, count, out);
    case 2:
      return is_signed ? Widen<std::int16_t>(in, count, out) : Widen<std::uint16_t>(in, count, out);
    case 4:
      return is_signed ? Widen<std::int32_t>(in, count, out) : Widen<std::uint32_t>(in, count, out);
    default:
      return is_signed ? Widen<std::int64_t>(in, count, out) : Widen<std::uint64_t>(in, count, out);
  }
}

struct Element16 {
  std::uint64_t half[2];
};

// One element at a time: the edges, and all of 16-byte elements.
template <typename T>
HWY_INLINE void TransposeElements(const std::uint8_t* HWY_RESTRICT in, std::size_t in_stride,
                                  std::uint8_t* HWY_RESTRICT out, std::size_t out_stride,
                                  std::size_t rows, std::size_t cols) {
  for (std::size_t c = 0; c < cols; ++c) {
    for (std::size_t r = 0; r < rows; ++r) {
      std::memcpy(out + (c * out_stride + r) * sizeof(T), in + (r * in_stride + c) * sizeof(T),
                  sizeof(T));
    }
  }
}

#if HWY_TARGET != HWY_SCALAR
// Squares of 16 bytes by 16 / sizeof(T) rows, as many side by side as a vector has blocks, by log2 rounds of
// interleaving rows half the square apart. The vector that has row r of the squares' columns then goes apart.
template <typename T, class D = hn::CappedTag<T, 64 / sizeof(T)>>
HWY_INLINE void TransposeSquares(D d, const std::uint8_t* HWY_RESTRICT in, std::size_t in_pitch,
                                 std::uint8_t* HWY_RESTRICT out, std::size_t out_pitch) {
  constexpr std::size_t kSide = 16 / sizeof(T), kBlocks = hn::MaxLanes(d) / kSide;
  using V = hn::Vec<D>;
  V a[kSide], b[kSide];
  HWY_UNROLL(16)
  for (std::size_t r = 0; r < kSide; ++r) {
    a[r] = hn::LoadU(d, reinterpret_cast<const T*>(in + r * in_pitch));
  }
  HWY_UNROLL(4)
  for (std::size_t round = 1; round < kSide; round *= 2) {
    HWY_UNROLL(8)
    for (std::size_t r = 0; r < kSide / 2; ++r) {
      b[2 * r] = hn::InterleaveLower(d, a[r], a[r + kSide / 2]);
      b[2 * r + 1] = hn::InterleaveUpper(d, a[r], a[r + kSide / 2]);
    }
    HWY_UNROLL(16)
    for (std::size_t r = 0; r < kSide; ++r) a[r] = b[r];
  }
  HWY_UNROLL(16)
  for (std::size_t r = 0; r < kSide; ++r) {
    HWY_ALIGN T blocks[hn::MaxLanes(d)];
    hn::Store(a[r], d, blocks);
    for (std::size_t i = 0; i < kBlocks; ++i) {
      std::memcpy(out + (i * kSide + r) * out_pitch, blocks + i * kSide, 16);
    }
  }
}
#endif

// Past the caches where `bytes` of it make whole lines; the ends of a run that do not are stored as
// usual.
HWY_INLINE void StreamRun(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
                          std::size_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t head = std::min(bytes, (64 - reinterpret_cast<std::uintptr_t>(out) % 64) % 64);
  if (head > 0) std::memcpy(out, in, head);
  std::size_t i = head;
  for (; i + 64 <= bytes; i += 64) {
    for (std::size_t j = i; j < i + 64; j += lanes) hn::Stream(hn::LoadU(d, in + j), d, out + j);
  }
  if (i < bytes) std::memcpy(out + i, in + i, bytes - i);
}

// What a tile passes through: its rows, then its columns.
template <typename T>
struct Tile {
  static constexpr std::size_t kRowBytes = sizeof(T) == 1 ? 128 : 256;
  static constexpr std::size_t kColumnBytes = sizeof(T) <= 2 ? 128 : 256;
  static constexpr std::size_t kCols = kRowBytes / sizeof(T), kRows = kColumnBytes / sizeof(T);
  HWY_ALIGN std::uint8_t rows[kRows * kRowBytes];
  HWY_ALIGN std::uint8_t columns[kCols * kColumnBytes];

  // A row is read once, in whole lines: rows whose distance is a power of two share a set of the first-level cache,
  // and would not stay there while square after square is read. `ahead` is where the next tile begins, or null.
  HWY_INLINE void Read(const std::uint8_t* from, std::size_t pitch, std::size_t height,
                       std::size_t width, const std::uint8_t* ahead) {
    for (std::size_t r = 0; r < height; ++r) {
      if (ahead != nullptr) {
        for (std::size_t b = 0; b < kRowBytes; b += 64) {
          __builtin_prefetch(ahead + r * pitch + b, 0, 2);
        }
      }
      if (HWY_LIKELY(width == kCols)) {
        std::memcpy(rows + r * kRowBytes, from + r * pitch, kRowBytes);
      } else {
        std::memcpy(rows + r * kRowBytes, from + r * pitch, width * sizeof(T));
      }
    }
  }

  HWY_INLINE void Turn(std::size_t height, std::size_t width) {
    std::size_t r = 0, c = 0;
    const auto from = [&] { return rows + r * kRowBytes + c * sizeof(T); };
    const auto to = [&] { return columns + c * kColumnBytes + r * sizeof(T); };
#if HWY_TARGET != HWY_SCALAR
    if constexpr (sizeof(T) < 16) {
      const hn::CappedTag<T, 64 / sizeof(T)> d;
      const hn::FixedTag<T, 16 / sizeof(T)> d16;
      constexpr std::size_t kSquare = 16 / sizeof(T);
      for (; r + kSquare <= height; r += kSquare) {
        for (c = 0; c + hn::MaxLanes(d) <= width; c += hn::MaxLanes(d)) {
          TransposeSquares<T>(d, from(), kRowBytes, to(), kColumnBytes);
        }
        for (; c + kSquare <= width; c += kSquare) {
          TransposeSquares<T>(d16, from(), kRowBytes, to(), kColumnBytes);
        }
        TransposeElements<T>(from(), kCols, to(), kRows, kSquare, width - c);
      }
    }
#endif
    c = 0;
    TransposeElements<T>(from(), kCols, to(), kRows, height - r, width);
  }
};

// Tile by tile, along the rows. Blocks of tiles keep the pages that are read and written few enough for the
// processor to remember where they are.
template <typename T>
void TransposeTiles(const std::uint8_t* HWY_RESTRICT in, std::size_t in_stride,
                    std::uint8_t* HWY_RESTRICT out, std::size_t out_stride, std::size_t rows,
                    std::size_t cols) {
  constexpr std::size_t kRows = Tile<T>::kRows, kCols = Tile<T>::kCols;
  constexpr std::size_t kBlockRows = 4096 / sizeof(T), kBlockCols = sizeof(T) == 1 ? 256 : 512;
  const std::size_t pitch = in_stride * sizeof(T);
  const bool streamed = rows * cols * sizeof(T) >= kStreamedBytes;
  Tile<T> tile;
  const auto transpose_tile = [&](std::size_t r, std::size_t c, std::size_t end_r,
                                  std::size_t end_c) HWY_ATTR {
    const std::size_t height = std::min(kRows, end_r - r), width = std::min(kCols, end_c - c);
    const std::uint8_t* const from = in + r * pitch + c * sizeof(T);
    tile.Read(from, pitch, height, width,
              c + 2 * kCols <= end_c ? from + Tile<T>::kRowBytes : nullptr);
    tile.Turn(height, width);
    for (std::size_t i = 0; i < width; ++i) {
      const std::uint8_t* const column = tile.columns + i * Tile<T>::kColumnBytes;
      std::uint8_t* const run = out + ((c + i) * out_stride + r) * sizeof(T);
      if (streamed) {
        StreamRun(column, run, height * sizeof(T));
      } else {
        std::memcpy(run, column, height * sizeof(T));
      }
    }
  };
  for (std::size_t block_r = 0; block_r < rows; block_r += kBlockRows) {
    const std::size_t end_r = std::min(rows, block_r + kBlockRows);
    for (std::size_t block_c = 0; block_c < cols; block_c += kBlockCols) {
      const std::size_t end_c = std::min(cols, block_c + kBlockCols);
      for (std::size_t r = block_r; r < end_r; r += kRows) {
        for (std::size_t c = block_c; c < end_c; c += kCols) transpose_tile(r, c, end_r, end_c);
      }
    }
  }
}

void RunTranspose(const std::uint8_t* in, std::size_t in_stride, std::uint8_t* out,
                  std::size_t out_stride, std::size_t rows, std::size_t cols, std::size_t width) {
  switch (width) {
    case 1:
      return TransposeTiles<std::uint8_t>(in, in_stride, out, out_stride, rows, cols);
    case 2:
      return TransposeTiles<std::uint16_t>(in, in_stride, out, out_stride, rows, cols);
    case 4:
      return TransposeTiles<std::uint32_t>(in, in_stride, out, out_stride, rows, cols);
    case 8:
      return TransposeTiles<std::uint64_t>(in, in_stride, out, out_stride, rows, cols);
    default:
      return TransposeTiles<Element16>(in, in_stride, out, out_stride, rows, cols);
  }
}

void RunCopyStreamed(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
                     std::size_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= bytes; i += lanes) hn::Stream(hn::Load(d, in + i), d, out + i);
  std::memcpy(out + i, in + i, bytes - i);
}

}  // namespace zt::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zt::kernel {
HWY_EXPORT(RunSwap);
HWY_EXPORT(RunWiden);
HWY_EXPORT(RunTranspose);
HWY_EXPORT(RunCopyStreamed);

void SwapBytes(const std::uint8_t* in, std::uint8_t* out, std::size_t bytes, std::size_t width) {
  HWY_DYNAMIC_DISPATCH(RunSwap)(in, out, bytes, width);
}
bool WidenToU64(const std::uint8_t* in, std::size_t width, bool is_signed, std::size_t count,
                std::uint8_t* out) {
  return HWY_DYNAMIC_DISPATCH(RunWiden)(in, width, is_signed, count, out);
}
void Transpose(const std::uint8_t* in, std::size_t in_stride, std::uint8_t* out,
               std::size_t out_stride, std::size_t rows, std::size_t cols, std::size_t width) {
  HWY_DYNAMIC_DISPATCH(RunTranspose)(in, in_stride, out, out_stride, rows, cols, width);
  FlushStreamed();
}
void CopyStreamed(const std::uint8_t* in, std::uint8_t* out, std::size_t bytes) {
  HWY_DYNAMIC_DISPATCH(RunCopyStreamed)(in, out, bytes);
}
void FlushStreamed() { hwy::FlushStream(); }
}  // namespace zt::kernel
#endif  // HWY_ONCE
