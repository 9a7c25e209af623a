// zt.remote:answers — parsers for the answers of servers, which are not trusted. For the module,
// its tests and its fuzz target.
export module zt.remote:answers;

import zt.std;

export namespace zt::remote::internal {

// Parses "bytes 0-9/100"; nullopt for anything else.
struct ContentRange {
  std::uint64_t first = 0, last = 0, total = 0;
};
std::optional<ContentRange> ParseContentRange(std::string_view text);
// Decodes %XX. Invalid escapes stay as they are.
std::string PercentDecoded(std::string_view text);

// Decodes "&lt;" and the like.
std::string XmlDecoded(std::string_view text);
// Calls `each(name, text)` for every element without child elements, and `end(name)` at the end of
// every element, in the order of the document. Names have no prefix. Returns false if the part that
// it reads is not well-formed.
bool ScanXml(std::string_view xml,
             const std::function<void(std::string_view name, const std::string& text)>& each,
             const std::function<void(std::string_view name)>& end = {});
// The text of the first element with this name; empty if there is none.
std::string XmlText(std::string_view xml, std::string_view name);
// The name of the root element.
std::string XmlRoot(std::string_view xml);

// The URL of `<URL>; rel="next"` in a Link field; empty if there is none.
std::string NextPage(std::string_view link);

// Reads string members of the JSON object `text`, in the order of `names`; a missing one is empty.
// Returns false if it is not a JSON object.
extern "C++" bool JsonStrings(std::string_view text, std::span<const std::string_view> names,
                              std::vector<std::string>& values);
// Appends path and size of every file in a page of a listing of the Hub. Returns false if it is not
// such a page.
extern "C++" bool JsonTree(std::string_view text,
                           std::vector<std::pair<std::string, std::uint64_t>>& files);

}  // namespace zt::remote::internal
