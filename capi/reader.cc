// reader.cc — the C interface: reading.
#include <cstddef>
#include <cstdint>
#include <memory>
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
  return Report(zt::Annotate(status, reader->reader->path()));
}

// The id of a component that is there.
zt::StatusOr<zt::ComponentId> Find(const zts_reader* reader, std::size_t index,
                                   std::size_t component) {
  const auto& objects = reader->reader->manifest().objects;
  if (index >= objects.size()) {
    return zt::InvalidArgument("there is no object number " + std::to_string(index));
  }
  if (component >= objects[index].components.size()) {
    return zt::AnnotateTensor(
        zt::InvalidArgument("there is no component number " + std::to_string(component)),
        objects[index].name);
  }
  return zt::ComponentId{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(component)};
}

}  // namespace

extern "C" {

zts_status zts_reader_open(const char* path, zts_reader** out) {
  return Guard([&] {
    *out = nullptr;
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

zts_status zts_reader_verify(const zts_reader* reader, unsigned threads,
                             void (*problem)(const char*, const char*, const char*, void*),
                             void* user) {
  return Guard([&] {
    const auto report = zt::Verify(*reader->reader, {.threads = threads});
    if (!report.ok()) return Report(report.status());
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
