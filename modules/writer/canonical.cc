// zt.writer:plan — bodies: the plan of a canonical file (2.0 §6.3).
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

// Content that is read at once.
constexpr std::uint64_t kStep = 1 << 20;
// Components of one size are told apart by so many bytes of their beginning and of their middle, as a rule. It is a multiple
// of the units that transforms make.
constexpr std::uint64_t kSample = 4096;

// ---- names ----

Status CheckNormalized(std::string_view what, std::string_view name) {
  if (IsNormalized(name)) return OkStatus();
  return InvalidArgument(
      std::string(what) + " " + Quote(name) +
      " is not in Unicode Normalization Form C, which a canonical file asks for");
}

// Keys of maps within attributes are values, no names (2.0 §3.1, §3.5).
Status CheckKeys(const Value::Map& attributes) {
  for (const auto& [key, value] : attributes) {
    ZT_RETURN_IF_ERROR(CheckNormalized("the attribute", key));
  }
  return OkStatus();
}

// ---- the order of names ----

// Puts an object's components into the order of their roles.
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

// Puts a plan into the order of names. What shares a blob is left to whoever calls: `shared` gets the pairs that did.
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

// Finds the components of a plan that have the same bytes once they are transformed.
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

  // Reads what may be equal to something else.
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

  // Has each component share the blob of the first that is equal.
  void Share(Plan& plan) {
    std::map<std::size_t, ComponentId> owners;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const auto [held, fresh] = owners.emplace(Root(i), all_[i]);
      if (!fresh)
        plan.objects[all_[i].object].components[all_[i].component].shared_with = held->second;
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

  // Samples tell most components of one size apart, digests nearly all others; equal digests are confirmed.
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
      std::map<std::string, std::size_t> first;  // by digest
      for (const std::size_t i : alike) {
        std::string digest;
        ZT_RETURN_IF_ERROR(Named(i, Digest(i, size, &digest)));
        const auto [held, fresh] = first.emplace(std::move(digest), i);
        if (fresh) continue;
        const NumericCounts lost = lost_;
        bool equal = false;
        ZT_RETURN_IF_ERROR(Named(i, Compare(i, held->second, size, &equal)));
        if (!equal) continue;
        // What is not written is not looked at again: other numbers may have become the same.
        if (plan_.on_overflow == OnOverflow::kError) {
          ZT_RETURN_IF_ERROR(Named(i, CheckFit(lost, ComponentOf(i).element)));
        }
        Join(i, held->second);
      }
    }
    return OkStatus();
  }

  // Whether a component can be read at the places of the samples, which are the same for all of one size.
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

  // All of it, so that lost_ is what its conversion loses.
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

  // In pieces that suit the transforms of both.
  Status Compare(std::size_t a, std::size_t b, std::uint64_t size, bool* equal) {
    const std::uint64_t unit = std::lcm(UnitOf(a), UnitOf(b));
    const std::uint64_t step = std::max(unit, kStep / unit * unit);
    std::vector<std::byte> of_a(std::min(step, size)), of_b(std::min(step, size));
    *equal = true;
    for (std::uint64_t at = 0; at < size;) {
      const std::uint64_t some = std::min<std::uint64_t>(of_a.size(), size - at);
      ZT_RETURN_IF_ERROR(Read(a, at, std::span(of_a).first(some)));
      ZT_RETURN_IF_ERROR(Read(b, at, std::span(of_b).first(some)));
      // Read on in any case: what is sequential is read to its end.
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
  // About `wanted` bytes, in whole units.
  std::uint64_t Units(std::size_t i, std::uint64_t wanted) const {
    return std::max(UnitOf(i), wanted / UnitOf(i) * UnitOf(i));
  }

  // What the component will hold from `offset` on; both ends lie between units.
  Status Read(std::size_t i, std::uint64_t offset, std::span<std::byte> out) {
    const PlannedComponent& planned = PlannedOf(i);
    const Transform* transform = planned.transform.get();
    return writer::internal::Caught([&]() -> Status {
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
  std::vector<std::size_t> first_;  // of each object, in all_
  std::vector<std::size_t> class_;  // of each in all_: another that is equal, or itself
  std::vector<std::byte> input_;
  NumericCounts lost_;  // by conversions, since it was set to nothing
};

}  // namespace

Status MakeCanonical(TensorSource& source, Plan& plan) {
  const ContainerTraits& traits = Traits(plan.spec);
  if (!traits.canonical) {
    return InvalidArgument("version " + std::string(traits.text) + " has no canonical form");
  }
  if (!source.seekable()) {
    return InvalidArgument(
        "a canonical file needs an input that can be read twice, to find what is equal; a pipe "
        "cannot");
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
                                 " is not known, which a canonical file asks for");
      }
      planned.components[c].storage = {.compression = Compression::kNone, .digest = traits.digest};
      planned.components[c].keep_frames = false;
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
