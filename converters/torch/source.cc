// zt.convert.torch:source — declares tensors, and makes components from the
// bytes of their storages.
module;

#include "core/status_macros.h"

module zt.convert.torch;

import zt.std;
import :contents;
import :pickle;
import :source;
import zt.convert.strided;
import zt.core;
import zt.source;
import zt.transform;

namespace zt::torch::internal {
SourceMemory SharedMemory(std::uint64_t memory_limit) {
  return {.bands = nullptr,
          .held = std::make_shared<HeldBytes>(memory_limit / 2),
          .shared = std::make_shared<Allowance::Shared>()};
}

void AddLogicalShape(Object& object) {
  if (object.format != "dense" || object.components[0].element.type != "f4_e2m1") return;
  Value::Array logical(object.shape.begin(), object.shape.end());
  if (logical.empty()) logical.emplace_back(std::uint64_t{1});
  const auto last = CheckedMul(*logical.back().AsUint(), 2);
  if (!last) return;
  logical.back() = Value(*last);
  std::erase_if(object.attributes, [](const auto& each) { return each.first == kLogicalShape; });
  object.attributes.emplace_back(kLogicalShape, std::move(logical));
}

StorageSource::StorageSource() = default;
StorageSource::~StorageSource() = default;

Status StorageSource::Init(Contents contents, std::vector<StorageLocation> places, bool pipe,
                           std::uint64_t memory_limit, const SourceMemory& memory) {
  places_ = std::move(places);
  pipe_ = pipe;
  for (const StorageLocation& place : places_) {
    readers_.push_back(place.bytes);
    stored_ = CheckedAdd(stored_, place.size).value_or(~std::uint64_t{0});
  }
  viewed_.resize(places_.size());
  streams_.resize(places_.size());
  held_ = memory.held;
  for (Tensor& tensor : contents.tensors) {
    ServedTensor entry;
    auto object = Declare(tensor, entry);
    if (object.status().code() == StatusCode::kUnimplemented) {
      entry.problem = object.status();
      object = Unreadable(tensor.name, "tensor");
    }
    if (!object.ok()) return WithTensor(object.status(), tensor.name);
    object->attributes = std::move(tensor.attributes);
    AddLogicalShape(*object);
    objects_.push_back(*std::move(object));
    entries_.push_back(std::move(entry));
  }
  contents.tensors.clear();
  attributes_ = std::move(contents.attributes);
  Sort();
  HoldWhereNeeded();
  if (pipe_) ZT_RETURN_IF_ERROR(CheckOrder());
  MakeViews(memory_limit, memory.bands);
  for (std::uint32_t i = 0; i < entries_.size(); ++i) {
    if (!entries_[i].problem.ok()) {
      problems_.emplace(i, entries_[i].problem);
    } else if (!pipe_ && HasOwnPointers(i) && objects_[i].components[1].bytes == 0) {
      // Nothing will be read by these pointers.
      const Status valid = CheckAllPointers(entries_[i].parts.back());
      if (!valid.ok()) problems_.emplace(i, valid);
    }
  }
  return OkStatus();
}

void StorageSource::NameApart(TensorNames& taken) {
  for (std::uint32_t i = 0; i < objects_.size(); ++i) {
    const std::string own = std::exchange(objects_[i].name, taken.Take(objects_[i].name));
    if (objects_[i].name != own) problems_.emplace(i, TwinProblem(own));
  }
}

StatusOr<StorageSource::StoragePart> StorageSource::MakePart(const StorageView& view, Kind kind) {
  StoragePart part;
  part.kind = kind;
  part.storage = view.storage;
  part.first = view.first;
  part.dtype = view.element.dtype;
  const auto bytes = DenseBytes(view.shape, view.element);
  if (!bytes) return InvalidData("shape " + ToString(view.shape) + " overflows 64 bits");
  part.bytes = *bytes;
  const std::uint64_t width = ElementBytes(view.element);
  part.elements = {width, 1};
  const StorageLocation& place = places_[view.storage];
  if (place.big_endian) part.elements.swap = ByteWidth(view.element.dtype);
  part.axes =
      part.bytes == 0 ? std::vector<StridedAxis>{{1, 1}} : CollapseAxes(view.shape, view.strides);
  // The container's storage may be smaller than the pickle claims.
  if (part.bytes > 0 && view.window > place.size) {
    return InvalidData("its storage has " + std::to_string(place.size) + " bytes, " +
                       std::to_string(view.window) + " are declared");
  }
  return part;
}

// Gives equal numbers to parts with equal bytes. kUnimplemented if the part exceeds the limit on
// expansion. Parts that repeat elements, or view bytes that others view, count towards it; viewing
// each byte of a storage once does not.
Status StorageSource::AssignNumber(StoragePart& part) {
  InlinedVector<std::uint64_t, 8> key = {part.direct(), part.storage, part.first, part.bytes,
                                         static_cast<std::uint64_t>(part.kind)};
  if (part.kind != Kind::kBytes) {
    key.insert(key.end(), {static_cast<std::uint64_t>(part.dtype), part.pointers});
  }
  if (!part.direct()) {
    key.insert(key.end(), {part.elements.width, part.elements.swap});
    for (const StridedAxis& axis : part.axes) key.insert(key.end(), {axis.count, axis.stride});
  }
  const auto [known, fresh] = numbers_.emplace(std::move(key), numbers_.size());
  part.number = known->second;
  const std::uint64_t elements = part.bytes / (part.kind == Kind::kBytes ? part.elements.width : 8);
  std::uint64_t reached = 1;  // elements from the first to the last
  for (const StridedAxis& axis : part.axes) reached += (axis.count - 1) * axis.stride;
  const bool repeats = elements > reached;
  const std::uint64_t size = places_[part.storage].size;
  if (fresh && !repeats && elements <= (size - viewed_[part.storage]) / part.elements.width) {
    viewed_[part.storage] += elements * part.elements.width;
  } else if (fresh) {
    const std::uint64_t all = CheckedAdd(expanded_, part.bytes).value_or(~std::uint64_t{0});
    if (ExceedsExpansion(all, stored_)) {
      excessive_.insert(part.number);
    } else {
      expanded_ = all;
    }
  }
  if (!excessive_.contains(part.number)) return OkStatus();
  return Unsupported((repeats ? "it repeats its elements, "
                              : "other tensors view the same bytes, too many of them together, ") +
                     std::to_string(part.bytes) + " bytes of a storage of " + std::to_string(size) +
                     "; save it with " + (repeats ? "contiguous()" : "clone()"));
}

StatusOr<Object> StorageSource::Declare(Tensor& tensor, ServedTensor& entry) {
  entry.problem = std::move(tensor.problem);
  if (!tensor.foreign.empty()) {
    return Unreadable(tensor.name, tensor.foreign);
  }
  if (tensor.layout != Layout::kDense) return DeclareSparse(tensor, entry);
  ZT_ASSIGN_OR_RETURN(Object object, DenseObject(tensor.name, tensor.shape, tensor.values.element));
  ZT_RETURN_IF_ERROR(ValidateObject(object));
  if (!entry.problem.ok()) return object;
  ZT_ASSIGN_OR_RETURN(StoragePart part, MakePart(tensor.values));
  if (const Status excess = AssignNumber(part); !excess.ok()) {
    entry.problem = excess;
  } else {
    entry.parts.push_back(std::move(part));
  }
  return object;
}

StatusOr<Object> StorageSource::DeclareSparse(Tensor& tensor, ServedTensor& entry) {
  const bool coo = tensor.layout == Layout::kCoo, csc = tensor.layout == Layout::kCsc;
  const auto is_index = [](const StorageView& view) {
    return view.element.type.empty() &&
           (view.element.dtype == DType::kI64 || view.element.dtype == DType::kI32);
  };
  if (tensor.values.shape.size() != 1 || (!coo && tensor.shape.size() != 2)) {
    return Unsupported("its values are arrays themselves (hybrid or batched); save it dense");
  }
  const std::uint64_t count = tensor.values.shape[0];
  const Shape indices = coo ? Shape{tensor.shape.size(), count} : Shape{count};
  if (tensor.indices.shape != indices || !is_index(tensor.indices)) {
    return InvalidData("its indices are " + std::string(Name(tensor.indices.element)) +
                       " of shape " + ToString(tensor.indices.shape) + ", i64 of " +
                       ToString(indices) + " were expected");
  }
  Object object{tensor.name, coo || csc ? "sparse_coo" : "sparse_csr", tensor.shape, {}, {}};
  std::optional<StoragePart> pointers;
  const auto make = [&](const StorageView& view, Kind kind, std::uint64_t column,
                        Shape bounds) -> StatusOr<StoragePart> {
    ZT_ASSIGN_OR_RETURN(StoragePart part, MakePart(view, kind));
    if (kind != Kind::kBytes) {
      part.bytes = part.bytes / part.elements.width * 8;
      part.column = column;
      part.bounds = std::move(bounds);
    }
    if (kind == Kind::kColumns) part.pointers = 1 + pointers->number;
    if (const Status excess = AssignNumber(part); !excess.ok()) entry.problem = excess;
    return part;
  };
  const auto add = [&](StoragePart part, const char* role) {
    const bool values = part.kind == Kind::kBytes;
    if (part.kind == Kind::kColumns) part.bytes *= 2;
    object.components.push_back(
        {role, values ? tensor.values.element : ElementType{DType::kU64, ""}, part.bytes});
    entry.parts.push_back(std::move(part));
  };
  ZT_ASSIGN_OR_RETURN(StoragePart values, make(tensor.values, Kind::kBytes, 0, {}));
  add(std::move(values), "values");
  if (!coo) {
    const auto needed = CheckedAdd(tensor.shape[csc ? 1 : 0], 1);
    if (!needed || tensor.pointers.shape != Shape{*needed} || !is_index(tensor.pointers)) {
      return InvalidData("its pointers have shape " + ToString(tensor.pointers.shape) +
                         "; one more than " + (csc ? "columns" : "rows") +
                         " were expected, as i64");
    }
    ZT_ASSIGN_OR_RETURN(pointers, make(tensor.pointers, Kind::kPointers, 0, {count}));
  }
  const Kind kind = csc ? Kind::kColumns : Kind::kIndices;
  const Shape bounds = coo ? tensor.shape : Shape{tensor.shape[csc ? 0 : 1]};
  ZT_ASSIGN_OR_RETURN(StoragePart placed, make(tensor.indices, kind, count, bounds));
  add(std::move(placed), coo || csc ? "coords" : "indices");
  if (csc) {
    entry.parts.push_back(*std::move(pointers));
  } else if (!coo) {
    add(*std::move(pointers), "indptr");
  }
  ZT_RETURN_IF_ERROR(ValidateObject(object));
  if (!entry.problem.ok()) entry.parts.clear();
  return object;
}

std::set<std::uint32_t> StorageSource::StoragesOf(std::span<const ComponentId> components) const {
  std::set<std::uint32_t> storages;
  for (const ComponentId id : components) {
    for (const StoragePart& part : entries_[id.object].parts) storages.insert(part.storage);
  }
  return storages;
}

// Sorts the objects by their position in the input. Objects without data come last, in
// their existing order.
void StorageSource::Sort() {
  std::vector<std::size_t> order(objects_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto key = [&](std::size_t i) {
    if (entries_[i].parts.empty()) return std::pair(~std::uint64_t{0}, std::uint64_t{0});
    std::pair<std::uint64_t, std::uint64_t> least{~std::uint64_t{0}, 0};
    for (const StoragePart& part : entries_[i].parts) {
      least = std::min(least, std::pair(places_[part.storage].order, part.first));
    }
    return least;
  };
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(key(a), a) < std::pair(key(b), b);
  });
  std::vector<Object> objects;
  std::vector<ServedTensor> entries;
  objects.reserve(order.size());
  entries.reserve(order.size());
  for (const std::size_t i : order) {
    objects.push_back(std::move(objects_[i]));
    entries.push_back(std::move(entries_[i]));
  }
  objects_ = std::move(objects);
  entries_ = std::move(entries);
}

