// zt.remote:answers — URLs, the small part of XML that S3 uses, and texts.
module;

#include <arpa/inet.h>
#include <string.h>
#include <time.h>

module zt.remote;

import zt.std;
import zt.core;

namespace zt::remote::internal {
namespace {

// Appends a code point as UTF-8; an invalid one becomes the replacement character.
void AppendPoint(std::uint32_t point, std::string& out) {
  if (point == 0 || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) point = 0xfffd;
  const int more = point < 0x80 ? 0 : point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
  constexpr std::uint32_t kLeads[] = {0, 0xc0, 0xe0, 0xf0};
  out += static_cast<char>(kLeads[more] | point >> (6 * more));
  for (int left = more; left-- > 0;) out += static_cast<char>(0x80 | (point >> (6 * left) & 0x3f));
}

// The name of a tag's element, without its prefix.
std::string_view NameOf(std::string_view tag) {
  tag = tag.substr(0, tag.find_first_of(" \t\r\n/"));
  const std::size_t colon = tag.find(':');
  return colon == tag.npos ? tag : tag.substr(colon + 1);
}

// Decodes a key of a listing, which is encoded like the query of a form.
std::string KeyOf(std::string text) {
  for (char& c : text) c = c == '+' ? ' ' : c;
  return PercentDecoded(text);
}

}  // namespace

StatusOr<Url> ParseUrl(std::string_view text) {
  const auto wrong = [&](std::string_view why) {
    return InvalidArgument("it is not a URL: " + std::string(why));
  };
  const std::size_t colon = text.find("://");
  if (colon == text.npos || colon == 0) return wrong("there is no scheme");
  Url url;
  url.scheme = Lower(text.substr(0, colon));
  text.remove_prefix(colon + 3);
  text = text.substr(0, text.find('#'));
  for (const unsigned char c : text) {
    if (c <= 0x20 || c == 0x7f) return wrong("it has blanks or control characters; write %20");
  }
  const std::size_t query = text.find('?');
  if (query != text.npos) {
    url.query = text.substr(query + 1);
    text = text.substr(0, query);
  }
  const std::size_t slash = text.find('/');
  if (slash != text.npos) url.path = text.substr(slash);
  url.host = Lower(text.substr(0, slash));
  if (url.host.empty()) return wrong("there is no host");
  if (url.host.find('@') != url.host.npos) {
    return InvalidArgument(
        "a URL with a user name or password is refused, because messages would show it");
  }
  return url;
}

std::string_view HostName(const Url& url) {
  const std::string_view host = url.host;
  if (host.starts_with('[')) return host.substr(1, host.find(']') - 1);
  const std::string_view name = host.substr(0, host.find(':'));
  return name.substr(0, name.size() - (name.ends_with('.') ? 1 : 0));
}

std::string HostField(const Url& url) {
  const std::string_view usual = url.scheme == "https" ? ":443" : ":80";
  std::string host = url.host;
  if (host.ends_with(usual)) host.resize(host.size() - usual.size());
  return host;
}

bool IsLocal(std::string_view address, bool link) {
  const std::string text(address.substr(0, address.find('%')));
  struct in6_addr v6 = {};
  struct in_addr v4 = {};
  const bool is_v6 = ::inet_pton(AF_INET6, text.c_str(), &v6) == 1;
  if (is_v6 && !IN6_IS_ADDR_V4MAPPED(&v6)) {
    return IN6_IS_ADDR_LOOPBACK(&v6) || IN6_IS_ADDR_UNSPECIFIED(&v6) ||
           (link && IN6_IS_ADDR_LINKLOCAL(&v6));
  }
  // The system takes 127.1, 0x7f000001 and 2130706433, too.
  if (!is_v6 && ::inet_aton(text.c_str(), &v4) == 0) return false;
  if (is_v6) std::memcpy(&v4, v6.s6_addr + 12, sizeof v4);
  const std::uint32_t number = ntohl(v4.s_addr);
  return number >> 24 == 127 || number >> 24 == 0 || (link && number >> 16 == 0xa9fe);
}

bool IsLoopback(const Url& url) {
  const std::string_view host = HostName(url);
  return host == "localhost" || host.ends_with(".localhost") || IsLocal(host, false);
}

bool IsAddress(const Url& url) {
  const std::string_view host = HostName(url);
  // A host name never ends in a number, so "2130706433" and "0x7f.1" are addresses, too.
  const std::string_view last = host.substr(host.rfind('.') + 1);
  return host.find(':') != host.npos || last.empty() ||
         (last[0] >= '0' && last[0] <= '9' &&
          last.find_first_not_of("0123456789abcdefx") == last.npos);
}

std::string PercentEncoded(std::string_view text, std::string_view kept) {
  std::string out;
  out.reserve(text.size());
  for (const unsigned char c : text) {
    if (std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_' || c == '~' ||
        kept.find(static_cast<char>(c)) != kept.npos) {
      out += static_cast<char>(c);
    } else {
      out += '%';
      for (const int shift : {4, 0}) out += "0123456789ABCDEF"[c >> shift & 15];
    }
  }
  return out;
}

std::string ShellQuoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') out += "'\\'";
    out += c;
  }
  return out + "'";
}

