// writer.cc — the C interface: writing.
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "capi/status.h"
#include "ztstream/c.h"
#include "ztstream/status_macros.h"

import zt;
import zt.capi;
import zt.open;
import zt.remote;

using zt::capi::Guard;
using zt::capi::Null;
using zt::capi::Report;

struct zts_writer {
  std::string path;
  std::unique_ptr<zt::ObjectWriter> object;  // the current object; destroyed before the writer
  std::unique_ptr<zt::Writer> writer;
  zts_progress progress = nullptr;
  void* user = nullptr;
  std::shared_ptr<std::atomic<std::uint64_t>> done;  // bytes, for `progress`
  pid_t process = ::getpid();
  bool finished = false;
};

namespace {

// The threads of the writer exist only in the process that opened it.
zt::Status CheckProcess(const zts_writer* writer) {
  if (writer->process == ::getpid()) return zt::OkStatus();
  return zt::FailedPrecondition("the writer can only be used in the process that opened it");
}

// Runs `body`, which returns a zt::Status. Errors name the file.
template <typename Body>
zts_status Run(const zts_writer* writer, Body&& body) {
  if (writer == nullptr) return Null("writer");
  return Guard([&] {
    zt::Status status = CheckProcess(writer);
    if (status.ok()) status = body();
    return Report(zt::WithFile(status, writer->path));
  });
}

// Adding at least this many bytes may block on the disk.
constexpr std::uint64_t kManyBytes = 4 << 20;

// Runs a long `body` while the progress function of the writer is called.
template <typename Body>
zts_status RunLong(zts_writer* writer, Body&& body, std::uint64_t bytes = kManyBytes) {
  return Run(writer, [&] {
    std::function<bool()> poll;
    if (writer->progress != nullptr && bytes >= kManyBytes) {
      poll = [writer] { return writer->progress(*writer->done, 0, writer->user) == 0; };
    }
    return zt::capi::RunWatched(
        poll, [writer] { writer->writer->Cancel(zt::capi::CancelledStatus()); }, body);
  });
}

zt::Status NotNull(const void* pointer, const char* name) {
  if (pointer != nullptr) return zt::OkStatus();
  return zt::InvalidArgument(std::string(name) + " must not be null");
}

zt::StatusOr<zt::WriterOptions> Options(const zts_writer_options& from) {
  zt::WriterOptions options;
  ZT_RETURN_IF_ERROR(NotNull(from.spec, "spec"));
  const auto spec = zt::ParseSpecVersion(from.spec);
  if (!spec) return zt::InvalidArgument("no such version of the format: " + zt::Quote(from.spec));
  options.spec = *spec;
  if (from.digest != nullptr) {
    const auto digest = zt::ParseDigestKind(from.digest);
    if (!digest) return zt::InvalidArgument("no such digest: " + zt::Quote(from.digest));
    options.storage.digest = *digest;
  }
  switch (from.compress) {
    case ZTS_RAW:
      break;
    case ZTS_ZSTD:
      options.storage.compression = zt::Compression::kIfGain;
      break;
    case ZTS_PLANES:
      options.storage.compression = zt::Compression::kIfGain;
      options.storage.encoding = zt::Encoding::kPlanes;
      break;
    default:
      return zt::InvalidArgument("no such compression: " + std::to_string(from.compress));
  }
  options.zstd.level = from.level;
  options.min_gain = from.min_gain;
  options.threads = from.threads;
  options.memory_bytes = from.memory_bytes;
  return options;
}

// Makes a writer to the sink that `open` returns. Errors name the file `path`.
template <typename Open>
zts_status OpenBy(std::string path, const zts_writer_options* given, zts_writer** out,
                  Open&& open) {
  return Guard([&] {
    zts_writer_options chosen;
    zts_writer_options_init(&chosen, sizeof chosen);
    if (!zt::capi::Take(given, chosen)) {
      return zt::capi::Fail(ZTS_INVALID_ARGUMENT,
                            "the options were not filled by zts_writer_options_init");
    }
    auto options = Options(chosen);
    if (!options.ok()) return Report(options.status());
    auto done = std::make_shared<std::atomic<std::uint64_t>>(0);
    if (chosen.progress != nullptr) {
      options->progress = [done](const zt::Progress& now) { *done = now.bytes; };
    }
    zt::StatusOr<std::unique_ptr<zt::Sink>> sink = open(chosen);
    if (!sink.ok()) return Report(zt::WithFile(sink.status(), path));
    auto writer = zt::Writer::Create(*std::move(sink), *std::move(options));
    if (!writer.ok()) return Report(zt::WithFile(writer.status(), path));
    *out = new zts_writer{.path = std::move(path),
                          .object = nullptr,
                          .writer = *std::move(writer),
                          .progress = chosen.progress,
                          .user = chosen.user,
                          .done = std::move(done)};
    return ZTS_OK;
  });
}

std::span<const std::byte> Bytes(const void* data, std::uint64_t bytes) {
  return {static_cast<const std::byte*>(data), static_cast<std::size_t>(bytes)};
}

// Data may be null if it has no bytes.
zt::Status CheckData(const void* data, std::uint64_t bytes) {
  return bytes == 0 ? zt::OkStatus() : NotNull(data, "data");
}

zt::StatusOr<zt::ElementType> Type(const char* dtype) {
  ZT_RETURN_IF_ERROR(NotNull(dtype, "dtype"));
  if (auto type = zt::FindTypeName(dtype)) return *std::move(type);
  return zt::InvalidArgument(zt::Quote(dtype) + " is not a type; types are " + zt::TypeNames());
}

zt::StatusOr<zt::Object> Dense(std::string_view name, const char* dtype, const std::uint64_t* shape,
                               std::size_t rank) {
  if (rank != 0) ZT_RETURN_IF_ERROR(NotNull(shape, "shape"));
  const auto element = Type(dtype);
  if (!element.ok()) return zt::WithTensor(element.status(), name);
  auto object = zt::DenseObject(std::string(name), zt::Shape(shape, shape + rank), *element);
  if (!object.ok()) return zt::WithTensor(zt::AsInvalidArgument(object.status()), name);
  return object;
}

// A declaration as an object, with the data of its parts.
struct Declared {
  zt::Object object;
  std::vector<std::span<const std::byte>> data;
};

// `with_data`: the parts include their data.
zt::StatusOr<Declared> Declare(const zts_declaration* given, bool with_data) {
  ZT_RETURN_IF_ERROR(NotNull(given, "declaration"));
  zts_declaration d = {};
  if (!zt::capi::Take(given, d)) return zt::InvalidArgument("zts_declaration.size is not set");
  ZT_RETURN_IF_ERROR(NotNull(d.name, "the tensor's name"));
  Declared out;
  out.object.name = zt::capi::Text(d.name, d.name_bytes);
  if (d.format != nullptr) out.object.format = d.format;
  if (d.rank != 0) ZT_RETURN_IF_ERROR(NotNull(d.shape, "shape"));
  if (d.rank > zt::kMaxRank) return zt::InvalidArgument("the shape has more than 64 dimensions");
  out.object.shape = zt::Shape(d.shape, d.shape + d.rank);
  if (d.attributes != nullptr) {
    ZT_ASSIGN_OR_RETURN(out.object.attributes, zt::capi::ParseAttributes(d.attributes));
  }
  if (d.part_count != 0) ZT_RETURN_IF_ERROR(NotNull(d.parts, "parts"));
  for (std::size_t i = 0; i < d.part_count; ++i) {
    zts_part part = {};
    std::memcpy(&part, reinterpret_cast<const char*>(d.parts) + i * d.part_size,
                std::min(d.part_size, sizeof part));
    ZT_RETURN_IF_ERROR(NotNull(part.role, "role"));
    ZT_ASSIGN_OR_RETURN(const zt::ElementType element, Type(part.dtype));
    out.object.components.push_back({part.role, element, part.bytes});
    if (!with_data) continue;
    ZT_RETURN_IF_ERROR(CheckData(part.data, part.bytes));
    out.data.push_back(Bytes(part.data, part.bytes));
  }
  return out;
}

// Declare, with the name of the tensor in errors.
zt::StatusOr<Declared> DeclareNamed(const zts_declaration* given, bool with_data) {
  auto declared = Declare(given, with_data);
  if (declared.ok() || given == nullptr || given->size < sizeof(zts_declaration) ||
      given->name == nullptr) {
    return declared;
  }
  return zt::WithTensor(declared.status(), zt::capi::Text(given->name, given->name_bytes));
}

// What a manifest could not hold is refused where it is set, not when the file is finished.
zt::Status CheckUtf8(const char* text, const char* what) {
  if (zt::IsUtf8(text)) return zt::OkStatus();
  return zt::InvalidArgument(std::string(what) + " of an attribute is not UTF-8");
}

template <typename T>
zts_status Set(zts_writer* writer, const char* key, T value) {
  return Run(writer, [&]() -> zt::Status {
    ZT_RETURN_IF_ERROR(NotNull(key, "key"));
    ZT_RETURN_IF_ERROR(CheckUtf8(key, "the key"));
    if constexpr (std::is_pointer_v<T>) {
      ZT_RETURN_IF_ERROR(NotNull(value, "value"));
      ZT_RETURN_IF_ERROR(CheckUtf8(value, "the value"));
    }
    if (writer->finished) return zt::FailedPrecondition("the writer is finished");
    writer->writer->SetAttribute(key, zt::Value(value));
    return zt::OkStatus();
  });
}

// The sink of a caller, whose functions return 0 or an error number.
class CalledSink final : public zt::Sink {
 public:
  explicit CalledSink(const zts_sink& sink)
      : sink_(sink), name_(sink.name == nullptr ? "sink" : sink.name) {}
  ~CalledSink() override { CalledSink::Abort(); }
  CalledSink(const CalledSink&) = delete;
  CalledSink& operator=(const CalledSink&) = delete;
  const std::string& name() const override { return name_; }
  zt::Status Append(zt::Pieces pieces) override {
    for (const std::span<const std::byte> piece : pieces) {
      if (piece.empty()) continue;
      const int error = sink_.append(piece.data(), piece.size(), sink_.user);
      if (error != 0) return zt::IoError(error, "cannot write");
    }
    return zt::OkStatus();
  }
  zt::Status Finish(std::uint64_t total) override {
    const int error = sink_.finish == nullptr ? 0 : sink_.finish(total, sink_.user);
    if (error == 0) {
      ended_ = true;
      return zt::OkStatus();
    }
    Abort();
    return zt::IoError(error, "cannot finish");
  }
  void Abort() override {
    if (!std::exchange(ended_, true) && sink_.abort != nullptr) sink_.abort(sink_.user);
  }

