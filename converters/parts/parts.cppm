// zt.convert.parts — tensors of which each file holds a part: what several ranks wrote, put together.
export module zt.convert.parts;

import zt.std;
import zt.core;
import zt.source;

export namespace zt {

// The attribute of an object that is a part of a tensor, as one rank has it: a map of Part's members.
inline constexpr std::string_view kPart = "ztstream.part";

// Which part of a tensor an object is: a box, whose sizes are the object's shape.
struct Part {
  Shape offsets = {};                         // of the box in the tensor
  std::optional<Shape> shape = std::nullopt;  // the tensor's; nullopt if the file does not say
  std::uint64_t copies = 1;                   // the number of ranks that have this part
};
// The value of the attribute.
Value ToValue(const Part& part);
// The part that an object is by its attribute, nullopt if it is none. kDataLoss if the attribute is
// no map of a Part's members, or does not fit the object.
StatusOr<std::optional<Part>> FindPart(const Object& object);

// True if the source has objects that are parts.
bool HoldsParts(const TensorSource& source);

// A box of a tensor: all of a dense object of a source.
struct Box {
  Shape offsets;
  TensorSource* source = nullptr;
  std::uint32_t object = 0;
  inline const Shape& sizes() const { return source->objects()[object].shape; }
};

// Tensors that are made of boxes, served in C order. Boxes are read line by line, a line being what is
// contiguous in both; a Read takes at most 1 MiB beside its output.
class BoxSource : public TensorSource {
 public:
  explicit BoxSource(std::string format) : format_(std::move(format)) {}
  // Adds a tensor. Its boxes have its element type and rank. kDataLoss unless they lie within it, do
  // not overlap, and cover it.
  Status Add(Object object, std::vector<Box> boxes);
  // Adds a tensor that is listed and cannot be read, and one of its files; by default this source's.
  void AddUnreadable(Object object, const Status& problem, std::string file = {});
  // Adds an attribute of the whole file.
  inline void AddAttribute(const Value::Member& attribute) { attributes_.push_back(attribute); }

  std::string_view format() const override { return format_; }
  bool sequential(ComponentId id) const override;
  // Some rows at once where several boxes have parts of them, up to 4 MiB.
  std::uint64_t preferred_read(ComponentId id) const override;
  const std::string& file(ComponentId id) const override;
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override;

 protected:
  // By object, sorted by their offsets; without empty ones.
  inline const std::vector<Box>& boxes(std::uint32_t object) const { return boxes_[object]; }

 private:
  Status CheckBoxes(const Object& object, std::vector<Box>& boxes);

  // Number of pairs of boxes compared, over all tensors. Its limit grows with each box.
  std::uint64_t compared_ = 0, allowed_ = std::uint64_t{1} << 26;
  const std::string format_;
  std::vector<std::vector<Box>> boxes_;
  std::vector<std::uint64_t> tallest_;                         // by object: rows of its tallest box
  std::unordered_map<std::uint32_t, std::string> unreadable_;  // files of objects without boxes
};

// MergeSources for the files of one checkpoint: objects that are parts of one tensor, by name and
// attribute, become that tensor. A tensor that lacks parts is listed and cannot be read, and so is a
// tensor that is no part, is in several files and differs between them.
StatusOr<std::unique_ptr<TensorSource>> PutTogether(
    std::vector<std::unique_ptr<TensorSource>> sources, std::vector<std::string> names);

// The pattern of the files that ranks wrote of which `name` is one, "model_rank_*.pt" of
// "model_rank_3.pt", and the rank's number (of several numbers the first). nullopt if it has no rank.
struct RankName {
  std::string set;
  std::uint64_t rank = 0;
};
std::optional<RankName> ParseRankName(std::string_view name);

// The source; objects that are parts of larger tensors, or may be, can be listed and not be read.
std::unique_ptr<TensorSource> RefuseParts(std::unique_ptr<TensorSource> source);

}  // namespace zt
