// zt.convert.delta — changes memory that holds the base.
module;

#include "core/status_macros.h"

module zt.convert.delta;

import zt.std;
import :profile;
import zt.core;
import zt.source;

namespace zt {

Status UpdateFromDelta(TensorSource& model, std::span<const MemoryRange> ranges,
                       const RangeRun& run) {
  const auto update = [&](ComponentId id, std::uint64_t offset, std::span<std::byte> out,
                          bool dry) {
    return AtTensor(model, id, delta::internal::UpdateRange(model, id, offset, out, dry));
  };
  std::mutex mutex;
  std::map<ComponentId, Status> wrong;  // hold neither version
  ZT_RETURN_IF_ERROR(
      run(ranges, [&](ComponentId id, std::uint64_t offset, std::span<std::byte> out) -> Status {
        const Status status = update(id, offset, out, true);
        if (status.code() != StatusCode::kInvalidArgument) return status;
        const std::lock_guard lock(mutex);
        wrong.emplace(id, status);
        return OkStatus();
      }));
  // Whole ranges that the delta ties: one that holds a version is changed, and the others copied.
  const auto whole = [&](const MemoryRange& range) -> std::optional<Identity> {
    const auto is = model.identity(range.id);
    return is && range.offset == 0 && range.out.size() == is->length ? is : std::nullopt;
  };
  std::map<Identity, const MemoryRange*> first;
  for (const MemoryRange& range : ranges) {
    if (const auto is = whole(range); is && !wrong.contains(range.id)) first.emplace(*is, &range);
  }
  std::vector<MemoryRange> changed;
  std::vector<std::pair<const MemoryRange*, const MemoryRange*>> copies;
  for (const MemoryRange& range : ranges) {
    const auto is = whole(range);
    const auto found = is ? first.find(*is) : first.end();
    if (found != first.end() && found->second != &range) {
      copies.emplace_back(found->second, &range);
    } else if (const auto why = wrong.find(range.id); why != wrong.end()) {
      return why->second;
    } else {
      changed.push_back(range);
    }
  }
  ZT_RETURN_IF_ERROR(
      run(changed, [&](ComponentId id, std::uint64_t offset, std::span<std::byte> out) {
        return update(id, offset, out, false);
      }));
  for (const auto& [from, to] : copies)
    std::memmove(to->out.data(), from->out.data(), from->out.size());
  return OkStatus();
}

}  // namespace zt
