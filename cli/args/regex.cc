// zt.cli — regular expressions by RE2, whose time is linear in the input and whose stack is
// bounded.
#include "cli/args/regex.h"

#include <string>
#include <string_view>

#include <re2/re2.h>

namespace zt::cli::internal {
namespace {

const RE2& Compiled(const void* regex) { return *static_cast<const RE2*>(regex); }

re2::StringPiece AsStringPiece(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

Regex::Regex(const std::string& pattern) {
  RE2::Options options;
  options.set_log_errors(false);
  compiled_ = new RE2(pattern, options);
}

Regex::~Regex() { delete &Compiled(compiled_); }

std::string Regex::error() const {
  std::string error = Compiled(compiled_).error();
  const std::string& where = Compiled(compiled_).error_arg();
  if (where.empty() || !error.ends_with(": " + where)) return error;
  error.resize(error.size() - where.size() - 2);
  return error + ", at '" + where + "'";
}

std::string Regex::RewriteError(const std::string& to) const {
  std::string error;
  return Compiled(compiled_).CheckRewriteString(to, &error) ? std::string() : error;
}

bool Regex::Matches(std::string_view text) const {
  return RE2::PartialMatch(AsStringPiece(text), Compiled(compiled_));
}

bool Regex::Replace(std::string& text, const std::string& to, bool all) const {
  return all ? RE2::GlobalReplace(&text, Compiled(compiled_), to) > 0
             : RE2::Replace(&text, Compiled(compiled_), to);
}

std::string QuoteMeta(std::string_view text) { return RE2::QuoteMeta(AsStringPiece(text)); }

}  // namespace zt::cli::internal
