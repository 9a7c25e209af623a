// zt.remote:sigv4 — signs requests, because libcurl's signatures differ between its versions.
module;

#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>
#include <time.h>

module zt.remote;

import zt.std;
import zt.digest;

namespace zt::remote::internal {
namespace {

std::string Sha256(std::string_view text) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256_CTX context;
  SHA256_Init(&context);
  SHA256_Update(&context, text.data(), text.size());
  SHA256_Final(reinterpret_cast<unsigned char*>(digest.data()), &context);
  return digest;
}

// HMAC with SHA-256, RFC 2104. libcrypto's own would link all of its algorithms.
std::string Hmac(std::string key, std::string_view text) {
  constexpr std::size_t kBlock = 64;
  if (key.size() > kBlock) key = Sha256(key);
  key.resize(kBlock);
  std::string inner(key), outer(key);
  for (char& c : inner) c ^= 0x36;
  for (char& c : outer) c ^= 0x5c;
  return Sha256(outer + Sha256(inner + std::string(text)));
}

std::string HexText(std::string_view bytes) { return Hex(std::as_bytes(std::span(bytes))); }

// The names in lower case and in order; values without blanks around them and with single ones.
std::map<std::string, std::string> CanonicalFields(std::span<const std::string> fields) {
  std::map<std::string, std::string> canonical;
  for (const std::string& field : fields) {
    const std::size_t colon = field.find(':');
    std::string value;
    for (const char c : Trimmed(std::string_view(field).substr(colon + 1))) {
      const char plain = c == '\t' ? ' ' : c;
      if (plain != ' ' || !value.ends_with(' ')) value += plain;
    }
    const auto [at, fresh] = canonical.emplace(Lower(field.substr(0, colon)), value);
    if (!fresh) at->second += "," + value;
  }
  return canonical;
}

}  // namespace

std::string QueryText(const QueryPairs& query) {
  QueryPairs encoded;
  for (const auto& [name, value] : query)
    encoded.emplace_back(PercentEncoded(name), PercentEncoded(value));
  std::ranges::sort(encoded);
  std::string text;
  for (const auto& [name, value] : encoded) text += (text.empty() ? "" : "&") + name + "=" + value;
  return text;
}

std::string Sha256Hex(std::string_view bytes) { return HexText(Sha256(bytes)); }

void Sign(const ToSign& request, const Credentials& credentials, std::int64_t time,
          std::vector<std::string>& fields) {
  const ::time_t seconds = time;
  struct tm utc = {};
  ::gmtime_r(&seconds, &utc);
  char stamp[32];
  ::strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &utc);
  const std::string date(stamp, std::string_view(stamp).find('T'));
  fields.push_back("Host: " + request.host);
  fields.push_back(std::string("x-amz-date: ") + stamp);
  fields.push_back("x-amz-content-sha256: " + request.payload);
  if (!credentials.token.empty()) fields.push_back("x-amz-security-token: " + credentials.token);

  std::string lines, names;
  for (const auto& [name, value] : CanonicalFields(fields)) {
    lines += name + ":" + value + "\n";
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string text = request.method + "\n" + request.path + "\n" + QueryText(request.query) +
                           "\n" + lines + "\n" + names + "\n" + request.payload;
  std::string key = "AWS4" + credentials.secret, scope;
  for (const std::string& part :
       {date, request.region, request.service, std::string("aws4_request")}) {
    key = Hmac(std::move(key), part);
    scope += (scope.empty() ? "" : "/") + part;
  }
  const std::string signature =
      Hmac(key, std::string("AWS4-HMAC-SHA256\n") + stamp + "\n" + scope + "\n" + Sha256Hex(text));
  fields.push_back("Authorization: AWS4-HMAC-SHA256 Credential=" + credentials.id + "/" + scope +
                   ", SignedHeaders=" + names + ", Signature=" + HexText(signature));
}

}  // namespace zt::remote::internal
