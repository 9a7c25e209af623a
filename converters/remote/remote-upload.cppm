// zt.remote:upload — the sink of s3://. Internal.
module zt.remote:upload;

import zt.std;
import :s3;
import zt.core;
import zt.sink;

namespace zt::remote::internal {

// Bytes that become an object once they are whole: parts are sent while later bytes come, and completing the upload publishes
// it; a small object is one PUT. Without `overwrite` an object that exists stays (If-None-Match). Errors do not name the URL.
StatusOr<std::unique_ptr<Sink>> CreateUpload(const std::string& url, S3Name name,
                                             const FileSinkOptions& options);

// The bytes of each part of an object of at most `bytes`; nullopt where no part size will do.
std::optional<std::uint64_t> PartBytes(std::uint64_t bytes);

}  // namespace zt::remote::internal
