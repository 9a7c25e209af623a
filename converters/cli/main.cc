// ztstream — the program: parses the command line and hands it to a command.
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/help.h"
#include "cli/versions.h"

import zt;
import zt.cli;

namespace {

using zt::cli::Common;
using zt::cli::InputOptions;
using zt::cli::ProgressMode;

// Options given as text and checked after parsing.
struct Texts {
  std::string progress = "auto", memory = "64MiB";
};

void AddCommon(CLI::App& app, Common& common, Texts& texts) {
  app.add_flag("--json", common.json, "Machine-readable output on standard output");
  app.add_flag("-q,--quiet", common.quiet, "No progress, summary or warnings");
  app.add_flag("-v,--verbose", common.verbose, "Say more");
  app.add_option("--progress", texts.progress, "auto, always or never")->capture_default_str();
  app.add_option("-T,--threads", common.threads, "Workers; 0: all usable")->capture_default_str();
  app.add_option("--memory", texts.memory, "Bytes of data under way at once")
      ->capture_default_str();
}

void AddInput(CLI::App& app, InputOptions& input) {
  app.add_option("--from", input.from, "safetensors, npy, npz, gguf or zt; else by content");
  app.add_flag("--follow-links", input.follow_links,
               "Shards may be symbolic links out of the folder");
  app.add_option("--npy-void", input.npy_void, "Element type of npy's '|V' arrays, e.g. bf16");
}

zt::Status Settle(Common& common, const Texts& texts) {
  if (texts.progress == "auto") {
    common.progress = ProgressMode::kAuto;
  } else if (texts.progress == "always") {
    common.progress = ProgressMode::kAlways;
  } else if (texts.progress == "never") {
    common.progress = ProgressMode::kNever;
  } else {
    return zt::InvalidArgument("--progress takes auto, always or never");
  }
  if (common.threads > 1024) return zt::InvalidArgument("--threads takes 0 to 1024");
  auto memory = zt::cli::ParseSize(texts.memory);
  if (!memory.ok()) return zt::Annotate(memory.status(), "--memory");
  common.memory = *memory;
  return zt::OkStatus();
}

int Usage(const zt::Status& status) {
  std::fprintf(stderr, "ztstream: %s\n", std::string(zt::Message(status)).c_str());
  return zt::ExitStatus(status);
}

// --zstd takes its level after '=' only, so that a bare --zstd never swallows an input.
std::vector<std::string> Arguments(int argc, char** argv) {
  std::vector<std::string> out;
  bool options = true;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (word == "--") options = false;
    out.push_back(options && word == "--zstd" ? "--zstd=1" : std::move(word));
  }
  return {out.rbegin(), out.rend()};  // CLI11 takes them reversed
}

std::string Version() {
  std::string targets;
  for (const std::string& target : zt::SimdTargets())
    targets += (targets.empty() ? "" : " ") + target;
  return "ztstream " ZT_VERSION
         "\nwrites   zTensor 1.2.0, 1.1.0, 0.1.0\nreads    zTensor 1.x, 0.1; safetensors, npy 1 to "
         "3, npz, GGUF 1 to 3\npackages zstd " +
         std::string(zt::ZstdVersion()) + ", Highway " + std::string(zt::HighwayVersion()) +
         "\nbuilt on " ZT_PACKAGES "\nSIMD     " + targets;
}

