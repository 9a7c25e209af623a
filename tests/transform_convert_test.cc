// transform_convert_test — every conversion on every CPU target against convert_reference.h.
#include "convert_reference.h"
#include "fixtures.h"
#include "target_iteration.h"

import zt.core;
import zt.transform;

namespace zt {
namespace {

using reference::FloatFormat;
using reference::kFormats;

ElementType Type(std::string_view name) { return *ParseElementType(name); }

std::shared_ptr<const Transform> Conversion(std::string_view from, std::string_view to,
                                            OnOverflow policy = OnOverflow::kError) {
  auto made = MakeConversion(Type(from), Type(to), policy);
  EXPECT_OK(made) << from << " to " << to;
  return made.ok() ? *made : nullptr;
}

// The low `width` bytes of each pattern.
Bytes Pack(const std::vector<std::uint64_t>& patterns, int width) {
  Bytes out(patterns.size() * static_cast<std::size_t>(width));
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    const std::uint64_t bytes = Little(patterns[i]);
    std::memcpy(out.data() + i * static_cast<std::size_t>(width), &bytes,
                static_cast<std::size_t>(width));
  }
  return out;
}
std::uint64_t PatternAt(const Bytes& bytes, std::size_t i, int width) {
  std::uint64_t out = 0;
  std::memcpy(&out, bytes.data() + i * static_cast<std::size_t>(width),
              static_cast<std::size_t>(width));
  return Little(out);
}

struct Expected {
  std::vector<std::uint64_t> patterns;
  NumericCounts counts;
};

// The patterns of `in` that are not 0 and whose results in a float of 8 bits are.
std::uint64_t Underflows(std::string_view from, int from_width, std::string_view to,
                         const std::vector<std::uint64_t>& in,
                         const std::vector<std::uint64_t>& results) {
  if (!to.starts_with("f8_") || (!from.starts_with('f') && from != "bf16")) return 0;
  const auto is_zero = [](std::string_view name, int width, std::uint64_t pattern) {
    const std::uint64_t sign = std::uint64_t{1} << (8 * width - 1);
    return pattern == 0 || (pattern == sign && !name.ends_with("fnuz"));
  };
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    count += is_zero(to, 1, results[i]) && !is_zero(from, from_width, in[i]) ? 1 : 0;
  }
  return count;
}

// Converts `in` on every target and compares bits and counts.
void CheckConversion(std::string_view from, int from_width, std::string_view to, int to_width,
                     OnOverflow policy, const std::vector<std::uint64_t>& in,
                     const Expected& expected) {
  SCOPED_TRACE(std::string(from) + " to " + std::string(to));
  const auto conversion = Conversion(from, to, policy);
  ASSERT_NE(conversion, nullptr);
  ASSERT_EQ(conversion->input_unit(), static_cast<std::size_t>(from_width));
  ASSERT_EQ(conversion->output_unit(), static_cast<std::size_t>(to_width));
  const Bytes packed = Pack(in, from_width), wanted = Pack(expected.patterns, to_width);
  const std::uint64_t underflows = Underflows(from, from_width, to, in, expected.patterns);
  ForEachTarget([&] {
    Bytes out(wanted.size(), std::byte{0xa5});
    NumericCounts counts;
    conversion->Apply(packed, out, counts);
    EXPECT_EQ(counts.overflow, expected.counts.overflow);
    EXPECT_EQ(counts.nan_lost, expected.counts.nan_lost);
    EXPECT_EQ(counts.fraction_lost, expected.counts.fraction_lost);
    EXPECT_EQ(counts.underflow, underflows);
    if (out == wanted) return;
    int shown = 0;
    for (std::size_t i = 0; i < in.size() && shown < 5; ++i) {
      if (PatternAt(out, i, to_width) == PatternAt(wanted, i, to_width)) continue;
      ADD_FAILURE() << std::hex << "pattern 0x" << in[i] << " gives 0x"
                    << PatternAt(out, i, to_width) << ", not 0x" << PatternAt(wanted, i, to_width);
      ++shown;
    }
  });
}

