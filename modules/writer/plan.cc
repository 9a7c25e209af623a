// zt.writer:plan — decides names, element types, storage and shared blobs.
module;

#include "core/huge_pages.h"
#include "core/name_table.h"
#include "core/status_macros.h"

module zt.writer;

import zt.std;
import zt.compress;
import zt.core;
import zt.digest;
import zt.format;
import zt.source;
import zt.transform;

namespace zt {

using writer::internal::ResolvedStorage;

namespace {

// "q4_k" of format "gguf.q4_k/1"; empty for other formats.
std::string_view GgmlType(std::string_view format) {
  if (!format.starts_with("gguf.") || !format.ends_with("/1")) return {};
  return format.substr(5, format.size() - 7);
}

// True for the component with an object's elements, the one that a dtype rule converts.
bool CarriesElements(const Object& object, const Component& component) {
  if (object.format == "dense") return component.role == "data";
  return IsSparse(object.format) && component.role == "values";
}

// True if a component can be stored as byte planes. The object must be dense: in 1.2 its format
// then says that it is in planes.
bool SuitsPlanes(const Object& object, std::size_t component, std::size_t unit) {
  // All permitted chunk sizes are multiples of the least.
  const CodecParameters least =
      FindCodec(Encoding::kPlanes)->Parameters(object.components[component].element, 0);
  return least.frame_content != 0 && least.frame_content % unit == 0 && object.format == "dense" &&
         FindMember(object.attributes, "planes") == nullptr;
}

class Planner {
 public:
  Planner(const TensorSource& source, const PlanOptions& options)
      : source_(source), options_(options) {}

  // Calls Run; exceptions become errors that name the current tensor.
  StatusOr<Plan> RunCaught() {
    try {
      return Run();
    } catch (...) {
      const Status status = ExceptionAsStatus();
      if (source_.objects().empty()) return status;
      return Named(status, current_);
    }
  }

 private:
  StatusOr<Plan> Run() {
    plan_.spec = options_.spec;
    if (options_.storage.compression != Compression::kNone &&
        FindCodec(options_.storage.encoding) != nullptr) {
      ZT_RETURN_IF_ERROR(CheckEncoding(options_.storage.encoding, options_.spec));
    }
    if (options_.attributes) plan_.attributes = source_.attributes();
    plan_.on_overflow = options_.on_overflow;
    plan_.allow_fraction_loss = options_.allow_fraction_loss;
    ZT_RETURN_IF_ERROR(
        WithFile(CheckExpressible(plan_.attributes, options_.spec), source_.file({})));
    FilePaths paths;  // against the files, the writer checks them
    ZT_RETURN_IF_ERROR(
        WithFile(WithAdvice(CheckWeightFiles(plan_.attributes, paths), Advice::kMetadata),
                 source_.file({})));
    ZT_RETURN_IF_ERROR(WithFile(budget_.Take(plan_.attributes), source_.file({})));
    zt::internal::ReserveHuge(plan_.objects, source_.objects().size());
    for (std::uint32_t i = 0; i < source_.objects().size(); ++i) {
      const Object& object = source_.objects()[i];
      current_ = i;
      if (options_.keep && !options_.keep(object)) continue;
      ZT_RETURN_IF_ERROR(Named(AddObject(i, object), i));
    }
    if (options_.rename) ZT_RETURN_IF_ERROR(CheckNames());
    ShareBlobs();
    return std::move(plan_);
  }

  // A source's own names are unique; new ones need not be.
  Status CheckNames() {
    const auto& planned = plan_.objects;
    const auto twice = zt::internal::FindTwice(
        planned.size(), [&](std::size_t i) -> std::string_view { return planned[i].object->name; });
    if (!twice) return OkStatus();
    const auto source_of = [&](std::size_t i) { return planned[i].components[0].source.object; };
    const auto name_of = [&](std::size_t i) { return source_.objects()[source_of(i)].name; };
    return Named(
        InvalidArgument("it and " + TensorContext(name_of(twice->first)) + " would both be named " +
                        Quote(planned[twice->again].object->name)),
        source_of(twice->again));
  }

