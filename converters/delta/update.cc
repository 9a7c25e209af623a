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
  // Whole ranges that the delta ties: one has to hold a version that it knows.
  struct Tied {
    std::vector<std::size_t> ranges;
    std::map<ComponentId, Status> wrong = {};
  };
  std::map<Identity, Tied> ties;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const auto is = model.identity(ranges[i].id);
    if (is && ranges[i].offset == 0 && ranges[i].out.size() == is->length)
      ties[*is].ranges.push_back(i);
  }
  std::erase_if(ties, [](const auto& each) { return each.second.ranges.size() == 1; });
  const auto update = [&](ComponentId id, std::uint64_t offset, std::span<std::byte> out,
                          bool dry) {
    return AtTensor(model, id, delta::internal::UpdateRange(model, id, offset, out, dry));
  };
  std::mutex mutex;
  const auto look = [&](ComponentId id, std::uint64_t offset, std::span<std::byte> out) -> Status {
    const Status status = update(id, offset, out, true);
    const auto is = model.identity(id);
    const auto tied = is ? ties.find(*is) : ties.end();
    if (status.code() != StatusCode::kInvalidArgument || tied == ties.end()) return status;
    const std::lock_guard lock(mutex);
    tied->second.wrong.emplace(id, status);
    return OkStatus();
  };
  ZT_RETURN_IF_ERROR(run(ranges, look));
  std::vector<bool> copied(ranges.size());
  for (auto& [is, tied] : ties) {
    const auto right = std::ranges::find_if(
        tied.ranges, [&](std::size_t i) { return !tied.wrong.contains(ranges[i].id); });
    if (right == tied.ranges.end()) return tied.wrong.begin()->second;
    std::swap(tied.ranges.front(), *right);
    for (const std::size_t i : std::span(tied.ranges).subspan(1)) copied[i] = true;
  }
  std::vector<MemoryRange> changed;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (!copied[i]) changed.push_back(ranges[i]);
  }
  ZT_RETURN_IF_ERROR(
      run(changed, [&](ComponentId id, std::uint64_t offset, std::span<std::byte> out) {
        return update(id, offset, out, false);
      }));
  for (const auto& [is, tied] : ties) {
    const std::span<const std::byte> first = ranges[tied.ranges.front()].out;
    for (const std::size_t i : std::span(tied.ranges).subspan(1))
      std::memmove(ranges[i].out.data(), first.data(), first.size());
  }
  return OkStatus();
}

}  // namespace zt
