// zt.remote:object — objects on servers, read by ranges. Internal.
module zt.remote:object;

import zt.std;
import :http;
import zt.core;
import zt.source;

namespace zt::remote::internal {

// Something a server has: how it is asked for, and what its refusals mean.
class Object {
 public:
  virtual ~Object() = default;
  // For messages: the URL as the user knows it, without its query.
  virtual const std::string& name() const = 0;
  // A GET of it, with what credentials it takes. It may wait for them. Thread-safe.
  virtual StatusOr<HttpRequest> Get() = 0;
  // What is said of an answer that is none of its bytes.
  virtual Status Explain(const HttpAnswer& answer) = 0;
  // True where the answer says that credentials or region are wrong and others are at hand now: Get has them. It may wait.
  virtual bool Refresh(const HttpAnswer& /*answer*/) { return false; }
  // Whether If-Match may be sent. Where bytes are pinned by other means, a signed URL is better left as it is.
  virtual bool pins() const { return true; }
};

// Opens an object by asking for its first bytes. A server that knows no ranges makes it a pipe, which is said. Errors do not
// name it.
StatusOr<std::shared_ptr<ByteSource>> OpenObject(std::shared_ptr<Object> object);

// Bytes that all objects together may hold that were asked for ahead.
void SetReadAhead(std::uint64_t bytes);

// What the first answer says of an object, and what every later one is compared with.
struct Pinned {
  std::uint64_t size = 0;
  std::string etag;      // strong, or empty
  std::string modified;  // Last-Modified, where there is no strong ETag
};
// kDataLoss where the head of an answer to `asked` has another range than that, or another object.
Status CheckRangeHead(const HttpHead& head, ByteRange asked, const Pinned& pinned);
// What a head pins.
Pinned PinnedBy(const HttpHead& head, std::uint64_t size);

// An object without ranges, from its first byte to its last.
std::shared_ptr<ByteSource> StreamObject(std::shared_ptr<Object> object,
                                         std::optional<std::uint64_t> size);

// The common part of Explain: the status and what the server says, in one line.
std::string Said(const HttpAnswer& answer, std::string_view message);

}  // namespace zt::remote::internal