  Status Named(const Status& status, std::uint32_t object) const {
    return AtTensor(source_, {object, 0}, status);
  }

  Status AddObject(std::uint32_t index, const Object& from) {
    ZT_RETURN_IF_ERROR(source_.CheckReadable(index));
    std::shared_ptr<Object> changed;  // a copy of `from`, made for the first change
    if (options_.rename) {
      std::string name = options_.rename(from.name);
      if (name != from.name) {
        changed = std::make_shared<Object>(from);
        changed->name = std::move(name);
      }
    }
    std::optional<ElementType> wanted;
    if (options_.convert) wanted = options_.convert(from);
    PlannedObject& planned = plan_.objects.emplace_back();
    planned.components.resize(from.components.size());
    for (std::uint32_t c = 0; c < from.components.size(); ++c) {
      PlannedComponent& component = planned.components[c];
      component.source = {index, c};
      if (wanted) ZT_RETURN_IF_ERROR(Convert(from, *wanted, c, component, changed));
    }
    if (changed != nullptr) {
      planned.object = std::move(changed);
    } else {
      planned.object = {std::shared_ptr<void>(), &from};
    }
    ZT_RETURN_IF_ERROR(budget_.Take(planned.object->attributes));
    for (std::uint32_t c = 0; c < planned.components.size(); ++c) {
      ZT_RETURN_IF_ERROR(Store(*planned.object, c, planned.components[c]));
    }
    return OkStatus();
  }

  // The encoding in which the source has a component, if that is to be kept; else kRaw.
  Encoding HeldEncoding(const PlannedComponent& component) const {
    if (!options_.keep_encoding) return Encoding::kRaw;
    const auto stream = source_.encoded(component.source);
    return stream ? stream->encoding : Encoding::kRaw;
  }

  // The requested storage of a component that the source has in the encoding `held`.
  Storage Wanted(Encoding held) const {
    Storage wanted = options_.storage;
    if (held == Encoding::kRaw) return wanted;
    wanted.encoding = CheckEncoding(held, options_.spec).ok() ? held : Encoding::kZstd;
    wanted.compression = CheckEncoding(wanted.encoding, options_.spec).ok() ? Compression::kIfGain
                                                                            : Compression::kNone;
    return wanted;
  }

  // Decides how a component is stored. Mostly all of an object are stored alike: then one look at
  // it is enough.
  Status Store(const Object& object, std::uint32_t c, PlannedComponent& component) {
    const Encoding held = HeldEncoding(component);
    component.storage = Wanted(held);
    ZT_ASSIGN_OR_RETURN(
        const ResolvedStorage resolved,
        writer::internal::ResolveStorage(object, c, component.storage, options_.spec, 0,
                                         component.transform.get()));
    component.storage.digest = resolved.digest;
    if (resolved.codec != nullptr) component.storage.encoding = resolved.encoding;
    if (held != Encoding::kRaw && resolved.encoding == held && component.transform == nullptr) {
      component.storage.compression = Compression::kKeep;
    }
    if (c > 0 && resolved.encoding == encoding_) return OkStatus();
    encoding_ = resolved.encoding;
    return CheckExpressible(object, encoding_, Name(resolved.digest), options_.spec);
  }

