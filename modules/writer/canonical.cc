// zt.writer:plan — implementation of MakeCanonical: the plan of a canonical file (2.0 §6.3).
module;

#include "core/status_macros.h"

module zt.writer;

import zt.std;
import :chain;
import :plan;
import zt.core;
import zt.digest;
import zt.format;
import zt.pipeline;
import zt.source;
import zt.transform;

namespace zt {
namespace {

// Bytes of content to read at once.
constexpr std::uint64_t kStep = 1 << 20;
// Bytes of a sample: the beginning and the middle of a component, which usually tell components of
// equal size apart. A multiple of the usual transform units.
constexpr std::uint64_t kSample = 4096;

// ---- names ----

Status CheckNormalized(std::string_view what, std::string_view name) {
  if (IsNormalized(name)) return OkStatus();
  return InvalidArgument(std::string(what) + " " + Quote(name) +
                         " is not in Unicode Normalization Form C, which a canonical file needs");
}

// Checks the attributes' own keys: those of nested maps are values, not names (2.0 §3.1, §3.5).
Status CheckKeys(const Value::Map& attributes) {
  for (const auto& [key, value] : attributes) {
    ZT_RETURN_IF_ERROR(CheckNormalized("the attribute", key));
  }
  return OkStatus();
}

// ---- the order of names ----

// Sorts an object's components by role.
PlannedObject SortComponents(const PlannedObject& planned, std::vector<std::uint32_t>& order) {
  const auto& declared = planned.object->components;
  order.resize(declared.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, {}, [&](std::uint32_t c) { return std::string_view(declared[c].role); });
  PlannedObject sorted = planned;
  if (std::ranges::is_sorted(order)) return sorted;
  const auto object = std::make_shared<Object>(*planned.object);
  for (std::size_t i = 0; i < order.size(); ++i) {
    object->components[i] = declared[order[i]];
    sorted.components[i] = planned.components[order[i]];
  }
  sorted.object = object;
  return sorted;
}

// Sorts a plan by names. Clears `shared_with`, which the caller has to restore: `shared` gets the
// pairs of components that shared a blob.
void SortPlan(Plan& plan, std::vector<std::pair<ComponentId, ComponentId>>& shared) {
  std::vector<std::uint32_t> order(plan.objects.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(
      order, {}, [&](std::uint32_t i) { return std::string_view(plan.objects[i].object->name); });
  std::vector<PlannedObject> objects;
  objects.reserve(order.size());
  std::vector<std::vector<ComponentId>> places(order.size());  // the new id of each component
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    std::vector<std::uint32_t> roles;
    objects.push_back(SortComponents(plan.objects[order[i]], roles));
    places[order[i]].resize(roles.size());
    for (std::uint32_t c = 0; c < roles.size(); ++c) places[order[i]][roles[c]] = {i, c};
  }
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    for (std::uint32_t c = 0; c < objects[i].components.size(); ++c) {
      auto& with = objects[i].components[c].shared_with;
      if (with) shared.emplace_back(ComponentId{i, c}, places[with->object][with->component]);
      with.reset();
    }
  }
  plan.objects = std::move(objects);
}

// ---- equal contents ----

// A component that a pass reads, and the result.
struct Job {
  std::size_t component = 0;  // index into Finder::all_
  std::uint64_t sample = 0;
  std::string digest = {};
  NumericCounts lost = {};              // by conversions
  std::unique_ptr<Hasher> hasher = {};  // during the pass
};

struct JobRange {
  Job* job = nullptr;
  bool first = false, last = false;  // of the job
  ComponentRange from = {};
  Buffer converted = {};
  std::span<const std::byte> bytes = {};  // after the transform
  std::uint64_t sample = 0;
  NumericCounts lost = {};
};

using Batch = BatchOf<JobRange>;

// Finds components of a plan with equal bytes after their transforms.
class Finder {
 public:
  Finder(TensorSource& source, const Plan& plan, const RangeOptions& options)
      : source_(source),
        plan_(plan),
        options_(options),
        pool_(MemoryFor(options.memory_bytes, options.threads) / 2) {
    for (std::uint32_t i = 0; i < plan.objects.size(); ++i) {
      first_.push_back(all_.size());
      for (std::uint32_t c = 0; c < plan.objects[i].components.size(); ++c) all_.push_back({i, c});
    }
    class_.resize(all_.size());
    std::iota(class_.begin(), class_.end(), std::size_t{0});
  }

  void Join(ComponentId a, ComponentId b) { Join(Index(a), Index(b)); }

