// delta_kernel — finds the members of groups among 64 elements at once, as masks of Highway's
// vectors.
#include "compress/delta_kernel.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/prefetch.h"
#include "core/sized_vectors.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/delta_kernel.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "core/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zt::kernel::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kBlock = 64;
constexpr std::uint64_t kNever = ~std::uint64_t{0};

template <typename T>
HWY_INLINE T ZigZag(T difference) {
  using Signed = std::make_signed_t<T>;
  const auto sign = static_cast<T>(static_cast<Signed>(difference) >> (sizeof(T) * 8 - 1));
  return static_cast<T>(static_cast<T>(difference << 1) ^ sign);
}

template <typename T>
HWY_INLINE T UnZigZag(T value) {
  return static_cast<T>((value >> 1) ^ static_cast<T>(T{0} - (value & 1)));
}

template <typename T>
HWY_INLINE std::size_t KeyOf(T element, DeltaKey key) {
  return static_cast<std::size_t>(element >> key.shift) & key.mask;
}

HWY_INLINE std::size_t FirstOf(std::uint64_t mask) {
  return static_cast<std::size_t>(__builtin_ctzll(mask));
}
HWY_INLINE std::uint32_t CountOf(std::uint64_t mask) {
  return static_cast<std::uint32_t>(__builtin_popcountll(mask));
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
using Vector = hn::CappedTag<T, kBlock>;
// Lanes whose mask is whole bytes.
template <typename T>
inline constexpr bool kMasks = hn::MaxLanes(Vector<T>()) >= 8;

// Bit i is set if lane i of the mask is. Word by word, so that compilers keep it in a register.
template <class D, class M>
HWY_INLINE std::uint64_t BitsOf(D d, M mask) {
  constexpr std::size_t kBytes = hn::MaxLanes(D()) / 8;
  using Small = std::conditional_t<kBytes == 1, std::uint8_t, std::uint16_t>;
  using Large = std::conditional_t<kBytes <= 4, std::uint32_t, std::uint64_t>;
  using Word = std::conditional_t<kBytes <= 2, Small, Large>;
  alignas(8) std::uint8_t bytes[8];
  hn::StoreMaskBits(d, mask, bytes);
  if constexpr (std::endian::native == std::endian::little) {
    Word word;
    std::memcpy(&word, bytes, sizeof(word));
    return word;
  }
  std::uint64_t word = 0;
  for (std::size_t b = 0; b < kBytes; ++b) word |= std::uint64_t{bytes[b]} << (8 * b);
  return word;
}

template <typename T>
HWY_INLINE auto Load(const std::uint8_t* p, std::size_t i) {
  const hn::Repartition<std::uint8_t, Vector<T>> bytes;
  return hn::BitCast(Vector<T>(), hn::LoadU(bytes, p + i * sizeof(T)));
}

// The elements that differ, as a mask.
template <typename T>
HWY_INLINE std::uint64_t Differing(const std::uint8_t* a, const std::uint8_t* b,
                                   std::size_t elements) {
  std::uint64_t mask = 0;
  if constexpr (kMasks<T>) {
    constexpr std::size_t kLanes = hn::MaxLanes(Vector<T>());
    if (elements == kBlock) {
      for (std::size_t i = 0; i < kBlock; i += kLanes)
        mask |= BitsOf(Vector<T>(), hn::Ne(Load<T>(a, i), Load<T>(b, i))) << i;
      return mask;
    }
  }
  for (std::size_t i = 0; i < elements; ++i)
    mask |= std::uint64_t{LoadAt<T>(a, i) != LoadAt<T>(b, i)} << i;
  return mask;
}

// The members of groups, as masks.
template <typename T>
class Members {
 public:
  Members(DeltaKey key, const DeltaGroup* groups, std::size_t count)
      : key_(key), bits_(static_cast<T>(static_cast<T>(key.mask) << key.shift)), count_(count) {
    std::size_t k = 0;
    for (std::size_t g = 0; g < count; ++g) {
      for (; k <= groups[g].last_key; ++k) group_of_[k] = static_cast<std::uint8_t>(g);
      const unsigned last = groups[g].last_key < key.mask ? groups[g].last_key : key.mask;
      limits_[g] = static_cast<T>(static_cast<T>(last) << key.shift);
    }
  }
  HWY_INLINE std::size_t GroupOf(T element) const { return group_of_[KeyOf(element, key_)]; }

  // Of the elements at `in`.
  HWY_INLINE void Find(const std::uint8_t* in, std::size_t elements, std::uint64_t* masks) const {
    if constexpr (kMasks<T>) {
      if (elements == kBlock) return FindInBlock(in, masks);
    }
    for (std::size_t g = 0; g < count_; ++g) masks[g] = 0;
    for (std::size_t i = 0; i < elements; ++i)
      masks[GroupOf(LoadAt<T>(in, i))] |= std::uint64_t{1} << i;
  }

 private:
  HWY_INLINE void FindInBlock(const std::uint8_t* in, std::uint64_t* masks) const {
    constexpr Vector<T> d;
    constexpr hn::RebindToSigned<Vector<T>> ds;  // keys do not hold the sign
    constexpr std::size_t kLanes = hn::MaxLanes(d);
    hn::Vec<decltype(ds)> keys[kBlock / kLanes];
    for (std::size_t v = 0; v < kBlock / kLanes; ++v)
      keys[v] = hn::BitCast(ds, hn::And(Load<T>(in, v * kLanes), hn::Set(d, bits_)));
    std::uint64_t above = kNever;
    for (std::size_t g = 0; g + 1 < count_; ++g) {
      const auto limit = hn::BitCast(ds, hn::Set(d, limits_[g]));
      std::uint64_t next = 0;
      for (std::size_t v = 0; v < kBlock / kLanes; ++v)
        next |= BitsOf(ds, hn::Gt(keys[v], limit)) << (v * kLanes);
      masks[g] = above & ~next;
      above = next;
    }
    masks[count_ - 1] = above;
  }

  const DeltaKey key_;
  const T bits_;
  const std::size_t count_;
  std::uint8_t group_of_[256] = {};
  T limits_[256] = {};
};

// Calls block(begin, elements) for each 64 elements and the rest.
template <class Block>
HWY_INLINE void EachBlock(std::size_t count, const Block& block) {
  for (std::size_t begin = 0; begin < count; begin += kBlock)
    block(begin, count - begin < kBlock ? count - begin : kBlock);
}

void RunCountKeys(const std::uint8_t* old, const std::uint8_t* fresh, std::size_t count,
                  std::size_t width, DeltaKey key, std::uint32_t* counts, std::uint32_t* changed) {
  std::uint32_t in_turn[4][256] = {};  // so that neighbours with one key do not wait
  ForWidth(width, [&](auto zero) HWY_ATTR {
    using T = decltype(zero);
    EachBlock(count, [&](std::size_t begin, std::size_t elements) HWY_ATTR {
      const std::uint8_t* const was = old + begin * sizeof(T);
      std::size_t i = 0;
      for (; i + 4 <= elements; i += 4) {
        ++in_turn[0][KeyOf(LoadAt<T>(was, i), key)];
        ++in_turn[1][KeyOf(LoadAt<T>(was, i + 1), key)];
        ++in_turn[2][KeyOf(LoadAt<T>(was, i + 2), key)];
        ++in_turn[3][KeyOf(LoadAt<T>(was, i + 3), key)];
      }
      for (; i < elements; ++i) ++in_turn[0][KeyOf(LoadAt<T>(was, i), key)];
      std::uint64_t mask = Differing<T>(was, fresh + begin * sizeof(T), elements);
      for (; mask != 0; mask &= mask - 1) ++changed[KeyOf(LoadAt<T>(was, FirstOf(mask)), key)];
    });
  });
  for (std::size_t k = 0; k < 256; ++k) {
    for (const auto& each : in_turn) counts[k] += each[k];
  }
}

template <typename T>
void Pack(const std::uint8_t* old, const std::uint8_t* fresh, std::size_t count, DeltaKey key,
          DeltaGroup* groups, std::size_t group_count) {
  const Members<T> members(key, groups, group_count);
  std::uint64_t masks[256], all_of = 0;
  std::uint32_t seen[256] = {}, next[256] = {}, values[256] = {};
  bool any_sparse = false;
  for (std::size_t g = 0; g < group_count; ++g) {
    groups[g].gap_count = 0;
    any_sparse = any_sparse || !groups[g].all;
  }
  EachBlock(count, [&](std::size_t begin, std::size_t elements) HWY_ATTR {
    const std::uint8_t* const was = old + begin * sizeof(T);
    const std::uint8_t* const is = fresh + begin * sizeof(T);
    const auto value = [&](std::size_t i) HWY_ATTR {
      return ZigZag(static_cast<T>(LoadAt<T>(is, i) - LoadAt<T>(was, i)));
    };
    members.Find(was, elements, masks);
    all_of = 0;
    for (std::size_t g = 0; g < group_count; ++g) {
      if (!groups[g].all) continue;
      all_of |= masks[g];
      std::uint8_t* const out = groups[g].values + values[g] * sizeof(T);
      if (masks[g] == kNever) {
        for (std::size_t i = 0; i < kBlock; ++i) StoreAt(value(i), out, i);
      } else {
        std::size_t to = 0;
        for (std::uint64_t mask = masks[g]; mask != 0; mask &= mask - 1)
          StoreAt(value(FirstOf(mask)), out, to++);
      }
      values[g] += CountOf(masks[g]);
    }
    if (!any_sparse) return;
    std::uint64_t differing = Differing<T>(was, is, elements) & ~all_of;
    for (; differing != 0; differing &= differing - 1) {
      const std::size_t i = FirstOf(differing), g = members.GroupOf(LoadAt<T>(was, i));
      DeltaGroup& group = groups[g];
      const std::uint32_t rank = seen[g] + CountOf(masks[g] & ((std::uint64_t{1} << i) - 1));
      std::uint32_t gap = rank - next[g];
      for (; gap >= 255; gap -= 255) group.gaps[group.gap_count++] = 255;
      group.gaps[group.gap_count++] = static_cast<std::uint8_t>(gap);
      StoreAt(value(i), group.values, values[g]++);
      next[g] = rank + 1;
    }
    for (std::size_t g = 0; g < group_count; ++g) seen[g] += CountOf(masks[g]);
  });
}

// The place among its group's elements of the next one that changed: `at` or later.
HWY_INLINE std::uint64_t NextOf(const DeltaGroup& group, std::uint32_t& gaps, std::uint64_t at) {
  while (gaps < group.gap_count) {
    const std::uint8_t gap = group.gaps[gaps++];
    at += gap;
    if (gap != 255) return at;
  }
  return kNever;
}

// The place of the set bit before which `rank` bits are set.
HWY_INLINE std::size_t PlaceOf(std::uint64_t mask, std::uint64_t rank) {
#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3  // it is slow on some processors without AVX-512
  return FirstOf(__builtin_ia32_pdep_di(std::uint64_t{1} << rank, mask));
#else
  std::size_t place = 0;
  for (unsigned half = kBlock / 2; half >= 8; half /= 2) {
    const std::uint64_t before = CountOf((mask >> place) & ((std::uint64_t{1} << half) - 1));
    const bool after = before <= rank;
    rank -= after ? before : 0;
    place += after ? half : 0;
  }
  mask >>= place;
  for (; rank > 0; --rank) mask &= mask - 1;
  return place + FirstOf(mask);
#endif
}

template <typename T>
bool Add(std::uint8_t* elements, std::size_t count, DeltaKey key, const DeltaGroup* groups,
         std::size_t group_count) {
  const Members<T> members(key, groups, group_count);
  std::uint64_t masks[256], next[256];
  std::uint32_t seen[256] = {}, gaps[256] = {}, values[256] = {};
  std::uint16_t touched[256];
  for (std::size_t g = 0; g < group_count; ++g)
    next[g] = groups[g].all ? 0 : NextOf(groups[g], gaps[g], 0);
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    std::uint8_t* const block = elements + begin * sizeof(T);
    PrefetchAhead(block);
    const auto add = [block](std::size_t i, const std::uint8_t* from, std::size_t v) HWY_ATTR {
      StoreAt(static_cast<T>(LoadAt<T>(block, i) + UnZigZag(LoadAt<T>(from, v))), block, i);
    };
    members.Find(block, count - begin < kBlock ? count - begin : kBlock, masks);
    std::size_t most = 0;  // without a branch: which groups change is hard to foresee
    for (std::size_t g = 0; g < group_count; ++g) {
      seen[g] += CountOf(masks[g]);
      touched[most] = static_cast<std::uint16_t>(g);
      most += next[g] < seen[g] ? 1 : 0;
    }
    for (std::size_t k = 0; k < most; ++k) {
      const std::size_t g = touched[k];
      const DeltaGroup& group = groups[g];
      std::uint64_t mask = masks[g];
      const std::uint32_t at = seen[g] - CountOf(mask);
      if (group.all) {
        if (seen[g] > group.value_count) return false;
        const std::uint8_t* const from = group.values + at * sizeof(T);
        if (mask == kNever) {
          for (std::size_t i = 0; i < kBlock; ++i) add(i, from, i);
        } else {
          for (std::size_t v = 0; mask != 0; mask &= mask - 1) add(FirstOf(mask), from, v++);
        }
        continue;
      }
      do {
        if (values[g] == group.value_count) return false;
        add(PlaceOf(mask, next[g] - at), group.values, values[g]++);
        next[g] = NextOf(group, gaps[g], next[g] + 1);
      } while (next[g] < seen[g]);
    }
  }
  for (std::size_t g = 0; g < group_count; ++g) {
    const std::uint32_t used = groups[g].all ? seen[g] : values[g];
    if (used != groups[g].value_count || (!groups[g].all && next[g] != kNever)) return false;
  }
  return true;
}

