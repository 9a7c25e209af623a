// zt.core:small — compact types for files with a million declarations: interned strings, and
// vectors with inline storage.
export module zt.core:small;

import zt.std;

export namespace absl {
using absl::operator<;  // found by argument-dependent lookup, as operator<< of Status
using absl::operator==;
}  // namespace absl

export namespace zt {

// A std::vector that stores up to N elements inline.
template <class T, std::size_t N>
using InlinedVector = absl::InlinedVector<T, N>;

// An interned string for names of formats, roles and types; used like a std::string. Names that the
// specification lists take eight bytes and no allocation; other texts are allocated.
class InternedString {
 public:
  inline InternedString() noexcept {}  // empty
  InternedString(std::string_view text);
  InternedString(const std::string& text) : InternedString(std::string_view(text)) {}
  InternedString(const char* text) : InternedString(std::string_view(text)) {}
  inline InternedString(const InternedString& other)
      : bits_(other.owns() ? Copied(other) : other.bits_) {}
  inline InternedString(InternedString&& other) noexcept : bits_(std::exchange(other.bits_, 0)) {}
  inline InternedString& operator=(InternedString other) noexcept {
    std::swap(bits_, other.bits_);
    return *this;
  }
  inline ~InternedString() {
    if (owns()) Free();
  }

  // The text. Valid until this string is assigned to.
  inline const std::string& str() const {
    return bits_ == 0 ? Empty() : *reinterpret_cast<const std::string*>(bits_ & ~kOwned);
  }
  inline operator const std::string&() const { return str(); }
  inline operator std::string_view() const {
    return bits_ == 0 ? std::string_view() : std::string_view(str());
  }

  inline bool empty() const { return bits_ == 0; }
  inline const char* c_str() const { return str().c_str(); }
  inline std::size_t size() const { return str().size(); }
  inline bool starts_with(std::string_view text) const { return str().starts_with(text); }
  inline std::string substr(std::size_t from, std::size_t count = std::string::npos) const {
    return str().substr(from, count);
  }

  friend bool operator==(const InternedString& a, const InternedString& b) {
    return a.bits_ == b.bits_ || a.str() == b.str();
  }
  template <std::convertible_to<std::string_view> T>
  friend bool operator==(const InternedString& a, const T& b) {
    return std::string_view(a) == std::string_view(b);
  }
  template <std::convertible_to<std::string_view> T>
  friend std::string operator+(const InternedString& a, const T& b) {
    return a.str() + std::string(std::string_view(b));
  }
  friend std::string operator+(std::string a, const InternedString& b) {
    return std::move(a += b.str());
  }

 private:
  static constexpr std::uintptr_t kOwned = 1;
  static const std::string& Empty();
  static std::uintptr_t Copied(const InternedString& other);
  inline bool owns() const { return (bits_ & kOwned) != 0; }
  void Free();

  // The address of a static text, or, with the bit kOwned set, of an allocated one. 0 if empty.
  std::uintptr_t bits_ = 0;
};

}  // namespace zt
