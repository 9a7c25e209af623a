// zt.cli:numbers — figures as text and as JSON.
module zt.cli;

import zt.std;
import :numbers;
import :output;

namespace zt::cli::internal {
namespace {

Json ToJson(const std::optional<Number>& number) {
  if (!number) return nullptr;
  return std::visit([](const auto& each) { return Json(each); }, *number);
}

}  // namespace

Json ToJson(const TensorStats& stats) {
  if (!stats.skipped.empty()) return {{"skipped", stats.skipped}};
  const NumberStats& numbers = stats.numbers;
  const bool any = numbers.finite > 0;
  return {{"count", numbers.finite + numbers.nan + numbers.inf},
          {"min", ToJson(numbers.min)},
          {"max", ToJson(numbers.max)},
          {"mean", any ? NumberJson(numbers.mean()) : Json()},
          {"std", any ? NumberJson(numbers.deviation()) : Json()},
          {"zeros", numbers.zeros},
          {"nan", numbers.nan},
          {"inf", numbers.inf}};
}

std::string NumberText(const Number& number, int digits) {
  if (const double* const real = std::get_if<double>(&number)) {
    char text[32];
    std::snprintf(text, sizeof text, "%.*g", digits, *real);
    return text;
  }
  return std::visit([](const auto& each) { return std::to_string(each); }, number);
}

std::string ExponentsText(const NumberStats& stats) {
  constexpr std::array<std::string_view, 9> kBlocks = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::size_t kMostColumns = 48;
  const auto& counts = stats.exponents;
  const auto is_there = [](std::uint64_t count) { return count > 0; };
  const auto first = std::ranges::find_if(counts, is_there);
  if (first == counts.end()) return "";
  auto last = counts.end();
  while (!is_there(*--last)) continue;
  const auto begin = static_cast<std::size_t>(first - counts.begin());
  const auto end = static_cast<std::size_t>(last - counts.begin()) + 1;
  const std::size_t each = (end - begin + kMostColumns - 1) / kMostColumns;  // exponents a column
  std::vector<std::uint64_t> columns;
  for (std::size_t at = begin; at < end; ++at) {
    if ((at - begin) % each == 0) columns.push_back(0);
    columns.back() += counts[at];
  }
  const std::uint64_t most = std::ranges::max(columns);
  const auto power = [](std::size_t place) {
    return "2^" + std::to_string(NumberStats::kLeastExponent + static_cast<int>(place));
  };
  std::string bars;
  for (const std::uint64_t count : columns) {
    const double share = static_cast<double>(count) / static_cast<double>(most);
    bars += kBlocks[count == 0 ? 0 : 1 + static_cast<std::size_t>(share * 7)];
  }
  return power(begin) + " " + bars + " " + power(end - 1);
}

}  // namespace zt::cli::internal