// A storage that can be read front to back only is streamed if its tensors are contiguous and in
// order. Otherwise it is held in memory.
void StorageSource::HoldWhereNeeded() {
  struct Use {
    std::uint64_t number = ~std::uint64_t{0}, end = 0;
    bool hold = false;
  };
  std::vector<Use> uses(places_.size());
  for (const ServedTensor& entry : entries_) {
    for (const StoragePart& part : entry.parts) {
      if (part.bytes == 0) continue;
      Use& use = uses[part.storage];
      if (part.number == use.number) continue;
      use.hold |= part.kind != Kind::kBytes || !part.direct() || part.first < use.end;
      use.number = part.number;
      use.end = part.first + part.bytes;
    }
  }
  std::vector<bool> too_large(places_.size());
  for (std::uint32_t i = 0; i < places_.size(); ++i) {
    if (!places_[i].bytes->sequential() || !uses[i].hold) continue;
    too_large[i] = places_[i].size > held_->room();
    if (!too_large[i]) HoldStorage(i);
  }
  for (ServedTensor& entry : entries_) {
    if (!entry.problem.ok()) continue;
    const auto part = std::ranges::find_if(
        entry.parts, [&](const StoragePart& each) { return too_large[each.storage]; });
    if (part == entry.parts.end()) continue;
    entry.problem = WithAdvice(
        Unsupported("it is a view of a storage of " + std::to_string(places_[part->storage].size) +
                    " bytes that would have to be held in memory (it is deflated or comes from a "
                    "pipe), more than half the memory limit; give an uncompressed file"),
        Advice::kMemory);
  }
}

