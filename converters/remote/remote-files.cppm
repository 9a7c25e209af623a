// zt.remote:files — files by URL, for each scheme. Internal.
module zt.remote:files;

import zt.std;
import :answers;
import :object;
import :url;
import zt.core;
import zt.sink;
import zt.source;

namespace zt::remote::internal {

// The current options.
struct Settings {
  bool no_sign_request = false;
  std::uint64_t part_bytes = 0;
};
const Settings& TheSettings();

// The files of a folder, as a server lists them.
struct Listing {
  // Their paths there, with their sizes and ETags if the server gives them.
  std::vector<ListPage::Key> files;
  bool below = false;  // those in the folders below it are among them
};

// The files of a scheme.
class Scheme {
 public:
  virtual ~Scheme() = default;
  virtual StatusOr<std::shared_ptr<ByteSource>> Open(const std::string& url) = 0;
  virtual StatusOr<bool> IsFolder(const std::string& url) = 0;
  // The files in a folder, or with `below` those in the folders below it, too.
  virtual StatusOr<Listing> List(const std::string& url, bool below) = 0;
  virtual StatusOr<bool> Exists(const std::string& url) = 0;
  virtual StatusOr<std::unique_ptr<Sink>> Create(const std::string& url,
                                                 const FileSinkOptions& options) = 0;
};

// The schemes. Each exists until the process ends.
Scheme& Web();
Scheme& S3();
Scheme& Hub();

// The query that HideQuery removed from this URL.
std::string HiddenQuery(const std::string& url);

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

// Forgets the open file of this URL, because a new one was written.
void ForgetOpen(const std::string& url);

// True if a path has the suffix of a file.
bool HasExtension(std::string_view path);
// The part after the last slash.
std::string_view LastName(std::string_view url);

}  // namespace zt::remote::internal
