// zt.cli:array — arrays as text: the rules of numpy's arrayprint with its defaults (8 digits, lines
// of 75 columns), and as JSON.
module;

#include "core/little_endian.h"

module zt.cli;

import zt.std;
import :array;
import :values;

namespace zt::cli::internal {
namespace {

constexpr int kPrecision = 8;
constexpr std::size_t kLineWidth = 75;

// ---- numbers ------------------------------------------------------------------------------------

// The element at a place, or a part of it: of type T, little-endian.
template <typename T>
T Load(const ArrayValues& values, std::size_t place) {
  const std::uint64_t bits = zt::internal::LoadLittle(&values.bytes[place * sizeof(T)], sizeof(T));
  if constexpr (std::is_integral_v<T>) return static_cast<T>(bits);
  if constexpr (sizeof(T) == 4) return std::bit_cast<T>(static_cast<std::uint32_t>(bits));
  if constexpr (sizeof(T) == 8) return std::bit_cast<T>(bits);
}

double LoadHalf(const ArrayValues& values, std::size_t place) {
  const auto bits = static_cast<unsigned>(zt::internal::LoadLittle(&values.bytes[place * 2], 2));
  const int field = static_cast<int>(bits >> 10 & 31);
  const auto fraction = static_cast<double>(bits & 1023);
  double value = field == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, field - 25);
  if (field == 31) {
    value = fraction == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  }
  return bits >> 15 != 0 ? -value : value;
}

// Floats of each type, as f64, which holds them all.
double LoadFloat(const ArrayValues& values, std::size_t place) {
  switch (values.element.dtype) {
    case DType::kF16:
      return LoadHalf(values, place);
    case DType::kF32:
      return Load<float>(values, place);
    default:
      return Load<double>(values, place);
  }
}

std::string IntegerText(const ArrayValues& values, std::size_t place) {
  switch (values.element.dtype) {
    case DType::kI8:
      return std::to_string(Load<std::int8_t>(values, place));
    case DType::kI16:
      return std::to_string(Load<std::int16_t>(values, place));
    case DType::kI32:
      return std::to_string(Load<std::int32_t>(values, place));
    case DType::kI64:
      return std::to_string(Load<std::int64_t>(values, place));
    default: {
      const std::size_t width = ByteWidth(values.element.dtype);
      return std::to_string(zt::internal::LoadLittle(&values.bytes[place * width], width));
    }
  }
}

// A finite float in decimal: digits[0].digits[1]digits[2]... times 10^exponent, without zeros at
// the end.
struct Decimal {
  std::string digits;
  int exponent = 0;
};

// Parses "1.25e+03".
Decimal ParseScientific(std::string_view text) {
  const std::size_t e = text.find('e');
  Decimal decimal;
  for (const char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') decimal.digits += c;
  }
  decimal.digits.resize(std::max<std::size_t>(decimal.digits.find_last_not_of('0') + 1, 1));
  text.remove_prefix(e + 1);
  if (text.starts_with('+')) text.remove_prefix(1);
  (void)std::from_chars(text.data(), text.data() + text.size(), decimal.exponent);
  return decimal;
}

template <typename... Format>
std::string Chars(Format... format) {
  char text[512];
  return {text, std::to_chars(text, text + sizeof text, format...).ptr};
}

double ParseDouble(const std::string& text) {
  double value = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// So many digits, to the nearest; but as numpy has it: below a power of two numbers lie closer than
// above, so that only what is rounded up may mean it.
std::string Rounded(double magnitude, DType type, std::chars_format format, std::size_t digits) {
  const auto count = static_cast<int>(digits);
  const std::string text = Chars(magnitude, format, count);
  const bool half = type == DType::kF16;
  int exponent = 0;
  if (type == DType::kF64 || std::frexp(magnitude, &exponent) != 0.5 ||
      exponent - 1 <= (half ? -14 : -126))
    return text;
  const bool fixed = format == std::chars_format::fixed;
  const int place = (fixed ? 0 : ParseScientific(text).exponent) - count;
  const double down = ParseDouble(text), up = down + ParseDouble("1e" + std::to_string(place));
  const double above = std::ldexp(magnitude, half ? -11 : -24);
  const bool other = magnitude - down > above / 2 && up - magnitude <= above;
  return other ? Chars(up, format, count) : text;
}

// The fewest digits that are nearer to a half than to any other.
std::string ShortestHalf(double value) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);  // from 0.5 up to 1
  const double last = std::ldexp(1.0, std::max(exponent - 1, -14) - 10);
  const bool even = std::floor(value / last / 2) * 2 == value / last;
  const double above = last / 2, below = fraction == 0.5 && exponent > -13 ? above / 2 : above;
  for (int digits = 0;; ++digits) {
    std::string text = Chars(value, std::chars_format::scientific, digits);
    const double off = ParseDouble(text) - value, most = off > 0 ? above : below;
    if (std::abs(off) < most || (even && std::abs(off) == most) || digits > 16) return text;
  }
}

