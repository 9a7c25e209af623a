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
// A square of 16 bytes by 16 / sizeof(T) rows, by log2 rounds of interleaving rows half the square
// apart.
template <typename T>
HWY_INLINE void TransposeSquare(const std::uint8_t* HWY_RESTRICT in, std::size_t in_stride,
                                std::uint8_t* HWY_RESTRICT out, std::size_t out_stride) {
  constexpr std::size_t kSide = 16 / sizeof(T);
  const hn::FixedTag<T, kSide> d;
  using V = hn::Vec<decltype(d)>;
  V a[kSide], b[kSide];
  HWY_UNROLL(16)
  for (std::size_t r = 0; r < kSide; ++r) {
    a[r] = hn::LoadU(d, reinterpret_cast<const T*>(in + r * in_stride * sizeof(T)));
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
    hn::StoreU(a[r], d, reinterpret_cast<T*>(out + r * out_stride * sizeof(T)));
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
  std::memcpy(out, in, head);
  std::size_t i = head;
  for (; i + 64 <= bytes; i += 64) {
    for (std::size_t j = i; j < i + 64; j += lanes) hn::Stream(hn::LoadU(d, in + j), d, out + j);
  }
  std::memcpy(out + i, in + i, bytes - i);
}

// Tiles one cache line wide and a few hundred rows high: each line of the input is read once, in
// full, and becomes part of a long run of the output, put together in a buffer, so that page and
// line changes are few on either side.
template <typename T>
void TransposeTiles(const std::uint8_t* HWY_RESTRICT in, std::size_t in_stride,
                    std::uint8_t* HWY_RESTRICT out, std::size_t out_stride, std::size_t rows,
                    std::size_t cols) {
  constexpr std::size_t kTileCols = 64 / sizeof(T), kTileRows = sizeof(T) <= 2 ? 512 : 256;
  HWY_ALIGN std::uint8_t tile[kTileCols * kTileRows * sizeof(T)];
  const bool streamed = rows * cols * sizeof(T) >= kStreamedBytes;
  for (std::size_t r0 = 0; r0 < rows; r0 += kTileRows) {
    const std::size_t height = std::min(kTileRows, rows - r0);
    for (std::size_t c0 = 0; c0 < cols; c0 += kTileCols) {
      const std::size_t width = std::min(kTileCols, cols - c0);
      const std::uint8_t* const from = in + (r0 * in_stride + c0) * sizeof(T);
      const auto at = [&](std::size_t r, std::size_t c) {
        return from + (r * in_stride + c) * sizeof(T);
      };
      const auto to = [&](std::size_t r, std::size_t c) {
        return tile + (c * kTileRows + r) * sizeof(T);
      };
      std::size_t r = 0;
#if HWY_TARGET != HWY_SCALAR
      if constexpr (sizeof(T) < 16) {
        constexpr std::size_t kSide = 16 / sizeof(T);
        for (; r + kSide <= height; r += kSide) {
          if (c0 + 2 * kTileCols <= cols) {
            for (std::size_t i = r; i < r + kSide; ++i) hwy::Prefetch(at(i, kTileCols));
          }
          std::size_t c = 0;
          for (; c + kSide <= width; c += kSide) {
            TransposeSquare<T>(at(r, c), in_stride, to(r, c), kTileRows);
          }
          if (c < width) {
            TransposeElements<T>(at(r, c), in_stride, to(r, c), kTileRows, kSide, width - c);
          }
        }
      }
#endif
      for (; r < height; ++r) {
        if (c0 + 2 * kTileCols <= cols) hwy::Prefetch(at(r, kTileCols));
        TransposeElements<T>(at(r, 0), in_stride, to(r, 0), kTileRows, 1, width);
      }
      for (std::size_t c = 0; c < width; ++c) {
        std::uint8_t* const run = out + ((c0 + c) * out_stride + r0) * sizeof(T);
        if (streamed) {
          StreamRun(to(0, c), run, height * sizeof(T));
        } else {
          std::memcpy(run, to(0, c), height * sizeof(T));
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
