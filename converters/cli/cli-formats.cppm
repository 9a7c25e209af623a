// zt.cli:formats — the table of input and output formats, and what is none of them. Internal.
module zt.cli:formats;

import zt.std;
import :args;
import zt.convert.hdf5;
import zt.convert.layout;

namespace zt::cli::internal {

// Bytes to open, with what is known of them.
struct FormatInput {
  std::shared_ptr<ByteSource> bytes;
  std::string path;  // empty for standard input
  std::string stem;  // the name of a tensor that has none
  const InputArgs& options;
};

using OpenedSource = StatusOr<std::unique_ptr<TensorSource>>;

// A format. To add one, add its row in formats.cc.
struct Format {
  std::string_view name;           // as --from and --to spell it
  std::string_view title;          // with its versions: "npy 1 to 3"
  std::string_view suffixes;       // of its files, with blanks between; the first is the usual one
  std::string_view index;          // the suffix of its indexes, which are opened as their folder
  std::string_view read_from_end;  // what a pipe cannot carry, or empty: "a zip archive"
  bool (*recognise)(std::span<const std::byte> head);  // by the first bytes
  OpenedSource (*open)(FormatInput input);
  // Null where a folder of such files is not a checkpoint. `files` are its names in the folder, sorted.
  OpenedSource (*open_folder)(const std::string& path, const std::vector<std::string>& files,
                              const InputArgs& options);
  // The file that holds the selected objects of a source; null where the format is not written.
  StatusOr<FileLayout> (*plan)(const TensorSource& source,
                               const std::vector<std::uint32_t>& selected);
};

std::span<const Format> Formats();
// The names of the rows, and of those that are written, as --from and --to take them.
inline constexpr std::string_view kReadFormats = "safetensors npy npz gguf torch onnx hdf5 zt";
inline constexpr std::string_view kWrittenFormats = "safetensors npy npz gguf";
// For a sentence: "safetensors, npy and .zt".
std::string FormatNames();
// With their versions, for --version.
std::string FormatTitles();
// Null where there is none of that name.
const Format* FindFormat(std::string_view name);
// True where `file` ends like an index of this format.
inline bool IsIndexOf(const Format& format, std::string_view file) {
  return !format.index.empty() && file.ends_with(format.index);
}
// True where `file` ends like a file, or an index, of this format.
bool HasSuffix(const Format& format, std::string_view file);

// True where `file` is called as PyTorch's are, ".bin" apart, which others use as well; and what is said then.
bool IsTorchName(std::string_view file);
inline constexpr std::string_view kNoTorch =
    "PyTorch files are not written; write .safetensors, which torch users load";

// What numpy's formats do not keep of the selected objects, a line each.
// A safetensors file of these objects, with the attributes of the whole file as its metadata.
StatusOr<FileLayout> PlanSafetensorsFile(const TensorSource& source,
                                         const std::vector<std::uint32_t>& selected);
std::vector<std::string> NumpyLosses(const TensorSource& source,
                                     const std::vector<std::uint32_t>& selected);

// How many first bytes tell what a file is.
inline constexpr std::size_t kHeadBytes = kHdf5HeadBytes;
// The format of what begins with `head`. Otherwise an error that says what it is instead, and what to do:
// kUnimplemented for what is known and no format of ours, kDataLoss where it is empty or not known at all.
StatusOr<const Format*> Recognise(std::span<const std::byte> head);
// "a Git LFS pointer, ..." for what is known and no format of ours: a sentence's object, and what to do.
std::optional<std::string> NameForeign(std::span<const std::byte> head);

}  // namespace zt::cli::internal
