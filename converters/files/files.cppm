// zt.convert.files — files beside the weights: the files of a folder as a source.
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

}  // namespace zt