void StorageSource::HoldStorage(std::uint32_t storage) {
  const StorageLocation& place = places_[storage];
  readers_[storage] = HeldBytes::Make(held_, place.bytes, place.offset, place.size);
}

// A pipe can serve each storage only once, in order. Pointers to columns are read with each of their
// tensors: from memory, while all that was held since fits beside them.
Status StorageSource::CheckOrder() const {
  std::uint64_t reached = 0, held = 0;
  std::vector<bool> seen(numbers_.size());
  std::vector<std::uint64_t> used(places_.size());  // by storage: `held` when it was last used
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    for (const StoragePart& part : entries_[i].parts) {
      const StorageLocation& place = places_[part.storage];
      const bool again = seen[part.number],
                 columns = &part == &entries_[i].parts.back() && HasOwnPointers(i);
      if (part.bytes == 0 || (again && !columns)) continue;
      seen[part.number] = true;
      std::uint64_t& last = used[part.storage];
      if (again ? held - last > held_->room() - place.size : place.order < reached) {
        return WithTensor(
            Unsupported("its parts are not in the order in which they are read, so it cannot be "
                        "read from a pipe; name a file"),
            objects_[i].name);
      }
      reached = std::max(reached, place.order);
      if (readers_[part.storage] == place.bytes) continue;
      if (last == 0) held += place.size;
      last = held;
    }
  }
  return OkStatus();
}

