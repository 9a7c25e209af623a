// zt.cli:numbers — slices: numpy's basic indexing, without new dimensions.
module;

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :numbers;
import :output;

namespace zt::cli::internal {
namespace {

using Int = std::int64_t;

std::string_view Trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(' ');
  if (begin == text.npos) return "";
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

std::vector<std::string_view> Split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (std::size_t end = 0; end != text.npos; text.remove_prefix(end == text.npos ? 0 : end + 1)) {
    end = text.find(at);
    parts.push_back(Trimmed(text.substr(0, end)));
  }
  return parts;
}

StatusOr<Int> ParseInteger(std::string_view text) {
  const auto value = ParseNumber<Int>(text);
  if (value && *value != std::numeric_limits<Int>::min()) return *value;
  return InvalidArgument(Quote(text) + " in the slice is neither an integer nor start:stop:step");
}

// One position of dimension `axis`, which goes.
StatusOr<Axis> ParsePosition(std::string_view text, std::uint64_t size, std::size_t axis) {
  ZT_ASSIGN_OR_RETURN(const Int given, ParseInteger(text));
  const Int position = given < 0 ? given + static_cast<Int>(size) : given;
  if (position < 0 || position >= static_cast<Int>(size)) {
    return InvalidArgument("position " + std::to_string(given) + " is not in dimension " +
                           std::to_string(axis) + ", which has size " + std::to_string(size));
  }
  return Axis{.first = static_cast<std::uint64_t>(position), .count = 1, .kept = false};
}

// start:stop:step, each of which may be missing; as Python's slice.indices().
StatusOr<Axis> ParseRange(std::string_view text, std::uint64_t length) {
  const auto size = static_cast<Int>(length);
  const std::vector<std::string_view> parts = Split(text, ':');
  if (parts.size() > 3)
    return InvalidArgument(Quote(text) + " in the slice has more than start, stop and step");
  Int step = 1;
  if (parts.size() == 3 && !parts[2].empty()) {
    ZT_ASSIGN_OR_RETURN(step, ParseInteger(parts[2]));
  }
  if (step == 0) return InvalidArgument("the step of a slice is not 0");
  const bool back = step < 0;
  const Int least = back ? -1 : 0, most = back ? size - 1 : size;
  const auto bound = [&](std::size_t i, Int missing) -> StatusOr<Int> {
    if (parts[i].empty()) return missing;
    ZT_ASSIGN_OR_RETURN(const Int given, ParseInteger(parts[i]));
    return std::clamp(given < 0 ? given + size : given, least, most);
  };
  ZT_ASSIGN_OR_RETURN(const Int start, bound(0, back ? most : least));
  ZT_ASSIGN_OR_RETURN(const Int stop, bound(1, back ? least : most));
  const Int distance = back ? start - stop : stop - start, stride = back ? -step : step;
  Axis axis{.step = static_cast<std::uint64_t>(stride), .reversed = back};
  if (distance <= 0) return axis;
  axis.count = static_cast<std::uint64_t>((distance - 1) / stride + 1);
  const Int last = start - (static_cast<Int>(axis.count) - 1) * stride;
  axis.first = static_cast<std::uint64_t>(back ? last : start);
  return axis;
}

}  // namespace

StatusOr<std::vector<Axis>> ParseSlice(std::string_view text,
                                       std::span<const std::uint64_t> shape) {
  std::vector<std::string_view> words;
  if (text.find('[') != text.npos)
    return InvalidArgument(
        "a slice holds no list of positions; show takes one, or start:stop:step");
  if (!Trimmed(text).empty()) words = Split(text, ',');
  if (words.size() > 1 && words.back().empty()) words.pop_back();  // "0,"
  const auto dots = static_cast<std::size_t>(std::ranges::count(words, "..."));
  if (dots > 1) return InvalidArgument("a slice has one '...' at most");
  if (words.size() - dots > shape.size()) {
    return InvalidArgument("the slice is of " + Counted(words.size() - dots, "dimension") +
                           ", the shape is " + ToString(shape));
  }
  const std::size_t whole = shape.size() - (words.size() - dots);
  if (dots == 0) words.push_back("...");
  std::vector<Axis> axes;
  for (const std::string_view word : words) {
    if (word == "...") {
      for (std::size_t i = 0; i < whole; ++i) axes.push_back({.count = shape[axes.size()]});
      continue;
    }
    const std::uint64_t size = shape[axes.size()];
    if (size > std::uint64_t{1} << 62) return Unsupported("shape " + ToString(shape));
    ZT_ASSIGN_OR_RETURN(const Axis axis, word.find(':') == word.npos
                                             ? ParsePosition(word, size, axes.size())
                                             : ParseRange(word, size));
    axes.push_back(axis);
  }
  return axes;
}

}  // namespace zt::cli::internal
