// zt.remote:upload — the sink of s3://. Internal.
module;

#include "core/thread_annotations.h"

module zt.remote:upload;

import zt.std;
import :http;
import :s3;
import zt.core;
import zt.sink;

namespace zt::remote::internal {

// A sink that becomes an object when it is complete: parts are sent while later bytes arrive, and
// completing the upload publishes it. A small object is one PUT. Without `overwrite` an existing
// object is kept (If-None-Match). Errors do not name the URL.
// `forget` is called when it was published, or may have been.
StatusOr<std::unique_ptr<Sink>> CreateUpload(std::shared_ptr<S3Client> client,
                                             const std::string& url, S3Name name,
                                             const FileSinkOptions& options,
                                             std::function<void()> forget);

// The parts of an upload are numbered from 1 to this.
inline constexpr std::uint64_t kMostParts = 10'000;

// A part that the store has.
struct StoredPart {
  std::uint64_t size = 0;
  std::string etag = {}, checksum = {};  // of CRC-32C, in base64; empty if the store has none
};
using StoredParts = std::map<std::uint64_t, StoredPart>;
// Whether it has these bytes: by its CRC-32C, else by its ETag, which is then an MD5.
bool HasBytes(const StoredPart& part, std::span<const std::byte> bytes);
// The ETag of the object that is made of these parts; that of none where theirs are no MD5.
std::string JoinedEtag(const StoredParts& parts);
std::string Crc32cField(std::span<const std::byte> bytes);

// An upload that an earlier run began and did not end.
struct EarlierUpload {
  std::string id;          // empty if there is none
  bool checksums = false;  // its parts have a CRC-32C
  StoredParts parts;
};
// Asks the store for the last one of an object.
StatusOr<EarlierUpload> FindUpload(S3Client& client, const S3Name& name);

// The state that an upload shares with AbandonUploads.
struct Progress {
  const std::shared_ptr<S3Client> client;
  const S3Name name;
  Mutex mutex = {};
  std::string upload ZT_GUARDED_BY(mutex) = {};  // its id, as long as it must be ended
  // In kBeginning and kPublishing a request is in flight that begins or publishes it.
  enum class State : std::uint8_t { kWritten, kBeginning, kPublishing, kPublished, kUnknown };
  State state ZT_GUARDED_BY(mutex) = State::kWritten;
  // All are: none enters another state.
  static inline std::atomic<bool> abandoned = false;
};

// All uploads of this process that have not ended.
Living<Progress>& Uploads();

// "remove them with: " and the command that ends an upload where the options of this run lead.
std::string RemoveThem(const Progress& upload, const std::string& id);
// What is said of an upload that another run can continue; one that replaces the object, if it
// `exists`.
std::string KeptParts(const Progress& upload, const std::string& id, bool exists);
// Advice where it is not known whether an object was published.
std::string LookAtIt(const Progress& upload, const std::string& id);
// Aborts an upload. Returns a warning if parts of it may remain.
std::string EndUpload(const Progress& upload, const std::string& id, int tries);

}  // namespace zt::remote::internal