std::string PercentDecoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const char* const digits = text.data() + i + 1;
    const bool escape = text[i] == '%' && i + 2 < text.size() &&
                        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
    out += escape ? static_cast<char>(byte) : text[i];
    if (escape) i += 2;
  }
  return out;
}

std::optional<std::uint64_t> NumberOf(std::string_view text) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return number;
}

std::optional<std::int64_t> ParseTime(std::string_view text) {
  std::string plain(text);
  struct tm time = {};
  if (::strptime(plain.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &time) != nullptr)
    return ::timegm(&time);
  for (char& c : plain) c = c == 'T' || c == 't' ? ' ' : c == 'z' ? 'Z' : c;
  time = {};
  const char* rest = ::strptime(plain.c_str(), "%Y-%m-%d %H:%M:%S", &time);
  if (rest == nullptr) return std::nullopt;
  if (*rest == '.') rest += 1 + ::strspn(rest + 1, "0123456789");
  if (*rest != '\0') rest = ::strptime(rest, "%z", &time);
  if (rest == nullptr || *rest != '\0') return std::nullopt;
  const long offset = time.tm_gmtoff;
  return ::timegm(&time) - offset;
}

std::string WithoutSlashes(std::string text) {
  while (text.ends_with('/')) text.pop_back();
  return text;
}

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string FirstOf(std::initializer_list<std::string> texts) {
  const auto* const found = std::ranges::find_if(texts, [](auto& each) { return !each.empty(); });
  return found == texts.end() ? "" : *found;
}

std::string FirstSet(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (std::string value = Environment(name); !value.empty()) return value;
  }
  return "";
}

std::string XmlDecoded(std::string_view text) {
  constexpr std::pair<std::string_view, char> kNamed[] = {
      {"lt", '<'}, {"gt", '>'}, {"amp", '&'}, {"quot", '"'}, {"apos", '\''}};
  std::string out;
  for (std::size_t at; (at = text.find('&')) != text.npos;) {
    out += text.substr(0, at);
    text.remove_prefix(at);
    const std::size_t end = text.find_first_of(";& <", 1);
    if (end == text.npos || text[end] != ';' || end > 10) {
      out += '&';
      text.remove_prefix(1);
      continue;
    }
    std::string_view name = text.substr(1, end - 1);
    text.remove_prefix(end + 1);
    for (const auto& [known, letter] : kNamed) {
      if (name == known) out += letter;
    }
    if (!name.starts_with('#')) continue;
    const bool hex = name.starts_with("#x");
    name.remove_prefix(hex ? 2 : 1);
    std::uint32_t point = 0;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), point, hex ? 16 : 10);
    AppendPoint(read.ec == std::errc() ? point : 0, out);
  }
  return out.append(text);
}

