// reader.cc — the C interface: reading.
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "capi/status.h"
#include "ztstream/c.h"
#include "ztstream/status_macros.h"

import zt;
import zt.capi;
import zt.open;
import zt.remote;
import zt.text;

using zt::capi::Guard;
using zt::capi::Input;
using zt::capi::Null;
using zt::capi::Report;
using zt::capi::Watch;

struct zts_reader {
  std::atomic<int> users = 1;
  std::optional<pid_t> process;  // set for URLs: reading them needs a thread of this process
  std::unique_ptr<Input> input;
  // The number of the first component of each object, and at the end the number of all components.
  std::vector<std::size_t> first;
  std::string format, version;
  mutable zt::capi::Mappings mappings;
};

struct zts_pages {
  std::unique_ptr<zt::capi::Pages> pages;
};

namespace {

// Reports an error with the name of the file.
zts_status Fault(const zts_reader* reader, const zt::Status& status) {
  return Report(zt::WithFile(status, reader->input->name()));
}

zts_status NoObject(const zts_reader* reader, std::size_t index) {
  return Fault(reader, zt::InvalidArgument("there is no object number " + std::to_string(index)));
}

zt::ComponentId Id(std::size_t object, std::size_t component) {
  return {static_cast<std::uint32_t>(object), static_cast<std::uint32_t>(component)};
}

// ZTS_OK if this process may read bytes.
zts_status CheckProcess(const zts_reader* reader) {
  if (!reader->process || *reader->process == ::getpid()) return ZTS_OK;
  return Fault(reader, zt::FailedPrecondition(
                           "a URL is read by the process that has opened it; open it again here"));
}

// ZTS_OK if this component exists and this process may read it.
zts_status Check(const zts_reader* reader, std::size_t object, std::size_t component) {
  if (const zts_status own = CheckProcess(reader); own != ZTS_OK) return own;
  if (object >= reader->input->size()) return NoObject(reader, object);
  const auto view = reader->input->object(static_cast<std::uint32_t>(object));
  if (component < view.components) return ZTS_OK;
  return Fault(reader, zt::WithTensor(zt::InvalidArgument("there is no component number " +
                                                          std::to_string(component)),
                                      *view.name));
}

zts_status CheckCount(const zts_reader* reader, std::size_t first, std::size_t count,
                      std::size_t all, const char* what) {
  if (first <= all && count <= all - first) return ZTS_OK;
  return Fault(reader, zt::InvalidArgument("there are " + std::to_string(all) + " " + what));
}

// The common name of the type of an object, as `inspect` prints it.
const char* TypeOf(const zts_reader* reader, const zt::capi::ObjectView& object,
                   std::size_t index) {
  if (object.format == "dense" && object.components > 0) {
    return reader->input->component(Id(index, 0)).dtype.data();
  }
  std::string_view name = object.format;
  if (name.starts_with("gguf.")) name.remove_prefix(5);
  const std::size_t version = name.find('/');
  return version == name.npos ? name.data() : reader->input->Keep(name.substr(0, version)).data();
}

zts_object Describe(const zts_reader* reader, std::size_t index) {
  const auto object = reader->input->object(static_cast<std::uint32_t>(index));
  return {.name = object.name->c_str(),
          .name_bytes = object.name->size(),
          .format = object.format.data(),
          .type = TypeOf(reader, object, index),
          .shape = object.shape.empty() ? nullptr : object.shape.data(),
          .rank = object.shape.size(),
          .components = object.components,
          .first_component = reader->first[index],
          .path = object.path == nullptr ? nullptr : object.path->c_str()};
}

zts_component DescribeComponent(const zts_reader* reader, std::size_t object,
                                std::size_t component) {
  const auto view = reader->input->component(Id(object, component));
  return {.object = object,
          .role = view.role.data(),
          .dtype = view.dtype.data(),
          .storage = view.storage.data(),
          .encoding = view.encoding.data(),
          .digest = view.digest.data(),
          .file = view.file.data(),
          .offset = view.offset,
          .length = view.length,
          .bytes = view.bytes,
          .unreadable = view.unreadable.data(),
          .mappable = view.mappable ? 1 : 0};
}

zt::StatusOr<zt::capi::OpenOptions> Options(const zts_reader_options* given) {
  zts_reader_options chosen;
  zts_reader_options_init(&chosen, sizeof chosen);
  if (!zt::capi::Take(given, chosen))
    return zt::InvalidArgument("the options were not filled by zts_reader_options_init");
  return zt::capi::OptionsOf(chosen);
}

// Makes a reader of the input that `open` returns. Errors name the file `name`.
template <typename Open>
zts_status OpenBy(std::string_view name, const zts_reader_options* given, zts_reader** out,
                  Open&& open) {
  return Guard([&] {
    const auto options = Options(given);
    if (!options.ok()) return Report(options.status());
    auto input = open(*options);
    if (!input.ok()) return Report(zt::WithFile(input.status(), name));
    auto reader = std::make_unique<zts_reader>();
    reader->input = *std::move(input);
    reader->format = reader->input->source().format();
    reader->version = reader->input->source().version();
    reader->first.reserve(reader->input->size() + 1);
    std::size_t components = 0;
    for (std::size_t i = 0; i < reader->input->size(); ++i) {
      reader->first.push_back(components);
      components += reader->input->object(static_cast<std::uint32_t>(i)).components;
    }
    reader->first.push_back(components);
    *out = reader.release();
    return ZTS_OK;
  });
}

// The program uses "-" for standard input; here it is the name of a file.
std::string AsPath(const char* path) { return std::string_view(path) == "-" ? "./-" : path; }

// Gets the attribute `key` of the file. `as` converts it to an optional, which is empty if the
// attribute has another type.
template <typename T, typename As>
zts_status Get(const zts_reader* reader, const char* key, const char* kind, T* out, As&& as) {
  if (reader == nullptr) return Null("reader");
  if (key == nullptr) return Null("key");
  if (out == nullptr) return Null("value");
  return Guard([&] {
    const zt::Value* const held = zt::FindMember(reader->input->source().attributes(), key);
    if (held == nullptr) {
      Fault(reader, zt::InvalidArgument("there is no attribute " + zt::Quote(key)));
      return ZTS_NOT_FOUND;
    }
    const auto got = as(*held);
    if (!got) {
      return Fault(reader, zt::InvalidArgument("attribute " + zt::Quote(key) + " is not " + kind));
    }
    *out = *got;
    return ZTS_OK;
  });
}

// A pointer that calls `release`, if it is set, when its last copy is destroyed.
std::shared_ptr<void> Released(void (*release)(void* user), void* user) {
  return {user, [release](void* held) {
            if (release != nullptr) release(held);
          }};
}

// The source of a caller, whose functions return 0 or an error number.
class CalledBytes final : public zt::ByteSource {
 public:
  CalledBytes(const zts_source& source, std::shared_ptr<void> kept)
      : kept_(std::move(kept)),
        source_(source),
        name_(source.name == nullptr ? "source" : source.name) {}
  const std::string& name() const override { return name_; }
  std::optional<std::uint64_t> size() const override { return source_.bytes; }
  bool sequential() const override { return false; }
  zt::Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    if (offset > source_.bytes || out.size() > source_.bytes - offset) {
      return zt::InvalidData("it ends at byte " + std::to_string(source_.bytes));
    }
    if (out.empty()) return zt::OkStatus();
    const int error = source_.read_at(offset, out.data(), out.size(), source_.user);
    return error == 0 ? zt::OkStatus() : zt::IoError(error, "cannot read");
  }

