// zt.remote:url — URLs taken apart, and what of them may be shown. Internal.
module zt.remote:url;

import zt.std;
import :answers;
import zt.core;

namespace zt::remote::internal {

// "https://host:port/path?query", taken apart. The path is as it was given, percent-encoding and all.
struct Url {
  std::string scheme;  // lower case
  std::string host;    // with its port, lower case
  std::string path;    // begins with a slash, or is empty
  std::string query;   // without its question mark

  std::string origin() const { return scheme + "://" + host; }
  std::string text() const { return origin() + path + (query.empty() ? "" : "?" + query); }
  // Without the query, which may hold a signature.
  std::string shown() const { return origin() + path; }
};

// kInvalidArgument where it is none, and where it holds a name or password. A fragment is cut off.
StatusOr<Url> ParseUrl(std::string_view text);

// The host without its port and brackets.
std::string_view HostName(const Url& url);
// True for this machine: localhost, 127.0.0.0/8, ::1.
bool IsLoopback(const Url& url);
// True where the host is an address and not a name.
bool IsAddress(const Url& url);

// `text` with each byte but A-Z, a-z, 0-9, "-._~" and those of `kept` as %XX: as S3 wants paths and queries encoded.
std::string PercentEncoded(std::string_view text, std::string_view kept = "");
// `text` as one word of a shell's command line.
std::string ShellQuoted(std::string_view text);
// A trimmed copy.
std::string_view Trimmed(std::string_view text);
std::string Lower(std::string_view text);
std::string Hex(std::span<const std::byte> bytes);
std::string Base64(std::span<const std::byte> bytes);
// A variable of the environment; empty where it is not set.
std::string Environment(const char* name);

}  // namespace zt::remote::internal
