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

// The floats of an array as f64, which holds them all; of complex numbers both parts. Empty of other
// elements.
std::vector<double> FloatsOf(const ArrayValues& values) {
  const bool complex = values.element.type.starts_with("complex");
  const auto to = complex ? ParseElementType("complex128") : ElementType{DType::kF64, ""};
  std::vector<double> floats;
  if (!complex && !IsFloat(values.element.dtype)) return floats;
  const auto convert = MakeConversion(values.element, *to, OnOverflow::kInf);
  floats.resize(values.bytes.size() / ByteWidth(values.element.dtype));
  const auto out = std::as_writable_bytes(std::span(floats));
  NumericCounts ignored;
  (*convert)->Apply(values.bytes, out, ignored);
  LittleEndian(out, sizeof(double));
  return floats;
}

std::string IntegerText(const ArrayValues& values, std::size_t place) {
  const std::size_t width = ByteWidth(values.element.dtype), unused = 64 - 8 * width;
  const std::uint64_t bits = zt::internal::LoadLittle(&values.bytes[place * width], width);
  if (!IsSignedInt(values.element.dtype)) return std::to_string(bits);
  return std::to_string(static_cast<std::int64_t>(bits << unused) >> unused);
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
  std::vector<std::string> texts;
  if (const std::vector<double> floats = FloatsOf(values); !floats.empty()) {
    std::vector<std::string> imaginary;
    for (std::size_t i = 0; i < floats.size(); ++i) {
      const bool second = complex && i % 2 == 1;
      const std::string text = FloatText(floats[i], type, second);
      (second ? imaginary : texts).push_back(text + (second ? "j" : ""));
    }
    AlignAtPoint(texts);
    AlignAtPoint(imaginary);
    for (std::size_t i = 0; i < imaginary.size(); ++i) texts[i] += imaginary[i];
    return texts;
  }
  std::size_t widest = 0;
  for (std::size_t i = 0; i < values.bytes.size() / ByteWidth(type); ++i) {
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

void AppendElement(const ArrayValues& values, std::span<const double> floats, std::size_t place,
                   std::string& out) {
  const auto number = [&](std::size_t at) { return NumberJson(floats[at]).dump(); };
  if (values.element.type.starts_with("complex")) {
    out += "[" + number(2 * place) + "," + number(2 * place + 1) + "]";
  } else if (!floats.empty()) {
    out += number(place);
  } else if (values.element.dtype == DType::kBool) {
    out += values.bytes[place] == std::byte{0} ? "false" : "true";
  } else {
    out += IntegerText(values, place);
  }
}

void AppendNested(const ArrayValues& values, std::span<const double> floats,
                  std::vector<std::size_t>& index, std::string& out) {
  if (index.size() == values.shape.size())
    return AppendElement(values, floats, values.Place(index), out);
  out += '[';
  for (std::size_t i = 0; i < values.shape[index.size()]; ++i) {
    if (i > 0) out += ',';
    index.push_back(i);
    AppendNested(values, floats, index, out);
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
  if (values.bytes.empty()) return "[]";
  std::vector<std::size_t> index;
  const std::string text = NestedLines(values).Nested(index, " ", kLineWidth);
  return values.shape.empty() ? text.substr(text.find_first_not_of(' ')) : text;
}

void AppendArrayJson(const ArrayValues& values, std::string& out) {
  std::vector<std::size_t> index;
  AppendNested(values, FloatsOf(values), index, out);
}

}  // namespace zt::cli::internal
