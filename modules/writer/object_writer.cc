// zt.writer:object — implementation: cuts the appended bytes into chunks.
module;

#include "core/status_macros.h"

module zt.writer;

import zt.std;
import :chain;
import :chunk;
import :engine;
import :object;
import :options;
import :plan;
import zt.core;
import zt.format;
import zt.pipeline;
import zt.transform;

namespace zt {

using writer::internal::Engine;
using writer::internal::OpenObject;
using writer::internal::ResolvedStorage;
using writer::internal::WriterChunk;

struct ObjectWriter::State : OpenObject {
  State(std::vector<ResolvedStorage> storages, Object declared)
      : storage(std::move(storages)),
        object(std::make_shared<const Object>(std::move(declared))),
        actual(*object) {}

  std::vector<ResolvedStorage> storage;
  std::shared_ptr<const Object> object;
  Object actual;         // the declaration with actual sizes and later changes
  bool changed = false;  // `actual` has later changes
  std::size_t at = 0;
  std::size_t filled = 0;      // of the buffer
  std::uint64_t appended = 0;  // of the component, buffer included
  bool finished = false;

  // Fails if the object can take no more calls.
  Status Usable() const {
    if (finished) return FailedPrecondition("the object is finished");
    if (engine == nullptr) return FailedPrecondition("the writer of the object is gone");
    return engine->failure();
  }

  // Runs a caller's request if the object is usable. An error fails the writer.
  template <class Call>
  Status Do(const Call& call) {
    ZT_RETURN_IF_ERROR(Usable());
    return engine->Guarded([&] { return engine->Check(call(*this)); });
  }

  void BeginComponent() {
    component = engine->NewState();
    component->object = object;
    component->at.component = static_cast<std::uint32_t>(at);
    component->declared_bytes = object->components[at].bytes;
    component->check = writer::internal::MakeCheck(*component, engine->options);
    component->storage = storage[at];
    component->ends_object = at + 1 == object->components.size();
    filled = 0;
    appended = 0;
  }

  Status Send(bool last, std::shared_ptr<const Object> closing = nullptr) {
    WriterChunk chunk;
    if (closing != nullptr) chunk.closing = [closing] { return closing; };
    chunk.object = object.get();
    chunk.component = static_cast<std::uint32_t>(at);
    chunk.state = component;
    chunk.input_bytes = filled;
    chunk.offset = appended - filled;
    chunk.first = chunk.offset == 0;
    chunk.last = last;
    Buffer bytes = std::exchange(buffer, Buffer());
    if (last) bytes = engine->Shrink(std::move(bytes), filled);
    // The declaration lives as long as one of its chunks is in flight.
    const std::uint64_t held = bytes.capacity() + DeclarationCost();
    chunk.Adopt(std::move(bytes), filled);
    return engine->Send(std::move(chunk), std::exchange(filled, 0), held);
  }

  // Approximate memory of the declaration.
  std::uint64_t DeclarationCost() const {
    return sizeof(Object) + object->name.capacity() + object->shape.size() * sizeof(std::uint64_t) +
           object->components.size() * sizeof(Component);
  }

  Status WrongSize(std::uint64_t bytes) const {
    return Named(InvalidArgument("component " + Quote(object->components[at].role) + " declares " +
                                 std::to_string(object->components[at].bytes) + " bytes, " +
                                 std::to_string(bytes) + " were appended"));
  }

  Status Named(const Status& status) const { return WithTensor(status, object->name); }

  Status CheckSize() {
    const std::uint64_t declared = object->components[at].bytes;
    if (declared != kUnknownSize && declared != appended) return WrongSize(appended);
    // A stage may change the size: then it is known only from the stored bytes.
    if (engine->options.stages.empty()) actual.components[at].bytes = appended;
    return OkStatus();
  }

  Status AppendAs(DType dtype, std::span<const std::byte> bytes) {
    const Component& declared = object->components[at];
    if (declared.element.dtype == dtype) {
      if constexpr (std::endian::native == std::endian::little) return Append(bytes);
      std::vector<std::byte> swapped(bytes.begin(), bytes.end());
      LittleEndian(swapped, ByteWidth(dtype));
      return Append(swapped);
    }
    return Named(InvalidArgument("component " + Quote(declared.role) + " has dtype " +
                                 std::string(Name(declared.element.dtype)) +
                                 ", the appended values have " + std::string(Name(dtype))));
  }

