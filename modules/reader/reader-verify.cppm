// zt.reader:verify — reads every byte of a .zt file and says what is wrong with it.
export module zt.reader:verify;

import zt.std;
import :file;

export namespace zt {

// Options of Verify.
struct VerifyOptions {
  unsigned threads = 0;            // 0 means UsableThreads()
  std::uint64_t memory_bytes = 0;  // limit on data in flight, see MemoryFor
  // Called with the stored bytes verified so far, in ascending order, by one thread at a time.
  std::function<void(std::uint64_t stored_bytes, std::uint64_t total)> progress = {};
  bool canonical = false;  // require the canonical form of the version (2.0 §6.3)
  // Only this object of the manifest, without the bytes between blobs and the shards of others.
  std::optional<std::uint32_t> object = std::nullopt;
  // Verify returns kCancelled soon after it becomes true, but only while it reads components.
  const std::atomic<bool>* cancelled = nullptr;
};

// A finding about a file: an error, or a check that was not made. Names are raw: quote them when
// printing.
struct VerifyProblem {
  std::string object;     // name, cut by Repeated; empty if it concerns the file
  std::string component;  // role; empty if it concerns the object
  std::string message;    // one line
  std::optional<Advice> advice = {};
};

// The result of Verify.
struct VerifyReport {
  std::vector<VerifyProblem> problems;  // empty if the file is valid
  // Components with an unknown digest algorithm; the message is its name.
  std::vector<VerifyProblem> unverified;
  std::uint64_t objects = 0;     // in the file
  std::uint64_t components = 0;  // in the file
  std::uint64_t digests = 0;     // checked
  // Components whose content was compared with no digest: they have none, or an unknown algorithm
  // or encoding. Only the rules of their type were checked.
  std::uint64_t unhashed = 0;
  std::uint64_t stored_bytes = 0;   // bytes read, shared blobs counted once
  std::uint64_t decoded_bytes = 0;  // their decoded size
  // Bytes outside of blobs, counted in each gap from the first nonzero byte to the last, in
  // versions whose readers ignore them: remains of earlier generations, or padding that is not zero
  // (2.0 §2.4, §2.5).
  std::uint64_t unreferenced_bytes = 0;
  // Components that cannot be decoded, with the reason; of several of an object for one reason, the
  // object. The digest of a raw one was still checked.
  std::vector<VerifyProblem> undecodable;
  // Objects with a rule that would take too much memory, and was not checked, with the amount.
  std::vector<VerifyProblem> unchecked;
};

// Reads every byte and checks: padding is zero, digests match, streams decode to exactly the
// declared size, bool bytes are 0 or 1, sparse indices are in range, row pointers ascend, shards
// have their size and digest. Damage to data without a digest may go unnoticed: see `unhashed`.
// Fails only if the file cannot be read, or with kInvalidArgument if options are out of range.
StatusOr<VerifyReport> Verify(const Reader& reader, const VerifyOptions& options = {});

}  // namespace zt
