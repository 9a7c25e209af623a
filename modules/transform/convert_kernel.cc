// convert_kernel — floats to floats in Highway vectors, with identical bits on every target.
//
// The common case has no branches: a block of elements is narrowed as if all were finite and in
// range, while the largest magnitude is tracked. If that was out of range, infinite or NaN, the
// block is narrowed again by a loop that checks each vector and counts.
#include "transform/convert_kernel.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "transform/convert_kernel.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "transform/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zt::kernel::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kBlock = 512;  // elements between two checks of the largest magnitude

// Replaces and counts the lanes of `narrow` whose f32 magnitude `abs` is out of F's
// range, infinite or NaN.
template <class F, class D, class V>
HWY_NOINLINE V FixSpecials(D d, V f32, V abs, V narrow, bool saturate, Counts& counts) {
  const hn::RebindToSigned<D> di;
  const auto bits = [&](std::uint32_t v) HWY_ATTR { return hn::Set(d, v); };
  const auto above = [&](std::uint32_t v) HWY_ATTR {  // positive as signed integers
    return hn::RebindMask(d,
                          hn::Gt(hn::BitCast(di, abs), hn::Set(di, static_cast<std::int32_t>(v))));
  };
  const V sign = hn::And(hn::ShiftRight<F::kSignShift>(f32), bits(F::kSign));
  const auto special = above(F::kOverflow - 1);
  const auto nan = above(format::kF32Inf);
  const auto infinite_or_nan = above(format::kF32Inf - 1);
  const auto finite = hn::AndNot(infinite_or_nan, special);
  if constexpr (F::kKind == Specials::kIeee) {
    counts.overflow += hn::CountTrue(d, finite);
    // A NaN keeps the top bits of its payload and becomes quiet.
    const V payload = hn::And(hn::ShiftRight<F::kShift>(abs), bits(F::kAllOnes));
    const V quiet = hn::Or(payload, bits(F::kExponentMask | F::kQuiet));
    V fixed = hn::IfThenElse(nan, quiet, bits(F::kExponentMask));
    if (saturate) fixed = hn::IfThenElse(finite, bits(F::kMax), fixed);
    return hn::IfThenElse(special, hn::Or(fixed, sign), narrow);
  } else {
    counts.overflow += hn::CountTrue(d, hn::AndNot(nan, special));
    constexpr bool kSignedNan = F::kKind == Specials::kFn;
    const V the_nan = kSignedNan ? hn::Or(bits(F::kAllOnes), sign) : bits(F::kSign);
    const V largest = hn::Or(bits(F::kMax), sign);
    narrow = hn::IfThenElse(special, saturate ? largest : the_nan, narrow);
    return hn::IfThenElse(nan, the_nan, narrow);
  }
}

// Rounds a magnitude to F, to nearest, ties to even. The result is F's bits without the sign, in
// the low bits of each lane; higher bits are undefined. `abs` is f32 bits with an exponent that is
// kScale too small. Undefined if out of F's range.
template <class F, std::uint32_t kScale = 0, class D, class V>
HWY_INLINE V RoundMagnitude(D d, V abs) {
  const hn::RebindToFloat<D> df;
  const auto bits = [&](std::uint32_t v) HWY_ATTR { return hn::Set(d, v); };
  constexpr std::uint32_t kMinNormal = F::kMinNormal - (kScale << 23);
  // Adding a float that is 2^kShift times the number's own power of two (at least the
  // smallest normal's) makes the hardware round at F's last place, and leaves the significand
  // in units of that place in the low bits. kBase makes the exponent's low bits count from
  // F's smallest exponent.
  constexpr std::uint32_t kBase = (0 - (kMinNormal >> F::kShift)) & F::kAllOnes;
  static_assert(kBase % 2 == 0, "an odd one would turn ties to odd");
  const V exponent = hn::And(hn::Max(abs, bits(kMinNormal)), bits(format::kF32Inf));
  const V magic = hn::Add(exponent, bits((static_cast<std::uint32_t>(F::kShift) << 23) + kBase));
  const V sum = hn::BitCast(d, hn::Add(hn::BitCast(df, abs), hn::BitCast(df, magic)));
  return hn::Add(sum, hn::Sub(hn::ShiftRight<F::kShift>(exponent), exponent));
}

