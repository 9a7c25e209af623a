// zt.convert.shards — reads the names of shards and indices, and an index.
module;

#include "core/status_macros.h"

module zt.convert.shards;

import zt.std;
import zt.core;
import zt.source;

namespace zt {
namespace {

constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{1} << 30;
constexpr std::string_view kOf = "-of-";

bool IsOneOf(char c, std::string_view characters) { return characters.find(c) != characters.npos; }

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// True if a name goes on behind the count of shards: "-fp8.safetensors".
bool IsBoundary(std::string_view rest) { return rest.empty() || IsOneOf(rest.front(), "-_."); }

// The last place before `end` of "-of-", in any case, or with "_".
std::size_t FindOf(std::string_view file, std::size_t end) {
  while (end-- > 0) {
    const std::string_view at = file.substr(end, kOf.size());
    if (at.size() == kOf.size() && IsOneOf(at[0], "-_") && IsOneOf(at[3], "-_") &&
        Lower(at.substr(1, 2)) == "of")
      return end;
  }
  return file.npos;
}

// Removes the number at the end of `text` and returns it; nullopt if there is none, or it has
// more than nine digits.
std::optional<std::uint64_t> TakeNumber(std::string_view& text) {
  std::size_t begin = text.size();
  while (begin > 0 && IsDigit(text[begin - 1])) --begin;
  const std::string_view digits = text.substr(begin);
  if (digits.empty() || digits.size() > 9) return std::nullopt;
  text.remove_suffix(digits.size());
  std::uint64_t value = 0;
  for (const char digit : digits) value = value * 10 + static_cast<std::uint64_t>(digit - '0');
  return value;
}

}  // namespace

std::optional<ShardName> ParseShardName(std::string_view file, std::string_view suffix) {
  if (!file.ends_with(suffix)) return std::nullopt;
  const std::size_t folder = file.rfind('/') + 1;  // 0 if there is none
  for (std::size_t of = file.size(); (of = FindOf(file, of)) != file.npos && of >= folder;) {
    std::size_t end = of + kOf.size();
    while (end < file.size() && IsDigit(file[end])) ++end;
    std::string_view before = file.substr(0, of), number = file.substr(0, end);
    const auto count = TakeNumber(number);
    const auto part = TakeNumber(before);
    if (!count || !part || *part > *count || !IsBoundary(file.substr(end)) ||
        !(before.empty() || IsOneOf(before.back(), "-_./")))
      continue;
    std::string set = std::string(before) + "*" + std::string(file.substr(of));
    const int width = static_cast<int>(of - before.size());
    if (!before.empty() && before.back() != '/') before.remove_suffix(1);
    return ShardName{std::string(before),           *part,          *count,
                     std::string(file.substr(end)), std::move(set), width};
  }
  return std::nullopt;
}

std::optional<IndexName> ParseIndexName(std::string_view file) {
  constexpr std::string_view kEnd = ".json", kIndex = ".index";
  if (!file.ends_with(kEnd)) return std::nullopt;
  file.remove_suffix(kEnd.size());
  std::string_view variant;
  if (!file.ends_with(kIndex)) {
    const std::size_t dot = file.rfind('.');
    if (dot == file.npos || !file.substr(0, dot).ends_with(kIndex)) return std::nullopt;
    variant = file.substr(dot + 1);
    file = file.substr(0, dot);
  }
  file.remove_suffix(kIndex.size());
  const std::size_t dot = file.rfind('.');
  if (dot == file.npos || file.find('/', dot) != file.npos) return std::nullopt;
  return IndexName{std::string(file.substr(0, dot)), std::string(file.substr(dot)),
                   std::string(variant)};
}

bool IsIndexOf(std::string_view file, std::string_view suffix) {
  const auto name = ParseIndexName(file);
  return name && name->suffix == suffix;
}

StatusOr<ShardIndex> ReadShardIndex(const std::string& path, Store& store) {
  ZT_ASSIGN_OR_RETURN(const std::shared_ptr<ByteSource> bytes, store.Open(path));
  ZT_ASSIGN_OR_RETURN(std::string text, ReadAll(*bytes, kMaxIndexBytes));
  return ParseShardIndex(std::move(text));
}

}  // namespace zt
