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

// Finds components of a plan with equal bytes after their transforms.
class Finder {
 public:
  Finder(TensorSource& source, const Plan& plan) : source_(source), plan_(plan) {
    for (std::uint32_t i = 0; i < plan.objects.size(); ++i) {
      first_.push_back(all_.size());
      for (std::uint32_t c = 0; c < plan.objects[i].components.size(); ++c) all_.push_back({i, c});
    }
    class_.resize(all_.size());
    std::iota(class_.begin(), class_.end(), std::size_t{0});
  }

  void Join(ComponentId a, ComponentId b) { Join(Index(a), Index(b)); }

  // Reads the components that may equal another.
  Status Find() {
    std::map<std::uint64_t, std::vector<std::size_t>> by_size;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (Root(i) == i) by_size[SizeOf(i)].push_back(i);
    }
    for (const auto& [size, same] : by_size) {
      if (size == 0) {
        for (const std::size_t i : same) Join(i, same.front());
      } else if (same.size() > 1) {
        ZT_RETURN_IF_ERROR(FindAmong(same, size));
      }
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

  // Compares components of equal size: samples tell most apart, digests nearly all others, and the
  // bytes decide between equal digests.
  Status FindAmong(const std::vector<std::size_t>& same, std::uint64_t size) {
    std::map<std::uint64_t, std::vector<std::size_t>> by_sample;
    const bool samples = std::ranges::all_of(same, [this](std::size_t i) { return CanSample(i); });
    for (const std::size_t i : same) {
      std::uint64_t sample = 0;
      if (samples) ZT_RETURN_IF_ERROR(Named(i, Sample(i, size, &sample)));
      by_sample[sample].push_back(i);
    }
    for (const auto& [sample, alike] : by_sample) {
      if (alike.size() == 1) continue;
      std::map<std::string, std::size_t> first;  // the first component with each digest
      for (const std::size_t i : alike) {
        std::string digest;
        ZT_RETURN_IF_ERROR(Named(i, Digest(i, size, &digest)));
        const auto [found, fresh] = first.emplace(std::move(digest), i);
        if (fresh) continue;
        const NumericCounts lost = lost_;
        bool equal = false;
        ZT_RETURN_IF_ERROR(Named(i, Compare(i, found->second, size, &equal)));
        if (!equal) continue;
        // A component that shares a blob is not converted again, and different numbers may have
        // become equal: check its losses here.
        ZT_RETURN_IF_ERROR(Named(i, CheckFit(lost, ComponentOf(i).element, plan_)));
        Join(i, found->second);
      }
    }
    return OkStatus();
  }

  // True if a component can be read at the offsets of the samples, which depend only on its size.
  bool CanSample(std::size_t i) const {
    return !source_.sequential(PlannedOf(i).source) && kSample % UnitOf(i) == 0;
  }

  Status Sample(std::size_t i, std::uint64_t size, std::uint64_t* sample) {
    const std::uint64_t some = std::min(kSample, size);
    std::vector<std::byte> bytes(2 * some);
    ZT_RETURN_IF_ERROR(Read(i, 0, std::span(bytes).first(some)));
    const std::uint64_t middle = size / 2 / kSample * kSample;
    ZT_RETURN_IF_ERROR(Read(i, middle, std::span(bytes).last(some)));
    *sample = Xxh3(bytes);
    return OkStatus();
  }

  // Reads the whole component, so that lost_ has all losses of its conversion.
  Status Digest(std::size_t i, std::uint64_t size, std::string* digest) {
    lost_ = {};
    const auto hasher = MakeHasher(DigestKind::kSha256);
    std::vector<std::byte> bytes(std::min(Units(i, kStep), size));
    for (std::uint64_t at = 0; at < size;) {
      const auto piece = std::span(bytes).first(std::min<std::uint64_t>(bytes.size(), size - at));
      ZT_RETURN_IF_ERROR(Read(i, at, piece));
      hasher->Update(piece);
      at += piece.size();
    }
    *digest = hasher->Finish();
    return OkStatus();
  }

  // Compares in whole transform units of both.
  Status Compare(std::size_t a, std::size_t b, std::uint64_t size, bool* equal) {
    const std::uint64_t unit = std::lcm(UnitOf(a), UnitOf(b));
    const std::uint64_t step = std::max(unit, kStep / unit * unit);
    std::vector<std::byte> of_a(std::min(step, size)), of_b(std::min(step, size));
    *equal = true;
    for (std::uint64_t at = 0; at < size;) {
      const std::uint64_t some = std::min<std::uint64_t>(of_a.size(), size - at);
      ZT_RETURN_IF_ERROR(Read(a, at, std::span(of_a).first(some)));
      ZT_RETURN_IF_ERROR(Read(b, at, std::span(of_b).first(some)));
      // Read to the end in any case, as sequential components require.
      *equal = *equal && std::equal(of_a.begin(), of_a.begin() + static_cast<std::ptrdiff_t>(some),
                                    of_b.begin());
      at += some;
    }
    return OkStatus();
  }

  std::uint64_t UnitOf(std::size_t i) const {
    const Transform* transform = PlannedOf(i).transform.get();
    return transform == nullptr ? ByteWidth(ComponentOf(i).element.dtype)
                                : transform->output_unit();
  }
  // About `wanted` bytes, rounded to whole units.
  std::uint64_t Units(std::size_t i, std::uint64_t wanted) const {
    return std::max(UnitOf(i), wanted / UnitOf(i) * UnitOf(i));
  }

  // Reads the component's transformed bytes from `offset` on. Both ends must be unit boundaries.
  Status Read(std::size_t i, std::uint64_t offset, std::span<std::byte> out) {
    const PlannedComponent& planned = PlannedOf(i);
    const Transform* transform = planned.transform.get();
    return CatchAsStatus([&]() -> Status {
      if (transform == nullptr) return source_.Read(planned.source, offset, out);
      const std::uint64_t units = out.size() / transform->output_unit();
      input_.resize(units * transform->input_unit());
      ZT_RETURN_IF_ERROR(source_.Read(
          planned.source, offset / transform->output_unit() * transform->input_unit(), input_));
      transform->Apply(input_, out, lost_);
      return OkStatus();
    });
  }

  Status Named(std::size_t i, const Status& status) const {
    if (status.ok()) return status;
    return WithFile(WithTensor(status, plan_.objects[all_[i].object].object->name),
                    source_.file(PlannedOf(i).source));
  }

  TensorSource& source_;
  const Plan& plan_;
  std::vector<ComponentId> all_;
  std::vector<std::size_t> first_;  // of each object: index into all_ of its first component
  std::vector<std::size_t> class_;  // of each in all_: an equal component, or itself
  std::vector<std::byte> input_;
  NumericCounts lost_;  // losses of conversions since it was reset
};

}  // namespace

Status MakeCanonical(TensorSource& source, Plan& plan) {
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
  Finder finder(source, plan);
  for (const auto& [a, b] : shared) finder.Join(a, b);
  ZT_RETURN_IF_ERROR(finder.Find());
  finder.Share(plan);
  return OkStatus();
}

}  // namespace zt
