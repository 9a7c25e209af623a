// zt.remote:http — the threads that run libcurl's multi interface.
module;

#include <arpa/inet.h>
#include <curl/curl.h>
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/status_macros.h"
#include "core/thread_annotations.h"

module zt.remote;

import zt.std;
import :http;
import zt.core;
import zt.pipeline;

namespace zt::remote::internal {

namespace {

// The oldest version with CURLOPT_PROTOCOLS_STR.
constexpr unsigned kOldest = 0x075500;

// The functions of libcurl in use, from the loaded library.
// clang-format off
#define ZT_CURL_FUNCTIONS(X) \
  X(version_info) X(global_init) X(easy_init) X(easy_setopt) X(easy_getinfo) X(easy_cleanup) \
  X(easy_pause) X(easy_strerror) X(slist_append) X(slist_free_all) X(multi_init) \
  X(multi_add_handle) X(multi_remove_handle) X(multi_perform) X(multi_poll) X(multi_wakeup) \
  X(multi_info_read) X(multi_cleanup)
// clang-format on

struct Curl {
  void* library;
#define ZT_CURL_FUNCTION(name)    \
  decltype(&::curl_##name) name = \
      reinterpret_cast<decltype(&::curl_##name)>(::dlsym(library, "curl_" #name));
  ZT_CURL_FUNCTIONS(ZT_CURL_FUNCTION)
#undef ZT_CURL_FUNCTION
};

StatusOr<Curl> LoadCurl() {
  void* library = ::dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) library = ::dlopen("libcurl-gnutls.so.4", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return IoError("URLs need libcurl, which is not installed (Debian: apt install libcurl4)");
  const Curl curl{library};
  // It has all of them then.
  if (curl.version_info == nullptr || curl.version_info(CURLVERSION_NOW)->version_num < kOldest)
    return IoError("URLs need libcurl 7.85 or newer; the one that is installed is older");
  if (curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) return IoError("libcurl cannot be set up");
  return curl;
}

using Clock = Exchange::Clock;
using Running = std::shared_ptr<Exchange>;

constexpr long kConnectSeconds = 10, kReceiveBuffer = 128 << 10, kSendBuffer = 512 << 10;
constexpr curl_off_t kSlow = 4000;
// A lane with so many requests gets another one beside it.
constexpr std::size_t kEnough = 4;
// One receives about 1.3 GB/s, with TLS less.
constexpr unsigned kMostLanes = 4;

Status GivenUp() { return Cancelled("the request was given up"); }

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
  template <class Value>
  void Set(CURLoption option, Value value) const {
    curl.easy_setopt(easy, option, value);
  }

  const Curl& curl;
  const Running exchange;
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
  const Exchange::Taken taken = exchange->TakeBody(std::as_bytes(std::span(data, bytes)));
  return taken == Exchange::Taken::kAll     ? bytes
         : taken == Exchange::Taken::kPause ? CURL_WRITEFUNC_PAUSE
                                            : bytes + 1;  // ends the try
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

// What libcurl says where memory runs out, and of a head that is too large: from 8.6 on that is 100.
bool IsTooMuch(CURLcode code) {
  return code == CURLE_OUT_OF_MEMORY || static_cast<int>(code) == 100;
}

// Errors that another try cannot change.
bool IsHopeless(CURLcode code) {
  return code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT ||
         code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE ||
         code == CURLE_SSL_CERTPROBLEM || code == CURLE_NOT_BUILT_IN || IsTooMuch(code);
}

// Errors before the request can have reached a server.
bool IsBeforeSending(CURLcode code) {
  return code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY ||
         code == CURLE_COULDNT_CONNECT || code == CURLE_SSL_CONNECT_ERROR ||
         (IsHopeless(code) && !IsTooMuch(code));
}

void SetMethod(const Try& attempt) {
  const HttpRequest& request = attempt.exchange->request;
  if (request.method == "HEAD") {
    attempt.Set(CURLOPT_NOBODY, 1L);
  } else if (request.method != "GET") {
    attempt.Set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
  }
  if (request.method != "PUT" && request.method != "POST") return;
  attempt.Set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  attempt.Set(CURLOPT_POSTFIELDS,
              request.body.empty() ? "" : reinterpret_cast<const char*>(request.body.data()));
  attempt.Set(CURLOPT_UPLOAD_BUFFERSIZE, kSendBuffer);
}

Status SetFields(Try& attempt) {
  std::vector<std::string> fields = attempt.exchange->HeaderFields();
  fields.emplace_back("Expect:");        // does not wait for "100 Continue"
  fields.emplace_back("Content-Type:");  // none but those among the others
  for (const std::string& field : fields) {
    if (std::ranges::any_of(field,
                            [](char c) { return (c >= 0 && c < 32 && c != '\t') || c == 127; }))
      return InvalidArgument("the value for the header " + field.substr(0, field.find(':')) +
                             " has a line break or another control character; look at the "
                             "variable or the file that it comes from");
    if (curl_slist* const longer = attempt.curl.slist_append(attempt.fields, field.c_str()))
      attempt.fields = longer;
  }
  attempt.Set(CURLOPT_HTTPHEADER, attempt.fields);
  return OkStatus();
}

// True if libcurl asks the host without a proxy, as no_proxy names it or a domain of it.
bool IsExcepted(const Url& url) {
  const std::string list = Lower(FirstSet({"no_proxy", "NO_PROXY"}));
  const std::string host = "." + std::string(HostName(url));
  for (std::string_view rest = list; !rest.empty();) {
    std::string_view name = rest.substr(0, rest.find_first_of(", \t"));
    rest.remove_prefix(std::min(name.size() + 1, rest.size()));
    while (name.starts_with('.')) name.remove_prefix(1);
    while (name.ends_with('.')) name.remove_suffix(1);
    if (name == "*" || (!name.empty() && host.ends_with("." + std::string(name)))) return true;
  }
  return false;
}

// Sets the proxy that libcurl would find in the environment, with its name and password apart:
// messages of libcurl show the rest. This machine is asked without one.
void SetProxy(Try& attempt) {
  const auto url = ParseUrl(attempt.exchange->url());
  if (attempt.exchange->request.direct || !url.ok() || IsLoopback(*url)) {
    attempt.Set(CURLOPT_NOPROXY, "*");
    return;
  }
  std::string proxy = url->scheme == "https"
                          ? FirstSet({"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"})
                          : FirstSet({"http_proxy", "all_proxy", "ALL_PROXY"});
  attempt.proxied = !proxy.empty() && !IsExcepted(*url);
  if (const std::size_t at = proxy.rfind('@'); at != proxy.npos) {
    const std::size_t scheme = proxy.find("://"), begin = scheme < at ? scheme + 3 : 0;
    const std::string who = proxy.substr(begin, at - begin);
    attempt.Set(CURLOPT_PROXYUSERPWD, who.c_str());
    proxy.erase(begin, at + 1 - begin);
    attempt.Set(CURLOPT_PROXY, proxy.c_str());
  }
}

Status SetUp(Try& attempt) {
  Exchange& exchange = *attempt.exchange;
  const auto set = [&](CURLoption option, auto value) { attempt.Set(option, value); };
  exchange.BeginTry();
  set(CURLOPT_URL, exchange.url().c_str());
  set(CURLOPT_PRIVATE, &attempt);
  set(CURLOPT_ERRORBUFFER, attempt.error);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  // HTTP/1.1, for a connection of its own for each range: their rates add up.
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_CONNECTTIMEOUT, std::min(kConnectSeconds, exchange.request.patience));
  set(CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(kSlow));
  set(CURLOPT_LOW_SPEED_TIME, exchange.request.patience);
  set(CURLOPT_BUFFERSIZE, kReceiveBuffer);
  set(CURLOPT_PATH_AS_IS, 1L);
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  set(CURLOPT_USERAGENT, "ztstream");
  set(CURLOPT_FRESH_CONNECT, exchange.fresh() ? 1L : 0L);
  set(CURLOPT_HEADERFUNCTION, OnHead);
  set(CURLOPT_HEADERDATA, &exchange);
  set(CURLOPT_WRITEFUNCTION, OnBody);
  set(CURLOPT_WRITEDATA, &exchange);
  const std::string authorities = FirstOf({exchange.request.ca_file, Environment("SSL_CERT_FILE")});
  if (!authorities.empty()) set(CURLOPT_CAINFO, authorities.c_str());
  SetProxy(attempt);
  if (exchange.shuns_local() && !attempt.proxied) {
    set(CURLOPT_OPENSOCKETFUNCTION, OnSocket);
    set(CURLOPT_OPENSOCKETDATA, &exchange);
  }
  SetMethod(attempt);
  return SetFields(attempt);
}

}  // namespace

// A thread with connections of its own. Never deleted once its thread runs.
class Lane {
 public:
  explicit Lane(const Curl& library) : curl(library), multi(library.multi_init()) {}
  ~Lane() { curl.multi_cleanup(multi); }

