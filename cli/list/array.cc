// zt.cli:numbers — arrays as text, in lines of 75 columns as numpy has them, and as JSON; slices:
// numpy's basic indexing, without new dimensions.
module;

#include "core/little_endian.h"
#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :numbers;
import :output;

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

// ---- lines and lists ----------------------------------------------------------------------------

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

// Each element as JSON, or as text in columns of one width.
std::vector<std::string> ElementTexts(const ArrayValues& values, bool json) {
  const bool complex = values.element.type.starts_with("complex");
  const DType type = values.element.dtype;
  const std::vector<double> floats = FloatsOf(values);
  const auto number = [&](std::size_t at, bool always_sign) {
    return json ? NumberJson(floats[at]).dump() : FloatText(floats[at], type, always_sign);
  };
  std::vector<std::string> texts(values.bytes.size() / ByteWidth(type) / (complex ? 2 : 1));
  std::vector<std::string> imaginary(complex ? texts.size() : 0);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (complex) {
      texts[i] = number(2 * i, false);
      imaginary[i] = number(2 * i + 1, true) + (json ? "" : "j");
    } else if (!floats.empty()) {
      texts[i] = number(i, false);
    } else if (type == DType::kBool) {
      const bool set = values.bytes[i] != std::byte{0};
      texts[i] = json ? (set ? "true" : "false") : (set ? " True" : "False");
    } else {
      texts[i] = IntegerText(values, i);
    }
  }
  if (!json) {
    AlignAtPoint(texts);
    AlignAtPoint(imaginary);
  }
  for (std::size_t i = 0; i < imaginary.size(); ++i)
    texts[i] = json ? "[" + texts[i] + "," + imaginary[i] + "]" : texts[i] + imaginary[i];
  return texts;
}

// Nested lists: as numpy's _formatArray, or as JSON.
class Lists {
 public:
  Lists(const ArrayValues& values, bool json)
      : values_(values), json_(json), texts_(ElementTexts(values, json)) {}

  // That of all elements whose index begins so.
  std::string Text(std::vector<std::size_t>& index) const {
    const std::size_t axis = index.size(), left = values_.shape.size() - axis;
    if (left == 0) return texts_[values_.Place(index)];
    std::string out = "[";
    std::size_t column = axis + 1;  // of the next word
    const auto add = [&](const std::string& word) {
      const bool first = out.size() == 1;
      // What is nested stands in lines of its own.
      const bool breaks = left > 1 || column + word.size() > kLineWidth - 1 - axis;
      if (json_) {
        out += first ? "" : ",";
      } else if (!first && breaks) {
        out.erase(out.find_last_not_of(' ') + 1);
        out += std::string(std::max<std::size_t>(left - 1, 1), '\n') + std::string(axis + 1, ' ');
        column = axis + 1;
      } else if (!first) {
        out += " ";
      }
      out += word;
      column += word.size() + 1;
    };
    for (std::size_t i = 0; i < values_.shape[axis]; ++i) {
      if (values_.cut[axis] && i == kEdge) add("...");
      index.push_back(i);
      add(Text(index));
      index.pop_back();
    }
    return out + "]";
  }

 private:
  const ArrayValues& values_;
  const bool json_;
  const std::vector<std::string> texts_;
};

}  // namespace

std::size_t ArrayValues::Place(std::span<const std::size_t> index) const {
  std::size_t place = 0;
  for (std::size_t axis = 0; axis < index.size(); ++axis) {
    const auto count = static_cast<std::size_t>(shape[axis]);
    place = place * count + (reversed[axis] ? count - 1 - index[axis] : index[axis]);
  }
  return place;
}

std::string ArrayText(const ArrayValues& values, bool json) {
  if (!json && values.bytes.empty()) return "[]";
  std::vector<std::size_t> index;
  const std::string text = Lists(values, json).Text(index);
  return values.shape.empty() ? text.substr(text.find_first_not_of(' ')) : text;
}

namespace {

using Int = std::int64_t;

std::vector<std::string_view> Split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (std::size_t end = 0; end != text.npos; text.remove_prefix(end == text.npos ? 0 : end + 1)) {
    end = text.find(at);
    parts.push_back(Trimmed(text.substr(0, end), " "));
  }
  return parts;
}

