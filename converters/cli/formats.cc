// zt.cli:formats — the rows. Order matters where two rows recognise the same bytes: the first is taken.
module;

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :args;
import :formats;
import :output;
import :rules;
import zt;
import zt.convert.gguf;
import zt.convert.hdf5;
import zt.convert.npy;
import zt.convert.onnx;
import zt.convert.safetensors;
import zt.convert.torch;
import zt.convert.zip;
import zt.convert.zt;

namespace zt::cli {

namespace internal {
namespace {

// With the type of numpy's void arrays.
StatusOr<InputOptions> NumpyOptions(const InputArgs& args) {
  InputOptions options = args;
  if (args.npy_void.empty()) return options;
  ZT_ASSIGN_OR_RETURN(options.void_type, ParseTypeName(args.npy_void, "--npy-void"));
  return options;
}

OpenedSource OpenSafetensorsFile(FormatInput input) {
  return OpenSafetensors(std::move(input.bytes));
}

OpenedSource OpenSafetensorsIn(const std::string& path, const std::vector<std::string>&,
                               const InputArgs& options) {
  return OpenSafetensorsFolder(path, options);
}

OpenedSource OpenNpyFile(FormatInput input) {
  ZT_ASSIGN_OR_RETURN(const InputOptions npy, NumpyOptions(input.options));
  return OpenNpy(std::move(input.bytes), input.stem, npy);
}

OpenedSource OpenNpyIn(const std::string& path, const std::vector<std::string>&,
                       const InputArgs& options) {
  ZT_ASSIGN_OR_RETURN(const InputOptions npy, NumpyOptions(options));
  return OpenNpyFolder(path, npy);
}

OpenedSource OpenTorchFile(FormatInput input) {
  return OpenTorch(std::move(input.bytes), input.stem, input.options);
}

OpenedSource OpenTorchIn(const std::string& path, const std::vector<std::string>&,
                         const InputArgs& options) {
  return OpenTorchFolder(path, options);
}

OpenedSource OpenOnnxFile(FormatInput input) {
  return OpenOnnx(std::move(input.bytes), input.path, input.options);
}

OpenedSource OpenHdf5File(FormatInput input) {
  return OpenHdf5(std::move(input.bytes), input.options);
}

OpenedSource OpenNpzFile(FormatInput input) {
  ZT_ASSIGN_OR_RETURN(const InputOptions npy, NumpyOptions(input.options));
  ZT_ASSIGN_OR_RETURN(const auto archive, ZipArchive::Open(input.bytes));
  if (input.options.from.empty() && HoldsTorch(*archive)) return OpenTorchFile(std::move(input));
  if (input.options.from.empty() && HoldsKeras(*archive)) return OpenHdf5File(std::move(input));
  return OpenNpz(std::move(input.bytes), input.stem, npy);
}

OpenedSource OpenGgufFile(FormatInput input) {
  if (input.path.empty()) return OpenGguf(std::move(input.bytes));
  return OpenGgufSet(input.path, input.options);
}

// One file, or all parts of one split set.
OpenedSource OpenGgufIn(const std::string& path, const std::vector<std::string>& files,
                        const InputArgs& options) {
  const auto model = [&](const std::string& file) {
    const std::string set = GgufSetOf((std::filesystem::path(path) / file).string());
    return set.empty() ? file : set;
  };
  std::string first;
  for (const std::string& file : files) {
    ZT_RETURN_IF_ERROR(Annotate(CheckStaysInside(path, file, options), file));
    if (first.empty()) first = model(file);
    if (model(file) == first) continue;
    return InvalidArgument("the folder holds several GGUF models, " + Quote(files.front()) +
                           " and " + Quote(file) + " among them; name the file of one");
  }
  return OpenGgufSet((std::filesystem::path(path) / files.front()).string(), options);
}

OpenedSource OpenZtFile(FormatInput input) {
  return OpenZt(std::move(input.bytes), input.options,
                input.path.empty() ? ShardFinder() : ShardsBeside(input.path, input.options));
}

OpenedSource OpenZtIn(const std::string& path, const std::vector<std::string>&,
                      const InputArgs& options) {
  return OpenZtShards(path, options);
}

bool IsZtHead(std::span<const std::byte> head) { return head.size() >= 8 && LooksLikeZt(head); }

// A tensor of a .zt file may be an HDF5 file, where one that has bytes before it would begin.
bool IsHdf5Head(std::span<const std::byte> head) { return LooksLikeHdf5(head) && !IsZtHead(head); }

constexpr std::string_view kSafetensorsSuffixes[] = {".safetensors"};
constexpr std::string_view kSafetensorsIndexes[] = {".safetensors.index.json"};
constexpr std::string_view kNpySuffixes[] = {".npy"};
constexpr std::string_view kNpzSuffixes[] = {".npz"};
constexpr std::string_view kGgufSuffixes[] = {".gguf"};
// In folders; a file named .pt or .pth is recognised by its content.
constexpr std::string_view kTorchSuffixes[] = {".bin"};
constexpr std::string_view kTorchIndexes[] = {".bin.index.json"};
constexpr std::string_view kOnnxSuffixes[] = {".onnx"};
constexpr std::string_view kHdf5Suffixes[] = {".h5", ".hdf5", ".keras"};
constexpr std::string_view kZtSuffixes[] = {".zt"};
constexpr std::string_view kZtIndexes[] = {".zt.index.json"};

constexpr Format kFormats[] = {
    {"safetensors", "safetensors", kSafetensorsSuffixes, kSafetensorsIndexes, "",
     LooksLikeSafetensors, OpenSafetensorsFile, OpenSafetensorsIn, PlanSafetensorsFile},
    {"npy", "npy 1 to 3", kNpySuffixes, {}, "", LooksLikeNpy, OpenNpyFile, OpenNpyIn, PlanNpyFile},
    {"npz",
     "npz",
     kNpzSuffixes,
     {},
     "a zip archive",
     LooksLikeZip,
     OpenNpzFile,
     nullptr,
     PlanNpzFile},
    {"gguf",
     "GGUF 1 to 3",
     kGgufSuffixes,
     {},
     "",
     LooksLikeGguf,
     OpenGgufFile,
     OpenGgufIn,
     PlanGgufFile},
    {"torch", "PyTorch", kTorchSuffixes, kTorchIndexes, "", LooksLikeTorchStream, OpenTorchFile,
     OpenTorchIn, nullptr},
    {"onnx", "ONNX", kOnnxSuffixes, {}, "", LooksLikeOnnx, OpenOnnxFile, nullptr, nullptr},
    {"hdf5", "HDF5, Keras", kHdf5Suffixes, {}, "", IsHdf5Head, OpenHdf5File, nullptr, nullptr},
    {"zt", "zTensor 2.0, 1.x, 0.1", kZtSuffixes, kZtIndexes, "a .zt file", IsZtHead, OpenZtFile,
     OpenZtIn, nullptr},
};

std::vector<std::string> Names(bool written_only) {
  std::vector<std::string> names;
  for (const Format& format : kFormats) {
    if (format.plan != nullptr || !written_only) names.emplace_back(format.name);
  }
  return names;
}

}  // namespace

std::span<const Format> Formats() { return kFormats; }

const Format* FindFormat(std::string_view name) {
  const auto* const found = std::ranges::find(kFormats, name, &Format::name);
  return found == std::end(kFormats) ? nullptr : found;
}

bool HasSuffix(const Format& format, std::string_view file) {
  const auto ends = [&](std::string_view suffix) { return file.ends_with(suffix); };
  return std::ranges::any_of(format.suffixes, ends) || std::ranges::any_of(format.indexes, ends);
}

bool IsTorchName(std::string_view file) {
  return file.ends_with(".pt") || file.ends_with(".pth") || file.ends_with(".ckpt");
}

StatusOr<const Format*> Recognise(std::span<const std::byte> head) {
  if (head.empty()) return InvalidData("it is empty");
  for (const Format& format : kFormats) {
    if (format.recognise(head)) return &format;
  }
  if (const auto foreign = NameForeign(head)) return Unsupported("it is " + *foreign);
  return InvalidData("it is none of " + Joined(Names(false), "and") +
                     ", or it is damaged; --from names a format");
}

}  // namespace internal

using internal::kFormats;

std::vector<std::string> InputFormats() { return internal::Names(false); }

std::vector<std::string> OutputFormats() { return internal::Names(true); }

std::string FormatNames() {
  std::string out;
  for (const internal::Format& format : kFormats) {
    if (format.name == "zt") continue;
    out += std::string(format.title.substr(0, format.title.find(" 1 to "))) + ", ";
  }
  return out.substr(0, out.size() - 2) + " and .zt";
}

std::string FormatTitles() {
  std::string out(internal::FindFormat("zt")->title);
  for (const internal::Format& format : kFormats) {
    if (format.name == "zt") continue;
    out += (out.find(';') == out.npos ? "; " : ", ") + std::string(format.title);
    if (format.name == "hdf5" && !ReadsHdf5()) out += " (not in this build)";
  }
  return out;
}

}  // namespace zt::cli
