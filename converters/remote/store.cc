// zt.remote — the store: selects the scheme of a URL, and keeps files open.
module;

#include "core/status_macros.h"
#include "core/thread_annotations.h"

module zt.remote;

import zt.std;
import :files;
import zt.core;
import zt.sink;
import zt.source;

namespace zt {

using namespace remote::internal;

namespace {

// ---- https:// and http:// ----------------------------------------------------------------------

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

 private:
  const SharedSettings settings_;
};

// ---- all schemes -------------------------------------------------------------------------------

// Files in use are found again, and this many others stay open.
constexpr std::size_t kMostOpen = 64;

class RemoteStore final : public Store, public std::enable_shared_from_this<RemoteStore> {
 public:
  explicit RemoteStore(RemoteOptions options)
      : settings_(std::make_shared<const Settings>(std::move(options))),
        web_(std::make_unique<WebFiles>(settings_)),
        s3_(MakeS3(settings_)),
        hub_(MakeHub(settings_)) {}

  StatusOr<std::shared_ptr<ByteSource>> Open(const std::string& url) override {
    if (!IsUrl(url)) return Store::Open(url);
    auto bytes = OpenUrl(url);
    if (!bytes.ok()) return Unanswered(bytes.status());
    return bytes;
  }
  // What may not be listed is opened as a file, which tells.
  StatusOr<bool> IsFolder(const std::string& url) override {
    if (!IsUrl(url)) return Store::IsFolder(url);
    if (FindOpen(url) != nullptr) return false;
    if (const auto listed = FindListing(url, false)) return !listed->files.empty();
    ZT_ASSIGN_OR_RETURN(Scheme* const scheme, SchemeOf(url));
    const auto folder = scheme->IsFolder(url);
    if (IsAnswer(folder.status())) return false;
    ZT_RETURN_IF_ERROR(folder.status());
    const MutexLock lock(mutex_);
    if (*folder) folders_.insert(WithoutSlashes(url));
    return *folder;
  }
  StatusOr<std::filesystem::file_type> TypeOf(const std::string& url) override {
    using std::filesystem::file_type;
    if (!IsUrl(url)) return Store::TypeOf(url);
    const Status found = Find(url);
    if (found.ok()) return file_type::regular;
    if (!IsAnswer(found)) return found;
    return found.code() == StatusCode::kNotFound ? file_type::not_found : file_type::unknown;
  }
  StatusOr<bool> Exists(const std::string& url) override {
    if (!IsUrl(url)) return Store::Exists(url);
    const Status found = Find(url);
    if (!found.ok() && !IsAnswer(found)) return found;
    if (found.code() == StatusCode::kPermissionDenied)
      settings_->Warn(url + ": it is taken as not there: " + Message(found),
                      url.substr(0, url.rfind('/')));
    return found.ok();
  }
  StatusOr<std::vector<std::string>> List(const std::string& url) override {
    if (!IsUrl(url)) return Store::List(url);
    ZT_ASSIGN_OR_RETURN(const auto listing, Ask(url, false));
    std::vector<std::string> names;
    for (const ListPage::Key& file : listing->files) {
      if (file.key.find('/') == file.key.npos) names.push_back(file.key);
    }
    return names;
  }
  StatusOr<std::vector<ListedFile>> ListBelow(const std::string& url) override {
    if (!IsUrl(url)) return Store::ListBelow(url);
    ZT_ASSIGN_OR_RETURN(const auto listing, Ask(url, true));
    std::vector<ListedFile> files;
    for (const ListPage::Key& file : listing->files) {
      if (!file.bytes)
        return InvalidData("the server's listing gives no size of " + Quote(file.key));
      files.push_back({file.key, *file.bytes});
    }
    return files;
  }
  std::string VersionOf(const std::string& url) override {
    const auto open = IsUrl(url) ? FindOpen(url) : nullptr;
    if (open == nullptr || Lower(url.substr(0, 5)) == "hf://") return "";
    const Pin::Known known = pins_.Of(open->name())->known();
    return known.etag.empty() ? known.modified : known.etag;
  }
  StatusOr<std::unique_ptr<Sink>> Create(const std::string& url,
                                         const FileSinkOptions& options) override {
    if (!IsUrl(url)) return Store::Create(url, options);
    const auto scheme = SchemeOf(url);
    if (!scheme.ok()) return WithFile(scheme.status(), url);
    const auto forget = [store = weak_from_this(), url] {
      if (const auto self = store.lock()) self->Forget(url);
    };
    return WithFile((*scheme)->Create(url, options, forget), url);
  }

