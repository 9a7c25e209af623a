// zt.remote:http — the threads that run libcurl's multi interface.
module;

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/status_macros.h"
#include "core/thread_annotations.h"
#include "remote/curl.h"

module zt.remote;

import zt.std;
import :exchange;
import :http;
import :url;
import zt.core;
import zt.pipeline;

namespace zt::remote::internal {

using zt::internal::Mutex;
using zt::internal::MutexLock;

namespace {

using Clock = Exchange::Clock;
using Running = std::shared_ptr<Exchange>;

constexpr long kConnectSeconds = 10, kReceiveBuffer = 128 << 10, kSendBuffer = 512 << 10;
constexpr curl_off_t kSlow = 4000;
// A lane with so many requests gets another one beside it.
constexpr std::size_t kEnough = 4;

// A try of an exchange, with its handle of libcurl.
struct Try {
  Try(const Curl& library, Running running)
      : curl(library), exchange(std::move(running)), easy(curl.easy_init()) {}
  ~Try() {
    if (easy != nullptr) curl.easy_cleanup(easy);
    curl.slist_free_all(fields);
  }
  Try(const Try&) = delete;
  Try& operator=(const Try&) = delete;

  const Curl& curl;
  Running exchange;
  CURL* easy;
  curl_slist* fields = nullptr;
  bool proxied = false;
  char error[CURL_ERROR_SIZE] = {};
};

std::size_t OnHead(char* data, std::size_t size, std::size_t count, void* to) {
  static_cast<Exchange*>(to)->TakeHeadLine({data, size * count});
  return size * count;
}

std::size_t OnBody(char* data, std::size_t size, std::size_t count, void* to) {
  auto* const exchange = static_cast<Exchange*>(to);
  const std::size_t bytes = size * count;
  switch (exchange->TakeBody(std::as_bytes(std::span(data, bytes)))) {
    case Exchange::Taken::kAll:
      return bytes;
    case Exchange::Taken::kPause:
      return CURL_WRITEFUNC_PAUSE;
    case Exchange::Taken::kNo:
      break;
  }
  return bytes == 0 ? 1 : 0;
}

std::size_t OnSend(char* out, std::size_t size, std::size_t count, void* from) {
  auto* const exchange = static_cast<Exchange*>(from);
  const auto rest = exchange->request.body.subspan(exchange->sent);
  const std::size_t take = std::min(rest.size(), size * count);
  std::memcpy(out, rest.data(), take);
  exchange->sent += take;
  return take;
}

int OnSeek(void* from, curl_off_t offset, int origin) {
  auto* const exchange = static_cast<Exchange*>(from);
  if (origin != SEEK_SET || offset < 0 ||
      static_cast<std::size_t>(offset) > exchange->request.body.size())
    return CURL_SEEKFUNC_FAIL;
  exchange->sent = static_cast<std::size_t>(offset);
  return CURL_SEEKFUNC_OK;
}

// Opens the socket for a redirect from elsewhere, but not to this machine or its link: a name may
// lead anywhere.
curl_socket_t OnSocket(void* from, curlsocktype, curl_sockaddr* to) {
  char text[INET6_ADDRSTRLEN] = {};
  const void* const bytes =
      to->family == AF_INET6
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(&to->addr)->sin6_addr)
          : &reinterpret_cast<const sockaddr_in*>(&to->addr)->sin_addr;
  if (::inet_ntop(to->family, bytes, text, sizeof text) == nullptr || IsLocal(text)) {
    static_cast<Exchange*>(from)->shunned = true;
    return CURL_SOCKET_BAD;
  }
  return ::socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
}

// Errors that another try cannot change.
bool IsHopeless(CURLcode code) {
  return code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT ||
         code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE ||
         code == CURLE_SSL_CERTPROBLEM || code == CURLE_OUT_OF_MEMORY || code == CURLE_NOT_BUILT_IN;
}

// Errors before the request can have reached a server.
bool IsBeforeSending(CURLcode code) {
  return code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY ||
         code == CURLE_COULDNT_CONNECT || code == CURLE_SSL_CONNECT_ERROR || IsHopeless(code);
}

void SetMethod(const Curl& curl, CURL* easy, Exchange& exchange) {
  const HttpRequest& request = exchange.request;
  if (request.method == "HEAD") {
    curl.easy_setopt(easy, CURLOPT_NOBODY, 1L);
  } else if (request.method == "PUT") {
    curl.easy_setopt(easy, CURLOPT_UPLOAD, 1L);
    curl.easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    curl.easy_setopt(easy, CURLOPT_READFUNCTION, OnSend);
    curl.easy_setopt(easy, CURLOPT_READDATA, &exchange);
    curl.easy_setopt(easy, CURLOPT_SEEKFUNCTION, OnSeek);
    curl.easy_setopt(easy, CURLOPT_SEEKDATA, &exchange);
    curl.easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, kSendBuffer);
  } else if (request.method == "POST") {
    curl.easy_setopt(easy, CURLOPT_POST, 1L);
    curl.easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE,
                     static_cast<curl_off_t>(request.body.size()));
    curl.easy_setopt(
        easy, CURLOPT_POSTFIELDS,
        request.body.empty() ? "" : reinterpret_cast<const char*>(request.body.data()));
  } else if (request.method != "GET") {
    curl.easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  }
}

