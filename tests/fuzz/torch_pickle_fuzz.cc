// Any bytes as the pickle of a PyTorch archive that is otherwise sound, with four storages: every
// tensor the pickle describes lies within them and can be read.
#include "../zip_maker.h"
#include "fuzz.h"

import zt.convert.torch;
import zt.core;
import zt.source;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<zt_test::Entry> entries = {
      {.name = "a/data.pkl", .content = std::string(reinterpret_cast<const char*>(data), size)}};
  for (const std::string key : {"0", "1", "2", "3"}) {
    entries.push_back({.name = "a/data/" + key, .content = std::string(key == "3" ? 0 : 96, '\0')});
  }
  const std::string bytes = zt_test::Zip(entries);
  const auto source = zt::OpenTorch(zt::MemoryBytes(std::as_bytes(std::span(bytes)), "input"),
                                    "stem", {.memory_limit = std::uint64_t{1} << 20});
  if (!source.ok()) return 0;
  std::set<std::string_view> names;  // of which one may be empty, as a key may
  for (const zt::Object& object : (*source)->objects()) {
    ZT_FUZZ_CHECK(names.insert(object.name).second);
  }
  FuzzUse<zt::ComponentId>(**source);
  return 0;
}