 private:
  using SharedListing = std::shared_ptr<const Listing>;

  StatusOr<Scheme*> SchemeOf(const std::string& url) {
    const std::string scheme = Lower(url.substr(0, url.find("://")));
    if (scheme == "https" || scheme == "http") return web_.get();
    if (scheme == "s3") return s3_.get();
    if (scheme == "hf") return hub_.get();
    struct Other {
      std::string_view scheme, use;
    };
    constexpr std::string_view kAzure = "its https:// URL with a SAS reads it, azcopy writes it";
    constexpr Other kOthers[] = {
        {"gs", "name it s3:// at the endpoint https://storage.googleapis.com, with an HMAC key"},
        {"r2", "name it s3:// at the endpoint https://ACCOUNT.r2.cloudflarestorage.com"},
        {"az", kAzure},
        {"abfs", kAzure},
        {"abfss", kAzure},
        {"wasbs", kAzure},
        {"file", "name the path"}};
    const auto* const other = std::ranges::find(kOthers, scheme, &Other::scheme);
    return Unsupported(
        scheme + ":// is not known; " +
        std::string(other == std::end(kOthers) ? "https, http, s3 and hf are" : other->use));
  }

  static bool IsAnswer(const Status& status) {
    return status.code() == StatusCode::kNotFound || status.code() == StatusCode::kPermissionDenied;
  }
  // An error of a Scheme as that of a Store.
  static Status Unanswered(const Status& status) {
    return IsAnswer(status) ? WithCode(status, StatusCode::kUnavailable) : status;
  }

  StatusOr<std::shared_ptr<ByteSource>> OpenUrl(const std::string& url) {
    if (auto open = FindOpen(url)) return open;
    ZT_ASSIGN_OR_RETURN(Scheme* const scheme, SchemeOf(url));
    ZT_ASSIGN_OR_RETURN(auto bytes, scheme->Open(url, pins_));
    if (bytes->sequential()) return bytes;
    const MutexLock lock(mutex_);
    open_.emplace_back(url, bytes);
    const auto is_idle = [](const auto& each) { return each.second.use_count() == 1; };
    auto idle = static_cast<std::size_t>(std::ranges::count_if(open_, is_idle));
    std::erase_if(
        open_, [&](const auto& each) { return idle > kMostOpen && is_idle(each) && idle-- > 0; });
    return bytes;
  }

  // As Scheme::Find. A listing answers for the files of its folder. Whether a file is there decides
  // what is read of a folder, so one that is known is listed.
  Status Find(const std::string& url) {
    for (std::size_t at = url.rfind('/'); at > url.find("://") + 2; at = url.rfind('/', at - 1)) {
      const std::string path = url.substr(at + 1);
      const auto listing = FindListing(url.substr(0, at), path.find('/') != path.npos);
      if (listing == nullptr) continue;
      return std::ranges::binary_search(listing->files, path, {}, &ListPage::Key::key)
                 ? OkStatus()
                 : MakeStatus(StatusCode::kNotFound, "it is not listed");
    }
    const std::string folder = url.substr(0, url.rfind('/'));
    if (IsKnownFolder(folder)) {
      ZT_RETURN_IF_ERROR(Ask(folder, false).status());
      return Find(url);
    }
    ZT_ASSIGN_OR_RETURN(Scheme* const scheme, SchemeOf(url));
    const std::optional<Status> found = scheme->Find(url);
    return found ? *found : OpenUrl(url).status();
  }

  // Forgets the open file of this URL, because a new one was written.
  void Forget(const std::string& url) {
    pins_.Forget(url);
    const MutexLock lock(mutex_);
    std::erase_if(open_, [&](const auto& each) { return each.first == url; });
    listings_.clear();
  }

  std::shared_ptr<ByteSource> FindOpen(const std::string& url) {
    const MutexLock lock(mutex_);
    const auto found = std::ranges::find_if(open_, [&](auto& each) { return each.first == url; });
    return found == open_.end() ? nullptr : found->second;
  }

  // The listing of a folder that a server was asked for, if it has the folders below as well where
  // those are wanted.
  SharedListing FindListing(const std::string& url, bool below) {
    const MutexLock lock(mutex_);
    const auto found = listings_.find(WithoutSlashes(url));
    return found != listings_.end() && (found->second->below || !below) ? found->second : nullptr;
  }

