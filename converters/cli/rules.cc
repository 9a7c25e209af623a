// zt.cli:rules — bodies. Patterns are RE2: no input, however long its names, can make one slow or overflow a stack.
module;

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <re2/re2.h>

#include "core/status_macros.h"

module zt.cli;

import :rules;
import zt;

namespace zt::cli::internal {
namespace {

using Regex = std::shared_ptr<const RE2>;

StatusOr<Regex> Compile(const std::string& pattern, const std::string& option) {
  RE2::Options options;
  options.set_log_errors(false);
  auto regex = std::make_shared<const RE2>(pattern, options);
  if (!regex->ok()) return InvalidArgument(option + " " + Quote(pattern) + ": " + regex->error());
  return regex;
}

bool Matches(const Regex& regex, const std::string& name) {
  return RE2::PartialMatch(name, *regex);
}

struct RenameRule {
  Regex from;
  std::string to;
  bool global = false;
};

// s/REGEX/TEXT/ or s/REGEX/TEXT/g, with any delimiter; \1 in TEXT is a group.
StatusOr<RenameRule> ParseRename(const std::string& text) {
  const auto wrong = [&](std::string_view why) {
    return InvalidArgument("--rename " + Quote(text) + ": " + std::string(why) +
                           "; write 's/REGEX/TEXT/'");
  };
  if (text.size() < 4 || text[0] != 's') return wrong("it does not begin with s/");
  const char delimiter = text[1];
  std::vector<std::string> parts(1);
  for (std::size_t i = 2; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      if (text[i + 1] != delimiter) parts.back() += '\\';
      parts.back() += text[++i];
    } else if (text[i] == delimiter && parts.size() < 3) {
      parts.emplace_back();
    } else {
      parts.back() += text[i];
    }
  }
  if (parts.size() != 3) return wrong("a delimiter is missing");
  if (!parts[2].empty() && parts[2] != "g") return wrong("unknown flag " + Quote(parts[2]));
  RenameRule rule;
  ZT_ASSIGN_OR_RETURN(rule.from, Compile(parts[0], "--rename"));
  rule.to = parts[1];
  rule.global = parts[2] == "g";
  std::string error;
  if (!rule.from->CheckRewriteString(rule.to, &error)) return wrong(error);
  return rule;
}

struct DTypeRule {
  Regex names;                        // null: every float tensor
  std::optional<ElementType> target;  // nothing: leave it
};

StatusOr<DTypeRule> ParseDTypeRule(const std::string& text) {
  DTypeRule rule;
  const auto equals = text.rfind('=');
  const std::string type = equals == std::string::npos ? text : text.substr(equals + 1);
  if (equals != std::string::npos) {
    ZT_ASSIGN_OR_RETURN(rule.names, Compile(text.substr(0, equals), "--dtype"));
  }
  if (type == "keep") return rule;
  rule.target = ParseElementType(type);
  if (!rule.target)
    return InvalidArgument("--dtype " + Quote(text) + ": unknown type " + Quote(type));
  return rule;
}

// A rule without a pattern speaks of numbers with a fraction alone: not of integers, scales, packed or complex types.
bool IsPlainFloat(const Object& object) {
  const Component* elements = nullptr;
  for (const Component& component : object.components) {
    if (component.role == "data" || component.role == "values") elements = &component;
  }
  if (elements == nullptr) return false;
  const std::string_view type = elements->element.type;
  if (type.empty()) return IsFloat(elements->element.dtype);
  return type.starts_with("f8_") && type != "f8_e8m0";
}

bool IsBlocks(const Object& object) { return object.format.starts_with("gguf."); }

StatusOr<OnOverflow> ParseOnOverflow(const std::string& text) {
  if (text == "error") return OnOverflow::kError;
  if (text == "inf") return OnOverflow::kInf;
  if (text == "saturate") return OnOverflow::kSaturate;
  return InvalidArgument("--on-overflow takes error, inf or saturate, not " + Quote(text));
}

StatusOr<std::vector<Regex>> CompileAll(const std::vector<std::string>& patterns,
                                        const std::string& option) {
  std::vector<Regex> out;
  for (const std::string& pattern : patterns) {
    ZT_ASSIGN_OR_RETURN(Regex regex, Compile(pattern, option));
    out.push_back(std::move(regex));
  }
  return out;
}

}  // namespace

