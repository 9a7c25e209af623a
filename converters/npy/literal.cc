// zt.convert.npy:header — the parser of Python literals.
module;

#include "core/status_macros.h"

module zt.convert.npy;

import zt.std;
import :header;
import zt.core;

namespace zt::npy::internal {
namespace {

constexpr int kMaxNesting = 32;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsWordPart(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  StatusOr<Literal> ParseAll() {
    ZT_ASSIGN_OR_RETURN(Literal value, ParseValue(0));
    Next();
    if (at_ < text_.size()) return Malformed("text after the literal");
    return value;
  }

 private:
  static constexpr char kEnd = '\0';  // no character of a literal

  Status Malformed(std::string_view what) const {
    return InvalidData("the header is not a Python literal: " + std::string(what) +
                       " at character " + std::to_string(at_));
  }

  // The next character that is not a blank, not consumed.
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
        c = at_ < text_.size() ? text_[at_++] : kEnd;
        if (c != '\\' && c != '\'' && c != '"') return Malformed("an unknown escape");
      }
      value.text += c;
    }
    if (at_ >= text_.size()) return Malformed("an open string");
    ++at_;
    return value;
  }

  // (), (x,), (x, y): a comma makes the tuple, parentheses alone only group.
  StatusOr<Literal> ParseTuple(int depth) {
    const std::size_t open = at_;
    ZT_ASSIGN_OR_RETURN(Literal tuple, ParseItems(Literal::Kind::kTuple, ')', depth));
    if (tuple.items.size() == 1) {
      std::size_t last = at_ - 1;  // before the parenthesis that closed it
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

}  // namespace

StatusOr<Literal> ParseLiteral(std::string_view text) { return Parser(text).ParseAll(); }

}  // namespace zt::npy::internal
