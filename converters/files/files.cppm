// zt.convert.files — files beside the weights: the files of a folder as a source, and the attribute
// from which the same folder is restored.
export module zt.convert.files;

import zt.std;
import zt.core;
import zt.format;
import zt.source;

export namespace zt {

// A file of a folder: its path in the folder, and the data of its object.
struct FolderEntry {
  std::string path;
  std::uint64_t bytes = 0;
  bool executable = false;
};

// Makes a source of regular files, as objects of the profile ztstream.file/1 in the given order.
// `attributes` become those of the source. A file is opened when it is read; kDataLoss if its size
// has changed. Links out of the folder are followed if the options allow it.
std::unique_ptr<TensorSource> OpenFiles(const std::string& folder,
                                        const std::vector<FolderEntry>& files,
                                        Value::Map attributes, const InputOptions& options);

// Removes the files for whose path `keep` is false. kDataLoss if the files break a rule of the
// profile.
StatusOr<std::unique_ptr<TensorSource>> SelectFiles(
    std::unique_ptr<TensorSource> source, const std::function<bool(const std::string& path)>& keep);

// The source with `prefix` before the names of its objects.
std::unique_ptr<TensorSource> PrefixNames(std::unique_ptr<TensorSource> source,
                                          const std::string& prefix);

// The attribute of a model from a folder: an array with a map for each file of weights, of `path`,
// `kind` ("safetensors"), `header`, the unchanged bytes before the tensors, and `prefix`, if the
// model's names of its tensors begin with a folder and '/'. From it the files are restored byte for
// byte. Without a header, after a conversion that changes tensors, or if the weights were in a
// format that is not written, `from`, a new file takes the path.
inline constexpr std::string_view kFolderAttribute = "ztstream.folder";
struct WeightFile {
  std::string path, prefix;
  std::vector<std::byte> header = {};  // empty: not kept
  std::string from = {};               // "torch"
};
Value ToValue(std::span<const WeightFile> files);
// Reads the attribute; empty if it is missing. kDataLoss if it has another form, or if a path is
// invalid or also belongs to one of `files`.
StatusOr<std::vector<WeightFile>> FindWeightFiles(const Value::Map& attributes,
                                                  std::span<const FileEntry> files);

}  // namespace zt
