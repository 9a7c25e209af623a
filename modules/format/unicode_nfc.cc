// zt.format — checks that names are in Unicode Normalization Form C, which the canonical form of
// 2.0 requires.
module;

#include <utf8proc.h>

module zt.format;

import zt.std;

namespace zt {

bool IsNormalized(std::string_view text) {
  if (std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; })) {
    return true;
  }
  utf8proc_uint8_t* composed = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &composed,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(composed, &std::free);
  return size >= 0 && std::string_view(reinterpret_cast<const char*>(composed),
                                       static_cast<std::size_t>(size)) == text;
}

}  // namespace zt