  // Reads the components that may equal another: samples tell most of equal size apart, SHA-256 all
  // others.
  Status Find() {
    std::map<std::uint64_t, std::vector<std::size_t>> by_size;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (Root(i) == i) by_size[SizeOf(i)].push_back(i);
    }
    std::vector<Job> sampled, digested;
    for (const auto& [size, same] : by_size) {
      const bool samples =
          std::ranges::all_of(same, [this](std::size_t i) { return CanSample(i); });
      for (const std::size_t i : same) {
        if (size == 0) Join(i, same.front());
        if (size > 0 && same.size() > 1) (samples ? sampled : digested).push_back({.component = i});
      }
    }
    ZT_RETURN_IF_ERROR(Pass(true, sampled));
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::size_t> alike;  // how many
    for (const Job& job : sampled) ++alike[{SizeOf(job.component), job.sample}];
    for (Job& job : sampled) {
      if (alike[{SizeOf(job.component), job.sample}] > 1)
        digested.push_back({.component = job.component});
    }
    ZT_RETURN_IF_ERROR(Pass(false, digested));
    std::ranges::sort(digested, {}, &Job::component);
    // The first component with each digest.
    std::map<std::pair<std::uint64_t, std::string_view>, std::size_t> known;
    for (const Job& job : digested) {
      const auto [found, fresh] = known.emplace(
          std::pair(SizeOf(job.component), std::string_view(job.digest)), job.component);
      if (fresh) continue;
      // A component that shares a blob is not converted again, and different numbers may have
      // become equal: check its losses here.
      const Status fits = CheckFit(job.lost, ComponentOf(job.component).element, plan_);
      ZT_RETURN_IF_ERROR(RangeOf(job.component, 0, 0).Named(fits));
      Join(job.component, found->second);
    }
    return OkStatus();
  }

  // Makes each component share the blob of the first one that is equal.
  void Share(Plan& plan) {
    std::map<std::size_t, ComponentId> owners;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const auto [found, fresh] = owners.emplace(Root(i), all_[i]);
      if (!fresh)
        plan.objects[all_[i].object].components[all_[i].component].shared_with = found->second;
    }
  }

 private:
  std::size_t Index(ComponentId id) const { return first_[id.object] + id.component; }
  std::size_t Root(std::size_t i) {
    while (class_[i] != i) i = class_[i] = class_[class_[i]];
    return i;
  }
  void Join(std::size_t a, std::size_t b) {
    const std::size_t from = Root(a), to = Root(b);
    class_[std::max(from, to)] = std::min(from, to);
  }
  const PlannedComponent& PlannedOf(std::size_t i) const {
    return plan_.objects[all_[i].object].components[all_[i].component];
  }
  const Component& ComponentOf(std::size_t i) const {
    return plan_.objects[all_[i].object].object->components[all_[i].component];
  }
  std::uint64_t SizeOf(std::size_t i) const { return ComponentOf(i).bytes; }

  // True if a component can be read at the offsets of the samples, which depend only on its size.
  bool CanSample(std::size_t i) const {
    return !source_.sequential(PlannedOf(i).source) && kSample % UnitOf(i) == 0;
  }
  std::uint64_t UnitOf(std::size_t i) const {
    const Transform* transform = PlannedOf(i).transform.get();
    return transform == nullptr ? ByteWidth(ComponentOf(i).element.dtype)
                                : transform->output_unit();
  }

  // What to read for a component's transformed bytes from `offset` on. Both ends must be unit
  // boundaries.
  ComponentRange RangeOf(std::size_t i, std::uint64_t offset, std::uint64_t count) const {
    const Transform* const transform = PlannedOf(i).transform.get();
    const auto before = [transform](std::uint64_t bytes) {
      if (transform == nullptr) return bytes;
      return bytes / transform->output_unit() * transform->input_unit();
    };
    return {.source = &source_,
            .id = PlannedOf(i).source,
            .offset = before(offset),
            .count = before(count),
            .name = &plan_.objects[all_[i].object].object->name};
  }

  // Reads components in the order of the source: samples of them, or all for their digests.
  Status Pass(bool samples, std::vector<Job>& jobs) {
    if (jobs.empty()) return OkStatus();
    std::ranges::sort(jobs, {}, [this](const Job& job) { return PlannedOf(job.component).source; });
    RangePipeline<Batch> pipeline(
        {{StageOrder::kIfOrdered, [this](Batch& batch) { return Read(batch); }},
         {StageOrder::kParallel, [this, samples](Batch& batch) { return Look(batch, samples); }},
         {StageOrder::kInChain, [samples](Batch& batch) { return Hash(batch, samples); }},
         {StageOrder::kInOrder, Merge}},
        options_);
    Status added;
    for (std::size_t i = 0; i < jobs.size() && added.ok(); ++i)
      added = samples ? AddSamples(pipeline, jobs[i]) : AddWhole(pipeline, jobs[i]);
    return pipeline.Drain(added);
  }

  Status AddSamples(RangePipeline<Batch>& pipeline, Job& job) const {
    const std::uint64_t size = SizeOf(job.component), some = std::min(kSample, size);
    ZT_RETURN_IF_ERROR(Add(pipeline, job, 0, some, false));
    return Add(pipeline, job, size / 2 / kSample * kSample, some, false);
  }

  // Cuts in whole transform units.
  Status AddWhole(RangePipeline<Batch>& pipeline, Job& job) const {
    const std::uint64_t unit = UnitOf(job.component), step = std::max(unit, kStep / unit * unit);
    const std::uint64_t size = SizeOf(job.component);
    for (std::uint64_t at = 0; at < size; at += step)
      ZT_RETURN_IF_ERROR(Add(pipeline, job, at, std::min(step, size - at), true));
    return OkStatus();
  }

  Status Add(RangePipeline<Batch>& pipeline, Job& job, std::uint64_t offset, std::uint64_t count,
             bool chained) const {
    JobRange range = {.job = &job,
                      .first = offset == 0,
                      .last = offset + count == SizeOf(job.component),
                      .from = RangeOf(job.component, offset, count)};
    const RangeCost cost = {
        .bytes = count,
        .weight = sizeof(JobRange) + range.from.count + BufferPool::Capacity(count),
        .ordered = source_.sequential(range.from.id),
        .continues = chained && !range.first,
        .continued = chained && !range.last};
    return pipeline.Add(std::move(range), cost);
  }

  Status Read(Batch& batch) {
    std::vector<ComponentRange*> ranges;
    for (JobRange& range : batch.ranges) ranges.push_back(&range.from);
    return ReadComponents(ranges, pool_, batch.input);
  }

  Status Look(Batch& batch, bool samples) {
    for (JobRange& range : batch.ranges) {
      ZT_RETURN_IF_ERROR(range.from.Named(CatchAsStatus([&] { return Convert(range); })));
      if (samples) range.sample = Xxh3(range.bytes);
    }
    return OkStatus();
  }

  Status Convert(JobRange& range) {
    range.bytes = range.from.bytes;
    const Transform* const transform = PlannedOf(range.job->component).transform.get();
    if (transform == nullptr) return OkStatus();
    range.converted =
        pool_.Take(range.from.count / transform->input_unit() * transform->output_unit());
    range.bytes = range.converted.bytes();
    transform->Apply(range.from.bytes, range.converted.bytes(), range.lost);
    return OkStatus();
  }

  static Status Hash(Batch& batch, bool samples) {
    for (JobRange& range : batch.ranges) {
      if (samples) continue;
      Job& job = *range.job;
      if (range.first) job.hasher = MakeHasher(DigestKind::kSha256);
      job.hasher->Update(range.bytes);
      if (range.last) job.digest = std::exchange(job.hasher, nullptr)->Finish();
    }
    return OkStatus();
  }

  static Status Merge(Batch& batch) {
    for (const JobRange& range : batch.ranges) {
      range.job->sample = 31 * range.job->sample + range.sample;
      range.job->lost += range.lost;
    }
    return OkStatus();
  }

  TensorSource& source_;
  const Plan& plan_;
  const RangeOptions& options_;
  BufferPool pool_;
  std::vector<ComponentId> all_;
  std::vector<std::size_t> first_;  // of each object: index into all_ of its first component
  std::vector<std::size_t> class_;  // of each in all_: an equal component, or itself
};

}  // namespace