  const Curl& curl;
  CURLM* multi;
  std::thread thread;
  std::atomic<std::size_t> load = 0;  // exchanges without a final answer

  Mutex mutex;
  std::vector<std::function<void()>> tasks ZT_GUARDED_BY(mutex);
  bool stopping ZT_GUARDED_BY(mutex) = false;

  // Used only by the thread.
  std::map<Exchange*, std::unique_ptr<Try>> active;
  std::multimap<Clock::time_point, Running> waiting;

  void Start(const Running& exchange) {
    exchange->lane = this;
    ++load;
    if (Post([this, exchange] { waiting.emplace(exchange->next_try(), exchange); })) return;
    // The process is ending, and the thread has already cancelled all other exchanges.
    exchange->Give(GivenUp());
    exchange->Tell();
  }

  // Runs a task in the thread. Returns false if that has ended.
  bool Post(std::function<void()> task) {
    {
      const MutexLock lock(mutex);
      if (stopping) return false;
      tasks.push_back(std::move(task));
    }
    curl.multi_wakeup(multi);
    return true;
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
    // Signals belong to the program, and SIGPIPE of a connection must not end it.
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
    while (RunTasks()) {
      BeginDue();
      int running = 0;
      curl.multi_perform(multi, &running);
      EndDone();
      curl.multi_poll(multi, nullptr, 0, Timeout(), nullptr);
    }
    while (!active.empty()) Drop(active.begin()->second->exchange);
    while (!waiting.empty()) Drop(waiting.begin()->second);
  }

