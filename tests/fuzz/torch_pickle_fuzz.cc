// Any bytes as the pickle of a PyTorch archive that is otherwise sound, with four storages: every tensor the pickle
// describes lies within them and can be read.
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "fuzz.h"

import zt.convert.torch;
import zt.core;
import zt.source;

namespace {

void Put(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += i < 8 ? static_cast<char>(value >> (8 * i)) : '\0';
}

// A zip archive of stored entries.
class Archive {
 public:
  void Add(std::string_view name, std::string_view data) {
    std::string fields;
    Put(fields, 20, 2);
    Put(fields, 0, 8);  // flags, method, time, date
    Put(fields, crc32_z(0, reinterpret_cast<const Bytef*>(data.data()), data.size()), 4);
    Put(fields, data.size(), 4);
    Put(fields, data.size(), 4);
    Put(fields, name.size(), 2);
    Put(fields, 0, 2);
    directory_ += "PK\x01\x02";
    Put(directory_, 20, 2);
    directory_ += fields;
    Put(directory_, 0, 10);  // comment, disk, attributes
    Put(directory_, bytes_.size(), 4);
    directory_ += name;
    bytes_ += "PK\x03\x04";
    bytes_ += fields;
    bytes_ += name;
    bytes_ += data;
    ++count_;
  }
  std::string Finish() {
    const std::uint64_t offset = bytes_.size();
    bytes_ += directory_;
    bytes_ += "PK\x05\x06";
    Put(bytes_, 0, 4);
    Put(bytes_, count_, 2);
    Put(bytes_, count_, 2);
    Put(bytes_, directory_.size(), 4);
    Put(bytes_, offset, 4);
    Put(bytes_, 0, 2);
    return std::move(bytes_);
  }

 private:
  std::string bytes_, directory_;
  std::uint64_t count_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Archive archive;
  archive.Add("a/data.pkl", std::string_view(reinterpret_cast<const char*>(data), size));
  for (const char* const key : {"0", "1", "2", "3"}) {
    archive.Add(std::string("a/data/") + key, std::string(key[0] == '3' ? 0 : 96, '\0'));
  }
  const std::string bytes = archive.Finish();
  zt::InputOptions options;
  options.memory_limit = std::uint64_t{1} << 20;
  const zt::StatusOr<std::unique_ptr<zt::TensorSource>> source =
      zt::OpenTorch(zt::MemoryBytes(std::as_bytes(std::span(bytes)), "input"), "stem", options);
  if (!source.ok()) return 0;
  std::set<std::string_view> names;  // of which one may be empty, as a key may
  for (const zt::Object& object : (*source)->objects()) {
    ZT_FUZZ_CHECK(names.insert(object.name).second);
  }
  (void)FuzzReadAll<zt::ComponentId>(**source, kFuzzReadLimit);
  (void)(*source)->Finish().ok();
  return 0;
}
