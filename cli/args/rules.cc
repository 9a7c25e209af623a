// zt.cli:rules — applies the rules for tensors and attributes, and the options of storage, to plans.
module;

#include "cli/args/regex.h"
#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :extraction;
import :options;
import :output;
import :rules;

namespace zt::cli::internal {
namespace {

enum class Kind { kRename, kZstd, kUnset, kDType, kDequantize };

struct Rule {
  Kind kind;
  // "--dtype 'norm=f32'", and the warning if the rule applied to no tensor.
  std::string text, unused;
  // For kZstd and kDType: the tensors; nullopt: every tensor of floating point. For kDequantize:
  // nullopt.
  std::optional<Pattern> names = std::nullopt;
  // For kZstd: nullopt: raw.
  std::optional<ZstdChoice> zstd = std::nullopt;
  // For kRename: what is replaced, and its replacement, for the first match or for all. For kUnset:
  // `to` is the key.
  std::shared_ptr<const Regex> from = nullptr;
  std::string to = "";
  bool global = false;
  // nullopt: keep the type.
  std::optional<ElementType> target = std::nullopt;
  // The number of tensors that it applied to; for kUnset, of attributes.
  std::uint64_t tensors = 0;
  // An earlier rule applied to a tensor that this one matches.
  bool preceded = false;

  bool Count(bool applies) {
    tensors += applies;
    return applies;
  }
};

// An escaped delimiter stands for the character itself. In the regex it is escaped again, if it
// would be an operator otherwise.
std::string Undelimited(char delimiter, bool in_regex) {
  const std::string plain(1, delimiter);
  return in_regex && !std::isalnum(static_cast<unsigned char>(delimiter)) ? QuoteMeta(plain)
                                                                          : plain;
}

// s/REGEX/TEXT/ or s/REGEX/TEXT/g, with any delimiter; \1 in TEXT is a group.
Status ParseRename(const std::string& text, Rule& rule) {
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
      parts.back() +=
          next == delimiter ? Undelimited(delimiter, parts.size() == 1) : std::string{'\\', next};
    } else if (text[i] == delimiter && parts.size() < 3) {
      parts.emplace_back();
    } else {
      parts.back() += text[i];
    }
  }
  if (parts.size() != 3) return wrong("a delimiter is missing");
  if (!parts[2].empty() && parts[2] != "g") return wrong("unknown flag " + Quote(parts[2]));
  if (parts[0].empty()) return wrong("REGEX is empty; ^ is the start of a name");
  rule.from = std::make_shared<const Regex>(parts[0]);
  if (const std::string error = rule.from->error(); !error.empty()) return wrong(error);
  rule.to = parts[1];
  rule.global = parts[2] == "g";
  const std::string error = rule.from->RewriteError(rule.to);
  return error.empty() ? OkStatus() : wrong(error);
}

// Takes "WHICH=" off the beginning of `text`, if it is there: the tensors of the rule.
Status TakeWhich(const std::string& option, std::string& text, Rule& rule) {
  const auto equals = text.rfind('=');
  if (equals == std::string::npos) return OkStatus();
  if (equals == 0) return InvalidArgument(option + " " + Quote(text) + ": no word is before '='");
  rule.unused = "applies to no tensor: no name matches";
  rule.names.emplace(option, text.substr(0, equals));
  text.erase(0, equals + 1);
  return OkStatus();
}

// TYPE, PATTERN=TYPE or PATTERN=keep.
Status ParseDType(std::string type, Rule& rule) {
  rule.unused =
      "applies to no tensor: without a pattern it is for tensors of floating point; '.=" + type +
      "' is for all";
  ZT_RETURN_IF_ERROR(TakeWhich("--dtype", type, rule));
  if (type == "keep") return OkStatus();
  auto target = ParseTypeName(type);
  if (!target.ok()) return Annotate(target.status(), "--dtype");
  rule.target = *target;
  return OkStatus();
}

// KEY=VALUE: VALUE as JSON, or as text if it is none.
Status ParseSet(const std::string& text, Value::Map& attributes) {
  const auto equals = text.find('=');
  const std::string key = text.substr(0, equals);
  if (equals == std::string::npos || equals == 0)
    return InvalidArgument("--set " + Quote(text) + ": write KEY=VALUE");
  if (key.starts_with("ztstream."))
    return InvalidArgument("--set " + Quote(key) + ": attributes of ztstream are its own");
  std::string value = text.substr(equals + 1);
  auto parsed = ParseJsonObject("{\"v\":" + value + "}");
  const bool is_json = parsed.ok() && parsed->size() == 1;
  SetMember(attributes, key, is_json ? std::move(parsed->front().second) : Value(std::move(value)));
  return OkStatus();
}

}  // namespace