Status MakeCanonical(TensorSource& source, Plan& plan, const RangeOptions& options) {
  const ContainerTraits& traits = Traits(plan.spec);
  if (!traits.canonical) {
    return InvalidArgument("version " + std::string(traits.text) + " has no canonical form");
  }
  if (!source.seekable()) {
    return InvalidArgument(
        "a canonical file needs an input that can be read twice, which a pipe cannot; name a "
        "file");
  }
  ZT_RETURN_IF_ERROR(CheckKeys(plan.attributes));
  for (PlannedObject& planned : plan.objects) {
    const Object& object = *planned.object;
    Status status = CheckNormalized("the name", object.name);
    if (status.ok()) status = CheckKeys(object.attributes);
    for (std::size_t c = 0; status.ok() && c < object.components.size(); ++c) {
      status = CheckNormalized("the component", object.components[c].role);
      if (status.ok() && object.components[c].bytes == kUnknownSize) {
        status = InvalidArgument("the size of component " + Quote(object.components[c].role) +
                                 " is not known, which a canonical file needs");
      }
      planned.components[c].storage = {.compression = Compression::kNone, .digest = traits.digest};
    }
    ZT_RETURN_IF_ERROR(WithTensor(status, object.name));
  }
  std::vector<std::pair<ComponentId, ComponentId>> shared;
  SortPlan(plan, shared);
  Finder finder(source, plan, options);
  for (const auto& [a, b] : shared) finder.Join(a, b);
  ZT_RETURN_IF_ERROR(finder.Find());
  finder.Share(plan);
  return OkStatus();
}

}  // namespace zt