// Half of the limit is for held storages, or for bands if no storage is held. Bands over storages
// in memory may be small.
void StorageSource::MakeViews(std::uint64_t memory_limit, std::shared_ptr<StridedBands> bands) {
  const auto held = [&](std::size_t i) { return readers_[i] != places_[i].bytes; };
  bool any = false;
  for (const StorageLocation& place : places_) any |= place.bytes->sequential();
  if (bands == nullptr) bands = std::make_shared<StridedBands>(memory_limit / (any ? 8 : 2));
  for (ServedTensor& entry : entries_) {
    for (StoragePart& part : entry.parts) {
      part.held = held(part.storage);
      if (part.bytes > 0 && !part.direct()) {
        part.view = std::make_unique<StridedView>(*readers_[part.storage],
                                                  places_[part.storage].offset + part.first,
                                                  std::move(part.axes), part.elements, bands);
      }
      std::vector<StridedAxis>().swap(part.axes);
    }
  }
}

bool StorageSource::sequential(ComponentId id) const {
  if (entries_[id.object].parts.empty()) return false;
  return places_[entries_[id.object].parts[id.component].storage].bytes->sequential();
}

std::optional<Extent> StorageSource::extent(ComponentId id) const {
  if (entries_[id.object].parts.empty()) return std::nullopt;
  const StoragePart& part = entries_[id.object].parts[id.component];
  const StorageLocation& place = places_[part.storage];
  if (!place.as_is || part.view != nullptr || part.kind != Kind::kBytes || part.held)
    return std::nullopt;
  return Extent{place.bytes.get(), place.offset + part.first, part.bytes};
}

