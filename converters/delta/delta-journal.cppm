// zt.convert.delta:journal — what is still to be written to a checkpoint that is changed where it lies.
// Internal.
module zt.convert.delta:journal;

import zt.std;
import zt.core;
import zt.digest;
import zt.sink;

namespace zt::delta::internal {

// What is read of a file at once.
inline constexpr std::uint64_t kChunk = std::uint64_t{4} << 20;

// Appends the bytes of `fresh` that differ from those of `old`, which may be fewer.
void PutRuns(std::span<const std::byte> old, std::span<const std::byte> fresh,
             std::vector<std::byte>& out);

struct PatchedFile {
  std::string name;         // in the folder of the journal
  std::uint64_t bytes = 0;  // at the end
};

// Writes a journal. Errors name its file.
class Journal {
 public:
  static StatusOr<std::unique_ptr<Journal>> Create(const std::string& path);
  // True if nothing was added.
  bool empty() const;

  // Adds what PutRuns made, of bytes that lie at `offset` of a file, by its number.
  Status AddBlock(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> runs);
  // What is new of `fresh`, which replaces `old` at `offset`; all, if there may be no such old bytes.
  Status AddBytes(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> old,
                  std::span<const std::byte> fresh);
  // Syncs and publishes it. From here on the files are to be changed.
  Status Finish(std::span<const PatchedFile> files);

 private:
  Status Append(std::span<const std::byte> bytes);

  std::unique_ptr<Sink> sink_;
  std::unique_ptr<Hasher> hasher_ = MakeHasher(DigestKind::kXxh3);
  std::uint64_t bytes_ = 0;
};

// Writes what a journal says to the files in its folder, and removes it.
Status Replay(const std::string& path);

}  // namespace zt::delta::internal