int Run(int argc, char** argv) {
  CLI::App app("Streams tensors from safetensors, npy, npz and GGUF into zTensor .zt files.",
               "ztstream");
  app.set_version_flag(
      "--version", [] { return Version(); }, "Versions of the program, the formats, the packages");
  app.require_subcommand(1);

  zt::cli::ConvertArgs convert;
  zt::cli::InspectArgs inspect;
  zt::cli::VerifyArgs verify;
  Texts texts;

  CLI::App* c =
      app.add_subcommand("convert", "Convert files or a checkpoint folder to one .zt file");
  c->add_option("INPUT", convert.inputs, "Files, a checkpoint folder, or - for standard input")
      ->required();
  c->add_option("-o,--output", convert.output, "The .zt file, or - for standard output")
      ->required();
  c->add_option("--spec", convert.spec, "Version to write: 1.2, 1.1 or 0.1")->capture_default_str();
  c->add_option("--zstd", convert.zstd, "Compress; LEVEL 1 to 19, negative, huffman or planes");
  c->add_option("--min-gain", convert.min_gain_percent, "Percent a component must shrink by")
      ->capture_default_str();
  c->add_option("--chunk", convert.chunk, "Content of one zstd frame")->capture_default_str();
  c->add_option("--digest", convert.digest, "none, crc32c, sha256 or xxh3")->capture_default_str();
  c->add_option("--dtype", convert.dtype, "TYPE, or keep, of matching names; the first rule wins")
      ->take_all()
      ->allow_extra_args(false);  // one each time: what follows may be an input
  c->add_option("--on-overflow", convert.on_overflow, "error, inf or saturate")
      ->capture_default_str();
  c->add_option("--dequantize", convert.dequantize, "Quantized GGUF blocks to f32, f16 or bf16");
  std::string quant = "keep";
  c->add_option("--quant", quant, "keep; group: one object a quantized module")
      ->capture_default_str();
  std::string sparse = "auto";
  c->add_option("--sparse", sparse, "auto; keep: scipy archives stay dense")->capture_default_str();
  c->add_option("--include", convert.include, "Only tensors whose name matches; repeatable")
      ->take_all()
      ->allow_extra_args(false);
  c->add_option("--exclude", convert.exclude, "Not these; repeatable")
      ->take_all()
      ->allow_extra_args(false);
  c->add_option("--rename", convert.rename, "New names; repeatable, in order")
      ->take_all()
      ->allow_extra_args(false);
  c->add_flag("--no-metadata", convert.no_metadata, "Leave out the attributes of the whole file");
  c->add_flag("-n,--dry-run", convert.dry_run, "Print the plan and write nothing");
  c->add_flag("-f,--force", convert.force, "Replace an existing output");
  c->add_flag("--no-sync", convert.no_sync, "Do not wait until the disk has it");
  AddInput(*c, convert.input);
  AddCommon(*c, convert.common, texts);

  CLI::App* i =
      app.add_subcommand("inspect", "List a file of any format it reads, from its header");
  i->add_option("FILE", inspect.file, "The file")->required();
  AddInput(*i, inspect.input);
  AddCommon(*i, inspect.common, texts);

  CLI::App* v = app.add_subcommand("verify", "Check every byte of a .zt file");
  v->add_option("FILE", verify.file, "The file")->required();
  v->add_option("--against", verify.against, "The inputs it was made of; values are compared");
  AddInput(*v, verify.input);
  AddCommon(*v, verify.common, texts);

  zt::cli::ExtractArgs extract;
  CLI::App* x =
      app.add_subcommand("extract", "Write tensors back as safetensors, npz, npy or GGUF");
  x->add_option("FILE", extract.file, "A file of any format it reads, or a checkpoint folder")
      ->required();
  x->add_option("NAME", extract.names, "Only these tensors");
  x->add_option("-o,--output", extract.output,
                ".safetensors, .npz, .npy, .gguf; DIR/: .npy each; or -")
      ->required();
  x->add_option("--to", extract.to, "safetensors, npz, npy or gguf; else by OUT's suffix");
  x->add_flag("-f,--force", extract.force, "Replace an existing output");
  x->add_flag("--no-sync", extract.no_sync, "Do not wait until the disk has it");
  AddInput(*x, extract.input);
  AddCommon(*x, extract.common, texts);

  zt::cli::DiffArgs diff;
  CLI::App* d = app.add_subcommand("diff", "Compare two inputs by name, shape, type and values");
  d->add_option("A", diff.first, "A file of any format it reads, or a checkpoint folder")
      ->required();
  d->add_option("B", diff.second, "Another")->required();
  AddInput(*d, diff.input);
  AddCommon(*d, diff.common, texts);

  zt::cli::BenchArgs bench;
  CLI::App* b = app.add_subcommand("bench", "Measure reading, converting, compressing and writing");
  b->add_option("INPUT", bench.inputs, "Files or a checkpoint folder")->required();
  b->add_option("--folder", bench.folder, "For a temporary file; else the input's folder");
  b->add_option("--limit", bench.limit, "Bytes each run takes at most")->capture_default_str();
  b->add_option("--runs", bench.runs, "Runs of each measurement; the median counts")
      ->capture_default_str();
  AddInput(*b, bench.input);
  AddCommon(*b, bench.common, texts);

  zt::cli::ArrangeHelp(app);
  try {
    app.parse(Arguments(argc, argv));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::string what = error.what();
    for (char& ch : what) ch = ch == '\n' ? ' ' : ch;
    std::fprintf(stderr, "ztstream: %s; see ztstream --help\n", what.c_str());
    return 2;
  }
  Common& common = *c   ? convert.common
                   : *i ? inspect.common
                   : *v ? verify.common
                   : *x ? extract.common
                   : *b ? bench.common
                        : diff.common;
  if (auto status = Settle(common, texts); !status.ok()) return Usage(status);
  convert.input.memory = convert.common.memory;
  convert.input.keep_sparse = sparse == "keep";
  convert.group_quantized = quant == "group";
  if (quant != "keep" && quant != "group")
    return Usage(zt::InvalidArgument("--quant takes keep or group"));
  if (sparse != "auto" && sparse != "keep")
    return Usage(zt::InvalidArgument("--sparse takes auto or keep"));

  if (*c) return zt::cli::RunConvert(convert);
  if (*i) return zt::cli::RunInspect(inspect);
  for (InputOptions* input : {&verify.input, &extract.input, &diff.input, &bench.input})
    input->memory = common.memory;
  if (*x) return zt::cli::RunExtract(extract);
  if (*d) return zt::cli::RunDiff(diff);
  if (*b) return zt::cli::RunBench(bench);
  return zt::cli::RunVerify(verify);
}

}  // namespace

int main(int argc, char** argv) {
  zt::cli::InstallSignals();
  try {
    return Run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("ztstream: out of memory\n", stderr);
    return 6;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ztstream: internal error: %s\n", error.what());
    return 70;
  }
}