  Status Convert(const Object& from, const ElementType& wanted, std::uint32_t c,
                 PlannedComponent& component, std::shared_ptr<Object>& changed) const {
    const Component& declared = from.components[c];
    const std::string_view blocks = GgmlType(from.format);
    if (!blocks.empty()) {
      if (!wanted.type.empty()) {
        return Unsupported(std::string(blocks) + " cannot be dequantized to " + wanted.type);
      }
      ZT_ASSIGN_OR_RETURN(
          component.transform,
          MakeDequantize(blocks, wanted.dtype, options_.on_overflow == OnOverflow::kSaturate));
    } else {
      if (!CarriesElements(from, declared) || declared.element == wanted) return OkStatus();
      ZT_ASSIGN_OR_RETURN(component.transform,
                          MakeConversion(declared.element, wanted, options_.on_overflow));
    }
    if (changed == nullptr) changed = std::make_shared<Object>(from);
    if (!blocks.empty()) {
      changed->format = "dense";
      std::erase_if(changed->attributes, [](const auto& member) {  // the geometry of the blocks
        return member.first == "elems_per_block" || member.first == "block_bytes";
      });
    }
    Component& target = changed->components[c];
    if (target.bytes != kUnknownSize) {
      const std::uint64_t units = target.bytes / component.transform->input_unit();
      const auto bytes = CheckedMul(units, component.transform->output_unit());
      if (!bytes) return InvalidData("the converted size overflows 64 bits");
      target.bytes = *bytes;
    }
    target.element = wanted;
    return OkStatus();
  }

  // Deduplicates tied weights: components with the same source bytes and the same treatment share
  // the first one's blob.
  void ShareBlobs() {
    struct IdentifiedComponent {
      Identity identity;
      ComponentId at;  // index in the plan
      auto operator<=>(const IdentifiedComponent&) const = default;
    };
    if (AllDiffer()) return;
    std::vector<IdentifiedComponent> blobs;
    blobs.reserve(plan_.objects.size());
    for (std::uint32_t i = 0; i < plan_.objects.size(); ++i) {
      for (std::uint32_t c = 0; c < plan_.objects[i].components.size(); ++c) {
        const ComponentId source = plan_.objects[i].components[c].source;
        current_ = source.object;
        const auto identity = source_.identity(source);
        if (identity && identity->length > 0) blobs.push_back({*identity, {i, c}});
      }
    }
    if (!std::is_sorted(blobs.begin(), blobs.end())) std::sort(blobs.begin(), blobs.end());
    for (std::size_t begin = 0, end; begin < blobs.size(); begin = end) {
      std::map<std::string, ComponentId> first;  // the first component with each treatment
      for (end = begin + 1; end < blobs.size() && blobs[end].identity == blobs[begin].identity;
           ++end) {
        if (first.empty()) first.emplace(Treatment(blobs[begin].at), blobs[begin].at);
        const auto [found, fresh] = first.emplace(Treatment(blobs[end].at), blobs[end].at);
        if (!fresh) {
          plan_.objects[blobs[end].at.object].components[blobs[end].at.component].shared_with =
              found->second;
        }
      }
    }
  }

  // True if identities strictly ascend, so that no two components have the same source bytes. Most
  // sources list components in file order.
  bool AllDiffer() {
    std::optional<Identity> before;
    for (const PlannedObject& planned : plan_.objects) {
      for (const PlannedComponent& component : planned.components) {
        current_ = component.source.object;
        const auto identity = source_.identity(component.source);
        if (!identity || identity->length == 0) continue;
        if (before && !(*before < *identity)) return false;
        before = identity;
      }
    }
    return true;
  }

  // A key for the changes to a component's bytes (transform, planes); "" for none.
  std::string Treatment(ComponentId at) const {
    const PlannedObject& planned = plan_.objects[at.object];
    const PlannedComponent& component = planned.components[at.component];
    const bool planes = component.storage.compression != Compression::kNone &&
                        component.storage.encoding == Encoding::kPlanes;
    if (component.transform == nullptr && !planes) return {};
    const Object& from = source_.objects()[component.source.object];
    return (planes ? "planes " : "") + from.format + " " +
           std::string(Name(from.components[at.component].element)) + " " +
           std::string(Name(planned.object->components[at.component].element));
  }