  Status SetLeadingDimension(std::uint64_t size) {
    if (object->shape.empty() || object->format == "sparse_coo") {
      return Named(FailedPrecondition(object->shape.empty()
                                          ? "it is a scalar, which has no leading dimension"
                                          : "the shape of sparse_coo is fixed when it is begun"));
    }
    actual.shape[0] = size;
    changed = true;
    return OkStatus();
  }

  Status SetAttribute(std::string_view key, Value value) {
    SetMember(actual.attributes, key, std::move(value));
    changed = true;
    return OkStatus();
  }

  Status Append(std::span<const std::byte> bytes) {
    const std::uint64_t declared = component->declared_bytes;
    if (declared != kUnknownSize && bytes.size() > declared - appended) {
      return WrongSize(appended + bytes.size());
    }
    while (!bytes.empty()) {
      // Hold a full chunk back until more bytes come: the last chunk must be marked as such.
      if (!buffer.empty() && filled == buffer.bytes().size()) ZT_RETURN_IF_ERROR(Send(false));
      if (buffer.empty()) {
        buffer =
            engine->Room(*component, declared == kUnknownSize ? kUnknownSize : declared - appended);
      }
      const std::span<std::byte> room = buffer.bytes().subspan(filled);
      const std::size_t take = std::min(bytes.size(), room.size());
      std::memcpy(room.data(), bytes.data(), take);
      filled += take;
      appended += take;
      bytes = bytes.subspan(take);
    }
    return OkStatus();
  }

  Status NextComponent() {
    if (at + 1 >= object->components.size()) {
      return Named(FailedPrecondition("there is no further component"));
    }
    ZT_RETURN_IF_ERROR(CheckSize());
    ZT_RETURN_IF_ERROR(Send(true));
    ++at;
    BeginComponent();
    return OkStatus();
  }

  Status Finish() {
    if (at + 1 != object->components.size()) {
      return Named(FailedPrecondition("component " + Quote(object->components[at + 1].role) +
                                      " was never begun"));
    }
    ZT_RETURN_IF_ERROR(CheckSize());
    if (appended > 0 && actual.format == "dense" && !actual.shape.empty() && actual.shape[0] == 0) {
      return Named(InvalidArgument(std::to_string(appended) +
                                   " bytes were appended, and its first dimension is still 0; set "
                                   "the leading dimension before the end"));
    }
    ZT_RETURN_IF_ERROR(engine->CheckDeclared(actual, storage, true));
    return Send(true, changed ? std::make_shared<const Object>(actual) : nullptr);
  }
};

ObjectWriter::ObjectWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}

ObjectWriter::~ObjectWriter() {
  State& s = *state_;
  if (s.engine == nullptr) return;  // finished, or the writer is gone
  s.engine->Close();
  (void)s.engine->Guarded([&] {
    return s.engine->Fail(s.Named(FailedPrecondition("the object was dropped before Finish")));
  });
}

std::unique_ptr<ObjectWriter> ObjectWriter::Make(Engine& engine,
                                                 std::vector<ResolvedStorage> storage,
                                                 Object object) {
  std::unique_ptr<ObjectWriter> made(
      new ObjectWriter(std::make_unique<State>(std::move(storage), std::move(object))));
  engine.Open(*made->state_);
  made->state_->BeginComponent();
  return made;
}

Status ObjectWriter::Append(std::span<const std::byte> bytes) {
  return state_->Do([&](State& s) { return s.Append(bytes); });
}

Status ObjectWriter::AppendAs(DType dtype, std::span<const std::byte> bytes) {
  return state_->Do([&](State& s) { return s.AppendAs(dtype, bytes); });
}

Status ObjectWriter::SetLeadingDimension(std::uint64_t size) {
  return state_->Do([&](State& s) { return s.SetLeadingDimension(size); });
}

Status ObjectWriter::SetAttribute(std::string_view key, Value value) {
  return state_->Do([&](State& s) { return s.SetAttribute(key, std::move(value)); });
}

Status ObjectWriter::NextComponent() {
  return state_->Do([](State& s) { return s.NextComponent(); });
}

Status ObjectWriter::Finish() {
  State& s = *state_;
  const Status status = s.Do([](State& open) { return open.Finish(); });
  // From here on the writer may be destroyed first.
  if (s.engine != nullptr) s.engine->Close();
  static_cast<OpenObject&>(s) = OpenObject();
  s.finished = true;
  return status;
}

}  // namespace zt
