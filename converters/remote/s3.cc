// zt.remote:s3 — s3://: requests to buckets, explanations of refusals, objects, and folders, which are
// common prefixes of keys.
module;

#include <time.h>
#include <unistd.h>

#include "core/status_macros.h"

module zt.remote;

import zt.std;
import :files;
import :http;
import :s3;
import :upload;
import zt.core;
import zt.sink;
import zt.source;

namespace zt::remote::internal {
namespace {

// Credentials are renewed this many seconds before they expire.
constexpr std::int64_t kBefore = 300;
constexpr std::chrono::milliseconds kPause(250);
// A source of credentials that takes so many seconds to fail is not asked again at once.
constexpr std::int64_t kMostTrying = 10;
constexpr std::size_t kMostText = 8 << 20;  // of a page of a listing
// S3 refuses a signature whose time differs by 15 minutes.
constexpr std::int64_t kMostSkew = 600;

// True if a text can be a label in the name of a host.
bool IsLabel(std::string_view text) {
  return !text.empty() && text.size() <= 63 &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == text.npos;
}

// What a refusal means, by its error code of S3.
struct Refusal {
  std::string_view code, means;
  std::optional<Advice> advice = std::nullopt;
};
constexpr Refusal kRefusals[] = {
    {"AccessDenied", "the credentials do not allow it", Advice::kUnsigned},
    {"InvalidAccessKeyId", "the store does not know this access key"},
    {"SignatureDoesNotMatch", "the secret key is not that of the access key"},
    {"RequestTimeTooSkewed", "the clock of this machine is wrong; set it"},
    {"ExpiredToken", "the credentials have expired; log in again"},
    {"InvalidToken", "the session token is not valid; log in again"},
    {"NoSuchBucket", "there is no such bucket at this endpoint"},
    {"PermanentRedirect", "the bucket is in another region; set AWS_REGION"},
    {"AuthorizationHeaderMalformed", "the bucket is in another region; set AWS_REGION"},
    {"EntityTooLarge", "a part is too large for this store", Advice::kPartSize},
    {"EntityTooSmall", "a part is too small for this store", Advice::kPartSize},
    {"InvalidPart", "this store wants parts of one size", Advice::kPartSize},
    {"InvalidObjectState", "the object is archived; restore it first"},
};

// Adds the headers of the options to those of a request, those for what is created only to such.
Status AddHeaders(const std::vector<std::string>& given, bool creates,
                  std::vector<std::string>& fields) {
  const std::string always = " x-amz-request-payer, x-amz-expected-bucket-owner,";
  const std::string all =
      always +
      " x-amz-server-side-encryption, x-amz-server-side-encryption-aws-kms-key-id,"
      " x-amz-server-side-encryption-context, x-amz-server-side-encryption-bucket-key-enabled,"
      " x-amz-storage-class, x-amz-acl, x-amz-tagging, x-amz-object-lock-mode,"
      " x-amz-object-lock-retain-until-date, x-amz-object-lock-legal-hold,";
  for (const std::string& each : given) {
    const std::size_t equal = std::min(each.find('='), each.size());
    const std::string name = Lower(each.substr(0, equal)), listed = " " + name + ",";
    if (!IsLabel(name) || all.find(listed) == all.npos) {
      return InvalidArgument("no header of S3 that can be set is named " + Quote(name) +
                             "; these are:" + all.substr(0, all.size() - 1));
    }
    const std::string value = each.substr(std::min(equal + 1, each.size()));
    const bool plain = std::ranges::all_of(value, [](char c) { return c >= ' ' && c <= '~'; });
    if (Trimmed(value).empty() || !plain)
      return InvalidArgument("the header " + name + " needs a value of plain text");
    if (creates || always.find(listed) != always.npos) fields.push_back(name + ": " + value);
  }
  return OkStatus();
}

}  // namespace

std::int64_t Now() { return ::time(nullptr); }

StatusOr<std::string> AwsUrl(const std::string& given, const std::string& service,
                             const std::string& region) {
  if (!given.empty()) return given;
  if (!IsLabel(region)) return InvalidArgument("the region is no name: " + Quote(region));
  return "https://" + service + "." + region +
         (region.starts_with("cn-") ? ".amazonaws.com.cn" : ".amazonaws.com");
}

StatusOr<S3Name> ParseS3(const std::string& url) {
  const std::string rest = url.substr(url.find("://") + 3);
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  S3Name name{rest.substr(0, slash), rest.substr(std::min(slash + 1, rest.size()))};
  const bool good = std::ranges::all_of(name.bucket, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_';
  });
  if (name.bucket.empty() || !good)
    return InvalidArgument("it names no bucket; write s3://BUCKET/KEY");
  return name;
}