bool IsPlainFloat(const Object& object) {
  const Component* const elements = ElementsOf(object);
  if (elements == nullptr) return false;
  const std::string_view type = elements->element.type;
  if (type.empty()) return IsFloat(elements->element.dtype);
  return type.starts_with("f8_") && type != "f8_e8m0";
}

// The rules of a command line in the order of their kinds, shared by the functions of its plan.
struct RuleSet {
  Selector selector;
  std::vector<Rule> rules = {};
  Value::Map attributes = {};                        // to be set
  std::unordered_set<std::string> dequantized = {};  // tensors that were quantized
  std::string unscaled = {};                         // warns of numbers that lack a scale
  std::string blocks = {};                           // warns of blocks that --dtype leaves
  // Of what Rules::Open opened without --dequantize: a configuration lies beside it.
  std::vector<std::string> inputs = {};
  SourceOptions options = {};

  bool Has(Kind kind) const { return std::ranges::find(rules, kind, &Rule::kind) != rules.end(); }

  bool IsQuantized(const Object& object) const {
    return object.format.starts_with("gguf.") || dequantized.contains(object.name);
  }

  std::string Rename(const std::string& name) {
    std::string out = name;
    for (Rule& rule : rules) {
      if (rule.kind == Kind::kRename) rule.Count(rule.from->Replace(out, rule.to, rule.global));
    }
    return out;
  }

  // The first rule of these kinds that applies to a tensor; nullptr if none does.
  const Rule* FirstOf(Kind least, Kind most, const Object& object) {
    const Rule* first = nullptr;
    for (Rule& rule : rules) {
      // After the first rule, others are only asked for the warnings.
      if (rule.kind < least || rule.kind > most ||
          (first != nullptr && (rule.tensors > 0 || rule.preceded)))
        continue;
      const bool applies = rule.names.has_value()           ? rule.names->Matches(object.name)
                           : rule.kind == Kind::kDequantize ? IsQuantized(object)
                                                            : IsPlainFloat(object);
      if (first != nullptr) {
        rule.preceded = applies;
      } else if (rule.Count(applies)) {
        first = &rule;
      }
    }
    return first;
  }

  std::optional<ElementType> Convert(const Object& object) {
    const Rule* const first = FirstOf(Kind::kDType, Kind::kDequantize, object);
    return first == nullptr ? std::nullopt : first->target;
  }

  Status Parse(const Args& args) {
    const auto add = [&](Kind kind, const std::string& option, const std::string& text) -> Rule& {
      return rules.emplace_back(Rule{kind, option + " '" + text + "'", "matches no tensor"});
    };
    for (const std::string& text : args.rename)
      ZT_RETURN_IF_ERROR(ParseRename(text, add(Kind::kRename, "--rename", text)));
    for (const std::string& text : args.set) ZT_RETURN_IF_ERROR(ParseSet(text, attributes));
    for (const std::string& text : args.unset) {
      Rule& rule = add(Kind::kUnset, "--unset", text);
      rule.to = text;
      rule.unused = "names no attribute of the file";
    }
    for (const std::string& text : args.dtype)
      ZT_RETURN_IF_ERROR(ParseDType(text, add(Kind::kDType, "--dtype", text)));
    if (args.dequantize.empty()) return OkStatus();
    Rule& rule = add(Kind::kDequantize, "--dequantize", args.dequantize);
    rule.target = ParseElementType(args.dequantize);
    rule.unused = "applies to no tensor: no tensor has GGUF blocks or codes with scales";
    return OkStatus();
  }
};

StatusOr<ElementType> ParseTypeName(const std::string& text) {
  std::string lower;
  if (auto type = FindTypeName(text, &lower)) return *std::move(type);
  for (const std::string_view prefix : {"float", "fp", "int"}) {  // "fp8" is not one type
    if (lower.starts_with(prefix)) lower.replace(1, prefix.size() - 1, "");
  }
  const bool packed = lower.starts_with('q') || lower == "i4" || lower == "f4" || lower == "nf4" ||
                      lower == "uint4";
  return InvalidArgument(
      Quote(text) + " is not a type; types are " + TypeNames() +
      (packed ? "; ztstream does not quantize" : DidYouMean(lower, Words(kTypeNames))));
}

