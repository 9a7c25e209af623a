// zt.remote:files — files by URL, for each scheme: opened by ranges, listed, created. Internal.
module;

#include "core/thread_annotations.h"

module zt.remote:files;

import zt.std;
import :answers;
import :http;
import :options;
import zt.core;
import zt.sink;
import zt.source;

namespace zt::remote::internal {

// What an object is: as a listing says, else as the first answer does. All answers must agree, as
// long as the run lasts and whichever source asks. Thread-safe.
class Pin {
 public:
  Pin(std::optional<std::uint64_t> size, std::string etag);
  // kDataLoss if an answer, of an object of `size` bytes if that is known, belongs to another one or
  // has another encoding, which was not asked for. The first answer sets what is not known.
  Status Check(const HttpHead& head, std::optional<std::uint64_t> size);
  struct Known {
    std::optional<std::uint64_t> size = {};
    std::string etag = {};      // strong, or empty
    std::string modified = {};  // Last-Modified, if there is no strong ETag
  };
  Known known() const;
  // Whether the server has answered with a range of it.
  std::atomic<bool> ranged = false;

 private:
  mutable Mutex mutex_;
  bool answered_ ZT_GUARDED_BY(mutex_) = false;
  Known known_ ZT_GUARDED_BY(mutex_);
};
using SharedPin = std::shared_ptr<Pin>;

// The pins of a store, by the names of objects.
class Pins {
 public:
  // The pin of an object. If there is none, one is made, of what a listing says.
  SharedPin Of(const std::string& name, std::optional<std::uint64_t> size = {},
               const std::string& etag = "");
  void Forget(const std::string& name);

 private:
  Mutex mutex_;
  std::unordered_map<std::string, SharedPin> pins_ ZT_GUARDED_BY(mutex_);
};

// A remote object: the requests for it, and the meaning of refusals. Its functions are thread-safe.
struct RemoteObject {
  SharedSettings settings;
  std::string name;  // for messages: the URL of the user, without its query
  // Makes a GET request with the necessary credentials. It may wait for them.
  std::function<StatusOr<HttpRequest>()> get;
  // Explains an answer that does not have the bytes.
  std::function<Status(const HttpAnswer&)> explain;
  // True if the answer says that credentials or region are wrong and new ones were found; then `get`
  // uses them. It may wait.
  std::function<bool(const HttpAnswer&)> refresh = [](const HttpAnswer&) { return false; };
  // Whether to send If-Match. False if the URL identifies the bytes, and may be redirected to a
  // signed one.
  bool pins = true;
  // The bytes of a request, at most. More requests at once hide more latency, and read-ahead is
  // memory: so small, unless the server counts requests.
  std::uint64_t most_bytes = std::uint64_t{4} << 20;

  // The request for a range of what `pin` says.
  StatusOr<HttpRequest> GetRange(ByteRange range, const Pin& pin) const;
};
using SharedObject = std::shared_ptr<const RemoteObject>;

// Opens an object by reading its first bytes. If the server does not support ranges, it warns and
// reads the object as a pipe. Errors do not name it, and are WithAnswer.
StatusOr<std::shared_ptr<ByteSource>> OpenObject(RemoteObject opened, Pins& pins);

// An error with what the answer means as its code: kNotFound if there is no such object,
// kPermissionDenied if the server refuses to say so and will do so again. Those of a server that
// fails, or does not answer, stay kUnavailable. A Store makes kUnavailable of all.
Status WithAnswer(const Status& status, const HttpAnswer& answer);

// The error of an object that is another one now.
Status Changed();
// kDataLoss if an answer has another range than `asked`, or belongs to another object than `pin`.
Status CheckRangeHead(const HttpHead& head, ByteRange asked, Pin& pin);

// An object by ranges, whose first bytes are `head`, and whose size the pin knows.
std::shared_ptr<ByteSource> RangedObject(SharedObject object, SharedPin pin, std::string head);
// True if `bytes` more first bytes fit into the limit on those that all open objects hold.
bool HasRoomForHead(std::uint64_t bytes);

// The common part of Explain: the status and the message of the server, in one line.
std::string Said(const HttpAnswer& answer, std::string_view message);

// The files of a folder, as a server lists them.
struct Listing {
  // Their paths there, with their sizes and ETags if the server gives them.
  std::vector<ListPage::Key> files;
  bool below = false;  // those in the folders below it are among them
};

// The files of a scheme, for a store, which it must not outlive. Errors are WithAnswer.
class Scheme {
 public:
  virtual ~Scheme() = default;
  virtual StatusOr<std::shared_ptr<ByteSource>> Open(const std::string& url, Pins& pins) = 0;
  virtual StatusOr<bool> IsFolder(const std::string&) { return false; }
  // The files in a folder, or with `below` those in the folders below it, too.
  virtual StatusOr<Listing> List(const std::string&, bool /*below*/) {
    return Unsupported("a web server's folders are not listed");
  }
  // Whether a file is there: OK, kNotFound or another error. nullopt: opening it tells.
  virtual std::optional<Status> Find(const std::string&) { return std::nullopt; }
  // `forget` is called when a new file was written.
  virtual StatusOr<std::unique_ptr<Sink>> Create(const std::string& /*url*/,
                                                 const FileSinkOptions& /*options*/,
                                                 std::function<void()> /*forget*/) {
    return Unsupported("nothing is written over http; write to a file, to - or to s3://");
  }
};
std::unique_ptr<Scheme> MakeS3(SharedSettings settings);
std::unique_ptr<Scheme> MakeHub(SharedSettings settings);

// Reads the pages of a listing, which is whole or an error. `read` reads the page at a place, which is
// empty for the first one, adds the names in it to `names`, and returns where the next one is; empty
// at the end. kDataLoss for a name that was listed before, or if the pages do not end;
// kInvalidArgument for too many names.
Status ReadPages(const std::function<StatusOr<std::string>(const std::string& at,
                                                           std::vector<std::string>& names)>& read);

// True if a path has the suffix of a file.
bool HasExtension(std::string_view path);

}  // namespace zt::remote::internal
