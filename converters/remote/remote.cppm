// zt.remote — files on servers: https:// and http:// by ranges, buckets of S3, repositories of the Hugging Face Hub.
export module zt.remote;

export import :answers;
import zt.std;
import zt.core;
import zt.sink;
import zt.source;

export namespace zt {

// How files on servers are read and written.
struct RemoteOptions {
  // Bytes that are asked for before they are needed, of all files together; 16 MiB at least.
  std::uint64_t read_ahead = std::uint64_t{64} << 20;
  // S3 is asked without a signature: for public buckets.
  bool no_sign_request = false;
  // Bytes of each part of an upload; 0: chosen by what will be written.
  std::uint64_t part_bytes = 0;
  // Told warnings, by any thread. A URL in them is without its query.
  std::function<void(const std::string&)> warn = {};
};

// Has every function that takes a path take URLs too: OpenFile and CreateFileSink, and all that stands on them. Nothing is
// loaded before the first URL is opened. May be called again with other options, while nothing is open.
void UseRemoteFiles(const RemoteOptions& options = {});

// Removes the query from a URL, because it may hold a signature and must not be shown. The query is
// remembered, and sent when the returned URL is opened. Other paths are returned unchanged.
// kInvalidArgument if the URL holds a user name or password, or if an earlier URL differs from it
// in nothing but the query.
StatusOr<std::string> HideQuery(const std::string& path);

// Ends uploads that are under way, so that nothing of them is left, for a program that has to end at once: waits for that,
// but no longer than ten seconds, and returns a line for each one that may be left.
std::vector<std::string> AbandonUploads();

}  // namespace zt
