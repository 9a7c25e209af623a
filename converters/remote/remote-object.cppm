// zt.remote:object — remote objects, read by ranges. Internal.
module;

#include "core/thread_annotations.h"

module zt.remote:object;

import zt.std;
import :http;
import :options;
import zt.core;
import zt.source;

namespace zt::remote::internal {

// A remote object: the requests for it, and the meaning of refusals.
class RemoteObject {
 public:
  explicit RemoteObject(SharedSettings settings) : settings_(std::move(settings)) {}
  virtual ~RemoteObject() = default;
  RemoteObject(const RemoteObject&) = delete;
  RemoteObject& operator=(const RemoteObject&) = delete;

  // The name for messages: the URL of the user, without its query.
  virtual const std::string& name() const = 0;
  // Makes a GET request with the necessary credentials. It may wait for them. Thread-safe.
  virtual StatusOr<HttpRequest> Get() = 0;
  // Explains an answer that does not have the bytes.
  virtual Status Explain(const HttpAnswer& answer) = 0;
  // True if the answer says that credentials or region are wrong and new ones were found; then Get
  // uses them. It may wait.
  virtual bool Refresh(const HttpAnswer& /*answer*/) { return false; }
  // Whether to send If-Match. False if the URL identifies the bytes, and may be redirected to a
  // signed one.
  virtual bool pins() const { return true; }
  // The bytes of a request, at most. More requests at once hide more latency, and read-ahead is
  // memory: so small, unless the server counts requests.
  virtual std::uint64_t most_bytes() const { return std::uint64_t{4} << 20; }
  const Settings& settings() const { return *settings_; }

 protected:
  const SharedSettings settings_;
};

// What an object is: as a listing says, else as the first answer does. All answers must agree, as
// long as the run lasts and whichever source asks. Thread-safe.
class Pin {
 public:
  Pin() = default;
  Pin(std::optional<std::uint64_t> size, std::string etag);
  // kDataLoss if an answer, of an object of `size` bytes if that is known, belongs to another one.
  // The first answer sets what is not known.
  Status Check(const HttpHead& head, std::optional<std::uint64_t> size);
  std::optional<std::uint64_t> size() const;
  // Strong, or empty.
  std::string etag() const;
  // True if only a change of its size can be noticed.
  bool weak() const;
  // Whether the server has answered with a range of it.
  std::atomic<bool> ranged = false;

 private:
  mutable zt::internal::Mutex mutex_;
  bool answered_ ZT_GUARDED_BY(mutex_) = false;
  std::optional<std::uint64_t> size_ ZT_GUARDED_BY(mutex_);
  std::string etag_ ZT_GUARDED_BY(mutex_);
  std::string modified_ ZT_GUARDED_BY(mutex_);  // Last-Modified, if there is no strong ETag
};
using SharedPin = std::shared_ptr<Pin>;

// The pins of a store, by the names of objects.
class Pins {
 public:
  // The pin of an object, made if there is none.
  SharedPin Of(const std::string& name);
  // Pins an object as a listing has it, unless it is pinned already.
  void Add(const std::string& name, std::optional<std::uint64_t> size, const std::string& etag);
  void Forget(const std::string& name);

 private:
  zt::internal::Mutex mutex_;
  std::unordered_map<std::string, SharedPin> pins_ ZT_GUARDED_BY(mutex_);
};

// Opens an object by reading its first bytes. If the server does not support ranges, it warns and
// reads the object as a pipe. Errors do not name it.
StatusOr<std::shared_ptr<ByteSource>> OpenObject(std::shared_ptr<RemoteObject> object, Pins& pins);

// The error of an object that is another one now.
Status Changed();
// kDataLoss if the bytes of an answer are not those of the object: another encoding was not asked for.
Status CheckEncoding(const HttpHead& head);
// kDataLoss if an answer has another range than `asked`, or belongs to another object than `pin`.
Status CheckRangeHead(const HttpHead& head, ByteRange asked, Pin& pin);

// An object by ranges, whose first bytes are `head`, and whose size the pin knows.
std::shared_ptr<ByteSource> RangedObject(std::shared_ptr<RemoteObject> object, SharedPin pin,
                                         std::string head);
// True if `bytes` more first bytes fit into the limit on those that all open objects hold.
bool HasRoomForHead(std::uint64_t bytes);
// An object of a server without ranges, as a pipe.
std::shared_ptr<ByteSource> StreamObject(std::shared_ptr<RemoteObject> object, SharedPin pin);

// The common part of Explain: the status and the message of the server, in one line.
std::string Said(const HttpAnswer& answer, std::string_view message);

}  // namespace zt::remote::internal