Status SetFields(const Curl& curl, Try& attempt) {
  std::vector<std::string> fields = attempt.exchange->HeaderFields();
  for (const std::string& field : fields) {
    if (std::ranges::any_of(field,
                            [](char c) { return (c >= 0 && c < 32 && c != '\t') || c == 127; }))
      return InvalidArgument("the value for the header " + field.substr(0, field.find(':')) +
                             " has a line break or another control character; look at the "
                             "variable or the file that it comes from");
  }
  fields.emplace_back("Expect:");  // does not wait for "100 Continue"
  for (const std::string& field : fields) {
    if (curl_slist* const longer = curl.slist_append(attempt.fields, field.c_str()))
      attempt.fields = longer;
  }
  curl.easy_setopt(attempt.easy, CURLOPT_HTTPHEADER, attempt.fields);
  return OkStatus();
}

// Sets the proxy that libcurl would find in the environment, with its name and password apart:
// messages of libcurl show the rest. This machine is asked without one.
void SetProxy(const Curl& curl, Try& attempt) {
  const auto url = ParseUrl(attempt.exchange->url());
  if (attempt.exchange->request.direct || !url.ok() || IsLoopback(*url)) {
    curl.easy_setopt(attempt.easy, CURLOPT_NOPROXY, "*");
    return;
  }
  std::string proxy = Environment(url->scheme == "https" ? "https_proxy" : "http_proxy");
  if (proxy.empty() && url->scheme == "https") proxy = Environment("HTTPS_PROXY");
  for (const char* name : {"all_proxy", "ALL_PROXY"}) {
    if (proxy.empty()) proxy = Environment(name);
  }
  attempt.proxied = !proxy.empty();
  if (const std::size_t at = proxy.rfind('@'); at != proxy.npos) {
    const std::size_t scheme = proxy.find("://"), begin = scheme == proxy.npos ? 0 : scheme + 3;
    const std::string who = proxy.substr(begin, std::max(at, begin) - begin);
    curl.easy_setopt(attempt.easy, CURLOPT_PROXYUSERPWD, who.c_str());
    proxy.erase(begin, std::max(at + 1, begin) - begin);
    curl.easy_setopt(attempt.easy, CURLOPT_PROXY, proxy.c_str());
  }
}

