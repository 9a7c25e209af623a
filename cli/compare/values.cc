// zt.cli:compare — compares elements; floats in blocks, by loops that the compiler vectorizes.
module;

#include "core/little_endian.h"

module zt.cli;

import zt.std;
import :compare;

namespace zt::cli::internal {
namespace {

constexpr std::size_t kBlock = 1024;  // elements that are decoded at once
constexpr std::size_t kLanes = 4;

// ---- floats ------------------------------------------------------------------------------------

template <class Bits>
void MarkUnlike(const std::byte* a, const std::byte* b, std::span<std::uint64_t> unlike) {
  for (std::size_t i = 0; i < unlike.size(); ++i) {
    Bits x, y;
    std::memcpy(&x, a + i * sizeof(Bits), sizeof(Bits));
    std::memcpy(&y, b + i * sizeof(Bits), sizeof(Bits));
    unlike[i] = x != y;
  }
}

void MarkUnlike(const std::byte* a, const std::byte* b, std::size_t width,
                std::span<std::uint64_t> unlike) {
  switch (width) {
    case 1:
      return MarkUnlike<std::uint8_t>(a, b, unlike);
    case 2:
      return MarkUnlike<std::uint16_t>(a, b, unlike);
    case 4:
      return MarkUnlike<std::uint32_t>(a, b, unlike);
    default:
      return MarkUnlike<std::uint64_t>(a, b, unlike);
  }
}

// Numbers of two types: NaN has no bits that both could have.
bool Unlike(double x, double y) {
  const bool both_nan = x != x && y != y;
  return std::bit_cast<std::uint64_t>(x) != std::bit_cast<std::uint64_t>(y) && !both_nan;
}

struct Tally {
  std::uint64_t unlike = 0, nan = 0, both_nan = 0, zeros = 0;
};

Tally Count(const double* x, const double* y, std::span<const std::uint64_t> unlike) {
  Tally tally;
  for (std::size_t i = 0; i < unlike.size(); ++i) {
    const std::uint64_t x_nan = x[i] != x[i], y_nan = y[i] != y[i], equal = x[i] == y[i];
    tally.unlike += unlike[i];
    tally.nan += unlike[i] & (x_nan | y_nan);
    tally.both_nan += unlike[i] & x_nan & y_nan;
    tally.zeros += unlike[i] & equal;
  }
  return tally;
}

struct Errors {
  double largest = 0, relative = 0, squares = 0;
};

// The errors of `count` pairs, a multiple of kLanes. Leaves out NaN, as comparisons with it are
// false.
Errors ErrorsOf(const double* x, const double* y, std::size_t count) {
  double largest[kLanes] = {}, relative[kLanes] = {}, squares[kLanes] = {};
  for (std::size_t i = 0; i < count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double distance = std::abs(x[i + lane] - y[i + lane]);
      const double size = std::abs(y[i + lane]);
      const double ratio = size > 0 ? distance / size : 0;
      largest[lane] = distance > largest[lane] ? distance : largest[lane];
      relative[lane] = ratio > relative[lane] ? ratio : relative[lane];
      squares[lane] += distance > 0 ? distance * distance : 0;
    }
  }
  Errors errors;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    errors.largest = std::max(errors.largest, largest[lane]);
    errors.relative = std::max(errors.relative, relative[lane]);
    errors.squares += squares[lane];
  }
  return errors;
}

// std::hypot of no NaN, up to a rounding: the C library's is of glibc 2.35, and systems that are served
// have 2.34.
double Length(double x, double y) {
  const double larger = std::max(std::abs(x), std::abs(y));
  const double smaller = std::min(std::abs(x), std::abs(y));
  if (larger == 0 || std::isinf(larger)) return larger;
  const double ratio = smaller / larger;
  return larger * std::sqrt(1 + ratio * ratio);
}

void Widen(std::optional<double>& largest, double value) {
  largest = std::max(largest.value_or(0), value);
}

// ---- integers ----------------------------------------------------------------------------------

using Whole = __int128;  // holds every u64 and i64, and what they differ by

Whole LoadWhole(const ElementType& element, std::span<const std::byte> bytes, std::size_t i) {
  const std::size_t width = ByteWidth(element.dtype);
  const std::uint64_t bits = zt::internal::LoadLittle(&bytes[i * width], width);
  const std::uint64_t unused = 64 - 8 * width;
  return IsSignedInt(element.dtype) ? Whole{static_cast<std::int64_t>(bits << unused) >> unused}
                                    : Whole{bits};
}

// Not all of these are f64.
bool IsLong(const ElementType& element) {
  return element == ElementType{DType::kI64, ""} || element == ElementType{DType::kU64, ""};
}

Json ToJson(Whole value) {
  if (value < 0) return static_cast<std::int64_t>(value);
  return static_cast<std::uint64_t>(value);
}

}  // namespace

