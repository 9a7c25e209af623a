// ztstream — the options of every command: declared, checked, and handed to the command.
#include "cli/options.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

import zt;
import zt.cli;

namespace zt::cli {
namespace {

// Filled by parsing. One command is parsed, so what all take is kept once.
struct Arguments {
  ConvertArgs convert;
  JoinArgs join;
  InspectArgs inspect;
  VerifyArgs verify;
  ExtractArgs extract;
  DiffArgs diff;
  IdArgs id;
  BenchArgs bench;
  Common common;
  InputArgs input;
  std::string quant = "keep", sparse = "auto", progress = "auto";
};

Arguments& Parsed() {
  static Arguments arguments;
  return arguments;
}

// A whole number from `least` to `most`.
CLI::Validator Number(std::uint64_t least, std::uint64_t most) {
  const auto transform = [=](std::string& text) -> std::string {
    const auto number = ParseNumber(text);
    if (!number || *number < least || *number > most) {
      return "'" + text + "' is no number from " + std::to_string(least) + " to " +
             std::to_string(most);
    }
    text = std::to_string(*number);
    return {};
  };
  return CLI::Validator(transform, "");
}

CLI::Validator Percent() {
  const auto check = [](const std::string& text) -> std::string {
    const auto number = ParseDecimal(text);
    if (number && *number >= -1e6 && *number <= 100) return {};
    return "'" + text + "' is no percentage up to 100";
  };
  return CLI::Validator(check, "");
}

CLI::Validator Size() {
  const auto transform = [](std::string& text) -> std::string {
    const auto bytes = ParseSize(text);
    if (!bytes || *bytes == 0) {
      return "'" + text +
             "' is no size; give a number of bytes, at least 1, or KiB, MiB, GiB, kB, MB, GB";
    }
    text = std::to_string(*bytes);
    return {};
  };
  return CLI::Validator(transform, "SIZE");
}

// A version that is written, or "1.2.0" for it.
CLI::Validator Version() {
  const auto check = [](const std::string& text) -> std::string {
    for (const std::string_view each : {"2.0", "1.2", "1.1", "0.1", "1.2.0", "1.1.0", "0.1.0"}) {
      if (text == each) return {};
    }
    const std::string meant = text == "2" || text == "2.0.0" ? "2.0" : text == "1" ? "1.2" : "";
    return "'" + text + "' is not a version; versions are 2.0, 1.2, 1.1 and 0.1" +
           (meant.empty() ? "" : "; did you mean " + meant + "?");
  };
  return CLI::Validator(check, "");
}

void AddCommon(CLI::App& app) {
  Common& common = Parsed().common;
  app.add_flag("--json", common.json, "The result, or the error, as one JSON object");
  app.add_flag("-q,--quiet", common.quiet, "No progress, summary or warnings");
  app.add_flag("-v,--verbose", common.verbose, "Say more");
  app.add_option("--progress", Parsed().progress, "auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();
  app.add_option("-T,--threads", common.threads, "Workers; 0: all usable")
      ->transform(Number(0, 1024))
      ->capture_default_str();
  app.add_option("--memory", common.memory, "Bytes of data under way at once")
      ->transform(Size())
      ->default_str("32MiB for each worker");
}

void AddInput(CLI::App& app) {
  InputArgs& input = Parsed().input;
  std::string names;
  for (const std::string& name : InputFormats()) names += (names.empty() ? "" : " ") + name;
  app.add_option("--from", input.from, names + "; or guessed")
      ->check(CLI::IsMember(InputFormats()));
  app.add_flag("--follow-links", input.follow_links,
               "Shards and external data may be links out of the folder");
  app.add_option("--npy-void", input.npy_void, "Element type of npy's '|V' arrays, e.g. bf16");
  app.add_flag("--no-sign-request", Parsed().common.no_sign_request, "Ask S3 without credentials");
  app.add_option("--sparse", Parsed().sparse, "auto; keep: scipy archives stay dense")
      ->check(CLI::IsMember({"auto", "keep"}))
      ->capture_default_str();
}

CLI::Option* Repeatable(CLI::Option* option) {
  return option->take_all()->allow_extra_args(false);  // what follows one may be an input
}

template <typename T>
void AddWriting(CLI::App& app, T& args) {
  app.add_flag("-f,--force", args.force, "Replace an existing output");
  app.add_flag("--no-sync", args.no_sync, "Do not wait until the disk has it");
}

void AddConvert(CLI::App& app, ConvertArgs& args) {
  app.add_option("INPUT", args.inputs, "Files, a checkpoint folder, or - for standard input")
      ->required();
  app.add_option("-o,--output", args.output, "The .zt file, or - for standard output");
  app.add_option("--spec", args.spec, "Version to write: 2.0, 1.2, 1.1 or 0.1")
      ->check(Version())
      ->default_str("1.2");
  app.add_flag("--canonical", args.canonical, "Of 2.0: equal tensors make equal files");
  app.add_option("--align", args.alignment, "Blobs begin at multiples of it [64; 2.0: 64KiB]")
      ->transform(Size());
  const auto zstd = [&args](const std::string& text) {
    args.zstd = ParseZstd(text);
    if (!args.zstd)
      throw CLI::ValidationError("--zstd",
                                 "'" + text + "' is none of a level, 'huffman' and 'planes'");
  };
  app.add_option_function<std::string>("--zstd", zstd,
                                       "Compress; LEVEL 1 to 19, negative, huffman or planes");
  app.add_option("--min-gain", args.min_gain_percent, "Percent a component must shrink by")
      ->check(Percent())
      ->capture_default_str();
  app.add_option("--chunk", args.chunk, "Content of one zstd frame")
      ->transform(Size())
      ->default_str("4MiB");
  app.add_option("--digest", args.digest, "none, crc32c, sha256 or xxh3 [crc32c; 2.0: xxh3]")
      ->check(CLI::IsMember({"none", "crc32c", "sha256", "xxh3"}));
  Repeatable(app.add_option("--dtype", args.dtype,
                            "TYPE, or keep, of matching names; the first rule wins"));
  app.add_option("--on-overflow", args.on_overflow, "error, inf or saturate")
      ->check(CLI::IsMember({"error", "inf", "saturate"}))
      ->capture_default_str();
  app.add_option("--dequantize", args.dequantize, "Quantized GGUF blocks to f32, f16 or bf16")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}));
  app.add_option("--quant", Parsed().quant, "keep; group: one object a quantized module")
      ->check(CLI::IsMember({"keep", "group"}))
      ->capture_default_str();
  Repeatable(
      app.add_option("--include", args.include, "Only tensors whose name matches; repeatable"));
  Repeatable(app.add_option("--exclude", args.exclude, "Not these; repeatable"));
  Repeatable(app.add_option("--rename", args.rename, "New names; repeatable, in order"));
  app.add_flag("--no-metadata", args.no_metadata, "Leave out the attributes of the whole file");
  app.add_option("--shards", args.shards, "Write N files, cut in the order of the input")
      ->transform(Number(1, 99999));
  app.add_option("--shard-size", args.shard_size, "Write files of so many decoded bytes at most")
      ->transform(Size());
  app.add_option("--shard", args.shard, "Write only shard I of N");
  app.add_option("--part-size", Parsed().common.part_bytes, "Bytes of each part sent to s3://")
      ->transform(Size());
  app.add_flag("-n,--dry-run", args.dry_run, "Print the plan and write nothing");
  AddWriting(app, args);
}

