// zt.remote:files — https:// and http://.
module;

#include "core/status_macros.h"

module zt.remote;

import zt.std;
import :files;
import :http;
import :options;
import :url;
import zt.core;
import zt.sink;
import zt.source;

namespace zt::remote::internal {
namespace {

Status ExplainWeb(const HttpAnswer& answer) {
  const int status = answer.head.status;
  const std::string said = Said(answer, answer.head.Find("x-error-message"));
  if (status == 404 || status == 410) return IoError("there is no such file (" + said + ")");
  if (status == 401 || status == 403)
    return IoError("it may not be read: " + said + "; a signed URL may have expired");
  if (status >= 300 && status < 400) return IoError(said + ", without saying where it is");
  return IoError(said);
}

class WebFiles final : public Scheme {
 public:
  explicit WebFiles(SharedSettings settings) : settings_(std::move(settings)) {}
  StatusOr<std::shared_ptr<ByteSource>> Open(const std::string& url, Pins& pins) override {
    ZT_ASSIGN_OR_RETURN(Url parsed, ParseUrl(url));
    if (parsed.path.empty() || parsed.path.ends_with('/'))
      return InvalidArgument("a web server's folders are not listed; name a file, or an index");
    const auto hidden = settings_->queries.find(parsed.shown());
    if (parsed.query.empty() && hidden != settings_->queries.end()) parsed.query = hidden->second;
    if (parsed.scheme == "http" && !IsLoopback(parsed)) {
      settings_->Warn(parsed.shown() + ": it is read over http, where others can change it");
    }
    const auto get = [settings = settings_, text = parsed.text()]() -> StatusOr<HttpRequest> {
      return HttpRequest{
          .settings = settings, .url = text, .fields = {"Accept-Encoding: identity"}};
    };
    return OpenObject(
        {.settings = settings_, .name = parsed.shown(), .get = get, .explain = ExplainWeb}, pins);
  }
  // A web server does not list the files beside an index; the index names all shards.
  StatusOr<std::unique_ptr<Sink>> Create(const std::string&, const FileSinkOptions&,
                                         std::function<void()>) override {
    return Unsupported("nothing is written over http; write to a file, to - or to s3://");
  }

 private:
  const SharedSettings settings_;
};

}  // namespace

std::unique_ptr<Scheme> MakeWeb(SharedSettings settings) {
  return std::make_unique<WebFiles>(std::move(settings));
}

}  // namespace zt::remote::internal
