// zt.cli:array — arrays as text, in lines of 75 columns as numpy has them, with the fewest digits
// that mean each number; and as JSON.
module;

#include "core/little_endian.h"

module zt.cli;

import zt.std;
import :array;
import :values;

namespace zt::cli::internal {
namespace {

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

// The fewest digits that are nearer to a half than to any other.
std::string ShortestHalf(double value, std::chars_format format) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);  // from 0.5 up to 1
  const double last = std::ldexp(1.0, std::max(exponent - 1, -14) - 10);
  const bool even = std::floor(value / last / 2) * 2 == value / last;
  const double above = last / 2, below = fraction == 0.5 && exponent > -13 ? above / 2 : above;
  for (int digits = 0;; ++digits) {
    std::string text = Chars(value, format, digits);
    const double off = ParseDouble(text) - value, most = off > 0 ? above : below;
    if (std::abs(off) < most || (even && std::abs(off) == most) || digits > 24) return text;
  }
}

// A magnitude in the fewest digits that mean it and no other of its type; all digits of a whole
// number.
std::string Shortest(double magnitude, DType type, std::chars_format format) {
  if (type == DType::kF16) return ShortestHalf(magnitude, format);
  if (type == DType::kF32) return Chars(static_cast<float>(magnitude), format);
  return Chars(magnitude, format);
}

// "-1.5", "2.0", "1e-05", "nan". A sign stands before each number but NaN if `always_sign`.
std::string FloatText(double value, DType type, bool always_sign) {
  const std::string sign = std::isnan(value)     ? ""
                           : std::signbit(value) ? "-"
                           : always_sign         ? "+"
                                                 : "";
  const double magnitude = std::abs(value);
  if (!std::isfinite(value)) return sign + (std::isnan(value) ? "nan" : "inf");
  if (magnitude != 0 && (magnitude < 1e-4 || magnitude >= 1e16))
    return sign + Shortest(magnitude, type, std::chars_format::scientific);
  const std::string text = Shortest(magnitude, type, std::chars_format::fixed);
  return sign + text + (text.find('.') == std::string::npos ? ".0" : "");
}

// ---- columns ------------------------------------------------------------------------------------

// Pads texts so that their points, or what would follow a point, stand in one column.
void AlignAtPoint(std::vector<std::string>& texts) {
  const auto point = [](const std::string& text) {
    return std::min(text.find_first_of(".e"), text.size());
  };
  std::size_t left = 0, right = 0;
  for (const std::string& text : texts) {
    left = std::max(left, point(text));
    right = std::max(right, text.size() - point(text));
  }
  for (std::string& text : texts) {
    text.insert(0, left - point(text), ' ');
    text.resize(left + right, ' ');
  }
}

// The printed text of each element of an array.
std::vector<std::string> ElementTexts(const ArrayValues& values) {
  const bool complex = values.element.type.starts_with("complex");
  const DType type = values.element.dtype;
  const std::size_t count = values.bytes.size() / ByteWidth(type) / (complex ? 2 : 1);
  std::vector<std::string> texts;
  if (complex || IsFloat(type)) {
    std::vector<std::string> imaginary;
    for (std::size_t i = 0; i < count; ++i) {
      texts.push_back(FloatText(LoadFloat(values, complex ? 2 * i : i), type, false));
      if (complex) imaginary.push_back(FloatText(LoadFloat(values, 2 * i + 1), type, true) + "j");
    }
    AlignAtPoint(texts);
    AlignAtPoint(imaginary);
    for (std::size_t i = 0; i < imaginary.size(); ++i) texts[i] += imaginary[i];
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
  if (values.element.type.starts_with("complex"))
    return FloatText(LoadFloat(values, 0), type, false) +
           FloatText(LoadFloat(values, 1), type, true) + "j";
  if (IsFloat(type)) return FloatText(LoadFloat(values, 0), type, false);
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
