// zt.remote:answers — the small part of XML that S3 uses.
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

std::string XmlDecoded(std::string_view text) {
  constexpr std::pair<std::string_view, char> kNamed[] = {
      {"lt", '<'}, {"gt", '>'}, {"amp", '&'}, {"quot", '"'}, {"apos", '\''}};
  std::string out;
  while (!text.empty()) {
    const std::size_t at = std::min(text.find('&'), text.size());
    out += text.substr(0, at);
    text.remove_prefix(at);
    if (text.empty()) break;
    const std::size_t end = text.find_first_of(";& <", 1);
    if (end == text.npos || text[end] != ';' || end > 10) {
      out += '&';
      text.remove_prefix(1);
      continue;
    }
    std::string_view name = text.substr(1, end - 1);
    text.remove_prefix(end + 1);
    if (name.starts_with('#')) {
      name.remove_prefix(1);
      const int base = name.starts_with('x') ? 16 : 10;
      if (base == 16) name.remove_prefix(1);
      std::uint32_t point = 0;
      const auto read = std::from_chars(name.data(), name.data() + name.size(), point, base);
      AppendPoint(read.ec == std::errc() ? point : 0, out);
      continue;
    }
    for (const auto& [known, letter] : kNamed) {
      if (name == known) out += letter;
    }
  }
  return out;
}

bool ScanXml(std::string_view xml,
             const std::function<void(std::string_view name, const std::string& text)>& each,
             const std::function<void(std::string_view name)>& end) {
  constexpr std::string_view kRaw = "![CDATA[";
  std::vector<std::string_view> open;
  bool leaf = false;  // the innermost element has no child so far
  std::string text;   // since the last tag
  while (!xml.empty()) {
    const std::size_t begin = xml.find('<');
    if (begin == xml.npos) return open.empty();
    text += XmlDecoded(xml.substr(0, begin));
    xml.remove_prefix(begin + 1);
    const std::string_view end_mark = xml.starts_with("!--")  ? "-->"
                                      : xml.starts_with(kRaw) ? "]]>"
                                                              : ">";
    const std::size_t close = xml.find(end_mark);
    if (close == xml.npos) return false;
    const std::string_view tag = xml.substr(0, close);
    xml.remove_prefix(close + end_mark.size());
    if (tag.starts_with(kRaw)) text += tag.substr(kRaw.size());
    if (tag.starts_with('?') || tag.starts_with('!')) continue;
    const std::string element = std::exchange(text, {});
    const bool closes = tag.starts_with('/');
    const std::string_view name = NameOf(closes ? tag.substr(1) : tag);
    if (!closes) {
      if (name.empty() || open.size() > 32) return false;
      open.push_back(name);
      leaf = true;
      if (!tag.ends_with('/')) continue;
    }
    if (open.empty() || open.back() != name) return false;
    if (leaf) each(name, closes ? element : "");
    if (end) end(name);
    open.pop_back();
    leaf = false;
  }
  return open.empty();
}

std::string XmlText(std::string_view xml, std::string_view name) {
  std::optional<std::string> found;
  ScanXml(xml, [&](std::string_view element, const std::string& text) {
    if (element == name && !found) found = text;
  });
  return found.value_or("");
}

std::string XmlRoot(std::string_view xml) {
  for (std::size_t begin = xml.find('<'); begin != xml.npos; begin = xml.find('<', begin + 1)) {
    const std::string_view tag = xml.substr(begin + 1, xml.find('>', begin) - begin - 1);
    if (tag.starts_with('?') || tag.starts_with('!')) continue;
    return std::string(NameOf(tag));
  }
  return "";
}

StatusOr<ListPage> ParseListPage(std::string_view xml) {
  ListPage page;
  std::map<std::string, std::string> members;  // of the page, and of the row that is read
  const bool good = ScanXml(
      xml,
      [&](std::string_view name, const std::string& text) {
        members.insert_or_assign(std::string(name), text);
      },
      [&](std::string_view name) {
        if (name == "Contents")
          page.keys.push_back({members["Key"], NumberOf(members["Size"]), members["ETag"]});
        if (name == "CommonPrefixes") page.prefixes.push_back(members["Prefix"]);
        if (name != "Contents" && name != "CommonPrefixes") return;
        for (const char* const each : {"Key", "Size", "ETag", "Prefix"}) members.erase(each);
      });
  const bool nameless =
      std::ranges::any_of(page.keys, [](const auto& each) { return each.key.empty(); });
  if (!good || nameless || XmlRoot(xml) != "ListBucketResult")
    return InvalidData("the store's listing is not the XML that S3 describes");
  std::string marker = members["NextMarker"];
  page.next = members["NextContinuationToken"];
  if (Lower(Trimmed(members["EncodingType"])) == "url") {
    for (ListPage::Key& each : page.keys) each.key = KeyOf(std::move(each.key));
    for (std::string& name : page.prefixes) name = KeyOf(std::move(name));
    marker = KeyOf(std::move(marker));
  }
  const std::string truncated = Lower(Trimmed(members["IsTruncated"]));
  if (truncated == "false") page.next.clear();
  if (truncated == "false" || !page.next.empty()) return page;
  if (truncated != "true") return InvalidData("the store's listing does not say whether it ends");
  page.after_key = true;
  page.next = marker;
  if (marker.empty()) {
    for (const ListPage::Key& each : page.keys) page.next = std::max(page.next, each.key);
    for (const std::string& name : page.prefixes) page.next = std::max(page.next, name);
  }
  if (page.next.empty()) return InvalidData("the store's listing goes on and does not say where");
  return page;
}

}  // namespace zt::remote::internal