// Combines the bits of `magnitude` below F's sign bit with the bits of `sign` from there on.
template <class F, class D, class V>
HWY_INLINE V WithSign(D d, V magnitude, V sign) {
  using T = hn::TFromD<D>;
  const V mask = hn::Set(d, static_cast<T>(F::kAllOnes));
  const V narrow = hn::Or(hn::And(magnitude, mask), hn::AndNot(mask, sign));
  if constexpr (F::kKind == Specials::kFnuz) {  // there is no -0: its pattern is NaN
    return hn::IfThenZeroElse(hn::Eq(narrow, hn::Set(d, static_cast<T>(F::kSign))), narrow);
  }
  return narrow;
}

// Encodes f32 bits that are in F's range. `abs` is their magnitude; of `f32` only the sign is used,
// unless F shares f32's exponents.
template <class F, class D, class V>
HWY_INLINE V EncodeInRange(D d, V f32, V abs) {
  if constexpr (F::kSharesExponent) {
    // Rounding by addition: a carry into the exponent gives the correct result.
    const V odd = hn::And(hn::ShiftRight<F::kShift>(f32), hn::Set(d, 1));
    const V half = hn::Set(d, (1u << (F::kShift - 1)) - 1);
    return hn::ShiftRight<F::kShift>(hn::Add(hn::Add(f32, odd), half));
  } else {
    return WithSign<F>(d, RoundMagnitude<F>(d, abs), hn::ShiftRight<F::kSignShift>(f32));
  }
}

// Through f32; infinite and NaN results are checked again.
void F64ToF32(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
              std::size_t count, bool saturate, Counts& counts) {
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> df;
  const hn::RebindToSigned<decltype(df)> di;
  const auto infinity = hn::Set(di, static_cast<std::int32_t>(format::kF32Inf));
  auto largest = hn::Zero(di);
  ForEachVector<8, 4>(in, out, count, hn::Lanes(dd),
                      [&](const std::uint8_t* from, std::uint8_t* to) HWY_ATTR {
                        const auto narrow = Round64To32(df, dd, LoadBytes(dd, from));
                        largest = hn::Max(largest, hn::BitCast(di, hn::Abs(narrow)));
                        StoreBytes(narrow, df, to);
                      });
  if (HWY_LIKELY(hn::AllTrue(di, hn::Lt(largest, infinity)))) return;
  for (std::size_t i = 0; i < count; ++i) {
    double exact;
    float narrow;
    std::memcpy(&exact, in + i * 8, 8);
    std::memcpy(&narrow, out + i * 4, 4);
    if (!std::isinf(narrow) || std::isinf(exact)) continue;
    ++counts.overflow;
    if (!saturate) continue;
    const float limit = std::copysign(0x1.fffffep127f, narrow);
    std::memcpy(out + i * 4, &limit, 4);
  }
}

void F64ToF32Odd(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
                 std::size_t count) {
  const hn::ScalableTag<double> dd;
  const hn::RebindToUnsigned<decltype(dd)> du64;
  const hn::Rebind<float, decltype(dd)> df;
  const hn::RebindToUnsigned<decltype(df)> du32;
  ForEachVector<8, 4>(
      in, out, count, hn::Lanes(dd), [&](const std::uint8_t* from, std::uint8_t* to) HWY_ATTR {
        const auto exact = LoadBytes(dd, from);
        const auto nearest = Round64To32(df, dd, exact);
        const auto back = hn::PromoteTo(dd, nearest);
        // Undo a step away from zero, then set the last bit of inexact results. Of a NaN only
        // the last bit is set.
        const auto inexact = hn::BitCast(du64, hn::VecFromMask(dd, hn::Ne(back, exact)));
        const auto away =
            hn::BitCast(du64, hn::VecFromMask(dd, hn::Gt(hn::Abs(back), hn::Abs(exact))));
        const auto step32 = hn::TruncateTo(du32, away);  // -1 where away
        const auto sticky = hn::And(hn::TruncateTo(du32, inexact), hn::Set(du32, 1u));
        StoreBytes(hn::Or(hn::Add(hn::BitCast(du32, nearest), step32), sticky), du32, to);
      });
}