Status SetUp(const Curl& curl, Try& attempt) {
  CURL* const easy = attempt.easy;
  Exchange& exchange = *attempt.exchange;
  exchange.BeginTry();
  curl.easy_setopt(easy, CURLOPT_URL, exchange.url().c_str());
  curl.easy_setopt(easy, CURLOPT_PRIVATE, &attempt);
  curl.easy_setopt(easy, CURLOPT_ERRORBUFFER, attempt.error);
  curl.easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl.easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  // HTTP/1.1, for a connection of its own for each range: their rates add up.
  curl.easy_setopt(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl.easy_setopt(easy, CURLOPT_CONNECTTIMEOUT,
                   std::min(kConnectSeconds, exchange.request.patience));
  curl.easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(kSlow));
  curl.easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, exchange.request.patience);
  curl.easy_setopt(easy, CURLOPT_BUFFERSIZE, kReceiveBuffer);
  curl.easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
  curl.easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  curl.easy_setopt(easy, CURLOPT_USERAGENT, "ztstream");
  curl.easy_setopt(easy, CURLOPT_FRESH_CONNECT, exchange.again || exchange.request.fresh ? 1L : 0L);
  curl.easy_setopt(easy, CURLOPT_HEADERFUNCTION, OnHead);
  curl.easy_setopt(easy, CURLOPT_HEADERDATA, &exchange);
  curl.easy_setopt(easy, CURLOPT_WRITEFUNCTION, OnBody);
  curl.easy_setopt(easy, CURLOPT_WRITEDATA, &exchange);
  std::string authorities = exchange.request.ca_file;
  if (authorities.empty()) authorities = Environment("SSL_CERT_FILE");
  if (!authorities.empty()) curl.easy_setopt(easy, CURLOPT_CAINFO, authorities.c_str());
  SetProxy(curl, attempt);
  if (exchange.shuns_local() && !attempt.proxied) {
    curl.easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, OnSocket);
    curl.easy_setopt(easy, CURLOPT_OPENSOCKETDATA, &exchange);
  }
  SetMethod(curl, easy, exchange);
  return SetFields(curl, attempt);
}

// Blocks signals for threads that are started while it lives: signals belong to the program, and
// SIGPIPE of a connection must not end it.
struct NoSignals {
  sigset_t before;
  NoSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
  }
  ~NoSignals() { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;
};

// The most lanes. One receives about 1.3 GB/s, with TLS less.
std::size_t MostLanes() {
  constexpr unsigned kMost = 4;
  static const unsigned most = std::min(kMost, UsableThreads());
  return most;
}

}  // namespace

// A thread with connections of its own. Never deleted once its thread runs.
class Lane {
 public:
  explicit Lane(const Curl& library) : curl(library), multi(library.multi_init()) {}
  ~Lane() { curl.multi_cleanup(multi); }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  const Curl& curl;
  CURLM* multi;
  std::thread thread;
  std::atomic<std::size_t> load = 0;  // exchanges without a final answer

  Mutex mutex;
  std::vector<Running> fresh ZT_GUARDED_BY(mutex), resumed ZT_GUARDED_BY(mutex),
      given_up ZT_GUARDED_BY(mutex);
  bool stopping ZT_GUARDED_BY(mutex) = false;

  // Used only by the thread.
  std::map<Exchange*, std::unique_ptr<Try>> active;
  std::multimap<Clock::time_point, Running> waiting;

  void Start(const Running& exchange) {
    exchange->lane = this;
    ++load;
    Add(&Lane::fresh, exchange);
  }

  void Add(std::vector<Running> Lane::* list, const Running& exchange) {
    bool over = false;
    {
      const MutexLock lock(mutex);
      over = stopping;
      if (!over) (this->*list).push_back(exchange);
    }
    if (!over) {
      curl.multi_wakeup(multi);
    } else if (list == &Lane::fresh) {
      // The process is ending, and the thread has already cancelled all other exchanges.
      exchange->cancelled = true;
      Tell(*exchange);
    }
  }

  void Tell(Exchange& exchange) {
    if (exchange.told) return;
    --load;
    exchange.Tell();
  }

