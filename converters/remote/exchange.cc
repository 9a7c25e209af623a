// zt.remote:http — tries, redirects, and when to give up.
module;

#include <time.h>

#include "core/status_macros.h"

module zt.remote;

import zt.std;
import :http;
import zt.core;

namespace zt::remote::internal {
namespace {

using std::chrono::milliseconds;

constexpr int kFewTries = 8, kMostTries = 1000, kMostPassing = 3;
constexpr milliseconds kFirstDelay(100), kMostDelay(15'000), kSaidAfter(10'000);
// The bytes that count as progress. A server that sends less in each try must not keep a request
// alive forever.
constexpr std::uint64_t kProgress = 256 << 10;
constexpr std::uint64_t kTellEvery = 256 << 10;
constexpr std::size_t kMostHead = 256 << 10;

bool IsWorthAnother(int status) {
  // 509 and 52x are those of proxies.
  return status == 408 || status == 425 || status == 429 || status == 500 ||
         (status >= 502 && status <= 504) || status == 509 || (status >= 520 && status <= 524);
}

// Errors of S3 that pass, whatever the status.
bool IsPassing(const std::string& code) {
  return code == "RequestTimeout" || code == "OperationAborted" || code == "BadDigest" ||
         code == "InternalError" || code == "SlowDown";
}

// Whether the server of a URL has answered in this run, or does `now`: a name that never did may be
// wrong.
bool HasAnswered(const Url& url, bool now) {
  static std::mutex* const mutex = new std::mutex;
  static auto* const servers = new std::set<std::string>;
  const std::lock_guard lock(*mutex);
  if (now) servers->insert(url.origin());
  return servers->contains(url.origin());
}

milliseconds RandomDelay(int fruitless) {
  // Not thread_local, because libztstream could not be linked then.
  std::random_device random;
  const auto most = std::min(kFirstDelay * (1 << std::min(fruitless, 10)), kMostDelay);
  return milliseconds(std::uniform_int_distribution<milliseconds::rep>(0, most.count())(random));
}

}  // namespace

std::string_view HttpHead::Find(std::string_view name) const {
  const auto found = std::ranges::find_if(fields, [&](auto& each) { return each.first == name; });
  return found == fields.end() ? std::string_view() : found->second;
}

std::optional<std::uint64_t> RetrySeconds(const HttpHead& head) {
  const auto number = [](std::string_view text) {
    const auto value = NumberOf(text);
    return value.value_or(~std::uint64_t{0}) > 1'000'000 ? std::nullopt : value;
  };
  // "api";r=0;t=55: nothing remains until then.
  const std::string_view limit = head.Find("ratelimit");
  if (const std::size_t at = limit.find(";t="); at != limit.npos && limit.find(";r=0;") < at) {
    if (const auto seconds = number(limit.substr(at + 3))) return *seconds + 1;
  }
  const std::string_view after = head.Find("retry-after");
  const auto date = ParseTime(after);
  if (!date) return number(after);
  // By the clock of the server.
  const std::int64_t now = ParseTime(head.Find("date")).value_or(::time(nullptr));
  return static_cast<std::uint64_t>(std::clamp<std::int64_t>(*date - now, 0, 1'000'000));
}

void TakeHeadLine(std::string_view line, HttpHead& head) {
  line = Trimmed(line);
  if (line.starts_with("HTTP/")) {
    head = {};
    const std::size_t blank = line.find(' ');
    if (blank != line.npos)
      (void)std::from_chars(line.data() + blank + 1, line.data() + line.size(), head.status);
    return;
  }
  const std::size_t colon = line.find(':');
  if (colon == line.npos || head.fields.size() > kMostHead / 64 || line.size() > kMostHead) return;
  head.fields.emplace_back(Lower(line.substr(0, colon)), Trimmed(line.substr(colon + 1)));
}

Exchange::Exchange(HttpRequest given)
    : request(std::move(given)),
      first_(ParseUrl(request.url).value_or(Url())),
      last_progress_(Clock::now()),
      next_try_(last_progress_) {}

// Every try begins at the first URL, because the server may sign a redirect for a single request.
void Exchange::BeginTry() {
  if (redirects_ == 0) {
    url_ = request.url;
    at_first_origin_ = true;
    https_ = url_.starts_with("https://");
  }
  begun_ = Clock::now();
  shunned = false;
  answer_.head = {};
  answer_.text.clear();
  refused_ = OkStatus();
  accepted_ = enough_ = false;
  have_at_try_ = have_;
}

std::vector<std::string> Exchange::HeaderFields() const {
  std::vector<std::string> fields = request.fields;
  if (request.range) {
    fields.push_back("range: bytes=" + std::to_string(request.range->begin + have_) + "-" +
                     std::to_string(request.range->end - 1));
  }
  if (at_first_origin_ && request.sign) request.sign(fields);
  return fields;
}

bool Exchange::Accept() {
  if (accepted_) return true;
  accepted_ = true;
  if (request.accept) refused_ = request.accept(answer_.head, have_);
  return refused_.ok();
}

Exchange::Taken Exchange::TakeBody(std::span<const std::byte> piece) {
  const bool good = answer_.head.ok();
  if (good && !Accept()) return Taken::kNo;
  if (good && request.consume) {
    if (!request.consume(piece)) return Taken::kPause;
    have_ += piece.size();
    return Taken::kAll;
  }
  if (good && !request.into.empty()) {
    if (piece.size() > request.into.size() - have_) {
      refused_ = InvalidData("the server sent more bytes than were asked for");
      return Taken::kNo;
    }
    std::memcpy(request.into.data() + have_, piece.data(), piece.size());
    have_ += piece.size();
    if (request.progress && have_ - told_ >= kTellEvery) {
      told_ = have_;
      request.progress(have_);
    }
    return Taken::kAll;
  }
  const std::size_t most = good ? request.most_text : 64 << 10;
  if (answer_.text.size() + piece.size() > most) {
    enough_ = !good;
    if (good)
      refused_ = InvalidData("the server's answer is longer than the limit of " +
                             std::to_string(most) + " bytes");
    return Taken::kNo;
  }
  answer_.text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  return Taken::kAll;
}

bool Exchange::Give(Status status, bool lost) {
  answer_.status = std::move(status);
  answer_.lost = lost;
  answer_.tag = request.tag;
  return false;
}

bool Exchange::EndTry(const TryEnd& end) {
  const bool answered = end.answered || enough_;
  ++tries_;
  if (have_ - have_at_try_ >= kProgress) {
    fruitless_ = 0;
    last_progress_ = Clock::now();
  }
  // Sending a part slowly may take longer than the longest wait, and does not count; that nobody
  // answers it does.
  if (end.sent >= kProgress) {
    const std::chrono::seconds silent(answered ? 0 : request.patience);
    last_progress_ += std::max(Clock::now() - begun_ - silent, Clock::duration());
  }
  const int status = answer_.head.status;
  if (answered && answer_.head.ok()) (void)Accept();
  if (!refused_.ok()) return Give(refused_, end.may_be_done);
  if (!answered && shunned) {
    return Give(IoError("the server redirects to " + ParseUrl(url_)->origin() +
                        ", which is this machine or on its link, and is not followed"));
  }
  if (!answered) {
    // Bytes that `consume` has taken cannot be taken back.
    if (request.consume && have_ > 0) {
      return Give(IoError("the connection was lost at byte " + std::to_string(have_) + " (" +
                          end.problem + "), and the server cannot continue there"),
                  end.may_be_done);
    }
    if (end.hopeless || (end.may_be_done && !request.repeatable))
      return Give(IoError(end.problem), end.may_be_done);
    answer_.resent = answer_.resent || end.may_be_done;
    return TryLater(end.problem);
  }
  if (!end.redirect.empty() && request.redirects > 0) return FollowRedirect(end);
  answer_.resent = answer_.resent || status >= 500;
  const bool passes = status >= 400 && passing_ < kMostPassing && !IsWorthAnother(status) &&
                      IsPassing(XmlText(answer_.text, "Code"));
  passing_ += passes;
  if (passes || IsWorthAnother(status)) return TryLater("");
  (void)HasAnswered(first_, true);
  // A signature may have expired between two requests: the first server makes a new one.
  if (status == 403 && !at_first_origin_ && tries_ < 2) return TryLater("");
  if (answer_.head.ok() && have_ < request.into.size())
    return TryLater("the body ended at byte " + std::to_string(have_) + " of " +
                    std::to_string(request.into.size()));
  return Give();
}

// Follows a redirect. It refuses a redirect from https to http, from a name to an address, and from
// elsewhere to this machine. Secrets are not sent to another server.
bool Exchange::FollowRedirect(const TryEnd& end) {
  const auto refuse = [&](std::string_view why) {
    return Give(IoError("the server redirects to " + std::string(why)));
  };
  const auto to = ParseUrl(end.redirect);
  if (!to.ok() || (to->scheme != "https" && to->scheme != "http"))
    return refuse("something that is not an http URL");
  if (https_ && to->scheme != "https") return refuse("http, which is not secure");
  if (redirects_ == 0)
    local_ = IsLoopback(first_) || IsLocal(HostName(first_)) || IsLocal(end.address);
  if (!local_ &&
      (IsLoopback(*to) || IsLocal(HostName(*to)) || (IsAddress(*to) && !IsAddress(first_))))
    return refuse("an address, " + to->origin() + ", which is not followed");
  if (++redirects_ > request.redirects) return refuse("too many places in turn");
  https_ = https_ || to->scheme == "https";
  // After a redirect to another server, a redirect back to the first does not get the secrets.
  at_first_origin_ = at_first_origin_ && to->origin() == first_.origin();
  url_ = to->text();
  --tries_;
  next_try_ = Clock::now();
  return true;
}

bool Exchange::TryLater(const std::string& problem) {
  redirects_ = 0;
  const bool answered = problem.empty();
  const auto now = Clock::now();
  const milliseconds asked(1000 * (answered ? RetrySeconds(answer_.head).value_or(0) : 0)),
      delay = std::max(RandomDelay(fruitless_), asked);
  ++fruitless_;
  const int most_tries = request.tries > 0            ? request.tries
                         : HasAnswered(first_, false) ? kMostTries
                                                      : kFewTries;
  const auto seconds = [](auto time) {
    return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count()) + " s";
  };
  const auto most_wait = request.settings->most_wait();
  if (fruitless_ >= most_tries || now + delay - last_progress_ > most_wait) {
    const std::string tried = tries_ < 2 ? ""
                                         : ", in " + std::to_string(tries_) + " tries over " +
                                               seconds(now - last_progress_);
    if (!answered) return Give(IoError(problem + tried));
    answer_.tried = tried;
    return Give();
  }
  if (now - last_progress_ > kSaidAfter) {
    const std::string status = answered ? std::to_string(answer_.head.status) : "";
    request.settings->Warn(first_.origin() +
                               (answered ? ": it answers " + status : ": no answer: " + problem) +
                               "; it is asked again for up to " + seconds(most_wait),
                           first_.origin() + status);
  }
  next_try_ = now + delay;
  return true;
}

}  // namespace zt::remote::internal
