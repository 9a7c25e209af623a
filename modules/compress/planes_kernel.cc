// planes_kernel — Highway vectors of bytes, independent of the host's byte order.
#include "compress/planes_kernel.h"

#include <cstddef>
#include <cstdint>

#include "core/prefetch.h"
#include "core/sized_vectors.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/planes_kernel.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace zt::kernel::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kLine = 64;  // bytes of a cache line

// One element at a time: the remainder of a group after the vectors.
template <std::size_t kWidth, bool kRotate>
HWY_INLINE void SplitElements(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
                              std::size_t first, std::size_t count) {
  for (std::size_t i = first; i < count; ++i) {
    unsigned below = kRotate ? in[i * kWidth + kWidth - 1] : 0u;  // its highest bit is shifted in
    for (std::size_t b = 0; b < kWidth; ++b) {
      const unsigned byte = in[i * kWidth + b];
      const unsigned placed = kRotate ? byte << 1 | below >> 7 : byte;
      out[(kWidth - 1 - b) * count + i] = static_cast<std::uint8_t>(placed);
      below = byte;
    }
  }
}

template <std::size_t kWidth, bool kRotate>
HWY_INLINE void MergeElements(const std::uint8_t* const* in, std::uint8_t* HWY_RESTRICT out,
                              std::size_t first, std::size_t count) {
  for (std::size_t i = first; i < count; ++i) {
    unsigned above = kRotate ? in[kWidth - 1][i] : 0u;  // its lowest bit is shifted in
    for (std::size_t b = kWidth; b-- > 0;) {
      const unsigned byte = in[kWidth - 1 - b][i];
      const unsigned placed = kRotate ? byte >> 1 | above << 7 : byte;
      out[i * kWidth + b] = static_cast<std::uint8_t>(placed);
      above = byte;
    }
  }
}

#if HWY_TARGET != HWY_SCALAR
template <bool kStreamed, class D, class V>
HWY_INLINE void Put(D d, V v, std::uint8_t* out) {
  if constexpr (kStreamed) {
    hn::Stream(v, d, out);
  } else {
    hn::StoreU(v, d, out);
  }
}

// Turns kWidth vectors of elements into kWidth vectors of bytes: a[b] has byte b of each
// element (0 is the least significant). Each round sorts by one more bit of the byte's
// index, the lowest first.
template <std::size_t kWidth, class D, class V>
HWY_INLINE void Deinterleave(D d, V (&a)[kWidth]) {
  V b[kWidth];
  HWY_UNROLL(3)
  for (std::size_t round = 1; round < kWidth; round *= 2) {
    HWY_UNROLL(4)
    for (std::size_t k = 0; k < kWidth / 2; ++k) {
      b[k] = hn::ConcatEven(d, a[2 * k + 1], a[2 * k]);
      b[k + kWidth / 2] = hn::ConcatOdd(d, a[2 * k + 1], a[2 * k]);
    }
    HWY_UNROLL(8)
    for (std::size_t k = 0; k < kWidth; ++k) a[k] = b[k];
  }
}

template <std::size_t kWidth, bool kRotate, bool kStreamed>
HWY_INLINE std::size_t SplitVectors(const std::uint8_t* HWY_RESTRICT in,
                                    std::uint8_t* HWY_RESTRICT out, std::size_t count) {
  const hn::CappedTag<std::uint8_t, kLine> d;
  using V = hn::Vec<decltype(d)>;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  // A cache line of each plane at a time, so that streamed lines are written whole.
  for (; i + kLine <= count; i += kLine) {
    for (std::size_t j = i; j < i + kLine; j += lanes) {
      V a[kWidth];
      HWY_UNROLL(8)
      for (std::size_t k = 0; k < kWidth; ++k) a[k] = hn::LoadU(d, in + j * kWidth + k * lanes);
      Deinterleave<kWidth>(d, a);
      V below = a[kWidth - 1];
      HWY_UNROLL(8)
      for (std::size_t b = 0; b < kWidth; ++b) {
        // Between the stores, not in a burst.
        if (j == i) PrefetchAhead(in + i * kWidth + b * kLine);
        V placed = a[b];
        if constexpr (kRotate) placed = hn::Or(hn::Add(placed, placed), hn::ShiftRight<7>(below));
        Put<kStreamed>(d, placed, out + (kWidth - 1 - b) * count + j);
        below = a[b];
      }
    }
  }
  return i;
}

// Rotates elements right by one bit; a[b] has byte b of each.
template <std::size_t kWidth, class D, class V>
HWY_INLINE void RotateRight(D d, V (&a)[kWidth]) {
  const V top = hn::Set(d, std::uint8_t{0x80});
  const V lowest = a[0];
  HWY_UNROLL(8)
  for (std::size_t b = 0; b < kWidth; ++b) {
    const V above = b + 1 < kWidth ? a[b + 1] : lowest;
    a[b] = hn::Or(hn::ShiftRight<1>(a[b]), hn::And(hn::ShiftLeft<7>(above), top));
  }
}

// The inverse of Deinterleave, in each block of 16 bytes: a[k] then has the k-th part of the
// elements of its block.
template <std::size_t kWidth, class D, class V>
HWY_INLINE void Interleave(D d, V (&a)[kWidth]) {
  V b[kWidth];
  HWY_UNROLL(3)
  for (std::size_t round = 1; round < kWidth; round *= 2) {
    HWY_UNROLL(4)
    for (std::size_t k = 0; k < kWidth / 2; ++k) {
      b[2 * k] = hn::InterleaveLower(d, a[k], a[k + kWidth / 2]);
      b[2 * k + 1] = hn::InterleaveUpper(d, a[k], a[k + kWidth / 2]);
    }
    HWY_UNROLL(8)
    for (std::size_t k = 0; k < kWidth; ++k) a[k] = b[k];
  }
}