StatusOr<Int> ParseInteger(std::string_view text) {
  const auto value = ParseNumber<Int>(text);
  if (value && *value != std::numeric_limits<Int>::min()) return *value;
  return InvalidArgument(Quote(text) + " in the slice is neither an integer nor start:stop:step");
}

// One position of dimension `axis`, which goes.
StatusOr<Axis> ParsePosition(std::string_view text, std::uint64_t size, std::size_t axis) {
  ZT_ASSIGN_OR_RETURN(const Int given, ParseInteger(text));
  const Int position = given < 0 ? given + static_cast<Int>(size) : given;
  if (position < 0 || position >= static_cast<Int>(size)) {
    return InvalidArgument("position " + std::to_string(given) + " is not in dimension " +
                           std::to_string(axis) + ", which has size " + std::to_string(size));
  }
  return Axis{.first = static_cast<std::uint64_t>(position), .count = 1, .kept = false};
}

// start:stop:step, each of which may be missing; as Python's slice.indices().
StatusOr<Axis> ParseRange(std::string_view text, std::uint64_t length) {
  const auto size = static_cast<Int>(length);
  const std::vector<std::string_view> parts = Split(text, ':');
  if (parts.size() > 3)
    return InvalidArgument(Quote(text) + " in the slice has more than start, stop and step");
  Int step = 1;
  if (parts.size() == 3 && !parts[2].empty()) {
    ZT_ASSIGN_OR_RETURN(step, ParseInteger(parts[2]));
  }
  if (step == 0) return InvalidArgument("the step of a slice is not 0");
  const bool back = step < 0;
  const Int least = back ? -1 : 0, most = back ? size - 1 : size;
  const auto bound = [&](std::size_t i, Int missing) -> StatusOr<Int> {
    if (parts[i].empty()) return missing;
    ZT_ASSIGN_OR_RETURN(const Int given, ParseInteger(parts[i]));
    return std::clamp(given < 0 ? given + size : given, least, most);
  };
  ZT_ASSIGN_OR_RETURN(const Int start, bound(0, back ? most : least));
  ZT_ASSIGN_OR_RETURN(const Int stop, bound(1, back ? least : most));
  const Int distance = back ? start - stop : stop - start, stride = back ? -step : step;
  Axis axis{.step = static_cast<std::uint64_t>(stride), .reversed = back};
  if (distance <= 0) return axis;
  axis.count = static_cast<std::uint64_t>((distance - 1) / stride + 1);
  const Int last = start - (static_cast<Int>(axis.count) - 1) * stride;
  axis.first = static_cast<std::uint64_t>(back ? last : start);
  return axis;
}

}  // namespace

StatusOr<std::vector<Axis>> ParseSlice(std::string_view text,
                                       std::span<const std::uint64_t> shape) {
  std::vector<std::string_view> words;
  if (text.find('[') != text.npos)
    return InvalidArgument(
        "a slice holds no list of positions; show takes one, or start:stop:step");
  if (!Trimmed(text, " ").empty()) words = Split(text, ',');
  if (words.size() > 1 && words.back().empty()) words.pop_back();  // "0,"
  const auto dots = static_cast<std::size_t>(std::ranges::count(words, "..."));
  if (dots > 1) return InvalidArgument("a slice has one '...' at most");
  if (words.size() - dots > shape.size()) {
    return InvalidArgument("the slice is of " + Counted(words.size() - dots, "dimension") +
                           ", the shape is " + ToString(shape));
  }
  const std::size_t whole = shape.size() - (words.size() - dots);
  if (dots == 0) words.push_back("...");
  std::vector<Axis> axes;
  for (const std::string_view word : words) {
    if (word == "...") {
      for (std::size_t i = 0; i < whole; ++i) axes.push_back({.count = shape[axes.size()]});
      continue;
    }
    const std::uint64_t size = shape[axes.size()];
    if (size > std::uint64_t{1} << 62) return Unsupported("shape " + ToString(shape));
    ZT_ASSIGN_OR_RETURN(const Axis axis, word.find(':') == word.npos
                                             ? ParsePosition(word, size, axes.size())
                                             : ParseRange(word, size));
    axes.push_back(axis);
  }
  return axes;
}

}  // namespace zt::cli::internal
