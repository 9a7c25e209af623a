// zt.cli:library — names of types, and Words, in a unit without the tables, since libztstream links
// it.
module zt.cli;

import zt.std;
import :library;
import :options;
import :output;
import zt;
import zt.convert.torch;

namespace zt::cli {

std::optional<ElementType> FindTypeName(std::string_view text, std::string* lower) {
  std::string name(text);
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const std::string_view prefix : {"torch.", "numpy.", "np."}) {
    if (name.starts_with(prefix)) name.erase(0, prefix.size());
  }
  if (name == "fp64" || name == "fp32" || name == "fp16") name.erase(1, 1);
  if (lower != nullptr) *lower = name;
  if (auto type = ParseElementType(name)) return type;
  return ParseTorchDtype(name);
}

std::string TypeNames() { return internal::Joined(internal::Words(kTypeNames), "and"); }

namespace internal {

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0, end; at < text.size(); at = end + 1) {
    end = std::min(text.find(' ', at), text.size());
    words.push_back(text.substr(at, end - at));
  }
  return words;
}

}  // namespace internal
}  // namespace zt::cli