  void Stop() {
    {
      const MutexLock lock(mutex);
      stopping = true;
    }
    curl.multi_wakeup(multi);
    if (thread.joinable()) thread.join();
  }

  void Run() {
    while (TakeNew()) {
      BeginDue();
      int running = 0;
      curl.multi_perform(multi, &running);
      EndDone();
      curl.multi_poll(multi, nullptr, 0, Timeout(), nullptr);
    }
    while (!active.empty()) Drop(active.begin()->second->exchange);
    while (!waiting.empty()) Drop(waiting.begin()->second);
    std::vector<Running> never_begun;
    {
      const MutexLock lock(mutex);
      never_begun.swap(fresh);
    }
    for (const Running& exchange : never_begun) Drop(exchange);
  }

  bool TakeNew() {
    std::vector<Running> begun, again, dropped;
    {
      const MutexLock lock(mutex);
      if (stopping) return false;
      begun.swap(fresh);
      again.swap(resumed);
      dropped.swap(given_up);
    }
    for (Running& exchange : begun) waiting.emplace(exchange->next_try(), std::move(exchange));
    for (const Running& exchange : again) {
      const auto at = active.find(exchange.get());
      if (at != active.end()) curl.easy_pause(at->second->easy, CURLPAUSE_CONT);
    }
    for (const Running& exchange : dropped) Drop(exchange);
    return true;
  }

  // By value, because it erases the pointers to which a reference may refer.
  void Drop(Running exchange) {
    exchange->cancelled = true;
    if (const auto at = active.find(exchange.get()); at != active.end()) {
      curl.multi_remove_handle(multi, at->second->easy);
      active.erase(at);
    }
    std::erase_if(waiting, [&](const auto& each) { return each.second == exchange; });
    Tell(*exchange);
  }

  int Timeout() const {
    constexpr int kIdle = 60'000;
    if (waiting.empty()) return kIdle;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(waiting.begin()->first -
                                                                            Clock::now());
    return static_cast<int>(std::clamp<std::int64_t>(left.count() + 1, 0, kIdle));
  }

  void BeginDue() {
    while (!waiting.empty() && waiting.begin()->first <= Clock::now()) {
      const Running exchange = waiting.begin()->second;
      waiting.erase(waiting.begin());
      auto attempt = std::make_unique<Try>(curl, exchange);
      const Status ready = attempt->easy == nullptr ? OutOfMemory() : SetUp(curl, *attempt);
      if (!ready.ok()) {
        exchange->Fail(ready);
        Tell(*exchange);
        continue;
      }
      curl.multi_add_handle(multi, attempt->easy);
      active.emplace(exchange.get(), std::move(attempt));
    }
  }

  void EndDone() {
    int left = 0;
    while (const CURLMsg* const message = curl.multi_info_read(multi, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      Try* attempt = nullptr;
      curl.easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &attempt);
      if (attempt != nullptr) End(*attempt, message->data.result);
    }
  }

  void End(Try& attempt, CURLcode code) {
    const Running exchange = attempt.exchange;
    TryEnd end;
    end.answered = code == CURLE_OK;
    end.hopeless = IsHopeless(code);
    end.may_be_done = code != CURLE_OK && !IsBeforeSending(code);
    if (code != CURLE_OK)
      end.problem = attempt.error[0] != '\0' ? attempt.error : curl.easy_strerror(code);
    end.hopeless = end.hopeless || end.problem.starts_with("Unsupported proxy");
    char* redirect = nullptr;
    curl.easy_getinfo(attempt.easy, CURLINFO_REDIRECT_URL, &redirect);
    if (redirect != nullptr) end.redirect = redirect;
    char* address = nullptr;
    curl.easy_getinfo(attempt.easy, CURLINFO_PRIMARY_IP, &address);
    if (address != nullptr && !attempt.proxied) end.address = address;
    curl.multi_remove_handle(multi, attempt.easy);
    active.erase(exchange.get());
    if (exchange->EndTry(end)) {
      waiting.emplace(exchange->next_try(), exchange);
    } else {
      Tell(*exchange);
    }
  }
};

