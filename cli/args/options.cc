// zt.cli:options — the table. To add an option, add its row; scripts/reference.py then writes the
// man page and the completions.
module zt.cli;

import zt.std;
import :options;

namespace zt::cli::internal {
namespace {

constexpr Command kCommands[] = {
    {kConvert, "convert", "Convert files or a checkpoint folder to .zt files", RunConvert},
    {kJoin, "join", "Write the index that makes shards one input", RunJoin},
    {kInspect, "inspect", "List a file of any format it reads, from its header", RunInspect},
    {kShow, "show", "Print the values of a tensor, or of a part of it", RunShow},
    {kVerify, "verify", "Check every byte of a .zt file, or of all its shards", RunVerify},
    {kExtract, "extract", "Write tensors back as safetensors, npz, npy or GGUF", RunExtract},
    {kApply, "apply", "Change a checkpoint where it lies to the next version", RunApply},
    {kDiff, "diff", "Compare names, shapes, types, attributes and values", RunDiff},
    {kId, "id", "Print the content digest, which identifies a model", RunId},
};

constexpr std::string_view kOutput = "Output", kShards = "Shards", kTensors = "Tensors",
                           kChecks = "Checks", kInput = "Input", kAll = "Every command";
constexpr unsigned kReads = kEvery & ~kJoin, kOpens = kReads & ~kApply,
                   kWrites = kConvert | kJoin | kExtract | kInspect,
                   kRules = kConvert | kExtract | kVerify,
                   kSays = kConvert | kInspect | kExtract | kDiff;
constexpr std::string_view kFiles = "@files", kTensorNames = "@tensors";
constexpr std::string_view kFloats = "f32 f16 bf16";
constexpr std::uint64_t kLeastMemory = 64 << 10;

constexpr Option kOptions[] = {
    // Operands.
    {kConvert | kId, 0, "INPUT...", "", "", &Args::inputs,
     "Files, a checkpoint folder, or - for standard input", "", kFiles},
    {kJoin, 0, "SHARD...", "", "", &Args::inputs,
     "All shards of one conversion: DIR/model-*-of-*.zt", "", kFiles},
    {kInspect, 0, "FILE...", "", "", &Args::inputs, "Files or folders of any format it reads", "",
     kFiles},
    {kInspect, 0, "[WORD...]", "", "", &Args::names, "After them, words that mean tensors: 'norm'",
     "", kTensorNames},
    {kVerify, 0, "FILE", "", "", &Args::inputs, "The file, or a folder of shards", "", kFiles},
    {kShow | kExtract, 0, "FILE", "", "", &Args::inputs,
     "A file of any format it reads, or a checkpoint folder", "", kFiles},
    {kShow, 0, "[NAME]", "", "", &Args::names, "A tensor, or a slice as numpy has it: 'w[0:4,:8]'",
     "", kTensorNames},
    {kExtract, 0, "[NAME...]", "", "", &Args::names,
     "Only these tensors: names, 'glob:*.bias' or regexes", "", kTensorNames},
    {kApply, 0, "DELTA", "", "", &Args::inputs, "What 'convert --base' wrote", "", kFiles},
    {kApply, 0, "CHECKPOINT", "", "", &Args::inputs,
     "A folder of safetensors, one file of them, or a raw .zt file", "", kFiles},
    {kDiff, 0, "A", "", "", &Args::inputs, "A file of any format it reads, or a checkpoint folder",
     "", kFiles},
    {kDiff, 0, "B", "", "", &Args::inputs, "What A is compared with", "", kFiles},

    {kConvert, 'o', "output", "OUT", kOutput, &Args::output,
     "The .zt file, or - for standard output", "", kFiles},
    {kJoin, 'o', "output", "OUT", kOutput, &Args::output,
     "The .zt file that the shards were written for: DIR/model.zt", "", kFiles},
    {kExtract, 'o', "output", "OUT", kOutput, &Args::output,
     ".safetensors, .npz, .npy, .gguf; DIR/: .npy each; or -", "", kFiles},
    {kConvert, 0, "spec", "VERSION", kOutput, &Args::spec, "Version to write: 2.0, 1.2, 1.1 or 0.1",
     "1.2", "2.0 1.2 1.1 0.1", "1.2.0=1.2 1.1.0=1.1 0.1.0=0.1"},
    {kConvert, 0, "canonical", "", kOutput, &Args::canonical,
     "Version 2.0, with one form for equal tensors"},
    {kConvert, 0, "align", "SIZE", kOutput, &Args::alignment, "Align blobs to multiples of SIZE",
     "64; 2.0: 64KiB", "", "", 1},
    {kConvert, 0, "zstd", "[=LEVEL]", kOutput, &Args::zstd,
     "1 to 19, negative, huffman; planes: for ztstream alone; or WHICH=LEVEL; repeatable", "",
     "1 3 9 19 huffman planes"},
    {kConvert, 0, "raw", "", kOutput, &Args::raw, "Decompress .zt inputs"},
    {kConvert, 0, "min-gain", "PCT", kOutput, &Args::min_gain_percent,
     "Compress components that shrink by PCT percent", "2", "", "", 0, 100},
    {kConvert, 0, "chunk", "SIZE", kOutput, &Args::chunk, "Content of one zstd frame", "4MiB", "",
     "", 1},
    {kConvert, 0, "digest", "KIND", kOutput, &Args::digest, "none, crc32c, sha256 or xxh3",
     "crc32c; 2.0: xxh3", "none crc32c sha256 xxh3"},
    {kId, 0, "digest", "KIND", kOutput, &Args::digest, "sha256 or xxh3", "sha256", "sha256 xxh3"},
    {kConvert | kExtract, 'n', "dry-run", "", kOutput, &Args::dry_run,
     "Print the plan and write nothing"},
    {kConvert, 0, "each", "", kOutput, &Args::each,
     "Write each input to a file of its own in the folder OUT/"},
    {kJoin, 0, "missing", "", kOutput, &Args::missing, "Print the numbers of missing shards"},
    {kConvert, 0, "to", "FORMAT", kOutput, &Args::to,
     "Write a folder: safetensors, disk-delta[-overwrite]", "",
     "safetensors disk-delta disk-delta-overwrite", "st=safetensors"},
    {kExtract, 0, "to", "FORMAT", kOutput, &Args::to,
     "safetensors, npy, npz or gguf; else by OUT's suffix", "", kWrittenFormats, "st=safetensors"},
    {kInspect, 0, "html", "OUT", kOutput, &Args::output,
     "Write a page for a browser, in one file, or - for standard output", "", kFiles},
    {kWrites, 'f', "force", "", kOutput, &Args::force, "Replace an existing output"},
    {kWrites, 0, "no-sync", "", kOutput, &Args::no_sync,
     "Do not wait until the output is on the disk"},
    {kConvert, 0, "part-size", "SIZE", kOutput, &Args::part_bytes,
     "Size of the parts of an upload to s3://", "", "", "", 1},
    {kConvert | kExtract, 0, "resume", "", kOutput, &Args::resume,
     "Continue an upload to s3:// that ended early"},
    {kInspect, 0, "sort", "ORDER", kOutput, &Args::sort,
     "name, size or offset; else in the order of the file", "", "name size offset"},
    {kInspect, 0, "stats", "", kOutput, &Args::stats,
     "Read the numbers: extremes, mean, deviation, counts"},
    {kInspect, 0, "names", "", kOutput, &Args::names_alone,
     "Print the names of the tensors alone, as they are"},
    {kInspect, '0', "null", "", kOutput, &Args::null, "End each of --names with a NUL"},
    {kInspect, 0, "tree", "", kOutput, &Args::tree,
     "Fold names by dots and slashes, with the size of each layer; text, for people alone"},

    {kConvert, 0, "shards", "N", kShards, &Args::shards,
     "Write N files, cut in the order of the input", "", "", "", 1, 99999},
    {kConvert | kExtract, 0, "shard-size", "SIZE", kShards, &Args::shard_size,
     "Write weights in files of at most SIZE decoded data", "", "", "", 1},
    {kConvert, 0, "shard", "I/N", kShards, &Args::shard, "Write only shard I of N"},

    {kRules, 0, "dtype", "[WHICH=]TYPE", kTensors, &Args::dtype,
     "TYPE, or keep, of those tensors; the first rule wins", "", "f32 f16 bf16 f8_e4m3fn f8_e5m2"},
    {kRules, 0, "on-overflow", "WHAT", kTensors, &Args::on_overflow, "error, inf or saturate",
     "error", "error inf saturate"},
    {kRules, 0, "allow-loss", "", kTensors, &Args::allow_loss, "Let integer types drop fractions"},
    {kRules | kDiff, 0, "dequantize", "TYPE", kTensors, &Args::dequantize,
     "Numbers of TYPE in place of codes and scales (FP8, GPTQ, GGUF)", "", kFloats},
    {kConvert | kVerify, 0, "quant", "HOW", kTensors, &Args::quant,
     "keep; group: one object a quantized module", "keep", "keep group"},
    {kRules | kDiff | kInspect | kId, 0, "include", "WHICH", kTensors, &Args::include,
     "Only these: name, glob:PATTERN or regex; repeatable"},
    {kRules | kDiff | kInspect | kId, 0, "include-from", "LIST", kTensors, &Args::include_from,
     "Only what a file names, each line a name or glob:PATTERN", "", kFiles},
    {kRules | kDiff | kInspect | kId, 0, "exclude", "WHICH", kTensors, &Args::exclude,
     "Not these; repeatable"},
    {kRules | kDiff, 0, "rename", "s/RE/TEXT/", kTensors, &Args::rename,
     "New names; repeatable, in order"},
    {kConvert | kVerify, 0, "no-metadata", "", kTensors, &Args::no_metadata,
     "Leave out the attributes of the whole file"},
    {kRules, 0, "set", "KEY=VALUE", kTensors, &Args::set,
     "Set an attribute of the whole file: a text, or JSON; repeatable"},
    {kRules, 0, "unset", "KEY", kTensors, &Args::unset,
     "Leave out this attribute of the whole file; repeatable"},

    {kVerify, 0, "against", "SOURCE...", kChecks, &Args::against,
     "Compare values with the inputs of the file", "", kFiles},
    {kVerify, 0, "canonical", "", kChecks, &Args::canonical, "Require the canonical form of 2.0"},
    {kDiff, 0, "atol", "X", kChecks, &Args::atol, "Numbers may differ by X ..."},
    {kDiff, 0, "rtol", "X", kChecks, &Args::rtol, "... and by X times the one in B"},
    {kDiff, 0, "attributes", "WHICH", kChecks, &Args::attributes,
     "tensors, none, or all: those of the file, too", "tensors", "tensors none all"},
    {kOpens, 0, "from", "FORMAT", kInput, &Args::from,
     "safetensors npy npz gguf torch onnx hdf5 zt; or detected", "", kReadFormats,
     "pt=torch pth=torch ckpt=torch bin=torch pytorch=torch pickle=torch st=safetensors h5=hdf5 "
     "keras=hdf5 "
     "ztensor=zt"},
    {kOpens, 0, "base", "PATH", kInput, &Args::base,
     "The base of a delta; convert: store what differs from it", "", kFiles},
    {kOpens, 0, "variant", "NAME", kInput, &Args::variant,
     "Read this variant of the weights of a folder, e.g. fp16"},
    {kOpens, 0, "follow-links", "", kInput, &Args::follow_links,
     "Allow shards and data that are links out of the folder"},
    {kReads, 0, "no-sign-request", "", kInput, &Args::no_sign_request,
     "Ask S3 without credentials"},
    {kReads, 0, "profile", "NAME", kInput, &Args::profile, "Ask S3 as a profile of the AWS tools"},
    {kReads, 0, "region", "NAME", kInput, &Args::region, "The region of S3"},
    {kReads, 0, "endpoint-url", "URL", kInput, &Args::endpoint_url,
     "Another store than AWS's that speaks S3"},
    {kReads, 0, "header", "NAME=TEXT", kInput, &Args::s3_headers,
     "A header for S3: x-amz-storage-class=GLACIER_IR"},
    {kOpens, 0, "files", "WHICH", kInput, &Args::files,
     "Files to take along: all, none, or patterns of paths", "all", "all none"},
    {kOpens, 0, "npy-void", "TYPE", kInput, &Args::void_type,
     "Element type of npy's '|V' arrays, e.g. bf16", "", "bf16 f8_e4m3fn f8_e5m2"},

    {kReads, 'T', "threads", "N", kAll, &Args::threads, "Workers; 0: all usable", "0", "", "", 0,
     1024},
    {kReads, 0, "memory", "SIZE", kAll, &Args::memory, "Limit on data in flight",
     "32MiB for each worker", "", "", kLeastMemory},
    {kReads, 0, "progress", "WHEN", kAll, &Args::progress, "auto, always or never", "auto",
     "auto always never"},
    {kEvery, 0, "json", "", kAll, &Args::json, "The result, or the error, as one JSON object"},
    {kEvery, 'q', "quiet", "", kAll, &Args::quiet, "No progress, summary or warnings"},
    {kSays, 'v', "verbose", "", kAll, &Args::verbose, "Say more"},
    {kEvery, 'h', "help", "", kAll, &Args::help, "The options of the program or of a command"},
    {kProgram, 0, "version", "", kAll, &Args::version,
     "Versions of the program, the formats, the packages"},
};

constexpr Need kNeeds[] = {
    {kRules, "on-overflow", "dtype dequantize"},
    {kRules, "allow-loss", "dtype"},
    {kConvert, "chunk min-gain", "zstd"},
    {kReads, "no-sign-request profile region endpoint-url header", "s3://"},
    {kInspect, "null", "names"},
    {kInspect, "force no-sync", "html"},
    {kVerify,
     "dtype dequantize include include-from exclude rename set unset no-metadata quant files from "
     "variant npy-void",
     "against"},
};

constexpr Conflict kConflicts[] = {
    {kConvert, "canonical", "zstd", "stores everything raw"},
    {kConvert, "canonical", "align", "aligns to 64 KiB"},
    {kConvert, "canonical", "digest", "has xxh3 digests"},
    {kConvert, "canonical", "shards shard-size shard", "writes one file"},
    {kConvert, "each", "shards shard-size shard", "writes one file an input"},
    {kConvert, "to", "zstd raw canonical shards shard each align spec chunk", "writes no .zt file"},
    {kConvert, "shards", "shard-size", "says how many are written"},
    {kInspect, "tree", "stats json html", "folds tensors, as text for people"},
    {kInspect, "names", "stats json html tree", "prints nothing else"},
};

}  // namespace

std::span<const Need> Needs() { return kNeeds; }
std::span<const Conflict> Conflicts() { return kConflicts; }
std::span<const Command> Commands() { return kCommands; }
std::span<const Option> Options() { return kOptions; }

}  // namespace zt::cli::internal
