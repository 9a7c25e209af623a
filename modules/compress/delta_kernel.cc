// delta_kernel — Highway vectors where elements keep their order, plain loops where they do not.
#include "compress/delta_kernel.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/prefetch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/delta_kernel.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace zt::kernel::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most 64 lanes, so that a mask is one word.
template <typename T>
using Lanes64 = hn::CappedTag<T, 64>;

template <typename T>
HWY_INLINE T At(const std::uint8_t* p, std::size_t i) {
  T value;
  std::memcpy(&value, p + i * sizeof(T), sizeof(T));
  return value;
}
template <typename T>
HWY_INLINE void Put(std::uint8_t* p, std::size_t i, T value) {
  std::memcpy(p + i * sizeof(T), &value, sizeof(T));
}

template <typename T>
HWY_INLINE T ZigZag(T difference) {
  using Signed = std::make_signed_t<T>;
  const auto sign = static_cast<T>(static_cast<Signed>(difference) >> (sizeof(T) * 8 - 1));
  return static_cast<T>(static_cast<T>(difference << 1) ^ sign);
}
template <typename T>
HWY_INLINE T FromZigZag(T value) {
  return static_cast<T>(static_cast<T>(value >> 1) ^ static_cast<T>(T{0} - (value & 1)));
}

// Calls step(part, i) for each element, four parts in turn.
template <class Step>
HWY_INLINE void EachPart(std::size_t count, const Step& step) {
  const std::size_t part = count / kDeltaParts;
  for (std::size_t i = 0; i < part; ++i) {
    step(0, i);
    step(1, i + part);
    step(2, i + 2 * part);
    step(3, i + 3 * part);
  }
  for (std::size_t i = kDeltaParts * part; i < count; ++i) step(3, i);
}

// Calls run(T()) for the type of elements of this width.
template <class Run>
HWY_INLINE auto ForWidth(std::size_t width, const Run& run) {
  switch (width) {
    case 8:
      return run(std::uint64_t{});
    case 4:
      return run(std::uint32_t{});
    case 2:
      return run(std::uint16_t{});
    default:
      return run(std::uint8_t{});
  }
}

template <typename T>
HWY_INLINE std::size_t KeyOf(T element, DeltaKey key) {
  return static_cast<std::size_t>(element >> key.shift) & key.mask;
}

void RunCountKeys(const std::uint8_t* in, std::size_t count, std::size_t width, DeltaKey key,
                  std::uint32_t (*counts)[256]) {
  ForWidth(width, [&](auto zero) HWY_ATTR {
    using T = decltype(zero);
    EachPart(count,
             [&](std::size_t p, std::size_t i) HWY_ATTR { ++counts[p][KeyOf(At<T>(in, i), key)]; });
  });
}

void RunOrder(const std::uint8_t* HWY_RESTRICT old, const std::uint8_t* HWY_RESTRICT fresh,
              std::size_t count, std::size_t width, DeltaKey key,
              const std::uint8_t* HWY_RESTRICT group_of, std::uint32_t (*HWY_RESTRICT place)[256],
              std::uint8_t* HWY_RESTRICT out) {
  ForWidth(width, [&](auto zero) HWY_ATTR {
    using T = decltype(zero);
    EachPart(count, [&](std::size_t p, std::size_t i) HWY_ATTR {
      const T was = At<T>(old, i);
      const auto difference = static_cast<T>(At<T>(fresh, i) - was);
      Put(out, place[p][group_of[KeyOf(was, key)]]++, ZigZag(difference));
    });
  });
}

void RunAddOrdered(std::uint8_t* HWY_RESTRICT elements, std::size_t count, std::size_t width,
                   DeltaKey key, const std::uint8_t* HWY_RESTRICT group_of,
                   std::uint32_t (*HWY_RESTRICT place)[256],
                   const std::uint8_t* HWY_RESTRICT differences) {
  ForWidth(width, [&](auto zero) HWY_ATTR {
    using T = decltype(zero);
    EachPart(count, [&](std::size_t p, std::size_t i) HWY_ATTR {
      const T was = At<T>(elements, i);
      const T difference = At<T>(differences, place[p][group_of[KeyOf(was, key)]]++);
      Put(elements, i, static_cast<T>(was + difference));
    });
  });
}