// Checks every vector. Slower, but correct for all f32.
template <class F>
void NarrowChecked(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
                   std::size_t count, bool saturate, Counts& counts) {
  const hn::ScalableTag<std::uint32_t> d;
  const hn::RebindToSigned<decltype(d)> di;
  using Storage = typename F::Storage;
  const auto limit = hn::Set(di, static_cast<std::int32_t>(F::kOverflow - 1));
  Counts local;
  ForEachVector<4, sizeof(Storage)>(
      in, out, count, hn::Lanes(d), [&](const std::uint8_t* from, std::uint8_t* to) HWY_ATTR {
        const auto f32 = LoadBytes(d, from), abs = Magnitude(d, f32);
        auto narrow = EncodeInRange<F>(d, f32, abs);
        if (HWY_UNLIKELY(!hn::AllFalse(di, hn::Gt(hn::BitCast(di, abs), limit)))) {
          narrow = FixSpecials<F>(d, f32, abs, narrow, saturate, local);
        }
        StoreNarrow(d, narrow, to, Storage{});
      });
  counts.overflow += local.overflow;
}

// The next three functions narrow `count` elements as if all were in F's range. False if one was
// not (beyond its end or just below it, infinite or NaN); the stored results are then undefined.
template <class F, class Source>
HWY_INLINE bool InRange(Source, const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
                        std::size_t count) {
  const hn::ScalableTag<std::uint32_t> d;
  const hn::RebindToSigned<decltype(d)> di;
  using Storage = typename F::Storage;
  auto largest = hn::Zero(di);
  ForEachVector<Source::kWidth, sizeof(Storage)>(
      in, out, count, hn::Lanes(d), [&](const std::uint8_t* from, std::uint8_t* to) HWY_ATTR {
        const auto f32 = Source::Load(d, from), abs = Magnitude(d, f32);
        largest = hn::Max(largest, hn::BitCast(di, abs));
#if ZT_HAVE_F16C
        if constexpr (std::is_same_v<F, format::F16>) {
          const hn::RebindToFloat<decltype(d)> df;
          const hn::Rebind<hwy::float16_t, decltype(d)> dh;
          StoreBytes(hn::DemoteTo(dh, hn::BitCast(df, f32)), dh, to);
          return;
        }
#endif
        StoreNarrow(d, EncodeInRange<F>(d, f32, abs), to, Storage{});
      });
  return hn::AllTrue(di, hn::Lt(largest, hn::Set(di, static_cast<std::int32_t>(F::kOverflow))));
}

// The upper half of an f64, with its lowest bit set if any lower bit is, is the number
// rounded to odd at 21 bits.
template <class F>
HWY_INLINE bool InRange(FromF64, const std::uint8_t* HWY_RESTRICT in,
                        std::uint8_t* HWY_RESTRICT out, std::size_t count) {
#if HWY_TARGET == HWY_SCALAR
  return false;
#else
  const hn::ScalableTag<std::uint32_t> d;
  const hn::RebindToSigned<decltype(d)> di;
  using Storage = typename F::Storage;
  const auto bits = [&](std::uint32_t v) HWY_ATTR { return hn::Set(d, v); };
  constexpr std::uint32_t kRebias = (1023u - 127) << 20;
  auto largest = hn::Zero(di);
  auto least = bits(~0u);  // smallest magnitude minus 1; zero wraps around
  ForEachVector<8, sizeof(Storage)>(
      in, out, count, hn::Lanes(d), [&](const std::uint8_t* from, std::uint8_t* to) HWY_ATTR {
        const auto first = LoadBytes(d, from), second = LoadBytes(d, from + hn::Lanes(d) * 4);
        const auto even = hn::ConcatEven(d, second, first), odd = hn::ConcatOdd(d, second, first);
        const auto low = kLowHalfFirst ? even : odd, upper = kLowHalfFirst ? odd : even;
        const auto magnitude = Magnitude(d, hn::Or(upper, hn::Min(low, bits(1))));
        largest = hn::Max(largest, hn::BitCast(di, magnitude));
        const auto rebiased = hn::BitCast(di, hn::Sub(magnitude, bits(kRebias)));
        const auto abs = hn::ShiftLeft<3>(hn::BitCast(d, hn::Max(rebiased, hn::Zero(di))));
        auto f32 = upper;
        if constexpr (F::kSharesExponent) {  // F has f32's subnormals, which `abs` lacks
          least = hn::Min(least, hn::Sub(magnitude, bits(1)));
          f32 = hn::Or(abs, hn::And(upper, bits(1u << 31)));
        }
        StoreNarrow(d, EncodeInRange<F>(d, f32, abs), to, Storage{});
      });
  constexpr auto kBeyond = static_cast<std::int32_t>((F::kOverflow >> 3) + kRebias);
  return hn::AllTrue(di, hn::Lt(largest, hn::Set(di, kBeyond))) &&
         hn::AllFalse(d, hn::Lt(least, bits(kRebias + (1u << 20) - 1)));
#endif
}

