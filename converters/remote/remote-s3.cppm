// zt.remote:s3 — requests to S3: where buckets are, who signs, what refusals mean. Internal.
module zt.remote:s3;

import zt.std;
import :http;
import zt.core;

namespace zt::remote::internal {

// What a request is signed with. Never shown.
struct Credentials {
  std::string id, secret, token;
  // Seconds since 1970 after which they are void; nullopt: never.
  std::optional<std::int64_t> expires;
};

// The settings of the AWS tools for one profile: the environment before the files.
struct Profile {
  std::string name, region, endpoint, id, secret, token, process;
};
Profile ReadProfile();
// The members of `[name]` in a file of AWS's kind; "profile name" is looked for in configuration files.
std::map<std::string, std::string> ParseIniSection(std::string_view text, std::string_view section);

// Finds credentials: environment, profile, its process, container, instance. kUnavailable says where they may be put.
StatusOr<Credentials> FindCredentials(const Profile& profile);
// As the processes and metadata servers give them.
StatusOr<Credentials> ParseCredentials(std::string_view json);
// "2026-01-31T12:00:00Z" as seconds since 1970.
std::optional<std::int64_t> ParseTime(const std::string& text);

struct S3Name {
  std::string bucket, key;
};
// "s3://bucket/key" taken apart; keys are taken as they are.
StatusOr<S3Name> ParseS3(const std::string& url);

// What is asked of a bucket.
struct S3Request {
  std::string method = "GET";
  S3Name name;
  // Canonical: sorted by name, encoded, with "=" everywhere.
  std::string query;
  std::vector<std::string> fields;
  std::span<const std::byte> body;
};

// Makes requests. Thread-safe.
class S3Client {
 public:
  static S3Client& The();
  // A request with credentials, which it may have to wait for.
  StatusOr<HttpRequest> Make(const S3Request& request);
  // Sends it; again where another region or newer credentials make the difference.
  StatusOr<HttpAnswer> Send(const S3Request& request,
                            const std::function<void(HttpRequest&)>& tune = {});
  // True where the answer says so, and Make will do better.
  bool Refresh(const S3Name& name, const HttpAnswer& answer);
  Status Explain(const S3Name& name, const HttpAnswer& answer);
  // Whether the store is AWS's own: others do not know all that it does.
  bool is_aws();
  // Forgets what it knows of credentials and regions.
  void Reset();

 private:
  struct Known;
  S3Client() = default;
  StatusOr<Known> Learn(const S3Name& name);
  // The bucket's region, as far as it is known. mutex_ is held.
  std::string RegionLocked(const std::string& bucket) const;

  std::mutex mutex_;
  bool read_ = false;
  std::atomic<bool> warned_ = false;
  Profile profile_;
  std::optional<Credentials> credentials_;
  std::map<std::string, std::string> regions_;  // of buckets, as they were found out
};

}  // namespace zt::remote::internal