namespace {

// The quantized tensors, as --dequantize finds them.
StatusOr<std::vector<QuantizedTensor>> FindBy(const RuleSet& set, TensorSource& source) {
  if (source.format() == "zt") return FindQuantized(source, {});  // that of a .zt file is within
  ZT_ASSIGN_OR_RETURN(const QuantConfig config, FindQuantConfig(set.inputs, set.options));
  return FindQuantized(source, config);
}

// kInvalidArgument if a plan converts a part of a quantized tensor, such as its codes or scales.
Status CheckNoCodes(const RuleSet& set, TensorSource& source, const Plan& plan) {
  const auto converted = [](const PlannedObject& planned) {
    return std::ranges::any_of(planned.components,
                               [](const auto& each) { return each.transform != nullptr; });
  };
  if (std::ranges::none_of(plan.objects, converted)) return OkStatus();
  const auto part = [](const Object& object) { return NamesQuantizedPart(object.name); };
  if (std::ranges::none_of(source.objects(), part)) return OkStatus();
  const auto found = FindBy(set, source);
  ZT_RETURN_IF_UNAVAILABLE(found.status());
  const std::string wrong = found.ok() ? "" : TensorOf(found.status()).value_or("");
  std::unordered_map<std::uint32_t, const QuantizedTensor*> parts;
  for (std::size_t i = 0; found.ok() && i < found->size(); ++i) {
    for (const std::uint32_t member : (*found)[i].members) parts.emplace(member, &(*found)[i]);
  }
  for (const PlannedObject& planned : plan.objects) {
    const ComponentId id = planned.components[0].source;
    const std::string& name = source.objects()[id.object].name;
    if (!found.ok() && converted(planned) && (name == wrong || NamesQuantizedPart(name))) {
      return AtTensor(source, id,
                      InvalidArgument("it is named like a part of a quantized tensor, which "
                                      "--dtype would not convert as a whole; --dequantize says: " +
                                      Message(found.status())));
    }
    const auto part = parts.find(id.object);
    if (part == parts.end() || !converted(planned)) continue;
    return AtTensor(
        source, id,
        InvalidArgument("it is part of a quantized tensor, " + Quote(part->second->name) + " (" +
                        part->second->scheme +
                        "), which --dtype would not convert as a whole; --dequantize bf16 makes "
                        "numbers of it, --dtype 'PATTERN=TYPE' converts other tensors"));
  }
  return OkStatus();
}

// kInvalidArgument if a plan converts f8 codes of a scheme that nothing here reads. Integers are
// converted only where a pattern names them.
Status CheckNoOtherCodes(const TensorSource& source, const Plan& plan) {
  const auto converted = [&](const PlannedObject& planned) {
    const ComponentId id = planned.components[0].source;
    return planned.components[0].transform != nullptr &&
           source.objects()[id.object].components[0].element.type.str().starts_with("f8");
  };
  if (std::ranges::none_of(plan.objects, converted)) return OkStatus();
  std::vector<const Object*> objects;
  for (const Object& each : source.objects()) objects.push_back(&each);
  const std::vector<std::string_view> modules = QuantizedModulesOf(objects);
  for (const PlannedObject& planned : plan.objects) {
    const ComponentId id = planned.components[0].source;
    if (modules[id.object].empty() || !converted(planned)) continue;
    return AtTensor(
        source, id,
        InvalidArgument("it holds codes of a quantized module, " + Quote(modules[id.object]) +
                        ", which --dtype would convert without their scales; --dtype "
                        "'PATTERN=TYPE' converts other tensors"));
  }
  return OkStatus();
}

// What to say if numbers are made of GGUF blocks beside which lies a further scale ("x.scale" of
// "x.weight"), as llama.cpp has it for nvfp4; else empty.
std::string UnscaledIn(const TensorSource& source, const Plan& plan) {
  static constexpr std::string_view kScale = ".scale", kWeight = ".weight";
  std::unordered_set<std::string_view> scaled;
  for (const Object& object : source.objects()) {
    const std::string_view name = object.name;
    if (name.ends_with(kScale)) scaled.insert(name.substr(0, name.size() - kScale.size()));
  }
  std::uint64_t count = 0;
  std::string_view first;
  for (const PlannedObject& planned : plan.objects) {
    const Object& from = source.objects()[planned.components[0].source.object];
    std::string_view module = from.name;
    if (module.ends_with(kWeight)) module.remove_suffix(kWeight.size());
    if (!from.format.str().starts_with("gguf.") || planned.components[0].transform == nullptr ||
        !scaled.contains(module))
      continue;
    if (++count == 1) first = module;
  }
  if (count == 0) return "";
  return "the numbers of " + Counted(count, "tensor") +
         " are yet to be multiplied by what lies beside: " + Quote(first) + " has " +
         Quote(std::string(first) + ".scale");
}

// What to say if a type was asked for and blocks of GGUF stay what they are; else empty.
std::string BlocksIn(const Plan& plan) {
  const auto count = std::ranges::count_if(plan.objects, [](const PlannedObject& planned) {
    return planned.object->format.str().starts_with("gguf.");
  });
  if (count == 0) return "";
  return Counted(static_cast<std::uint64_t>(count), "tensor") +
         (count == 1 ? " stays a block type" : " stay block types") +
         " of GGUF, which --dtype does not convert; --dequantize makes numbers of " +
         (count == 1 ? "it" : "them");
}

}  // namespace

