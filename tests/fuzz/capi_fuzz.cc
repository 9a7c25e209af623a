// capi_fuzz.cc — the C interface, driven by bytes: an input is a file that is opened and read,
// and a list of calls on a writer, whose arguments point to something or are null.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "ztstream/c.h"

namespace {

constexpr std::uint64_t kMost = 1 << 20;  // of a component that is read

void Require(bool kept) {
  if (!kept) std::abort();
}

// Takes small numbers from the end of the input.
class Choices {
 public:
  Choices(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  unsigned Next(unsigned below) { return size_ == 0 ? 0 : data_[--size_] % below; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

void Read(const zts_reader* reader, std::size_t first, const zts_component& part,
          Choices& choices) {
  const std::size_t number = first - part.object;  // mostly 0
  if (part.bytes > kMost) return;
  std::vector<char> whole(part.bytes + 1), piece(part.bytes + 1);
  const zts_range range = {part.object, choices.Next(2), 0, part.bytes, whole.data()};
  const zts_status many = zts_reader_read_many(reader, &range, 1, sizeof range, nullptr);
  const std::uint64_t offset = part.bytes == 0 ? 0 : choices.Next(255) % part.bytes;
  const zts_status one = zts_reader_read(reader, range.object, range.component, offset,
                                         piece.data(), part.bytes - offset);
  if (many == ZTS_OK && one == ZTS_OK) {
    Require(std::memcmp(piece.data(), whole.data() + offset, part.bytes - offset) == 0);
  }
  void* data;
  std::uint64_t bytes;
  Require(zts_reader_map(reader, part.object, number, &data, &bytes) != ZTS_OK);  // it is no file
}

void Look(const std::uint8_t* data, std::size_t size) {
  int released = 0;
  zts_reader* reader;
  const auto release = [](void* user) { ++*static_cast<int*>(user); };
  const zts_status status =
      zts_reader_open_memory(data, size, "input", release, &released, nullptr, &reader);
  Require((status == ZTS_OK) == (reader != nullptr) && released == (status == ZTS_OK ? 0 : 1));
  if (status != ZTS_OK) {
    Require(*zts_last_error() != 0);
    return;
  }
  Choices choices(data, size);
  const std::size_t objects = zts_reader_count(reader);
  const std::size_t components = zts_reader_component_count(reader);
  std::vector<zts_object> names(std::min<std::size_t>(objects, 100));
  Require(zts_reader_objects(reader, 0, names.size(), names.data(), sizeof(zts_object)) == ZTS_OK);
  for (const zts_object& each : names) {
    std::size_t found;
    char* json;
    Require(zts_reader_find(reader, each.name, each.name_bytes, &found) == ZTS_OK);
    Require(&each - names.data() == static_cast<std::ptrdiff_t>(found));
    if (zts_reader_attributes(reader, found, &json) == ZTS_OK) zts_free(json);
  }
  std::vector<zts_component> parts(std::min<std::size_t>(components, 100));
  Require(zts_reader_components(reader, 0, parts.size(), parts.data(), sizeof(zts_component)) ==
          ZTS_OK);
  for (std::size_t i = 0; i < parts.size(); ++i) Read(reader, i, parts[i], choices);
  zts_verify_report report;
  zts_call call;
  zts_call_init(&call, sizeof call);
  call.threads = 1;
  if (size < kMost) {
    zts_reader_verify(reader, ZTS_FILE, nullptr, nullptr, &report, sizeof report, &call);
  }
  zts_reader_retain(reader);
  zts_reader_free(reader);
  Require(released == 0);
  zts_reader_free(reader);
  Require(released == 1);
}

// Texts of which one is chosen.
const char* const kNames[] = {"a", "b", "values", "", nullptr, "indices"};
const char* const kTypes[] = {"f32", "u64", "bf16", "f4_e2m1", nullptr, "x"};
const char* const kFormats[] = {nullptr, "dense", "sparse_csr", "own/1", "", "sparse_coo"};
const char* const kJson[] = {"{}", R"({"a":[1,{"$bytes":"00"}]})", nullptr, "{", "[]", "0"};

void CallWriter(zts_writer* writer, Choices& choices, const char* room) {
  const auto text = [&choices](const char* const(&texts)[6]) { return texts[choices.Next(6)]; };
  const std::uint64_t shape[3] = {choices.Next(4), choices.Next(4), choices.Next(4)};
  const std::uint64_t bytes = choices.Next(40);
  const zts_part parts[2] = {{text(kNames), text(kTypes), room, bytes},
                             {text(kNames), text(kTypes), nullptr, choices.Next(3)}};
  zts_declaration declared = {};
  declared.size = choices.Next(16) == 0 ? 0 : sizeof declared;
  declared.name = text(kNames);
  declared.name_bytes = ZTS_TERMINATED;
  declared.format = text(kFormats);
  declared.shape = shape;
  declared.rank = choices.Next(4);
  declared.attributes = text(kJson);
  declared.parts = parts;
  declared.part_count = choices.Next(3);
  declared.part_size = sizeof(zts_part);
  switch (choices.Next(12)) {
    case 0:
      zts_writer_set_json(writer, text(kJson));
      return;
    case 1:
      zts_writer_alias(writer, text(kNames), ZTS_TERMINATED, text(kNames), ZTS_TERMINATED);
      return;
    case 2:
      zts_writer_add_object(writer, &declared);
      return;
    case 3:
      zts_writer_begin(writer, &declared);
      return;
    case 4:
    case 5:
      zts_writer_append(writer, room, bytes);
      return;
    case 6:
      zts_writer_next(writer);
      return;
    case 7:
      zts_writer_end(writer);
      return;
    case 8:
      zts_writer_set_leading_dimension(writer, shape[0]);
      return;
    case 9:
      zts_writer_flush(writer);
      return;
    default:
      zts_writer_add(writer, declared.name, ZTS_TERMINATED, text(kTypes), shape, declared.rank,
                     choices.Next(8) == 0 ? nullptr : room, bytes);
  }
}

// What is written is read back without a fault.
void Write(const std::uint8_t* data, std::size_t size) {
  Choices choices(data, std::min<std::size_t>(size, 400));
  std::string out;
  zts_sink sink = {};
  sink.size = sizeof sink;
  sink.append = [](const void* bytes, std::size_t count, void* user) {
    static_cast<std::string*>(user)->append(static_cast<const char*>(bytes), count);
    return 0;
  };
  sink.abort = [](void* user) { static_cast<std::string*>(user)->clear(); };
  sink.user = &out;
  zts_writer_options options;
  zts_writer_options_init(&options, sizeof options);
  options.threads = 1;
  options.compress = static_cast<int>(choices.Next(3));
  options.spec = choices.Next(2) == 0 ? "1.2" : "2.0";
  zts_writer* writer;
  if (zts_writer_open_sink(&sink, &options, &writer) != ZTS_OK) return;
  const std::string room(64, '\0');
  while (!choices.empty()) CallWriter(writer, choices, room.data());
  const bool finished = zts_writer_finish(writer) == ZTS_OK;
  zts_writer_free(writer);
  if (!finished) return;
  zts_reader* reader;
  Require(zts_reader_open_memory(out.data(), out.size(), "written", nullptr, nullptr, nullptr,
                                 &reader) == ZTS_OK);
  const zts_status status =
      zts_reader_verify(reader, ZTS_FILE, nullptr, nullptr, nullptr, 0, nullptr);
  Require(status == ZTS_OK || status == ZTS_UNVERIFIED);
  zts_reader_free(reader);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Look(data, size);
  Write(data, size);
  return 0;
}