 private:
  const std::shared_ptr<void> kept_;
  const zts_source source_;
  const std::string name_;
};

// Maps a component that can be mapped by `map`, which returns its bytes.
template <typename Map>
zts_status MapBy(const zts_reader* reader, std::size_t object, std::size_t component, void** data,
                 std::uint64_t* bytes, Map&& map) {
  if (reader == nullptr) return Null("reader");
  if (data == nullptr) return Null("data");
  if (bytes == nullptr) return Null("bytes");
  return Guard([&] {
    if (const zts_status there = Check(reader, object, component); there != ZTS_OK) return there;
    const auto view = reader->input->component(Id(object, component));
    const std::string& name = *reader->input->object(static_cast<std::uint32_t>(object)).name;
    const auto placed = [&](const zt::Status& status) {
      return Report(zt::WithFile(zt::WithTensor(status, name), view.file));
    };
    if (!view.mappable) {
      return placed(zt::FailedPrecondition(
          "it cannot be mapped, because its bytes do not lie in a file unchanged; read it"));
    }
    zt::StatusOr<std::span<std::byte>> mapped = map(view);
    if (!mapped.ok()) return placed(mapped.status());
    *data = mapped->data();
    *bytes = mapped->size();
    return ZTS_OK;
  });
}

// Runs a long call with the threads and the progress function of the caller.
template <typename Body>
zts_status Long(const zts_call* given, Body&& body) {
  zts_call call;
  zts_call_init(&call, sizeof call);
  if (!zt::capi::Take(given, call)) {
    return zt::capi::Fail(ZTS_INVALID_ARGUMENT, "the call was not filled by zts_call_init");
  }
  if (call.threads > zt::kMaxThreads) {
    return zt::capi::Fail(ZTS_INVALID_ARGUMENT,
                          "the number of threads is too large; the limit is 1024");
  }
  Watch watch;
  std::function<bool()> poll;
  if (call.progress != nullptr) {
    poll = [&] { return call.progress(watch.done, watch.total, call.user) == 0; };
  }
  return Report(zt::capi::RunWatched(
      poll, [&] { watch.cancelled = true; }, [&] { return body(call.threads, watch); }));
}

