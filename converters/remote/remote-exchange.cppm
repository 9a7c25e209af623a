// zt.remote:exchange — a request in progress: its state over all tries, and whether to try again.
// Internal.
module zt.remote:exchange;

import zt.std;
import :answers;
import :http;
import :url;
import zt.core;

namespace zt::remote::internal {

// The result of one try.
struct TryEnd {
  bool answered = false;  // a whole answer came
  // Another try would fail, too: an unknown scheme, a certificate that is not trusted.
  bool hopeless = false;
  bool may_be_done = false;  // the request was sent, and the answer is missing
  std::uint64_t sent = 0;    // bytes of the body
  std::string problem;       // the message of libcurl
  std::string redirect;      // the absolute URL of a redirect
  std::string address;       // of the server, unless a proxy was asked
};

// A thread of the transport.
class Lane;

class Exchange {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Exchange(HttpRequest given);

  // Begins a try. Afterwards url and Fields say what to send.
  void BeginTry();
  const std::string& url() const { return url_; }
  // The fields for the current server; secrets are only sent to the first one.
  std::vector<std::string> HeaderFields() const;
  // True if the server may not be this machine: a redirect from elsewhere led there.
  bool shuns_local() const { return redirects_ > 0 && !local_; }
  // The number of bytes of `into` that have arrived. Another try continues after them.
  std::uint64_t have() const { return have_; }

  // Takes a line of the head.
  void TakeHeadLine(std::string_view line) { internal::TakeHeadLine(line, head_); }
  enum class Taken : std::uint8_t { kAll, kPause, kNo };
  Taken TakeBody(std::span<const std::byte> piece);

  // Ends a try. Returns true if another try is due, not before `next_try()`; else the answer is
  // complete.
  bool EndTry(const TryEnd& end);
  Clock::time_point next_try() const { return next_try_; }
  void Fail(Status status);
  // Calls `done` of the request, once.
  void Tell();

  HttpRequest request;
  Lane* lane = nullptr;  // of the transport, that runs it
  bool cancelled = false;
  bool told = false;     // Tell was called
  bool again = false;    // not the first try: use a new connection
  bool shunned = false;  // the server's name led to this machine

 private:
  bool Accept();
  bool FollowRedirect(const TryEnd& end);
  bool TryLater(const std::string& problem, bool answered);
  std::optional<std::chrono::milliseconds> AskedDelay() const;
  void KeepAnswer();

  std::string url_;
  bool at_first_origin_ = true;
  bool local_ = false;  // the first server is this machine, or on its link
  HttpAnswer answer_;
  HttpHead head_;
  Status refused_;  // why this side ended the try
  std::string text_;
  std::uint64_t have_ = 0, have_at_try_ = 0, told_ = 0;
  bool accepted_ = false, https_ = false;
  // Enough of the body of a refusal was read.
  bool enough_ = false;
  int tries_ = 0, fruitless_ = 0, passing_ = 0, redirects_ = 0;
  Clock::time_point last_progress_, next_try_, begun_;
};

}  // namespace zt::remote::internal
