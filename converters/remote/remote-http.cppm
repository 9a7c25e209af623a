// zt.remote:http — requests and their answers, over one thread that runs libcurl's multi interface. Internal.
module zt.remote:http;

import zt.std;
import :url;
import zt.core;
import zt.source;

namespace zt::remote::internal {

// The head of an answer.
struct HttpHead {
  int status = 0;                                           // 0: there was none
  std::vector<std::pair<std::string, std::string>> fields;  // names in lower case

  // The value of a field; empty where it is not there.
  std::string_view Find(std::string_view name) const;
};

// What came of a request.
struct HttpAnswer {
  // Not OK where no whole answer came, or it was not accepted. Else `head.status` says what the server thinks.
  Status status;
  HttpHead head;
  std::string text;            // the body, where it did not go elsewhere
  std::uint64_t received = 0;  // bytes of the body that went to `into` or `consume`
  bool lost = false;           // no answer came, and the server may have done what was asked
  bool redirected = false;     // it is another server's than the one that was asked

  bool ok() const { return status.ok() && head.status >= 200 && head.status < 300; }
};

// A request. The functions are called in the transport's thread and must not wait.
struct HttpRequest {
  std::string method = "GET";
  std::string url;
  std::vector<std::string> fields;  // "name: value"
  // Fields that no other server than the first is told.
  std::vector<std::string> secrets;
  // CURLOPT_AWS_SIGV4 and "id:secret"; empty: not signed.
  std::string sigv4, credentials;
  std::string ca_file;
  // Whether a proxy of the environment is passed over.
  bool direct = false;
  std::optional<ByteRange> range;
  // What PUT and POST send. Stays the caller's until the answer is there.
  std::span<const std::byte> body;
  // Where the body of a 2xx answer goes, which has to fill it: one that ends early is asked for again from there.
  std::span<std::byte> into;
  // Else it goes to the answer's text, which is cut there.
  std::size_t most_text = 256 << 10;
  // Or here, piece by piece. False: the piece is offered again after Transport::Resume.
  std::function<bool(std::span<const std::byte>)> consume = {};
  // How many are followed; 0: a redirect is an answer.
  int redirects = 5;
  // Whether it is sent again where the connection was lost after it was sent.
  bool repeatable = true;
  // Seconds that may pass with less than 1 kB/s, and until a connection stands, which is given ten at most.
  long patience = 30;
  // Tries without progress, in all.
  int tries = 8;
  // Told the head of a 2xx answer before its body, and from which byte of `into` on that is to go. An error ends the request.
  std::function<Status(const HttpHead&, std::uint64_t)> accept = {};
  // Told how many bytes of `into` are there, now and then.
  std::function<void(std::uint64_t)> progress = {};
  // Told the end of it all, once.
  std::function<void(HttpAnswer)> done = {};
};

class Exchange;  // a request under way

// Requests under way, in a thread of their own. What is worth another try is tried again: connections that fail, bodies cut
// short, 408, 429 and 5xx, after a random time that doubles, or the one that the server asks for. Thread-safe.
class Transport {
 public:
  // The one of this process, started at the first call; kUnavailable where there is no libcurl.
  static StatusOr<Transport*> Get();
  // What was started last and has not ended; it holds buffers of its caller until its `done`.
  std::shared_ptr<Exchange> Start(HttpRequest request);
  // Ends a request: its `done` is called, soon, with kCancelled, unless it was before.
  void Cancel(const std::shared_ptr<Exchange>& exchange);
  // Offers again what `consume` has not taken.
  void Resume(const std::shared_ptr<Exchange>& exchange);
  // Sends a request and waits for its answer.
  HttpAnswer Perform(HttpRequest request);

  // Bytes of bodies that came and went, of all requests.
  std::uint64_t received() const;
  std::uint64_t sent() const;

  struct State;

 private:
  explicit Transport(State* state) : state_(state) {}
  State* state_;
};

// Told warnings for the user; nothing where nobody wants them.
void Warn(const std::string& line);
void SetWarnings(std::function<void(const std::string&)> warn);

}  // namespace zt::remote::internal
