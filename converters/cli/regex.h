// Regular expressions and replacements, over RE2. Plain: RE2's header and the module zt.std cannot meet in one unit.
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

  // RE2's words for a fault of the pattern; empty if there is none. The other calls then must not be made.
  std::string error() const;
  // What is wrong with `to` as the replacement of a match; empty if nothing is.
  std::string RewriteError(const std::string& to) const;
  // Whether some part of `text` matches.
  bool Matches(std::string_view text) const;
  // Replaces the first match, or every one, by `to`, in which \1 is the first group. Whether there was one.
  bool Replace(std::string& text, const std::string& to, bool all) const;

 private:
  const void* compiled_;  // an RE2
};

// `text` with every character escaped that means something in an expression.
std::string QuoteMeta(std::string_view text);

}  // namespace zt::cli::internal
