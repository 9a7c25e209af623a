// zt.remote:files — hf://: repositories of the Hugging Face Hub, each at one commit, and the local
// cache of the Hub.
module;

#include "core/status_macros.h"
#include "core/thread_annotations.h"

module zt.remote;

import zt.std;
import :files;
import :http;
import :s3;
import zt.core;
import zt.sink;
import zt.source;

namespace zt::remote::internal {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostPage = 32 << 20;

bool IsSet(const char* name) {
  const std::string value = Lower(Environment(name));
  return value == "1" || value == "true" || value == "yes" || value == "on";
}

bool IsOffline() { return IsSet("HF_HUB_OFFLINE") || IsSet("TRANSFORMERS_OFFLINE"); }

std::string HubHome() {
  const std::string cache =
      FirstOf({Environment("XDG_CACHE_HOME"), Environment("HOME") + "/.cache"});
  return FirstOf({Environment("HF_HOME"), cache + "/huggingface"});
}

std::string CacheFolder() {
  return FirstOf({FirstSet({"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}), HubHome() + "/hub"});
}

std::string Endpoint() {
  return FirstOf({WithoutSlashes(Environment("HF_ENDPOINT")), "https://huggingface.co"});
}

std::string FirstLine(const std::string& path) {
  const std::string text = ReadSmall(path).value_or("");
  return std::string(Trimmed(std::string_view(text).substr(0, text.find('\n'))));
}

std::string Token() {
  if (IsSet("HF_HUB_DISABLE_IMPLICIT_TOKEN")) return "";
  const std::string token(Trimmed(FirstSet({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})));
  if (!token.empty()) return token;
  return FirstLine(FirstOf({Environment("HF_TOKEN_PATH"), HubHome() + "/token"}));
}

// The parts of "hf://[models/|datasets/|spaces/][ORG/]NAME[@REVISION][/PATH]".
struct HubName {
  std::string kind = "models";
  std::string id;  // "ORG/NAME", or "NAME" of the oldest repositories
  std::string revision = "main";
  std::string path;  // in the repository, without slashes around it; empty for the repository

  // Identifies the repository at a revision.
  std::string repository() const { return kind + "/" + id + "@" + revision; }
};

// True if a segment of `path` would lead out of the repository's folder.
bool HasDotSegment(const std::string& path) {
  const std::string whole = "/" + path + "/";
  return whole.find("/./") != whole.npos || whole.find("/../") != whole.npos;
}

// "NAME/PATH" would be "ORG/NAME": a repository without an organisation is named alone or with its
// revision first, and is one of `alone` then.
StatusOr<HubName> ParseHub(const std::string& url, std::set<std::string>& alone) {
  const auto wrong = [] {
    return InvalidArgument("it names no repository; write hf://ORG/NAME[@REVISION][/PATH]");
  };
  std::string_view rest = std::string_view(url).substr(url.find("://") + 3);
  while (rest.ends_with('/')) rest.remove_suffix(1);
  HubName name;
  for (const std::string_view kind : {"models", "datasets", "spaces"}) {
    if (rest.starts_with(kind) && rest.substr(kind.size()).starts_with('/')) {
      name.kind = kind;
      rest.remove_prefix(kind.size() + 1);
      break;
    }
  }
  std::size_t end = rest.find_first_of("/@");
  const std::string first = name.kind + "/" + std::string(rest.substr(0, end));
  if (end == rest.npos || rest[end] == '@') alone.insert(first);
  if (!alone.contains(first)) end = rest.find_first_of("/@", end + 1);
  name.id = rest.substr(0, end);
  rest = end == rest.npos ? std::string_view() : rest.substr(end);
  if (name.id.empty() || name.id.starts_with('/') || name.id.ends_with('/') ||
      !std::ranges::all_of(name.id, [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '/';
      })) {
    return wrong();
  }
  if (rest.starts_with('@')) {
    rest.remove_prefix(1);
    std::size_t until = rest.find('/');
    // These revisions contain slashes: refs/pr/1, refs/convert/parquet.
    if (rest.starts_with("refs/"))
      until = rest.find('/', std::min(rest.find('/', 5), rest.size() - 1) + 1);
    name.revision = PercentDecoded(rest.substr(0, until));
    rest = until == rest.npos ? std::string_view() : rest.substr(until);
    if (name.revision.empty()) return wrong();
  }
  if (rest.starts_with('/')) rest.remove_prefix(1);
  name.path = rest;
  if (HasDotSegment(name.id) || HasDotSegment(name.revision) || HasDotSegment(name.path))
    return InvalidArgument("no part of a name of the Hub may be . or ..");
  return name;
}

// The folder of a repository in the cache: "models--ORG--NAME".
std::string CachedRepository(const HubName& name) {
  std::string folder = name.kind + "--" + name.id;
  for (std::size_t at; (at = folder.find('/')) != folder.npos;) folder.replace(at, 1, "--");
  return CacheFolder() + "/" + folder;
}

bool IsCommit(std::string_view text) {
  return text.size() == 40 && text.find_first_not_of("0123456789abcdef") == text.npos;
}

// The repository's files at one commit.
struct Snapshot {
  using Files = std::vector<std::pair<std::string, std::uint64_t>>;
  std::string commit, folder;  // the folder in the cache, if there is one
  std::optional<Files> files;  // their paths and sizes, once they were asked for
};
using SharedSnapshot = std::shared_ptr<const Snapshot>;

Status ExplainHub(const HttpAnswer& answer) {
  const std::string_view code = answer.head.Find("x-error-code");
  const std::string said = Said(answer, answer.head.Find("x-error-message"));
  if (code == "RevisionNotFound")
    return IoError("the repository has no such revision (" + said + ")");
  if (code == "EntryNotFound") return IoError("the repository has no such file (" + said + ")");
  if (code == "GatedRepo") {
    return IoError("the repository is gated: " + said +
                   "; ask for access on its page, and set HF_TOKEN or run 'hf auth login'");
  }
  const int status = answer.head.status;
  if (code == "RepoNotFound" || status == 401 || status == 404) {
    return IoError("there is no such repository, or it is private: " + said +
                   "; for a private one set HF_TOKEN or run 'hf auth login'");
  }
  if (status == 403) return IoError("the token does not allow it: " + said);
  return IoError(said);
}

// A request with the token as a secret, which only the Hub receives.
StatusOr<HttpRequest> GetHub(SharedSettings settings, const std::string& address) {
  HttpRequest request{.settings = std::move(settings),
                      .url = address,
                      .fields = {"Accept-Encoding: identity"},
                      .most_text = kMostPage};
  const std::string token = Token();
  if (token.empty()) return request;
  ZT_ASSIGN_OR_RETURN(const Url url, ParseUrl(address));
  if (url.scheme != "https" && !IsLoopback(url))
    return InvalidArgument("HF_ENDPOINT is http, over which a token is not sent; use https");
  request.sign = [token](std::vector<std::string>& fields) {
    fields.push_back("Authorization: Bearer " + token);
  };
  return request;
}

StatusOr<HttpAnswer> AskHub(SharedSettings settings, const std::string& url) {
  ZT_ASSIGN_OR_RETURN(HttpRequest request, GetHub(std::move(settings), url));
  HttpAnswer answer = Perform(std::move(request));
  ZT_RETURN_IF_ERROR(answer.status);
  if (!answer.ok()) return WithAnswer(ExplainHub(answer), answer);
  return answer;
}

class HubFiles final : public Scheme {
 public:
  explicit HubFiles(SharedSettings settings) : settings_(std::move(settings)) {}
  StatusOr<std::shared_ptr<ByteSource>> Open(const std::string& url, Pins& pins) override {
    ZT_ASSIGN_OR_RETURN(const HubName name, Parse(url));
    if (name.path.empty()) return InvalidArgument("it is a folder, a file is needed");
    ZT_ASSIGN_OR_RETURN(const SharedSnapshot snapshot, Find(name, false));
    const std::string cached = snapshot->folder + "/" + name.path;
    std::error_code error;
    if (!snapshot->folder.empty() && fs::is_regular_file(cached, error)) return OpenFile(cached);
    if (IsOffline()) return IoError("HF_HUB_OFFLINE is set, and the cache has no such file");
    const std::string kind = name.kind == "models" ? "" : name.kind + "/";
    const std::string address = Endpoint() + "/" + kind + name.id + "/resolve/" + snapshot->commit +
                                "/" + PercentEncoded(name.path, "/");
    return OpenObject(
        {.settings = settings_,
         .name = url,
         // Every request goes to the Hub, because it signs its redirect for one range.
         .get = [settings = settings_, address] { return GetHub(settings, address); },
         .explain = ExplainHub,
         .pins = false,
         // The Hub allows some thousand requests in five minutes.
         .most_bytes = std::uint64_t{8} << 20},
        pins);
  }
  StatusOr<bool> IsFolder(const std::string& url) override {
    ZT_ASSIGN_OR_RETURN(const HubName name, Parse(url));
    if (name.path.empty()) return true;
    if (HasExtension(name.path)) return false;
    ZT_ASSIGN_OR_RETURN(const Listing listing, List(url, true));
    return !listing.files.empty();
  }
  StatusOr<Listing> List(const std::string& url, bool) override {
    ZT_ASSIGN_OR_RETURN(const HubName name, Parse(url));
    ZT_ASSIGN_OR_RETURN(const SharedSnapshot snapshot, Find(name, true));
    const std::string folder = name.path.empty() ? "" : name.path + "/";
    Listing listing{.files = {}, .below = true};
    for (const auto& [path, size] : *snapshot->files) {
      if (path.starts_with(folder)) listing.files.push_back({path.substr(folder.size()), size});
    }
    return listing;
  }
  std::optional<Status> Find(const std::string& url) override {
    ZT_ASSIGN_OR_RETURN(const HubName name, Parse(url));
    const auto snapshot = Find(name, true);
    // That there is no such listing says nothing of a file.
    if (snapshot.status().code() == StatusCode::kNotFound)
      return WithCode(snapshot.status(), StatusCode::kPermissionDenied);
    ZT_RETURN_IF_ERROR(snapshot.status());
    const bool listed = std::ranges::any_of(
        *(*snapshot)->files, [&](const auto& file) { return file.first == name.path; });
    return listed ? OkStatus() : MakeStatus(StatusCode::kNotFound, "it is not listed");
  }
  StatusOr<std::unique_ptr<Sink>> Create(const std::string&, const FileSinkOptions&,
                                         std::function<void()>) override {
    return Unsupported("nothing is written to the Hub; write a file and upload it ('hf upload')");
  }

 private:
  StatusOr<HubName> Parse(const std::string& url) {
    const MutexLock lock(mutex_);
    return ParseHub(url, alone_);
  }

  // Asks for the commit of a revision, and for its files if they are to be `listed`, once.
  StatusOr<SharedSnapshot> Find(const HubName& name, bool listed) {
    const MutexLock lock(mutex_);
    std::shared_ptr<Snapshot>& known = known_[name.repository()];
    if (known == nullptr) {
      ZT_ASSIGN_OR_RETURN(Snapshot found, FindCommit(name));
      known = std::make_shared<Snapshot>(std::move(found));
    }
    if (listed && !known->files) {
      ZT_ASSIGN_OR_RETURN(known->files, IsOffline() ? ListCache(*known) : ListHub(name, *known));
    }
    return known;
  }

  StatusOr<Snapshot> FindCommit(const HubName& name) {
    const std::string cached = CachedRepository(name);
    Snapshot snapshot;
    if (IsCommit(name.revision)) {
      snapshot.commit = name.revision;
    } else if (IsOffline()) {
      snapshot.commit = FirstLine(cached + "/refs/" + name.revision);
    } else {
      const auto asked = AskHub(settings_, Endpoint() + "/api/" + name.kind + "/" + name.id +
                                               "/revision/" + PercentEncoded(name.revision));
      if (!asked.ok() && HasExtension(name.id)) {
        const std::string org = name.id.substr(0, name.id.find('/'));
        return IoError(Message(asked.status()) + "; if " + Quote(org) +
                       " is a repository without an organisation, write hf://" + org + "@main/...");
      }
      ZT_ASSIGN_OR_RETURN(const HttpAnswer answer, asked);
      const auto values = JsonStrings(answer.text, {"sha"});
      if (values.empty() || !IsCommit(values[0]))
        return InvalidData("the Hub gave no commit for revision " + Quote(name.revision));
      snapshot.commit = values[0];
    }
    std::error_code error;
    const std::string folder = cached + "/snapshots/" + snapshot.commit;
    if (!snapshot.commit.empty() && fs::is_directory(folder, error)) snapshot.folder = folder;
    if (IsOffline() && snapshot.folder.empty()) {
      return IoError("HF_HUB_OFFLINE is set, and the cache does not have the repository");
    }
    return snapshot;
  }

  static StatusOr<Snapshot::Files> ListCache(const Snapshot& snapshot) {
    Snapshot::Files files;
    std::error_code error;
    for (fs::recursive_directory_iterator it(snapshot.folder, error), end; !error && it != end;
         it.increment(error)) {
      std::error_code none;
      if (!it->is_regular_file(none)) continue;
      files.emplace_back(it->path().string().substr(snapshot.folder.size() + 1),
                         it->file_size(none));
    }
    if (error) return IoError(error.value(), "cannot list the cache");
    return files;
  }

  StatusOr<Snapshot::Files> ListHub(const HubName& name, const Snapshot& snapshot) {
    const std::string first = Endpoint() + "/api/" + name.kind + "/" + name.id + "/tree/" +
                              snapshot.commit + "?recursive=true&expand=false";
    ZT_ASSIGN_OR_RETURN(const Url hub, ParseUrl(first));
    Snapshot::Files files;
    const auto read = [&](const std::string& at,
                          std::vector<std::string>& names) -> StatusOr<std::string> {
      ZT_ASSIGN_OR_RETURN(const HttpAnswer answer, AskHub(settings_, at.empty() ? first : at));
      const std::size_t before = files.size();
      if (!JsonTree(answer.text, files))
        return InvalidData("the Hub's listing is not the JSON that it describes");
      for (const auto& [path, size] : std::span(files).subspan(before)) names.push_back(path);
      const std::string page = NextPage(answer.head);
      if (page.empty()) return page;
      ZT_ASSIGN_OR_RETURN(const Url to,
                          ParseUrl(page.starts_with('/') ? hub.origin() + page : page));
      // The token is sent with it, so it must be the same server.
      if (to.origin() != hub.origin())
        return InvalidData("the Hub's listing goes on at another server");
      return to.text();
    };
    ZT_RETURN_IF_ERROR(ReadPages(read));
    if (files.empty()) return InvalidData("the Hub lists no file of the repository");
    return files;
  }

  const SharedSettings settings_;
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<Snapshot>> known_ ZT_GUARDED_BY(mutex_);
  std::set<std::string> alone_ ZT_GUARDED_BY(mutex_);
};

}  // namespace

std::string NextPage(const HttpHead& head) {
  for (const auto& [field, value] : head.fields) {
    if (field != "link") continue;
    std::string_view link = value;
    for (std::size_t begin; (begin = link.find('<')) != link.npos;) {
      const std::size_t end = std::min(link.find('>', begin), link.size() - 1);
      const std::string_view url = link.substr(begin + 1, end - begin - 1);
      link.remove_prefix(end + 1);
      // rel=next, rel="next" or rel="last next", in any case.
      std::string rel = Lower(link.substr(0, link.find('<')));
      rel.erase(0, std::min(rel.find("rel="), rel.size() - 4) + 4);
      rel = rel.starts_with('"') ? rel.substr(1, rel.find('"', 1) - 1)
                                 : rel.substr(0, rel.find_first_of(" ,;"));
      if ((" " + rel + " ").find(" next ") != rel.npos) return std::string(url);
    }
  }
  return "";
}

std::unique_ptr<Scheme> MakeHub(SharedSettings settings) {
  return std::make_unique<HubFiles>(std::move(settings));
}

}  // namespace zt::remote::internal
