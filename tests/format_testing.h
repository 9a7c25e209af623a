// Shared by the zt.format tests: reading fixtures, and CBOR put together by hand.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace zt::testing_format {

using Bytes = std::vector<std::byte>;

inline Bytes ToBytes(std::string_view text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return Bytes(data, data + text.size());
}

inline std::string ToText(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// "82 01 f6" -> three bytes.
inline Bytes Hex(std::string_view text) {
  Bytes out;
  std::string digits;
  for (const char c : text) {
    if (c != ' ') digits += c;
  }
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    out.push_back(static_cast<std::byte>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  }
  return out;
}

inline std::string ToHex(const Bytes& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const std::byte b : bytes) {
    out += kDigits[std::to_integer<unsigned>(b) >> 4];
    out += kDigits[std::to_integer<unsigned>(b) & 15];
  }
  return out;
}

inline std::string ReadText(const std::string& path) {
  std::ifstream in(std::string(ZT_TEST_DATA) + "/" + path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

inline Bytes ReadFile(const std::string& path) { return ToBytes(ReadText(path)); }

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

}  // namespace zt::testing_format
