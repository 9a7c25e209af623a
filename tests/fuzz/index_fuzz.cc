// Any bytes as a sharded checkpoint's index.json: every shard it names is a file of
// the folder itself.
#include "fuzz.h"

import zt.convert.shards;
import zt.core;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto index = zt::ParseShardIndex(std::string(reinterpret_cast<const char*>(data), size));
  if (!index.ok()) return 0;
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : index->weight_map) shards.insert(shard);
  for (const auto& [shard, file] : index->files) shards.insert(shard);
  for (const std::string& shard : shards) {
    const std::filesystem::path path(shard);
    ZT_FUZZ_CHECK(!shard.empty() && shard != "." && shard != "..");
    ZT_FUZZ_CHECK(path.is_relative() && path.filename() == path);
    ZT_FUZZ_CHECK(shard.find('\0') == shard.npos);
  }
  return 0;
}
