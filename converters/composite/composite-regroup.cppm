// zt.convert.composite:regroup — a source whose components belong to other objects. Internal to the module.
module zt.convert.composite:regroup;

import zt.std;
import zt.core;
import zt.source;

namespace zt::composite::internal {

// Serves the components of another source, which it owns, under objects of its own.
class RegroupedSource final : public TensorSource {
 public:
  explicit RegroupedSource(std::unique_ptr<TensorSource> inner);

  // `components` says where each component of `object` is found in the inner source.
  void Add(Object object, std::vector<ComponentId> components);
  // An object of the inner source as it is.
  void Keep(std::uint32_t object);
  inline Value::Map& root() { return attributes_; }

  const std::string& file(ComponentId id) const override;
  Status CheckReadable(std::uint32_t object) const override;
  std::optional<Identity> identity(ComponentId id) const override {
    return inner_->identity(Inner(id));
  }
  std::string_view format() const override { return inner_->format(); }
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override;
  bool sequential(ComponentId id) const override { return inner_->sequential(Inner(id)); }
  bool seekable() const override { return inner_->seekable(); }
  std::uint64_t preferred_read(ComponentId id) const override {
    return inner_->preferred_read(Inner(id));
  }
  std::optional<Extent> extent(ComponentId id) const override { return inner_->extent(Inner(id)); }
  std::optional<std::span<const std::byte>> View(ComponentId id) const override {
    return inner_->View(Inner(id));
  }
  Status Finish() override { return inner_->Finish(); }

 private:
  inline ComponentId Inner(ComponentId id) const { return origin_[id.object][id.component]; }

  std::unique_ptr<TensorSource> inner_;
  std::vector<std::vector<ComponentId>> origin_;
};

}  // namespace zt::composite::internal