struct ValueComparer::Scratch {
  std::vector<double> x, y;
  std::vector<float> f32;
  std::vector<std::uint64_t> unlike;
};

void ValueCounts::Add(const ValueCounts& later) {
  differing += later.differing;
  nan += later.nan;
  both_nan += later.both_nan;
  zeros += later.zeros;
  squares += later.squares;
  if (later.largest) Widen(largest, *later.largest);
  if (later.relative) Widen(relative, *later.relative);
  if (first || !later.first) return;
  first = later.first;
  std::ranges::copy(later.values, values);
}

ValueComparer::Numbers ValueComparer::Interpret(const Object& object, const Component& component,
                                                Side& side) {
  const ElementType& element = component.element;
  side.format = object.format;
  side.element = element;
  const auto convert = [&](const ElementType& from, std::string_view to, Numbers numbers) {
    auto made = MakeConversion(from, *ParseElementType(to), OnOverflow::kInf);
    if (!made.ok()) return Numbers::kNone;
    side.numbers = *std::move(made);
    return numbers;
  };
  if (const GgmlBlock* const block = FindGgmlBlockOfFormat(object.format)) {
    auto made = MakeDequantize(block->name, DType::kF32);
    if (!made.ok()) return Numbers::kNone;
    side.blocks = *std::move(made);
    side.unit = side.blocks->input_unit();
    side.per_unit = side.blocks->output_unit() / sizeof(float);
    return convert({DType::kF32, ""}, "f64", Numbers::kFloat);
  }
  side.unit = ElementBytes(element);
  if (object.format != "dense" && !IsSparse(object.format)) return Numbers::kNone;
  if (element.type.starts_with("complex")) return convert(element, "complex128", Numbers::kComplex);
  if (IsFloat(element.dtype) || element.type.starts_with("f8_"))
    return convert(element, "f64", Numbers::kFloat);
  return element.type.empty() ? convert(element, "f64", Numbers::kInteger) : Numbers::kNone;
}

std::optional<ValueComparer> ValueComparer::Make(const Object& first,
                                                 const Component& first_component,
                                                 const Object& second,
                                                 const Component& second_component,
                                                 const std::optional<Tolerance>& tolerance) {
  ValueComparer made;
  made.tolerance_ = tolerance;
  const Numbers a = Interpret(first, first_component, made.sides_[0]);
  const Numbers b = Interpret(second, second_component, made.sides_[1]);
  const bool files = IsFile(first) && IsFile(second);  // dense or not
  made.same_ = (first.format == second.format || files) &&
               first_component.element == second_component.element;
  const auto reals = [](Numbers numbers) {
    return numbers == Numbers::kFloat || numbers == Numbers::kInteger;
  };
  const bool longs = IsLong(first_component.element) || IsLong(second_component.element);
  made.numbers_ = a == b                   ? a
                  : !reals(a) || !reals(b) ? Numbers::kNone
                  : longs                  ? Numbers::kLong
                                           : Numbers::kFloat;
  const std::uint64_t bytes[] = {first_component.bytes, second_component.bytes};
  const bool whole = bytes[0] % made.sides_[0].unit == 0 && bytes[1] % made.sides_[1].unit == 0;
  if (made.same_) {  // files, blocks, bools and what is cut short are compared by their bytes
    const bool blocks = made.sides_[0].blocks != nullptr;
    if (files || blocks || !whole || first_component.element == ElementType{DType::kBool, ""})
      made.numbers_ = Numbers::kNone;
    if (blocks || !whole) {
      for (Side& side : made.sides_) side.unit = side.per_unit = 1;
    }
  } else if (made.numbers_ == Numbers::kNone || !whole) {
    return std::nullopt;
  }
  made.elements_ = made.ElementsIn(0, bytes[0]);
  if (made.elements_ != made.ElementsIn(1, bytes[1])) return std::nullopt;
  return made;
}

bool ValueComparer::Within(double distance, double size) const {
  return distance <= tolerance_->absolute + tolerance_->relative * size &&
         size < std::numeric_limits<double>::infinity();
}

void ValueComparer::Decode(int side, std::span<const std::byte> in, std::vector<float>& f32,
                           std::span<double> out) const {
  const Side& from = sides_[side];
  NumericCounts ignored;
  if (from.blocks != nullptr) {
    f32.resize(out.size());
    from.blocks->Apply(in, std::as_writable_bytes(std::span(f32)), ignored);
    in = std::as_bytes(std::span(f32));
  }
  from.numbers->Apply(in, std::as_writable_bytes(out), ignored);
  LittleEndian(std::as_writable_bytes(out), sizeof(double));
}