  // Returns false if no more are to come.
  bool RunTasks() {
    std::vector<std::function<void()>> now;
    bool more = false;
    {
      const MutexLock lock(mutex);
      now.swap(tasks);
      more = !stopping;
    }
    for (const auto& task : now) task();
    return more;
  }

  // By value, because it erases the pointers to which a reference may refer.
  void Drop(Running exchange) {
    if (const auto at = active.find(exchange.get()); at != active.end()) {
      curl.multi_remove_handle(multi, at->second->easy);
      active.erase(at);
    }
    std::erase_if(waiting, [&](const auto& each) { return each.second == exchange; });
    exchange->Give(GivenUp());
    exchange->Tell();
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
      const Status ready = attempt->easy == nullptr ? OutOfMemory() : SetUp(*attempt);
      if (!ready.ok()) {
        exchange->Give(ready);
        exchange->Tell();
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
      End(*attempt, message->data.result);
    }
  }

  void End(Try& attempt, CURLcode code) {
    const Running exchange = attempt.exchange;
    TryEnd end{.answered = code == CURLE_OK,
               .hopeless = IsHopeless(code),
               .may_be_done = code != CURLE_OK && !IsBeforeSending(code)};
    if (code != CURLE_OK)
      end.problem = attempt.error[0] != '\0' ? attempt.error : curl.easy_strerror(code);
    end.hopeless = end.hopeless || end.problem.starts_with("Unsupported proxy");
    if (IsTooMuch(code))
      end.problem = "the head of the server's answer is too large, or memory has run out";
    char *redirect = nullptr, *address = nullptr;
    curl_off_t sent = 0;
    curl.easy_getinfo(attempt.easy, CURLINFO_REDIRECT_URL, &redirect);
    curl.easy_getinfo(attempt.easy, CURLINFO_PRIMARY_IP, &address);
    curl.easy_getinfo(attempt.easy, CURLINFO_SIZE_UPLOAD_T, &sent);
    if (redirect != nullptr) end.redirect = redirect;
    if (address != nullptr && !attempt.proxied) end.address = address;
    end.sent = static_cast<std::uint64_t>(sent);
    curl.multi_remove_handle(multi, attempt.easy);
    active.erase(exchange.get());
    if (exchange->EndTry(end)) {
      waiting.emplace(exchange->next_try(), exchange);
    } else {
      exchange->Tell();
    }
  }
};

namespace {

// The lanes of a process. Never deleted.
struct Lanes {
  Mutex mutex;
  ::pid_t process ZT_GUARDED_BY(mutex) = 0;
  std::vector<Lane*> all ZT_GUARDED_BY(mutex);
  bool stopping ZT_GUARDED_BY(mutex) = false;

