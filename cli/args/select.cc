// zt.cli:rules — regular expressions are those of RE2, shell patterns those of fnmatch.
module;

#include <fnmatch.h>

#include "cli/args/regex.h"
#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :options;
import :output;
import :rules;

namespace zt::cli::internal {
namespace {

constexpr std::string_view kGlob = "glob:";
// No word of a command line begins with it: the rest is a name.
constexpr char kIsName = '\0';
constexpr std::uint64_t kMostListed = std::uint64_t{256} << 20;

bool MatchesGlob(const std::string& glob, std::string_view name) {
  return ::fnmatch(glob.c_str(), std::string(name).c_str(), 0) == 0;
}

// True if a word may be a shell pattern: it has a wildcard, and no syntax of regular expressions
// only.
bool MayBeGlob(std::string_view word) {
  const auto either = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("._-/:*?[]").find(c) != std::string_view::npos;
  };
  return word.find_first_of("*?") != word.npos && std::ranges::all_of(word, either);
}

std::string Meant(std::string_view word, std::span<const std::string_view> names) {
  // One or two letters are similar to too much.
  const std::string_view meant = word.size() < 3 ? std::string_view() : Nearest(word, names);
  return meant.empty() ? "" : "; did you mean " + Quote(meant) + "?";
}

}  // namespace

std::vector<std::string_view> NamesOf(const TensorSource& source) {
  std::vector<std::string_view> names;
  for (const Object& object : source.objects()) {
    if (!IsFile(object)) names.push_back(object.name);
  }
  std::ranges::sort(names);
  return names;
}

std::string MeantOrListed(std::string_view word, std::span<const std::string_view> names) {
  const std::string meant = Meant(word, names);
  return meant.empty() ? "; ztstream inspect lists them" : meant;
}

Status ReadLines(const std::string& path, std::vector<std::string>& words) {
  const auto bytes = WithFile(OpenNamed(path, *LocalStore()), path);
  if (!bytes.ok()) return bytes.status();
  ZT_ASSIGN_OR_RETURN(const std::string text, WithFile(ReadAll(**bytes, kMostListed), path));
  const char end = text.find('\0') == text.npos ? '\n' : '\0';
  std::unordered_set<std::string_view> seen;
  for (std::size_t at = 0, next = 0; at < text.size(); at = next + 1) {
    next = std::min(text.find(end, at), text.size());
    const auto line = std::string_view(text).substr(at, next - at);
    if (line.empty() || !seen.insert(line).second) continue;
    words.push_back((line.starts_with(kGlob) ? "" : std::string(1, kIsName)) + std::string(line));
  }
  // No --include would mean all.
  return words.empty() ? WithFile(InvalidArgument("it has no line"), path) : OkStatus();
}

struct Pattern::State {
  enum class Kind { kName, kGlob, kRegex } kind = Kind::kRegex;
  std::string word;  // without "glob:"
  std::unique_ptr<const Regex> regex = nullptr;
  std::size_t as_regex = 0, as_glob = 0;  // number of matching names, if it may be both
  std::string meant;                      // see Pattern::meant
};

Pattern::Pattern(std::string option, std::string word) : state_(std::make_shared<State>()) {
  if (word.starts_with(kIsName)) {
    state_->kind = State::Kind::kName;
    word.erase(0, 1);
  }
  text_ = option + (option.empty() ? "'" : " '") + word + "'";
  state_->word = std::move(word);
}

Status Pattern::Resolve(std::span<const std::string_view> names) {
  State& state = *state_;
  if (state.kind == State::Kind::kName) return OkStatus();
  if (std::ranges::binary_search(names, std::string_view(state.word))) {
    state.kind = State::Kind::kName;
    return OkStatus();
  }
  if (state.word.starts_with(kGlob)) {
    state.kind = State::Kind::kGlob;
    state.word.erase(0, kGlob.size());
    return OkStatus();
  }
  state.regex = std::make_unique<const Regex>(state.word);
  const std::string hint = "; a shell pattern is written 'glob:" + state.word + "'";
  if (const std::string error = state.regex->error(); !error.empty()) {
    const bool wildcard = state.word.find_first_of("*?") != std::string::npos;
    return InvalidArgument(text_ + " is not a tensor's name, and as a regular expression: " +
                           error + (wildcard ? hint : ""));
  }
  const auto matches = [&](std::string_view name) { return state.regex->Matches(name); };
  if (!MayBeGlob(state.word)) {
    if (std::ranges::none_of(names, matches)) state.meant = Meant(state.word, names);
    return OkStatus();
  }
  const bool letters = std::ranges::any_of(
      state.word, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; });
  if (letters && state.regex->Matches("")) {
    return InvalidArgument(text_ + " matches every name as a regular expression" + hint);
  }
  for (const std::string_view name : names) {
    state.as_regex += matches(name) ? 1 : 0;
    state.as_glob += MatchesGlob(state.word, name) ? 1 : 0;
  }
  return OkStatus();
}

