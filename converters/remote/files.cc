// zt.remote — selects the scheme of a URL, and keeps files open.
module;

#include "core/status_macros.h"
#include "core/thread_annotations.h"

module zt.remote;

import zt.std;
import :files;
import :http;
import :object;
import :url;
import zt.core;
import zt.sink;
import zt.source;

namespace zt {

using internal::Mutex;
using internal::MutexLock;
using namespace remote::internal;

namespace {

// A program opens a file several times: to detect its format, for its tensors, for its shards. This
// many files stay open.
constexpr std::size_t kMostOpen = 64;

StatusOr<Scheme*> SchemeOf(const std::string& url) {
  const std::string scheme = Lower(url.substr(0, url.find("://")));
  if (scheme == "https" || scheme == "http") return &Web();
  if (scheme == "s3") return &S3();
  if (scheme == "hf") return &Hub();
  if (scheme == "gs") {
    return Unsupported(
        "gs:// is not read; name it s3:// with AWS_ENDPOINT_URL=https://storage.googleapis.com and "
        "an HMAC key");
  }
  if (scheme == "file") return Unsupported("file:// is not read; name the path");
  return Unsupported("URLs of " + Quote(scheme) + " are not read; https, http, s3 and hf are");
}

class Files final : public UrlFiles {
 public:
  StatusOr<std::shared_ptr<ByteSource>> Open(const std::string& url) override {
    {
      const MutexLock lock(mutex_);
      for (const auto& [name, bytes] : open_) {
        if (name == url) return bytes;
      }
    }
    ZT_ASSIGN_OR_RETURN(Scheme* const scheme, SchemeOf(url));
    ZT_ASSIGN_OR_RETURN(auto bytes, scheme->Open(url));
    if (bytes->sequential()) return bytes;
    const MutexLock lock(mutex_);
    open_.emplace_back(url, bytes);
    if (open_.size() > kMostOpen) open_.pop_front();
    return bytes;
  }
  StatusOr<bool> IsFolder(const std::string& url) override {
    {
      const MutexLock lock(mutex_);
      for (const auto& [name, bytes] : open_) {
        if (name == url) return false;
      }
    }
    ZT_ASSIGN_OR_RETURN(Scheme* const scheme, SchemeOf(url));
    return scheme->IsFolder(url);
  }
  StatusOr<std::vector<std::string>> List(const std::string& url) override {
    ZT_ASSIGN_OR_RETURN(Scheme* const scheme, SchemeOf(url));
    return scheme->List(url);
  }
  StatusOr<std::vector<ListedFile>> ListBelow(const std::string& url) override {
    ZT_ASSIGN_OR_RETURN(Scheme* const scheme, SchemeOf(url));
    return scheme->ListBelow(url);
  }
  StatusOr<bool> Exists(const std::string& url) override {
    ZT_ASSIGN_OR_RETURN(Scheme* const scheme, SchemeOf(url));
    return scheme->Exists(url);
  }
  void Close() {
    const MutexLock lock(mutex_);
    open_.clear();
  }
  void Forget(const std::string& url) {
    const MutexLock lock(mutex_);
    std::erase_if(open_, [&](const auto& each) { return each.first == url; });
  }

 private:
  Mutex mutex_;
  std::deque<std::pair<std::string, std::shared_ptr<ByteSource>>> open_ ZT_GUARDED_BY(mutex_);
};

Files& TheFiles() {
  static Files* const files = new Files;
  return *files;
}

StatusOr<std::unique_ptr<Sink>> CreateUrlSink(const std::string& url,
                                              const FileSinkOptions& options) {
  ZT_ASSIGN_OR_RETURN(Scheme* const scheme, SchemeOf(url));
  return scheme->Create(url, options);
}

constexpr std::size_t kMostListed = 500'000, kMostEmpty = 300;

Settings g_settings;

struct Queries {
  Mutex mutex;
  std::map<std::string, std::string> of ZT_GUARDED_BY(mutex);
};
Queries& TheQueries() {
  static Queries* const queries = new Queries;
  return *queries;
}

}  // namespace

const Settings& remote::internal::TheSettings() { return g_settings; }

std::string remote::internal::HiddenQuery(const std::string& url) {
  Queries& queries = TheQueries();
  const MutexLock lock(queries.mutex);
  const auto found = queries.of.find(url);
  return found == queries.of.end() ? "" : found->second;
}

Status Pages::Add(const std::string& name) {
  if (!names_.insert(name).second)
    return InvalidData("the server's listing names " + Quote(name) + " twice");
  if (names_.size() <= kMostListed) return OkStatus();
  return InvalidArgument("the folder has more than " + std::to_string(kMostListed) +
                         " files; name the files, or leave them out (--files none)");
}

Status Pages::GoOn(std::string next) {
  empty_ = names_.size() > std::exchange(counted_, names_.size()) ? 0 : empty_ + 1;
  if (!next.empty() && (!seen_.insert(next).second || empty_ > kMostEmpty))
    return InvalidData("the server's listing does not end");
  next_ = std::move(next);
  return OkStatus();
}

void remote::internal::ForgetOpen(const std::string& url) { TheFiles().Forget(url); }

std::string_view remote::internal::LastName(std::string_view url) {
  return url.substr(url.rfind('/') + 1);
}

void UseRemoteFiles(const RemoteOptions& options) {
  g_settings = {.no_sign_request = options.no_sign_request, .part_bytes = options.part_bytes};
  SetReadAhead(options.read_ahead);
  SetWarnings(options.warn);
  TheFiles().Close();
  SetUrlFiles(&TheFiles());
  SetUrlSinks(CreateUrlSink);
}

void ForgetRemoteFiles() { TheFiles().Close(); }

StatusOr<std::string> HideQuery(const std::string& path, bool renew) {
  const std::string scheme = Lower(path.substr(0, path.find(':')));
  if (!IsUrl(path) || (scheme != "https" && scheme != "http")) return path;
  ZT_ASSIGN_OR_RETURN(const Url url, ParseUrl(path));
  if (url.query.empty()) return path;
  Queries& queries = TheQueries();
  const MutexLock lock(queries.mutex);
  const auto [held, fresh] = queries.of.emplace(url.shown(), url.query);
  if (renew) held->second = url.query;
  if (!fresh && held->second != url.query) {
    return Annotate(InvalidArgument("it is named twice with different queries; name each once"),
                    url.shown());
  }
  return url.shown();
}

}  // namespace zt