std::shared_ptr<S3Identity> S3Identity::Of(const Settings& settings) {
  using Key = std::tuple<std::string, std::string, std::string>;
  static std::mutex* const mutex = new std::mutex;
  static auto* const all = new std::map<Key, std::shared_ptr<S3Identity>>;
  const std::lock_guard lock(*mutex);
  auto& identity = (*all)[{settings.profile, settings.region, settings.endpoint_url}];
  if (identity == nullptr) identity = std::make_shared<S3Identity>();
  return identity;
}

Status S3Identity::ReadLocked(const SharedSettings& settings) {
  std::string variables = "\n";
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view variable = *each;
    if (variable.starts_with("AWS_") || variable.starts_with("HOME="))
      variables.append(variable).append("\n");
  }
  if (variables == variables_) return OkStatus();
  ZT_ASSIGN_OR_RETURN(Profile profile, ReadProfile(settings));
  known_.endpoint = std::move(profile.endpoint);
  known_.region = FirstOf({profile.region, "us-east-1"});
  variables_ = std::move(variables);
  known_.credentials.reset();
  regions_.clear();
  ++known_.generation;
  return OkStatus();
}

Status S3Identity::problem() {
  const std::lock_guard lock(mutex_);
  return problem_;
}

std::int64_t S3Identity::now() const { return Now() + skew_; }

std::string S3Identity::RegionLocked(const std::string& bucket) const {
  const auto found = regions_.find(bucket);
  return found != regions_.end() ? found->second : known_.region;
}

bool S3Identity::IsUsableLocked() const {
  return known_.credentials &&
         (!known_.credentials->expires || *known_.credentials->expires > Now());
}

Status S3Identity::RenewLocked(const SharedSettings& settings, std::unique_lock<std::mutex>& lock,
                               bool urgent) {
  renewing_ = true;
  StatusOr<Credentials> found = IoError("");
  // A run that has begun should not end because a login service hesitates.
  const int most = urgent && known_.credentials ? 4 : 1;
  const std::string variables = variables_,
                    source = known_.credentials ? known_.credentials->source : "";
  lock.unlock();
  const std::int64_t begun = Now();
  for (int tries = 0; !found.ok() && tries < most && Now() - begun < kMostTrying; ++tries) {
    if (tries > 0) std::this_thread::sleep_for(kPause * (1 << tries));
    found = FindCredentials(settings);
    // As while another program writes the file of the profile.
    if (found.ok() && !source.empty() && found->source != source)
      found = IoError("they came from " + source + ", and would now come from " + found->source);
  }
  lock.lock();
  renewing_ = false;
  renewed_.NotifyAll();
  const std::int64_t now = Now();
  if (variables != variables_) found = IoError("the environment was changed meanwhile");
  problem_ = found.status();
  hopeless_ = urgent && !found.ok();
  if (!found.ok()) {
    constexpr std::int64_t kMost = 30;
    const std::int64_t left =
        known_.credentials ? known_.credentials->expires.value_or(now) - now : 0;
    next_renewal_ = now + std::clamp<std::int64_t>(left / 4, 1, kMost);
    return found.status();
  }
  const bool other = !known_.credentials || found->token != known_.credentials->token ||
                     found->id != known_.credentials->id;
  known_.credentials = *std::move(found);
  known_.generation += other ? 1 : 0;
  // Sooner for those that are short-lived, but not with every request.
  const std::int64_t expires = known_.credentials->expires.value_or(0);
  next_renewal_ = std::max(expires - kBefore, now + std::max<std::int64_t>(1, (expires - now) / 2));
  return OkStatus();
}

