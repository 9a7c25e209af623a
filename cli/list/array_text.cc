// zt.cli:numbers — arrays as text, in lines of 75 columns as numpy has them, with the fewest digits
// that mean each number; and as JSON.
module;

#include "core/little_endian.h"

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
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, format...).ptr};
}

// "-1.5", "2.0", "1e-05", "nan": the fewest digits that mean a number and no other of its type; of
// f16 five, which do. A sign stands before each number but NaN if `always_sign`.
std::string FloatText(double value, DType type, bool always_sign) {
  if (std::isnan(value)) return "nan";
  const std::string text = type == DType::kF16   ? Chars(value, std::chars_format::general, 5)
                           : type == DType::kF32 ? Chars(static_cast<float>(value))
                                                 : Chars(value);
  const bool whole = std::isfinite(value) && text.find_first_of(".e") == text.npos;
  return (always_sign && !std::signbit(value) ? "+" : "") + text + (whole ? ".0" : "");
}

// ---- lines and lists ----------------------------------------------------------------------------

// Each element as JSON, or as text in columns of one width.
std::vector<std::string> ElementTexts(const ArrayValues& values, bool json) {
  const bool complex = values.element.type.starts_with("complex");
  const DType type = values.element.dtype;
  const std::vector<double> floats = FloatsOf(values);
  const auto number = [&](std::size_t at, bool always_sign) {
    return json ? NumberJson(floats[at]).dump() : FloatText(floats[at], type, always_sign);
  };
  std::vector<std::string> texts(values.bytes.size() / ByteWidth(type) / (complex ? 2 : 1));
  std::size_t widest = type == DType::kBool ? 5 : 0;  // "False"
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::string& text = texts[i];
    if (complex) {
      const std::string real = number(2 * i, false), imaginary = number(2 * i + 1, true);
      text = json ? "[" + real + "," + imaginary + "]" : real + imaginary + "j";
    } else if (!floats.empty()) {
      text = number(i, false);
    } else if (type == DType::kBool) {
      const bool set = values.bytes[i] != std::byte{0};
      text = json ? (set ? "true" : "false") : (set ? "True" : "False");
    } else {
      text = IntegerText(values, i);
    }
    widest = std::max(widest, text.size());
  }
  if (json) return texts;
  for (std::string& text : texts) text.insert(0, widest - text.size(), ' ');
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

}  // namespace zt::cli::internal
