// zt.reader — rules of sparse objects that several components decide together (2.0: rows that ascend, cells named once).
module;

#include "core/little_endian.h"
#include "core/status_macros.h"

module zt.reader;

import zt.std;
import zt.core;
import zt.format;
import zt.source;

namespace zt::reader::internal {
namespace {

using zt::internal::LoadLittle;

constexpr std::uint64_t kBlockBytes = 256 << 10;

// The integers of a component, in ascending order, through a block of bytes: a whole frame, which is decoded whole anyway.
class Integers {
 public:
  Integers(const Reader& reader, ComponentId id)
      : reader_(reader), id_(id), width_(ByteWidth(reader.component(id).element.dtype)) {}

  Status Init() {
    ZT_ASSIGN_OR_RETURN(const std::uint64_t bytes, reader_.DecodedBytes(id_));
    ZT_ASSIGN_OR_RETURN(const Access access, reader_.FindAccess(id_));
    block_bytes_ = std::max(kBlockBytes, access.frame_bytes);
    count_ = bytes / width_;
    return OkStatus();
  }
  std::uint64_t count() const { return count_; }

  // Integer number `index`, which is below count().
  Status At(std::uint64_t index, std::uint64_t* value) {
    if (index < first_ || index >= first_ + block_.size() / width_) {
      first_ = index;
      block_.resize(std::min(block_bytes_ / width_, count_ - index) * width_);
      ZT_RETURN_IF_ERROR(reader_.Read(id_, index * width_, block_));
    }
    *value = LoadLittle(block_.data() + (index - first_) * width_, width_);
    return OkStatus();
  }

 private:
  const Reader& reader_;
  const ComponentId id_;
  const std::size_t width_;
  std::uint64_t block_bytes_ = kBlockBytes, count_ = 0, first_ = 0;
  std::vector<std::byte> block_;
};

std::uint32_t IndexOf(const StoredObject& object, std::string_view role) {
  for (std::uint32_t c = 0; c < object.components.size(); ++c) {
    if (object.components[c].role == role) return c;
  }
  return 0;
}

// `indptr` begins at 0, ascends and ends at the number of indices: the rules of the components are kept.
Status CheckRows(const Reader& reader, std::uint32_t index) {
  const StoredObject& object = reader.manifest().objects[index];
  Integers pointers(reader, {index, IndexOf(object, "indptr")});
  Integers indices(reader, {index, IndexOf(object, "indices")});
  ZT_RETURN_IF_ERROR(pointers.Init());
  ZT_RETURN_IF_ERROR(indices.Init());
  std::uint64_t row_end = 0, next_pointer = 0, before = 0, value = 0;
  for (std::uint64_t i = 0; i < indices.count(); ++i) {
    bool first = false;  // of its row
    while (row_end <= i && next_pointer < pointers.count()) {
      ZT_RETURN_IF_ERROR(pointers.At(next_pointer++, &row_end));
      first = true;
    }
    ZT_RETURN_IF_ERROR(indices.At(i, &value));
    if (!first && value <= before) {
      return InvalidData("index " + std::to_string(i) + " is " + std::to_string(value) +
                         ", not more than the one before in its row, " + std::to_string(before) +
                         " (zTensor 2.0 §5.2, zt.sparse_csr/1)");
    }
    before = value;
  }
  return OkStatus();
}

// The cells that the coordinates name, as their places in C order.
// All coordinates are in range, and the shape does not overflow.
class Cells {
 public:
  Cells(const Reader& reader, std::uint32_t index)
      : reader_(reader),
        shape_(reader.manifest().objects[index].shape),
        id_{index, IndexOf(reader.manifest().objects[index], "coords")},
        width_(ByteWidth(reader.component(id_).element.dtype)) {}

  // The coordinates of so many elements are read at once, one dimension after the other, that a frame is not decoded for
  // few of its numbers: in `memory_bytes`, or what two frames take.
  Status Init(std::uint64_t memory_bytes) {
    constexpr std::uint64_t kEach = 2 * sizeof(std::uint64_t);  // a number and a place
    ZT_ASSIGN_OR_RETURN(const std::uint64_t bytes, reader_.DecodedBytes(id_));
    ZT_ASSIGN_OR_RETURN(const Access access, reader_.FindAccess(id_));
    count_ = bytes / width_ / shape_.size();
    const std::uint64_t most = std::max({kBlockBytes, memory_bytes, 2 * access.frame_bytes});
    at_once_ = std::min(count_, most / kEach);
    if (access.sequential && count_ > 0) decodings_ = (count_ - 1) / at_once_ + 1;
    return OkStatus();
  }
  std::uint64_t count() const { return count_; }
  // How often ForEach decodes everything; an order of magnitude.
  std::uint64_t decodings() const { return decodings_; }
  // All cells of the tensor.
  std::uint64_t places() const {
    std::uint64_t places = 1;
    for (const std::uint64_t dimension : shape_) places *= dimension;
    return places;
  }