void AddJoin(CLI::App& app, JoinArgs& args) {
  app.add_option("SHARD", args.shards, "All shards of one conversion: DIR/model-*-of-*.zt")
      ->required();
  app.add_option("-o,--output", args.output, "What they were written for: DIR/model.zt");
  app.add_flag("--missing", args.missing, "Print the numbers of those that are not there");
  AddWriting(app, args);
}

void AddInspect(CLI::App& app, InspectArgs& args) {
  app.add_option("FILE", args.file, "The file")->required();
  app.add_option("--sort", args.sort, "name, size or offset; else in the order of the file")
      ->check(CLI::IsMember({"name", "size", "offset"}));
  app.add_flag("--tree", args.tree, "Fold names by their dots, with the size of each layer");
}

void AddVerify(CLI::App& app, VerifyArgs& args) {
  app.add_option("FILE", args.file, "The file")->required();
  app.add_option("--against", args.against, "The inputs it was made of; values are compared");
  app.add_flag("--canonical", args.canonical, "It has to be in the canonical form of 2.0");
}

void AddExtract(CLI::App& app, ExtractArgs& args) {
  app.add_option("FILE", args.file, "A file of any format it reads, or a checkpoint folder")
      ->required();
  app.add_option("NAME", args.names, "Only these tensors; patterns such as '*.bias' too");
  app.add_option("-o,--output", args.output,
                 ".safetensors, .npz, .npy, .gguf; DIR/: .npy each; or -")
      ->required();
  app.add_option("--to", args.to, "safetensors, npy, npz or gguf; else by OUT's suffix")
      ->check(CLI::IsMember(OutputFormats()));
  AddWriting(app, args);
}

