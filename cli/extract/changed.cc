// zt.cli:extraction — reads components through the transforms of a plan.
module;

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :extraction;
import :output;
import :rules;
import :conversion;

namespace zt::cli::internal {
namespace {

constexpr std::uint64_t kStep = std::uint64_t{4} << 20;

}  // namespace

StatusOr<std::unique_ptr<ChangedSource>> ChangedSource::Make(std::unique_ptr<TensorSource> source,
                                                             const Rules& rules,
                                                             std::vector<std::string>& warnings) {
  std::unique_ptr<ChangedSource> changed(new ChangedSource(std::move(source)));
  TensorSource& inner = *changed->inner_;
  ZT_ASSIGN_OR_RETURN(changed->plan_, rules.PlanOf(inner));
  for (const PlannedObject& planned : changed->plan_.objects)
    changed->objects_.push_back(*planned.object);
  changed->attributes_ = changed->plan_.attributes;
  for (std::string& line : rules.Warnings()) warnings.push_back(std::move(line));
  return changed;
}

Status ChangedSource::Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) {
  const Transform* const transform = Planned(id).transform.get();
  if (transform == nullptr) {
    ZT_RETURN_IF_ERROR(inner_->Read(Planned(id).source, offset, out));
    Count(id, out.size(), {});
    return OkStatus();
  }
  // Reads the whole units that `out` overlaps.
  const std::uint64_t unit = transform->output_unit();
  const std::uint64_t first = offset / unit;
  const std::uint64_t units = (offset + out.size() + unit - 1) / unit - first;
  const Buffer input = pool_.Take(units * transform->input_unit());
  ZT_RETURN_IF_ERROR(
      inner_->Read(Planned(id).source, first * transform->input_unit(), input.bytes()));
  const bool whole = out.size() == units * unit;
  const Buffer output = whole ? Buffer() : pool_.Take(units * unit);
  NumericCounts counts;
  transform->Apply(input.bytes(), whole ? out : output.bytes(), counts);
  if (!whole) std::memcpy(out.data(), &output.bytes()[offset - first * unit], out.size());
  Count(id, out.size(), counts);
  return OkStatus();
}

void ChangedSource::Count(ComponentId id, std::uint64_t bytes, const NumericCounts& converted) {
  const std::uint64_t overflow = inner_->TakeOverflow(Planned(id).source);
  const zt::internal::MutexLock lock(mutex_);
  Counts& counts = counts_[id];
  if (counts.bytes >= objects_[id.object].components[id.component].bytes) return;
  counts.bytes += bytes;
  counts.converted += converted;
  counts.made += overflow;
}

NumericCounts ChangedSource::Total(ComponentId id, const Counts& counts) const {
  NumericCounts total = counts.converted;
  AddOverflow(counts.made, objects_[id.object].components[id.component].element, plan_.on_overflow,
              total);
  return total;
}

std::uint64_t ChangedSource::preferred_read(ComponentId id) const {
  const Transform* const transform = Planned(id).transform.get();
  if (transform == nullptr) return WrappedSource::preferred_read(id);
  const std::uint64_t input = std::max(inner_->preferred_read(Planned(id).source), kStep);
  return std::max<std::uint64_t>(input / transform->input_unit(), 1) * transform->output_unit();
}

Status ChangedSource::Finish() {
  ZT_RETURN_IF_ERROR(WrappedSource::Finish());
  const zt::internal::MutexLock lock(mutex_);
  for (const auto& [id, counts] : counts_) {
    const Object& object = objects_[id.object];
    const Status fits = CheckFit(Total(id, counts), object.components[id.component].element, plan_);
    ZT_RETURN_IF_ERROR(WithFile(WithTensor(fits, object.name), file(id)));
  }
  return OkStatus();
}

std::vector<NumericFinding> ChangedSource::Findings() const {
  std::vector<NumericFinding> findings;
  const zt::internal::MutexLock lock(mutex_);
  for (const auto& [id, counts] : counts_) {
    const Component& component = objects_[id.object].components[id.component];
    const NumericCounts total = Total(id, counts);
    if (!total.any()) continue;
    findings.push_back(
        {objects_[id.object].name, total, component.bytes / ByteWidth(component.element.dtype)});
  }
  return findings;
}

}  // namespace zt::cli::internal
