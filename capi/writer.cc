// writer.cc — the C interface: errors, and writing.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "capi/status.h"
#include "ztstream/c.h"
#include "ztstream/status_macros.h"

import zt;

using zt::capi::Guard;
using zt::capi::Report;

struct zts_writer {
  std::string path;
  std::unique_ptr<zt::ObjectWriter> object;  // the one begun; dropped before the writer
  std::unique_ptr<zt::Writer> writer;
  bool finished = false;
};

namespace {

// The writer's own errors name the tensor; here they name the file, too, unless the sink has named it.
zts_status Report(const zts_writer* writer, const zt::Status& status) {
  if (status.ok() || zt::Message(status).starts_with(writer->path + ":"))
    return zt::capi::Report(status);
  return zt::capi::Report(zt::Annotate(status, writer->path));
}

zt::StatusOr<zt::WriterOptions> Options(const zts_writer_options& from) {
  zt::WriterOptions options;
  ZT_RETURN_IF_ERROR(zt::capi::NotNull(from.spec, "spec"));
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

zt::StatusOr<zt::Object> Dense(const char* name, const char* dtype, const std::uint64_t* shape,
                               std::size_t rank) {
  ZT_RETURN_IF_ERROR(zt::capi::NotNull(name, "the tensor's name"));
  ZT_RETURN_IF_ERROR(zt::capi::NotNull(dtype, "dtype"));
  if (rank != 0) ZT_RETURN_IF_ERROR(zt::capi::NotNull(shape, "shape"));
  const auto element = zt::ParseElementType(dtype);
  if (!element) {
    return zt::AnnotateTensor(zt::InvalidArgument("no such dtype: " + zt::Quote(dtype)), name);
  }
  auto object = zt::DenseObject(name, zt::Shape(shape, shape + rank), *element);
  if (!object.ok()) return zt::AnnotateTensor(zt::OfCaller(object.status()), name);
  return object;
}

std::span<const std::byte> Bytes(const void* data, std::uint64_t bytes) {
  return {static_cast<const std::byte*>(data), static_cast<std::size_t>(bytes)};
}

template <typename T>
zts_status Set(zts_writer* writer, const char* key, T value) {
  return Guard([&] {
    if (auto status = zt::capi::NotNull(key, "key"); !status.ok()) return Report(writer, status);
    if constexpr (std::is_pointer_v<T>) {
      if (auto status = zt::capi::NotNull(value, "value"); !status.ok()) {
        return Report(writer, status);
      }
    }
    if (writer->finished) return Report(writer, zt::FailedPrecondition("the writer is finished"));
    writer->writer->SetAttribute(key, zt::Value(value));
    return ZTS_OK;
  });
}

}  // namespace

extern "C" {

void zts_writer_options_init(zts_writer_options* options) {
  const zt::WriterOptions defaults;
  *options = {};
  options->size = sizeof *options;
  options->spec = "1.2";
  options->level = defaults.zstd.level;
  options->min_gain = defaults.min_gain;
  options->memory_bytes = defaults.memory_bytes;
  options->sync = 1;
}

zts_status zts_writer_open(const char* path, const zts_writer_options* given, zts_writer** out) {
  return Guard([&] {
    *out = nullptr;
    if (auto status = zt::capi::NotNull(path, "path"); !status.ok())
      return zt::capi::Report(status);
    zts_writer_options chosen;
    zts_writer_options_init(&chosen);
    // A caller compiled against an earlier header gives fewer members; those it lacks keep their default.
    if (given != nullptr) std::memcpy(&chosen, given, std::min(given->size, sizeof chosen));
    auto options = Options(chosen);
    if (!options.ok()) return Report(options.status());
    auto sink =
        zt::CreateFileSink(path, {.overwrite = chosen.overwrite != 0, .sync = chosen.sync != 0});
    if (!sink.ok()) return Report(sink.status());
    auto writer = zt::Writer::Create(*std::move(sink), *std::move(options));
    if (!writer.ok()) return Report(writer.status());
    *out = new zts_writer{.path = path, .object = nullptr, .writer = *std::move(writer)};
    return ZTS_OK;
  });
}

void zts_writer_free(zts_writer* writer) { delete writer; }

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

zts_status zts_writer_add(zts_writer* writer, const char* name, const char* dtype,
                          const std::uint64_t* shape, std::size_t rank, const void* data,
                          std::uint64_t bytes) {
  return Guard([&] {
    auto object = Dense(name, dtype, shape, rank);
    if (!object.ok()) return Report(writer, object.status());
    if (auto status = zt::capi::NotNull(data, "data"); bytes != 0 && !status.ok()) {
      return Report(writer, status);
    }
    const zt::ElementType element = object->components[0].element;
    return Report(writer,
                  writer->writer->Add(name, std::move(object->shape), element, Bytes(data, bytes)));
  });
}

zts_status zts_writer_alias(zts_writer* writer, const char* name, const char* of) {
  return Guard([&] {
    for (const char* each : {name, of}) {
      if (auto status = zt::capi::NotNull(each, "a name"); !status.ok()) {
        return Report(writer, status);
      }
    }
    return Report(writer, writer->writer->AddAlias(name, of));
  });
}

zts_status zts_writer_begin(zts_writer* writer, const char* name, const char* dtype,
                            const std::uint64_t* shape, std::size_t rank) {
  return Guard([&] {
    auto object = Dense(name, dtype, shape, rank);
    if (!object.ok()) return Report(writer, object.status());
    auto begun = writer->writer->Begin(*std::move(object));
    if (!begun.ok()) return Report(writer, begun.status());
    writer->object = *std::move(begun);
    return ZTS_OK;
  });
}

zts_status zts_writer_append(zts_writer* writer, const void* data, std::uint64_t bytes) {
  return Guard([&] {
    if (writer->object == nullptr)
      return Report(writer, zt::FailedPrecondition("no tensor was begun"));
    if (auto status = zt::capi::NotNull(data, "data"); bytes != 0 && !status.ok()) {
      return Report(writer, status);
    }
    return Report(writer, writer->object->Append(Bytes(data, bytes)));
  });
}

zts_status zts_writer_end(zts_writer* writer) {
  return Guard([&] {
    if (writer->object == nullptr)
      return Report(writer, zt::FailedPrecondition("no tensor was begun"));
    const std::unique_ptr<zt::ObjectWriter> object = std::move(writer->object);
    return Report(writer, object->Finish());
  });
}

zts_status zts_writer_flush(zts_writer* writer) {
  return Guard([&] { return Report(writer, writer->writer->Flush()); });
}

zts_status zts_writer_finish(zts_writer* writer) {
  return Guard([&] {
    const zt::Status status = writer->writer->Finish();
    writer->finished = status.ok();
    return Report(writer, status);
  });
}

}  // extern "C"
