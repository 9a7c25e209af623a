// zt.source — tensors in memory, and several sources as one.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.source;

import zt.std;

namespace zt {
namespace {

constexpr std::size_t kMostNamed = 20;  // attributes of a file in warnings of their own

class MergedSource final : public TensorSource {
 public:
  MergedSource(std::vector<std::unique_ptr<TensorSource>> sources, std::vector<std::string> names)
      : sources_(std::move(sources)), names_(std::move(names)) {}

  Status Init() {
    std::size_t total = 0;
    for (const auto& source : sources_) total += source->objects().size();
    std::unordered_map<std::string_view, std::size_t, zt::internal::NameHash>
        kept;  // attribute -> its place
    objects_.reserve(total);
    origin_.reserve(total);
    for (std::size_t s = 0; s < sources_.size(); ++s) {
      TensorSource& source = *sources_[s];
      for (std::size_t i = 0; i < source.objects().size(); ++i) {
        objects_.push_back(source.objects()[i]);
        origin_.push_back({static_cast<std::uint32_t>(s), static_cast<std::uint32_t>(i)});
      }
      std::size_t differing = 0;
      for (const auto& [key, value] : source.attributes()) {
        const auto [held, fresh] = kept.emplace(key, attributes_.size());
        if (fresh) {
          attributes_.emplace_back(key, value);
        } else if (!(attributes_[held->second].second == value)) {
          if (++differing > kMostNamed) continue;
          warnings_.push_back(names_[s] + ": attribute " + Quote(key) +
                              " differs from the one in an earlier file, which is kept");
        }
      }
      if (differing > kMostNamed) {
        warnings_.push_back(names_[s] + ": " + std::to_string(differing - kMostNamed) +
                            " more attributes differ from those in earlier files, which are kept");
      }
      for (const std::string& warning : source.warnings()) {
        warnings_.push_back(warning);
      }
    }
    return CheckNames();
  }

  const std::string& file(ComponentId id) const override {
    return origin_.empty() ? file_ : source(id).file(inner(id));
  }
  std::string_view format() const override {
    return sources_.empty() ? std::string_view("none") : sources_.front()->format();
  }
  Status CheckReadable(std::uint32_t object) const override {
    return source({object, 0}).CheckReadable(inner({object, 0}).object);
  }
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override {
    return source(id).Read(inner(id), offset, out);
  }
  bool sequential(ComponentId id) const override { return source(id).sequential(inner(id)); }
  std::uint64_t preferred_read(ComponentId id) const override {
    return source(id).preferred_read(inner(id));
  }
  bool seekable() const override {
    for (const auto& source : sources_) {
      if (!source->seekable()) return false;
    }
    return true;
  }
  std::optional<Extent> extent(ComponentId id) const override {
    return source(id).extent(inner(id));
  }
  void WillRead(std::span<const ComponentId> components) override {
    std::vector<std::vector<ComponentId>> of(sources_.size());
    for (const ComponentId id : components) of[origin_[id.object].source].push_back(inner(id));
    for (std::size_t s = 0; s < sources_.size(); ++s) sources_[s]->WillRead(of[s]);
  }
  std::optional<Identity> identity(ComponentId id) const override {
    return source(id).identity(inner(id));
  }
  std::optional<std::span<const std::byte>> View(ComponentId id) const override {
    return source(id).View(inner(id));
  }
  Status Finish() override {
    for (const auto& source : sources_) ZT_RETURN_IF_ERROR(source->Finish());
    return OkStatus();
  }

 private:
  struct Origin {
    std::uint32_t source, object;
  };
  Status CheckNames() const {
    const auto twice = zt::internal::FindTwice(
        objects_.size(), [this](std::size_t i) -> std::string_view { return objects_[i].name; });
    if (!twice) return OkStatus();
    return InvalidData(TensorContext(objects_[twice->again].name) + " is in both " +
                       names_[origin_[twice->first].source] + " and " +
                       names_[origin_[twice->again].source]);
  }
  TensorSource& source(ComponentId id) const { return *sources_[origin_[id.object].source]; }
  ComponentId inner(ComponentId id) const { return {origin_[id.object].object, id.component}; }

