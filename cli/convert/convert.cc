// zt.cli — convert: open, plan, stream, publish.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :conversion;
import :rules;
import :shards;
import :options;
import :paths;
import :signals;
import zt.convert.composite;
import zt.convert.delta;

namespace zt::cli::internal {
namespace {

// ---- one .zt file -------------------------------------------------------------------------------

// The replacement for a number that does not fit into the type of this tensor.
std::string_view Replacement(const Object* object, OnOverflow policy) {
  constexpr std::string_view kEnd = "the nearest value of its type";
  const Component* const elements = object == nullptr ? nullptr : ElementsOf(*object);
  if (policy == OnOverflow::kSaturate || elements == nullptr) return kEnd;
  if (HasInfinity(elements->element)) return "infinity";
  return elements->element.type.starts_with("f8_") ? "NaN, for the type has no infinity" : kEnd;
}

// Appends a line about one kind of loss in all tensors, because a rule applies to hundreds of them.
void AddSum(const std::vector<NumericFinding>& findings, std::uint64_t NumericCounts::* kind,
            std::string_view what, std::vector<std::string>& lines) {
  std::uint64_t tensors = 0, values = 0, lost = 0;
  const NumericFinding* first = nullptr;
  for (const NumericFinding& finding : findings) {
    if (finding.counts.*kind == 0) continue;
    if (++tensors == 1) first = &finding;
    lost += finding.counts.*kind;
    values += finding.values;
  }
  if (first == nullptr) return;
  lines.push_back(
      (tensors == 1 ? TensorContext(first->tensor)
                    : Counted(tensors, "tensor") + ", " + Quote(first->tensor) + " the first") +
      ": " + std::to_string(lost) + " of " + Counted(values, "value") + std::string(what));
}

}  // namespace

std::vector<std::string> WarningsOf(const std::vector<NumericFinding>& findings, const Plan& plan) {
  std::vector<std::string> lines;
  std::unordered_map<std::string_view, const Object*, zt::internal::NameHash> objects;
  if (!findings.empty()) {
    for (const PlannedObject& each : plan.objects)
      objects.emplace(each.object->name, each.object.get());
  }
  for (const NumericFinding& finding : findings) {
    if (finding.counts.overflow == 0 && finding.counts.nan_lost == 0) continue;
    const auto found = objects.find(finding.tensor);
    const Object* const object = found == objects.end() ? nullptr : found->second;
    std::string line = TensorContext(finding.tensor) + ": ";
    if (finding.counts.overflow > 0) {
      line += Counted(finding.counts.overflow, "value") + " did not fit and became " +
              std::string(Replacement(object, plan.on_overflow));
    }
    if (finding.counts.nan_lost > 0) {
      line += (finding.counts.overflow > 0 ? "; " : "") + std::to_string(finding.counts.nan_lost) +
              " NaN had no counterpart in its type";
    }
    lines.push_back(std::move(line));
  }
  AddSum(findings, &NumericCounts::fraction_lost,
         " lost their fraction in an integer type; --dtype does not quantize", lines);
  AddSum(findings, &NumericCounts::underflow, " became 0, too small for a float of 8 bits", lines);
  return lines;
}

StatusOr<std::unique_ptr<Writer>> WriteFile(std::unique_ptr<Sink> sink, TensorSource& source,
                                            const Plan& plan, WriterOptions options,
                                            DeltaMaker* delta, bool whole) {
  Plan changed;
  if (delta != nullptr) {
    ZT_ASSIGN_OR_RETURN(changed, delta->Change(plan, options));
  }
  options.cancelled = &Interrupted();
  ZT_ASSIGN_OR_RETURN(std::unique_ptr<Writer> writer,
                      Writer::Create(std::move(sink), std::move(options)));
  ZT_RETURN_IF_ERROR(delta == nullptr ? writer->AddSource(source, plan)
                                      : writer->AddSource(delta->source(), changed));
  ZT_RETURN_IF_ERROR(writer->Flush());
  if (delta != nullptr) ZT_RETURN_IF_ERROR(delta->Finish(*writer, whole));
  if (Interrupted()) return Cancelled("interrupted");
  ZT_RETURN_IF_ERROR(writer->Finish());
  return writer;
}

std::string DeltaText(const Args& args, const DeltaCounts& counts) {
  std::string out = "base " + Printable(args.base.front()) + ": " +
                    Counted(counts.differing, "object") + " as differences, " +
                    std::to_string(counts.full) + " in full";
  if (counts.removed.empty()) return out + "\n";
  NameList names;
  for (const std::string& name : counts.removed) names.Add(Quote(name));
  return out + ", " + std::to_string(counts.removed.size()) +
         " of the base left out: " + Printable(names.ToString()) + "\n";
}

Status CheckDepth(const std::string& base, std::size_t deltas) {
  if (deltas < kMostDeltas) return OkStatus();
  return WithFile(InvalidArgument(std::to_string(deltas) +
                                  " deltas stand on each other there, the most that are read; "
                                  "'ztstream convert' writes it as a whole model, the next base"),
                  base);
}

Json DeltaJson(const Args& args, const DeltaCounts& counts) {
  return {{"path", args.base.front()},
          {"differing", counts.differing},
          {"full", counts.full},
          {"removed", counts.removed}};
}

Json ToJson(const std::vector<NumericFinding>& findings) {
  Json out = Json::array();
  for (const NumericFinding& finding : findings) {
    out.push_back({{"tensor", finding.tensor},
                   {"overflow", finding.counts.overflow},
                   {"nan_lost", finding.counts.nan_lost},
                   {"fraction_lost", finding.counts.fraction_lost},
                   {"underflow", finding.counts.underflow}});
  }
  return out;
}

std::vector<std::string> UnusedQuant(const Args& args, const TensorSource& source) {
  if (args.quant != "group" || NamesQuantized(source) ||
      std::ranges::count(source.objects(), "quantized_group", &Object::format) > 0)
    return {};
  return {
      "--quant group applies to no tensor: no module is as GPTQ, AWQ or compressed-tensors "
      "store it"};
}

std::string Describe(const Object& object) {
  std::string out;
  if (object.format != "dense") out = object.format + " ";
  const Component* const elements = ElementsOf(object);
  if (elements != nullptr) out += std::string(Name(elements->element)) + " ";
  return out + ToString(object.shape);
}

std::uint64_t Bytes(const Object& object) {
  std::uint64_t bytes = 0;
  for (const Component& component : object.components)
    bytes += component.bytes == kUnknownSize ? 0 : component.bytes;
  return bytes;
}

bool Compresses(const Plan& plan) {
  return std::ranges::any_of(plan.objects, [](const PlannedObject& planned) {
    if (IsFile(*planned.object)) return false;  // a few KiB beside the weights
    return std::ranges::any_of(planned.components, [](const PlannedComponent& component) {
      return component.storage.compression != Compression::kNone;
    });
  });
}

Json SummaryJson(const Args& args, const TensorSource& source, const Plan& plan,
                 const std::vector<std::string>& warnings) {
  Json out = Envelope(args, true);
  out["dry_run"] = args.dry_run;
  out["inputs"] = args.inputs;
  out["input_format"] = source.format();
  out["output"] = Json::object();
  if (!args.output.empty()) out["output"]["path"] = args.output;
  out["output"]["spec"] = args.spec;
  const std::uint64_t files = CountFiles(plan);
  out["tensors_in"] = source.objects().size() - CountFiles(source.objects());
  out["tensors"] = plan.objects.size() - files;
  if (files > 0) {
    Json& paths = out["files"] = Json::array();
    for (const PlannedObject& planned : plan.objects) {
      if (IsFile(*planned.object))
        paths.push_back({{"path", FileEntryOf(*planned.object, 0).path}});
    }
  }
  AddLeftOut(args, out);
  out["bytes_in"] = plan.input_bytes(source);
  out["bytes_decoded"] = plan.output_bytes();
  out["warnings"] = warnings;
  return out;
}

// ---- the command --------------------------------------------------------------------------------

namespace {

StatusOr<WriterOptions> MakeWriterOptions(const Args& args, const Rules& rules) {
  WriterOptions options;
  options.spec = rules.plan.spec;
  options.storage = rules.plan.storage;
  options.alignment = args.alignment;
  options.threads = args.threads;
  options.memory_bytes = args.memory;
  options.min_gain = args.min_gain_percent / 100;
  options.zstd = rules.zstd;
  ZT_RETURN_IF_ERROR(Annotate(Validate(options.zstd), "--zstd"));
  options.zstd.frame_bytes = args.chunk;
  ZT_RETURN_IF_ERROR(Annotate(Validate(options.zstd), "--chunk"));
  // Here, for what is wrong with options is said before what is wrong with files.
  ZT_RETURN_IF_ERROR(Validate(options));
  return options;
}

bool KeepsFrames(const PlannedObject& planned) {
  return std::ranges::any_of(planned.components, [](const PlannedComponent& component) {
    return component.storage.compression == Compression::kKeep;
  });
}

// A warning for each encoding of the input that the version lacks.
std::vector<std::string> LostEncodings(const TensorSource& source, const Plan& plan,
                                       const Args& args) {
  std::vector<std::string> lines;
  for (const Encoding encoding : Encodings()) {
    if (CheckEncoding(encoding, plan.spec).ok()) continue;
    const auto count = std::ranges::count_if(plan.objects, [&](const PlannedObject& planned) {
      return std::ranges::any_of(planned.components, [&](const PlannedComponent& component) {
        const auto held = source.encoded(component.source);
        return held && held->encoding == encoding;
      });
    });
    if (count == 0) continue;
    lines.push_back(Counted(static_cast<std::uint64_t>(count), "tensor") + " stored as " +
                    std::string(Name(encoding)) + " become zstd: --spec " + args.spec +
                    " does not have that encoding");
  }
  return lines;
}

// The plan as text: every tensor before and after the conversion.
std::string PlanText(const TensorSource& source, const Plan& plan, const Args& args,
                     std::optional<std::uint64_t> estimated) {
  std::string out;
  std::uint64_t shared = 0;
  for (const PlannedObject& planned : plan.objects) {
    if (IsFile(*planned.object)) continue;
    const Object& from = source.objects()[planned.components.front().source.object];
    const std::string before = Describe(from), after = Describe(*planned.object);
    out += Printable(planned.object->name);
    if (from.name != planned.object->name) out += "  (was " + Printable(from.name) + ")";
    out += "  " + Printable(before);
    if (before != after) out += " -> " + Printable(after);
    out += "  " + HumanBytes(Bytes(*planned.object));
    if (const auto& with = planned.components.front().shared_with) {
      out += "  = " + Printable(Repeated(plan.objects[with->object].object->name));
      ++shared;
    }
    out += "\n";
  }
  for (const PlannedObject& planned : plan.objects) {
    if (!IsFile(*planned.object)) continue;
    const FileEntry file = FileEntryOf(*planned.object, 0);
    out += Printable(file.path) + "  file  " + HumanBytes(file.bytes) + "\n";
  }
  const std::uint64_t files = CountFiles(plan);
  out += Printable(args.output.empty() ? "plan" : args.output) + ": zTensor " + args.spec + ", " +
         std::to_string(plan.objects.size() - files) + " of " +
         Counted(source.objects().size() - CountFiles(source.objects()), "tensor") +
         (files > 0 ? ", " + Counted(files, "file") : "") + ", " +
         HumanBytes(plan.input_bytes(source)) + " in, " + HumanBytes(plan.output_bytes()) + " out" +
         (FindMember(plan.attributes, kDeltaAttribute) != nullptr ? " if all were stored in full"
          : Compresses(plan)                                      ? " before compression"
                                                                  : "");
  const auto kept = std::ranges::count_if(plan.objects, KeepsFrames);
  if (kept > 0) out += ", " + std::to_string(kept) + " stay compressed";
  if (shared > 0) out += ", " + std::to_string(shared) + " shared with others";
  if (estimated) out += "; estimated size " + HumanBytes(*estimated);
  return out + "\n";
}

Json PlanJson(const TensorSource& source, const Plan& plan) {
  Json tensors = Json::array();
  for (const PlannedObject& planned : plan.objects) {
    if (IsFile(*planned.object)) continue;
    Json components = Json::array();
    for (std::size_t c = 0; c < planned.components.size(); ++c) {
      const ComponentId id = planned.components[c].source;
      const Component& from = source.objects()[id.object].components[id.component];
      const Component& to = planned.object->components[c];
      Json row = {{"role", to.role},
                  {"from", Name(from.element)},
                  {"to", Name(to.element)},
                  {"bytes_in", from.bytes},
                  {"bytes_out", to.bytes}};
      if (const auto& shared = planned.components[c].shared_with) {
        row["shared_with"] = Repeated(plan.objects[shared->object].object->name);
      }
      components.push_back(std::move(row));
    }
    const Object& from = source.objects()[planned.components.front().source.object];
    Json& row = tensors.emplace_back(Json{{"name", planned.object->name}});
    if (from.name != planned.object->name) row["source_name"] = from.name;
    row["format"] = planned.object->format;
    row["shape"] = planned.object->shape;
    row["components"] = std::move(components);
  }
  return tensors;
}

// Refuses an output that is a folder, or has the suffix of another format, before the work is done.
Status CheckOutputName(const Args& args) {
  const std::string& output = args.output;
  if (NamesFolder(output)) {
    return WithFile(InvalidArgument("the output is a folder; name a file in it, such as " +
                                    (std::filesystem::path(output) / "model.zt").string()),
                    output);
  }
  if (IsTorchName(args.output)) {
    return WithFile(InvalidArgument("convert writes .zt files; " + std::string(kNoTorch) +
                                    " ('ztstream extract')"),
                    args.output);
  }
  for (const Format& format : Formats()) {
    if (format.plan == nullptr || !HasSuffix(format, args.output)) continue;
    return WithFile(
        InvalidArgument("convert writes .zt files, and this name ends like a " +
                        std::string(format.name) + " file; 'ztstream extract' writes those"),
        args.output);
  }
  return OkStatus();
}

StatusOr<std::unique_ptr<TensorSource>> OpenSource(const Args& args, const Rules& rules) {
  SourceOptions input = args.source_options();
  const SpecVersion spec = *ParseSpecVersion(args.spec);
  input.u32_indices = Traits(spec).u32_indices;
  input.no_files = WhyNoFiles(spec);
  auto source = rules.Open(args, args.inputs, input, false);
  if (source.ok()) WarnOfOtherShards(args.inputs, **source);
  return source;
}

// Writes the output file and reports the result.
Status Write(const Args& args, TensorSource& source, const Plan& plan, WriterOptions options,
             DeltaMaker* delta, const std::vector<std::string>& warnings) {
  ZT_ASSIGN_OR_RETURN(std::unique_ptr<Sink> sink,
                      OpenSink(args.output, {.overwrite = args.force, .sync = !args.no_sync}));
  ProgressBar bar(args, "convert");
  options.progress = [&](const Progress& p) {
    bar.Update(p.bytes, p.bytes_total, p.tensors, p.tensors_total);
  };
  const std::size_t told = source.warnings().size();
  ZT_ASSIGN_OR_RETURN(const std::unique_ptr<Writer> writer,
                      WriteFile(std::move(sink), source, plan, std::move(options), delta));
  Completed();
  bar.End();
  Json json = args.json ? SummaryJson(args, source, plan, warnings) : Json{{"warnings", warnings}};
  if (delta != nullptr) json["base"] = DeltaJson(args, delta->Count(plan));
  std::vector<std::string> lines = WordedWarnings(args, source, told);
  std::ranges::copy(WarningsOf(writer->numeric_findings(), plan), std::back_inserter(lines));
  WarnAll(args, lines);
  for (std::string& line : lines) json["warnings"].push_back(std::move(line));
  if (args.json) {
    json["output"]["bytes"] = writer->file_bytes();
    json["timing"] = {{"wall_s", bar.seconds()}};
    json["numeric"] = ToJson(writer->numeric_findings());
    return PrintJson(args, json);
  }
  if (!args.quiet) {
    const std::uint64_t files = CountFiles(plan);
    Note(SummaryText(args.output, plan.objects.size() - files, plan.input_bytes(source),
                     writer->file_bytes(), bar.seconds(), files));
  }
  return OkStatus();
}

// Prints what would be done.
Status DryRun(const Args& args, TensorSource& source, const Plan& plan,
              const WriterOptions& options, const DeltaMaker* delta,
              const std::vector<std::string>& warnings) {
  std::optional<std::uint64_t> estimated;
  if (delta == nullptr && Compresses(plan)) {
    ZT_ASSIGN_OR_RETURN(estimated, EstimateBytes(source, plan, options));
  }
  Completed();
  if (!args.json) {
    std::string text = PlanText(source, plan, args, estimated);
    if (delta != nullptr) text += DeltaText(args, delta->Count(plan));
    return Print(text);
  }
  Json json = SummaryJson(args, source, plan, warnings);
  if (estimated) json["output"]["bytes_estimated"] = *estimated;
  json["plan"] = PlanJson(source, plan);
  if (delta != nullptr) json["base"] = DeltaJson(args, delta->Count(plan));
  return PrintJson(args, json);
}

// The maker of a delta from --base; null if the bases are those of deltas among the inputs.
StatusOr<std::unique_ptr<DeltaMaker>> MakeDelta(const Args& args, TensorSource& source, Plan& plan,
                                                WriterOptions& options) {
  if (args.base.empty() || !args.used_bases->empty()) return nullptr;
  if (args.canonical)
    return InvalidArgument("--canonical is of whole models; leave it or --base out");
  if (!Traits(plan.spec).files)
    return InvalidArgument("--spec " + args.spec + " has no deltas; 1.2 and 2.0 have");
  ZT_ASSIGN_OR_RETURN(auto base, OpenBase(args.base.front(), args.source_options()));
  ZT_RETURN_IF_ERROR(CheckDepth(args.base.front(), args.used_bases->size()));
  for (std::size_t i = 1; i < args.base.size(); ++i) {
    const std::vector<std::string>& used = *args.used_bases;
    if (std::ranges::find(used, args.base[i]) != used.end()) continue;
    return WithFile(
        InvalidArgument("a delta is made from one base, the first that --base names; this "
                        "is not one of its own bases"),
        args.base[i]);
  }
  const DigestKind kind = args.digest == "sha256" ? DigestKind::kSha256 : DigestKind::kXxh3;
  ZT_ASSIGN_OR_RETURN(auto maker,
                      DeltaMaker::Make(source, std::move(base), args.base.front(), kind));
  SetMember(plan.attributes, kDeltaAttribute, maker->attribute());
  if (options.alignment == 0) options.alignment = Traits(plan.spec).alignment;
  return maker;
}

Status Convert(const Args& args) {
  ZT_ASSIGN_OR_RETURN(const Rules rules, MakeRules(args));
  ZT_ASSIGN_OR_RETURN(WriterOptions options, MakeWriterOptions(args, rules));
  ZT_RETURN_IF_ERROR(CheckOutputName(args));
  ZT_ASSIGN_OR_RETURN(const std::optional<ShardRequest> shards, FindShardRequest(args));
  if (!args.dry_run && !shards) ZT_RETURN_IF_ERROR(CheckOutput(args.output, args.force));
  ZT_ASSIGN_OR_RETURN(const std::unique_ptr<TensorSource> source, OpenSource(args, rules));
  ZT_ASSIGN_OR_RETURN(Plan plan, rules.PlanOf(*source));
  std::vector<std::string> file_warnings = PlanFiles(args, *source, plan);
  if (args.canonical) {
    ZT_RETURN_IF_ERROR(MakeCanonical(
        *source, plan,
        {.threads = args.threads, .memory_bytes = args.memory, .cancelled = &Interrupted()}));
  }
  ZT_ASSIGN_OR_RETURN(const auto delta, MakeDelta(args, *source, plan, options));
  std::vector<std::string> warnings = WordedWarnings(args, *source);
  if (delta != nullptr && delta->Count(plan).differing_tensors == 0)
    warnings.push_back("--base " + args.base.front() +
                       ": no tensor is stored as differences, for none has the name, type and "
                       "shape of one there");
  for (std::string& warning : file_warnings) warnings.push_back(std::move(warning));
  for (std::string& warning : UnusedQuant(args, *source)) warnings.push_back(std::move(warning));
  for (std::string& warning : rules.Warnings()) warnings.push_back(std::move(warning));
  if (rules.plan.keep_encoding) {
    for (std::string& line : LostEncodings(*source, plan, args))
      warnings.push_back(std::move(line));
  }
  std::error_code none;
  const bool device = !IsUrl(args.output) && std::filesystem::exists(args.output, none) &&
                      !std::filesystem::is_regular_file(args.output, none);
  if (!args.output.empty() && args.output != "-" && !args.output.ends_with(".zt") && !shards &&
      !device) {
    warnings.push_back(args.output + ": a .zt file is written, and its name does not end in .zt");
  }
  const auto fails = [&](const Status& why) {
    if (!why.ok()) warnings.push_back("without --dry-run this fails: " + Worded(args, why));
  };
  if (args.dry_run && !shards) {
    std::filesystem::path place = args.output;
    // --each makes folders.
    for (std::filesystem::path folder; args.each && !IsUrl(args.output); place = folder) {
      folder = place.parent_path();
      if (folder.empty() || folder == place || std::filesystem::exists(folder, none)) break;
    }
    Status replaces = CheckOutput(place.string(), args.force);
    if (replaces.ok()) replaces = CheckIsNoInput(args, source.get());
    fails(replaces);
  }
  if (args.dry_run) fails(TryBases(args, *source, plan));
  WarnAll(args, warnings);
  ZT_RETURN_IF_ERROR(rules.selector().CheckAnyLeft(args.inputs.front()));
  if (args.verbose) {
    for (const std::string& line : rules.Uses()) Note(line);
  }
  if (shards) return ConvertShards(args, *shards, *source, plan, options, delta.get(), warnings);
  if (args.dry_run) return DryRun(args, *source, plan, options, delta.get(), warnings);
  ZT_RETURN_IF_ERROR(CheckIsNoInput(args, source.get()));
  return Write(args, *source, plan, std::move(options), delta.get(), warnings);
}

// What cannot be said of a folder of safetensors, or of what differs.
Status CheckFolderOptions(const Args& args) {
  const bool differs = args.to.starts_with(kToDiskDelta);
  if (!NamesFolder(args.output)) {
    return InvalidArgument("--to " + args.to + " writes a folder: end its name with / (" +
                           args.output + "/)" +
                           (differs ? "" : "; 'ztstream extract' writes one file"));
  }
  if (args.quant == "group")
    return InvalidArgument("--quant group is of .zt files, --to writes none");
  if (args.dry_run && differs) return InvalidArgument("--dry-run is not of --to " + args.to);
  if (differs && !(args.set.empty() && args.unset.empty()))
    return InvalidArgument(std::string(args.set.empty() ? "--unset" : "--set") +
                           " is not of --to " + args.to + ", which has no attributes of a model");
  if (!args.digest.empty() && !differs)
    return InvalidArgument("--digest is not of --to safetensors, which has none");
  return OkStatus();
}

int ConvertOne(const Args& args) {
  const Status status = Convert(args);
  if (status.ok()) NoteLeftOut(args);
  return Done(args, status);
}

// Fails if a file that a run would replace is an input, or lies in one.
Status CheckApart(const Args& args, std::span<const Args> runs) {
  const FilesRead inputs(args, nullptr, {});
  for (const Args& run : runs) {
    std::error_code none;
    Status apart = inputs.CheckOmits(run.output);
    for (auto at = std::filesystem::canonical(run.output, none);
         apart.ok() && at.has_relative_path(); at = at.parent_path())
      apart = inputs.CheckOmits(at.string());
    if (!apart.ok()) return WithFile(InvalidArgument("it is, or lies in, an input"), run.output);
  }
  return OkStatus();
}

// Each input to a file of its name in the folder. Goes on after an error; returns the first one's
// status.
int ConvertEach(const Args& args) {
  namespace fs = std::filesystem;
  std::set<std::string> outputs;
  std::vector<Args> runs;
  for (const std::string& input : args.inputs) {
    fs::path path = input;
    std::error_code none;
    if (!path.has_filename()) path = path.parent_path();  // "model/"
    if (path.filename() == "." || path.filename() == "..") path = fs::canonical(path, none);
    const auto folder = TheStore().IsFolder(input);
    if (!folder.ok()) return Fail(args, WithFile(folder.status(), input));
    Args& run = runs.emplace_back(args);
    run.inputs = {input};
    run.output =
        (fs::path(args.output) / (*folder ? path.filename() : path.stem())).string() + ".zt";
    run.left_out = std::make_shared<std::vector<LeftOut>>();
    run.used_bases = std::make_shared<std::vector<std::string>>();
    if (args.output.empty() || args.output == "-" || IsPipe(input) || IsStandardInput(input))
      return Fail(args, InvalidArgument("--each names files after the inputs: give -o OUT/, and no "
                                        "pipes"));
    if (!outputs.insert(run.output).second)
      return Fail(args, WithFile(InvalidArgument("two inputs would be written there"), run.output));
  }
  if (runs.size() > 1) {
    if (const Status apart = CheckApart(args, runs); !apart.ok()) return Fail(args, apart);
  }
  std::error_code error;
  if (!args.dry_run && !IsUrl(args.output)) fs::create_directories(args.output, error);
  if (error) return Fail(args, WithFile(IoError(error.value(), "cannot make"), args.output));
  int first = 0;
  for (const Args& run : runs) {
    Begun();
    if (Ended()) return first == 0 ? Fail(args, Cancelled("interrupted")) : first;
    const int status = ConvertOne(run);
    if (first == 0) first = status;
  }
  return first;
}

}  // namespace

int RunConvert(const Args& args) {
  if (!args.to.empty()) {
    const Status fits = CheckFolderOptions(args);
    return fits.ok() ? RunExtract(args) : Done(args, fits);
  }
  return args.each ? ConvertEach(args) : ConvertOne(args);
}

}  // namespace zt::cli::internal
