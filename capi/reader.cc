// reader.cc — the C interface: reading.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "capi/status.h"
#include "ztstream/c.h"

import zt;

using zt::capi::Guard;
using zt::capi::Report;

struct zts_reader {
  std::unique_ptr<zt::Reader> reader;
};

namespace {

// What a caller asks for that is not there. The reader's own errors name the file and the tensor already.
zts_status Fault(const zts_reader* reader, const zt::Status& status) {
  return Report(zt::WithFile(status, reader->reader->path()));
}

// The id of a component that is there.
zt::StatusOr<zt::ComponentId> Find(const zts_reader* reader, std::size_t index,
                                   std::size_t component) {
  const auto& objects = reader->reader->manifest().objects;
  if (index >= objects.size()) {
    return zt::InvalidArgument("there is no object number " + std::to_string(index));
  }
  if (component >= objects[index].components.size()) {
    return zt::WithTensor(
        zt::InvalidArgument("there is no component number " + std::to_string(component)),
        objects[index].name);
  }
  return zt::ComponentId{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(component)};
}

// The value of an attribute of the file as `as` makes it of a zt::Value: an optional, empty where it is of another kind.
template <typename T, typename As>
zts_status Get(const zts_reader* reader, const char* key, const char* kind, T* out, As&& as) {
  return Guard([&] {
    if (auto status = zt::capi::NotNull(key, "key"); !status.ok()) return Fault(reader, status);
    for (const auto& [name, value] : reader->reader->manifest().attributes) {
      if (name != key) continue;
      const auto got = as(value);
      if (!got) {
        return Fault(reader,
                     zt::InvalidArgument("attribute " + zt::Quote(key) + " is not " + kind));
      }
      *out = *got;
      return ZTS_OK;
    }
    return Fault(reader, zt::InvalidArgument("there is no attribute " + zt::Quote(key)));
  });
}

}  // namespace

extern "C" {

zts_status zts_reader_open(const char* path, zts_reader** out) {
  return Guard([&] {
    *out = nullptr;
    if (auto status = zt::capi::NotNull(path, "path"); !status.ok()) return Report(status);
    auto reader = zt::Reader::Open(std::string(path));
    if (!reader.ok()) return Report(reader.status());
    *out = new zts_reader{*std::move(reader)};
    return ZTS_OK;
  });
}

void zts_reader_free(zts_reader* reader) { delete reader; }

std::size_t zts_reader_count(const zts_reader* reader) {
  return reader->reader->manifest().objects.size();
}

zts_status zts_reader_object(const zts_reader* reader, std::size_t index, zts_object* out) {
  return Guard([&] {
    const auto& objects = reader->reader->manifest().objects;
    if (index >= objects.size()) return Fault(reader, Find(reader, index, 0).status());
    const zt::StoredObject& object = objects[index];
    *out = {object.name.c_str(), object.format.c_str(), object.shape.data(), object.shape.size(),
            object.components.size()};
    return ZTS_OK;
  });
}

zts_status zts_reader_find(const zts_reader* reader, const char* name, std::size_t* index) {
  return Guard([&] {
    if (auto status = zt::capi::NotNull(name, "the tensor's name"); !status.ok()) {
      return Fault(reader, status);
    }
    const auto found = reader->reader->Find(name);
    if (!found) {
      return Fault(reader, zt::InvalidArgument("there is no tensor " + zt::Quote(name)));
    }
    *index = *found;
    return ZTS_OK;
  });
}

zts_status zts_reader_component(const zts_reader* reader, std::size_t index, std::size_t component,
                                zts_component* out) {
  return Guard([&] {
    const auto id = Find(reader, index, component);
    if (!id.ok()) return Fault(reader, id.status());
    const auto bytes = reader->reader->DecodedBytes(*id);
    if (!bytes.ok()) return Report(bytes.status());
    const zt::StoredComponent& stored = reader->reader->component(*id);
    *out = {stored.role.c_str(),
            zt::Name(stored.element).data(),
            zt::Name(stored.element.dtype).data(),
            zt::Name(stored.encoding).data(),
            stored.digest.c_str(),
            stored.offset,
            stored.length,
            *bytes};
    return ZTS_OK;
  });
}

zts_status zts_reader_read(const zts_reader* reader, std::size_t index, std::size_t component,
                           std::uint64_t offset, void* out, std::uint64_t bytes) {
  return Guard([&] {
    const auto id = Find(reader, index, component);
    if (!id.ok()) return Fault(reader, id.status());
    const std::span<std::byte> span(static_cast<std::byte*>(out), static_cast<std::size_t>(bytes));
    return Report(reader->reader->Read(*id, offset, span));
  });
}

zts_status zts_reader_map(const zts_reader* reader, std::size_t index, std::size_t component,
                          const void** data, std::uint64_t* bytes) {
  return Guard([&] {
    const auto id = Find(reader, index, component);
    if (!id.ok()) return Fault(reader, id.status());
    const auto mapped = reader->reader->Map(*id);
    if (!mapped.ok()) return Report(mapped.status());
    *data = mapped->data();
    *bytes = mapped->size();
    return ZTS_OK;
  });
}

zts_status zts_reader_get_text(const zts_reader* reader, const char* key, const char** value) {
  return Get(reader, key, "text", value, [](const zt::Value& held) -> std::optional<const char*> {
    if (const std::string* text = held.AsString()) return text->c_str();
    return std::nullopt;
  });
}

zts_status zts_reader_get_int(const zts_reader* reader, const char* key, std::int64_t* value) {
  return Get(reader, key, "an integer of 64 bits", value,
             [](const zt::Value& held) { return held.Number<std::int64_t>(); });
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

zts_status zts_reader_verify(const zts_reader* reader, unsigned threads,
                             void (*problem)(const char*, const char*, const char*, void*),
                             void* user) {
  return zts_reader_verify_report(reader, threads, problem, user, nullptr);
}

zts_status zts_reader_verify_report(const zts_reader* reader, unsigned threads,
                                    void (*problem)(const char*, const char*, const char*, void*),
                                    void* user, zts_verify_report* out) {
  return Guard([&] {
    const auto report = zt::Verify(*reader->reader, {.threads = threads});
    if (!report.ok()) return Report(report.status());
    if (out != nullptr) {
      *out = {.objects = report->objects,
              .components = report->components,
              .digests = report->digests,
              .unhashed = report->unhashed,
              .undecodable = report->undecodable.size(),
              .unchecked = report->unchecked.size()};
    }
    for (const zt::VerifyProblem& p : report->problems) {
      if (problem != nullptr) {
        problem(p.object.c_str(), p.component.c_str(), p.message.c_str(), user);
      }
    }
    if (report->problems.empty()) return ZTS_OK;
    return Fault(reader, zt::InvalidData(report->problems[0].message));
  });
}

}  // extern "C"