// Stores of(v, w) for the vectors v of a and w of b, and of(x, y) for the elements after them.
template <typename T, class Vectors, class Elements>
HWY_INLINE void Pairwise(const std::uint8_t* a, const std::uint8_t* b, std::uint8_t* out,
                         std::size_t count, const Vectors& vectors, const Elements& elements) {
  const Lanes64<std::uint8_t> bytes;
  const hn::Repartition<T, Lanes64<std::uint8_t>> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const std::size_t at = i * sizeof(T);
    const auto x = hn::BitCast(d, hn::LoadU(bytes, a + at));
    const auto y = hn::BitCast(d, hn::LoadU(bytes, b + at));
    hn::StoreU(hn::BitCast(bytes, vectors(d, x, y)), bytes, out + at);
  }
  for (; i < count; ++i) Put(out, i, elements(At<T>(a, i), At<T>(b, i)));
}

void RunDifferences(const std::uint8_t* old, const std::uint8_t* fresh, std::size_t count,
                    std::size_t width, std::uint8_t* out) {
  ForWidth(width, [&](auto zero) HWY_ATTR {
    using T = decltype(zero);
    Pairwise<T>(
        old, fresh, out, count,
        [](auto d, auto was, auto is) HWY_ATTR {
          const auto difference = hn::Sub(is, was);
          const hn::RebindToSigned<decltype(d)> ds;
          const auto sign = hn::BitCast(d, hn::BroadcastSignBit(hn::BitCast(ds, difference)));
          return hn::Xor(hn::Add(difference, difference), sign);
        },
        [](T was, T is) HWY_ATTR { return ZigZag(static_cast<T>(is - was)); });
  });
}

void RunAdd(std::uint8_t* elements, const std::uint8_t* differences, std::size_t count,
            std::size_t width) {
  ForWidth(width, [&](auto zero) HWY_ATTR {
    using T = decltype(zero);
    Pairwise<T>(
        elements, differences, elements, count,
        [](auto, auto was, auto difference) HWY_ATTR { return hn::Add(was, difference); },
        [](T was, T difference) HWY_ATTR { return static_cast<T>(was + difference); });
  });
}

void RunUndoZigZag(std::uint8_t* differences, std::size_t count, std::size_t width) {
  ForWidth(width, [&](auto zero) HWY_ATTR {
    using T = decltype(zero);
    Pairwise<T>(
        differences, differences, differences, count,
        [](auto d, auto value, auto) HWY_ATTR {
          const auto sign = hn::Sub(hn::Zero(d), hn::And(value, hn::Set(d, T{1})));
          return hn::Xor(hn::ShiftRight<1>(value), sign);
        },
        [](T value, T) HWY_ATTR { return FromZigZag(value); });
  });
}

// Calls found(i, mask) for each vector that has elements other than zero: bit j of the mask is set
// for element i + j.
template <typename T, class Found>
HWY_INLINE void EachChanged(const std::uint8_t* in, std::size_t count, const Found& found) {
  const Lanes64<std::uint8_t> bytes;
  const hn::Repartition<T, Lanes64<std::uint8_t>> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto value = hn::BitCast(d, hn::LoadU(bytes, in + i * sizeof(T)));
    const auto changed = hn::Ne(value, hn::Zero(d));
    if (hn::AllFalse(d, changed)) continue;
    std::uint8_t bits[8] = {};
    hn::StoreMaskBits(d, changed, bits);
    std::uint64_t mask = 0;
    for (std::size_t b = 0; b < 8; ++b) mask |= std::uint64_t{bits[b]} << (8 * b);
    found(i, mask);
  }
  for (; i < count; ++i) {
    if (At<T>(in, i) != 0) found(i, std::uint64_t{1});
  }
}

std::size_t RunCountChanged(const std::uint8_t* in, std::size_t count, std::size_t width) {
  std::size_t changed = 0;
  ForWidth(width, [&](auto zero) HWY_ATTR {
    using T = decltype(zero);
    const Lanes64<std::uint8_t> bytes;
    const hn::Repartition<T, Lanes64<std::uint8_t>> d;
    const std::size_t lanes = hn::Lanes(d);
    std::size_t i = 0;
    for (; i + lanes <= count; i += lanes) {
      PrefetchAhead(in + i * sizeof(T));
      const auto value = hn::BitCast(d, hn::LoadU(bytes, in + i * sizeof(T)));
      changed += hn::CountTrue(d, hn::Ne(value, hn::Zero(d)));
    }
    for (; i < count; ++i) changed += At<T>(in, i) != 0 ? 1 : 0;
  });
  return changed;
}

