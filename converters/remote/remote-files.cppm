// zt.remote:files — files by URL, for each scheme. Internal.
module zt.remote:files;

import zt.std;
import :answers;
import :object;
import :options;
import :s3;
import :url;
import zt.core;
import zt.sink;
import zt.source;

namespace zt::remote::internal {

// The files of a folder, as a server lists them.
struct Listing {
  // Their paths there, with their sizes and ETags if the server gives them.
  std::vector<ListPage::Key> files;
  bool below = false;  // those in the folders below it are among them
};

// The files of a scheme, for a store, which it must not outlive.
class Scheme {
 public:
  virtual ~Scheme() = default;
  virtual StatusOr<std::shared_ptr<ByteSource>> Open(const std::string& url, Pins& pins) = 0;
  virtual StatusOr<bool> IsFolder(const std::string& url) = 0;
  // The files in a folder, or with `below` those in the folders below it, too.
  virtual StatusOr<Listing> List(const std::string& url, bool below) = 0;
  virtual StatusOr<bool> Exists(const std::string& url) = 0;
  // `forget` is called when a new file was written.
  virtual StatusOr<std::unique_ptr<Sink>> Create(const std::string& url,
                                                 const FileSinkOptions& options,
                                                 std::function<void()> forget) = 0;
};
std::unique_ptr<Scheme> MakeWeb(SharedSettings settings, Store& store);
std::unique_ptr<Scheme> MakeS3(SharedSettings settings);
std::unique_ptr<Scheme> MakeHub(SharedSettings settings);

// The pages of a listing, which is whole or an error.
class Pages {
 public:
  // Counts a name. kDataLoss if it was listed before, kInvalidArgument if there are too many.
  Status Add(const std::string& name);
  // Goes on to the page at `next`; an empty one is the end. kDataLoss if the pages do not end.
  Status GoOn(std::string next);
  // Where the page is that is asked for now; empty for the first one.
  const std::string& next() const { return next_; }

 private:
  std::string next_;
  std::unordered_set<std::string> names_, seen_;
  std::size_t counted_ = 0, empty_ = 0;
};

// True if a path has the suffix of a file.
bool HasExtension(std::string_view path);

}  // namespace zt::remote::internal
