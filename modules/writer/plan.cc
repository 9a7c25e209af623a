// zt.writer:plan — bodies.
module;

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/status_macros.h"

module zt.writer;

import zt.core;
import zt.digest;
import zt.format;
import zt.source;
import zt.transform;

namespace zt {
namespace {

// "q4_k" of format "gguf.q4_k/1"; empty for other formats.
std::string_view GgmlType(std::string_view format) {
  if (!format.starts_with("gguf.") || !format.ends_with("/1")) return {};
  return format.substr(5, format.size() - 7);
}

// Which component carries an object's elements: the one a dtype rule converts.
bool CarriesElements(const Object& object, const Component& component) {
  if (object.format == "dense") return component.role == "data";
  return (object.format == "sparse_csr" || object.format == "sparse_coo") &&
         component.role == "values";
}

// What makes two components one blob: the same bytes, treated alike ("" for as they are).
struct Blob {
  Identity identity;
  std::string treatment;
  bool operator==(const Blob&) const = default;
};
struct HashBlob {
  std::size_t operator()(const Blob& blob) const {
    return std::hash<std::uint64_t>()(blob.identity.value * 0x9e3779b97f4a7c15u ^
                                      blob.identity.length) ^
           std::hash<const void*>()(blob.identity.space);
  }
};

class Planner {
 public:
  Planner(const TensorSource& source, const PlanOptions& options)
      : source_(source), options_(options) {}

  StatusOr<Plan> Run() {
    plan_.spec = options_.spec;
    plan_.attributes = source_.attributes();
    plan_.on_overflow = options_.on_overflow;
    ZT_RETURN_IF_ERROR(InFile(CheckExpressible(plan_.attributes, options_.spec), 0));
    plan_.objects.reserve(source_.objects().size());
    blobs_.reserve(source_.objects().size());
    for (std::uint32_t i = 0; i < source_.objects().size(); ++i) {
      const Object& object = source_.objects()[i];
      if (options_.keep && !options_.keep(object)) continue;
      ZT_RETURN_IF_ERROR(InFile(AnnotateTensor(AddObject(i, object), object.name), i));
    }
    return std::move(plan_);
  }

 private:
  // The file that holds the object, where the source knows it, before the message.
  Status InFile(const Status& status, std::uint32_t object) const {
    if (status.ok() || source_.objects().empty()) return status;
    const std::string& file = source_.file({object, 0});
    return file.empty() ? status : Annotate(status, file);
  }

  Status AddObject(std::uint32_t index, const Object& from) {
    ZT_RETURN_IF_ERROR(source_.CheckReadable(index));
    PlannedObject planned;
    planned.object = from;
    if (options_.rename) {  // a source's own names are unique; new ones need not be
      planned.object.name = options_.rename(from.name);
      const auto [held, fresh] = names_.emplace(planned.object.name, index);
      if (!fresh) {
        return InvalidData("it and " + TensorContext(source_.objects()[held->second].name) +
                           " would both be named " + Quote(planned.object.name));
      }
    }
    std::optional<ElementType> wanted;
    if (options_.convert) wanted = options_.convert(from);
    for (std::uint32_t c = 0; c < from.components.size(); ++c) {
      PlannedComponent component;
      component.source = {index, c};
      component.storage = options_.storage;
      if (wanted) {
        ZT_RETURN_IF_ERROR(Convert(from, *wanted, planned.object, c, component));
      }
      planned.components.push_back(std::move(component));
    }
    ZT_RETURN_IF_ERROR(ValidateObject(planned.object));
    for (std::uint32_t c = 0; c < planned.components.size(); ++c) Share(from, planned, c);
    const Encoding encoding =
        options_.storage.compression == Compression::kNone ? Encoding::kRaw : Encoding::kZstd;
    ZT_RETURN_IF_ERROR(
        CheckExpressible(planned.object, encoding, Name(options_.storage.digest), options_.spec));
    plan_.objects.push_back(std::move(planned));
    return OkStatus();
  }

  Status Convert(const Object& from, const ElementType& wanted, Object& object, std::uint32_t c,
                 PlannedComponent& component) const {
    Component& target = object.components[c];
    if (const std::string_view blocks = GgmlType(from.format); !blocks.empty()) {
      if (!wanted.type.empty()) {
        return Unsupported(std::string(blocks) + " cannot be dequantized to " + wanted.type);
      }
      ZT_ASSIGN_OR_RETURN(
          component.transform,
          MakeDequantize(blocks, wanted.dtype, options_.on_overflow == OnOverflow::kSaturate));
      object.format = "dense";
      object.attributes.clear();  // the geometry of blocks that are no more
    } else {
      if (!CarriesElements(from, from.components[c]) || target.element == wanted) return OkStatus();
      ZT_ASSIGN_OR_RETURN(component.transform,
                          MakeConversion(target.element, wanted, options_.on_overflow));
    }
    if (target.bytes != kUnknownSize) {
      const std::uint64_t units = target.bytes / component.transform->input_unit();
      const auto bytes = CheckedMul(units, component.transform->output_unit());
      if (!bytes) return InvalidData("the converted size overflows 64 bits");
      target.bytes = *bytes;
    }
    target.element = wanted;
    return OkStatus();
  }

  // Tied weights: the same source bytes, treated alike, share a blob.
  void Share(const Object& from, PlannedObject& planned, std::uint32_t c) {
    const auto identity = source_.identity(planned.components[c].source);
    if (!identity || identity->length == 0) return;
    std::string treatment;
    if (planned.components[c].transform != nullptr) {
      treatment = from.format + " " + std::string(Name(from.components[c].element)) + " " +
                  std::string(Name(planned.object.components[c].element));
    }
    const auto here = ComponentId{static_cast<std::uint32_t>(plan_.objects.size()), c};
    const auto [held, fresh] = blobs_.emplace(Blob{*identity, std::move(treatment)}, here);
    if (!fresh) planned.components[c].shared_with = held->second;
  }

  const TensorSource& source_;
  const PlanOptions& options_;
  Plan plan_;
  std::unordered_map<std::string, std::uint32_t> names_;  // new name -> source object
  std::unordered_map<Blob, ComponentId, HashBlob> blobs_;
};

}  // namespace

std::uint64_t Plan::input_bytes(const TensorSource& source) const {
  std::uint64_t total = 0;
  for (const PlannedObject& object : objects) {
    for (const PlannedComponent& component : object.components) {
      if (component.shared_with) continue;
      total +=
          source.objects()[component.source.object].components[component.source.component].bytes;
    }
  }
  return total;
}

std::uint64_t Plan::output_bytes() const {
  std::uint64_t total = 0;
  for (const PlannedObject& object : objects) {
    for (std::size_t c = 0; c < object.components.size(); ++c) {
      if (!object.components[c].shared_with) total += object.object.components[c].bytes;
    }
  }
  return total;
}

StatusOr<Plan> MakePlan(const TensorSource& source, const PlanOptions& options) {
  return Planner(source, options).Run();
}

}  // namespace zt