#if HWY_TARGET != HWY_SCALAR
// From 16 to 8 bits: signs and range in 16-bit lanes, rounding in pairs of 32-bit lanes. The
// exponents remain those of Half, so as f32 the values are too small by 2^kScale. 7.9 elements/ns
// in cache, against 6.5 through f32.
template <class F, class Half>
HWY_INLINE bool HalfInRange(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
                            std::size_t count) {
  const hn::ScalableTag<std::uint16_t> d16;
  const hn::RebindToSigned<decltype(d16)> di16;
  const hn::Repartition<std::uint32_t, decltype(d16)> d;
  const hn::Rebind<std::uint8_t, decltype(d16)> d8;
  constexpr std::uint32_t kScale = 127 - Half::kBias;
  constexpr int kDrop = 16 - Half::kShift;
  auto largest = hn::Zero(di16);
  ForEachVector<2, 1>(
      in, out, count, hn::Lanes(d16), [&](const std::uint8_t* from, std::uint8_t* to) HWY_ATTR {
        const auto halves = LoadBytes(d16, from);
        const auto abs = hn::And(halves, hn::Set(d16, static_cast<std::uint16_t>(Half::kAllOnes)));
        largest = hn::Max(largest, hn::BitCast(di16, abs));
        auto low = hn::ShiftLeft<16>(hn::BitCast(d, abs));
        auto upper = hn::And(hn::BitCast(d, abs), hn::Set(d, 0xffff0000u));
        if constexpr (kDrop > 0) {
          low = hn::ShiftRight<kDrop>(low);
          upper = hn::ShiftRight<kDrop>(upper);
        }
        low = RoundMagnitude<F, kScale>(d, low);
        upper = hn::ShiftLeft<16>(RoundMagnitude<F, kScale>(d, upper));
        const auto magnitude = kLowHalfFirst
                                   ? hn::OddEven(hn::BitCast(d16, upper), hn::BitCast(d16, low))
                                   : hn::OddEven(hn::BitCast(d16, low), hn::BitCast(d16, upper));
        const auto narrow = WithSign<F>(d16, magnitude, hn::ShiftRight<8>(halves));
        StoreBytes(hn::TruncateTo(d8, narrow), d8, to);
      });
  constexpr auto kBeyond =
      static_cast<std::int16_t>((F::kOverflow - (kScale << 23)) >> Half::kShift);
  return hn::AllTrue(di16, hn::Lt(largest, hn::Set(di16, kBeyond)));
}
template <class F>
  requires(sizeof(typename F::Storage) == 1)
HWY_INLINE bool InRange(FromF16, const std::uint8_t* in, std::uint8_t* out, std::size_t count) {
  return HalfInRange<F, format::F16>(in, out, count);
}
template <class F>
  requires(sizeof(typename F::Storage) == 1)
HWY_INLINE bool InRange(FromBf16, const std::uint8_t* in, std::uint8_t* out, std::size_t count) {
  return HalfInRange<F, format::Bf16>(in, out, count);
}
#endif

template <class F, class Source>
void Narrow(Source source, const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
            std::size_t count, bool saturate, Counts& counts) {
  for (std::size_t n; count > 0; count -= n) {
    n = std::min(count, kBlock);
    if (HWY_UNLIKELY(!InRange<F>(source, in, out, n))) {
      HWY_ALIGN std::uint8_t f32[kBlock * 4];
      if constexpr (std::is_same_v<Source, FromF64>) {
        F64ToF32Odd(in, f32, n);
      } else {
        ToF32<Source>(in, f32, n);
      }
      NarrowChecked<F>(f32, out, n, saturate, counts);
    }
    in += n * Source::kWidth;
    out += n * sizeof(typename F::Storage);
  }
}