// The sanitizers make everything some thirty times slower: there, one in so many of the patterns
// that are samples anyway. Odd, so as to meet even and odd ones.
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr std::size_t kFewer = 9;
#else
constexpr std::size_t kFewer = 1;
#endif

// Pseudo-random patterns, and around every value of every narrower format and every midpoint
// between two.
std::vector<std::uint64_t> WidePatterns(const FloatFormat& from) {
  std::vector<std::uint64_t> out;
  std::mt19937_64 random(20);
  const std::size_t samples = (std::size_t{1} << (from.width == 4 ? 21 : 18)) / kFewer;
  const int shift = 64 - from.width * 8;
  for (std::size_t i = 0; i < samples; ++i) out.push_back(random() >> shift);
  // f64 with exponents where the narrower formats live.
  if (from.width == 8) {
    for (std::size_t i = 0; i < samples * 2; ++i) {
      const std::uint64_t exponent = 1023 - 150 + random() % 300;
      out.push_back((random() & 0x800fffffffffffff) | (exponent << 52));
    }
  }
  const auto around = [&](double value) {
    const std::uint64_t bits = reference::FromValue(from, value, false).bits;
    for (const std::uint64_t flip : {std::uint64_t{0}, reference::SignBit(from)}) {
      for (int delta = -2; delta <= 2; ++delta) {
        out.push_back((bits + static_cast<std::uint64_t>(delta)) ^ flip);
      }
    }
  };
  for (const FloatFormat& to : kFormats) {
    if (to.width > 2) continue;
    const std::uint64_t largest = reference::LargestFinite(to);
    const auto step = [&](std::uint64_t bits) {  // every one of the last
      return to.width == 2 && bits + 64 < largest ? kFewer : 1;
    };
    for (std::uint64_t bits = 0; bits <= largest; bits += step(bits)) {
      const double value = reference::Value(to, bits);
      const double next = bits < largest ? reference::Value(to, bits + 1)
                                         : 2 * value - reference::Value(to, bits - 1);
      around(value);
      around((value + next) / 2);
    }
  }
  for (int i = -3; i <= 3;
       ++i) {  // around infinity, both ends of NaN, zero and the largest subnormal
    for (const std::uint64_t at :
         {reference::TopExponent(from), reference::SignBit(from),
          std::uint64_t{1} << from.mantissa_bits,
          reference::TopExponent(from) | std::uint64_t{1} << (from.mantissa_bits - 1)}) {
      out.push_back(at + static_cast<std::uint64_t>(i));
      out.push_back((at + static_cast<std::uint64_t>(i)) ^ reference::SignBit(from));
    }
  }
  if (from.width == 8) {  // the same around f32's limits: its largest, its subnormals
    for (const double at : {0x1.fffffep127, 0x1.ffffffp127, 0x1p128, 0x1p-126, 0x1p-149, 0x1p-150,
                            0x1.8p-149, 0x1p-151}) {
      around(at);
    }
  }
  for (std::uint64_t& pattern : out) pattern = pattern << shift >> shift;
  return out;
}

std::vector<std::uint64_t> Patterns(const FloatFormat& from) {
  if (from.width > 2) return WidePatterns(from);
  std::vector<std::uint64_t> out(std::size_t{1} << (from.width * 8));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = i;
  return out;
}

class FloatPairs : public testing::TestWithParam<int> {};