std::optional<Identity> StorageSource::identity(ComponentId id) const {
  if (entries_[id.object].parts.empty()) return std::nullopt;
  const StoragePart& part = entries_[id.object].parts[id.component];
  return Identity{this, part.number, part.bytes};
}

std::uint64_t StorageSource::preferred_read(ComponentId id) const {
  if (entries_[id.object].parts.empty()) return 0;
  const StoragePart& part = entries_[id.object].parts[id.component];
  return part.view == nullptr || part.kind != Kind::kBytes ? 0 : part.view->preferred_read();
}

Status StorageSource::Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) {
  ZT_RETURN_IF_ERROR(CheckRange(id, offset, out.size()));
  if (out.empty()) return OkStatus();
  const StoragePart& part = entries_[id.object].parts[id.component];
  if (part.kind == Kind::kBytes) return ReadRaw(part, offset, out);
  return ReadUnits(offset, out, 8, [&](std::uint64_t at, std::span<std::byte> whole) -> Status {
    constexpr std::size_t kStep = 32768;
    std::vector<std::uint64_t> values;
    const std::uint64_t rows = part.kind == Kind::kColumns ? part.column : 0;
    for (; !whole.empty(); at += 8 * values.size()) {
      values.resize(std::min(kStep, whole.size() / 8));
      if (rows > 0 && at / 8 >= rows) {
        const StoragePart& pointers = entries_[id.object].parts.back();
        ZT_RETURN_IF_ERROR(ReadColumns(pointers, at / 8 - rows, values));
      } else {
        if (rows > 0) values.resize(std::min<std::uint64_t>(values.size(), rows - at / 8));
        ZT_RETURN_IF_ERROR(ReadIndices(part, at / 8, values));
      }
      const auto bytes = std::as_writable_bytes(std::span(values));
      LittleEndian(bytes, 8);
      std::ranges::copy(bytes, whole.begin());
      whole = whole.subspan(bytes.size());
    }
    return OkStatus();
  });
}

Status StorageSource::ReadRaw(const StoragePart& part, std::uint64_t offset,
                              std::span<std::byte> out) {
  if (part.view != nullptr) return part.view->Read(offset, out);
  ZT_RETURN_IF_ERROR(HoldIfReadBack(part, offset, out.size()));
  return readers_[part.storage]->ReadAt(places_[part.storage].offset + part.first + offset, out);
}

// A deflated storage is streamed while it is read front to back, which is the order of the objects.
// Once a read goes back (as when tensors are sorted by name), the storage is held in memory: going
// back in a stream means inflating it again from the start.
Status StorageSource::HoldIfReadBack(const StoragePart& part, std::uint64_t offset,
                                     std::uint64_t size) {
  const StorageLocation& place = places_[part.storage];
  if (pipe_ || part.held || !place.bytes->sequential()) return OkStatus();
  const std::lock_guard lock(mutex_);
  Stream& stream = streams_[part.storage];
  const bool back = part.first + offset < stream.reached;
  stream.reached = part.first + offset + size;
  if (!back || readers_[part.storage] != place.bytes) return OkStatus();
  if (place.size <= held_->room()) {
    HoldStorage(part.storage);
  } else if (++stream.returns > HeldBytes::kMostLoads) {
    return HeldBytes::TooOften(place.size);
  }
  return OkStatus();
}

// Indices or pointers from element `first` on, widened to 64 bits.
Status StorageSource::ReadStored(const StoragePart& part, std::uint64_t first,
                                 std::span<std::uint64_t> out) {
  const std::uint64_t width = ByteWidth(part.dtype);
  std::vector<std::byte> raw(out.size() * width);
  ZT_RETURN_IF_ERROR(ReadRaw(part, first * width, raw));
  return WidenToU64(raw, part.dtype, out);
}

