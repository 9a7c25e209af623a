// zip_maker — zip archives byte by byte, right and wrong.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zt_test {

// The low `width` bytes of `value`, little-endian.
inline std::string Le(std::uint64_t value, int width) {
  std::string out;
  for (int i = 0; i < width; ++i) out += i < 8 ? static_cast<char>(value >> (8 * i)) : '\0';
  return out;
}

// A zip archive. What is set in `entry` is written as it is, right or wrong.
struct Entry {
  std::string name;
  std::string content;
  bool deflate = false;
  int method = -1;     // instead of what `deflate` says
  int flags = 0x800;   // names are UTF-8
  bool zip64 = false;  // sizes and offset in the extra field
  bool bad_crc = false;
  long long declared = -1;      // decoded size, instead of the content's
  std::string local_name = "";  // instead of `name`
  std::string tail = "";        // bytes after the compressed ones, counted as theirs
};

inline std::string Deflate(std::string_view content) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, content.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

struct ZipOptions {
  bool zip64_end = false;
  std::string comment = "";
  long long announced = -1;  // entries, instead of how many there are
};

inline std::string Zip(const std::vector<Entry>& entries, const ZipOptions& options = {}) {
  std::string out, directory;
  for (const Entry& entry : entries) {
    const std::string stored =
        (entry.deflate ? Deflate(entry.content) : entry.content) + entry.tail;
    const auto size = entry.declared >= 0 ? static_cast<std::uint64_t>(entry.declared)
                                          : std::uint64_t{entry.content.size()};
    std::uint64_t crc =
        ::crc32_z(0, reinterpret_cast<const Bytef*>(entry.content.data()), entry.content.size());
    if (entry.bad_crc) crc ^= 1;
    const int method = entry.method >= 0 ? entry.method : entry.deflate ? 8 : 0;
    const std::string& local_name = entry.local_name.empty() ? entry.name : entry.local_name;
    const std::uint64_t offset = out.size();
    const std::string common = Le(method, 2) + Le(0, 2) + Le(0x21, 2) + Le(crc, 4);
    const auto in64 = [&](std::uint64_t value) { return Le(entry.zip64 ? 0xffffffff : value, 4); };
    const std::string extra = entry.zip64
                                  ? Le(0x9999, 2) + Le(3, 2) + "abc" + Le(1, 2) + Le(24, 2) +
                                        Le(size, 8) + Le(stored.size(), 8) + Le(offset, 8)
                                  : "";
    out += "PK\x03\x04" + Le(45, 2) + Le(entry.flags, 2) + common + in64(stored.size()) +
           in64(size) + Le(local_name.size(), 2) + Le(extra.size(), 2) + local_name + extra +
           stored;
    directory += "PK\x01\x02" + Le(45, 2) + Le(45, 2) + Le(entry.flags, 2) + common +
                 in64(stored.size()) + in64(size) + Le(entry.name.size(), 2) + Le(extra.size(), 2) +
                 Le(0, 2) + Le(0, 2) + Le(0, 2) + Le(0, 4) + in64(offset) + entry.name + extra;
  }
  const std::uint64_t at = out.size();
  const std::uint64_t count =
      options.announced >= 0 ? static_cast<std::uint64_t>(options.announced) : entries.size();
  out += directory;
  if (options.zip64_end) {
    const std::uint64_t end = out.size();
    out += "PK\x06\x06" + Le(44, 8) + Le(45, 2) + Le(45, 2) + Le(0, 4) + Le(0, 4) + Le(count, 8) +
           Le(count, 8) + Le(directory.size(), 8) + Le(at, 8);
    out += "PK\x06\x07" + Le(0, 4) + Le(end, 8) + Le(1, 4);
  }
  const bool end64 = options.zip64_end;
  return out + "PK\x05\x06" + Le(0, 4) + Le(end64 ? 0xffff : count, 2) +
         Le(end64 ? 0xffff : count, 2) + Le(end64 ? 0xffffffff : directory.size(), 4) +
         Le(end64 ? 0xffffffff : at, 4) + Le(options.comment.size(), 2) + options.comment;
}

}  // namespace zt_test
