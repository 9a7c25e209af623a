// zt.cli:folder — many outputs in one folder: safe names, all or none. Internal.
module zt.cli:folder;

import zt.std;
import zt;

namespace zt::cli::internal {

// A file's name, without suffix, for each tensor. Nothing a tensor is called leads out of the folder, hides a file
// or meets another: '%', '/', '\', control characters, < > : " | ? * and a leading or trailing '.', ' ' are written
// %XX, and where names differ in case alone, so are their capitals. Decoding %XX gives the tensor's name.
// kUnimplemented, naming the tensor, for a name that becomes too long.
StatusOr<std::vector<std::string>> FileNames(std::span<const std::string_view> tensors);

// Files that are written elsewhere in the folder and appear in it together.
// The destructor removes what Publish did not.
class OutputFolder {
 public:
  // Makes `path` unless it is there. The folder it lies in must exist.
  OutputFolder(std::string path, bool force) : path_(std::move(path)), force_(force) {}
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  // kAlreadyExists where one of `files` is there and may not be replaced. Nothing is written yet.
  Status Check(std::span<const std::string> files) const;
  Status Create();
  const std::string& path() const { return path_; }
  // Where to write the file.
  std::string Staged(const std::string& file) const { return staging_ + "/" + file; }
  // Moves the staged files into the folder, after the disk has them if `sync`. On an error the folder is as it was: a file
  // that replaced an older one has changed places with it, and changes them again; only where the file system cannot
  // exchange files, those that were replaced stay so.
  Status Publish(std::span<const std::string> files, bool sync);

 private:
  // What became of a file that was moved into place.
  struct Moved {
    std::string staged, path;
    enum class How { kCreated, kExchanged, kReplaced } how = How::kCreated;
  };
  static int Move(Moved& file);
  static void Undo(std::span<const Moved> files);

  std::string path_, staging_;
  int folder_ = -1;  // open, since before anything was written: what the disk refuses is told to it
  bool force_ = false, made_ = false;
};

}  // namespace zt::cli::internal
