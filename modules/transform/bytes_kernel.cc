// bytes_kernel — Highway vectors for swapping and transposing, plain loops for widening.
#include "transform/bytes_kernel.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/prefetch.h"
#include "core/sized_vectors.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "transform/bytes_kernel.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "core/elements-inl.h"

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

// One element at a time: the edges, and all 16-byte elements.
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
// Transposes squares of 16 bytes by 16 / sizeof(T) rows, which lie side by side in the 16-byte
// blocks of the vectors, in log2 rounds of interleaving rows half a square apart. Block i of a[k]
// is then column k of square i.
template <typename T, class D, class V>
HWY_INLINE void TransposeSquares(D d, V (&a)[16 / sizeof(T)]) {
  constexpr std::size_t kSide = 16 / sizeof(T);
  V b[kSide];
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
}

// Transposes one square.
template <typename T>
HWY_INLINE void TransposeSquare(const std::uint8_t* HWY_RESTRICT in, std::size_t in_pitch,
                                std::uint8_t* HWY_RESTRICT out, std::size_t out_pitch) {
  constexpr std::size_t kSide = 16 / sizeof(T);
  const hn::FixedTag<T, kSide> d;
  hn::Vec<decltype(d)> a[kSide];
  HWY_UNROLL(16)
  for (std::size_t r = 0; r < kSide; ++r) {
    a[r] = hn::LoadU(d, reinterpret_cast<const T*>(in + r * in_pitch));
  }
  TransposeSquares<T>(d, a);
  HWY_UNROLL(16)
  for (std::size_t c = 0; c < kSide; ++c) {
    hn::StoreU(a[c], d, reinterpret_cast<T*>(out + c * out_pitch));
  }
}

// Transposes as many rows as a vector has lanes, one vector wide: transposes each row of squares,
// then combines the blocks of the same column, so that whole vectors are stored.
template <typename T, class D>
HWY_INLINE void TransposeVectors(D d, const std::uint8_t* HWY_RESTRICT in, std::size_t in_pitch,
                                 std::uint8_t* HWY_RESTRICT out, std::size_t out_pitch) {
  constexpr std::size_t kLanes = hn::MaxLanes(d), kSide = 16 / sizeof(T), kBlocks = kLanes / kSide;
  using V = hn::Vec<D>;
  HWY_ALIGN T squares[kLanes * kLanes];
  for (std::size_t g = 0; g < kBlocks; ++g) {
    V a[kSide];
    HWY_UNROLL(16)
    for (std::size_t r = 0; r < kSide; ++r) {
      a[r] = hn::LoadU(d, reinterpret_cast<const T*>(in + (g * kSide + r) * in_pitch));
    }
    TransposeSquares<T>(d, a);
    HWY_UNROLL(16)
    for (std::size_t r = 0; r < kSide; ++r) hn::Store(a[r], d, squares + (g * kSide + r) * kLanes);
  }
  for (std::size_t k = 0; k < kSide; ++k) {
    const auto row = [&](std::size_t g)
                         HWY_ATTR { return hn::Load(d, squares + (g * kSide + k) * kLanes); };
    const auto put = [&](std::size_t i, V column) HWY_ATTR {
      hn::StoreU(column, d, reinterpret_cast<T*>(out + (i * kSide + k) * out_pitch));
    };
    if constexpr (kBlocks == 2) {
      put(0, hn::ConcatLowerLower(d, row(1), row(0)));
      put(1, hn::ConcatUpperUpper(d, row(1), row(0)));
    } else {
      static_assert(kBlocks == 4);
      const auto even = [&](V a, V b)
                            HWY_ATTR { return hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b), a); };
      const auto odd = [&](V a, V b)
                           HWY_ATTR { return hn::OddEvenBlocks(b, hn::SwapAdjacentBlocks(a)); };
      const V r0 = row(0), r1 = row(1), r2 = row(2), r3 = row(3);
      const V even01 = even(r0, r1), even23 = even(r2, r3);
      const V odd01 = odd(r0, r1), odd23 = odd(r2, r3);
      put(0, hn::ConcatLowerLower(d, even23, even01));
      put(1, hn::ConcatLowerLower(d, odd23, odd01));
      put(2, hn::ConcatUpperUpper(d, even23, even01));
      put(3, hn::ConcatUpperUpper(d, odd23, odd01));
    }
  }
}
#endif

// Stores whole cache lines past the caches; the ends of the run are stored as usual.
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

