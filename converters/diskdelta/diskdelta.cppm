// zt.convert.diskdelta — "disk delta", the folders by which slime, sglang and others pass on what a
// step of training changed: read together with the base as the model, and written.
export module zt.convert.diskdelta;

import zt.std;
import zt.core;
import zt.sink;
import zt.source;

export namespace zt {

// What the index of such a folder says.
struct DiskForm {
  std::string version, base;  // the version of the base
  bool overwrite = false;     // positions and new bytes; else the exclusive or
  bool zstd = true;           // of the entries; always of those that are written
  bool xxh3 = false;          // checksums are XXH3 of 128 bits; else Adler-32
};
// nullopt if a source with these attributes is no such folder (see kDiskDelta). kDataLoss if the
// index lacks something, or its version does not follow that of the base; kUnimplemented for
// encodings and checksums that are not read.
StatusOr<std::optional<DiskForm>> FindDiskDelta(const Value::Map& attributes);

// A version or a folder's name without the number at its end.
std::string_view VersionStem(std::string_view text);
// That number; nullopt if there is none.
std::optional<std::uint64_t> VersionNumber(std::string_view text);

// The model of which the folder `delta` has the differences from `base`, of the version `known` if
// that is not empty. Each changed tensor is read in order, and its checksum compared at its end. A
// small one is read here, so that another base is found before anything is written. `base_path` is
// for messages.
StatusOr<std::unique_ptr<TensorSource>> OpenDiskDelta(std::unique_ptr<TensorSource> delta,
                                                      std::unique_ptr<TensorSource> base,
                                                      const std::string& base_path,
                                                      const std::string& known);

// True if tensors of the folder, made of this base, have the checksums that they should have: as many
// as are small together. An error if one of both cannot be read.
StatusOr<bool> IsDiskBase(TensorSource& delta, TensorSource& base);

// A tensor of the model, and the same one of the base.
struct DiskPair {
  ComponentId fresh, old;
};
// The counterparts of these objects of `source`. kUnimplemented, naming the tensor, for what the
// form cannot say: a tensor that is not in the base, or of another type or shape, or too many for a file.
StatusOr<std::vector<DiskPair>> PairTensors(const TensorSource& source,
                                            std::span<const std::uint32_t> objects,
                                            const TensorSource& base, const DiskForm& form);

// Writes those that differ to `sink`, a file of the folder that can place bytes, and returns their
// names; finishes it, unless there are none. `progress` gets bytes of tensors that were compared.
StatusOr<std::vector<std::string>> WriteDiskDelta(
    TensorSource& source, TensorSource& base, std::span<const DiskPair> pairs, const DiskForm& form,
    Sink& sink, const std::function<Status(std::uint64_t bytes)>& progress);

// The index of the folder: the names of each file's tensors by the file's name.
std::string DiskDeltaIndex(const DiskForm& form,
                           const std::map<std::string, std::vector<std::string>>& files);

}  // namespace zt

// Shared by the implementation units, not exported.
namespace zt::diskdelta::internal {

// A checksum of the form, of bytes that come in order.
class Checksum {
 public:
  explicit Checksum(bool xxh3);
  ~Checksum();
  Checksum(Checksum&& other) noexcept
      : adler_(other.adler_), state_(std::exchange(other.state_, nullptr)) {}
  void Update(std::span<const std::byte> bytes);
  // Lower-case hexadecimal.
  std::string Text() const;

 private:
  std::uint32_t adler_ = 1;
  void* state_ = nullptr;  // of XXH3; null for Adler-32
};

inline constexpr std::string_view kXor = "xor", kOverwrite = "overwrite", kZstd = "zstd",
                                  kNone = "none", kAdler32 = "adler32", kXxh3 = "xxh3-128";
// What is held of a tensor at once.
inline constexpr std::size_t kStep = std::size_t{4} << 20;
// Positions are numbers of 32 bits.
inline constexpr std::uint64_t kMostPositions = std::uint64_t{1} << 32;
Status TooLongForPositions(std::uint64_t bytes);

}  // namespace zt::diskdelta::internal