TEST_P(FloatPairs, MatchTheReferenceOnEveryTarget) {
  const FloatFormat& from = kFormats[GetParam()];
  const auto patterns = Patterns(from);
  for (const FloatFormat& to : kFormats) {
    if (&to == &from) continue;
    for (const OnOverflow policy : {OnOverflow::kInf, OnOverflow::kSaturate}) {
      Expected expected;
      expected.patterns.reserve(patterns.size());
      for (const std::uint64_t pattern : patterns) {
        const auto result = reference::Convert(from, to, pattern, policy == OnOverflow::kSaturate);
        expected.patterns.push_back(result.bits);
        expected.counts.overflow += result.overflow ? 1 : 0;
      }
      CheckConversion(from.name, from.width, to.name, to.width, policy, patterns, expected);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Every, FloatPairs, testing::Range(0, 8),
                         [](const auto& info) { return kFormats[info.param].name; });

// Narrow to wide and back changes nothing but signalling NaN into quiet ones.
TEST(Conversion, RoundTripsThroughEveryWiderFloat) {
  for (const FloatFormat& narrow : kFormats) {
    if (narrow.width > 2) continue;
    const auto patterns = Patterns(narrow);
    const Bytes in = Pack(patterns, narrow.width);
    for (const FloatFormat& wide : kFormats) {
      if (wide.width <= narrow.width || (narrow.width == 2 && wide.width < 4)) continue;
      SCOPED_TRACE(std::string(narrow.name) + " through " + wide.name);
      Bytes middle(patterns.size() * static_cast<std::size_t>(wide.width)), back(in.size());
      NumericCounts counts;
      Conversion(narrow.name, wide.name)->Apply(in, middle, counts);
      Conversion(wide.name, narrow.name)->Apply(middle, back, counts);
      EXPECT_EQ(counts.overflow, 0u);
      for (std::size_t i = 0; i < patterns.size(); ++i) {
        std::uint64_t wanted = patterns[i];
        if (narrow.has_infinity && reference::IsNan(narrow, wanted)) {
          wanted |= std::uint64_t{1} << (narrow.mantissa_bits - 1);
        }
        ASSERT_EQ(PatternAt(back, i, narrow.width), wanted);
      }
    }
  }
}

struct IntegerFormat {
  const char* name;
  int width;
  bool is_signed;
};
constexpr IntegerFormat kIntegers[] = {{"i8", 1, true},   {"u8", 1, false}, {"i16", 2, true},
                                       {"u16", 2, false}, {"i32", 4, true}, {"u32", 4, false},
                                       {"i64", 8, true},  {"u64", 8, false}};

__extension__ using Wide = __int128;

Wide ValueOf(const IntegerFormat& format, std::uint64_t bits) {
  const int unused = 64 - format.width * 8;
  if (!format.is_signed) return bits << unused >> unused;
  return static_cast<std::int64_t>(bits << unused) >> unused;
}
Wide Low(const IntegerFormat& f) { return f.is_signed ? -(Wide{1} << (f.width * 8 - 1)) : 0; }
Wide High(const IntegerFormat& f) { return (Wide{1} << (f.width * 8 - (f.is_signed ? 1 : 0))) - 1; }

// All patterns up to 16 bits; beyond, random ones of every length and the neighbourhood of every
// power of two.
std::vector<std::uint64_t> IntegerPatterns(const IntegerFormat& format) {
  std::vector<std::uint64_t> out;
  const int bits = format.width * 8;
  if (bits <= 16) {
    for (std::uint64_t i = 0; i < std::uint64_t{1} << bits; ++i) out.push_back(i);
    return out;
  }
  std::mt19937_64 random(4);
  for (int i = 0; i < 100000; ++i) {
    out.push_back(random() >> (64 - bits) >> (random() % static_cast<std::uint64_t>(bits)));
    out.push_back(0 - out.back());
  }
  for (int power = 0; power < 64; ++power) {
    for (int half = 0; half < 64; ++half) {
      for (int delta = -3; delta <= 3; ++delta) {
        const std::uint64_t value = (std::uint64_t{1} << power) + (std::uint64_t{1} << half) +
                                    static_cast<std::uint64_t>(delta);
        out.push_back(value);
        out.push_back(0 - value);
      }
    }
  }
  for (std::uint64_t& pattern : out) pattern = pattern << (64 - bits) >> (64 - bits);
  return out;
}

// `value` rounded to `digits` binary digits, nearest, ties to even: exact in a double.
double RoundInteger(Wide value, int digits) {
  auto magnitude = static_cast<std::uint64_t>(value < 0 ? -value : value);
  int drop = 0;
  while (drop < 64 - digits && magnitude >> drop >> digits != 0) ++drop;
  std::uint64_t kept = magnitude >> drop;
  const std::uint64_t rest = magnitude - (kept << drop);
  const std::uint64_t half = drop == 0 ? 0 : std::uint64_t{1} << (drop - 1);
  if (drop > 0 && (rest > half || (rest == half && kept % 2 == 1))) ++kept;
  const double rounded = std::ldexp(static_cast<double>(kept), drop);
  return value < 0 ? -rounded : rounded;
}

TEST(Conversion, IntegersToEveryFloatRoundOnce) {
  for (const IntegerFormat& from : kIntegers) {
    const auto patterns = IntegerPatterns(from);
    for (const FloatFormat& to : kFormats) {
      for (const OnOverflow policy : {OnOverflow::kInf, OnOverflow::kSaturate}) {
        Expected expected;
        for (const std::uint64_t pattern : patterns) {
          const double rounded = RoundInteger(ValueOf(from, pattern), to.mantissa_bits + 1);
          const auto result = reference::FromValue(to, rounded, policy == OnOverflow::kSaturate);
          expected.patterns.push_back(result.bits);
          expected.counts.overflow += result.overflow ? 1 : 0;
        }
        CheckConversion(from.name, from.width, to.name, to.width, policy, patterns, expected);
      }
    }
  }
}

TEST(Conversion, IntegersToIntegersClampAndCount) {
  for (const IntegerFormat& from : kIntegers) {
    const auto patterns = IntegerPatterns(from);
    for (const IntegerFormat& to : kIntegers) {
      Expected expected;
      for (const std::uint64_t pattern : patterns) {
        const Wide value = ValueOf(from, pattern);
        const Wide clamped = value < Low(to) ? Low(to) : value > High(to) ? High(to) : value;
        expected.patterns.push_back(static_cast<std::uint64_t>(clamped));
        expected.counts.overflow += clamped != value ? 1 : 0;
      }
      CheckConversion(from.name, from.width, to.name, to.width, OnOverflow::kError, patterns,
                      expected);
    }
  }
}

TEST(Conversion, FloatsToIntegersTruncateClampAndCount) {
  for (const FloatFormat& from : kFormats) {
    std::vector<std::uint64_t> patterns = Patterns(from);
    if (patterns.size() > 400000) patterns.resize(400000);
    for (int power = 0; power <= 65 && from.width >= 4; ++power) {  // each integer type's ends
      for (int delta = -4; delta <= 4; ++delta) {
        for (const double sign : {1.0, -1.0}) {
          const double at = sign * std::ldexp(1.0, power);
          patterns.push_back(reference::FromValue(from, at, false).bits +
                             static_cast<std::uint64_t>(delta));
          patterns.push_back(reference::FromValue(from, at + delta * 0.5, false).bits);
        }
      }
    }
    for (const IntegerFormat& to : kIntegers) {
      Expected expected;
      for (const std::uint64_t pattern : patterns) {
        if (reference::IsNan(from, pattern)) {
          expected.patterns.push_back(0);
          ++expected.counts.nan_lost;
          continue;
        }
        const double value = reference::Value(from, pattern);
        Wide whole;
        if (value >= 0x1p100) {
          whole = Wide{1} << 100;
        } else if (value <= -0x1p100) {
          whole = -(Wide{1} << 100);
        } else {
          whole = static_cast<Wide>(value);
        }
        const Wide clamped = whole < Low(to) ? Low(to) : whole > High(to) ? High(to) : whole;
        expected.patterns.push_back(static_cast<std::uint64_t>(clamped));
        expected.counts.overflow += clamped != whole ? 1 : 0;
        expected.counts.fraction_lost += clamped == whole && std::trunc(value) != value ? 1 : 0;
      }
      CheckConversion(from.name, from.width, to.name, to.width, OnOverflow::kInf, patterns,
                      expected);
    }
  }
}

TEST(Conversion, TakesAnyLengthAndAlignmentAndWritesNoFurther) {
  std::mt19937 random(7);
  Bytes source(8 * 200 + 16);
  for (std::byte& b : source) b = static_cast<std::byte>(random());
  std::vector<std::string> names = {"f64",       "f32",     "f16",         "bf16",
                                    "f8_e4m3fn", "f8_e5m2", "f8_e4m3fnuz", "f8_e5m2fnuz",
                                    "i8",        "i64",     "u16",         "u32"};
  ForEachTarget([&] {
    for (const std::string& from : names) {
      for (const std::string& to : names) {
        SCOPED_TRACE(from + " to " + to);
        const auto conversion = Conversion(from, to);
        const std::size_t in_unit = conversion->input_unit(), out_unit = conversion->output_unit();
        // What one element at a time gives.
        Bytes single(out_unit * 200);
        std::vector<std::uint64_t> overflow(201, 0), nan_lost(201, 0);
        NumericCounts counts;
        for (std::size_t i = 0; i < 200; ++i) {
          conversion->Apply(std::span(source).subspan(1 + i * in_unit, in_unit),
                            std::span(single).subspan(i * out_unit, out_unit), counts);
          overflow[i + 1] = counts.overflow;
          nan_lost[i + 1] = counts.nan_lost;
        }
        for (std::size_t n = 0; n <= 3 * 64 + 1; ++n) {
          const std::size_t offset = 1 + n % 5;
          Bytes out(offset + n * out_unit + 64, std::byte{0x5a});
          NumericCounts found;
          conversion->Apply(std::span(source).subspan(1, n * in_unit),
                            std::span(out).subspan(offset, n * out_unit), found);
          ASSERT_TRUE(std::equal(out.begin() + static_cast<std::ptrdiff_t>(offset), out.end() - 64,
                                 single.begin()))
              << n;
          for (std::size_t i = 0; i < out.size(); ++i) {
            if (i < offset || i >= out.size() - 64) ASSERT_EQ(out[i], std::byte{0x5a}) << n;
          }
          ASSERT_EQ(found.overflow, overflow[n]);
          ASSERT_EQ(found.nan_lost, nan_lost[n]);
        }
      }
    }
  });
}

TEST(Conversion, BoolsAreZeroAndOne) {
  const Bytes in = {std::byte{0}, std::byte{1}, std::byte{2}, std::byte{255}};
  NumericCounts counts;
  Bytes u8(4), f32(16);
  Conversion("bool", "u8")->Apply(in, u8, counts);
  EXPECT_EQ(u8, (Bytes{std::byte{0}, std::byte{1}, std::byte{1}, std::byte{1}}));
  Conversion("bool", "f32")->Apply(in, f32, counts);
  const float ones[] = {0, Little(1.0f), Little(1.0f), Little(1.0f)};
  EXPECT_EQ(std::memcmp(f32.data(), ones, 16), 0);
  EXPECT_EQ(counts.overflow + counts.nan_lost, 0u);
}

TEST(Conversion, ComplexConvertsPartByPart) {
  const std::vector<double> in =
      Little(std::vector<double>{1.5, -1e300, std::numeric_limits<double>::infinity(), 2});
  const auto conversion = Conversion("complex128", "complex64");
  EXPECT_EQ(conversion->input_unit(), 16u);
  EXPECT_EQ(conversion->output_unit(), 8u);
  float out[4];
  NumericCounts counts;
  conversion->Apply(std::as_bytes(std::span(in)), std::as_writable_bytes(std::span(out)), counts);
  EXPECT_EQ(Little(out[0]), 1.5f);
  EXPECT_EQ(Little(out[1]), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(Little(out[2]), std::numeric_limits<float>::infinity());
  EXPECT_EQ(Little(out[3]), 2.0f);
  EXPECT_EQ(counts.overflow, 1u);
  double back[4];
  Conversion("complex64", "complex128")
      ->Apply(std::as_bytes(std::span(out)), std::as_writable_bytes(std::span(back)), counts);
  EXPECT_EQ(Little(back[0]), 1.5);
  EXPECT_EQ(counts.overflow, 1u);
}

// An unknown type may be called like a dtype: its bytes are not that dtype's.
TEST(Conversion, RefusesATypeThatIsNamedLikeADtypeOfAnotherWidth) {
  for (const auto& [dtype, name] : {std::pair(DType::kU8, "i64"), std::pair(DType::kF16, "f32"),
                                    std::pair(DType::kI64, "u8")}) {
    const ElementType named{dtype, name};
    for (const char* const other : {"f64", name}) {
      EXPECT_EQ(MakeConversion(named, Type(other), OnOverflow::kInf).status().code(),
                StatusCode::kUnimplemented);
      EXPECT_EQ(MakeConversion(Type(other), named, OnOverflow::kInf).status().code(),
                StatusCode::kUnimplemented);
    }
    EXPECT_OK(MakeConversion(Type(name), Type("f64"), OnOverflow::kInf));
  }
}

TEST(Conversion, RefusesWhatHasNoMeaningAndNamesBoth) {
  const std::pair<const char*, const char*> refused[] = {
      {"f32", "bool"},       {"u8", "bool"},        {"f32", "complex64"}, {"complex64", "f32"},
      {"f32", "f8_e8m0"},    {"f8_e8m0", "f32"},    {"f4_e2m1", "f32"},   {"i8", "f6_e2m3"},
      {"bool", "complex64"}, {"complex64", "bool"}, {"f64", "f4_e2m1"},   {"bool", "f8_e8m0"}};
  for (const auto& [from, to] : refused) {
    const auto made = MakeConversion(Type(from), Type(to), OnOverflow::kError);
    ASSERT_FALSE(made.ok()) << from << " to " << to;
    EXPECT_THAT(made, Fails(StatusCode::kUnimplemented,
                            std::string("no conversion from ") + from + " to " + to));
  }
}

TEST(Conversion, OfATypeToItselfCopies) {
  for (const char* name : {"f32", "bool", "f4_e2m1", "f8_e8m0", "complex64", "bf16"}) {
    const auto same = Conversion(name, name);
    Bytes in(same->input_unit() * 3, std::byte{0x81}), out(in.size());
    NumericCounts counts;
    same->Apply(in, out, counts);
    EXPECT_EQ(out, in);
    EXPECT_EQ(same->input_unit(), same->output_unit());
  }
}

TEST(Conversion, GivesTheBytesOfNumpyAndMlDtypes) {
  const auto expected = ReadJson("convert/expected.json");
  ASSERT_EQ(expected.size(), 21u);
  for (const auto& [pair, want] : expected.items()) {
    SCOPED_TRACE(pair);
    const Bytes npy = ReadBytes(DataPath("convert/" + pair + ".npy"));
    ASSERT_GT(npy.size(), 128u);
    const auto in = std::span(npy).subspan(128);  // numpy pads its header to 64 bytes
    const std::string from = pair.substr(0, pair.find("_to_"));
    const auto conversion = Conversion(from, want["dtype"].get<std::string>());
    ForEachTarget([&] {
      Bytes out(want["count"].get<std::size_t>() * conversion->output_unit());
      ASSERT_EQ(in.size() / conversion->input_unit() * conversion->output_unit(), out.size());
      NumericCounts counts;
      conversion->Apply(in, out, counts);
      EXPECT_EQ(counts.overflow, 0u);
      if (pair == "f64_to_bf16") {  // rounded twice there: see tests/data/convert/README.md
        ASSERT_EQ(PatternAt(out, 562, 2), 0xc2c7u);
        out[562 * 2] = std::byte{0xc8};
      }
      EXPECT_EQ(Sha256(out), want["sha256"].get<std::string>());
    });
  }
}

}  // namespace
}  // namespace zt
