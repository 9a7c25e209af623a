// testing — what the tests share: GoogleTest, the standard library, statuses as
// expectations, bytes, files.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "little_endian.h"

import zt.core;

namespace zt_test {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// ---- statuses: a Status or a StatusOr -----------------------------------------------------------

template <typename Result>
const auto& StatusOf(const Result& result) {
  if constexpr (requires { result.status(); }) {
    return result.status();
  } else {
    return result;
  }
}

// The message with file and tensor; "" of what is well.
template <typename Result>
std::string Why(const Result& result) {
  return zt::Message(StatusOf(result));
}

template <typename Result>
::testing::AssertionResult IsOk(const Result& result) {
  if (result.ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << StatusOf(result);
}
#define ASSERT_OK(...) ASSERT_TRUE(::zt_test::IsOk(__VA_ARGS__))
#define EXPECT_OK(...) EXPECT_TRUE(::zt_test::IsOk(__VA_ARGS__))

// The value; the test fails where there is none.
template <typename StatusOr>
auto Must(StatusOr result) {
  if (!result.ok()) throw std::runtime_error(Why(result));
  return *std::move(result);
}

// EXPECT_THAT(result, Fails(StatusCode::kDataLoss, "the message, or a matcher of it"));
MATCHER_P2(Fails, code, message, "") {
  *result_listener << StatusOf(arg) << "; ";
  return StatusOf(arg).code() == code && ExplainMatchResult(message, Why(arg), result_listener);
}

// ---- bytes --------------------------------------------------------------------------------------

using Bytes = std::vector<std::byte>;

inline std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
inline Bytes ToBytes(std::string_view text) { return {BytesOf(text).begin(), BytesOf(text).end()}; }
inline std::string ToText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
// "82 01 f6" -> three bytes.
inline Bytes Hex(std::string_view text) {
  std::string digits(text);
  std::erase(digits, ' ');
  Bytes out;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    out.push_back(static_cast<std::byte>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  }
  return out;
}
inline std::string ToHex(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte b : bytes) {
    out += "0123456789abcdef"[std::to_integer<unsigned>(b) >> 4];
    out += "0123456789abcdef"[std::to_integer<unsigned>(b) & 15];
  }
  return out;
}
// The low `width` bytes of each number, little-endian.
inline Bytes Words(const std::vector<std::uint64_t>& values, std::size_t width = 8) {
  Bytes out;
  for (const std::uint64_t value : values) {
    for (std::size_t i = 0; i < width; ++i) out.push_back(static_cast<std::byte>(value >> 8 * i));
  }
  return out;
}
inline Bytes RandomBytes(std::size_t size, unsigned seed = 1) {
  std::mt19937 random(seed);
  Bytes out(size);
  for (std::byte& byte : out) byte = static_cast<std::byte>(random());
  return out;
}
// 0, 1, 2 ... below `count`.
inline std::vector<std::uint32_t> Indices(std::size_t count) {
  std::vector<std::uint32_t> all(count);
  std::iota(all.begin(), all.end(), 0u);
  return all;
}
inline Bytes Slice(const Bytes& bytes, std::uint64_t offset, std::uint64_t size) {
  const auto part = std::span(bytes).subspan(offset, size);
  return {part.begin(), part.end()};
}
inline void Extend(Bytes& bytes, std::span<const std::byte> more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

// ---- files --------------------------------------------------------------------------------------

// Of a file below tests/data.
inline std::string DataPath(std::string_view name) {
  return std::string(ZT_TEST_DATA) + "/" + std::string(name);
}
inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}
inline Bytes ReadBytes(const std::string& path) { return ToBytes(ReadFile(path)); }
inline void WriteFile(const std::string& path, std::string_view content) {
  std::ofstream(path, std::ios::binary) << content;
}
inline void WriteFile(const std::string& path, std::span<const std::byte> content) {
  WriteFile(path, ToText(content));
}

// A folder of a test's own, removed with all it holds.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "ztstream-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~TempFolder() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

  // The names in it, sorted.
  std::vector<std::string> Entries() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::string path_;
};

}  // namespace zt_test

namespace zt {
using namespace zt_test;  // NOLINT: for tests alone
}  // namespace zt
