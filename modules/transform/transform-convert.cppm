// zt.transform:convert — numeric conversion between element types, with a single rounding, and
// counts of lost values.
export module zt.transform:convert;

import zt.std;
import zt.core;
import :stage;

export namespace zt {

// A conversion of every element, or kUnimplemented, naming both types, if there is none. A unit is
// one element. A complex number is one unit, but both parts are counted.
//
// Floats (f64 f32 f16 bf16 f8_e4m3fn f8_e5m2 f8_e4m3fnuz f8_e5m2fnuz) convert to one another with a
// single rounding to nearest, ties to even; subnormals are preserved.
//   - Overflow counts finite values that round beyond the target's largest. Infinities stay
//     infinite; a target without infinity counts them as overflow and gives NaN, or its largest
//     under kSaturate.
//   - NaN stays NaN, with its sign and the top of its payload where the target has room, and
//     becomes quiet, except from bf16 to f32, which keeps every bit. The fnuz types have one NaN
//     without sign, and no negative zero.
// Integers (i8 ... u64) convert to floats with one rounding, to integers exactly. bool converts as
// 0 and 1. Floats convert to integers by truncation toward zero, as in numpy and torch; a value
// that is not whole counts as fraction_lost. A value out of range counts as overflow and becomes
// the nearest end of the range, under every policy; NaN counts as nan_lost and becomes 0. complex64
// and complex128 convert to each other. Every type converts to itself, unchanged. Nothing else
// converts to bool or complex; f8_e8m0 and the packed types convert only to themselves.
StatusOr<std::shared_ptr<const Transform>> MakeConversion(const ElementType& from,
                                                          const ElementType& to,
                                                          OnOverflow on_overflow);

}  // namespace zt
