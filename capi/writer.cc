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

// Runs `body`, which returns a zt::Status. The writer's own errors name the tensor; here they name the file, too.
template <typename Body>
zts_status Run(const zts_writer* writer, Body&& body) {
  return Guard([&] { return Report(zt::WithFile(body(), writer->path)); });
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
    return zt::WithTensor(zt::InvalidArgument("no such dtype: " + zt::Quote(dtype)), name);
  }
  auto object = zt::DenseObject(name, zt::Shape(shape, shape + rank), *element);
  if (!object.ok()) return zt::WithTensor(zt::OfCaller(object.status()), name);
  return object;
}

std::span<const std::byte> Bytes(const void* data, std::uint64_t bytes) {
  return {static_cast<const std::byte*>(data), static_cast<std::size_t>(bytes)};
}

// Data may be null where there is none.
zt::Status CheckData(const void* data, std::uint64_t bytes) {
  return bytes == 0 ? zt::OkStatus() : zt::capi::NotNull(data, "data");
}

template <typename T>
zts_status Set(zts_writer* writer, const char* key, T value) {
  return Run(writer, [&]() -> zt::Status {
    ZT_RETURN_IF_ERROR(zt::capi::NotNull(key, "key"));
    if constexpr (std::is_pointer_v<T>) ZT_RETURN_IF_ERROR(zt::capi::NotNull(value, "value"));
    if (writer->finished) return zt::FailedPrecondition("the writer is finished");
    writer->writer->SetAttribute(key, zt::Value(value));
    return zt::OkStatus();
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
    if (auto status = zt::capi::NotNull(path, "path"); !status.ok()) return Report(status);
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
  return Run(writer, [&]() -> zt::Status {
    ZT_ASSIGN_OR_RETURN(zt::Object object, Dense(name, dtype, shape, rank));
    ZT_RETURN_IF_ERROR(CheckData(data, bytes));
    return writer->writer->Add(name, std::move(object.shape), object.components[0].element,
                               Bytes(data, bytes));
  });
}

zts_status zts_writer_alias(zts_writer* writer, const char* name, const char* of) {
  return Run(writer, [&]() -> zt::Status {
    ZT_RETURN_IF_ERROR(zt::capi::NotNull(name, "a name"));
    ZT_RETURN_IF_ERROR(zt::capi::NotNull(of, "a name"));
    return writer->writer->AddAlias(name, of);
  });
}

zts_status zts_writer_begin(zts_writer* writer, const char* name, const char* dtype,
                            const std::uint64_t* shape, std::size_t rank) {
  return Run(writer, [&]() -> zt::Status {
    ZT_ASSIGN_OR_RETURN(zt::Object object, Dense(name, dtype, shape, rank));
    ZT_ASSIGN_OR_RETURN(writer->object, writer->writer->Begin(std::move(object)));
    return zt::OkStatus();
  });
}

zts_status zts_writer_append(zts_writer* writer, const void* data, std::uint64_t bytes) {
  return Run(writer, [&]() -> zt::Status {
    if (writer->object == nullptr) return zt::FailedPrecondition("no tensor was begun");
    ZT_RETURN_IF_ERROR(CheckData(data, bytes));
    return writer->object->Append(Bytes(data, bytes));
  });
}

zts_status zts_writer_end(zts_writer* writer) {
  return Run(writer, [&] {
    if (writer->object == nullptr) return zt::FailedPrecondition("no tensor was begun");
    const std::unique_ptr<zt::ObjectWriter> object = std::move(writer->object);
    return object->Finish();
  });
}

zts_status zts_writer_flush(zts_writer* writer) {
  return Run(writer, [&] { return writer->writer->Flush(); });
}

zts_status zts_writer_finish(zts_writer* writer) {
  return Run(writer, [&] {
    const zt::Status status = writer->writer->Finish();
    writer->finished = status.ok();
    return status;
  });
}

}  // extern "C"
