// zt.format:files — files that travel with a model (profile ztstream.file/1): their declaration, the
// rules of their paths, and the attribute from which the same folder is restored.
export module zt.format:files;

import zt.std;
import :model;
import zt.core;

export namespace zt {

// The format of an object that is a file: one u8 component "data", its size as shape, the attribute
// "path", and "executable", true, if it is.
inline constexpr std::string_view kFileFormat = "ztstream.file/1";
// Attribute, 1 for a file that is an object of format dense. Such objects are read, not written.
inline constexpr std::string_view kDenseFileAttribute = "ztstream.file";
// Prefix of the name of such an object; the path follows. Readers use the attribute, not the name.
inline constexpr std::string_view kFileNamePrefix = "__meta__/files/";
// Limit on the files of one model.
inline constexpr std::size_t kMaxFiles = 100'000;

// The declaration of a file.
struct FileEntry {
  std::uint32_t object = 0;  // its index
  std::string path;          // relative, of segments between '/'
  std::uint64_t bytes = 0;
  bool executable = false;
};

// Checks the path of a model's file: the one rule of writer, reader, verification and extraction.
// It is the same on every system, so that files can be unpacked on all; paths are never repaired.
// The message names the rule and quotes the path. kDataLoss.
Status CheckFilePath(std::string_view path);

// The paths of one model. They must differ by more than case, and none may be a folder of another.
class FilePaths {
 public:
  // Checks the path by CheckFilePath and against the earlier ones. kDataLoss.
  Status Add(std::string_view path);
  std::size_t size() const { return files_.size(); }

 private:
  // Paths by their case-folded form.
  std::unordered_map<std::string, std::string> files_;
  // Folders by their case-folded form; the value is a path below the folder.
  std::unordered_map<std::string, std::string> folders_;
};

// True if an object is a file: by its format, or by the attribute of a dense object.
bool IsFile(const Object& object);
bool IsFile(const StoredObject& object);
// Checks a file by the rules of the profile, its path included. The message does not name the
// object. kDataLoss.
Status CheckFile(const Object& object);
// Makes the object of a file.
Object FileObject(const std::string& path, std::uint64_t bytes, bool executable);
// The declaration of a file's object, which CheckFile has accepted.
FileEntry FileEntryOf(const Object& object, std::uint32_t index);
// The files among objects, in their order; each has been checked by CheckFile. kDataLoss if two
// paths conflict, or if there are too many.
StatusOr<std::vector<FileEntry>> ListFiles(std::span<const Object> objects);
// The files of a manifest, which its reader has checked.
std::vector<FileEntry> ListFiles(const Manifest& manifest);

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
// Checks the attribute, if there is one, and adds its paths to those of the files. kDataLoss if it
// has another form, or if a path is invalid or there already.
Status CheckWeightFiles(const Value::Map& attributes, FilePaths& paths);
// Reads the attribute; empty if it is missing. Errors as of CheckWeightFiles.
StatusOr<std::vector<WeightFile>> FindWeightFiles(const Value::Map& attributes,
                                                  std::span<const FileEntry> files);

}  // namespace zt
