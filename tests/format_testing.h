// Shared by the zt.format tests: CBOR put together by hand.
#pragma once

#include "testing.h"

namespace zt::testing_format {

// CBOR by hand, for input no encoder would write. Lengths below 65536.
inline std::string Head(unsigned major, std::size_t count) {
  std::string out;
  if (count < 24) {
    out += static_cast<char>(major << 5 | count);
  } else if (count < 256) {
    out += static_cast<char>(major << 5 | 24);
    out += static_cast<char>(count);
  } else {
    out += static_cast<char>(major << 5 | 25);
    out += static_cast<char>(count >> 8);
    out += static_cast<char>(count & 255);
  }
  return out;
}
inline std::string Uint(std::size_t value) { return Head(0, value); }
inline std::string Text(std::string_view text) { return Head(3, text.size()) + std::string(text); }
inline std::string Array(std::initializer_list<std::string> items) {
  std::string out = Head(4, items.size());
  for (const std::string& item : items) out += item;
  return out;
}
// Keys are given as text, values encoded: {"offset", Uint(64), ...}.
inline std::string Map(std::initializer_list<std::string> pairs) {
  std::string out = Head(5, pairs.size() / 2);
  bool key = true;
  for (const std::string& part : pairs) {
    out += key ? Text(part) : part;
    key = !key;
  }
  return out;
}

// The same of arguments, which the formatter packs better.
template <typename... Items>
  requires(sizeof...(Items) > 0 && (std::convertible_to<Items, std::string> && ...))
std::string Array(const Items&... items) {
  return Array({std::string(items)...});
}
template <typename... Items>
  requires(sizeof...(Items) > 0 && (std::convertible_to<Items, std::string> && ...))
std::string Map(const Items&... items) {
  return Map({std::string(items)...});
}

}  // namespace zt::testing_format