// The fewest digits that mean this magnitude and no other of its type.
Decimal Shortest(double magnitude, DType type) {
  if (magnitude == 0) return {"0", 0};
  if (type == DType::kF16) return ParseScientific(ShortestHalf(magnitude));
  if (type == DType::kF32)
    return ParseScientific(Chars(static_cast<float>(magnitude), std::chars_format::scientific));
  return ParseScientific(Chars(magnitude, std::chars_format::scientific));
}

// The parts of a number before and behind the point; no zeros end the second.
struct Point {
  std::string whole, fraction;
};

Point Positional(double magnitude, DType type, int most_digits) {
  const Decimal decimal = Shortest(magnitude, type);
  const auto size = static_cast<int>(decimal.digits.size());
  if (size - 1 - decimal.exponent > most_digits) {  // rounded once, from the number itself
    const std::string text =
        Rounded(magnitude, type, std::chars_format::fixed, static_cast<std::size_t>(most_digits));
    const std::size_t point = text.find('.');
    Point out{text.substr(0, point), text.substr(point + 1)};
    out.fraction.resize(out.fraction.find_last_not_of('0') + 1);
    return out;
  }
  if (decimal.exponent < 0)
    return {"0",
            std::string(static_cast<std::size_t>(-decimal.exponent - 1), '0') + decimal.digits};
  const auto whole = static_cast<std::size_t>(decimal.exponent) + 1;
  std::string digits = decimal.digits;
  if (digits.size() < whole) digits.resize(whole, '0');
  return {digits.substr(0, whole), magnitude == 0 ? "" : digits.substr(whole)};
}

// "e-05", with at least `digits` digits.
std::string ExponentText(int exponent, std::size_t digits) {
  const std::string number = std::to_string(std::abs(exponent));
  return (exponent < 0 ? "e-" : "e+") +
         std::string(digits > number.size() ? digits - number.size() : 0, '0') + number;
}

std::string SignText(double value, bool always) {
  return std::signbit(value) && !std::isnan(value) ? "-" : always ? "+" : "";
}

std::string NonFiniteText(double value, bool always) {
  return SignText(value, always) + (std::isnan(value) ? "nan" : "inf");
}

// str() of a scalar: a whole float ends with .0, a part of a complex number does not.
std::string ScalarText(double value, DType type, bool always_sign, bool part) {
  if (!std::isfinite(value)) return NonFiniteText(value, always_sign);
  const double magnitude = std::abs(value);
  const std::string sign = SignText(value, always_sign);
  if (magnitude != 0 && (magnitude < 1e-4 || magnitude >= 1e16)) {
    const auto [digits, exponent] = Shortest(magnitude, type);
    return sign + digits[0] + (digits.size() > 1 ? "." + digits.substr(1) : "") +
           ExponentText(exponent, 2);
  }
  const auto [whole, fraction] = Positional(magnitude, type, 1000);
  return sign + whole + (!fraction.empty() ? "." + fraction : part ? "" : ".0");
}

// ---- columns ------------------------------------------------------------------------------------

