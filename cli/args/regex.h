// Regular expressions and replacements by RE2. A plain unit, because the header of RE2 and the
// module zt.std cannot be used in the same unit.
#pragma once

#include <string>
#include <string_view>

namespace zt::cli::internal {

// A compiled expression. Thread-safe.
class Regex {
 public:
  explicit Regex(const std::string& pattern);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  // The error of RE2 for the pattern, or an empty string. If it is not empty, the other functions
  // must not be called.
  std::string error() const;
  // The problem with `to` as a replacement; empty if it is valid.
  std::string RewriteError(const std::string& to) const;
  // True if some part of `text` matches.
  bool Matches(std::string_view text) const;
  // Replaces the first match, or all matches, by `to`, in which \1 is the first group. Returns
  // false if nothing matched.
  bool Replace(std::string& text, const std::string& to, bool all) const;

 private:
  const void* compiled_;  // an RE2
};

// `text` with all special characters of regular expressions escaped.
std::string QuoteMeta(std::string_view text);

}  // namespace zt::cli::internal