void ValueComparer::CompareBytes(std::uint64_t at, std::span<const std::byte> a,
                                 std::span<const std::byte> b, ValueCounts& counts) const {
  const std::size_t unit = sides_[0].unit;
  const bool is_bool = sides_[0].element == ElementType{DType::kBool, ""};
  for (std::size_t i = 0; i * unit < a.size(); ++i) {
    if (std::memcmp(&a[i * unit], &b[i * unit], unit) == 0) continue;
    if (counts.differing++ > 0) continue;
    counts.first = at + i;
    if (!is_bool) continue;
    counts.values[0] = a[i] != std::byte{0};
    counts.values[1] = b[i] != std::byte{0};
  }
}

bool ValueComparer::CountPair(std::uint64_t at, double distance, double size,
                              ValueCounts& counts) const {
  Widen(counts.largest, distance);
  if (size > 0) Widen(counts.relative, distance / size);
  counts.squares += distance * distance;
  if (tolerance_ && Within(distance, size)) return false;
  if (counts.differing++ > 0) return false;
  counts.first = at;
  return true;
}

void ValueComparer::CompareIntegers(std::uint64_t at, std::span<const std::byte> a,
                                    std::span<const std::byte> b, ValueCounts& counts) const {
  for (std::size_t i = 0; i * sides_[0].unit < a.size(); ++i) {
    const Whole x = LoadWhole(sides_[0].element, a, i), y = LoadWhole(sides_[1].element, b, i);
    if (x == y) continue;
    const auto distance = static_cast<double>(x < y ? y - x : x - y);  // rounded once
    if (!CountPair(at + i, distance, static_cast<double>(y < 0 ? -y : y), counts)) continue;
    counts.values[0] = ToJson(x);
    counts.values[1] = ToJson(y);
  }
}

void ValueComparer::CompareLongs(std::uint64_t at, std::span<const std::byte> a,
                                 std::span<const std::byte> b, Scratch& scratch,
                                 ValueCounts& counts) const {
  const std::size_t longs = IsLong(sides_[0].element) ? 0 : 1, count = ElementsIn(0, a.size());
  scratch.x.resize(count);
  Decode(longs == 0 ? 1 : 0, longs == 0 ? b : a, scratch.f32, scratch.x);
  for (std::size_t i = 0; i < count; ++i) {
    const Whole whole = LoadWhole(sides_[longs].element, longs == 0 ? a : b, i);
    const double other = scratch.x[i], cut = std::trunc(other);
    bool first = false;
    if (std::isnan(other)) {
      ++counts.nan;
      first = counts.differing++ == 0;
      if (first) counts.first = at + i;
    } else {
      const double distance =  // rounded, and never to 0
          std::abs(cut) < 0x1p100
              ? std::abs(static_cast<double>(whole - static_cast<Whole>(cut)) - (other - cut))
              : std::abs(other);
      const bool zero = distance == 0 && std::signbit(other) && whole == 0;
      if (distance == 0 && (!zero || tolerance_)) continue;
      counts.zeros += zero ? 1 : 0;
      first = CountPair(at + i, distance, std::abs(longs == 0 ? other : static_cast<double>(whole)),
                        counts);
    }
    if (!first) continue;
    counts.values[longs] = ToJson(whole);
    counts.values[1 - longs] = NumberJson(other);
  }
}

void ValueComparer::CompareFloats(std::uint64_t at, std::span<const std::byte> a,
                                  std::span<const std::byte> b, Scratch& scratch,
                                  ValueCounts& counts) const {
  const std::size_t count = ElementsIn(0, a.size());
  const std::size_t padded = (count + kLanes - 1) / kLanes * kLanes;
  for (std::vector<double>* const numbers : {&scratch.x, &scratch.y}) {
    numbers->resize(padded);
    std::fill(numbers->begin() + static_cast<std::ptrdiff_t>(count), numbers->end(), 0);
  }
  scratch.unlike.resize(count);
  const std::span<double> x(scratch.x.data(), count), y(scratch.y.data(), count);
  const std::span<std::uint64_t> unlike = scratch.unlike;
  Decode(0, a, scratch.f32, x);
  Decode(1, b, scratch.f32, y);
  if (same_) {
    MarkUnlike(a.data(), b.data(), sides_[0].unit, unlike);
  } else {
    if (std::memcmp(x.data(), y.data(), x.size_bytes()) == 0) return;
    for (std::size_t i = 0; i < count; ++i) unlike[i] = Unlike(x[i], y[i]);
  }
  Tally tally = Count(x.data(), y.data(), unlike);
  if (tally.unlike == 0) return;
  if (tally.unlike > tally.nan) {
    const Errors errors = ErrorsOf(x.data(), y.data(), padded);
    Widen(counts.largest, errors.largest);
    if (errors.relative > 0) Widen(counts.relative, errors.relative);
    counts.squares += errors.squares;
  }
  if (tolerance_) {
    for (std::size_t i = 0; i < count; ++i) {
      const bool both_nan = x[i] != x[i] && y[i] != y[i];
      if (x[i] == y[i] || both_nan || Within(std::abs(x[i] - y[i]), std::abs(y[i]))) unlike[i] = 0;
    }
    tally = Count(x.data(), y.data(), unlike);
    if (tally.unlike == 0) return;
  }
  counts.nan += tally.nan;
  counts.both_nan += tally.both_nan;
  counts.zeros += tally.zeros;
  if (counts.differing == 0) {
    const auto first = std::ranges::find(unlike, std::uint64_t{1}) - unlike.begin();
    counts.first = at + static_cast<std::uint64_t>(first);
    counts.values[0] = NumberJson(x[static_cast<std::size_t>(first)]);
    counts.values[1] = NumberJson(y[static_cast<std::size_t>(first)]);
  }
  counts.differing += tally.unlike;
}