// zts_reader_read_many, or zts_reader_update_many.
zts_status WithRanges(const zts_reader* reader, const zts_range* ranges, std::size_t count,
                      std::size_t size, const zts_call* call, bool update) {
  if (reader == nullptr) return Null("reader");
  if (ranges == nullptr && count != 0) return Null("ranges");
  return Guard([&] {
    std::vector<zt::capi::Range> wanted;
    wanted.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      zts_range range = {};
      std::memcpy(&range, reinterpret_cast<const char*>(ranges) + i * size,
                  std::min(size, sizeof range));
      if (range.out == nullptr && range.bytes != 0) return Null("out");
      const zts_status there = Check(reader, range.object, range.component);
      if (there != ZTS_OK) return there;
      wanted.push_back(
          {Id(range.object, range.component),
           range.offset,
           {static_cast<std::byte*>(range.out), static_cast<std::size_t>(range.bytes)}});
    }
    return Long(call, [&](unsigned threads, Watch& watch) {
      return update ? zt::capi::UpdateMany(*reader->input, wanted, threads, watch)
                    : zt::capi::ReadMany(*reader->input, wanted, threads, watch);
    });
  });
}

}  // namespace

extern "C" {

void zts_reader_options_init(zts_reader_options* options, std::size_t size) {
  zts_reader_options defaults = {};
  defaults.size = size;
  defaults.memory_bytes = zt::InputOptions().memory_limit;
  if (options != nullptr) zt::capi::Give(defaults, options, size);
}

zts_status zts_reader_open(const char* path, const zts_reader_options* options, zts_reader** out) {
  return zts_reader_open_all(&path, 1, options, out);
}

zts_status zts_reader_open_all(const char* const* paths, std::size_t count,
                               const zts_reader_options* options, zts_reader** out) {
  if (out == nullptr) return Null("reader");
  *out = nullptr;
  if (paths == nullptr) return Null("paths");
  if (count == 0) return zt::capi::Fail(ZTS_INVALID_ARGUMENT, "no path is given");
  for (std::size_t i = 0; i < count; ++i) {
    if (paths[i] == nullptr) return Null("path");
  }
  bool urls = false;
  const zts_status status = OpenBy("", options, out, [&](const zt::capi::OpenOptions& args) {
    std::vector<std::string> all;
    for (std::size_t i = 0; i < count; ++i) all.push_back(AsPath(paths[i]));
    urls = std::ranges::any_of(all, [](const std::string& path) { return zt::IsUrl(path); });
    return zt::capi::OpenPaths(std::move(all), args, args.remote, args.numbers);
  });
  if (status == ZTS_OK && urls) (*out)->process = ::getpid();
  return status;
}

zts_status zts_reader_open_memory(const void* data, std::uint64_t bytes, const char* name,
                                  void (*release)(void* user), void* user,
                                  const zts_reader_options* options, zts_reader** out) {
  return Guard([&] {
    const std::shared_ptr<void> kept = Released(release, user);
    if (out == nullptr) return Null("reader");
    *out = nullptr;
    if (data == nullptr && bytes != 0) return Null("data");
    const char* const called = name == nullptr ? "memory" : name;
    return OpenBy(called, options, out, [&](const zt::capi::OpenOptions& args) {
      const std::span all(static_cast<const std::byte*>(data), static_cast<std::size_t>(bytes));
      const auto held = zt::MemoryBytes(all, called);
      return zt::capi::OpenBytes({held.get(), [held, kept](const zt::ByteSource*) {}}, args,
                                 args.numbers);
    });
  });
}

zts_status zts_reader_open_fd(int fd, const char* name, const zts_reader_options* options,
                              zts_reader** out) {
  if (out == nullptr) return Null("reader");
  *out = nullptr;
  const std::string called = name == nullptr ? "descriptor" : name;
  return OpenBy(called, options, out,
                [&](const zt::capi::OpenOptions& args) -> zt::StatusOr<std::unique_ptr<Input>> {
                  ZT_ASSIGN_OR_RETURN(auto bytes, zt::OpenDescriptor(fd, called));
                  return zt::capi::OpenBytes(std::move(bytes), args, args.numbers);
                });
}

zts_status zts_reader_open_source(const zts_source* given, const zts_reader_options* options,
                                  zts_reader** out) {
  if (out != nullptr) *out = nullptr;
  if (given == nullptr) return Null("source");
  zts_source source = {};
  if (!zt::capi::Take(given, source)) {
    return zt::capi::Fail(ZTS_INVALID_ARGUMENT, "zts_source.size is not set");
  }
  return Guard([&] {
    const std::shared_ptr<void> kept = Released(source.release, source.user);
    if (out == nullptr) return Null("reader");
    if (source.read_at == nullptr) return Null("read_at");
    auto bytes = std::make_shared<CalledBytes>(source, kept);
    return OpenBy(bytes->name(), options, out, [&](const zt::capi::OpenOptions& args) {
      return zt::capi::OpenBytes(bytes, args, args.numbers);
    });
  });
}

void zts_reader_retain(zts_reader* reader) {
  if (reader != nullptr) ++reader->users;
}

void zts_reader_free(zts_reader* reader) {
  if (reader == nullptr || --reader->users != 0) return;
  // In a forked child, a thread that does not exist there may hold a lock of a URL's source.
  if (!reader->process || *reader->process == ::getpid()) delete reader;
}

const char* zts_reader_format(const zts_reader* reader) {
  return reader == nullptr ? "" : reader->format.c_str();
}

const char* zts_reader_version(const zts_reader* reader) {
  return reader == nullptr ? "" : reader->version.c_str();
}

const char* zts_reader_warning(const zts_reader* reader, std::size_t index) {
  if (reader == nullptr || index >= reader->input->source().warnings().size()) return nullptr;
  return reader->input->source().warnings()[index].c_str();
}

std::size_t zts_reader_count(const zts_reader* reader) {
  return reader == nullptr ? 0 : reader->input->size();
}

std::size_t zts_reader_component_count(const zts_reader* reader) {
  return reader == nullptr ? 0 : reader->first.back();
}

zts_status zts_reader_objects(const zts_reader* reader, std::size_t first, std::size_t count,
                              zts_object* objects, std::size_t size) {
  if (reader == nullptr) return Null("reader");
  if (objects == nullptr && count != 0) return Null("objects");
  return Guard([&] {
    const zts_status there = CheckCount(reader, first, count, reader->input->size(), "objects");
    if (there != ZTS_OK) return there;
    for (std::size_t i = 0; i < count; ++i) {
      zt::capi::Give(Describe(reader, first + i), reinterpret_cast<char*>(objects) + i * size,
                     size);
    }
    return ZTS_OK;
  });
}

zts_status zts_reader_components(const zts_reader* reader, std::size_t first, std::size_t count,
                                 zts_component* components, std::size_t size) {
  if (reader == nullptr) return Null("reader");
  if (components == nullptr && count != 0) return Null("components");
  return Guard([&] {
    const auto& begins = reader->first;
    const zts_status there = CheckCount(reader, first, count, begins.back(), "components");
    if (there != ZTS_OK || count == 0) return there;
    std::size_t object = std::ranges::upper_bound(begins, first) - begins.begin() - 1;
    for (std::size_t i = 0; i < count; ++i) {
      while (begins[object + 1] <= first + i) ++object;
      zt::capi::Give(DescribeComponent(reader, object, first + i - begins[object]),
                     reinterpret_cast<char*>(components) + i * size, size);
    }
    return ZTS_OK;
  });
}

zts_status zts_reader_find(const zts_reader* reader, const char* name, std::size_t name_bytes,
                           std::size_t* object) {
  if (reader == nullptr) return Null("reader");
  if (name == nullptr) return Null("name");
  if (object == nullptr) return Null("object");
  return Guard([&] {
    const std::string_view wanted = zt::capi::Text(name, name_bytes);
    const auto found = reader->input->Find(wanted);
    if (!found) {
      Fault(reader, zt::InvalidArgument("there is no tensor " + zt::Quote(wanted)));
      return ZTS_NOT_FOUND;
    }
    *object = *found;
    return ZTS_OK;
  });
}

zts_status zts_reader_attributes(const zts_reader* reader, std::size_t object, char** json) {
  if (json == nullptr) return Null("json");
  *json = nullptr;
  if (reader == nullptr) return Null("reader");
  return Guard([&] {
    if (object != ZTS_FILE && object >= reader->input->size()) return NoObject(reader, object);
    std::string text;
    zt::AppendJson(object == ZTS_FILE
                       ? reader->input->source().attributes()
                       : *reader->input->object(static_cast<std::uint32_t>(object)).attributes,
                   text);
    *json = static_cast<char*>(std::malloc(text.size() + 1));
    if (*json == nullptr) throw std::bad_alloc();
    std::memcpy(*json, text.c_str(), text.size() + 1);
    return ZTS_OK;
  });
}

zts_status zts_reader_get_text(const zts_reader* reader, const char* key, const char** value,
                               std::size_t* bytes) {
  return Get(reader, key, "text", value,
             [bytes](const zt::Value& held) -> std::optional<const char*> {
               const std::string* const text = held.AsString();
               if (text == nullptr) return std::nullopt;
               if (bytes != nullptr) *bytes = text->size();
               return text->c_str();
             });
}

zts_status zts_reader_get_int(const zts_reader* reader, const char* key, std::int64_t* value) {
  return Get(reader, key, "an integer of 64 bits", value, [](const zt::Value& held) {
    return held.AsDouble() == nullptr ? held.Number<std::int64_t>() : std::nullopt;  // 1.0 is none
  });
}

zts_status zts_reader_get_double(const zts_reader* reader, const char* key, double* value) {
  return Get(reader, key, "a number", value,
             [](const zt::Value& held) { return held.Number<double>(); });
}

zts_status zts_reader_get_bool(const zts_reader* reader, const char* key, int* value) {
  return Get(reader, key, "a bool", value, [](const zt::Value& held) -> std::optional<int> {
    if (const bool* given = held.AsBool()) return *given ? 1 : 0;
    return std::nullopt;
  });
}

zts_status zts_reader_read(const zts_reader* reader, std::size_t object, std::size_t component,
                           std::uint64_t offset, void* out, std::uint64_t bytes) {
  if (reader == nullptr) return Null("reader");
  if (out == nullptr && bytes != 0) return Null("out");
  return Guard([&] {
    if (const zts_status there = Check(reader, object, component); there != ZTS_OK) return there;
    const std::span<std::byte> span(static_cast<std::byte*>(out), static_cast<std::size_t>(bytes));
    return Report(reader->input->Read(Id(object, component), offset, span));
  });
}

zts_status zts_reader_read_many(const zts_reader* reader, const zts_range* ranges,
                                std::size_t count, std::size_t size, const zts_call* call) {
  return WithRanges(reader, ranges, count, size, call, false);
}

zts_status zts_reader_update_many(const zts_reader* reader, const zts_range* ranges,
                                  std::size_t count, std::size_t size, const zts_call* call) {
  return WithRanges(reader, ranges, count, size, call, true);
}

zts_status zts_reader_map(const zts_reader* reader, std::size_t object, std::size_t component,
                          void** data, std::uint64_t* bytes) {
  return MapBy(reader, object, component, data, bytes, [&](const zt::capi::ComponentView& view) {
    return reader->mappings.Map(*view.container, view.offset, view.length);
  });
}

zts_status zts_reader_map_pages(const zts_reader* reader, std::size_t object, std::size_t component,
                                zts_pages** pages, void** data, std::uint64_t* bytes) {
  if (pages == nullptr) return Null("pages");
  *pages = nullptr;
  return MapBy(reader, object, component, data, bytes,
               [&](const zt::capi::ComponentView& view) -> zt::StatusOr<std::span<std::byte>> {
                 ZT_ASSIGN_OR_RETURN(auto mapped, zt::capi::Pages::Of(*view.container));
                 ZT_ASSIGN_OR_RETURN(const auto part, mapped->Part(view.offset, view.length));
                 *pages = new zts_pages{std::move(mapped)};
                 return part;
               });
}

void zts_pages_free(zts_pages* pages) { delete pages; }

zts_status zts_reader_advise(const zts_reader* reader, std::size_t object, std::size_t component,
                             int needed) {
  if (reader == nullptr) return Null("reader");
  return Guard([&] {
    if (const zts_status there = Check(reader, object, component); there != ZTS_OK) return there;
    zt::capi::Advise(reader->input->component(Id(object, component)), needed != 0);
    return ZTS_OK;
  });
}

zts_status zts_reader_verify(const zts_reader* reader, std::size_t object, zts_problem problem,
                             void* user, zts_verify_report* out, std::size_t size,
                             const zts_call* call) {
  if (reader == nullptr) return Null("reader");
  return Guard([&] {
    if (object != ZTS_FILE && object >= reader->input->size()) return NoObject(reader, object);
    if (const zts_status own = CheckProcess(reader); own != ZTS_OK) return own;
    zt::VerifyReport report;
    const zts_status status = Long(call, [&](unsigned threads, Watch& watch) -> zt::Status {
      std::optional<std::uint32_t> only;
      if (object != ZTS_FILE) only = static_cast<std::uint32_t>(object);
      ZT_ASSIGN_OR_RETURN(report, reader->input->Verify(only, threads, watch));
      return zt::OkStatus();
    });
    if (status != ZTS_OK) return status;
    const zts_verify_report counts = {.objects = report.objects,
                                      .components = report.components,
                                      .digests = report.digests,
                                      .unhashed = report.unhashed,
                                      .undecodable = report.undecodable.size(),
                                      .unchecked = report.unchecked.size(),
                                      .problems = report.problems.size()};
    if (out != nullptr) zt::capi::Give(counts, out, size);
    for (const zt::VerifyProblem& each : report.problems) {
      if (problem == nullptr) break;
      problem(each.object.c_str(), each.object.size(), each.component.c_str(), each.message.c_str(),
              user);
    }
    if (!report.problems.empty()) {
      const zt::VerifyProblem& first = report.problems[0];
      const zt::Status wrong = zt::InvalidData(first.message);
      return Fault(reader, first.object.empty() ? wrong : zt::WithTensor(wrong, first.object));
    }
    if (counts.unhashed + counts.undecodable + counts.unchecked == 0) return ZTS_OK;
    Fault(reader, zt::InvalidArgument("no fault was found, but not everything could be checked: " +
                                      std::to_string(counts.unhashed) +
                                      " components have no known digest"));
    return ZTS_UNVERIFIED;
  });
}

}  // extern "C"