StatusOr<Plan> Rules::PlanOf(TensorSource& source) const {
  ZT_RETURN_IF_ERROR(Resolve(source));
  ZT_ASSIGN_OR_RETURN(Plan out, MakePlan(source, plan));
  ZT_RETURN_IF_ERROR(CheckNoCodes(*set, source, out));
  ZT_RETURN_IF_ERROR(CheckNoOtherCodes(source, out));
  set->blocks.clear();
  if (set->Has(Kind::kDequantize)) {
    set->unscaled = UnscaledIn(source, out);
  } else if (std::ranges::any_of(set->rules, [](const Rule& rule) {
               return rule.kind == Kind::kDType && !rule.names && rule.target;
             })) {
    set->blocks = BlocksIn(out);
  }
  const Value* const gguf = FindMember(out.attributes, "gguf");
  if (gguf != nullptr && set->Has(Kind::kRename)) {
    NewNames names;
    for (const PlannedObject& planned : out.objects)
      names.emplace(source.objects()[planned.components[0].source.object].name,
                    planned.object->name);
    SetMember(out.attributes, "gguf", RenamedInGguf(*gguf, names));
  }
  for (const auto& [key, value] : set->attributes) SetMember(out.attributes, key, value);
  if (const Status wrong = CheckExpressible(set->attributes, plan.spec);
      !set->attributes.empty() && !wrong.ok())
    return InvalidArgument("--set: " + Message(wrong) + "; leave out --set");
  for (Rule& rule : set->rules) {
    if (rule.kind == Kind::kUnset)
      rule.tensors +=
          std::erase_if(out.attributes, [&](auto& each) { return each.first == rule.to; });
  }
  if (!set->Has(Kind::kZstd)) return out;
  for (PlannedObject& planned : out.objects) {
    if (IsFile(*planned.object)) continue;
    const Object& from = source.objects()[planned.components.front().source.object];
    const Rule* const rule = set->FirstOf(Kind::kZstd, Kind::kZstd, from);
    if (rule == nullptr) continue;
    ZstdOptions level;  // of the whole run
    for (PlannedComponent& each : planned.components) ApplyZstd(rule->zstd, each.storage, level);
  }
  return out;
}

Status Rules::Resolve(const TensorSource& source) const {
  // Sorting a million names takes a fifth of their conversion.
  const auto named = [](const Rule& rule) { return rule.names.has_value(); };
  const bool any = set->selector.active() || std::ranges::any_of(set->rules, named);
  return any ? Resolve(NamesOf(source)) : OkStatus();
}

Status Rules::Resolve(std::span<const std::string_view> names) const {
  ZT_RETURN_IF_ERROR(set->selector.Resolve(names));
  for (Rule& rule : set->rules) {
    if (rule.names) ZT_RETURN_IF_ERROR(rule.names->Resolve(names));
  }
  return OkStatus();
}

SourceOptions Args::source_options() const {
  SourceOptions options;
  options.store = store;
  options.follow_links = follow_links;
  if (memory != 0) options.memory_limit = memory;
  options.void_type = void_type;
  options.format = from;
  options.variant = variant;
  options.files = files;
  options.base = base;
  options.used_bases = used_bases;
  options.left_out = left_out;
  return options;
}