StatusOr<PlanOptions> MakePlanOptions(const ConvertArgs& args) {
  PlanOptions options;
  const auto spec = ParseSpecVersion(args.spec);
  if (!spec || !Traits(*spec).writable) {
    return InvalidArgument("--spec takes 1.2, 1.1 or 0.1, not " + Quote(args.spec));
  }
  options.spec = *spec;
  options.attributes = !args.no_metadata;
  const auto digest = ParseDigestKind(args.digest);
  if (!digest)
    return InvalidArgument("--digest takes none, crc32c, sha256 or xxh3, not " +
                           Quote(args.digest));
  options.storage.digest = *digest;
  options.storage.compression = args.zstd.empty() ? Compression::kNone : Compression::kIfGain;
  if (args.zstd == "planes") {
    options.storage.encoding = Encoding::kPlanes;
    if (options.spec != SpecVersion::k1_2) {
      return InvalidArgument("--zstd=planes writes " + std::string(kPlanesName) +
                             ", which --spec " + args.spec + " does not have; 1.2 does");
    }
  }
  ZT_ASSIGN_OR_RETURN(options.on_overflow, ParseOnOverflow(args.on_overflow));

  ZT_ASSIGN_OR_RETURN(const std::vector<Regex> include, CompileAll(args.include, "--include"));
  ZT_ASSIGN_OR_RETURN(const std::vector<Regex> exclude, CompileAll(args.exclude, "--exclude"));
  if (!include.empty() || !exclude.empty()) {
    options.keep = [include, exclude](const Object& object) {
      bool keep = include.empty();
      for (const Regex& regex : include) keep = keep || Matches(regex, object.name);
      for (const Regex& regex : exclude) keep = keep && !Matches(regex, object.name);
      return keep;
    };
  }

  std::vector<RenameRule> renames;
  for (const std::string& text : args.rename) {
    ZT_ASSIGN_OR_RETURN(RenameRule rule, ParseRename(text));
    renames.push_back(std::move(rule));
  }
  if (!renames.empty()) {
    options.rename = [renames](const std::string& name) {
      std::string out = name;
      for (const RenameRule& rule : renames) {
        rule.global ? static_cast<void>(RE2::GlobalReplace(&out, *rule.from, rule.to))
                    : static_cast<void>(RE2::Replace(&out, *rule.from, rule.to));
      }
      return out;
    };
  }

  std::vector<DTypeRule> dtypes;
  for (const std::string& text : args.dtype) {
    ZT_ASSIGN_OR_RETURN(DTypeRule rule, ParseDTypeRule(text));
    dtypes.push_back(std::move(rule));
  }
  std::optional<ElementType> dequantized;
  if (!args.dequantize.empty()) {
    dequantized = ParseElementType(args.dequantize);
    if (args.dequantize != "f32" && args.dequantize != "f16" && args.dequantize != "bf16") {
      return InvalidArgument("--dequantize takes f32, f16 or bf16, not " + Quote(args.dequantize));
    }
  }
  if (!dtypes.empty() || dequantized) {
    options.convert = [dtypes, dequantized](const Object& object) -> std::optional<ElementType> {
      for (const DTypeRule& rule : dtypes) {
        if (rule.names == nullptr ? IsPlainFloat(object) : Matches(rule.names, object.name)) {
          return rule.target;
        }
      }
      return IsBlocks(object) ? dequantized : std::nullopt;
    };
  }
  return options;
}

}  // namespace zt::cli::internal
