// zt.cli:rules — bodies. Patterns are RE2's.
module;

#include "cli/regex.h"
#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :output;
import :rules;
import zt;
import zt.convert.torch;

namespace zt::cli::internal {
namespace {

using Pattern = std::shared_ptr<const Regex>;

// The regular expression that means what a shell's pattern does: "\\.bias$" for "*.bias".
std::string OfShellPattern(const std::string& pattern) {
  std::string out = "^";
  for (const char c : pattern)
    out += c == '*' ? ".*" : c == '?' ? "." : QuoteMeta(std::string_view(&c, 1));
  out += '$';
  if (out.starts_with("^.*")) out.erase(0, 3);
  if (out.ends_with(".*$")) out.erase(out.size() - 3);
  return out;
}

StatusOr<Pattern> Compile(const std::string& pattern, const std::string& option) {
  auto regex = std::make_shared<const Regex>(pattern);
  if (regex->error().empty()) return regex;
  const bool shell = pattern.starts_with('*') && pattern.size() > 1;
  return InvalidArgument(option + " " + Quote(pattern) + ": " + regex->error() +
                         "; a regular expression is wanted" +
                         (shell ? ": '" + OfShellPattern(pattern) + "'" : ""));
}

struct RenameRule {
  Pattern from;
  std::string to;
  bool global = false;
};

// An escaped delimiter means the character itself: in the regex too, where it would be an operator without its escape,
// or a reference with it.
std::string Undelimited(char delimiter, bool in_regex) {
  const bool letter = (delimiter >= '0' && delimiter <= '9') ||
                      (delimiter >= 'a' && delimiter <= 'z') ||
                      (delimiter >= 'A' && delimiter <= 'Z');
  const std::string plain(1, delimiter);
  return in_regex && !letter ? QuoteMeta(plain) : plain;
}

// s/REGEX/TEXT/ or s/REGEX/TEXT/g, with any delimiter; \1 in TEXT is a group.
StatusOr<RenameRule> ParseRename(const std::string& text) {
  const auto wrong = [&](std::string_view why) {
    return InvalidArgument("--rename " + Quote(text) + ": " + std::string(why) +
                           "; write 's/REGEX/TEXT/'");
  };
  if (text.size() < 4 || text[0] != 's') return wrong("it does not begin with s/");
  const char delimiter = text[1];
  if (delimiter == '\\') return wrong("a backslash cannot be the delimiter");
  std::vector<std::string> parts(1);
  for (std::size_t i = 2; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      const char next = text[++i];
      if (next == delimiter) {
        parts.back() += Undelimited(delimiter, parts.size() == 1);
      } else {
        parts.back() += {'\\', next};
      }
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
  const std::string error = rule.from->RewriteError(rule.to);
  if (!error.empty()) return wrong(error);
  return rule;
}

struct DTypeRule {
  Pattern names;                      // null: every float tensor
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
  ZT_ASSIGN_OR_RETURN(rule.target, ParseTypeName(type, "--dtype"));
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

OnOverflow OnOverflowOf(const std::string& text) {
  return text == "inf"        ? OnOverflow::kInf
         : text == "saturate" ? OnOverflow::kSaturate
                              : OnOverflow::kError;
}

StatusOr<std::vector<Pattern>> CompileAll(const std::vector<std::string>& patterns,
                                          const std::string& option) {
  std::vector<Pattern> out;
  for (const std::string& pattern : patterns) {
    ZT_ASSIGN_OR_RETURN(Pattern regex, Compile(pattern, option));
    out.push_back(std::move(regex));
  }
  return out;
}

// The rules of one command line, shared by the functions of its plan.
struct RuleSet {
  std::vector<Pattern> include, exclude;
  std::vector<RenameRule> renames;
  std::vector<DTypeRule> dtypes;
  std::optional<ElementType> dequantized;
  // In this order, `dequantized` last where there is one.
  std::vector<RuleUse> uses;

  bool Keep(const Object& object) {
    bool keep = include.empty();
    RuleUse* use = uses.data();
    for (const Pattern& regex : include) keep = Count(regex->Matches(object.name), *use++) || keep;
    for (const Pattern& regex : exclude) keep = !Count(regex->Matches(object.name), *use++) && keep;
    return keep;
  }

  std::string Rename(const std::string& name) {
    std::string out = name;
    RuleUse* use = uses.data() + include.size() + exclude.size();
    for (const RenameRule& rule : renames) {
      Count(rule.from->Replace(out, rule.to, rule.global), *use++);
    }
    return out;
  }

  std::optional<ElementType> Convert(const Object& object) {
    RuleUse* use = uses.data() + include.size() + exclude.size() + renames.size();
    for (const DTypeRule& rule : dtypes) {
      const bool applies =
          rule.names == nullptr ? IsPlainFloat(object) : rule.names->Matches(object.name);
      if (Count(applies, *use++)) return rule.target;
    }
    if (dequantized && Count(IsBlocks(object), *use)) return dequantized;
    return std::nullopt;
  }

 private:
  static bool Count(bool applies, RuleUse& use) {
    use.tensors += applies;
    return applies;
  }
};

Status CompileRules(const ConvertArgs& args, RuleSet& rules) {
  const auto add = [&](const std::string& option, const std::string& text,
                       const std::string& unused = "matches the name of no tensor") {
    rules.uses.push_back({option + " " + Quote(text), unused});
  };
  ZT_ASSIGN_OR_RETURN(rules.include, CompileAll(args.include, "--include"));
  for (const std::string& text : args.include) add("--include", text);
  ZT_ASSIGN_OR_RETURN(rules.exclude, CompileAll(args.exclude, "--exclude"));
  for (const std::string& text : args.exclude) add("--exclude", text);
  for (const std::string& text : args.rename) {
    ZT_ASSIGN_OR_RETURN(rules.renames.emplace_back(), ParseRename(text));
    add("--rename", text);
  }
  for (const std::string& text : args.dtype) {
    ZT_ASSIGN_OR_RETURN(rules.dtypes.emplace_back(), ParseDTypeRule(text));
    if (rules.dtypes.back().names == nullptr) {
      add("--dtype", text,
          "applies to no tensor: without a pattern it means tensors of floating point alone; "
          "'.=" +
              text + "' means all");
    } else {
      add("--dtype", text, "applies to no tensor: no name matches, or an earlier rule does");
    }
  }
  if (args.dequantize.empty()) return OkStatus();
  rules.dequantized = ParseElementType(args.dequantize);
  add("--dequantize", args.dequantize, "applies to no tensor: there is none of GGUF's blocks");
  return OkStatus();
}

// Whether nothing asks for what a canonical file cannot be.
Status CheckCanonical(const ConvertArgs& args, const PlanOptions& plan) {
  const ContainerTraits& traits = Traits(plan.spec);
  if (!traits.canonical) {
    return InvalidArgument("--canonical writes version 2.0, and --spec asks for " + args.spec);
  }
  if (args.zstd) {
    return InvalidArgument("--canonical stores everything raw; leave out --zstd");
  }
  if (plan.storage.digest != traits.digest) {
    return InvalidArgument("--canonical has xxh3 digests; leave out --digest");
  }
  if (args.alignment != 0 && args.alignment != traits.placement) {
    return InvalidArgument("--canonical aligns to 64 KiB; leave out --align");
  }
  if (args.shards != 0 || args.shard_size != 0 || !args.shard.empty()) {
    return InvalidArgument(
        "--canonical writes one file; leave out --shards, --shard-size and --shard");
  }
  return OkStatus();
}

}  // namespace

StatusOr<ElementType> ParseTypeName(const std::string& text, std::string_view option) {
  std::string lower = text;
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const std::string_view prefix : {"torch.", "numpy.", "np."}) {
    if (lower.starts_with(prefix)) lower.erase(0, prefix.size());
  }
  if (lower == "fp64" || lower == "fp32" || lower == "fp16") lower.erase(1, 1);
  if (auto type = ParseElementType(lower)) return *std::move(type);
  if (auto type = ParseTorchDtype(lower)) return *std::move(type);
  return InvalidArgument(std::string(option) + ": " + Quote(text) +
                         " is not a type; types are f64, f32, f16, bf16, f8_e4m3fn, f8_e5m2, "
                         "f8_e4m3fnuz, f8_e5m2fnuz, i64, i32, i16, i8, u64, u32, u16, u8, bool, "
                         "complex64 and complex128");
}

std::vector<std::string> Rules::Warnings() const {
  std::vector<std::string> lines;
  for (const RuleUse& use : *uses) {
    if (use.tensors == 0) lines.push_back(use.rule + " " + use.when_unused);
  }
  return lines;
}

std::vector<std::string> Rules::Uses() const {
  std::vector<std::string> lines;
  for (const RuleUse& use : *uses)
    lines.push_back(use.rule + ": " + Counted(use.tensors, "tensor"));
  return lines;
}

void ApplyZstd(const std::optional<ZstdChoice>& choice, Storage& storage, ZstdOptions& options) {
  storage.compression = choice ? Compression::kIfGain : Compression::kNone;
  if (!choice) return;
  if (choice->planes) storage.encoding = Encoding::kPlanes;
  options.level = choice->level;
  options.huffman = choice->huffman;
}

StatusOr<Rules> MakeRules(const ConvertArgs& args) {
  Rules out;
  out.plan.spec = *ParseSpecVersion(args.spec);  // the command line has been checked
  out.plan.attributes = !args.no_metadata;
  const DigestKind digest =
      args.digest.empty() ? Traits(out.plan.spec).digest : *ParseDigestKind(args.digest);
  ZT_RETURN_IF_ERROR(Annotate(CheckDigest(digest, out.plan.spec), "--digest"));
  out.plan.storage.digest = digest;
  if (args.canonical) ZT_RETURN_IF_ERROR(CheckCanonical(args, out.plan));
  ApplyZstd(args.zstd, out.plan.storage, out.zstd);
  if (out.plan.storage.encoding == Encoding::kPlanes &&
      !CheckEncoding(Encoding::kPlanes, out.plan.spec).ok()) {
    return InvalidArgument("--zstd=planes writes " + std::string(kPlanesName) + ", which --spec " +
                           args.spec + " does not have; 1.2 does");
  }
  out.plan.on_overflow = OnOverflowOf(args.on_overflow);

  const auto rules = std::make_shared<RuleSet>();
  ZT_RETURN_IF_ERROR(CompileRules(args, *rules));
  if (!rules->include.empty() || !rules->exclude.empty())
    out.plan.keep = [rules](const Object& object) { return rules->Keep(object); };
  if (!rules->renames.empty())
    out.plan.rename = [rules](const std::string& name) { return rules->Rename(name); };
  if (!rules->dtypes.empty() || rules->dequantized)
    out.plan.convert = [rules](const Object& object) { return rules->Convert(object); };
  out.uses = std::shared_ptr<std::vector<RuleUse>>(rules, &rules->uses);
  return out;
}

}  // namespace zt::cli::internal
