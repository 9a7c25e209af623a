// zt.core:small — bodies.
module;

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <string_view>

module zt.core;

namespace zt {
namespace {

using Words = std::array<std::string, 25>;

// The words that take no memory, the most frequent first. They are never destroyed: words of static objects may outlive
// any other.
[[gnu::always_inline]] inline const Words& Listed() {
  static const Words& words =
      *new const Words{"",          "data",       "dense",      "values",      "indices",
                       "indptr",    "coords",     "sparse_csr", "sparse_coo",  "quantized_group",
                       "scales",    "zeros",      "g_idx",      "sparse",      "packed_weight",
                       "f8_e4m3fn", "f8_e5m2",    "f8_e8m0",    "f8_e4m3fnuz", "f8_e5m2fnuz",
                       "complex64", "complex128", "f4_e2m1",    "f6_e2m3",     "f6_e3m2"};
  return words;
}

bool IsListed(const std::string* word) {
  const Words& words = Listed();
  return !std::less<>()(word, words.data()) && std::less<>()(word, words.data() + words.size());
}

}  // namespace

Word::Word() : text_(Listed().data()) {}

Word::Word(std::string_view text) {
  const Words& words = Listed();
  const auto* const listed = std::find(words.begin(), words.end(), text);
  text_ = listed != words.end() ? listed : new std::string(text);
}

Word::Word(const Word& other)
    : text_(IsListed(other.text_) ? other.text_ : new std::string(*other.text_)) {}

Word::~Word() {
  if (!IsListed(text_)) delete text_;
}

}  // namespace zt
