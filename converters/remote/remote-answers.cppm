// zt.remote:answers — parsers for URLs and for the answers of servers, which are not trusted, and the
// small parts of texts. For the module, its tests and its fuzz target.
export module zt.remote:answers;

import zt.std;
import zt.core;

export namespace zt::remote::internal {

// The head of an answer.
struct HttpHead {
  // 0 if there was no answer.
  int status = 0;
  // Names in lower case, and values.
  std::vector<std::pair<std::string, std::string>> fields;

  bool ok() const { return status >= 200 && status < 300; }
  // The value of a field; empty if it is missing.
  std::string_view Find(std::string_view name) const;
};
// Adds a line of a head; a status line begins a new one. Lines that are no fields are passed over.
void TakeHeadLine(std::string_view line, HttpHead& head);
// The seconds in Retry-After or until its date, or in `t` of the `ratelimit` field of the Hub if
// nothing remains until then; nullopt for invalid values.
std::optional<std::uint64_t> RetrySeconds(const HttpHead& head);

// The parts of "https://host:port/path?query". The path is not decoded.
struct Url {
  std::string scheme;  // lower case
  std::string host;    // with its port, lower case
  std::string path;    // begins with a slash, or is empty
  std::string query;   // without its question mark

  std::string origin() const { return scheme + "://" + host; }
  std::string text() const { return origin() + path + (query.empty() ? "" : "?" + query); }
  // For messages: without the query, which may hold a signature.
  std::string shown() const { return origin() + path; }
};
// Parses a URL, of a user or of a redirect, and removes its fragment. kInvalidArgument if it is not
// a URL, or if it holds a name or password.
StatusOr<Url> ParseUrl(std::string_view text);
// The host without its port and brackets, and without a point at its end.
std::string_view HostName(const Url& url);
// The host as the field Host has it: without the port of the scheme.
std::string HostField(const Url& url);
// True if the text is an address of this machine: 127.0.0.0/8, ::1, 0.0.0.0; or, with `link`, one
// of its link, as those of metadata servers are.
bool IsLocal(std::string_view address, bool link = true);
// True for a host name or address of this machine.
bool IsLoopback(const Url& url);
// True if the host is an address, not a name.
bool IsAddress(const Url& url);

// Parses "bytes 0-9/100"; nullopt for anything else.
struct ContentRange {
  std::uint64_t first = 0, last = 0, total = 0;
};
std::optional<ContentRange> ParseContentRange(std::string_view text);
// Decodes %XX. Invalid escapes stay as they are.
std::string PercentDecoded(std::string_view text);

// Decodes "&lt;" and the like.
std::string XmlDecoded(std::string_view text);
// Texts by their names.
using Members = std::map<std::string, std::string>;
// A document, as far as it can be read. Names have no prefix.
struct XmlDocument {
  std::string root;    // the name of its root
  bool whole = false;  // it is well-formed to its end
  // The texts of elements without children: those in the root, and those in each child of the root
  // that has an end, with the name of that child.
  Members members;
  std::vector<std::pair<std::string, Members>> rows;
};
XmlDocument ParseXml(std::string_view xml);
// The text of the first element without children that has this name; empty if there is none.
std::string XmlText(std::string_view xml, std::string_view name);
// The name of the root.
std::string XmlRoot(std::string_view xml);

// One page of a listing of S3.
struct ListPage {
  struct Key {
    std::string key;
    std::optional<std::uint64_t> bytes;  // nullopt if the page does not say
    std::string etag = {};               // as the page has it
    bool operator==(const Key&) const = default;
  };
  std::vector<Key> keys;
  std::vector<std::string> prefixes;
  // Where the listing goes on: the token of the next page or, of a store that answers as the first
  // version of the request does, the key that it comes after. Empty for the last page.
  std::string next;
  bool after_key = false;
};
// kDataLoss if the XML is not such a page, or does not say whether and where the listing goes on.
StatusOr<ListPage> ParseListPage(std::string_view xml);

// Parses "Wed, 21 Oct 2026 07:28:00 GMT" or "2026-01-31T12:00:00Z" to seconds since 1970.
std::optional<std::int64_t> ParseTime(std::string_view text);

// The URL of `<URL>; rel="next"` in the Link fields; empty if there is none.
std::string NextPage(const HttpHead& head);

// The members of the JSON object `text` that are strings or numbers, in the order of `names`,
// "outer/inner" for one of a member; a missing one is empty. None if it is not a JSON object.
extern "C++" std::vector<std::string> JsonStrings(std::string_view text,
                                                  std::initializer_list<std::string_view> names);
// Appends path and size of every file in a page of a listing of the Hub. Returns false if it is not
// such a page.
extern "C++" bool JsonTree(std::string_view text,
                           std::vector<std::pair<std::string, std::uint64_t>>& files);

// Quotes `text` as one word of a shell command.
std::string ShellQuoted(std::string_view text);
// A number without sign; nullopt if `text` is anything else.
std::optional<std::uint64_t> NumberOf(std::string_view text);
// Without those at its end.
std::string WithoutSlashes(std::string text);
// A variable of the environment; empty if it is not set.
std::string Environment(const char* name);
// The first of these texts that is not empty.
std::string FirstOf(std::initializer_list<std::string> texts);
// The first of these variables that is set and not empty.
std::string FirstSet(std::initializer_list<const char*> names);

}  // namespace zt::remote::internal
