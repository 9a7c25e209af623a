// zt.format:files — files that travel with a model (profile ztstream.file/1): what declares one, and which paths it may have.
export module zt.format:files;

import zt.std;
import :model;
import zt.core;

export namespace zt {

// The format of an object that is a file: one u8 component "data", a shape of one dimension, which is its size, and the
// attribute "path"; "executable", true, where it is one.
inline constexpr std::string_view kFileFormat = "ztstream.file/1";
// The same as an object of format dense, for readers that refuse formats they do not know: this attribute is 1.
inline constexpr std::string_view kDenseFileAttribute = "ztstream.file";
// What the name of such an object begins with; its path follows. The attribute is what counts.
inline constexpr std::string_view kFileNamePrefix = "__meta__/files/";
// The most files of one model.
inline constexpr std::size_t kMaxFiles = 100'000;

// What a file is declared with.
struct FileEntry {
  std::uint32_t object = 0;  // its index
  std::string path;          // relative, of segments between '/'
  std::uint64_t bytes = 0;
  bool executable = false;
};

// Whether a path may be one of a model's files: the one rule that writer, reader, verification and extraction ask. It is the
// same on every system, so that what was made on one can be unpacked on all; nothing is ever repaired. The message names the
// rule and quotes the path. kDataLoss.
Status CheckFilePath(std::string_view path);

// The paths of one model, which must differ by more than case and not lie below one another.
class FilePaths {
 public:
  // CheckFilePath, and whether the path goes with those before. kDataLoss.
  Status Add(std::string_view path);
  std::size_t size() const { return files_.size(); }

 private:
  std::unordered_map<std::string, std::string> files_;  // by what is compared
  std::unordered_map<std::string, std::string>
      folders_;  // that a path leads through, and one that does
};

// Whether an object is a file, by its format or as a dense one that says so.
bool IsFile(const Object& object);
bool IsFile(const StoredObject& object);
// Whether it keeps the rules of the profile, its path included. The message does not name the object. kDataLoss.
Status CheckFile(const Object& object);
// The declaration of a file; as an object of format dense where `dense`.
Object FileObject(const std::string& path, std::uint64_t bytes, bool executable,
                  bool dense = false);
// What an object says, which CheckFile has passed.
FileEntry FileEntryOf(const Object& object, std::uint32_t index);
// The files among objects, in their order; each has been checked on its own. kDataLoss where two do not go together, or there
// are too many.
StatusOr<std::vector<FileEntry>> ListFiles(std::span<const Object> objects);
// The same of a manifest, whose reader has checked it.
std::vector<FileEntry> ListFiles(const Manifest& manifest);

}  // namespace zt
