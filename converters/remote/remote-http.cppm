// zt.remote:http — HTTP requests, run by few threads with the multi interface of libcurl, and tried
// again. Internal.
module;

#include "core/thread_annotations.h"

module zt.remote:http;

import zt.std;
import :answers;
import :options;
import zt.core;
import zt.source;

namespace zt::remote::internal {

using zt::internal::CondVar, zt::internal::Mutex, zt::internal::MutexLock;

// The objects of a kind that there are at the moment. Thread-safe.
template <class T>
class Living {
 public:
  void Add(const std::shared_ptr<T>& fresh) {
    const MutexLock lock(mutex_);
    std::erase_if(all_, [](const auto& each) { return each.expired(); });
    all_.push_back(fresh);
  }
  std::vector<std::shared_ptr<T>> All() {
    std::vector<std::shared_ptr<T>> all;
    const MutexLock lock(mutex_);
    for (const auto& each : all_) {
      if (auto living = each.lock()) all.push_back(std::move(living));
    }
    return all;
  }

 private:
  Mutex mutex_;
  std::vector<std::weak_ptr<T>> all_ ZT_GUARDED_BY(mutex_);
};

// The answer to a request.
struct HttpAnswer {
  // An error if there was no complete answer, or if it was not accepted. Otherwise see head.status.
  Status status = {};
  HttpHead head = {};
  std::string text = {};   // the body, unless it went to `into` or `consume`
  bool lost = false;       // no answer arrived, but the server may have acted
  bool resent = false;     // so may it have at an earlier try
  std::string tried = {};  // for messages: how often it was tried, if more than once
  std::uint64_t tag = 0;   // of the request

  bool ok() const { return status.ok() && head.ok(); }
};

class Exchange;

// A request. Its functions are called by one thread and must not block.
struct HttpRequest {
  SharedSettings settings = {};  // of the store that asks
  std::string method = "GET";
  std::string url = {};
  std::vector<std::string> fields = {};  // "name: value"
  // Appends what proves who asks to the fields of a try. Only the first server receives it, not a
  // redirect.
  std::function<void(std::vector<std::string>&)> sign = {};
  std::uint64_t tag = 0;  // comes back with the answer
  std::string ca_file = {};
  // True to ignore the proxies of the environment, as for this machine.
  bool direct = false;
  std::optional<ByteRange> range = {};
  // The body of PUT and POST. The caller keeps it until the answer has arrived.
  std::span<const std::byte> body = {};
  // The buffer for the body of a 2xx answer, which must fill it. If the body ends early, the rest
  // is requested again.
  std::span<std::byte> into = {};
  // Without `into` and `consume`, the body goes to the text of the answer. A longer body of a 2xx
  // answer is an error.
  std::size_t most_text = 256 << 10;
  // Takes the body piece by piece. If it returns false, Exchange::Resume offers the piece again.
  std::function<bool(std::span<const std::byte>)> consume = {};
  // The number of redirects to follow. If 0, a redirect is an answer.
  int redirects = 5;
  // True if it may be sent again when the connection is lost after it was sent.
  bool repeatable = true;
  // True to send it on a new connection: when one that was open has ended, libcurl sends a request
  // again by itself.
  bool fresh = false;
  // Seconds with less than 4 kB/s before a try ends. A connection must be established in this time,
  // and in ten seconds.
  long patience = 30;
  // The number of tries without progress. 0: eight, or as many as five minutes take if the server has
  // answered before in this run.
  int tries = 0;
  // Receives the head of a 2xx answer before its body, and the offset in `into` at which the body
  // continues. An error ends the request.
  std::function<Status(const HttpHead&, std::uint64_t)> accept = {};
  // Receives the number of bytes in `into`, now and then.
  std::function<void(std::uint64_t)> progress = {};
  // Receives the answer, once.
  std::function<void(HttpAnswer)> done = {};
  // Receives what cancels it, from the thread that asks.
  std::function<void(const std::shared_ptr<Exchange>&)> begun = {};
};

// How often a request is sent again with other credentials, or to another region: in a long run
// some expire while many requests are in flight.
inline constexpr int kMostRefreshed = 5;

// The result of one try.
struct TryEnd {
  bool answered = false;  // a whole answer came
  // Another try would fail, too: an unknown scheme, a certificate that is not trusted.
  bool hopeless = false;
  bool may_be_done = false;   // the request was sent, and the answer is missing
  std::uint64_t sent = 0;     // bytes of the body
  std::string problem = {};   // the message of libcurl
  std::string redirect = {};  // the absolute URL of a redirect
  std::string address = {};   // of the server, unless a proxy was asked
};

// A thread that runs requests.
class Lane;

// A request in progress: its state over all tries, and whether to try again.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Exchange(HttpRequest given);

  // Begins a try. Afterwards url and Fields say what to send.
  void BeginTry();
  const std::string& url() const { return url_; }
  // The fields for the current server.
  std::vector<std::string> HeaderFields() const;
  // True if the server may not be this machine: a redirect from elsewhere led there.
  bool shuns_local() const { return redirects_ > 0 && !local_; }
  // True for a try on a new connection.
  bool fresh() const { return request.fresh || tries_ > 0; }

  // Takes a line of the head.
  void TakeHeadLine(std::string_view line) { internal::TakeHeadLine(line, answer_.head); }
  enum class Taken : std::uint8_t { kAll, kPause, kNo };
  Taken TakeBody(std::span<const std::byte> piece);

  // Ends a try. Returns true if another try is due, not before `next_try()`; else the answer is
  // complete.
  bool EndTry(const TryEnd& end);
  Clock::time_point next_try() const { return next_try_; }
  // Keeps the answer, or why there is none. Returns false.
  bool Give(Status status = OkStatus(), bool lost = false);
  // Calls `done` of the request, unless it was called before.
  void Tell();
  // Gives it up: `done` is called soon, with kCancelled, unless it was called before.
  void Cancel();
  // Offers again the piece that `consume` refused.
  void Resume();

  HttpRequest request;
  Lane* lane = nullptr;  // that runs it
  bool told = false;     // `done` was called
  bool shunned = false;  // the server's name led to this machine

 private:
  bool Accept();
  bool FollowRedirect(const TryEnd& end);
  // Without a `problem`, the answer says that it is worth another try.
  bool TryLater(const std::string& problem);

  const Url first_;  // of the request
  std::string url_;
  bool at_first_origin_ = true;
  bool local_ = false;  // the first server is this machine, or on its link
  HttpAnswer answer_;
  Status refused_;  // why this side ended the try
  // The bytes of `into` that have arrived. Another try continues after them.
  std::uint64_t have_ = 0, have_at_try_ = 0, told_ = 0;
  bool accepted_ = false, https_ = false;
  // Enough of the body of a refusal was read.
  bool enough_ = false;
  int tries_ = 0, fruitless_ = 0, passing_ = 0, redirects_ = 0;
  Clock::time_point last_progress_, next_try_, begun_;
};

// Starts a request in a thread: few run all, and retry failed connections, incomplete bodies, 408,
// 429 and 5xx, after a random delay that doubles, or the delay that the server asks for. It uses the
// buffers of the caller until `done` is called: at once, with kUnavailable, if libcurl is missing.
std::shared_ptr<Exchange> Start(HttpRequest request);
// Sends a request and waits for its answer.
HttpAnswer Perform(HttpRequest request);

}  // namespace zt::remote::internal
