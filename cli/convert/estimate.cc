// zt.cli:conversion — what a sample of the input tells of a conversion: the size of the file, and
// whether a base is the right one.
module;

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :conversion;
import :signals;

namespace zt::cli::internal {
namespace {

// The sample is windows of this size, spread evenly over the input.
constexpr std::uint64_t kWindowBytes = 512 << 10;

// How many. The highest levels compress a few MB/s.
std::uint64_t WindowsFor(const ZstdOptions& zstd) { return zstd.level > 9 ? 8 : 64; }

// A component of a plan whose bytes are encoded, not copied.
struct Part {
  const PlannedObject* object = nullptr;
  std::size_t component = 0;
  const Component* from = nullptr;  // as the source declares it

  const PlannedComponent& planned() const { return object->components[component]; }
  const ElementType& to() const { return object->object->components[component].element; }
};

// Bytes of the smallest range that can be converted by itself.
std::uint64_t UnitOf(const Part& part) {
  const std::uint64_t width = ElementBytes(part.from->element);
  const Transform* const transform = part.planned().transform.get();
  return transform == nullptr ? width : std::lcm(width, transform->input_unit());
}

// Declares a tensor of one dimension.
StatusOr<Object> Flat(const std::string& name, const ElementType& element, std::uint64_t bytes) {
  return DenseObject(name, {bytes / ElementBytes(element)}, element);
}

// Ranges of components of another source, each a tensor by itself.
class Sample final : public TensorSource {
 public:
  explicit Sample(TensorSource& whole) : whole_(whole) {}

  // Adds `bytes` of a component from `begin` on, and to `plan` what converts them as the component.
  Status Add(const Part& part, std::uint64_t begin, std::uint64_t bytes, Plan& plan) {
    const std::string name =
        part.object->object->name + ", sample " + std::to_string(pieces_.size());
    const ComponentId id{static_cast<std::uint32_t>(pieces_.size()), 0};
    PlannedComponent planned = part.planned();
    if (planned.storage.compression == Compression::kKeep) {
      planned.storage.compression = Compression::kIfGain;
    }
    ZT_ASSIGN_OR_RETURN(Object from, Flat(name, part.from->element, bytes));
    std::uint64_t becomes = bytes;
    if (planned.transform != nullptr)
      becomes = bytes / planned.transform->input_unit() * planned.transform->output_unit();
    ZT_ASSIGN_OR_RETURN(Object to, Flat(name, part.to(), becomes));
    pieces_.push_back({std::exchange(planned.source, id), begin});
    objects_.push_back(std::move(from));
    plan.objects.push_back({std::make_shared<const Object>(std::move(to)), {std::move(planned)}});
    bytes_ += bytes;
    return OkStatus();
  }
  std::uint64_t bytes() const { return bytes_; }

  std::string_view format() const override { return whole_.format(); }
  const std::string& file(ComponentId id) const override { return whole_.file(Of(id).id); }
  bool sequential(ComponentId id) const override { return whole_.sequential(Of(id).id); }
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override {
    return whole_.Read(Of(id).id, Of(id).begin + offset, out);
  }

 private:
  struct Piece {
    ComponentId id;
    std::uint64_t begin = 0;
  };
  const Piece& Of(ComponentId id) const { return pieces_[id.object]; }

