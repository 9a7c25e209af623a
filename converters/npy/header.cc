// zt.convert.npy:header — reads .npy headers, which are Python literals, and maps numpy's
// types to element types.
module;

#include "core/status_macros.h"

module zt.convert.npy;

import zt.std;
import :header;
import zt.core;
import zt.source;

namespace zt {

namespace {
constexpr char kNpyMagic[] = "\x93NUMPY";
constexpr std::size_t kNpyMagicSize = sizeof kNpyMagic - 1;

bool BeginsWith(std::span<const std::byte> head, std::string_view magic) {
  return head.size() >= magic.size() && std::memcmp(head.data(), magic.data(), magic.size()) == 0;
}
}  // namespace

bool LooksLikeNpy(std::span<const std::byte> head) {
  return BeginsWith(head, {kNpyMagic, kNpyMagicSize});
}

}  // namespace zt

namespace zt::npy::internal {
namespace {

// ---- Python literals ----------------------------------------------------------------------------

// A Python literal: a string, integer, True, False, None, tuple, list or dict. The items of a dict
// alternate between keys and values.
struct Literal {
  enum class Kind { kString, kInt, kBool, kNone, kTuple, kList, kDict };
  Kind kind = Kind::kNone;
  std::string text;             // kString
  std::uint64_t magnitude = 0;  // kInt
  bool negative = false;        // kInt
  bool truth = false;           // kBool
  std::vector<Literal> items;   // kTuple, kList, kDict
};

constexpr int kMaxNesting = 32;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsWordPart(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

class LiteralParser {
 public:
  explicit LiteralParser(std::string_view text) : text_(text) {}

  StatusOr<Literal> ParseAll() {
    ZT_ASSIGN_OR_RETURN(Literal value, ParseValue(0));
    Next();
    if (at_ < text_.size()) return Malformed("text after the literal");
    return value;
  }

 private:
  static constexpr char kEnd = '\0';  // no literal contains it

  Status Malformed(std::string_view what) const {
    return InvalidData("the header is not a Python literal: " + std::string(what) +
                       " at character " + std::to_string(at_));
  }

  // The next character that is not white space; does not consume it.
  char Next() {
    while (at_ < text_.size() && (text_[at_] == ' ' || (text_[at_] >= '\t' && text_[at_] <= '\r')))
      ++at_;
    return at_ < text_.size() ? text_[at_] : kEnd;
  }

  StatusOr<Literal> ParseValue(int depth) {
    if (depth > kMaxNesting) return Malformed("nesting too deep");
    const char c = Next();
    if (at_ >= text_.size()) return Malformed("the end");
    if (c == '\'' || c == '"') return ParseString();
    if ((c == 'u' || c == 'U') && at_ + 1 < text_.size() &&
        (text_[at_ + 1] == '\'' || text_[at_ + 1] == '"')) {
      ++at_;
      return ParseString();
    }
    if (IsDigit(c) || c == '-' || c == '+') return ParseInt();
    if (c == '(') return ParseTuple(depth);
    if (c == '[') return ParseItems(Literal::Kind::kList, ']', depth);
    if (c == '{') return ParseItems(Literal::Kind::kDict, '}', depth);
    return ParseWord();
  }

  StatusOr<Literal> ParseWord() {
    std::size_t end = at_;
    while (end < text_.size() && IsWordPart(text_[end])) ++end;
    const std::string_view word = text_.substr(at_, end - at_);
    Literal value;
    if (word == "True" || word == "False") {
      value.kind = Literal::Kind::kBool;
      value.truth = word == "True";
    } else if (word != "None") {
      return Malformed("an unknown word");
    }
    at_ = end;
    return value;
  }

  StatusOr<Literal> ParseInt() {
    Literal value;
    value.kind = Literal::Kind::kInt;
    if (text_[at_] == '-' || text_[at_] == '+') {
      value.negative = text_[at_] == '-';
      ++at_;
    }
    const std::size_t first = at_;
    while (at_ < text_.size() && IsDigit(text_[at_])) {
      const auto digit = static_cast<std::uint64_t>(text_[at_] - '0');
      const auto scaled = CheckedMul(value.magnitude, 10);
      const auto sum = scaled ? CheckedAdd(*scaled, digit) : scaled;
      if (!sum) return InvalidData("the header holds a number beyond 64 bits");
      value.magnitude = *sum;
      ++at_;
    }
    if (at_ == first) return Malformed("a sign without a number");
    // Python 2 wrote long integers as 3L.
    if (at_ < text_.size() && (text_[at_] == 'L' || text_[at_] == 'l')) ++at_;
    if (at_ < text_.size() && (IsWordPart(text_[at_]) || text_[at_] == '.')) {
      return Malformed("no integer");
    }
    return value;
  }

  StatusOr<Literal> ParseString() {
    Literal value;
    value.kind = Literal::Kind::kString;
    const char quote = text_[at_++];
    while (at_ < text_.size() && text_[at_] != quote) {
      char c = text_[at_++];
      if (c == '\n') return Malformed("a line break within a string");
      if (c == '\\') {
        // Other escapes are in names of fields alone, which are not used.
        c = at_ < text_.size() ? text_[at_++] : kEnd;
        if (c != '\\' && c != '\'' && c != '"') value.text += '\\';
      }
      value.text += c;
    }
    if (at_ >= text_.size()) return Malformed("an open string");
    ++at_;
    return value;
  }

  // (), (x,), (x, y): the comma makes a tuple; parentheses alone only group.
  StatusOr<Literal> ParseTuple(int depth) {
    const std::size_t open = at_;
    ZT_ASSIGN_OR_RETURN(Literal tuple, ParseItems(Literal::Kind::kTuple, ')', depth));
    if (tuple.items.size() == 1) {
      std::size_t last = at_ - 1;  // before the closing parenthesis
      while (last > open && text_[last - 1] <= ' ') --last;
      if (text_[last - 1] != ',') return Literal(std::move(tuple.items.front()));
    }
    return tuple;
  }

  StatusOr<Literal> ParseItems(Literal::Kind kind, char close, int depth) {
    Literal value;
    value.kind = kind;
    ++at_;
    while (Next() != close) {
      ZT_ASSIGN_OR_RETURN(Literal item, ParseValue(depth + 1));
      value.items.push_back(std::move(item));
      if (kind == Literal::Kind::kDict) {
        if (Next() != ':') return Malformed("no ':' after a key");
        ++at_;
        ZT_ASSIGN_OR_RETURN(Literal held, ParseValue(depth + 1));
        value.items.push_back(std::move(held));
      }
      if (Next() == close) break;
      if (Next() != ',') return Malformed("no ',' between items");
      ++at_;
    }
    ++at_;
    return value;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

// ---- the header ---------------------------------------------------------------------------------

constexpr std::size_t kMaxHeader = 10000;  // numpy's own limit for untrusted files

Status NoDescr(std::string_view text) {
  return InvalidData("the header's descr " + Quote(text) + " is not a numpy type");
}

// True for names of numpy's integers whose size differs from system to system.
bool HasNoFixedSize(std::string_view name) {
  static constexpr std::string_view kNames[] = {"l",    "L",   "p",    "P",    "n",     "N",
                                                "long", "int", "intp", "uint", "ulong", "uintp"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

// numpy's other names of types.
std::string_view CanonicalDescr(std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"?", "b1"},         {"bool", "b1"},        {"b", "i1"},           {"int8", "i1"},
      {"B", "u1"},         {"uint8", "u1"},       {"h", "i2"},           {"int16", "i2"},
      {"H", "u2"},         {"uint16", "u2"},      {"i", "i4"},           {"int32", "i4"},
      {"I", "u4"},         {"uint32", "u4"},      {"q", "i8"},           {"int64", "i8"},
      {"Q", "u8"},         {"uint64", "u8"},      {"e", "f2"},           {"float16", "f2"},
      {"f", "f4"},         {"float32", "f4"},     {"d", "f8"},           {"float64", "f8"},
      {"float", "f8"},     {"F", "c8"},           {"complex64", "c8"},   {"D", "c16"},
      {"complex", "c16"},  {"complex128", "c16"}, {"g", "f16"},          {"longdouble", "f16"},
      {"float128", "f16"}, {"G", "c32"},          {"complex256", "c32"}, {"S", "S0"},
      {"U", "U0"},         {"object", "O"},       {"c", "S1"},           {"byte", "i1"},
      {"ubyte", "u1"},     {"short", "i2"},       {"ushort", "u2"},      {"intc", "i4"},
      {"uintc", "u4"},     {"longlong", "i8"},    {"ulonglong", "u8"},   {"half", "f2"},
      {"single", "f4"},    {"double", "f8"},      {"csingle", "c8"},     {"cdouble", "c16"}};
  const auto* const known =
      std::ranges::find(kNames, name, &std::pair<std::string_view, std::string_view>::first);
  return known == std::end(kNames) ? name : known->second;
}

StatusOr<Descr> ParseDescr(const Literal& literal) {
  Descr descr;
  if (literal.kind == Literal::Kind::kList || literal.kind == Literal::Kind::kTuple) {
    descr.kind = 'V';
    descr.text = "structured";
    return descr;
  }
  if (literal.kind != Literal::Kind::kString)
    return InvalidData("the header's descr is not a string");
  descr.text = literal.text;
  std::string_view rest = descr.text;
  if (!rest.empty() && std::string_view("<>|=").find(rest.front()) != std::string_view::npos) {
    descr.order = rest.front();
    rest.remove_prefix(1);
  }
  if (rest.empty()) return NoDescr(descr.text);
  if (HasNoFixedSize(rest)) {
    return Unsupported("dtype " + Quote(descr.text) +
                       " has another size on other systems; save it as int32 or int64");
  }
  rest = CanonicalDescr(rest);
  descr.kind = rest.front() == 'a' ? 'S' : rest.front();
  rest.remove_prefix(1);
  if (std::string_view("biufcVSUMmO").find(descr.kind) == std::string_view::npos) {
    return NoDescr(descr.text);
  }
  if (descr.kind == 'O') return descr;  // no width, or the size of a pointer
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), descr.width);
  if (error != std::errc()) return NoDescr(descr.text);
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  const bool date = descr.kind == 'M' || descr.kind == 'm';  // '<M8[s]'
  if (!rest.empty() && !(date && rest.front() == '[' && rest.back() == ']')) {
    return NoDescr(descr.text);
  }
  return descr;
}

Status FillShape(const Literal& literal, Shape& shape) {
  if (literal.kind != Literal::Kind::kTuple)
    return InvalidData("the header's shape is not a tuple");
  for (const Literal& dim : literal.items) {
    if (dim.kind != Literal::Kind::kInt) {
      return InvalidData("the header's shape holds something other than integers");
    }
    if (dim.negative && dim.magnitude != 0) return InvalidData("a dimension is negative");
    shape.push_back(dim.magnitude);
  }
  return OkStatus();
}

Status FillFromDict(const Literal& dict, Header& header) {
  if (dict.kind != Literal::Kind::kDict) return InvalidData("the header is not a dictionary");
  bool has_descr = false, has_order = false, has_shape = false;
  for (std::size_t i = 0; i < dict.items.size(); i += 2) {
    const Literal& key = dict.items[i];
    const Literal& value = dict.items[i + 1];
    if (key.kind != Literal::Kind::kString) return InvalidData("a header key is not a string");
    bool* seen = key.text == "descr"           ? &has_descr
                 : key.text == "fortran_order" ? &has_order
                 : key.text == "shape"         ? &has_shape
                                               : nullptr;
    if (seen == nullptr) return InvalidData("unknown header key " + Quote(key.text));
    if (*seen) return InvalidData("header key " + Quote(key.text) + " is given twice");
    *seen = true;
    if (seen == &has_descr) {
      ZT_ASSIGN_OR_RETURN(header.descr, ParseDescr(value));
    } else if (seen == &has_order) {
      if (value.kind != Literal::Kind::kBool) {
        return InvalidData("the header's fortran_order is neither True nor False");
      }
      header.fortran_order = value.truth;
    } else {
      ZT_RETURN_IF_ERROR(FillShape(value, header.shape));
    }
  }
  if (!has_descr) return InvalidData("the header lacks 'descr'");
  if (!has_order) return InvalidData("the header lacks 'fortran_order'");
  if (!has_shape) return InvalidData("the header lacks 'shape'");
  return OkStatus();
}

// The error for a well-formed dtype that is no tensor element type.
Status NoTensor(const Descr& descr) {
  const std::string quoted = "dtype " + Quote(descr.text);
  if (descr.text == "structured") {
    return Unsupported("structured arrays are not supported; save each field as an array");
  }
  switch (descr.kind) {
    case 'O':
      return Unsupported("object arrays (" + quoted +
                         ") are pickles, which run code when they are loaded; save numbers");
    case 'S':
    case 'U':
      return Unsupported("string arrays (" + quoted + ") are not supported");
    case 'M':
    case 'm':
      return Unsupported("date and time arrays (" + quoted +
                         ") are not supported; view them as int64");
    case 'f':
    case 'c':
      if (descr.width > 8) {
        return Unsupported("long double (" + quoted +
                           ") differs from machine to machine; save it as float64");
      }
      [[fallthrough]];
    default:
      return Unsupported(quoted + " is not supported");
  }
}

StatusOr<ArrayType> VoidType(const Descr& descr, const std::optional<ElementType>& given) {
  const std::string quoted = "dtype " + Quote(descr.text);
  if (!given) {
    return WithAdvice(Unsupported(quoted + " does not state the element type (numpy saves bfloat16 "
                                           "and fp8 like this)"),
                      Advice::kVoidDtype);
  }
  const LogicalType* logical = FindLogicalType(given->type);
  const std::string name(Name(*given));
  if (logical != nullptr && (logical->packed || logical->ratio != 1)) {
    return Unsupported(quoted + " cannot be read as " + name);
  }
  if (ByteWidth(given->dtype) != descr.width) {
    return Unsupported(quoted + ": its elements have " + std::to_string(descr.width) +
                       (descr.width == 1 ? " byte" : " bytes") + ", the type " + name +
                       " that was named for such arrays has not");
  }
  if (descr.order == '>') return Unsupported(quoted + ": big-endian of an unnamed type");
  return ArrayType{*given, descr.width, 1};
}

}  // namespace

StatusOr<Header> ReadHeader(ByteSource& bytes) {
  std::array<std::byte, 12> head;
  ZT_RETURN_IF_ERROR(Annotate(bytes.ReadAt(0, std::span(head).first(10)), "npy header"));
  if (!LooksLikeNpy(head)) return InvalidData("it is not an npy array: the magic is missing");
  const auto byte = [&](std::size_t i) { return std::to_integer<std::uint32_t>(head[i]); };
  const std::uint32_t major = byte(6), minor = byte(7);
  if (major < 1 || major > 3 || minor != 0) {
    return Unsupported("npy version " + std::to_string(major) + "." + std::to_string(minor) +
                       " is not supported (1.0, 2.0 and 3.0 are)");
  }
  Header header;
  std::uint64_t text_size = byte(8) | byte(9) << 8;
  header.size = 10;
  if (major > 1) {
    ZT_RETURN_IF_ERROR(Annotate(bytes.ReadAt(10, std::span(head).subspan(10)), "npy header"));
    text_size |= std::uint64_t{byte(10)} << 16 | std::uint64_t{byte(11)} << 24;
    header.size = 12;
  }
  if (const auto size = bytes.size(); size && text_size > *size - std::min(*size, header.size)) {
    return InvalidData("its header ends at byte " + std::to_string(header.size + text_size) +
                       ", the file at byte " + std::to_string(*size) + "; it is truncated");
  }
  if (text_size > kMaxHeader) {
    return Unsupported("the npy header has " + std::to_string(text_size) +
                       " characters; as in numpy, at most " + std::to_string(kMaxHeader) +
                       " are read: save each field as an array");
  }
  std::string text(text_size, ' ');
  ZT_RETURN_IF_ERROR(
      Annotate(bytes.ReadAt(header.size, std::as_writable_bytes(std::span(text))), "npy header"));
  header.size += text_size;
  ZT_ASSIGN_OR_RETURN(const Literal dict, LiteralParser(text).ParseAll());
  ZT_RETURN_IF_ERROR(FillFromDict(dict, header));
  return header;
}

std::string DescrName(const Descr& descr) {
  if (descr.text.empty()) return "unknown";
  return descr.text.substr(descr.order == 0 ? 0 : 1);
}

constexpr std::string_view kComment = "dtype: ";

std::string TypeComment(const ElementType& element) {
  return std::string(kComment) + std::string(Name(element));
}

std::optional<ElementType> TypeInComment(std::string_view comment) {
  if (!comment.starts_with(kComment)) return std::nullopt;
  return ParseElementType(comment.substr(kComment.size()));
}

StatusOr<ArrayType> TypeOf(const Descr& descr, const std::optional<ElementType>& void_type) {
  struct Row {
    char kind;
    std::uint64_t width;
    std::string_view name;
  };
  static constexpr Row kRows[] = {{'f', 4, "f32"},       {'f', 2, "f16"},        {'f', 8, "f64"},
                                  {'i', 8, "i64"},       {'i', 4, "i32"},        {'i', 2, "i16"},
                                  {'i', 1, "i8"},        {'u', 8, "u64"},        {'u', 4, "u32"},
                                  {'u', 2, "u16"},       {'u', 1, "u8"},         {'b', 1, "bool"},
                                  {'c', 8, "complex64"}, {'c', 16, "complex128"}};
  if (descr.text == "structured") return NoTensor(descr);
  if (descr.kind == 'V' || (descr.kind == 'f' && descr.width == 1)) {
    return VoidType(descr, void_type);
  }
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) {
    return r.kind == descr.kind && r.width == descr.width;
  });
  if (row == std::end(kRows)) return NoTensor(descr);
  ArrayType type{*ParseElementType(row->name), row->width, 1};
  const std::uint64_t storage = ByteWidth(type.element.dtype);
  if (storage > 1 && descr.order != '<' && descr.order != '>') {
    type.guessed = true;
  }
  if (descr.order == '>') type.swap = storage;
  return type;
}

}  // namespace zt::npy::internal
