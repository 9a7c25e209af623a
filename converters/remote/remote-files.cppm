// zt.remote:files — files by URL, for each scheme. Internal.
module zt.remote:files;

import zt.std;
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

// The files of a scheme.
class Scheme {
 public:
  virtual ~Scheme() = default;
  virtual StatusOr<std::shared_ptr<ByteSource>> Open(const std::string& url) = 0;
  virtual StatusOr<bool> IsFolder(const std::string& url) = 0;
  virtual StatusOr<std::vector<std::string>> List(const std::string& url) = 0;
  virtual StatusOr<std::vector<ListedFile>> ListBelow(const std::string& url) = 0;
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

// Forgets the open file of this URL, because a new one was written.
void ForgetOpen(const std::string& url);

// The part after the last slash.
std::string_view LastName(std::string_view url);

}  // namespace zt::remote::internal
