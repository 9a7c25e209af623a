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
inline constexpr std::uint64_t kMostRange = 4 * kChunk;

using Octets = std::vector<std::byte>;

// A block of a journal: what differs of a range of a file, by its number, that becomes `fresh`, at most
// kMostRange. `old` is what it is, as far as there are such bytes. Its sum tells that it is not replayed over
// others; `keeps_old`: nor are those that differ, of which it keeps both.
Octets JournalBlock(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> old,
                    std::span<const std::byte> fresh, bool keeps_old);

struct PatchedFile {
  std::string name;          // in the folder of the journal
  std::uint64_t before = 0;  // its bytes
  std::uint64_t bytes = 0;   // at the end
};

// Writes a journal. Errors name its file.
class Journal {
 public:
  // Who may not read `like`, a file of the checkpoint, may not read the journal.
  static StatusOr<std::unique_ptr<Journal>> Create(const std::string& path,
                                                   const std::string& like);
  // True if nothing was added.
  bool empty() const;

  Status Append(std::span<const std::byte> block);
  // Syncs and publishes it. From here on the files are to be changed.
  Status Finish(std::span<const PatchedFile> files);

 private:
  std::unique_ptr<Sink> sink_;
  std::unique_ptr<Hasher> hasher_ = MakeHasher(DigestKind::kXxh3);
  std::uint64_t bytes_ = 0;
};

// Writes what the journal of a checkpoint says to its files, and removes it. With `again` it is one of
// an earlier run: before anything is written, files are locked, and it is refused unless it fits them.
Status Replay(const std::string& checkpoint, bool again);

}  // namespace zt::delta::internal