struct Transport::State {
  explicit State(const Curl& library) : curl(library) {}

  const Curl& curl;
  const ::pid_t process = ::getpid();
  Mutex mutex;
  std::vector<std::unique_ptr<Lane>> lanes ZT_GUARDED_BY(mutex);
  bool stopping ZT_GUARDED_BY(mutex) = false;

  Status AddLane() ZT_REQUIRES(mutex) try {
    auto lane = std::make_unique<Lane>(curl);
    lanes.reserve(lanes.size() + 1);
    const NoSignals none;
    lane->thread = std::thread([lane = lane.get()] { lane->Run(); });
    lanes.push_back(std::move(lane));
    return OkStatus();
  } catch (const std::system_error& error) {
    return IoError(error.code().value(), "cannot start a thread");
  }

  // The lane for the next request: the one with the fewest, or a new one when all have enough.
  Lane& Choose() {
    const MutexLock lock(mutex);
    Lane* least = nullptr;
    for (const auto& lane : lanes) {
      if (least == nullptr || lane->load < least->load) least = lane.get();
    }
    const bool another = least->load >= kEnough && lanes.size() < MostLanes() && !stopping;
    return another && AddLane().ok() ? *lanes.back() : *least;
  }
};

namespace {

Mutex g_mutex;
Transport* g_transport ZT_GUARDED_BY(g_mutex) = nullptr;
Transport::State* g_state ZT_GUARDED_BY(g_mutex) = nullptr;

// Called before the exit handlers of libcurl and libcrypto.
void Stop() {
  Transport::State* state = nullptr;
  {
    const MutexLock lock(g_mutex);
    state = g_state;
  }
  if (state == nullptr || state->process != ::getpid()) return;
  std::vector<Lane*> lanes;
  {
    const MutexLock lock(state->mutex);
    state->stopping = true;
    for (const auto& lane : state->lanes) lanes.push_back(lane.get());
  }
  for (Lane* const lane : lanes) lane->Stop();
}

}  // namespace

StatusOr<Transport*> Transport::Get() {
  const MutexLock lock(g_mutex);
  // A forked process has a copy of the memory, but not the thread.
  if (g_transport != nullptr && g_state->process == ::getpid()) return g_transport;
  const char* problem = nullptr;
  const Curl* const curl = LoadCurl(problem);
  if (curl == nullptr) return IoError(problem);
  auto* const state = new State(*curl);  // outlives every request
  Status status;
  {
    const MutexLock first(state->mutex);
    status = state->AddLane();
  }
  if (!status.ok()) {
    delete state;
    return status;
  }
  if (g_state == nullptr) std::atexit(Stop);
  g_state = state;
  g_transport = new Transport(state);
  return g_transport;
}

std::shared_ptr<Exchange> Transport::Start(HttpRequest request) {
  auto exchange = std::make_shared<Exchange>(std::move(request));
  state_->Choose().Start(exchange);
  return exchange;
}

void Transport::Cancel(const std::shared_ptr<Exchange>& exchange) {
  exchange->lane->Add(&Lane::given_up, exchange);
}

void Transport::Resume(const std::shared_ptr<Exchange>& exchange) {
  exchange->lane->Add(&Lane::resumed, exchange);
}

HttpAnswer Transport::Perform(HttpRequest request) {
  std::mutex mutex;
  zt::internal::CondVar told;
  std::optional<HttpAnswer> answer;
  request.done = [&](HttpAnswer given) {
    const std::lock_guard lock(mutex);
    answer = std::move(given);
    told.NotifyOne();
  };
  (void)Start(std::move(request));
  std::unique_lock lock(mutex);
  while (!answer) told.Wait(lock);
  return *std::move(answer);
}

}  // namespace zt::remote::internal
