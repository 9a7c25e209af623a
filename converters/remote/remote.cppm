// zt.remote — files on servers: https:// and http:// by ranges, buckets of S3, repositories of the
// Hugging Face Hub.
export module zt.remote;

export import :answers;
export import :options;
export import :sigv4;
import zt.std;
import zt.core;
import zt.source;

export namespace zt {

// A store that serves URLs, and for paths the files of this machine. It keeps files open, because a
// program opens the same one several times, listings, and what each object is (its ETag), so that
// all of a run read the same: a new run takes a new store. libcurl is loaded when the first URL is
// opened.
std::shared_ptr<Store> MakeRemoteStore(RemoteOptions options = {});

// Removes the query from a URL, because it may hold a signature and must not be shown, and adds it
// to `queries`, for RemoteOptions: the store sends it when the returned URL is opened. Other paths
// are returned unchanged. kInvalidArgument if the URL holds a user name or password, or if one in
// `queries` differs from it in nothing but the query.
StatusOr<std::string> HideQuery(const std::string& path,
                                std::map<std::string, std::string>& queries);

// What became of uploads in progress.
struct AbandonedUploads {
  std::vector<std::string> left;  // a line for each upload of which something may be left
  // An object was published while its upload was to be abandoned: it stays.
  bool published = false;
};
// For a program that must end at once: aborts the uploads in progress, of all stores, so that no
// parts remain. Waits at most ten seconds, first for those that are being published.
AbandonedUploads AbandonUploads();

}  // namespace zt