XmlDocument ParseXml(std::string_view xml) {
  constexpr std::string_view kRaw = "![CDATA[";
  XmlDocument document;
  Members row;  // of the child of the root that is read
  std::vector<std::string_view> open;
  bool leaf = false;  // the innermost element has no child so far
  std::string text;   // since the last tag
  for (std::size_t begin; (begin = xml.find('<')) != xml.npos;) {
    text += XmlDecoded(xml.substr(0, begin));
    xml.remove_prefix(begin + 1);
    const std::string_view end_mark = xml.starts_with("!--")  ? "-->"
                                      : xml.starts_with(kRaw) ? "]]>"
                                                              : ">";
    const std::size_t close = xml.find(end_mark);
    const std::string_view tag = xml.substr(0, close);
    const bool is_element = !tag.starts_with('?') && !tag.starts_with('!');
    const bool closes = tag.starts_with('/');
    const std::string_view name = NameOf(closes ? tag.substr(1) : tag);
    if (document.root.empty() && is_element && !closes) document.root = name;
    if (close == xml.npos) return document;
    xml.remove_prefix(close + end_mark.size());
    if (tag.starts_with(kRaw)) text += tag.substr(kRaw.size());
    if (!is_element) continue;
    std::string content = std::exchange(text, {});
    if (!closes) {
      if (name.empty() || open.size() > 32) return document;
      open.push_back(name);
      leaf = true;
      if (!tag.ends_with('/')) continue;
      content.clear();
    }
    if (open.empty() || open.back() != name) return document;
    open.pop_back();
    if (leaf) {
      (open.size() > 1 ? row : document.members).emplace(name, std::move(content));
    } else if (open.size() == 1) {
      document.rows.emplace_back(name, std::exchange(row, {}));
    }
    leaf = false;
  }
  document.whole = open.empty();
  return document;
}

std::string XmlText(std::string_view xml, std::string_view name) {
  XmlDocument document = ParseXml(xml);
  document.rows.emplace(document.rows.begin(), "", std::move(document.members));
  for (const auto& [kind, members] : document.rows) {
    if (const auto found = members.find(std::string(name)); found != members.end())
      return found->second;
  }
  return "";
}

std::string XmlRoot(std::string_view xml) { return ParseXml(xml).root; }

StatusOr<ListPage> ParseListPage(std::string_view xml) {
  XmlDocument document = ParseXml(xml);
  Members& members = document.members;
  const bool encoded = Lower(Trimmed(members["EncodingType"])) == "url";
  const auto named = [&](std::string text) { return encoded ? KeyOf(std::move(text)) : text; };
  ListPage page;
  bool good = document.whole && document.root == "ListBucketResult";
  for (auto& [kind, row] : document.rows) {
    if (kind == "CommonPrefixes") page.prefixes.push_back(named(row["Prefix"]));
    if (kind != "Contents") continue;
    good = good && !row["Key"].empty();
    page.keys.push_back({named(row["Key"]), NumberOf(row["Size"]), row["ETag"]});
  }
  if (!good) return InvalidData("the store's listing is not the XML that S3 describes");
  page.next = members["NextContinuationToken"];
  const std::string truncated = Lower(Trimmed(members["IsTruncated"]));
  if (truncated == "false") page.next.clear();
  if (truncated == "false" || !page.next.empty()) return page;
  if (truncated != "true") return InvalidData("the store's listing does not say whether it ends");
  page.after_key = true;
  page.next = named(members["NextMarker"]);
  if (page.next.empty()) {
    for (const ListPage::Key& each : page.keys) page.next = std::max(page.next, each.key);
    for (const std::string& name : page.prefixes) page.next = std::max(page.next, name);
  }
  if (page.next.empty()) return InvalidData("the store's listing goes on and does not say where");
  return page;
}

}  // namespace zt::remote::internal
