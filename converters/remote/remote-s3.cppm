// zt.remote:s3 — requests to S3: hosts of buckets, signatures, refusals. Internal.
module zt.remote:s3;

import zt.std;
import :http;
import :sigv4;
import zt.core;

namespace zt::remote::internal {

// The settings of the AWS tools for one profile. The environment overrides the files.
struct Profile {
  std::string name, region, endpoint, id, secret, token, process;
};
Profile ReadProfile();
// The members of `[section]`, or `[profile section]`, in an INI file of AWS.
std::map<std::string, std::string> ParseIniSection(std::string_view text, std::string_view section);

// Finds credentials in this order: environment, profile, its process, container, instance.
// kUnavailable explains where to set them.
StatusOr<Credentials> FindCredentials(const Profile& profile);
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
  S3Name name;
  QueryPairs query;
  std::vector<std::string> fields;
  std::span<const std::byte> body;
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
  // Forgets credentials and regions.
  void Reset();

 private:
  struct Known;
  S3Client() = default;
  StatusOr<Known> Learn(const S3Name& name);
  // The known or assumed region of a bucket. mutex_ is held.
  std::string RegionLocked(const std::string& bucket) const;

  std::mutex mutex_;
  bool read_ = false;
  std::atomic<bool> warned_ = false;
  Profile profile_;
  std::optional<Credentials> credentials_;
  std::map<std::string, std::string> regions_;  // of buckets, learned from answers
};

}  // namespace zt::remote::internal
