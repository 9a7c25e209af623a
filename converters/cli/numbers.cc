// zt.cli:numbers — bodies.
module zt.cli;

import zt.std;
import :args;
import :numbers;
import zt;

namespace zt::cli {
namespace {

template <typename T, typename... Format>
std::optional<T> ParseWhole(std::string_view text, Format... format) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value, format...);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::uint64_t> ParseNumber(std::string_view text) {
  return ParseWhole<std::uint64_t>(text);
}

std::optional<double> ParseDecimal(std::string_view text) {
  const auto value = ParseWhole<double>(text, std::chars_format::fixed);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<std::uint64_t> ParseSize(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view number = text.substr(0, digits);
  std::string unit(text.substr(std::min(text.find_first_not_of(' ', digits), text.size())));
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::uint64_t factor = 1;
  if (!unit.empty() && unit != "b") {
    const std::size_t power = std::string_view("kmgt").find(unit[0]);
    if (power == std::string_view::npos) return std::nullopt;
    const std::string_view rest = std::string_view(unit).substr(1);
    if (!rest.empty() && rest != "ib" && rest != "b") return std::nullopt;
    for (std::size_t i = 0; i <= power; ++i) factor *= rest == "b" ? 1000 : 1024;
  }
  if (const auto whole = ParseNumber(number)) return CheckedMul(*whole, factor);
  const auto fraction = ParseDecimal(number);
  if (!fraction || *fraction * static_cast<double>(factor) >= 0x1p64) return std::nullopt;
  return static_cast<std::uint64_t>(*fraction * static_cast<double>(factor));
}

std::optional<ZstdChoice> ParseZstd(std::string_view text) {
  if (text == "huffman") return ZstdChoice{.huffman = true};
  if (text == "planes") return ZstdChoice{.huffman = true, .planes = true};
  const auto level = ParseWhole<int>(text);
  return level ? std::optional(ZstdChoice{.level = *level}) : std::nullopt;
}

}  // namespace zt::cli