StatusOr<std::unique_ptr<TensorSource>> Rules::Open(const Args& args,
                                                    const std::vector<std::string>& inputs,
                                                    const SourceOptions& options, bool split,
                                                    bool rounded) const {
  if (args.dequantize.empty()) {
    set->inputs = inputs;
    set->options = options;
    if (args.quant == "group") return OpenGrouped(inputs, options);
    return split ? OpenUngrouped(inputs, options) : OpenInputs(inputs, options);
  }
  // --dtype without a pattern comes before --dequantize.
  const auto all = std::ranges::find_if(
      set->rules, [](const Rule& rule) { return rule.kind >= Kind::kDType && !rule.names; });
  DequantizeOptions numbers = {.torch_type = all->target.value_or(ElementType{DType::kF32}),
                               .on_overflow = rounded ? OnOverflow::kInf : plan.on_overflow};
  if (rounded) numbers.numbers = ParseElementType(args.dequantize)->dtype;
  ZT_ASSIGN_OR_RETURN(Dequantized made, OpenDequantized(inputs, options, numbers));
  if (rounded) set->rules.back().tensors += made.names.size();
  set->dequantized.insert(std::make_move_iterator(made.names.begin()),
                          std::make_move_iterator(made.names.end()));
  const auto blocks = [](const Object& each) { return each.format.starts_with("gguf."); };
  if (!rounded || std::ranges::none_of(made.source->objects(), blocks))
    return std::move(made.source);
  Args only;
  only.dequantize = args.dequantize;
  only.on_overflow = "inf";
  only.spec = args.spec;
  ZT_ASSIGN_OR_RETURN(const Rules of_blocks, MakeRules(only));
  std::vector<std::string> warnings;  // those of this run are below
  ZT_ASSIGN_OR_RETURN(auto changed,
                      ChangedSource::Make(std::move(made.source), of_blocks, warnings));
  set->rules.back().tensors += of_blocks.set->rules.back().tensors;
  if (!of_blocks.set->unscaled.empty()) set->unscaled = of_blocks.set->unscaled;
  return std::unique_ptr<TensorSource>(std::move(changed));
}

Selector& Rules::selector() const { return set->selector; }

std::vector<std::string> Rules::Warnings() const {
  std::vector<std::string> lines = set->selector.Warnings();
  // Where no tensor is left, that is why the others apply to none.
  if (set->selector.left_none()) return lines;
  for (const Rule& rule : set->rules) {
    if (rule.tensors == 0) {
      lines.push_back(rule.text + " " +
                      (rule.preceded
                           ? "applies to no tensor: an earlier rule applies to all that match"
                           : rule.unused + (rule.names ? rule.names->meant() : "")));
    } else if (rule.names && !rule.names->warning().empty()) {
      lines.push_back(rule.names->warning());
    }
  }
  if (!set->unscaled.empty()) lines.push_back(set->unscaled);
  if (!set->blocks.empty()) lines.push_back(set->blocks);
  return lines;
}

std::vector<std::string> Rules::Uses() const {
  std::vector<std::string> lines = set->selector.Uses();
  for (const Rule& rule : set->rules) {
    if (rule.kind != Kind::kUnset)
      lines.push_back(rule.text + ": " + Counted(rule.tensors, "tensor"));
  }
  return lines;
}

void ApplyZstd(const std::optional<ZstdChoice>& choice, Storage& storage, ZstdOptions& options) {
  storage.compression = choice ? Compression::kIfGain : Compression::kNone;
  if (!choice) return;
  storage.encoding = choice->planes ? Encoding::kPlanes : Encoding::kZstd;
  options.level = choice->level;
  options.huffman = choice->huffman;
}

