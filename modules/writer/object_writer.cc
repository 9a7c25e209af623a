// zt.writer:object — bodies: cuts what is appended into chunks.
module;

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/status_macros.h"

module zt.writer;

import :chain;
import :chunk;
import :engine;
import :object;
import :plan;
import zt.core;
import zt.pipeline;

namespace zt {

using writer::internal::Engine;
using writer::internal::OpenObject;
using writer::internal::Piece;

struct ObjectWriter::State : OpenObject {
  State(std::vector<Storage> storages, Object declared)
      : storage(std::move(storages)),
        object(std::make_shared<const Object>(std::move(declared))),
        actual(*object) {}

  std::vector<Storage> storage;
  std::shared_ptr<const Object> object;
  Object actual;  // with the sizes as they came
  std::size_t at = 0;
  std::size_t filled = 0;      // of the buffer
  std::uint64_t appended = 0;  // of the component, buffer included
  bool finished = false;

  // What keeps the object from going on.
  Status Usable() const {
    if (finished) return FailedPrecondition("the object is finished");
    if (engine == nullptr) return FailedPrecondition("the writer of the object is gone");
    return engine->failure();
  }

  void BeginComponent() {
    component = engine->NewState();
    component->object = object;
    component->at.component = static_cast<std::uint32_t>(at);
    component->declared_bytes = object->components[at].bytes;
    component->storage = storage[at];
    component->ends_object = at + 1 == object->components.size();
    filled = 0;
    appended = 0;
  }

  Status Send(bool last) {
    Piece piece;
    piece.object = object.get();
    piece.component = static_cast<std::uint32_t>(at);
    piece.state = component;
    piece.input_bytes = filled;
    piece.offset = appended - filled;
    piece.first = piece.offset == 0;
    piece.last = last;
    Buffer bytes = std::exchange(buffer, Buffer());
    if (last) bytes = engine->Shrink(std::move(bytes), filled);
    // The declaration is kept as long as a chunk of it is under way.
    const std::uint64_t held = bytes.capacity() + DeclarationCost();
    piece.Adopt(std::move(bytes), filled);
    filled = 0;
    return engine->Send(std::move(piece), held);
  }

  // About what the declaration takes in memory.
  std::uint64_t DeclarationCost() const {
    return sizeof(Object) + object->name.capacity() + object->shape.size() * sizeof(std::uint64_t) +
           object->components.size() * sizeof(Component);
  }

  Status WrongSize(std::uint64_t bytes) const {
    return Annotate(InvalidArgument("component " + Quote(object->components[at].role) +
                                    " declares " + std::to_string(object->components[at].bytes) +
                                    " bytes, " + std::to_string(bytes) + " were appended"),
                    TensorContext(object->name));
  }

  Status EndComponent() {
    const std::uint64_t declared = object->components[at].bytes;
    if (declared != kUnknownSize && declared != appended) return WrongSize(appended);
    actual.components[at].bytes = appended;
    return Send(true);
  }

  Status Append(std::span<const std::byte> bytes) {
    const std::uint64_t declared = component->declared_bytes;
    if (declared != kUnknownSize && bytes.size() > declared - appended) {
      return WrongSize(appended + bytes.size());
    }
    while (!bytes.empty()) {
      // A full chunk is held back until more comes: the last one must know that it is the last.
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

  Status Finish() {
    if (at + 1 != object->components.size()) {
      return FailedPrecondition(TensorContext(object->name) + ": component " +
                                Quote(object->components[at + 1].role) + " was never begun");
    }
    ZT_RETURN_IF_ERROR(EndComponent());
    return Annotate(ValidateObject(actual), TensorContext(object->name));
  }
};

ObjectWriter::ObjectWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}

ObjectWriter::~ObjectWriter() {
  State& s = *state_;
  if (s.engine == nullptr) return;  // finished, or the writer is gone
  s.engine->Close();
  (void)s.engine->Guarded([&] {
    return s.engine->Fail(FailedPrecondition(TensorContext(s.object->name) +
                                             ": the object was dropped before Finish"));
  });
}

std::unique_ptr<ObjectWriter> ObjectWriter::Make(Engine& engine, std::vector<Storage> storage,
                                                 Object object) {
  std::unique_ptr<ObjectWriter> made(
      new ObjectWriter(std::make_unique<State>(std::move(storage), std::move(object))));
  engine.Open(*made->state_);
  made->state_->BeginComponent();
  return made;
}

Status ObjectWriter::Append(std::span<const std::byte> bytes) {
  State& s = *state_;
  ZT_RETURN_IF_ERROR(s.Usable());
  return s.engine->Guarded([&] { return s.engine->Check(s.Append(bytes)); });
}

Status ObjectWriter::NextComponent() {
  State& s = *state_;
  ZT_RETURN_IF_ERROR(s.Usable());
  return s.engine->Guarded([&] {
    if (s.at + 1 >= s.object->components.size()) {
      return s.engine->Fail(
          FailedPrecondition(TensorContext(s.object->name) + ": there is no further component"));
    }
    ZT_RETURN_IF_ERROR(s.engine->Check(s.EndComponent()));
    ++s.at;
    s.BeginComponent();
    return OkStatus();
  });
}

Status ObjectWriter::Finish() {
  State& s = *state_;
  Status status = s.Usable();
  if (status.ok()) {
    status = s.engine->Guarded([&] { return s.engine->Check(s.Finish()); });
  }
  // From here on the writer may go first.
  if (s.engine != nullptr) s.engine->Close();
  static_cast<OpenObject&>(s) = OpenObject();
  s.finished = true;
  return status;
}

}  // namespace zt
