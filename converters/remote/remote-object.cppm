// zt.remote:object — remote objects, read by ranges. Internal.
module zt.remote:object;

import zt.std;
import :http;
import zt.core;
import zt.source;

namespace zt::remote::internal {

// A remote object: the requests for it, and the meaning of refusals.
class Object {
 public:
  virtual ~Object() = default;
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
};

// Opens an object by reading its first bytes. If the server does not support ranges, it warns and
// reads the object as a pipe. Errors do not name it.
StatusOr<std::shared_ptr<ByteSource>> OpenObject(std::shared_ptr<Object> object);

// Sets the budget for bytes that are read ahead, over all objects.
void SetReadAhead(std::uint64_t bytes);

// The properties of an object in the first answer. All later answers must agree.
struct Pinned {
  std::uint64_t size = 0;
  std::string etag;      // strong, or empty
  std::string modified;  // Last-Modified, if there is no strong ETag
};
// kDataLoss if the bytes of an answer are not those of the object: another encoding was not asked for.
Status CheckEncoding(const HttpHead& head);
// kDataLoss if an answer has another range than `asked`, or belongs to another object than
// `pinned`.
Status CheckRangeHead(const HttpHead& head, ByteRange asked, const Pinned& pinned);
// The properties in a head.
Pinned PinnedBy(const HttpHead& head, std::uint64_t size);

// An object whose first bytes are `head`, by ranges.
std::shared_ptr<ByteSource> RangedObject(std::shared_ptr<Object> object, Pinned pinned,
                                         std::string head);
// An object of a server without ranges, as a pipe.
std::shared_ptr<ByteSource> StreamObject(std::shared_ptr<Object> object,
                                         std::optional<std::uint64_t> size);

// The common part of Explain: the status and the message of the server, in one line.
std::string Said(const HttpAnswer& answer, std::string_view message);

}  // namespace zt::remote::internal
