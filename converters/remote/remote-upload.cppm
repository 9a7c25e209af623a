// zt.remote:upload — the sink of s3://. Internal.
module zt.remote:upload;

import zt.std;
import :s3;
import zt.core;
import zt.sink;

namespace zt::remote::internal {

// A sink that becomes an object when it is complete: parts are sent while later bytes arrive, and
// completing the upload publishes it. A small object is one PUT. Without `overwrite` an existing
// object is kept (If-None-Match). Errors do not name the URL.
StatusOr<std::unique_ptr<Sink>> CreateUpload(const std::string& url, S3Name name,
                                             const FileSinkOptions& options);

// The size of the parts for an object of at most `bytes`; nullopt if no part size is large enough.
std::optional<std::uint64_t> PartBytes(std::uint64_t bytes);

}  // namespace zt::remote::internal