StatusOr<S3Identity::Known> S3Identity::Learn(const SharedSettings& settings,
                                              const std::string& bucket) {
  std::unique_lock lock(mutex_);
  ZT_RETURN_IF_ERROR(ReadLocked(settings));
  if (settings->no_sign_request) return Known{known_.endpoint, RegionLocked(bucket), {}, 0};
  while (!IsUsableLocked() ||
         (known_.credentials->expires && Now() >= next_renewal_ && !renewing_)) {
    if (renewing_) {
      while (renewing_) renewed_.Wait(lock);
      if (hopeless_ && !IsUsableLocked()) return problem_;
      continue;
    }
    const Status renewed = RenewLocked(settings, lock, !IsUsableLocked());
    if (!renewed.ok() && !IsUsableLocked()) return renewed;
    if (!renewed.ok())
      settings->Warn("the credentials for S3 cannot be renewed, and are used until they expire: " +
                     Message(renewed));
    break;
  }
  Known known = known_;
  known.region = RegionLocked(bucket);
  return known;
}

bool S3Identity::Refresh(const SharedSettings& settings, const S3Name& name,
                         const HttpAnswer& answer) {
  const int status = answer.head.status;
  const std::string code = XmlText(answer.text, "Code");
  std::string region(answer.head.Find("x-amz-bucket-region"));
  if (region.empty() && code == "AuthorizationHeaderMalformed")
    region = XmlText(answer.text, "Region");
  const bool elsewhere = status == 301 || status == 307 || status == 400 || status == 403;
  std::unique_lock lock(mutex_);
  if (elsewhere && IsLabel(region) && RegionLocked(name.bucket) != region) {
    regions_[name.bucket] = region;
    return true;
  }
  if (settings->no_sign_request) return false;
  // The answer to HEAD has no code.
  const bool bare = answer.text.empty();
  const auto date = ParseTime(answer.head.Find("date"));
  const std::int64_t skew = date.value_or(0) - Now();
  if (date && std::abs(skew - skew_) > kMostSkew &&
      (code == "RequestTimeTooSkewed" || (status == 403 && bare))) {
    skew_ = skew;
    settings->Warn("the clock of this machine is " + std::to_string(std::abs(skew)) + " s " +
                   (skew > 0 ? "behind" : "ahead of") +
                   " that of the store, by which requests are signed");
    return true;
  }
  const bool silent =
      status == 400 && bare && known_.credentials && !known_.credentials->token.empty();
  if (code != "ExpiredToken" && code != "InvalidToken" && code != "TokenRefreshRequired" && !silent)
    return false;
  const bool waited = renewing_;
  while (renewing_ && answer.tag == known_.generation) renewed_.Wait(lock);
  if (answer.tag == known_.generation && !(waited && hopeless_))
    (void)RenewLocked(settings, lock, true);
  return answer.tag != known_.generation;
}

bool S3Client::is_aws() {
  const auto known = identity_->Learn(settings_, "");
  return !known.ok() || known->endpoint.empty() ||
         known->endpoint.find(".amazonaws.com") != std::string::npos;
}

