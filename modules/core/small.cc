// zt.core:small — the table of interned strings.
module zt.core;

import zt.std;

namespace zt {
namespace {

using Words = std::array<std::string, 24>;

// The interned words, the most frequent first. Never destroyed: an InternedString in a static
// object may outlive any other static.
[[gnu::always_inline]] inline const Words& Listed() {
  static const Words& words = *new const Words{
      "data",        "dense",         "values",          "indices", "indptr",  "coords",
      "sparse_csr",  "sparse_coo",    "quantized_group", "scales",  "zeros",   "g_idx",
      "sparse",      "packed_weight", "f8_e4m3fn",       "f8_e5m2", "f8_e8m0", "f8_e4m3fnuz",
      "f8_e5m2fnuz", "complex64",     "complex128",      "f4_e2m1", "f6_e2m3", "f6_e3m2"};
  return words;
}

std::uintptr_t Address(const std::string* text) { return reinterpret_cast<std::uintptr_t>(text); }

}  // namespace

static_assert(alignof(std::string) > 1);  // a bit of its address is free

InternedString::InternedString(std::string_view text) {
  if (text.empty()) return;
  for (const std::string& listed : Listed()) {
    if (text != listed) continue;
    bits_ = Address(&listed);
    return;
  }
  bits_ = Address(new std::string(text)) | kOwned;
}

const std::string& InternedString::Empty() {
  static const std::string& empty = *new const std::string;
  return empty;
}

std::uintptr_t InternedString::Copied(const InternedString& other) {
  return Address(new std::string(other.str())) | kOwned;
}

void InternedString::Free() { delete &str(); }

}  // namespace zt