namespace {

// LEVEL, WHICH=LEVEL or WHICH=raw, of which the planes leave one level for the rest.
Status ParseZstdRules(const Args& args, Rules& out) {
  std::optional<ZstdChoice> all, level;
  std::string level_text;
  for (const std::string& word : args.zstd) {
    Rule rule{Kind::kZstd, "--zstd '" + word + "'", ""};
    std::string text = word;
    ZT_RETURN_IF_ERROR(TakeWhich("--zstd", text, rule));
    rule.zstd = ParseZstd(text);
    if (!rule.zstd && !(text == "raw" && rule.names))
      return InvalidArgument("--zstd: " + Quote(text) + " is not a level, huffman or planes");
    if (!rule.names && all) return InvalidArgument("--zstd is given twice for all tensors");
    if (!rule.names) all = rule.zstd;
    if (rule.zstd && rule.zstd->planes && !CheckEncoding(Encoding::kPlanes, out.plan.spec).ok()) {
      return InvalidArgument("--zstd=planes writes " + std::string(kPlanesName) +
                             ", which --spec " + args.spec + " does not have; 1.2 and 2.0 do");
    }
    if (rule.zstd && (!level || level->planes)) {
      level = rule.zstd;
      level_text = text;
    } else if (rule.zstd && !rule.zstd->planes && text != level_text) {
      return InvalidArgument("--zstd: a file has one level, and these are " + level_text + " and " +
                             text);
    }
    if (rule.names) out.set->rules.push_back(std::move(rule));
  }
  if (all && args.raw) return InvalidArgument("--zstd and --raw cannot be combined");
  Storage of_some;
  ZstdOptions of_all;
  ApplyZstd(level, of_some, out.zstd);
  ApplyZstd(all, out.plan.storage, of_all);
  out.plan.keep_encoding = !all && !args.raw;
  return OkStatus();
}

}  // namespace

StatusOr<Rules> MakeRules(const Args& args) {
  Rules out;
  out.plan.spec = *ParseSpecVersion(args.spec);  // the command line has been checked
  out.plan.attributes = !args.no_metadata;
  const DigestKind digest =
      args.digest.empty() ? Traits(out.plan.spec).digest : *ParseDigestKind(args.digest);
  ZT_RETURN_IF_ERROR(Annotate(CheckDigest(digest, out.plan.spec), "--digest"));
  out.plan.storage.digest = digest;
  if (args.canonical && !Traits(out.plan.spec).canonical)
    return InvalidArgument("--canonical writes version 2.0, and --spec asks for " + args.spec);
  if (!args.dequantize.empty() && args.quant == "group") {
    return InvalidArgument("--dequantize and --quant group cannot be combined");
  }
  out.plan.on_overflow = args.on_overflow == "inf"        ? OnOverflow::kInf
                         : args.on_overflow == "saturate" ? OnOverflow::kSaturate
                                                          : OnOverflow::kError;
  out.plan.allow_fraction_loss = args.allow_loss;
  out.set = std::make_shared<RuleSet>(RuleSet{Selector(args)});
  ZT_RETURN_IF_ERROR(ParseZstdRules(args, out));
  ZT_RETURN_IF_ERROR(out.set->Parse(args));
  const std::shared_ptr<RuleSet> set = out.set;
  if (set->selector.active())
    out.plan.keep = [set](const Object& object) {
      return IsFile(object) || set->selector.Selects(object.name);
    };
  if (set->Has(Kind::kRename))
    out.plan.rename = [set](const std::string& name) {
      return name.starts_with(kFileNamePrefix) ? name : set->Rename(name);
    };
  if (set->Has(Kind::kDType) || set->Has(Kind::kDequantize))
    out.plan.convert = [set](const Object& object) {
      return IsFile(object) ? std::nullopt : set->Convert(object);
    };
  return out;
}

StatusOr<std::vector<QuantizedTensor>> QuantizedIn(const Args& args, TensorSource& opened) {
  std::vector<QuantizedTensor> none;
  const auto part = [](const Object& object) { return NamesQuantizedPart(object.name); };
  if (IsPipe(args.file()) || std::ranges::none_of(opened.objects(), part)) return none;
  StatusOr<QuantConfig> config = QuantConfig();  // that of a .zt file is within
  if (opened.format() != "zt")
    config = FindQuantConfig(std::array{args.file()}, args.source_options());
  ZT_RETURN_IF_UNAVAILABLE(config.status());
  if (!config.ok()) {
    const std::string line = "its quantized tensors are not known: " + Message(config.status());
    WarnAll(args, std::span(&line, 1));
    return none;
  }
  auto found = FindQuantized(opened, *config);
  ZT_RETURN_IF_UNAVAILABLE(found.status());
  return found.ok() ? found : none;
}

bool HasRules(const Args& args) {
  return !args.dtype.empty() || !args.dequantize.empty() || !args.include.empty() ||
         !args.exclude.empty() || !args.rename.empty() || args.no_metadata || !args.set.empty() ||
         !args.unset.empty();
}

}  // namespace zt::cli::internal