// 8-bit to 16-bit formats, exactly, in 16-bit lanes: 16 elements/ns in cache,
// against 6 through f32.
template <class From, class To>
void SmallToHalf(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
                 std::size_t count) {
  const hn::ScalableTag<std::uint16_t> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<std::uint8_t, decltype(d)> d8;
  const auto bits = [&](std::uint32_t v)
                        HWY_ATTR { return hn::Set(d, static_cast<std::uint16_t>(v)); };
  HWY_ALIGN static constexpr auto kLeast = format::LeastMagnitudes<From, To>();
#if HWY_TARGET != HWY_SCALAR
  const auto least = hn::LoadDup128(d, kLeast.data());
#endif
  constexpr int kLift = To::kMantissa - From::kMantissa;
  constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(To::kBias - From::kBias)
                                    << To::kMantissa;
  ForEachVector<1, 2>(
      in, out, count, hn::Lanes(d), [&](const std::uint8_t* from, std::uint8_t* to) HWY_ATTR {
        const auto narrow = hn::PromoteTo(d, LoadBytes(d8, from));
        const auto magnitude = hn::And(narrow, bits(From::kAllOnes));
        const auto sign = hn::ShiftLeft<8>(hn::And(narrow, bits(From::kSign)));
        const auto above = [&](std::uint32_t v) HWY_ATTR {
          return hn::RebindMask(
              d, hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, static_cast<std::int16_t>(v))));
        };
        const auto lifted = hn::ShiftLeft<kLift>(magnitude);
        auto wide = hn::Add(lifted, bits(kRebias));
        const auto entry = hn::And(magnitude, bits(7));
#if HWY_TARGET == HWY_SCALAR
        const auto looked_up = hn::Set(d, kLeast[hn::GetLane(entry)]);
#else
        // Bytes 2i and 2i + 1 of the table.
        const auto index =
            hn::Add(hn::Mul(entry, bits(0x0202)), bits(kLowHalfFirst ? 0x0100 : 0x0001));
        const auto looked_up = hn::TableLookupBytes(least, index);
#endif
        wide = hn::IfThenElse(above(7), wide, looked_up);
        if constexpr (From::kKind == Specials::kFnuz) {
          wide = hn::IfThenElse(hn::Eq(narrow, bits(From::kSign)),
                                bits(To::kExponentMask | To::kQuiet), hn::Or(wide, sign));
        } else {
          if constexpr (From::kKind == Specials::kIeee) {
            const auto infinite_or_nan = hn::Or(lifted, bits(To::kExponentMask));
            wide = hn::IfThenElse(above(From::kExponentMask - 1), infinite_or_nan, wide);
            wide = hn::IfThenElse(above(From::kExponentMask), hn::Or(wide, bits(To::kQuiet)), wide);
          } else {
            wide = hn::IfThenElse(above(From::kMax), bits(To::kExponentMask | To::kQuiet), wide);
          }
          wide = hn::Or(wide, sign);
        }
        StoreBytes(wide, d, to);
      });
}

void AnyToF32(Number from, const std::uint8_t* in, std::uint8_t* out, std::size_t count,
              bool saturate, Counts& counts) {
  switch (from) {
    case Number::kF64:
      return F64ToF32(in, out, count, saturate, counts);
    case Number::kF32:
      std::memcpy(out, in, count * 4);
      return;
    case Number::kF16:
      return ToF32<FromF16>(in, out, count);
    case Number::kBf16:
      return ToF32<FromBf16>(in, out, count);
    case Number::kE4m3fn:
      return ToF32<FromSmall<format::E4m3fn>>(in, out, count);
    case Number::kE5m2:
      return ToF32<FromSmall<format::E5m2>>(in, out, count);
    case Number::kE4m3fnuz:
      return ToF32<FromSmall<format::E4m3fnuz>>(in, out, count);
    default:
      return ToF32<FromSmall<format::E5m2fnuz>>(in, out, count);
  }
}

// Calls finish(f32, out, n) for blocks of a type that f32 represents exactly.
template <std::size_t kOutWidth, class Finish>
HWY_INLINE void ByWayOfF32(Number from, const std::uint8_t* in, std::uint8_t* out,
                           std::size_t count, const Finish& finish) {
  const std::size_t width = WidthOf(from);
  HWY_ALIGN std::uint8_t f32[kBlock * 4];
  Counts none;
  for (std::size_t n; count > 0; count -= n, in += n * width, out += n * kOutWidth) {
    n = std::min(count, kBlock);
    AnyToF32(from, in, f32, n, false, none);
    finish(f32, out, n);
  }
}