StatusOr<HttpRequest> S3Client::Make(const S3Request& request) {
  ZT_ASSIGN_OR_RETURN(const auto known, identity_->Learn(settings_, request.name.bucket));
  const std::string& bucket = request.name.bucket;
  const bool label = known.endpoint.empty() && bucket.size() >= 3 && IsLabel(bucket);
  ZT_ASSIGN_OR_RETURN(std::string base,
                      AwsUrl(known.endpoint, label ? bucket + ".s3" : "s3", known.region));
  if (!label) base += "/" + bucket;
  ZT_ASSIGN_OR_RETURN(const Url url, ParseUrl(base));
  const std::string& key = request.name.key;
  HttpRequest out = request.http;
  ToSign sign{
      .method = out.method,
      .host = HostField(url),
      .path = url.path + (key.empty() && url.path.size() > 1 ? "" : "/") + PercentEncoded(key, "/"),
      .query = request.query,
      .payload = "UNSIGNED-PAYLOAD",
      .region = known.region};
  const std::string query = QueryText(request.query);
  out.settings = settings_;
  out.url = url.origin() + sign.path + (query.empty() ? "" : "?" + query);
  out.ca_file = Environment("AWS_CA_BUNDLE");
  out.most_text = kMostText;
  out.redirects = 0;
  ZT_RETURN_IF_ERROR(AddHeaders(settings_->s3_headers, request.creates, out.fields));
  const bool open = url.scheme == "http" && !IsLoopback(url);
  if (open)
    settings_->Warn(url.origin() +
                    ": requests to S3 go over http, where others can read and change them");
  if (!known.credentials) return out;
  if (open && !known.credentials->token.empty())
    return InvalidArgument("a session token is not sent over http; use https");
  if (open)
    sign.payload = Sha256Hex({reinterpret_cast<const char*>(out.body.data()), out.body.size()});
  out.tag = known.generation;
  out.sign = [sign = std::move(sign), by = *known.credentials, identity = identity_](
                 std::vector<std::string>& fields) { Sign(sign, by, identity->now(), fields); };
  return out;
}

StatusOr<HttpAnswer> S3Client::Send(const S3Request& request) {
  for (int refreshed = 0;; ++refreshed) {
    ZT_ASSIGN_OR_RETURN(HttpRequest made, Make(request));
    HttpAnswer answer = Perform(std::move(made));
    if (answer.ok() || !answer.status.ok() || refreshed == kMostRefreshed ||
        !Refresh(request.name, answer))
      return answer;
  }
}

StatusOr<HttpAnswer> S3Client::Ask(const S3Request& request) {
  ZT_ASSIGN_OR_RETURN(HttpAnswer answer, Send(request));
  if (!answer.ok()) return Explain(request.name, answer);
  return answer;
}

Status S3Client::Explain(const S3Name& name, const HttpAnswer& answer) {
  ZT_RETURN_IF_ERROR(answer.status);
  const std::string code = XmlText(answer.text, "Code");
  const std::string message = XmlText(answer.text, "Message");
  std::string said = Said(answer, code.empty() ? message : code + ": " + message);
  const auto* const refusal = std::ranges::find(kRefusals, code, &Refusal::code);
  const bool known = refusal != std::end(kRefusals);
  if (known) said += "; " + std::string(refusal->means);
  const Status problem = code == "ExpiredToken" ? identity_->problem() : OkStatus();
  if (!problem.ok()) said += " (they cannot be renewed: " + Message(problem) + ")";
  const int status = answer.head.status;
  if (status == 404 && code != "NoSuchBucket" && code != "NoSuchUpload")
    return IoError("bucket " + name.bucket + " has no such object (" + said + ")");
  if (status == 403 && code.empty())
    said += "; the credentials do not allow it, or there is no such object";
  const Status why = WithAdvice(IoError(said), problem);
  return known && refusal->advice ? WithAdvice(why, *refusal->advice) : why;
}