void AddDiff(CLI::App& app, DiffArgs& args) {
  app.add_option("A", args.first, "A file of any format it reads, or a checkpoint folder")
      ->required();
  app.add_option("B", args.second, "Another")->required();
}

void AddId(CLI::App& app, IdArgs& args) {
  app.add_option("INPUT", args.inputs, "Files, a checkpoint folder, or - for standard input")
      ->required();
  app.add_option("--digest", args.digest, "sha256 or xxh3")
      ->check(CLI::IsMember({"sha256", "xxh3"}))
      ->capture_default_str();
}

void AddBench(CLI::App& app, BenchArgs& args) {
  app.add_option("INPUT", args.inputs, "Files or a checkpoint folder")->required();
  app.add_option("--folder", args.folder, "For a temporary file; else the input's folder");
  app.add_option("--limit", args.limit, "Bytes each run takes at most")
      ->transform(Size())
      ->default_str("1GiB");
  app.add_option("--runs", args.runs, "Runs of each measurement; the median counts")
      ->transform(Number(1, 1'000'000))
      ->capture_default_str();
}

// What every command takes.
Common CompleteCommon(const std::string& output = "") {
  Common common = Parsed().common;
  common.progress = Parsed().progress == "always"  ? ProgressMode::kAlways
                    : Parsed().progress == "never" ? ProgressMode::kNever
                                                   : ProgressMode::kAuto;
  common.product_on_output = output == "-";
  return common;
}

// Fills in what the commands that read inputs share.
template <typename T>
const T& Complete(T& args, const std::string& output = "") {
  args.common = CompleteCommon(output);
  args.input = Parsed().input;
  if (args.common.memory != 0) args.input.memory_limit = args.common.memory;
  args.input.keep_sparse = Parsed().sparse == "keep";
  return args;
}

}  // namespace

void AddCommands(CLI::App& app) {
  Arguments& parsed = Parsed();
  const auto add = [&](const char* name, const char* does, auto declare, auto& args) {
    CLI::App* const command = app.add_subcommand(name, does);
    declare(*command, args);
    AddInput(*command);
    AddCommon(*command);
  };
  add("convert", "Convert files or a checkpoint folder to .zt files", AddConvert, parsed.convert);
  CLI::App* const join = app.add_subcommand("join", "Write the index that makes shards one input");
  AddJoin(*join, parsed.join);
  AddCommon(*join);
  add("inspect", "List a file of any format it reads, from its header", AddInspect, parsed.inspect);
  add("verify", "Check every byte of a .zt file, or of all its shards", AddVerify, parsed.verify);
  add("extract", "Write tensors back as safetensors, npz, npy or GGUF", AddExtract, parsed.extract);
  add("diff", "Compare names, shapes, types, attributes and values", AddDiff, parsed.diff);
  add("id", "Print what identifies a model: its content digest", AddId, parsed.id);
  add("bench", "Measure reading, converting, compressing and writing", AddBench, parsed.bench);
}

int RunCommand(const CLI::App& app) {
  Arguments& p = Parsed();
  p.common.command = app.get_subcommands().front()->get_name();
  UseUrls(p.common);
  if (p.common.command == "convert") {
    p.convert.group_quantized = p.quant == "group";
    if (p.convert.spec.empty()) p.convert.spec = p.convert.canonical ? "2.0" : "1.2";
    if (p.convert.output.empty() && !p.convert.dry_run)
      return RefuseUsage(p.common,
                         "-o OUT is missing: the .zt file to write, or - for standard "
                         "output; see ztstream convert --help");
    return RunConvert(Complete(p.convert, p.convert.output));
  }
  if (p.common.command == "join") {
    if (p.join.output.empty() && !p.join.missing)
      return RefuseUsage(p.common,
                         "-o OUT is missing: the .zt file that the shards were written for; see "
                         "ztstream join --help");
    p.join.common = CompleteCommon();
    return RunJoin(p.join);
  }
  if (p.common.command == "inspect") return RunInspect(Complete(p.inspect));
  if (p.common.command == "verify") return RunVerify(Complete(p.verify));
  if (p.common.command == "extract") return RunExtract(Complete(p.extract, p.extract.output));
  if (p.common.command == "diff") return RunDiff(Complete(p.diff));
  if (p.common.command == "id") return RunId(Complete(p.id));
  return RunBench(Complete(p.bench));
}

Common CommonOf(const std::vector<std::string>& words) {
  Common common;
  common.json = std::ranges::find(words, "--json") != words.end();
  if (!words.empty() && !words.front().starts_with('-')) common.command = words.front();
  return common;
}

}  // namespace zt::cli
