// zt.remote:s3 — requests to S3: hosts of buckets, signatures, refusals. Internal.
module zt.remote:s3;

import zt.std;
import :http;
import :options;
import :sigv4;
import zt.core;

namespace zt::remote::internal {

// A profile of the files of the AWS tools. Names of members are in lower case. For region and
// endpoint the store's options come first, then the environment.
struct Profile {
  SharedSettings settings = {};
  std::string name = {};
  bool named = false, exists = false;
  std::string missing = {};           // which file a variable names that is not there
  Members config = {}, secrets = {};  // of the configuration, with its SSO session; of the keys
  std::string region = {}, endpoint = {};

  std::string Find(const std::string& member) const;  // in the file of the keys first
};
// Reads a profile, or the one that options or environment name, or "default".
StatusOr<Profile> ReadProfile(SharedSettings settings, const std::string& name = "");

// The content of a small file.
StatusOr<std::string> ReadSmall(const std::string& path);
std::int64_t Now();  // seconds since 1970
// The URL of a service of AWS, to which signed requests are sent: the one that is `given`, or that of
// a region. kInvalidArgument if the region cannot be a label in the name of its host.
StatusOr<std::string> AwsUrl(const std::string& given, const std::string& service,
                             const std::string& region);

// Finds credentials in this order: environment, unless the options name a profile, profile,
// container, instance, as they are now.
StatusOr<Credentials> FindCredentials(const SharedSettings& settings);
// Parses the JSON of credential processes and metadata servers.
StatusOr<Credentials> ParseCredentials(std::string_view json);

struct S3Name {
  std::string bucket, key;

  std::string url() const { return "s3://" + bucket + "/" + key; }
  bool is_folder() const { return key.empty() || key.ends_with('/'); }
};
// Parses "s3://bucket/key". The key is not decoded.
StatusOr<S3Name> ParseS3(const std::string& url);

// A request to a bucket.
struct S3Request {
  S3Name name = {};
  QueryPairs query = {};
  HttpRequest http = {};  // the rest of it, to which Make adds what leads to the bucket
  bool creates = false;   // an object, or an upload that becomes one
};

// Who asks S3, and where: what is learned once for all stores whose options name the same.
// Thread-safe.
class S3Identity {
 public:
  static std::shared_ptr<S3Identity> Of(const Settings& settings);

  struct Known {
    std::string endpoint, region;  // the region of the bucket, known or assumed
    std::optional<Credentials> credentials;
    // Counts the credentials, so that one of many refused requests renews them.
    std::uint64_t generation = 0;
  };
  // What a request to a bucket needs. It may wait for credentials.
  StatusOr<Known> Learn(const SharedSettings& settings, const std::string& bucket);
  // True if the answer says that region, credentials or time are wrong and new ones were found.
  bool Refresh(const SharedSettings& settings, const S3Name& name, const HttpAnswer& answer);
  // Why the last renewal failed.
  Status problem();
  // Seconds since 1970, by the clock of the store where that refused ours.
  std::int64_t now() const;

 private:
  // In these, mutex_ is held, but not while credentials are looked for.
  Status ReadLocked(const SharedSettings& settings);
  std::string RegionLocked(const std::string& bucket) const;
  bool IsUsableLocked() const;
  Status RenewLocked(const SharedSettings& settings, std::unique_lock<std::mutex>& lock,
                     bool urgent);

  std::mutex mutex_;
  // The variables that the rest was read by. A library's caller may set others, and is another then.
  std::string variables_;
  Known known_;            // of buckets that are not in regions_
  bool renewing_ = false;  // by one thread; the others use those that are there, or wait
  CondVar renewed_;
  std::int64_t next_renewal_ = 0;
  Status problem_;         // why the last renewal failed
  bool hopeless_ = false;  // and that it was urgent: who waited for it gives up
  std::map<std::string, std::string> regions_;  // of buckets, learned from answers
  std::atomic<std::int64_t> skew_ = 0;          // seconds from our clock to that of the store
};

// Makes the requests of a store. Thread-safe.
class S3Client {
 public:
  explicit S3Client(SharedSettings settings)
      : settings_(std::move(settings)), identity_(S3Identity::Of(*settings_)) {}
  const SharedSettings& settings() const { return settings_; }
  // Makes a request with credentials, for which it may wait.
  StatusOr<HttpRequest> Make(const S3Request& request);
  // Sends a request, and again if the answer was one that S3Identity::Refresh mends.
  StatusOr<HttpAnswer> Send(const S3Request& request);
  // The same; any answer but a good one is an error.
  StatusOr<HttpAnswer> Ask(const S3Request& request);
  bool Refresh(const S3Name& name, const HttpAnswer& answer) {
    return identity_->Refresh(settings_, name, answer);
  }
  // Why an answer is not a good one.
  Status Explain(const S3Name& name, const HttpAnswer& answer);
  // True for AWS itself. Other stores lack some of its features.
  bool is_aws();

 private:
  const SharedSettings settings_;
  const std::shared_ptr<S3Identity> identity_;
};

}  // namespace zt::remote::internal