  Status AddLane(const Curl& curl) ZT_REQUIRES(mutex) try {
    all.reserve(all.size() + 1);
    auto lane = std::make_unique<Lane>(curl);
    lane->thread = std::thread([lane = lane.get()] { lane->Run(); });
    all.push_back(lane.release());
    return OkStatus();
  } catch (const std::system_error& error) {
    return IoError(error.code().value(), "cannot start a thread");
  }
};
Lanes& TheLanes() {
  static Lanes* const lanes = new Lanes;
  return *lanes;
}

// Called before the exit handlers of libcurl and libcrypto.
void Stop() {
  std::vector<Lane*> lanes;
  {
    const MutexLock lock(TheLanes().mutex);
    TheLanes().stopping = true;
    if (TheLanes().process == ::getpid()) lanes = TheLanes().all;
  }
  for (Lane* const lane : lanes) lane->Stop();
}

// The lane for the next request: the one with the fewest, or a new one when all have enough.
StatusOr<Lane*> ChooseLane() {
  Lanes& lanes = TheLanes();
  const MutexLock lock(lanes.mutex);
  // By the first call, so that other runs start without it.
  static const auto* const curl = new StatusOr<Curl>(LoadCurl());
  ZT_RETURN_IF_ERROR(curl->status());
  // A forked process has a copy of the memory, but not the threads.
  if (lanes.process != ::getpid()) {
    lanes.all.clear();
    ZT_RETURN_IF_ERROR(lanes.AddLane(**curl));
    if (std::exchange(lanes.process, ::getpid()) == 0) std::atexit(Stop);
  }
  Lane* const least =
      *std::ranges::min_element(lanes.all, {}, [](Lane* each) { return each->load.load(); });
  static const unsigned most = std::min(kMostLanes, UsableThreads());
  const bool another = least->load >= kEnough && lanes.all.size() < most && !lanes.stopping;
  return another && lanes.AddLane(**curl).ok() ? lanes.all.back() : least;
}

}  // namespace

std::shared_ptr<Exchange> Start(HttpRequest request) {
  auto exchange = std::make_shared<Exchange>(std::move(request));
  if (const auto lane = ChooseLane(); lane.ok()) {
    (*lane)->Start(exchange);
  } else {
    exchange->Give(lane.status());
    exchange->Tell();
  }
  if (exchange->request.begun) exchange->request.begun(exchange);
  return exchange;
}

void Exchange::Tell() {
  if (std::exchange(told, true)) return;
  if (lane != nullptr) --lane->load;
  if (request.done) request.done(std::move(answer_));
}

void Exchange::Cancel() {
  if (lane != nullptr) lane->Post([self = shared_from_this()] { self->lane->Drop(self); });
}

void Exchange::Resume() {
  lane->Post([self = shared_from_this()] {
    const auto at = self->lane->active.find(self.get());
    if (at != self->lane->active.end())
      self->lane->curl.easy_pause(at->second->easy, CURLPAUSE_CONT);
  });
}

HttpAnswer Perform(HttpRequest request) {
  std::mutex mutex;
  CondVar told;
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
