// zt.remote:options — how a store reads and writes files on servers.
export module zt.remote:options;

import zt.std;
import zt.core;

export namespace zt {

// How a store reads and writes files on servers.
struct RemoteOptions {
  // The budget for read-ahead of its files together, in bytes; at least 16 MiB. What all stores of
  // the process have read ahead counts.
  std::uint64_t read_ahead = std::uint64_t{40} << 20;
  // Send requests to S3 without a signature, for public buckets.
  bool no_sign_request = false;
  // The size of the parts of an upload; 0: chosen by the expected size of the file.
  std::uint64_t part_bytes = 0;
  // Continue an upload that an earlier run has not ended, and keep the parts of one that fails: a
  // part whose size and checksum the store has is not sent again.
  bool resume = false;
  // How many seconds a server that has answered is asked again without progress; nullopt: as
  // ZTSTREAM_RETRY_SECONDS says, else 300.
  std::optional<unsigned> retry_seconds = {};
  // The profile of the AWS tools, which then comes before credentials of the environment; the region
  // and the URL of S3. Empty: as the environment says, then the profile.
  std::string profile = {}, region = {}, endpoint_url = {};
  // Headers that buckets demand, as "name=value": of encryption, storage class, ACL, object lock and
  // tags where an object is written; x-amz-request-payer and x-amz-expected-bucket-owner with every
  // request. Others are kInvalidArgument.
  std::vector<std::string> s3_headers = {};
  // The queries of URLs, by what HideQuery has left of these.
  std::map<std::string, std::string> queries = {};
  // Receives warnings, from any thread, each once. URLs in them have no query.
  std::function<void(const std::string&)> warn = {};
};

}  // namespace zt

namespace zt::remote::internal {

// The options of a store, for all that it opens. Thread-safe.
struct Settings : RemoteOptions {
  explicit Settings(RemoteOptions options);
  std::chrono::seconds most_wait() const;
  // Once, or once about the same: a program opens the same file several times.
  void Warn(const std::string& line, const std::string& about = "") const;

 private:
  mutable std::mutex mutex_;
  mutable std::set<std::string> warned_;
};
using SharedSettings = std::shared_ptr<const Settings>;

}  // namespace zt::remote::internal