  // Calls `look(place)` for each element in order, until it returns false.
  template <typename Look>
  Status ForEach(Look look) {
    for (std::uint64_t first = 0; first < count_; first += at_once_) {
      const std::uint64_t elements = std::min(at_once_, count_ - first);
      places_.assign(elements, 0);
      bytes_.resize(elements * width_);
      for (std::size_t d = 0; d < shape_.size(); ++d) {
        ZT_RETURN_IF_ERROR(reader_.Read(id_, (d * count_ + first) * width_, bytes_));
        for (std::uint64_t i = 0; i < elements; ++i) {
          places_[i] = places_[i] * shape_[d] + LoadLittle(bytes_.data() + i * width_, width_);
        }
      }
      for (const std::uint64_t place : places_) {
        if (!look(place)) return OkStatus();
      }
    }
    return OkStatus();
  }

 private:
  const Reader& reader_;
  const Shape& shape_;
  const ComponentId id_;
  const std::size_t width_;
  std::uint64_t count_ = 0, at_once_ = 0, decodings_ = 1;
  std::vector<std::byte> bytes_;
  std::vector<std::uint64_t> places_;
};

// What looking at the indices of a tensor found. They decide alone, whatever its shape is.
struct Verdict {
  Status status;     // unless it is `twice`
  Shape twice = {};  // the coordinates of a cell that two elements name
};

// The coordinates of the cell with this number in C order.
Shape CoordinatesOf(std::uint64_t place, const Shape& shape) {
  Shape coordinates = shape;
  for (std::size_t d = shape.size(); d-- > 0;) {
    coordinates[d] = place % shape[d];
    place /= shape[d];
  }
  return coordinates;
}

Status NamedTwice(const Shape& coordinates, const Shape& shape) {
  std::uint64_t place = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) place = place * shape[d] + coordinates[d];
  return InvalidData("two elements name cell " + std::to_string(place) +
                     " in C order (zTensor 2.0 §5.2, zt.sparse_coo/1)");
}

// Spreads cells over the passes; the seed keeps a file from having them all in one.
std::uint64_t Mix(std::uint64_t cell, std::uint64_t seed) {
  cell = (cell ^ seed) * 0xbf58476d1ce4e5b9;
  cell = (cell ^ cell >> 31) * 0x94d049bb133111eb;
  return cell ^ cell >> 31;
}

// So often the elements are read at most: the cost is linear, whatever the memory.
constexpr std::uint64_t kMostPasses = 16;

// Some of the cells in each pass: a bit for each, of tensors with few; else those that Mix chooses, sorted. None is named
// twice where `twice` stays empty.
class Passes {
 public:
  Passes(Cells& cells, std::uint64_t memory_bytes) : cells_(cells) {
    const std::uint64_t words = std::max<std::uint64_t>(memory_bytes / sizeof(std::uint64_t), 4096);
    bits_ = std::min(words * 64, cells.places());
    const std::uint64_t by_bits = (cells.places() - 1) / bits_ + 1,
                        by_order = cells.count() / words + 1;
    if (by_bits > by_order) bits_ = 0;
    passes_ = std::min(by_bits, by_order);
  }
  std::uint64_t passes() const { return passes_; }

  StatusOr<std::optional<std::uint64_t>> FindTwice() {
    for (std::uint64_t pass = 0; pass < passes_; ++pass) {
      ZT_ASSIGN_OR_RETURN(const auto twice, bits_ > 0 ? ByBits(pass) : ByOrder(pass));
      if (twice) return twice;
    }
    return std::nullopt;
  }

 private:
  using Found = std::optional<std::uint64_t>;

  StatusOr<Found> ByBits(std::uint64_t pass) {
    some_.assign((bits_ - 1) / 64 + 1, 0);
    Found twice;
    ZT_RETURN_IF_ERROR(cells_.ForEach([&](std::uint64_t cell) {
      const std::uint64_t bit = cell - pass * bits_;  // very large where it lies before
      if (bit >= bits_) return true;
      const std::uint64_t mask = std::uint64_t{1} << bit % 64;
      if ((some_[bit / 64] & mask) != 0) twice = cell;
      some_[bit / 64] |= mask;
      return !twice;
    }));
    return twice;
  }

  StatusOr<Found> ByOrder(std::uint64_t pass) {
    some_.clear();
    ZT_RETURN_IF_ERROR(cells_.ForEach([&](std::uint64_t cell) {
      if (passes_ == 1 || Mix(cell, seed_) % passes_ == pass) some_.push_back(cell);
      return true;
    }));
    std::sort(some_.begin(), some_.end());
    const auto twice = std::adjacent_find(some_.begin(), some_.end());
    return twice == some_.end() ? Found() : Found(*twice);
  }