// As ReadStored, and validated.
Status StorageSource::ReadIndices(const StoragePart& part, std::uint64_t first,
                                  std::span<std::uint64_t> out) {
  ZT_RETURN_IF_ERROR(ReadStored(part, first, out));
  if (part.kind == Kind::kPointers) return CheckPointers(part, first, out);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t bound = part.bounds[(first + i) / part.column];
    if (out[i] >= bound) {
      return InvalidData("index " + std::to_string(out[i]) + " is not below the dimension, " +
                         std::to_string(bound));
    }
  }
  return OkStatus();
}

// Validates all pointers of a part, once for all that have its number and its bound.
Status StorageSource::CheckAllPointers(const StoragePart& part) {
  constexpr std::uint64_t kStep = 4096;
  const std::pair key(part.number, part.bounds[0]);
  {
    const std::lock_guard lock(checked_mutex_);
    if (const auto known = checked_.find(key); known != checked_.end()) return known->second;
  }
  const std::uint64_t count = part.bytes / 8;
  std::vector<std::uint64_t> some;
  Status status;
  for (std::uint64_t at = 0; at < count && status.ok(); at += some.size()) {
    some.resize(std::min(kStep, count - at));
    status = ReadIndices(part, at, some);
  }
  const std::lock_guard lock(checked_mutex_);
  // Whether another try succeeds is not known of errors of the file system, and of memory.
  if (status.ok() || status.code() == StatusCode::kDataLoss) checked_.emplace(key, status);
  return status;
}

// The columns of entries from `first` on, by the pointers. Those after a column are read at once;
// beyond them the next column with entries is found by doubling, so that empty ones cost nothing.
Status StorageSource::ReadColumns(const StoragePart& pointers, std::uint64_t first,
                                  std::span<std::uint64_t> out) {
  constexpr std::uint64_t kStep = 1024;
  ZT_RETURN_IF_ERROR(CheckAllPointers(pointers));
  const std::uint64_t count = pointers.bytes / 8;
  std::vector<std::uint64_t> some;
  // Moves `column`, whose pointer is not above `entry`, to the last such one.
  std::uint64_t column = 0;
  const auto find = [&](std::uint64_t entry) -> Status {
    some.resize(1);
    std::uint64_t above = count;
    for (std::uint64_t step = 1; step < count - column; step *= 2) {
      ZT_RETURN_IF_ERROR(ReadStored(pointers, column + step, some));
      if (some[0] > entry) {
        above = column + step;
        break;
      }
      column += step;
    }
    while (above - column > 1) {
      const std::uint64_t middle = column + (above - column) / 2;
      ZT_RETURN_IF_ERROR(ReadStored(pointers, middle, some));
      (some[0] <= entry ? column : above) = middle;
    }
    return OkStatus();
  };
  for (std::size_t filled = 0; filled < out.size();) {
    ZT_RETURN_IF_ERROR(find(first + filled));
    some.resize(std::min(kStep, count - column - 1));
    if (some.empty()) return InvalidData("its pointers have changed while they were read");
    ZT_RETURN_IF_ERROR(ReadStored(pointers, column + 1, some));
    for (const std::uint64_t end : some) {
      while (filled < out.size() && first + filled < end) out[filled++] = column;
      if (filled == out.size()) break;
      ++column;
    }
  }
  return OkStatus();
}

// Validates pointers to rows or columns: they begin with 0, never decrease, and end with the number
// of values.
Status StorageSource::CheckPointers(const StoragePart& part, std::uint64_t first,
                                    std::span<const std::uint64_t> values) {
  std::uint64_t previous = 0;
  if (first == 0 && values[0] != 0) return InvalidData("its pointers do not begin with 0");
  if (first > 0) ZT_RETURN_IF_ERROR(ReadStored(part, first - 1, std::span(&previous, 1)));
  for (const std::uint64_t value : values) {
    if (value < previous) return InvalidData("its pointers fall");
    previous = value;
  }
  const bool last = first + values.size() == part.bytes / 8;
  if (previous > part.bounds[0] || (last && previous != part.bounds[0])) {
    return InvalidData("its pointers end with " + std::to_string(previous) + ", there are " +
                       std::to_string(part.bounds[0]) + " values");
  }
  return OkStatus();
}

}  // namespace zt::torch::internal
