// zt.remote:s3 — requests to S3: hosts of buckets, signatures, refusals. Internal.
module zt.remote:s3;

import zt.std;
import :http;
import :sigv4;
import zt.core;

namespace zt::remote::internal {

// The members of a section of the files of the AWS tools, by their names in lower case.
using Members = std::map<std::string, std::string>;
std::string Member(const Members& members, const std::string& name);  // empty if it is missing

// A profile of those files. For region and endpoint the environment comes first.
struct Profile {
  std::string name = {};
  bool named = false, exists = false;
  Members config = {}, secrets = {};  // of the configuration, with its SSO session; of the keys
  std::string region = {}, endpoint = {};

  std::string Find(const std::string& member) const;  // in the file of the keys first
};
// Reads a profile, or the one that the environment names, or "default".
StatusOr<Profile> ReadProfile(const std::string& name = "");

// The content of a small file.
StatusOr<std::string> ReadSmall(const std::string& path);
// The first of these variables that is set and not empty.
std::string FirstSet(std::initializer_list<const char*> names);
std::int64_t Now();  // seconds since 1970
// The URL of a service of AWS, to which signed requests are sent: kInvalidArgument if the region
// cannot be a label in the name of its host.
StatusOr<std::string> AwsUrl(const std::string& service, const std::string& region);

// Finds credentials in this order: environment, profile, container, instance, as they are now.
StatusOr<Credentials> FindCredentials();
// Parses the JSON of credential processes and metadata servers.
StatusOr<Credentials> ParseCredentials(std::string_view json);

struct S3Name {
  std::string bucket, key;
};
// Parses "s3://bucket/key". The key is not decoded.
StatusOr<S3Name> ParseS3(const std::string& url);

// A request to a bucket.
struct S3Request {
  std::string method = "GET";
  S3Name name = {};
  QueryPairs query = {};
  std::vector<std::string> fields = {};
  std::span<const std::byte> body = {};
};

// Makes requests. Thread-safe.
class S3Client {
 public:
  static S3Client& The();
  // Makes a request with credentials, for which it may wait.
  StatusOr<HttpRequest> Make(const S3Request& request);
  // Sends a request, and again if the answer names another region or the credentials were renewed.
  StatusOr<HttpAnswer> Send(const S3Request& request,
                            const std::function<void(HttpRequest&)>& tune = {});
  // True if the answer says that region or credentials are wrong and new ones were found; then Make
  // uses them.
  bool Refresh(const S3Name& name, const HttpAnswer& answer);
  Status Explain(const S3Name& name, const HttpAnswer& answer);
  // True for AWS itself. Other stores lack some of its features.
  bool is_aws();

 private:
  struct Known;
  S3Client() = default;
  StatusOr<Known> Learn(const S3Name& name);
  // In these, mutex_ is held, but not while credentials are looked for.
  Status ReadLocked();
  // The known or assumed region of a bucket.
  std::string RegionLocked(const std::string& bucket) const;
  bool IsUsableLocked() const;
  Status RenewLocked(std::unique_lock<std::mutex>& lock, bool urgent);

  std::mutex mutex_;
  // The variables that the rest was read by. A library's caller may set others, and is another then.
  std::string variables_;
  std::atomic<bool> warned_ = false;
  Profile profile_;
  std::optional<Credentials> credentials_;
  // Counts the credentials, so that one of many refused requests renews them.
  std::uint64_t generation_ = 0;
  bool renewing_ = false;  // by one thread; the others use those that are there, or wait
  std::condition_variable renewed_;
  std::int64_t next_renewal_ = 0;
  Status problem_;         // why the last renewal failed
  bool hopeless_ = false;  // and that it was urgent: who waited for it gives up
  std::map<std::string, std::string> regions_;  // of buckets, learned from answers
};

}  // namespace zt::remote::internal