  const TensorSource& source_;
  const PlanOptions& options_;
  AttributeBudget budget_;  // of the manifest to be written
  Plan plan_;
  Encoding encoding_ = Encoding::kRaw;  // the encoding that the current object was checked for
  std::uint32_t current_ = 0;           // index of the current object in the source
};

}  // namespace

StatusOr<ResolvedStorage> writer::internal::ResolveStorage(const Object& object,
                                                           std::size_t component,
                                                           const Storage& wanted, SpecVersion spec,
                                                           std::uint64_t frame_bytes,
                                                           const Transform* transform) {
  ResolvedStorage resolved;
  resolved.compression =
      wanted.compression == Compression::kKeep ? Compression::kIfGain : wanted.compression;
  resolved.digest = wanted.digest.value_or(Traits(spec).digest);
  if (wanted.compression == Compression::kNone) return resolved;
  resolved.encoding = wanted.encoding;
  const std::size_t unit = transform == nullptr ? 1 : transform->output_unit();
  if (wanted.encoding == Encoding::kPlanes && !SuitsPlanes(object, component, unit)) {
    resolved.encoding = Encoding::kZstd;
  }
  resolved.codec = FindCodec(resolved.encoding);
  if (resolved.codec == nullptr) {
    const std::string which =
        wanted.encoding == Encoding::kRaw
            ? "raw"
            : std::to_string(static_cast<unsigned>(wanted.encoding)) + ", which no codec has";
    return InvalidArgument("it is to be compressed, and its encoding is " + which +
                           "; choose zstd or byte planes");
  }
  resolved.parameters =
      resolved.codec->Parameters(object.components[component].element, frame_bytes);
  return resolved;
}

std::uint64_t Plan::input_bytes(const TensorSource& source) const {
  std::uint64_t total = 0;
  for (const PlannedObject& object : objects) {
    for (const PlannedComponent& component : object.components) {
      if (component.shared_with) continue;
      const ComponentId id = component.source;
      const auto stored = source.stored(id);
      total += stored ? stored->length : source.objects()[id.object].components[id.component].bytes;
    }
  }
  return total;
}

std::uint64_t Plan::output_bytes() const {
  std::uint64_t total = 0;
  for (const PlannedObject& object : objects) {
    for (std::size_t c = 0; c < object.components.size(); ++c) {
      const std::uint64_t bytes = object.object->components[c].bytes;
      if (!object.components[c].shared_with && bytes != kUnknownSize) total += bytes;
    }
  }
  return total;
}

bool HasInfinity(const ElementType& element) {
  return element.type.empty() ? IsFloat(element.dtype)
                              : element.type == "f8_e5m2" || element.type.starts_with("complex");
}

void AddOverflow(std::uint64_t made, const ElementType& element, OnOverflow on_overflow,
                 NumericCounts& counts) {
  // The conversion counted them too, unless they came as infinity and stayed so.
  const bool apart = on_overflow == OnOverflow::kInf && HasInfinity(element);
  counts.overflow = apart ? counts.overflow + made : std::max(counts.overflow, made);
}

Status CheckFit(const NumericCounts& counts, const ElementType& element, const Plan& plan) {
  const std::string target(Name(element));
  if (counts.fraction_lost > 0 && !plan.allow_fraction_loss) {
    return WithAdvice(
        NumericError(
            std::to_string(counts.fraction_lost) +
            (counts.fraction_lost == 1 ? " value has a fraction" : " values have fractions") +
            ", which " + target + " cannot hold; a change of type does not quantize"),
        Advice::kAllowLoss);
  }
  if (plan.on_overflow != OnOverflow::kError) return OkStatus();
  std::string what;
  if (counts.overflow > 0) {
    what = std::to_string(counts.overflow) +
           (counts.overflow == 1 ? " value does not fit " : " values do not fit ") + target;
  }
  if (counts.nan_lost > 0) {
    what += (what.empty() ? "" : ", ") + std::to_string(counts.nan_lost) +
            (counts.nan_lost == 1 ? " NaN has" : " NaN have") + " no counterpart in " + target;
  }
  if (what.empty()) return OkStatus();
  return WithAdvice(NumericError(what), Advice::kOnOverflow);
}

StatusOr<Plan> MakePlan(const TensorSource& source, const PlanOptions& options) {
  return Planner(source, options).RunCaught();
}

}  // namespace zt
