// zt.convert.files — files beside the weights: those of a folder as a source, and what makes the same folder of them again.
export module zt.convert.files;

import zt.std;
import zt.core;
import zt.format;
import zt.source;

export namespace zt {

// A file of a folder, by its path in it, and what a source declares for it.
struct FolderEntry {
  std::string path;
  std::uint64_t bytes = 0;
  bool executable = false;
};

// Regular files as objects of the profile ztstream.file/1, in the order given. `attributes` become the source's. A file is
// opened when it is read, and kDataLoss where it has another size by then. Links out of the folder are followed where the
// options allow it.
std::unique_ptr<TensorSource> OpenFiles(const std::string& folder,
                                        const std::vector<FolderEntry>& files,
                                        Value::Map attributes, const InputOptions& options);

// The source without those of its files whose path `keep` refuses; with `dense`, the others as dense objects (FileObject).
// kDataLoss where its files break a rule of the profile.
StatusOr<std::unique_ptr<TensorSource>> SelectFiles(
    std::unique_ptr<TensorSource> source, const std::function<bool(const std::string& path)>& keep,
    bool dense);

// The attribute of a model that came from a folder of safetensors files: an array of maps, one for each file, of `path`,
// `kind` ("safetensors") and `header`, the bytes before the tensors, verbatim. With it the files are made again byte for byte.
inline constexpr std::string_view kFolderAttribute = "ztstream.folder";
struct WeightFile {
  std::string path;
  std::vector<std::byte> header;
};
Value ToValue(std::span<const WeightFile> files);
// What the attribute says; none where it is not there. kDataLoss where it has another form, and where a path is none that a
// file of the model may have, or one that `files` have already.
StatusOr<std::vector<WeightFile>> FindWeightFiles(const Value::Map& attributes,
                                                  std::span<const FileEntry> files);

}  // namespace zt