  bool IsKnownFolder(const std::string& url) {
    const MutexLock lock(mutex_);
    return folders_.contains(url);
  }

  StatusOr<SharedListing> Ask(const std::string& url, bool below) {
    if (SharedListing listing = FindListing(url, below)) return listing;
    const std::string folder = WithoutSlashes(url);
    ZT_ASSIGN_OR_RETURN(Scheme* const scheme, SchemeOf(url));
    auto asked = scheme->List(url, below);
    if (!asked.ok()) return Unanswered(asked.status());
    asked->below = asked->below || below;
    std::ranges::sort(asked->files, {}, &ListPage::Key::key);
    for (const ListPage::Key& file : asked->files)
      pins_.Of(folder + "/" + file.key, file.bytes, file.etag);
    auto listing = std::make_shared<const Listing>(*std::move(asked));
    const MutexLock lock(mutex_);
    listings_[folder] = listing;
    return listing;
  }

  const SharedSettings settings_;
  const std::unique_ptr<Scheme> web_, s3_, hub_;
  Pins pins_;
  Mutex mutex_;
  std::deque<std::pair<std::string, std::shared_ptr<ByteSource>>> open_ ZT_GUARDED_BY(mutex_);
  std::map<std::string, SharedListing> listings_ ZT_GUARDED_BY(mutex_);
  std::set<std::string> folders_ ZT_GUARDED_BY(mutex_);  // what was found to be
};

constexpr std::size_t kMostListed = 500'000, kMostEmpty = 300, kMostWarned = 1024;

}  // namespace

Settings::Settings(RemoteOptions options) : RemoteOptions(std::move(options)) {
  constexpr std::uint64_t kLeastAhead = std::uint64_t{16} << 20;
  read_ahead = std::max(read_ahead, kLeastAhead);
}

std::chrono::seconds Settings::most_wait() const {
  constexpr std::uint64_t kMost = 86'400;
  const std::uint64_t seconds = NumberOf(Environment("ZTSTREAM_RETRY_SECONDS")).value_or(300);
  return std::chrono::seconds(std::min(retry_seconds ? *retry_seconds : seconds, kMost));
}

void Settings::Warn(const std::string& line, const std::string& about) const {
  const std::lock_guard lock(mutex_);
  if (!warn || !warned_.insert(about.empty() ? line : about).second) return;
  warn(line);
  if (warned_.size() > kMostWarned) warned_.clear();
}

Status remote::internal::ReadPages(
    const std::function<StatusOr<std::string>(const std::string&, std::vector<std::string>&)>&
        read) {
  std::unordered_set<std::string> names, places;
  std::size_t empty = 0;
  std::string at;
  do {
    std::vector<std::string> page;
    ZT_ASSIGN_OR_RETURN(at, read(at, page));
    empty = page.empty() ? empty + 1 : 0;
    for (std::string& name : page) {
      const auto [listed, fresh] = names.insert(std::move(name));
      if (!fresh) return InvalidData("the server's listing names " + Quote(*listed) + " twice");
    }
    if (names.size() > kMostListed)
      return InvalidArgument("the folder has more than " + std::to_string(kMostListed) +
                             " files; name those that are meant");
    if (!at.empty() && (!places.insert(at).second || empty > kMostEmpty))
      return InvalidData("the server's listing does not end");
  } while (!at.empty());
  return OkStatus();
}

bool remote::internal::HasExtension(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  const std::size_t dot = name.rfind('.');
  return dot != name.npos && dot > 0 && name.size() - dot <= 12 &&
         name.find_first_of("0123456789", dot) == name.npos;
}

std::shared_ptr<Store> MakeRemoteStore(RemoteOptions options) {
  return std::make_shared<RemoteStore>(std::move(options));
}

StatusOr<std::string> HideQuery(const std::string& path,
                                std::map<std::string, std::string>& queries) {
  const std::string scheme = Lower(path.substr(0, path.find(':')));
  if (!IsUrl(path) || (scheme != "https" && scheme != "http")) return path;
  ZT_ASSIGN_OR_RETURN(const Url url, ParseUrl(path));
  if (url.query.empty()) return path;
  const auto [held, fresh] = queries.emplace(url.shown(), url.query);
  if (!fresh && held->second != url.query) {
    return Annotate(InvalidArgument("it is named twice with different queries; name each once"),
                    url.shown());
  }
  return url.shown();
}

}  // namespace zt