// The one form that all floats of an array have, chosen by the numbers that are printed: numpy's
// FloatingFormat.
class FloatColumn {
 public:
  FloatColumn(std::span<const double> values, DType type, bool always_sign)
      : type_(type), always_sign_(always_sign) {
    double least = std::numeric_limits<double>::infinity(), most = 0;
    bool odd = false, negative = always_sign;
    for (const double value : values) {
      odd = odd || !std::isfinite(value);
      negative = negative || (std::isinf(value) && value < 0);
      if (!std::isfinite(value) || value == 0) continue;
      least = std::min(least, std::abs(value));
      most = std::max(most, std::abs(value));
    }
    scientific_ = most > 0 && (most >= 1e8 || least < 1e-4 || FarApart(least, most));
    for (const double value : values) {
      if (std::isfinite(value)) scientific_ ? FitScientific(value) : FitPositional(value);
    }
    if (scientific_) right_ = exponent_ + 2 + precision_;
    if (!odd) return;
    const std::size_t text = negative ? 4 : 3;
    left_ = std::max(left_, text - std::min(right_ + 1, text));
  }

  std::string operator()(double value) const {
    if (!std::isfinite(value))
      return Padded(NonFiniteText(value, always_sign_), left_ + right_ + 1);
    const std::string sign = SignText(value, always_sign_);
    if (!scientific_) {
      const auto [whole, fraction] = Positional(std::abs(value), type_, kPrecision);
      return Padded(sign + whole, left_) + "." + fraction +
             std::string(right_ - fraction.size(), ' ');
    }
    const std::string text =
        Rounded(std::abs(value), type_, std::chars_format::scientific, precision_);
    const std::string fraction = precision_ == 0 ? "." : text.substr(1, precision_ + 1);
    return Padded(sign + text[0], left_) + fraction + ExponentText(ExponentOf(text), exponent_);
  }

 private:
  // Division is numpy's, in the type of the numbers.
  bool FarApart(double least, double most) const {
    if (type_ == DType::kF64) return most / least > 1000;
    const float times = static_cast<float>(most) / static_cast<float>(least);
    return times > (type_ == DType::kF16 ? 1000.25f : 1000);
  }
  static std::string Padded(const std::string& text, std::size_t width) {
    return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
  }
  static int ExponentOf(std::string_view scientific) {
    return ParseScientific(scientific).exponent;
  }

  void FitScientific(double value) {
    const double magnitude = std::abs(value);
    Decimal decimal = Shortest(magnitude, type_);
    if (decimal.digits.size() > kPrecision + 1)
      decimal =
          ParseScientific(Rounded(magnitude, type_, std::chars_format::scientific, kPrecision));
    precision_ = std::max(precision_, decimal.digits.size() - 1);
    exponent_ = std::max(exponent_, ExponentText(decimal.exponent, 2).size() - 2);
    left_ = std::max(left_, SignText(value, always_sign_).size() + 1);
  }
  void FitPositional(double value) {
    const auto [whole, fraction] = Positional(std::abs(value), type_, kPrecision);
    left_ = std::max(left_, SignText(value, always_sign_).size() + whole.size());
    right_ = std::max(right_, fraction.size());
  }

  DType type_;
  bool always_sign_, scientific_ = false;
  std::size_t left_ = 0, right_ = 0;          // columns before and behind the point
  std::size_t precision_ = 0, exponent_ = 0;  // digits
};

// The printed text of each element of an array.
std::vector<std::string> ElementTexts(const ArrayValues& values) {
  const bool complex = values.element.type.starts_with("complex");
  const DType type = values.element.dtype;
  const std::size_t count = values.bytes.size() / ByteWidth(type) / (complex ? 2 : 1);
  std::vector<std::string> texts;
  if (complex || IsFloat(type)) {
    std::vector<double> real, imaginary;
    for (std::size_t i = 0; i < count; ++i) {
      real.push_back(LoadFloat(values, complex ? 2 * i : i));
      if (complex) imaginary.push_back(LoadFloat(values, 2 * i + 1));
    }
    const FloatColumn first(real, type, false), second(imaginary, type, true);
    for (std::size_t i = 0; i < count; ++i) {
      texts.push_back(first(real[i]));
      if (!complex) continue;
      std::string part = second(imaginary[i]);
      part.insert(part.find_last_not_of(' ') + 1, "j");
      texts.back() += part;
    }
    return texts;
  }
  std::size_t widest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (type == DType::kBool) {
      texts.emplace_back(values.bytes[i] == std::byte{0} ? "False" : " True");
    } else {
      texts.push_back(IntegerText(values, i));
      widest = std::max(widest, texts.back().size());
    }
  }
  for (std::string& text : texts) {
    if (text.size() < widest) text.insert(0, widest - text.size(), ' ');
  }
  return texts;
}

