// zt.convert.delta:profile — the attributes of an object that is stored as differences. Internal.
module zt.convert.delta:profile;

import zt.std;
import zt.compress;
import zt.core;
import zt.source;

namespace zt::delta::internal {

// A component of the object that a delta makes.
struct Part {
  std::string role;
  ElementType element;
  std::uint64_t bytes = 0;
  std::uint32_t chunk = 0;  // bytes of each chunk but the last
  std::string digest;       // of the result
  std::vector<DeltaChunk> chunks;
  // If set, its bytes are those of a part of another object of the file: name and role.
  std::optional<std::pair<std::string, std::string>> same_as;
};

// What an object with kDeltaFormat says in its attribute "delta".
struct Entry {
  std::string format = "dense";  // of the result
  std::uint64_t index = 0;       // where the result stands in the model, and is served
  std::string from;              // the object of the base; empty: of the same name
  std::vector<Part> parts;
};

inline constexpr std::string_view kEntryAttribute = "delta";
// The most parts of an object, each of which is looked for among all.
inline constexpr std::size_t kMostParts = 256;
// The role of the component with the frames of a part.
std::string RoleOf(const Part& part);

Value ToValue(const Entry& entry);
// kDataLoss names the rule that is broken.
StatusOr<Entry> ReadEntry(const Object& object);
// The object that an entry makes.
Object ResultOf(const Object& stored, const Entry& entry);

// An attribute that breaks a rule.
Status Broken(const std::string& rule);

// The component of an object that has this role, type and size, if one is given.
std::optional<std::uint32_t> FindComponent(const Object& object, std::string_view role,
                                           const ElementType& element,
                                           std::optional<std::uint64_t> bytes = {});

// Reads ranges of a component in any order, without its digest, where that is possible.
class AnyOrder {
 public:
  AnyOrder() = default;
  AnyOrder(TensorSource& source, ComponentId id);
  bool possible() const;
  Status Read(std::uint64_t offset, std::span<std::byte> out) const;
  inline ComponentId id() const { return id_; }

 private:
  TensorSource* source_ = nullptr;
  ComponentId id_;
  std::shared_ptr<UnorderedReader> apart_;
};

// What a component of a model of OpenDelta is made of: a part, and the object of the base. nullopt if
// the delta has it as it is.
struct OfBase {
  const Part* part = nullptr;
  std::string_view base;
};
std::optional<OfBase> MadeFrom(const TensorSource& model, ComponentId id);

// UpdateFromDelta of one range. `dry`: only finds out whether it can be made, and changes nothing.
Status UpdateRange(TensorSource& model, ComponentId id, std::uint64_t offset,
                   std::span<std::byte> memory, bool dry);

}  // namespace zt::delta::internal