// Buffers of a tile: its rows, then its columns.
template <typename T>
struct Tile {
  static constexpr std::size_t kRowBytes = sizeof(T) == 1 ? 128 : 256;
  static constexpr std::size_t kColumnBytes = sizeof(T) <= 2 ? 128 : 256;
  static constexpr std::size_t kCols = kRowBytes / sizeof(T), kRows = kColumnBytes / sizeof(T);
  HWY_ALIGN std::uint8_t rows[kRows * kRowBytes];
  HWY_ALIGN std::uint8_t columns[kCols * kColumnBytes];

  // Reads each row once, in whole lines: rows at a power-of-two distance share a set of the
  // first-level cache, and would be evicted if squares were read one by one. `ahead` is the start
  // of the next tile, or null.
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
    std::size_t r = 0;
#if HWY_TARGET != HWY_SCALAR
    if constexpr (sizeof(T) < 16) {
      const hn::CappedTag<T, 64 / sizeof(T)> d;
      constexpr std::size_t kLanes = hn::MaxLanes(d), kSide = 16 / sizeof(T);
      std::size_t done = 0;  // rows and columns already transposed by vectors
      if constexpr (kLanes > kSide) {
        for (; r + kLanes <= height; r += kLanes) {
          for (done = 0; done + kLanes <= width; done += kLanes) {
            TransposeVectors<T>(d, From(r, done), kRowBytes, To(r, done), kColumnBytes);
          }
        }
      }
      const std::size_t rows_done = r;
      for (r = 0; r + kSide <= height; r += kSide) {
        std::size_t c = r < rows_done ? done : 0;
        for (; c + kSide <= width; c += kSide) {
          TransposeSquare<T>(From(r, c), kRowBytes, To(r, c), kColumnBytes);
        }
        TransposeElements<T>(From(r, c), kCols, To(r, c), kRows, kSide, width - c);
      }
    }
#endif
    TransposeElements<T>(From(r, 0), kCols, To(r, 0), kRows, height - r, width);
  }

 private:
  const std::uint8_t* From(std::size_t r, std::size_t c) const {
    return rows + r * kRowBytes + c * sizeof(T);
  }
  std::uint8_t* To(std::size_t r, std::size_t c) {
    return columns + c * kColumnBytes + r * sizeof(T);
  }
};

// Tile by tile along the rows. Tiles are grouped into blocks, so that the pages in use fit the TLB.
template <typename T>
void TransposeTiles(const std::uint8_t* HWY_RESTRICT in, std::size_t in_stride,
                    std::uint8_t* HWY_RESTRICT out, std::size_t out_stride, std::size_t rows,
                    std::size_t cols) {
  constexpr std::size_t kRows = Tile<T>::kRows, kCols = Tile<T>::kCols;
  constexpr std::size_t kBlockRows = 4096 / sizeof(T), kBlockCols = 512;
  const std::size_t pitch = in_stride * sizeof(T);
  const bool streamed = out_stride * cols * sizeof(T) >= kStreamedBytes;
  Tile<T> tile;
  const auto transpose_tile = [&](std::size_t r, std::size_t c, std::size_t end_r,
                                  std::size_t end_c, const std::uint8_t* ahead) HWY_ATTR {
    const std::size_t height = std::min(kRows, end_r - r), width = std::min(kCols, end_c - c);
    const std::uint8_t* const from = in + r * pitch + c * sizeof(T);
    tile.Read(from, pitch, height, width, ahead);
    tile.Turn(height, width);
    for (std::size_t i = 0; i < width; ++i) {
      const std::uint8_t* const column = tile.columns + i * Tile<T>::kColumnBytes;
      std::uint8_t* const run = out + ((c + i) * out_stride + r) * sizeof(T);
      if (streamed) {
        StreamRun(column, run, height * sizeof(T));
      } else if (HWY_LIKELY(height == kRows)) {
        std::memcpy(run, column, kRows * sizeof(T));
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
        for (std::size_t c = block_c; c < end_c; c += kCols) {
          const std::uint8_t* ahead = nullptr;
          if (c + 2 * kCols <= end_c) {
            ahead = in + r * pitch + (c + kCols) * sizeof(T);
          } else if (r + 2 * kRows <= end_r) {
            ahead = in + (r + kRows) * pitch + block_c * sizeof(T);
          }
          transpose_tile(r, c, end_r, end_c, ahead);
        }
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
