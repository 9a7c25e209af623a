// Any bytes as a sharded checkpoint's index.json: every shard it names is a file of the folder itself.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "fuzz.h"

import zt.convert.shards;
import zt.core;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto map = zt::ParseShardIndex(std::string(reinterpret_cast<const char*>(data), size));
  if (!map.ok()) return 0;
  for (const auto& [tensor, shard] : *map) {
    const std::filesystem::path path(shard);
    ZT_FUZZ_CHECK(!shard.empty() && shard != "." && shard != "..");
    ZT_FUZZ_CHECK(path.is_relative() && path.filename() == path);
    ZT_FUZZ_CHECK(shard.find('\0') == shard.npos);
  }
  return 0;
}