  std::vector<std::unique_ptr<TensorSource>> sources_;
  std::vector<std::string> names_;
  std::vector<Origin> origin_;
};

}  // namespace

Status AtTensor(const TensorSource& source, ComponentId id, const Status& status) {
  if (status.ok()) return status;
  return WithFile(WithTensor(status, source.objects()[id.object].name), source.file(id));
}

void TensorSource::WillRead(std::span<const ComponentId> components) {
  std::unordered_map<ByteSource*, std::vector<ByteRange>> ranges;
  for (const ComponentId id : components) {
    const auto at = extent(id);
    // What follows another order than that is found out by the source of the bytes better than by half a list.
    if (!at || at->bytes == nullptr) return;
    if (at->length == 0) continue;
    ranges[at->bytes].push_back({at->offset, at->offset + at->length});
  }
  for (const auto& [bytes, each] : ranges) bytes->WillRead(each);
}

std::optional<Identity> TensorSource::identity(ComponentId id) const {
  const auto at = extent(id);
  if (!at) return std::nullopt;
  return Identity{at->bytes, at->offset, at->length};
}

Status MemorySource::Add(Object object, std::vector<std::span<const std::byte>> components) {
  if (components.size() != object.components.size()) {
    return WithTensor(
        InvalidArgument(std::to_string(object.components.size()) + " components declared, " +
                        std::to_string(components.size()) + " given"),
        object.name);
  }
  for (std::size_t i = 0; i < components.size(); ++i) {
    if (object.components[i].bytes == kUnknownSize)
      object.components[i].bytes = components[i].size();
    if (object.components[i].bytes != components[i].size()) {
      return WithTensor(
          InvalidArgument("component " + Quote(object.components[i].role) + " declares " +
                          std::to_string(object.components[i].bytes) + " bytes, " +
                          std::to_string(components[i].size()) + " given"),
          object.name);
    }
  }
  ZT_RETURN_IF_ERROR(WithTensor(OfCaller(ValidateObject(object)), object.name));
  objects_.push_back(std::move(object));
  bytes_.push_back(std::move(components));
  return OkStatus();
}

void MemorySource::SetAttributes(Value::Map attributes) { attributes_ = std::move(attributes); }

Status MemorySource::Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) {
  const std::span<const std::byte> from = bytes_[id.object][id.component];
  if (offset > from.size() || out.size() > from.size() - offset) {
    return InvalidArgument("range beyond the component");
  }
  if (!out.empty()) std::memcpy(out.data(), from.data() + offset, out.size());
  return OkStatus();
}

// The address is the identity: equal spans are the same tensor twice. No ByteSource stands behind it.
std::optional<Extent> MemorySource::extent(ComponentId id) const {
  const std::span<const std::byte> from = bytes_[id.object][id.component];
  return Extent{nullptr, reinterpret_cast<std::uintptr_t>(from.data()), from.size()};
}

std::optional<std::span<const std::byte>> MemorySource::View(ComponentId id) const {
  return bytes_[id.object][id.component];
}

StatusOr<std::unique_ptr<TensorSource>> MergeSources(
    std::vector<std::unique_ptr<TensorSource>> sources, std::vector<std::string> names) {
  for (std::size_t s = 0; s < sources.size(); ++s) {
    if (sources[s]->file({}).empty()) sources[s]->SetFile(names[s]);
  }
  if (sources.size() == 1) return std::move(sources.front());
  auto merged = std::make_unique<MergedSource>(std::move(sources), std::move(names));
  ZT_RETURN_IF_ERROR(merged->Init());
  return merged;
}

}  // namespace zt
