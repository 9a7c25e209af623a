// zt.open:types — names of types.
module zt.open;

import zt.std;
import :types;
import zt.convert.torch;
import zt.core;
import zt.text;

namespace zt {

std::optional<ElementType> FindTypeName(std::string_view text, std::string* lower) {
  std::string name = Lower(text);
  for (const std::string_view prefix : {"torch.", "numpy.", "np."}) {
    if (name.starts_with(prefix)) name.erase(0, prefix.size());
  }
  if (name == "fp64" || name == "fp32" || name == "fp16") name.erase(1, 1);
  if (lower != nullptr) *lower = name;
  if (auto type = ParseElementType(name)) return type;
  return ParseTorchDtype(name);
}

std::string TypeNames() { return Joined(Words(kTypeNames), "and"); }

}  // namespace zt
