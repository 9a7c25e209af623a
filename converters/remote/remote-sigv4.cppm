// zt.remote:sigv4 — signatures of AWS, version 4, of requests to S3 and to STS. For the module and
// its tests.
export module zt.remote:sigv4;

import zt.std;

export namespace zt::remote::internal {

// The credentials that sign a request. Never shown.
struct Credentials {
  std::string id = {}, secret = {}, token = {};
  // When they expire, in seconds since 1970; nullopt: never.
  std::optional<std::int64_t> expires = {};
  std::string source = {};  // for messages: "the environment", "profile 'x'"
};

// Names and values as they are, not encoded, in any order.
using QueryPairs = std::vector<std::pair<std::string, std::string>>;
// The query of a URL: percent-encoded, in order, with "=" after every name.
std::string QueryText(const QueryPairs& query);
// Encodes each byte except A-Z, a-z, 0-9, "-._~" and those of `kept` as %XX, as S3 requires for
// paths and queries.
std::string PercentEncoded(std::string_view text, std::string_view kept = "");

// What a signature covers, besides the fields of the request.
struct ToSign {
  std::string method = {}, host = {};  // the host as in the field Host
  std::string path = {};               // as it is sent; never empty
  QueryPairs query = {};
  std::string payload = {};  // the SHA-256 of the body, in hex, or "UNSIGNED-PAYLOAD"
  std::string region = {}, service = "s3";
};
// Signs `fields`, "name: value", at a time in seconds since 1970: appends Host, x-amz-date,
// x-amz-content-sha256, x-amz-security-token if there is one, and Authorization.
void Sign(const ToSign& request, const Credentials& credentials, std::int64_t time,
          std::vector<std::string>& fields);

std::string Sha256Hex(std::string_view bytes);

}  // namespace zt::remote::internal