template <class F>
void AnyToNarrow(Number from, const std::uint8_t* in, std::uint8_t* out, std::size_t count,
                 bool saturate, Counts& counts) {
  constexpr std::size_t kWidth = sizeof(typename F::Storage);
  switch (from) {
    case Number::kF64:
    case Number::kOddF64:
      return Narrow<F>(FromF64(), in, out, count, saturate, counts);
    case Number::kF32:
      return Narrow<F>(FromF32(), in, out, count, saturate, counts);
    case Number::kF16:
      return Narrow<F>(FromF16(), in, out, count, saturate, counts);
    case Number::kBf16:
      return Narrow<F>(FromBf16(), in, out, count, saturate, counts);
    default:
      break;
  }
  if constexpr (kWidth == 2) {
    switch (from) {
      case Number::kE4m3fn:
        return SmallToHalf<format::E4m3fn, F>(in, out, count);
      case Number::kE5m2:
        return SmallToHalf<format::E5m2, F>(in, out, count);
      case Number::kE4m3fnuz:
        return SmallToHalf<format::E4m3fnuz, F>(in, out, count);
      default:
        return SmallToHalf<format::E5m2fnuz, F>(in, out, count);
    }
  } else {
    ByWayOfF32<kWidth>(from, in, out, count,
                       [&](const std::uint8_t* f32, std::uint8_t* to, std::size_t n) {
                         Narrow<F>(FromF32(), f32, to, n, saturate, counts);
                       });
  }
}

void RunFloats(Number from, Number to, const std::uint8_t* in, std::uint8_t* out, std::size_t count,
               bool saturate, Counts& counts) {
  switch (to) {
    case Number::kF64:
      if (from == Number::kF32) return F32ToF64(in, out, count);
      return ByWayOfF32<8>(from, in, out, count, F32ToF64);
    case Number::kF32:
      return AnyToF32(from, in, out, count, saturate, counts);
    case Number::kF16:
      return AnyToNarrow<format::F16>(from, in, out, count, saturate, counts);
    case Number::kBf16:
      return AnyToNarrow<format::Bf16>(from, in, out, count, saturate, counts);
    case Number::kE4m3fn:
      return AnyToNarrow<format::E4m3fn>(from, in, out, count, saturate, counts);
    case Number::kE5m2:
      return AnyToNarrow<format::E5m2>(from, in, out, count, saturate, counts);
    case Number::kE4m3fnuz:
      return AnyToNarrow<format::E4m3fnuz>(from, in, out, count, saturate, counts);
    default:
      return AnyToNarrow<format::E5m2fnuz>(from, in, out, count, saturate, counts);
  }
}

template <typename T>
std::size_t CountClear(const std::uint8_t* in, std::size_t count, T mask) {
  const hn::ScalableTag<T> d;
  const auto bits = hn::Set(d, mask);
  const std::size_t lanes = hn::Lanes(d);
  std::size_t clear = 0, i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto kept = hn::And(LoadBytes(d, in + i * sizeof(T)), bits);
    clear += hn::CountTrue(d, hn::Eq(kept, hn::Zero(d)));
  }
  for (; i < count; ++i) {
    T element;
    std::memcpy(&element, in + i * sizeof(T), sizeof(T));
    clear += (element & mask) == 0 ? 1 : 0;
  }
  return clear;
}

std::size_t RunZeros(Number type, const std::uint8_t* in, std::size_t count) {
  switch (WidthOf(type)) {
    case 8:
      return CountClear<std::uint64_t>(in, count, ~std::uint64_t{0} >> 1);
    case 4:
      return CountClear<std::uint32_t>(in, count, 0x7fffffff);
    case 2:
      return CountClear<std::uint16_t>(in, count, 0x7fff);
    default: {  // fnuz formats have no -0: its pattern is NaN
      const bool fnuz = type == Number::kE4m3fnuz || type == Number::kE5m2fnuz;
      return CountClear<std::uint8_t>(in, count, fnuz ? 0xff : 0x7f);
    }
  }
}

}  // namespace zt::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zt::kernel {
HWY_EXPORT(RunFloats);
void ConvertFloats(Number from, Number to, const std::uint8_t* in, std::uint8_t* out,
                   std::size_t count, bool saturate, Counts& counts) {
  HWY_DYNAMIC_DISPATCH(RunFloats)(from, to, in, out, count, saturate, counts);
}

HWY_EXPORT(RunZeros);
std::size_t CountZeros(Number type, const std::uint8_t* in, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(RunZeros)(type, in, count);
}
}  // namespace zt::kernel
#endif  // HWY_ONCE
