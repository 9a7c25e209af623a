// zt.remote — files on servers: https:// and http:// by ranges, buckets of S3, repositories of the
// Hugging Face Hub.
export module zt.remote;

export import :answers;
export import :sigv4;
import zt.std;
import zt.core;
import zt.sink;
import zt.source;

export namespace zt {

// How to read and write remote files.
struct RemoteOptions {
  // The budget for read-ahead of all files together, in bytes; at least 16 MiB.
  std::uint64_t read_ahead = std::uint64_t{40} << 20;
  // Send requests to S3 without a signature, for public buckets.
  bool no_sign_request = false;
  // The size of the parts of an upload; 0: chosen by the expected size of the file.
  std::uint64_t part_bytes = 0;
  // Receives warnings, from any thread. URLs in them have no query.
  std::function<void(const std::string&)> warn = {};
};

// Makes all functions that take a path accept URLs: OpenFile, CreateFileSink, and everything based
// on them. libcurl is loaded when the first URL is opened. It may be called again with other
// options while nothing is open.
void UseRemoteFiles(const RemoteOptions& options = {});

// Removes the query from a URL, because it may hold a signature and must not be shown. The query is
// remembered, and sent when the returned URL is opened. Other paths are returned unchanged.
// kInvalidArgument if the URL holds a user name or password, or if an earlier URL differs from it
// in nothing but the query, unless this one takes its place (`renew`): signatures expire.
StatusOr<std::string> HideQuery(const std::string& path, bool renew = false);

// Drops the opened files, which are kept because a program opens the same file several times.
// Sources in use stay valid; the next call that opens such a URL asks the server again.
void ForgetRemoteFiles();

// What became of uploads in progress.
struct AbandonedUploads {
  std::vector<std::string> left;  // a line for each upload of which something may be left
  // An object was published while its upload was to be abandoned: it stays.
  bool published = false;
};
// For a program that must end at once: aborts uploads in progress so that no parts remain. Waits at
// most ten seconds, first for those that are being published.
AbandonedUploads AbandonUploads();

}  // namespace zt