std::size_t RunPack(const std::uint8_t* HWY_RESTRICT in, std::size_t count, std::size_t width,
                    std::uint8_t* HWY_RESTRICT values, std::uint8_t* HWY_RESTRICT gaps) {
  std::size_t changed = 0, next = 0;
  const std::uint8_t* const first = gaps;
  ForWidth(width, [&](auto zero) HWY_ATTR {
    using T = decltype(zero);
    EachChanged<T>(in, count, [&](std::size_t begin, std::uint64_t mask) HWY_ATTR {
      for (; mask != 0; mask &= mask - 1) {
        const std::size_t i = begin + static_cast<std::size_t>(__builtin_ctzll(mask));
        std::size_t gap = i - next;
        for (; gap >= 255; gap -= 255) *gaps++ = 255;
        *gaps++ = static_cast<std::uint8_t>(gap);
        Put(values, changed++, At<T>(in, i));
        next = i + 1;
      }
    });
  });
  return static_cast<std::size_t>(gaps - first);
}

}  // namespace zt::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zt::kernel {
HWY_EXPORT(RunCountKeys);
HWY_EXPORT(RunOrder);
HWY_EXPORT(RunAddOrdered);
HWY_EXPORT(RunDifferences);
HWY_EXPORT(RunAdd);
HWY_EXPORT(RunUndoZigZag);
HWY_EXPORT(RunCountChanged);
HWY_EXPORT(RunPack);

void CountKeys(const std::uint8_t* in, std::size_t count, std::size_t width, DeltaKey key,
               std::uint32_t (*counts)[256]) {
  HWY_DYNAMIC_DISPATCH(RunCountKeys)(in, count, width, key, counts);
}
void OrderDifferences(const std::uint8_t* old, const std::uint8_t* fresh, std::size_t count,
                      std::size_t width, DeltaKey key, const std::uint8_t* group_of,
                      std::uint32_t (*place)[256], std::uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(RunOrder)(old, fresh, count, width, key, group_of, place, out);
}
void AddOrdered(std::uint8_t* elements, std::size_t count, std::size_t width, DeltaKey key,
                const std::uint8_t* group_of, std::uint32_t (*place)[256],
                const std::uint8_t* differences) {
  HWY_DYNAMIC_DISPATCH(RunAddOrdered)(elements, count, width, key, group_of, place, differences);
}
void Differences(const std::uint8_t* old, const std::uint8_t* fresh, std::size_t count,
                 std::size_t width, std::uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(RunDifferences)(old, fresh, count, width, out);
}
void AddDifferences(std::uint8_t* elements, const std::uint8_t* differences, std::size_t count,
                    std::size_t width) {
  HWY_DYNAMIC_DISPATCH(RunAdd)(elements, differences, count, width);
}
void UndoZigZag(std::uint8_t* differences, std::size_t count, std::size_t width) {
  HWY_DYNAMIC_DISPATCH(RunUndoZigZag)(differences, count, width);
}
std::size_t CountChanged(const std::uint8_t* in, std::size_t count, std::size_t width) {
  return HWY_DYNAMIC_DISPATCH(RunCountChanged)(in, count, width);
}
std::size_t PackChanged(const std::uint8_t* in, std::size_t count, std::size_t width,
                        std::uint8_t* values, std::uint8_t* gaps) {
  return HWY_DYNAMIC_DISPATCH(RunPack)(in, count, width, values, gaps);
}

bool UnpackChanged(const std::uint8_t* gaps, std::size_t gap_count, const std::uint8_t* values,
                   std::size_t changed, std::size_t width, std::uint8_t* out, std::size_t count) {
  std::size_t at = 0, value = 0;
  const auto unpack = [&](auto copy) {
    for (std::size_t g = 0; g < gap_count; ++g) {
      at += gaps[g];
      if (gaps[g] == 255) continue;
      if (at >= count || value == changed) return false;
      copy(out + at * width, values + value * width);
      ++at;
      ++value;
    }
    return value == changed;
  };
  switch (width) {
    case 8:
      return unpack([](std::uint8_t* to, const std::uint8_t* from) { std::memcpy(to, from, 8); });
    case 4:
      return unpack([](std::uint8_t* to, const std::uint8_t* from) { std::memcpy(to, from, 4); });
    case 2:
      return unpack([](std::uint8_t* to, const std::uint8_t* from) { std::memcpy(to, from, 2); });
    default:
      return unpack([](std::uint8_t* to, const std::uint8_t* from) { *to = *from; });
  }
}
}  // namespace zt::kernel
#endif  // HWY_ONCE