  Cells& cells_;
  std::uint64_t bits_ = 0, passes_ = 0;
  std::uint64_t seed_ = std::uint64_t{std::random_device()()} << 32 | 1;
  std::vector<std::uint64_t> some_;
};

// Ascending cells, the usual order, are compared with the one before. kUnimplemented where others would take too long in
// the memory there is.
Status CheckCells(const Reader& reader, std::uint32_t index, std::uint64_t memory_bytes,
                  Shape& named_twice) {
  const Shape& shape = reader.manifest().objects[index].shape;
  if (shape.empty()) return OkStatus();  // a scalar has no coordinates to compare
  Cells cells(reader, index);
  ZT_RETURN_IF_ERROR(cells.Init(memory_bytes / 2));
  if (cells.count() > 0 && cells.places() == 0) {
    return InvalidData("it has elements, and shape " + ToString(shape) + " has no cell");
  }
  const auto too_much = [&] {
    return Unsupported("whether two of its " + std::to_string(cells.count()) +
                       " elements name the same cell was not checked, which takes more than " +
                       std::to_string(memory_bytes) + " bytes of memory");
  };
  if (cells.decodings() > kMostPasses) return too_much();
  std::uint64_t before = 0, number = 0;
  bool ascend = true;
  std::optional<std::uint64_t> twice;
  ZT_RETURN_IF_ERROR(cells.ForEach([&](std::uint64_t cell) {
    if (number++ > 0) {
      if (cell == before) twice = cell;
      ascend = cell > before;
    }
    before = cell;
    return ascend;
  }));
  if (!ascend && !twice) {
    Passes passes(cells, memory_bytes / 2);
    if (passes.passes() * cells.decodings() > kMostPasses) return too_much();
    ZT_ASSIGN_OR_RETURN(twice, passes.FindTwice());
  }
  if (twice) named_twice = CoordinatesOf(*twice, shape);
  return OkStatus();
}

bool IsIndex(const StoredComponent& component) {
  return component.role == "coords" || component.role == "indices" || component.role == "indptr";
}

// Equal for tensors that have the same indices: the same stored bytes, read as the same numbers.
std::vector<std::uint64_t> KeyOf(const StoredObject& object) {
  std::vector<std::uint64_t> key = {object.format == "sparse_csr", object.shape.size()};
  for (const StoredComponent& c : object.components) {
    if (!IsIndex(c)) continue;
    const CodecParameters& with = c.parameters;
    key.insert(key.end(), {c.role.size(), c.shard, c.offset, c.length, c.decoded_bytes,
                           static_cast<std::uint64_t>(c.encoding), with.chunk, with.group,
                           with.width, with.rotate, ByteWidth(c.element.dtype)});
  }
  return key;
}

bool CanBeRead(const StoredObject& object, const std::set<std::uint32_t>& missing) {
  return std::ranges::none_of(object.components, [&](const StoredComponent& c) {
    return !c.undecodable.empty() || missing.contains(c.shard);
  });
}

Verdict Look(const Reader& reader, std::uint32_t index, std::uint64_t memory_bytes) {
  Verdict verdict;
  verdict.status = reader.manifest().objects[index].format == "sparse_csr"
                       ? CheckRows(reader, index)
                       : CheckCells(reader, index, memory_bytes, verdict.twice);
  return verdict;
}

Status StatusOf(const Verdict& verdict, const Shape& shape) {
  return verdict.twice.empty() ? verdict.status : NamedTwice(verdict.twice, shape);
}

bool HasRule(const Reader& reader, std::uint32_t index) {
  const std::string& format = reader.manifest().objects[index].format;
  return Traits(reader.manifest().version).unique_indices &&
         (format == "sparse_csr" || format == "sparse_coo");
}

}  // namespace

Status CheckSparse(const Reader& reader, const std::set<std::uint32_t>& bad,
                   const std::set<std::uint32_t>& missing, std::uint64_t memory_bytes,
                   const std::function<void(std::uint32_t, std::string_view)>& wrong,
                   std::vector<std::string>& unchecked) {
  const Manifest& manifest = reader.manifest();
  std::map<std::vector<std::uint64_t>, Verdict> verdicts;
  for (std::uint32_t o = 0; o < manifest.objects.size(); ++o) {
    const StoredObject& object = manifest.objects[o];
    if (!HasRule(reader, o) || bad.contains(o) || !CanBeRead(object, missing)) continue;
    const std::string& name = object.name;
    const auto [held, fresh] = verdicts.try_emplace(KeyOf(object));
    Verdict& verdict = held->second;
    if (fresh) {
      verdict = Look(reader, o, memory_bytes);
      verdict.status = WithoutNames(reader, name, verdict.status);
    }
    const Status status = StatusOf(verdict, object.shape);
    if (status.code() == StatusCode::kDataLoss) {
      wrong(o, Message(status));
    } else if (status.code() == StatusCode::kUnimplemented) {
      unchecked.push_back(name + ": " + std::string(Message(status)));
    } else if (!status.ok()) {
      return Annotate(status, TensorContext(name));
    }
  }
  return OkStatus();
}

}  // namespace zt::reader::internal

namespace zt {

Status CheckIndices(const Reader& reader, std::uint32_t object, std::uint64_t memory_bytes) {
  using namespace reader::internal;
  if (!HasRule(reader, object)) return OkStatus();
  return StatusOf(Look(reader, object, memory_bytes), reader.manifest().objects[object].shape);
}

}  // namespace zt