void ValueComparer::CompareComplex(std::uint64_t at, std::span<const std::byte> a,
                                   std::span<const std::byte> b, Scratch& scratch,
                                   ValueCounts& counts) const {
  const std::size_t count = ElementsIn(0, a.size());
  scratch.x.resize(2 * count);
  scratch.y.resize(2 * count);
  Decode(0, a, scratch.f32, scratch.x);
  Decode(1, b, scratch.f32, scratch.y);
  const std::size_t half = sides_[0].unit / 2;
  for (std::size_t i = 0; i < count; ++i) {
    const double *const x = &scratch.x[2 * i], *const y = &scratch.y[2 * i];
    double distances[2] = {}, sizes[2] = {};
    bool one_nan = false, both_nan = false, numbers = false;
    for (std::size_t part = 0; part < 2; ++part) {
      const std::size_t place = (2 * i + part) * half;
      const bool x_nan = std::isnan(x[part]), y_nan = std::isnan(y[part]);
      if (!y_nan) sizes[part] = y[part];
      const bool unlike =
          same_ ? std::memcmp(&a[place], &b[place], half) != 0 : Unlike(x[part], y[part]);
      if (!unlike) continue;
      one_nan = one_nan || x_nan != y_nan;
      both_nan = both_nan || (x_nan && y_nan);
      numbers = numbers || !(x_nan || y_nan);
      if (!(x_nan || y_nan) && x[part] != y[part]) distances[part] = x[part] - y[part];
    }
    if (!numbers && !one_nan && !both_nan) continue;
    const double distance = Length(distances[0], distances[1]);
    const double size = Length(sizes[0], sizes[1]);
    if (numbers) Widen(counts.largest, distance);
    if (distance > 0 && size > 0 && distance / size > 0) Widen(counts.relative, distance / size);
    counts.squares += distance * distance;
    if (tolerance_ && !one_nan && (distance == 0 || Within(distance, size))) continue;
    counts.nan += one_nan || both_nan ? 1 : 0;
    counts.both_nan += both_nan && !one_nan ? 1 : 0;
    counts.zeros += !one_nan && !both_nan && distance == 0 ? 1 : 0;
    if (counts.differing++ > 0) continue;
    counts.first = at + i;
    counts.values[0] = Json::array({NumberJson(x[0]), NumberJson(x[1])});
    counts.values[1] = Json::array({NumberJson(y[0]), NumberJson(y[1])});
  }
}

ValueCounts ValueComparer::Compare(std::uint64_t at, std::span<const std::byte> first,
                                   std::span<const std::byte> second) const {
  static_assert(kBlock % kElements == 0 && kBlock % kLanes == 0);
  ValueCounts counts;
  Scratch scratch;
  const std::uint64_t elements = ElementsIn(0, first.size());
  for (std::uint64_t done = 0; done < elements; done += kBlock) {
    const std::uint64_t count = std::min<std::uint64_t>(kBlock, elements - done);
    const auto a = first.subspan(BytesOf(0, done), BytesOf(0, count));
    const auto b = second.subspan(BytesOf(1, done), BytesOf(1, count));
    if (same_ && std::memcmp(a.data(), b.data(), a.size()) == 0) continue;
    switch (numbers_) {
      case Numbers::kNone:
        CompareBytes(at + done, a, b, counts);
        break;
      case Numbers::kFloat:
        CompareFloats(at + done, a, b, scratch, counts);
        break;
      case Numbers::kInteger:
        CompareIntegers(at + done, a, b, counts);
        break;
      case Numbers::kLong:
        CompareLongs(at + done, a, b, scratch, counts);
        break;
      case Numbers::kComplex:
        CompareComplex(at + done, a, b, scratch, counts);
        break;
    }
  }
  return counts;
}

}  // namespace zt::cli::internal