std::string ScalarOf(const ArrayValues& values) {
  const DType type = values.element.dtype;
  if (values.element.type.starts_with("complex")) {
    const double real = LoadFloat(values, 0), imaginary = LoadFloat(values, 1);
    if (real == 0 && !std::signbit(real)) return ScalarText(imaginary, type, false, true) + "j";
    return "(" + ScalarText(real, type, false, true) + ScalarText(imaginary, type, true, true) +
           "j)";
  }
  if (IsFloat(type)) return ScalarText(LoadFloat(values, 0), type, false, false);
  if (type == DType::kBool) return values.bytes[0] == std::byte{0} ? "False" : "True";
  return IntegerText(values, 0);
}

// ---- lines --------------------------------------------------------------------------------------

// numpy's _formatArray.
class NestedLines {
 public:
  explicit NestedLines(const ArrayValues& values) : values_(values), texts_(ElementTexts(values)) {}

  std::string Nested(std::vector<std::size_t>& index, const std::string& indent,
                     std::size_t width) {
    const std::size_t axis = index.size(), left = values_.shape.size() - axis;
    if (left == 0) return texts_[values_.Place(index)];
    const bool cut = values_.cut[axis];
    const auto count = static_cast<std::size_t>(values_.shape[axis]);
    std::string out, line = indent;
    for (std::size_t i = 0; i < count; ++i) {
      if (cut && i == kEdge) Add("...", left, indent, width, false, line, out);
      index.push_back(i);
      const std::string word = Nested(index, indent + " ", width - 1);
      index.pop_back();
      Add(word, left, indent, width, i + 1 == count, line, out);
    }
    if (left == 1) out += line;
    return "[" + out.substr(indent.size()) + "]";
  }

 private:
  // A word of the last dimension goes to the line, or to the next; what is nested stands in lines
  // of its own.
  static void Add(const std::string& word, std::size_t left, const std::string& indent,
                  std::size_t width, bool last, std::string& line, std::string& out) {
    if (left > 1) {
      out += indent + word + (last ? "" : std::string(left - 1, '\n'));
      return;
    }
    if (line.size() + word.size() > width - 1 && line.size() > indent.size()) {
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + "\n";
      line = indent;
    }
    line += word + (last ? "" : " ");
  }

  const ArrayValues& values_;
  const std::vector<std::string> texts_;
};

// ---- JSON ---------------------------------------------------------------------------------------

void AppendElement(const ArrayValues& values, std::size_t place, std::string& out) {
  if (values.element.type.starts_with("complex")) {
    out += '[';
    out += NumberJson(LoadFloat(values, 2 * place)).dump();
    out += ',';
    out += NumberJson(LoadFloat(values, 2 * place + 1)).dump();
    out += ']';
  } else if (IsFloat(values.element.dtype)) {
    out += NumberJson(LoadFloat(values, place)).dump();
  } else if (values.element.dtype == DType::kBool) {
    out += values.bytes[place] == std::byte{0} ? "false" : "true";
  } else {
    out += IntegerText(values, place);
  }
}

void AppendNested(const ArrayValues& values, std::vector<std::size_t>& index, std::string& out) {
  if (index.size() == values.shape.size()) return AppendElement(values, values.Place(index), out);
  out += '[';
  for (std::size_t i = 0; i < values.shape[index.size()]; ++i) {
    if (i > 0) out += ',';
    index.push_back(i);
    AppendNested(values, index, out);
    index.pop_back();
  }
  out += ']';
}

}  // namespace

std::size_t ArrayValues::Place(std::span<const std::size_t> index) const {
  std::size_t place = 0;
  for (std::size_t axis = 0; axis < index.size(); ++axis) {
    const auto count = static_cast<std::size_t>(shape[axis]);
    place = place * count + (reversed[axis] ? count - 1 - index[axis] : index[axis]);
  }
  return place;
}

std::string ArrayText(const ArrayValues& values) {
  if (values.shape.empty()) return ScalarOf(values);
  if (values.bytes.empty()) return "[]";
  std::vector<std::size_t> index;
  return NestedLines(values).Nested(index, " ", kLineWidth);
}

void AppendArrayJson(const ArrayValues& values, std::string& out) {
  std::vector<std::size_t> index;
  AppendNested(values, index, out);
}

}  // namespace zt::cli::internal
