// zt.remote:answers — what servers say, taken apart: no byte of it is trusted. For the module, its tests and fuzz target.
export module zt.remote:answers;

import zt.std;

export namespace zt::remote::internal {

// "bytes 0-9/100" taken apart; nullopt where it is not so.
struct ContentRange {
  std::uint64_t first = 0, last = 0, total = 0;
};
std::optional<ContentRange> ParseContentRange(std::string_view text);
// %XX undone; what is no such escape stays.
std::string PercentDecoded(std::string_view text);

// "&lt;" and the like undone.
std::string XmlDecoded(std::string_view text);
// Calls `each(name, text)` for every element that holds text or nothing, and `end(name)` at the end of every element, in the
// order of the document, names without their prefix. False where it is no well-formed XML, as far as that was looked at.
bool ScanXml(std::string_view xml,
             const std::function<void(std::string_view name, const std::string& text)>& each,
             const std::function<void(std::string_view name)>& end = {});
// The text of the first element of that name; empty where there is none.
std::string XmlText(std::string_view xml, std::string_view name);
// The name of the root element.
std::string XmlRoot(std::string_view xml);

// The URL of `<URL>; rel="next"` in a Link field; empty where there is none.
std::string NextPage(std::string_view link);

// The members of the JSON object `text` that are strings, in the order of `names`; empty where one is missing. False where it
// is no JSON object.
extern "C++" bool JsonStrings(std::string_view text, std::span<const std::string_view> names,
                              std::vector<std::string>& values);
// Appends path and size of every file of a page of the Hub's listing. False where it is none.
extern "C++" bool JsonTree(std::string_view text,
                           std::vector<std::pair<std::string, std::uint64_t>>& files);

}  // namespace zt::remote::internal