bool Pattern::Matches(std::string_view name) const {
  switch (state_->kind) {
    case State::Kind::kName:
      return name == state_->word;
    case State::Kind::kGlob:
      return MatchesGlob(state_->word, name);
    case State::Kind::kRegex:
      return state_->regex->Matches(name);
  }
}

std::string Pattern::warning() const {
  const State& state = *state_;
  if (state.as_glob == 0 || state.as_glob >= state.as_regex) return "";
  return text_ + " is a regular expression and matches " + Counted(state.as_regex, "tensor") +
         "; a shell pattern, 'glob:" + state.word + "', matches " + std::to_string(state.as_glob);
}

const std::string& Pattern::meant() const { return state_->meant; }

std::string_view Pattern::name() const {
  return state_->kind == State::Kind::kName ? std::string_view(state_->word) : std::string_view();
}

Patterns::Patterns(const std::string& option, std::span<const std::string> words) {
  for (const std::string& word : words) uses_.push_back({Pattern(option, word)});
}

Status Patterns::Resolve(std::span<const std::string_view> names) {
  for (std::size_t i = 0; i < uses_.size(); ++i) {
    ZT_RETURN_IF_ERROR(uses_[i].pattern.Resolve(names));
    const std::string_view name = uses_[i].pattern.name();
    if (name.empty() || !named_.emplace(name, i).second) others_.push_back(i);
  }
  return OkStatus();
}

bool Patterns::Match(std::string_view name) {
  bool matches = false;
  const auto count = [&](Use& use) {
    if (++use.tensors == 1) use.first = name;
    matches = true;
  };
  if (const auto found = named_.find(name); found != named_.end()) count(uses_[found->second]);
  for (const std::size_t i : others_) {
    if (uses_[i].pattern.Matches(name)) count(uses_[i]);
  }
  return matches;
}

Selector::Selector(const Args& args)
    : include_("--include", args.include), exclude_("--exclude", args.exclude) {}

Status Selector::Resolve(std::span<const std::string_view> names) {
  ZT_RETURN_IF_ERROR(include_.Resolve(names));
  return exclude_.Resolve(names);
}

bool Selector::Selects(std::string_view name) {
  const bool included = include_.empty() || include_.Match(name);
  const bool selected = !exclude_.Match(name) && included;
  ++asked_;
  selected_ += selected ? 1 : 0;
  return selected;
}

Status Selector::CheckAnyLeft(const std::string& file) const {
  if (!active() || !left_none()) return OkStatus();
  return WithFile(InvalidArgument("--include and --exclude leave no tensor of " +
                                  std::to_string(asked_) + "; 'ztstream inspect' lists the names"),
                  file);
}

std::vector<std::string> Selector::Warnings() const {
  std::vector<std::string> lines;
  for (const Patterns* patterns : {&include_, &exclude_}) {
    for (const auto& [pattern, tensors, first] : patterns->uses()) {
      const std::string unused =
          pattern.text() + " matches the name of no tensor" + pattern.meant();
      const std::string line = tensors == 0 ? unused : pattern.warning();
      if (!line.empty()) lines.push_back(line);
    }
  }
  return lines;
}

std::vector<std::string> Selector::Uses() const {
  std::vector<std::string> lines;
  for (const Patterns* patterns : {&include_, &exclude_}) {
    for (const auto& [pattern, tensors, first] : patterns->uses())
      lines.push_back(pattern.text() + ": " + Counted(tensors, "tensor"));
  }
  return lines;
}

}  // namespace zt::cli::internal
