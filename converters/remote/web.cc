// zt.remote:files — https:// and http://.
module;

#include "core/status_macros.h"

module zt.remote;

import zt.std;
import :files;
import :http;
import :object;
import :options;
import :url;
import zt.core;
import zt.sink;
import zt.source;

namespace zt::remote::internal {
namespace {

class WebObject final : public RemoteObject {
 public:
  WebObject(SharedSettings settings, const Url& url)
      : RemoteObject(std::move(settings)), name_(url.shown()), url_(url.text()) {}

  const std::string& name() const override { return name_; }
  StatusOr<HttpRequest> Get() override {
    HttpRequest request{.settings = settings_};
    request.url = url_;
    request.fields = {"Accept-Encoding: identity"};
    return request;
  }
  Status Explain(const HttpAnswer& answer) override {
    const int status = answer.head.status;
    const std::string said = Said(answer, answer.head.Find("x-error-message"));
    if (status == 404 || status == 410) return IoError("there is no such file (" + said + ")");
    if (status == 401 || status == 403)
      return IoError("it may not be read: " + said + "; a signed URL may have expired");
    if (status >= 300 && status < 400) return IoError(said + ", without saying where it is");
    return IoError(said);
  }

 private:
  const std::string name_, url_;
};

class WebFiles final : public Scheme {
 public:
  WebFiles(SharedSettings settings, Store& store) : settings_(std::move(settings)), store_(store) {}
  StatusOr<std::shared_ptr<ByteSource>> Open(const std::string& url, Pins& pins) override {
    ZT_ASSIGN_OR_RETURN(Url parsed, ParseUrl(url));
    if (parsed.path.empty() || parsed.path.ends_with('/'))
      return InvalidArgument("a web server's folders are not listed; name a file, or an index");
    const auto hidden = settings_->queries.find(parsed.shown());
    if (parsed.query.empty() && hidden != settings_->queries.end()) parsed.query = hidden->second;
    if (parsed.scheme == "http" && !IsLoopback(parsed)) {
      settings_->Warn(parsed.shown() + ": it is read over http, where others can change it");
    }
    return OpenObject(std::make_shared<WebObject>(settings_, parsed), pins);
  }
  StatusOr<bool> IsFolder(const std::string&) override { return false; }
  // A web server does not list the files beside an index; the index names all shards.
  StatusOr<Listing> List(const std::string&, bool) override {
    return Unsupported("a web server's folders are not listed");
  }
  StatusOr<bool> Exists(const std::string& url) override { return store_.Open(url).ok(); }
  StatusOr<std::unique_ptr<Sink>> Create(const std::string&, const FileSinkOptions&,
                                         std::function<void()>) override {
    return Unsupported("nothing is written over http; write to a file, to - or to s3://");
  }

 private:
  const SharedSettings settings_;
  Store& store_;
};

}  // namespace

std::unique_ptr<Scheme> MakeWeb(SharedSettings settings, Store& store) {
  return std::make_unique<WebFiles>(std::move(settings), store);
}

}  // namespace zt::remote::internal
