// zt.writer:plan — what will be done, as data, decided before the first byte is written.
module;

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

export module zt.writer:plan;

import zt.core;
import zt.digest;
import zt.format;
import zt.source;
import zt.transform;

export namespace zt {

// Whether a component is compressed.
enum class Compression : std::uint8_t {
  kNone,
  kIfGain,  // unless it would shrink by less than WriterOptions::min_gain; decided by its first frame
  kAlways,
};

// How a component is stored.
struct Storage {
  Compression compression = Compression::kNone;
  DigestKind digest = DigestKind::kCrc32c;  // over the stored bytes
  bool operator==(const Storage&) const = default;
};

struct PlannedComponent {
  ComponentId source;
  std::shared_ptr<const Transform> transform;  // null: the bytes go as they are
  Storage storage;
  // Set where an earlier component of the plan has the same bytes: this one gets no blob but shares that one's.
  std::optional<ComponentId> shared_with;  // indices into Plan::objects and its components
};

struct PlannedObject {
  Object object;  // as it will be stored: new name, new element types and sizes
  std::vector<PlannedComponent> components;
};

struct Plan {
  Value::Map attributes;  // of the file
  std::vector<PlannedObject> objects;
  OnOverflow on_overflow = OnOverflow::kError;

  std::uint64_t input_bytes(const TensorSource& source) const;  // that will be read
  std::uint64_t output_bytes() const;                           // decoded; shared blobs once
};

struct PlanOptions {
  SpecVersion spec = SpecVersion::k1_2;
  Storage storage = {};
  OnOverflow on_overflow = OnOverflow::kError;
  // Each may be empty. keep: false drops the object. rename: its new name. convert: the element type it should have
  // (called with the declaration as the source gives it), or nothing to leave it. Objects of ggml blocks
  // (format "gguf.<type>/1") are dequantized to it and become dense.
  std::function<bool(const Object&)> keep = {};
  std::function<std::string(const std::string& name)> rename = {};
  std::function<std::optional<ElementType>(const Object&)> convert = {};
};

// Decides everything: names (a collision is kDataLoss naming both), conversions (kUnimplemented where there is
// none), shared blobs, and whether the spec can hold the result (CheckExpressible).
StatusOr<Plan> MakePlan(const TensorSource& source, const PlanOptions& options);

}  // namespace zt