 private:
  const zts_sink sink_;
  const std::string name_;
  bool ended_ = false;
};

zt::Status NoneBegun() { return zt::FailedPrecondition("no tensor was begun"); }

}  // namespace

extern "C" {

zts_status zts_type(const char* name, const char** dtype, std::size_t* bytes) {
  return Guard([&] {
    const auto type = Type(name);
    if (!type.ok()) return Report(type.status());
    const zt::LogicalType* const logical = zt::FindLogicalType(type->type);
    if (dtype != nullptr) *dtype = (logical ? logical->name : zt::Name(type->dtype)).data();
    if (bytes != nullptr) *bytes = zt::ElementBytes(*type);
    return ZTS_OK;
  });
}

void zts_writer_options_init(zts_writer_options* options, std::size_t size) {
  const zt::WriterOptions writes;
  zts_writer_options defaults = {};
  defaults.size = size;
  defaults.spec = "1.2";
  defaults.level = writes.zstd.level;
  defaults.min_gain = writes.min_gain;
  defaults.memory_bytes = writes.memory_bytes;
  defaults.sync = 1;
  if (options != nullptr) zt::capi::Give(defaults, options, size);
}

zts_status zts_writer_open(const char* path, const zts_writer_options* options, zts_writer** out) {
  if (out == nullptr) return Null("writer");
  *out = nullptr;
  if (path == nullptr) return Null("path");
  return OpenBy(path, options, out, [&](const zts_writer_options& chosen) {
    const auto store =
        zt::IsUrl(path) ? zt::MakeRemoteStore(zt::capi::RemoteOf(chosen)) : zt::LocalStore();
    return store->Create(path, {.overwrite = chosen.overwrite != 0, .sync = chosen.sync != 0});
  });
}

zts_status zts_writer_open_fd(int fd, const char* name, const zts_writer_options* options,
                              zts_writer** out) {
  if (out == nullptr) return Null("writer");
  *out = nullptr;
  const char* const called = name == nullptr ? "descriptor" : name;
  return OpenBy(called, options, out,
                [&](const zts_writer_options&) -> zt::StatusOr<std::unique_ptr<zt::Sink>> {
                  if (::fcntl(fd, F_GETFL) == -1) return zt::IoError(errno, "cannot write to it");
                  return zt::DescriptorSink(fd, called);
                });
}

zts_status zts_writer_open_sink(const zts_sink* given, const zts_writer_options* options,
                                zts_writer** out) {
  if (out == nullptr) return Null("writer");
  *out = nullptr;
  if (given == nullptr) return Null("sink");
  zts_sink sink = {};
  if (!zt::capi::Take(given, sink)) {
    return zt::capi::Fail(ZTS_INVALID_ARGUMENT, "zts_sink.size is not set");
  }
  if (sink.append == nullptr) return Null("append");
  return OpenBy(sink.name == nullptr ? "sink" : sink.name, options, out,
                [&](const zts_writer_options&) -> zt::StatusOr<std::unique_ptr<zt::Sink>> {
                  return std::make_unique<CalledSink>(sink);
                });
}

void zts_writer_free(zts_writer* writer) {
  // A forked child has none of its threads, and the temporary file belongs to the parent.
  if (writer != nullptr && writer->process == ::getpid()) delete writer;
}

zts_status zts_writer_set_text(zts_writer* writer, const char* key, const char* value) {
  return Set(writer, key, value);
}
zts_status zts_writer_set_int(zts_writer* writer, const char* key, std::int64_t value) {
  return Set(writer, key, value);
}
zts_status zts_writer_set_double(zts_writer* writer, const char* key, double value) {
  return Set(writer, key, value);
}
zts_status zts_writer_set_bool(zts_writer* writer, const char* key, int value) {
  return Set(writer, key, value != 0);
}

zts_status zts_writer_set_json(zts_writer* writer, const char* json) {
  return Run(writer, [&]() -> zt::Status {
    ZT_RETURN_IF_ERROR(NotNull(json, "json"));
    if (writer->finished) return zt::FailedPrecondition("the writer is finished");
    ZT_ASSIGN_OR_RETURN(const zt::Value::Map attributes, zt::capi::ParseAttributes(json));
    writer->writer->SetAttributes(attributes);
    return zt::OkStatus();
  });
}

zts_status zts_writer_add(zts_writer* writer, const char* name, std::size_t name_bytes,
                          const char* dtype, const std::uint64_t* shape, std::size_t rank,
                          const void* data, std::uint64_t bytes) {
  return RunLong(
      writer,
      [&]() -> zt::Status {
        ZT_RETURN_IF_ERROR(NotNull(name, "the tensor's name"));
        const std::string_view called = zt::capi::Text(name, name_bytes);
        ZT_ASSIGN_OR_RETURN(zt::Object object, Dense(called, dtype, shape, rank));
        ZT_RETURN_IF_ERROR(CheckData(data, bytes));
        return writer->writer->Add(object.name, std::move(object.shape),
                                   object.components[0].element, Bytes(data, bytes));
      },
      bytes);
}

zts_status zts_writer_alias(zts_writer* writer, const char* name, std::size_t name_bytes,
                            const char* of, std::size_t of_bytes) {
  return Run(writer, [&]() -> zt::Status {
    ZT_RETURN_IF_ERROR(NotNull(name, "a name"));
    ZT_RETURN_IF_ERROR(NotNull(of, "a name"));
    return writer->writer->AddAlias(std::string(zt::capi::Text(name, name_bytes)),
                                    zt::capi::Text(of, of_bytes));
  });
}

zts_status zts_writer_add_object(zts_writer* writer, const zts_declaration* declaration) {
  return RunLong(writer, [&]() -> zt::Status {
    ZT_ASSIGN_OR_RETURN(Declared declared, DeclareNamed(declaration, true));
    return writer->writer->Add(std::move(declared.object), std::move(declared.data));
  });
}

zts_status zts_writer_begin(zts_writer* writer, const zts_declaration* declaration) {
  return Run(writer, [&]() -> zt::Status {
    ZT_ASSIGN_OR_RETURN(Declared declared, DeclareNamed(declaration, false));
    ZT_ASSIGN_OR_RETURN(writer->object, writer->writer->Begin(std::move(declared.object)));
    return zt::OkStatus();
  });
}

zts_status zts_writer_append(zts_writer* writer, const void* data, std::uint64_t bytes) {
  return RunLong(
      writer,
      [&]() -> zt::Status {
        if (writer->object == nullptr) return NoneBegun();
        ZT_RETURN_IF_ERROR(CheckData(data, bytes));
        return writer->object->Append(Bytes(data, bytes));
      },
      bytes);
}

zts_status zts_writer_next(zts_writer* writer) {
  return Run(writer, [&] {
    return writer->object == nullptr ? NoneBegun() : writer->object->NextComponent();
  });
}

zts_status zts_writer_set_leading_dimension(zts_writer* writer, std::uint64_t size) {
  return Run(writer, [&] {
    return writer->object == nullptr ? NoneBegun() : writer->object->SetLeadingDimension(size);
  });
}

zts_status zts_writer_end(zts_writer* writer) {
  return Run(writer, [&] {
    if (writer->object == nullptr) return NoneBegun();
    const std::unique_ptr<zt::ObjectWriter> object = std::move(writer->object);
    return object->Finish();
  });
}

zts_status zts_writer_flush(zts_writer* writer) {
  return RunLong(writer, [&] { return writer->writer->Flush(); });
}

zts_status zts_writer_finish(zts_writer* writer) {
  return RunLong(writer, [&] {
    const zt::Status status = writer->writer->Finish();
    writer->finished = status.ok();
    return status;
  });
}

zts_status zts_writer_cancel(zts_writer* writer) {
  return Run(writer, [&] {
    writer->writer->Cancel(zt::capi::CancelledStatus());
    return zt::OkStatus();
  });
}

}  // extern "C"
