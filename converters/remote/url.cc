// zt.remote:url — parsing and encoding of URLs.
module;

#include <arpa/inet.h>

#include "core/status_macros.h"

module zt.remote;

import zt.std;
import :sigv4;
import :url;
import zt.core;

namespace zt::remote::internal {
namespace {

constexpr char kDigits[] = "0123456789ABCDEF";

// The address that a host is written as, mapped to IPv6; nullopt for a name. The system takes
// 127.1, 0x7f000001 and 2130706433, too.
std::optional<std::array<unsigned char, 16>> AddressOf(std::string_view host) {
  const std::string text(host.substr(0, host.find('%')));
  std::array<unsigned char, 16> bytes = {};
  if (::inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1) return bytes;
  struct in_addr v4 = {};
  if (::inet_aton(text.c_str(), &v4) == 0) return std::nullopt;
  bytes[10] = bytes[11] = 0xff;
  std::memcpy(bytes.data() + 12, &v4, 4);
  return bytes;
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
  return host.substr(0, host.find(':'));
}

std::string HostField(const Url& url) {
  const std::string_view usual = url.scheme == "https" ? ":443" : ":80";
  std::string host = url.host;
  if (host.ends_with(usual)) host.resize(host.size() - usual.size());
  return host;
}

bool IsLocal(std::string_view address, bool link) {
  const auto bytes = AddressOf(address);
  if (!bytes) return false;
  const unsigned char* const v4 = bytes->data() + 12;
  constexpr unsigned char kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (std::equal(std::begin(kMapped), std::end(kMapped), bytes->begin()))
    return v4[0] == 127 || v4[0] == 0 || (link && v4[0] == 169 && v4[1] == 254);
  if (link && (*bytes)[0] == 0xfe && ((*bytes)[1] & 0xc0) == 0x80) return true;
  // :: and ::1
  return std::all_of(bytes->begin(), bytes->end() - 1, [](unsigned char c) { return c == 0; }) &&
         bytes->back() <= 1;
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
      out += kDigits[c >> 4];
      out += kDigits[c & 15];
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
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())))
    text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())))
    text.remove_suffix(1);
  return text;
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

std::string Base64(std::span<const std::byte> bytes) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    const std::size_t have = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t k = 0; k < 3; ++k)
      group = group << 8 | (k < have ? std::to_integer<std::uint32_t>(bytes[i + k]) : 0);
    for (std::size_t k = 0; k < 4; ++k)
      out += k <= have ? kAlphabet[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace zt::remote::internal