void RunPack(const std::uint8_t* old, const std::uint8_t* fresh, std::size_t count,
             std::size_t width, DeltaKey key, DeltaGroup* groups, std::size_t group_count) {
  ForWidth(width, [&](auto zero) HWY_ATTR {
    Pack<decltype(zero)>(old, fresh, count, key, groups, group_count);
  });
}

bool RunAdd(std::uint8_t* elements, std::size_t count, std::size_t width, DeltaKey key,
            const DeltaGroup* groups, std::size_t group_count) {
  return ForWidth(width, [&](auto zero) HWY_ATTR {
    return Add<decltype(zero)>(elements, count, key, groups, group_count);
  });
}

}  // namespace zt::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zt::kernel {
HWY_EXPORT(RunCountKeys);
HWY_EXPORT(RunPack);
HWY_EXPORT(RunAdd);

void CountKeys(const std::uint8_t* old, const std::uint8_t* fresh, std::size_t count,
               std::size_t width, DeltaKey key, std::uint32_t* counts, std::uint32_t* changed) {
  HWY_DYNAMIC_DISPATCH(RunCountKeys)(old, fresh, count, width, key, counts, changed);
}
void PackGroups(const std::uint8_t* old, const std::uint8_t* fresh, std::size_t count,
                std::size_t width, DeltaKey key, DeltaGroup* groups, std::size_t group_count) {
  HWY_DYNAMIC_DISPATCH(RunPack)(old, fresh, count, width, key, groups, group_count);
}
bool AddGroups(std::uint8_t* elements, std::size_t count, std::size_t width, DeltaKey key,
               const DeltaGroup* groups, std::size_t group_count) {
  return HWY_DYNAMIC_DISPATCH(RunAdd)(elements, count, width, key, groups, group_count);
}
}  // namespace zt::kernel
#endif  // HWY_ONCE
