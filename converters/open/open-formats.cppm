// zt.open:formats — the table of input and output formats, and the detection of other files.
export module zt.open:formats;

import zt.std;
import :options;
import zt.convert.hdf5;
import zt.convert.layout;
import zt.core;
import zt.source;

export namespace zt {

// Bytes to open, and their origin.
struct FormatInput {
  std::shared_ptr<ByteSource> bytes;
  std::string path;  // empty for standard input
  std::string stem;  // the name for a tensor without one
  const SourceOptions& options;
};

// What opening an input gives.
using OpenedSource = StatusOr<std::unique_ptr<TensorSource>>;

// A format. To add one, add its row in formats.cc.
struct Format {
  std::string_view name;   // as --from and --to spell it
  std::string_view title;  // with its versions: "npy 1 to 3"
  // Suffixes of its files, separated by blanks; the usual one first.
  std::string_view suffixes;
  // True if its shards, of the first suffix, have an index. It is opened like its folder.
  bool indexed;
  // "a zip archive", if the format cannot be read from a pipe; else empty.
  std::string_view read_from_end;
  // True if the first bytes are those of this format.
  bool (*recognise)(std::span<const std::byte> head);
  OpenedSource (*open)(FormatInput input);
  // Null if a folder of such files is not a checkpoint. `files` are the sorted names in the folder.
  OpenedSource (*open_folder)(const std::string& path, const std::vector<std::string>& files,
                              const SourceOptions& options);
  // Lays out a file with the selected objects. Null if the format is not written.
  StatusOr<FileLayout> (*plan)(const TensorSource& source,
                               const std::vector<std::uint32_t>& selected);
};

// The table.
std::span<const Format> Formats();

// Opens an HDF5 file: OpenHdf5 of zt.convert.hdf5.
using Hdf5Opener = OpenedSource (*)(std::shared_ptr<ByteSource>, const InputOptions&);
// Lets HDF5 be read: `SetHdf5(OpenHdf5)`. libhdf5 runs in a process of its own, which only the
// owner of this process may decide to start; before the call such files are refused. Call it before
// an input is opened.
void SetHdf5(Hdf5Opener open);

// The names of all formats, and of those that are written, as --from and --to take them.
inline constexpr std::string_view kReadFormats = "safetensors npy npz gguf torch onnx hdf5 zt";
inline constexpr std::string_view kWrittenFormats = "safetensors npy npz gguf";
// Null if no format has this name.
const Format* FindFormat(std::string_view name);
// True if `file` has the name of an index of this format.
bool IsIndexOf(const Format& format, std::string_view file);
// True if the path has the name of an index of Keras's shards: "model.weights.json".
bool IsKerasIndex(std::string_view file);
// Opens the files that it names.
OpenedSource OpenKerasIndex(const std::string& path, const SourceOptions& options);
// True if the path has the name of an index of .zt shards.
bool IsIndexPath(std::string_view path);
// True if `file` has a suffix of this format or of its index.
bool HasSuffix(const Format& format, std::string_view file);

// True if the name is one of files with tensors, of formats that are read or not.
bool IsNamedLikeWeights(std::string_view file);

// True if `file` has a suffix of PyTorch files other than ".bin", which other programs use too.
bool IsTorchName(std::string_view file);
// The message for an output with such a name.
inline constexpr std::string_view kNoTorch =
    "PyTorch files are not written; write .safetensors, which torch users load";

// The source, with the shapes that ComfyUI's tools note in a GGUF for tensors which they reshaped to
// fit it ("comfy.gguf.orig_shape.NAME").
std::unique_ptr<TensorSource> WithOriginalShapes(std::unique_ptr<TensorSource> source);

// New names of tensors, by their own.
using NewNames = std::unordered_map<std::string_view, std::string_view>;
// The attribute "gguf" once tensors have new names: `names` are of all that are left. What it says of
// others is left out. A text, as safetensors have it, stays one.
Value RenamedInGguf(const Value& attribute, const NewNames& names);

// Lays out a safetensors file of these objects. The attributes of the source become its metadata.
StatusOr<FileLayout> PlanSafetensorsFile(const TensorSource& source,
                                         const std::vector<std::uint32_t>& selected);
// A warning for each thing that numpy's formats do not keep of the selected objects.
std::vector<std::string> NumpyLosses(const TensorSource& source,
                                     const std::vector<std::uint32_t>& selected);

// The number of first bytes that Recognise needs.
inline constexpr std::size_t kHeadBytes = kHdf5HeadBytes;
// The format of a file that begins with `head`. The error for other files names their kind and what
// to do: kUnimplemented for a kind that is known but not read, kDataLoss for an empty or unknown
// file.
StatusOr<const Format*> Recognise(std::span<const std::byte> head);
// The same for a file with a path, whose neighbours tell weights that say nothing of themselves.
StatusOr<const Format*> RecogniseFile(std::span<const std::byte> head, const std::string& path,
                                      Store& store);
// True for a Git LFS pointer.
bool IsLfsPointer(std::span<const std::byte> head);
// "a Git LFS pointer, ...": the kind of a known file of another format, and what to do with it.
std::optional<std::string> NameForeign(std::span<const std::byte> head);

}  // namespace zt
