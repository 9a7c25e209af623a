// zt.core:small — what keeps declarations small where a file has a million of them: words, and vectors without an allocation.
module;

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/inlined_vector.h"

export module zt.core:small;

export namespace absl {
using absl::operator<;  // both found by the argument, as operator<< of statuses is
using absl::operator==;
}  // namespace absl

export namespace zt {

// A std::vector whose first N elements lie in it.
template <class T, std::size_t N>
using InlinedVector = absl::InlinedVector<T, N>;

// A text that is mostly one of a few: the name of a format, of a role or of a type. It is used as a std::string is. Those
// names that the specification lists take eight bytes and no allocation.
class Word {
 public:
  Word();  // empty
  Word(std::string_view text);
  Word(const std::string& text) : Word(std::string_view(text)) {}
  Word(const char* text) : Word(std::string_view(text)) {}
  Word(const Word& other);
  Word(Word&& other) noexcept : Word() { std::swap(text_, other.text_); }
  inline Word& operator=(Word other) noexcept {
    std::swap(text_, other.text_);
    return *this;
  }
  ~Word();

  // The text. Valid as long as the word is not changed.
  inline const std::string& str() const { return *text_; }
  inline operator const std::string&() const { return *text_; }
  inline operator std::string_view() const { return *text_; }

  inline bool empty() const { return text_->empty(); }
  inline const char* c_str() const { return text_->c_str(); }
  inline std::size_t size() const { return text_->size(); }
  inline bool starts_with(std::string_view text) const { return text_->starts_with(text); }
  inline std::string substr(std::size_t from, std::size_t count = std::string::npos) const {
    return text_->substr(from, count);
  }

  friend bool operator==(const Word& a, const Word& b) {
    return a.text_ == b.text_ || *a.text_ == *b.text_;
  }
  template <std::convertible_to<std::string_view> T>
  friend bool operator==(const Word& a, const T& b) {
    return std::string_view(*a.text_) == std::string_view(b);
  }
  template <std::convertible_to<std::string_view> T>
  friend std::string operator+(const Word& a, const T& b) {
    return *a.text_ + std::string(std::string_view(b));
  }
  friend std::string operator+(std::string a, const Word& b) { return std::move(a += *b.text_); }

 private:
  const std::string* text_;  // one of the static ones, or its own
};

}  // namespace zt
