// zt.remote:url — parsing and encoding of URLs.
module;

#include <arpa/inet.h>

#include "core/status_macros.h"

module zt.remote;

import zt.std;
import zt.core;

namespace zt::remote::internal {

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
  return host.substr(0, host.find(':'));
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
  std::string_view host = HostName(url);
  if (host.ends_with('.')) host.remove_suffix(1);
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
    const bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~' ||
                       kept.find(static_cast<char>(c)) != kept.npos;
    if (plain) {
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

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\v\f\r";
  const std::size_t begin = std::min(text.find_first_not_of(kBlanks), text.size());
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

std::string Hex(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte byte : bytes) {
    for (const int shift : {4, 0})
      out += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> shift & 15];
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

std::string WithoutSlashes(std::string text) {
  while (text.ends_with('/')) text.pop_back();
  return text;
}

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string FirstSet(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (std::string value = Environment(name); !value.empty()) return value;
  }
  return "";
}

}  // namespace zt::remote::internal
