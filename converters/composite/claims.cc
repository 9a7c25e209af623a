// zt.convert.composite:weights — what a configuration says of modules.
module zt.convert.composite;

import zt.std;
import :scheme;
import :weights;
import zt.core;

namespace zt::composite::internal {
namespace {

// The most parts ("a.b.c" has three) of an entry that names a module: one with more names none.
constexpr std::size_t kMostPartsOfName = 32;
// The most entries with wildcards elsewhere than at their end; more are not compared.
constexpr std::size_t kMostPatterns = 1000;

// A pair of positive numbers; nullopt for anything else.
std::optional<std::pair<std::uint64_t, std::uint64_t>> BlockOf(const Value::Map& map,
                                                               std::string_view key) {
  const Value* const value = FindMember(map, key);
  if (value == nullptr || value->AsArray() == nullptr || value->AsArray()->size() != 2)
    return std::nullopt;
  const std::uint64_t* const rows = (*value->AsArray())[0].AsUint();
  const std::uint64_t* const columns = (*value->AsArray())[1].AsUint();
  if (rows == nullptr || columns == nullptr || *rows == 0 || *columns == 0) return std::nullopt;
  return std::make_pair(*rows, *columns);
}

const Value::Map* MapIn(const Value::Map& map, std::string_view key) {
  const Value* const value = FindMember(map, key);
  return value == nullptr ? nullptr : value->AsMap();
}

bool EndsPart(char c) { return c == '.' || c == '/'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::optional<NamePattern> NamePattern::OfGlob(std::string_view text) {
  NamePattern out;
  for (const char c : text)
    out.tokens_.push_back(c == '*' ? kAnything : c == '?' ? kAny : Token{c});
  return out;
}

std::optional<NamePattern> NamePattern::OfRegex(std::string_view text) {
  NamePattern out;
  bool ends = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = text.substr(i);
    const auto one_of = [&](std::string_view characters, std::size_t at) {
      return at < rest.size() && characters.find(rest[at]) != characters.npos;
    };
    if (rest == "$") {
      ends = true;
    } else if (rest[0] == '^' && i == 0) {  // where a match begins in any case
    } else if (rest.starts_with(".*") || rest.starts_with(".+")) {
      if (rest[1] == '+') out.tokens_.push_back(kAny);
      out.tokens_.push_back(kAnything);
      ++i;
    } else if (rest.starts_with("\\d+") || rest.starts_with("[0-9]+")) {
      out.tokens_.push_back(kDigits);
      i += rest[0] == '[' ? 5 : 2;
    } else if (rest[0] == '\\' && one_of(".-_/", 1)) {
      out.tokens_.push_back({rest[1]});
      ++i;
    } else if (one_of("\\^$*+?()[]{}|", 0)) {
      return std::nullopt;
    } else {
      out.tokens_.push_back(rest[0] == '.' ? kAny : Token{rest[0]});
    }
  }
  if (!ends) out.tokens_.push_back(kAnything);
  return out;
}

bool NamePattern::Matches(std::string_view name, std::uint64_t& steps) const {
  std::size_t token = 0, at = 0;
  std::optional<std::pair<std::size_t, std::size_t>> retry;  // after the last kAnything
  while (steps > 0) {
    --steps;
    if (token == tokens_.size() && at == name.size()) return true;
    if (token < tokens_.size() && tokens_[token] == kAnything) {
      retry = {++token, at};
      continue;
    }
    if (token < tokens_.size() && at < name.size()) {
      const Token each = tokens_[token];
      if (each == kDigits && IsDigit(name[at])) {
        while (at < name.size() && IsDigit(name[at])) ++at;
        ++token;
        continue;
      }
      if (each == kAny || each == Token{name[at]}) {
        ++token;
        ++at;
        continue;
      }
    }
    if (!retry || retry->second == name.size()) return false;
    token = retry->first;
    at = ++retry->second;
  }
  return false;
}

Claims::Claims(const Configuration& config) : file_(config.file) {
  block = BlockOf(config.content, "weight_block_size");
  if (const Value::Map* const groups = MapIn(config.content, "config_groups")) {
    for (const auto& entry : *groups) {  // name, group
      const Value::Map* const group = entry.second.AsMap();
      const Value::Map* const weights = group == nullptr ? nullptr : MapIn(*group, "weights");
      if (weights == nullptr) continue;
      Group kind = {FindInteger(*weights, "num_bits"), FindInteger(*weights, "group_size"),
                    FindString(*weights, "type").value_or("int"),
                    FindString(*weights, "strategy").value_or("")};
      const bool known = std::ranges::any_of(groups_, [&](const Group& other) {
        return std::tie(kind.bits, kind.size, kind.type, kind.strategy) ==
               std::tie(other.bits, other.size, other.type, other.strategy);
      });
      if (!known && groups_.size() <= kMostKinds) groups_.push_back(std::move(kind));
      const auto own = BlockOf(*weights, "block_structure");
      if (!own) without_blocks = true;
      if (!block) block = own;
    }
  }
  for (const std::string_view key : {"modules_to_not_convert", "ignore", "ignored_layers",
                                     "exclude_modules", "llm_int8_skip_modules"}) {
    const Value* const list = FindMember(config.content, key);
    if (list == nullptr || list->AsArray() == nullptr) continue;
    for (const Value& each : *list->AsArray()) {
      if (each.AsString() != nullptr) AddIgnored(*each.AsString());
    }
  }
}

void Claims::AddIgnored(std::string_view text) {
  if (text.empty()) return;
  const bool regex = text.starts_with("re:");
  if (!regex && text.find_first_of("*?") == text.size() - 1 && text.back() == '*') {
    text.remove_suffix(1);
    prefix_lengths_.insert(text.size());
    prefixes_.emplace(text);
    return;
  }
  if (regex || text.find_first_of("*?") != text.npos) {
    auto pattern = regex ? NamePattern::OfRegex(text.substr(3)) : NamePattern::OfGlob(text);
    if (pattern && patterns_.size() < kMostPatterns) patterns_.push_back(*std::move(pattern));
    return;
  }
  const auto parts = 1 + static_cast<std::size_t>(std::ranges::count_if(text, EndsPart));
  if (parts > kMostPartsOfName) return;
  most_parts_ = std::max(most_parts_, parts);
  ignored_.emplace(text);
}

bool Claims::IsIgnored(std::string_view name) const {
  if (name.ends_with(".weight")) name.remove_suffix(7);
  // Each run of at most most_parts_ parts.
  for (std::size_t begin = 0; !ignored_.empty(); ++begin) {
    std::size_t end = begin;
    for (std::size_t parts = 0; parts < most_parts_ && end <= name.size(); ++parts, ++end) {
      while (end < name.size() && !EndsPart(name[end])) ++end;
      if (ignored_.contains(name.substr(begin, end - begin))) return true;
    }
    while (begin < name.size() && !EndsPart(name[begin])) ++begin;
    if (begin == name.size()) break;
  }
  for (const std::size_t length : prefix_lengths_) {
    if (length <= name.size() && prefixes_.contains(name.substr(0, length))) return true;
  }
  return std::ranges::any_of(
      patterns_, [&](const NamePattern& pattern) { return pattern.Matches(name, steps_); });
}

Status Claims::CheckSteps() const {
  if (steps_ > 0) return OkStatus();
  return InvalidData("comparing the tensors with the patterns of " + file_ +
                     " takes too long; name the modules that are not quantized");
}

Status Claims::CheckGroups(const Weight& weight, std::string_view type) const {
  if (groups_.empty()) return OkStatus();
  if (groups_.size() > kMostKinds) {
    return InvalidData("config_groups of " + file_ + " has more than " +
                       std::to_string(kMostKinds) + " kinds of weights");
  }
  std::string says;
  for (const Group& group : groups_) {
    const bool sized =
        (group.strategy.empty() || group.strategy.ends_with("group")) && group.size.value_or(0) > 0;
    if (group.bits.value_or(0) == weight.bits && group.type == type &&
        (!sized || static_cast<std::uint64_t>(*group.size) == weight.blocks.block_columns))
      return OkStatus();
    says = group.type + " of " + std::to_string(group.bits.value_or(0)) + " bits" +
           (sized ? ", groups of " + std::to_string(*group.size) : "");
  }
  return InvalidData("its shapes say " + std::string(type) + " of " + std::to_string(weight.bits) +
                     " bits, groups of " + std::to_string(weight.blocks.block_columns) + "; " +
                     file_ + " says " + says);
}

}  // namespace zt::composite::internal