// The inverse, in vectors of up to 32 bytes: interleaving works in blocks of 16, and with two
// blocks only the halves of neighbouring results have to be combined.
template <std::size_t kWidth, bool kRotate, bool kStreamed>
HWY_INLINE std::size_t MergeVectors(const std::uint8_t* const* in, std::uint8_t* HWY_RESTRICT out,
                                    std::size_t count) {
  // Clang combines the two halves of a two-byte element into one store, and then
  // does not stream it.
  const hn::CappedTag<std::uint8_t, kStreamed && kWidth == 2 ? 16 : 32> d;
  using V = hn::Vec<decltype(d)>;
  const std::size_t lanes = hn::Lanes(d);
  const std::uint8_t* HWY_RESTRICT plane[kWidth];
  for (std::size_t p = 0; p < kWidth; ++p) plane[p] = in[p];
  std::size_t i = 0;
  // A cache line of each plane at a time, with one prefetch.
  for (; i + kLine <= count; i += kLine) {
    for (std::size_t p = 0; p < kWidth; ++p) PrefetchAhead(plane[p] + i);
    for (std::size_t j = i; j < i + kLine; j += lanes) {
      V a[kWidth];
      HWY_UNROLL(8)
      for (std::size_t b = 0; b < kWidth; ++b) {
        a[b] = hn::LoadU(d, plane[kWidth - 1 - b] + j);
      }
      if constexpr (kRotate) RotateRight<kWidth>(d, a);
      Interleave<kWidth>(d, a);
      std::uint8_t* const to = out + j * kWidth;
      if (hn::MaxLanes(d) == 32 && lanes == 32) {
        HWY_UNROLL(4)
        for (std::size_t k = 0; k < kWidth; k += 2) {
          Put<kStreamed>(d, hn::ConcatLowerLower(d, a[k + 1], a[k]), to + k * 16);
          Put<kStreamed>(d, hn::ConcatUpperUpper(d, a[k + 1], a[k]), to + (kWidth + k) * 16);
        }
      } else {
        HWY_UNROLL(8)
        for (std::size_t k = 0; k < kWidth; ++k) Put<kStreamed>(d, a[k], to + k * lanes);
      }
    }
  }
  return i;
}
#endif

bool Aligned(const std::uint8_t* p) { return reinterpret_cast<std::uintptr_t>(p) % kLine == 0; }

template <std::size_t kWidth, bool kRotate>
void Split(const std::uint8_t* in, std::uint8_t* out, std::size_t count, bool streamed) {
  std::size_t done = 0;
#if HWY_TARGET != HWY_SCALAR
  done = streamed && Aligned(out) && count % kLine == 0
             ? SplitVectors<kWidth, kRotate, true>(in, out, count)
             : SplitVectors<kWidth, kRotate, false>(in, out, count);
#else
  (void)streamed;
#endif
  SplitElements<kWidth, kRotate>(in, out, done, count);
}

template <std::size_t kWidth, bool kRotate>
void Merge(const std::uint8_t* const* in, std::uint8_t* out, std::size_t count, bool streamed) {
  std::size_t done = 0;
#if HWY_TARGET != HWY_SCALAR
  done = streamed && Aligned(out) ? MergeVectors<kWidth, kRotate, true>(in, out, count)
                                  : MergeVectors<kWidth, kRotate, false>(in, out, count);
#else
  (void)streamed;
#endif
  MergeElements<kWidth, kRotate>(in, out, done, count);
}

void RunSplit(const std::uint8_t* in, std::uint8_t* out, std::size_t count, std::size_t width,
              bool rotate, bool streamed) {
  switch (width) {
    case 2:
      return rotate ? Split<2, true>(in, out, count, streamed)
                    : Split<2, false>(in, out, count, streamed);
    case 4:
      return rotate ? Split<4, true>(in, out, count, streamed)
                    : Split<4, false>(in, out, count, streamed);
    default:
      return rotate ? Split<8, true>(in, out, count, streamed)
                    : Split<8, false>(in, out, count, streamed);
  }
}

void RunMerge(const std::uint8_t* const* in, std::uint8_t* out, std::size_t count,
              std::size_t width, bool rotate, bool streamed) {
  switch (width) {
    case 2:
      return rotate ? Merge<2, true>(in, out, count, streamed)
                    : Merge<2, false>(in, out, count, streamed);
    case 4:
      return rotate ? Merge<4, true>(in, out, count, streamed)
                    : Merge<4, false>(in, out, count, streamed);
    default:
      return rotate ? Merge<8, true>(in, out, count, streamed)
                    : Merge<8, false>(in, out, count, streamed);
  }
}

}  // namespace zt::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zt::kernel {
HWY_EXPORT(RunSplit);
HWY_EXPORT(RunMerge);

void SplitPlanes(const std::uint8_t* in, std::uint8_t* out, std::size_t count, std::size_t width,
                 bool rotate, bool streamed) {
  HWY_DYNAMIC_DISPATCH(RunSplit)(in, out, count, width, rotate, streamed);
}
void MergePlanes(const std::uint8_t* const* in, std::uint8_t* out, std::size_t count,
                 std::size_t width, bool rotate, bool streamed) {
  HWY_DYNAMIC_DISPATCH(RunMerge)(in, out, count, width, rotate, streamed);
}
void FlushPlanes() { hwy::FlushStream(); }
}  // namespace zt::kernel
#endif  // HWY_ONCE
