// zt.remote:exchange — a request under way: what its tries have in common, and whether another is worth it. Internal.
module zt.remote:exchange;

import zt.std;
import :http;
import :url;
import zt.core;

namespace zt::remote::internal {

// What became of one try.
struct TryEnd {
  bool answered = false;  // a whole answer came
  bool hopeless =
      false;  // no other try will do better: no such scheme, a certificate that is not trusted
  bool may_be_done = false;  // the request was sent, and its answer is missing
  std::string problem;       // libcurl's words
  std::string redirect;      // where the answer sends to, made absolute
};

class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Exchange(HttpRequest given);

  // A try begins: what it sends, and where to.
  void BeginTry();
  const std::string& url() const { return url_; }
  // Without what other servers must not be told.
  std::vector<std::string> HeaderFields() const;
  bool at_first_origin() const { return at_first_origin_; }
  // The bytes of `into` that are there, which another try goes on from.
  std::uint64_t have() const { return have_; }

  // A line of the head; false ends the try.
  void TakeHeadLine(std::string_view line);
  enum class Taken : std::uint8_t { kAll, kPause, kNo };
  Taken TakeBody(std::span<const std::byte> piece);

  // After a try: true where another is due, not before `next_try()`. Else the answer is complete.
  bool EndTry(const TryEnd& end);
  Clock::time_point next_try() const { return next_try_; }
  void Fail(Status status);
  // Calls the request's `done`.
  void Tell();

  HttpRequest request;
  std::size_t sent = 0;  // of the body, in this try
  bool cancelled = false, told = false;
  bool again = false;  // this is not the first try: the connection should be a new one

 private:
  bool Accept();
  bool FollowRedirect(const TryEnd& end);
  bool TryLater(const std::string& problem, bool answered);
  std::optional<std::chrono::milliseconds> AskedDelay() const;
  void KeepAnswer();

  std::string url_;
  bool at_first_origin_ = true;
  HttpAnswer answer_;
  HttpHead head_;
  Status refused_;  // why the try was ended from here
  std::string text_;
  std::uint64_t have_ = 0, have_at_try_ = 0, told_ = 0;
  bool accepted_ = false, https_ = false;
  bool enough_ = false;  // of a refusal's body: the rest is not read
  int tries_ = 0, fruitless_ = 0, redirects_ = 0;
  Clock::time_point last_progress_, next_try_;
};

// The value of a Retry-After in seconds, or of the `t` of a Hub's `ratelimit`; nullopt for dates and nonsense.
std::optional<std::uint64_t> RetrySeconds(const HttpHead& head);

}  // namespace zt::remote::internal
