// zt.writer:object — bodies: cuts what is appended into chunks.
module;

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/status_macros.h"

module zt.writer;

import :chain;
import :chunk;
import :feed;
import zt.core;
import zt.pipeline;

namespace zt {

ObjectWriter::State::State(Feed& writer_feed, std::vector<Storage> storages, Object declared)
    : feed(writer_feed),
      storage(std::move(storages)),
      object(std::make_shared<const Object>(std::move(declared))),
      actual(*object) {
  BeginComponent();
}

void ObjectWriter::State::BeginComponent() {
  component = feed.NewState();
  component->object = object;
  component->at.component = static_cast<std::uint32_t>(at);
  component->declared_bytes = object->components[at].bytes;
  component->storage = storage[at];
  component->ends_object = at + 1 == object->components.size();
  filled = 0;
  appended = 0;
}

Status ObjectWriter::State::Send(bool last) {
  writer::internal::Piece chunk;
  chunk.object = object.get();
  chunk.component = static_cast<std::uint32_t>(at);
  chunk.state = component;
  chunk.input_bytes = filled;
  chunk.offset = appended - filled;
  chunk.first = chunk.offset == 0;
  chunk.last = last;
  chunk.Adopt(std::move(buffer), filled);
  buffer = Buffer();
  filled = 0;
  return feed.Send(std::move(chunk));
}

Status ObjectWriter::State::WrongSize(std::uint64_t bytes) const {
  return Annotate(InvalidArgument("component " + Quote(object->components[at].role) + " declares " +
                                  std::to_string(object->components[at].bytes) + " bytes, " +
                                  std::to_string(bytes) + " were appended"),
                  TensorContext(object->name));
}

Status ObjectWriter::State::EndComponent() {
  const std::uint64_t declared = object->components[at].bytes;
  if (declared != kUnknownSize && declared != appended) return WrongSize(appended);
  actual.components[at].bytes = appended;
  return Send(true);
}

ObjectWriter::ObjectWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}

ObjectWriter::~ObjectWriter() {
  if (!state_->finished) {
    (void)state_->feed.Fail(FailedPrecondition(TensorContext(state_->object->name) +
                                               ": the object was dropped before Finish"));
  }
}

Status ObjectWriter::Append(std::span<const std::byte> bytes) {
  State& s = *state_;
  if (!s.feed.Failure().ok()) return s.feed.Failure();
  if (s.finished) return FailedPrecondition("the object is finished");
  const std::uint64_t declared = s.component->declared_bytes;
  if (declared != kUnknownSize && bytes.size() > declared - s.appended) {
    return s.feed.Fail(s.WrongSize(s.appended + bytes.size()));
  }
  while (!bytes.empty()) {
    // A full chunk is held back until more comes: the last one must know that it is the last.
    if (!s.buffer.empty() && s.filled == s.buffer.bytes().size()) {
      ZT_RETURN_IF_ERROR(s.feed.Check(s.Send(false)));
    }
    if (s.buffer.empty()) s.buffer = s.feed.Room(*s.component);
    const std::span<std::byte> room = s.buffer.bytes().subspan(s.filled);
    const std::size_t take = std::min(bytes.size(), room.size());
    std::memcpy(room.data(), bytes.data(), take);
    s.filled += take;
    s.appended += take;
    bytes = bytes.subspan(take);
  }
  return OkStatus();
}

Status ObjectWriter::NextComponent() {
  State& s = *state_;
  if (!s.feed.Failure().ok()) return s.feed.Failure();
  if (s.at + 1 >= s.object->components.size()) {
    return s.feed.Fail(
        FailedPrecondition(TensorContext(s.object->name) + ": there is no further component"));
  }
  ZT_RETURN_IF_ERROR(s.feed.Check(s.EndComponent()));
  ++s.at;
  s.BeginComponent();
  return OkStatus();
}

Status ObjectWriter::Finish() {
  State& s = *state_;
  if (s.finished) return FailedPrecondition("the object is finished");
  s.finished = true;
  s.feed.Close();
  if (!s.feed.Failure().ok()) return s.feed.Failure();
  if (s.at + 1 != s.object->components.size()) {
    return s.feed.Fail(FailedPrecondition(TensorContext(s.object->name) + ": component " +
                                          Quote(s.object->components[s.at + 1].role) +
                                          " was never begun"));
  }
  ZT_RETURN_IF_ERROR(s.feed.Check(s.EndComponent()));
  return s.feed.Check(Annotate(ValidateObject(s.actual), TensorContext(s.object->name)));
}

}  // namespace zt