  TensorSource& whole_;
  std::vector<Piece> pieces_;
  std::uint64_t bytes_ = 0;
};

// Adds windows of the parts to the sample, which follow each other and have `total` bytes. One that
// begins in a part ends with it at the latest.
Status Fill(const std::vector<Part>& parts, std::uint64_t total, std::uint64_t windows,
            const TensorSource& source, Sample& sample, Plan& plan) {
  const std::uint64_t step = total / windows;
  std::uint64_t window = 0, at = 0;
  for (const Part& part : parts) {
    const std::uint64_t bytes = part.from->bytes, unit = UnitOf(part);
    const bool sequential = source.sequential(part.planned().source);
    std::uint64_t in_order = 0;
    for (; window < windows && window * step < at + bytes; ++window) {
      const std::uint64_t first = (window * step - at) / unit * unit;
      const std::uint64_t size = std::min((kWindowBytes + unit - 1) / unit * unit, bytes - first);
      in_order += size;
      if (!sequential) ZT_RETURN_IF_ERROR(sample.Add(part, first, size, plan));
    }
    // A component that can only be read in order gives as many bytes from its beginning.
    if (sequential && in_order > 0)
      ZT_RETURN_IF_ERROR(sample.Add(part, 0, std::min(in_order, bytes), plan));
    at += bytes;
  }
  return OkStatus();
}

StatusOr<std::uint64_t> Write(TensorSource& source, const Plan& plan,
                              const WriterOptions& options) {
  ZT_ASSIGN_OR_RETURN(const auto writer, WriteFile(DiscardSink(), source, plan, options));
  return writer->file_bytes();
}

// The size of a stream that is copied; nullopt if the component is encoded.
std::optional<std::uint64_t> Copied(const TensorSource& source, const PlannedComponent& planned) {
  if (planned.storage.compression != Compression::kKeep) return std::nullopt;
  const auto stream = source.encoded(planned.source);
  if (!stream || stream->extent.bytes == nullptr) return std::nullopt;
  return stream->extent.length;
}

StatusOr<std::uint64_t> Estimate(TensorSource& source, const Plan& plan, WriterOptions options) {
  Plan trial = plan;
  // The conversion reports values that do not fit.
  trial.on_overflow = OnOverflow::kSaturate;
  trial.allow_fraction_loss = true;
  const std::uint64_t windows = WindowsFor(options.zstd), most = windows * kWindowBytes;
  if (plan.input_bytes(source) <= most) return Write(source, trial, options);
  trial.objects.clear();
  std::uint64_t known = 0, total = 0;
  std::vector<Part> parts;
  for (const PlannedObject& object : plan.objects) {
    for (std::size_t c = 0; c < object.components.size(); ++c) {
      const PlannedComponent& planned = object.components[c];
      if (planned.shared_with) continue;
      const Component& from =
          source.objects()[planned.source.object].components[planned.source.component];
      if (const auto copied = Copied(source, planned)) {
        known += *copied;
      } else if (from.bytes > 0) {
        parts.push_back({&object, c, &from});
        total += from.bytes;
      }
    }
  }
  if (total < most) return known + total;                     // nearly everything is copied
  std::ranges::stable_sort(parts, {}, [](const Part& part) {  // so each type has its share
    return std::tuple(part.from->element.dtype, Name(part.to()));
  });
  // The sample has more blobs than its share of the file: their padding is added below.
  const ContainerTraits& traits = Traits(options.spec);
  std::uint64_t placement = std::exchange(options.alignment, traits.alignment);
  if (placement == 0) placement = traits.placement;
  Sample sample(source);
  ZT_RETURN_IF_ERROR(Fill(parts, total, windows, source, sample, trial));
  ZT_ASSIGN_OR_RETURN(const std::uint64_t written, Write(sample, trial, options));
  const double ratio = static_cast<double>(written) / static_cast<double>(sample.bytes());
  for (const Part& part : parts) {
    const double stored = ratio * static_cast<double>(part.from->bytes);
    known += (static_cast<std::uint64_t>(stored) / placement + 1) * placement;
  }
  return known;
}

}  // namespace

StatusOr<std::optional<std::uint64_t>> EstimateBytes(TensorSource& source, const Plan& plan,
                                                     const WriterOptions& options) {
  if (!source.seekable()) return std::optional<std::uint64_t>();
  const auto bytes = Estimate(source, plan, options);
  if (Interrupted()) return Cancelled("interrupted");
  ZT_RETURN_IF_UNAVAILABLE(bytes.status());
  return bytes.ok() ? std::optional(*bytes) : std::nullopt;
}

Status TryBases(const Args& args, TensorSource& source, const Plan& plan) {
  if (args.used_bases->empty()) return OkStatus();
  constexpr std::size_t kMostTensors = 32;
  constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;
  std::vector<std::byte> piece;
  std::uint64_t read = 0;
  const std::size_t step = (plan.objects.size() + kMostTensors - 1) / kMostTensors;
  for (std::size_t i = 0; i < plan.objects.size() && read < kMostBytes; i += step) {
    const ComponentId id = plan.objects[i].components.front().source;
    const std::uint64_t bytes = source.objects()[id.object].components[id.component].bytes;
    if (source.sequential(id)) continue;  // a digest at its end tells
    piece.resize(std::min(bytes, std::max(source.preferred_read(id), kWindowBytes)));
    ZT_RETURN_IF_ERROR(AtTensor(source, id, source.Read(id, 0, piece)));
    read += piece.size();
  }
  return OkStatus();
}

}  // namespace zt::cli::internal