namespace {

// A page of the keys in a folder, or with `below` of those in the folders below it, too.
// It is the one after `before`, which said where the listing goes on.
StatusOr<ListPage> AskPage(S3Client& client, const S3Name& folder, const ListPage& before, int most,
                           bool below) {
  QueryPairs query = {{"list-type", "2"},
                      {"encoding-type", "url"},
                      {"max-keys", std::to_string(most)},
                      {"prefix", folder.key}};
  if (!below) query.emplace_back("delimiter", "/");
  if (before.after_key) {
    // Either version of the request has a name for a key to come after.
    query.emplace_back("marker", before.next);
    query.emplace_back("start-after", before.next);
  } else if (!before.next.empty()) {
    query.emplace_back("continuation-token", before.next);
  }
  const S3Name bucket{folder.bucket, ""};
  ZT_ASSIGN_OR_RETURN(const HttpAnswer answer, client.Send({.name = bucket, .query = query}));
  if (!answer.ok()) return WithAnswer(client.Explain(bucket, answer), answer);
  return ParseListPage(answer.text);
}

class S3Files final : public Scheme {
 public:
  explicit S3Files(SharedSettings settings)
      : client_(std::make_shared<S3Client>(std::move(settings))) {}
  StatusOr<std::shared_ptr<ByteSource>> Open(const std::string& url, Pins& pins) override {
    ZT_ASSIGN_OR_RETURN(S3Name name, ParseS3(url));
    if (name.is_folder()) return InvalidArgument("it is a folder, a file is needed");
    return OpenObject({.settings = client_->settings(),
                       .name = url,
                       .get = [client = client_, name] { return client->Make({.name = name}); },
                       .explain = [client = client_,
                                   name](auto& answer) { return client->Explain(name, answer); },
                       .refresh = [client = client_,
                                   name](auto& answer) { return client->Refresh(name, answer); }},
                      pins);
  }
  StatusOr<bool> IsFolder(const std::string& url) override {
    ZT_ASSIGN_OR_RETURN(S3Name name, ParseS3(url));
    if (name.is_folder()) return true;
    if (HasExtension(name.key)) return false;
    name.key += '/';
    ZT_ASSIGN_OR_RETURN(const ListPage page, AskPage(*client_, name, {}, 1, false));
    return !page.keys.empty() || !page.prefixes.empty();
  }
  StatusOr<Listing> List(const std::string& url, bool below) override {
    ZT_ASSIGN_OR_RETURN(S3Name folder, ParseS3(url));
    if (!folder.is_folder()) folder.key += '/';
    Listing listing{.files = {}, .below = true};
    ListPage page;
    const auto read = [&](const std::string&,
                          std::vector<std::string>& names) -> StatusOr<std::string> {
      ZT_ASSIGN_OR_RETURN(page, AskPage(*client_, folder, page, 1000, below));
      for (ListPage::Key& each : page.keys) {
        std::string& key = each.key;
        if (!key.starts_with(folder.key))
          return InvalidData("the server's listing names " + Quote(key) + ", of another folder");
        names.push_back(key);
        key.erase(0, folder.key.size());
        // A key equal to the prefix stands for the folder itself, and an empty one that ends with a
        // slash for another folder.
        if (!key.empty() && (!key.ends_with('/') || each.bytes != 0))
          listing.files.push_back(std::move(each));
      }
      // Without folders in it, there is nothing below.
      listing.below = listing.below && page.prefixes.empty();
      return page.next;
    };
    ZT_RETURN_IF_ERROR(ReadPages(read));
    return listing;
  }
  std::optional<Status> Find(const std::string& url) override {
    ZT_ASSIGN_OR_RETURN(const S3Name name, ParseS3(url));
    if (name.is_folder()) return MakeStatus(StatusCode::kNotFound, "it is a folder");
    ZT_ASSIGN_OR_RETURN(const HttpAnswer answer,
                        client_->Send({.name = name, .http = {.method = "HEAD"}}));
    // The server may not know HEAD.
    if (answer.status.ok() && (answer.head.status == 405 || answer.head.status == 501))
      return std::nullopt;
    return answer.ok() ? OkStatus() : WithAnswer(client_->Explain(name, answer), answer);
  }
  StatusOr<std::unique_ptr<Sink>> Create(const std::string& url, const FileSinkOptions& options,
                                         std::function<void()> forget) override {
    ZT_ASSIGN_OR_RETURN(S3Name name, ParseS3(url));
    if (name.is_folder()) return InvalidArgument("the output is a folder; name a file");
    return CreateUpload(client_, url, std::move(name), options, std::move(forget));
  }

 private:
  const std::shared_ptr<S3Client> client_;
};

}  // namespace

std::unique_ptr<Scheme> MakeS3(SharedSettings settings) {
  return std::make_unique<S3Files>(std::move(settings));
}

}  // namespace zt::remote::internal
