// zt.convert.hdf5 — datasets as components: contiguous ones by range, all others in blocks
// decoded by libhdf5.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.hdf5;

import zt.std;
import :index;
import :keras;
import :worker;
import zt.convert.strided;
import zt.convert.zip;
import zt.core;
import zt.source;
import zt.transform;

namespace zt {
namespace hdf5::internal {
namespace {

// If a row of chunks exceeds the memory limit, blocks hold parts of chunks, and a chunk is decoded
// for each of them. Limit on how often.
constexpr std::uint64_t kMostDecoded = 64;
// libhdf5 needs some kilobytes per chunk of a block. A block has at most the size of kMostChunks
// chunks, and overlaps at most kMostTouched chunks.
constexpr std::uint64_t kMostChunks = 2048, kMostTouched = 32768;
constexpr std::uint64_t kLeastBlock = std::uint64_t{64} << 10;

// How a dataset is cut into blocks that are contiguous in C order: a range of dimension `split`,
// all indices of the dimensions after it, one index of each before it.
struct Blocks {
  std::size_t split = 0;
  std::uint64_t inner = 1;    // elements of one index of `split`
  std::uint64_t indices = 1;  // number of indices of `split` in a block
  std::uint64_t decoded = 1;  // limit on the number of blocks that a chunk is part of
};

Blocks Cut(const Shape& shape, const Shape& chunk, std::uint64_t elements, std::uint64_t touched) {
  Blocks blocks;
  if (shape.empty()) return blocks;
  // number of chunks along dimension k
  const auto beside = [&](std::size_t k) { return (shape[k] - 1) / chunk[k] + 1; };
  std::uint64_t chunks = 1;  // number of chunks that one index of `split` overlaps
  blocks.split = shape.size() - 1;
  while (blocks.split > 0 && blocks.inner * shape[blocks.split] <= elements &&
         beside(blocks.split) <= touched / chunks) {
    chunks *= beside(blocks.split);
    blocks.inner *= shape[blocks.split--];
  }
  const std::uint64_t height = std::min(chunk[blocks.split], shape[blocks.split]);
  blocks.indices =
      std::min({elements / blocks.inner, shape[blocks.split], touched / chunks * height});
  if (blocks.indices >= height) {
    blocks.indices -= blocks.indices % height;
  } else {
    blocks.decoded = (height + blocks.indices - 1) / blocks.indices;
  }
  for (std::size_t k = 0; k < blocks.split; ++k) {
    const std::uint64_t most = std::min(chunk[k], shape[k]);
    blocks.decoded = CheckedMul(blocks.decoded, most).value_or(~std::uint64_t{0});
  }
  return blocks;
}

class Hdf5Source final : public TensorSource {
 public:
  Hdf5Source(std::shared_ptr<ByteSource> bytes, std::uint64_t memory_limit)
      : bytes_(std::move(bytes)), block_(std::max(memory_limit / 4, kLeastBlock)) {}

  Status Init() {
    ZT_ASSIGN_OR_RETURN(worker_, Worker::Start(*bytes_, block_));
    ZT_ASSIGN_OR_RETURN(Index index, worker_->ReadIndex());
    ZT_RETURN_IF_ERROR(Declare(std::move(index)));
    const auto decoded = [](const DatasetAccess& access) { return access.decoded; };
    if (std::ranges::none_of(accesses_, decoded)) worker_.reset();
    return OkStatus();
  }

  // Declares what the process has found.
  Status Declare(Index index) {
    attributes_ = std::move(index.attributes);
    warnings_ = std::move(index.warnings);
    // Sorted by position in the file.
    std::ranges::sort(index.datasets, {}, [](const Dataset& dataset) {
      return std::pair(dataset.contiguous ? dataset.offset : dataset.address,
                       std::string_view(dataset.name));
    });
    std::unordered_map<std::string, std::uint64_t, zt::internal::NameHash> names;
    for (Dataset& dataset : index.datasets) {
      if (const auto twin = names.find(dataset.name); twin != names.end()) {
        do {
          dataset.name = twin->first + " (" + std::to_string(++twin->second) + ")";
        } while (names.contains(dataset.name));
        if (dataset.problem.empty())
          dataset.problem = "another dataset is named " + Quote(twin->first);
      }
      names.emplace(dataset.name, 1);
      const std::string name = dataset.name;
      if (const Status status = Add(dataset); !status.ok())
        ZT_RETURN_IF_ERROR(AddRefused(name, status));
    }
    return OkStatus();
  }

  // Adds what a .keras archive holds beside its weights: config.json as an attribute, a
  // warning for other entries.
  void AddModel(const KerasModel& model) {
    constexpr std::string_view kKey = "model_config";  // its name in the .h5 format
    const bool taken = std::ranges::any_of(
        attributes_, [&](const Value::Member& member) { return member.first == kKey; });
    if (!taken && !model.config.empty()) attributes_.emplace_back(kKey, Value(model.config));
    if (model.others.empty()) return;
    AddWarning("entries of the archive that are left out: " + model.others.ToString());
  }

  std::string_view format() const override { return "hdf5"; }
  bool sequential(ComponentId id) const override { return accesses_[id.object].decoded; }
  std::optional<Extent> extent(ComponentId id) const override {
    const DatasetAccess& access = accesses_[id.object];
    if (problems_.contains(id.object) || access.decoded || access.view != nullptr)
      return std::nullopt;
    return Extent{bytes_.get(), access.offset, objects_[id.object].components[0].bytes};
  }
  std::optional<Identity> identity(ComponentId id) const override {
    const DatasetAccess& access = accesses_[id.object];
    if (problems_.contains(id.object)) return std::nullopt;
    return Identity{this, access.address, objects_[id.object].components[0].bytes};
  }
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override {
    const DatasetAccess& access = accesses_[id.object];
    ZT_RETURN_IF_ERROR(CheckRange(id, offset, out.size()));
    if (out.empty()) return OkStatus();
    if (access.view != nullptr) return access.view->Read(offset, out);
    if (!access.decoded) return bytes_->ReadAt(access.offset + offset, out);
    return ReadBlocks(id.object, offset, out);
  }
  Status Finish() override { return WithFile(bytes_->CheckUnchanged(), bytes_->name()); }

 private:
  struct DatasetAccess {
    std::uint64_t address = 0;
    std::uint64_t offset = 0;
    std::unique_ptr<StridedView> view;  // contiguous, but big-endian
    bool decoded = false;               // read in blocks through libhdf5
    std::uint64_t swap = 1;
    Blocks blocks;
  };

  Status Add(Dataset& dataset) {
    DatasetAccess access;
    access.address = dataset.address;
    access.offset = dataset.offset;
    access.swap = dataset.swap;
    const auto element = ParseElementType(dataset.element);
    if (!element && dataset.problem.empty()) return InvalidData("its elements are not known");
    ZT_ASSIGN_OR_RETURN(Object object, DenseObject(std::move(dataset.name), dataset.shape,
                                                   element.value_or(ElementType{DType::kU8, ""})));
    if (!element) {  // not numeric: listed without a size
      object.format = "hdf5.other";
      object.components[0].bytes = 0;
    }
    object.attributes = std::move(dataset.attributes);
    ZT_RETURN_IF_ERROR(ValidateObject(object));
    const std::uint64_t size = object.components[0].bytes;
    if (dataset.problem.empty() && size > 0) {
      ZT_RETURN_IF_ERROR(dataset.contiguous ? AddContiguous(size, *element, access)
                                            : AddDecoded(dataset, size, access));
      Count(dataset, size);
    }
    if (!dataset.problem.empty()) {
      Status why = dataset.damaged ? InvalidData(dataset.problem) : Unsupported(dataset.problem);
      problems_.emplace(static_cast<std::uint32_t>(objects_.size()),
                        dataset.too_large ? WithAdvice(why, Advice::kMemory) : std::move(why));
    }
    objects_.push_back(std::move(object));
    accesses_.push_back(std::move(access));
    return OkStatus();
  }

  // Adds a dataset of which only the name can be listed.
  Status AddRefused(const std::string& name, const Status& status) {
    Object object{.name = name, .format = "hdf5.other", .shape = {0}};
    object.components.push_back({"data", {DType::kU8, ""}, 0});
    ZT_RETURN_IF_ERROR(WithTensor(ValidateObject(object), name));
    problems_.emplace(static_cast<std::uint32_t>(objects_.size()), status);
    objects_.push_back(std::move(object));
    accesses_.emplace_back();
    return OkStatus();
  }

  Status AddContiguous(std::uint64_t size, const ElementType& element, DatasetAccess& access) {
    const std::uint64_t have = *bytes_->size();
    if (access.offset > have || size > have - access.offset) {
      return InvalidData("its data ends at byte " + std::to_string(access.offset) + " + " +
                         std::to_string(size) + ", the file at byte " + std::to_string(have) +
                         "; the file is truncated");
    }
    if (access.swap == 1) return OkStatus();
    const std::uint64_t width = ByteWidth(element.dtype);
    if (access.swap != width) return InvalidData("its elements are not known");
    access.view = std::make_unique<StridedView>(*bytes_, access.offset,
                                                std::vector<StridedAxis>{{size / width, 1}},
                                                StridedView::Elements{width, width}, nullptr);
    return OkStatus();
  }

  Status AddDecoded(Dataset& dataset, std::uint64_t size, DatasetAccess& access) {
    const std::uint64_t width = size / *ElementCount(dataset.shape);
    std::uint64_t most = block_ / width, touched = ~std::uint64_t{0};
    Shape chunk = dataset.chunk;
    if (chunk.empty()) {
      chunk.assign(dataset.shape.size(), 1);
    } else {
      const auto elements = ElementCount(chunk);
      if (!elements || *elements == 0) return InvalidData("its chunks are not known");
      most = std::min(most, CheckedMul(*elements, kMostChunks).value_or(most));
      touched = kMostTouched;
    }
    if (chunk.size() != dataset.shape.size()) return InvalidData("its chunks are not known");
    if (access.swap != 1 && access.swap != width && 2 * access.swap != width)
      return InvalidData("its elements are not known");
    access.decoded = true;
    access.blocks = Cut(dataset.shape, chunk, most, touched);
    if (access.blocks.decoded > kMostDecoded) {
      dataset.problem =
          "a row of its chunks takes more than a quarter of the memory limit, and each "
          "chunk would have to be decoded " +
          std::to_string(access.blocks.decoded) + " times; repack it with other chunks (h5repack)";
      dataset.too_large = true;
    }
    return OkStatus();
  }

  // Counts the bytes of a dataset that has not been counted by another name; those that are too
  // many for the file become its problem.
  void Count(Dataset& dataset, std::uint64_t size) {
    if (counted_.contains(dataset.address)) return;
    const std::uint64_t have = *bytes_->size();
    const std::uint64_t all = CheckedAdd(declared_, size).value_or(~std::uint64_t{0});
    if (!ExceedsExpansion(all, have)) {
      counted_.insert(dataset.address);
      declared_ = all;
    } else if (dataset.problem.empty()) {
      dataset.problem = "with its " + std::to_string(size) +
                        " bytes the datasets have more than 1 GiB, and more than " +
                        std::to_string(kMaxExpansion) + " times the " + std::to_string(have) +
                        " of the file, as if it had never been written";
    }
  }

  Status ReadBlocks(std::uint32_t object, std::uint64_t offset, std::span<std::byte> out) {
    const DatasetAccess& access = accesses_[object];
    const Shape& shape = objects_[object].shape;
    const Blocks& blocks = access.blocks;
    const std::uint64_t width = objects_[object].components[0].bytes / *ElementCount(shape);
    const std::uint64_t whole = shape.empty() ? 1 : shape[blocks.split];
    // bytes with the same indices before `split`
    const std::uint64_t row = whole * blocks.inner * width;
    const std::uint64_t most = blocks.indices * blocks.inner * width;
    const std::lock_guard lock(mutex_);
    while (!out.empty()) {
      const std::uint64_t prefix = offset / row, number = offset % row / most;
      const std::uint64_t begin = prefix * row + number * most;
      const std::uint64_t size = std::min(most, (prefix + 1) * row - begin);
      if (held_object_ != object || held_begin_ != begin) {
        ZT_RETURN_IF_ERROR(Load(object, prefix, number * blocks.indices, size));
        held_object_ = object;
        held_begin_ = begin;
      }
      const std::uint64_t take = std::min<std::uint64_t>(out.size(), begin + size - offset);
      std::ranges::copy(held_.subspan(offset - begin, take), out.begin());
      out = out.subspan(take);
      offset += take;
    }
    return OkStatus();
  }

  // Reads the block from index `first` of dimension `split` into held_.
  Status Load(std::uint32_t object, std::uint64_t prefix, std::uint64_t first, std::uint64_t size) {
    const DatasetAccess& access = accesses_[object];
    Shape start(objects_[object].shape.size(), 0), count = objects_[object].shape;
    if (!count.empty()) {
      const std::size_t split = access.blocks.split;
      for (std::size_t k = split; k-- > 0;) {
        start[k] = prefix % count[k];
        prefix /= count[k];
        count[k] = 1;
      }
      start[split] = first;
      count[split] = std::min(access.blocks.indices, count[split] - first);
    }
    held_object_ = ~std::uint32_t{0};
    if (worker_ == nullptr) return FailedPrecondition("there is no process that decodes it");
    ZT_ASSIGN_OR_RETURN(held_, worker_->ReadBlock(access.address, start, count, size));
    SwapBytes(held_, access.swap);
    return OkStatus();
  }

  std::shared_ptr<ByteSource> bytes_;
  const std::uint64_t block_;
  std::unique_ptr<Worker> worker_;  // null if no dataset needs it
  std::vector<DatasetAccess> accesses_;
  std::unordered_set<std::uint64_t> counted_;  // addresses of datasets included in declared_
  std::uint64_t declared_ = 0;                 // bytes of distinct datasets

  // Guards all members below; after Init, also worker_.
  std::mutex mutex_;
  std::span<std::byte> held_;
  std::uint32_t held_object_ = ~std::uint32_t{0};
  std::uint64_t held_begin_ = 0;
};

// True if there is a signature behind a user block, beyond the `seen` bytes that
// LooksLikeHdf5 has got.
StatusOr<bool> BeginsBehind(ByteSource& bytes, std::uint64_t seen) {
  std::array<std::byte, 8> signature;
  for (std::uint64_t at = 512; at <= *bytes.size() && *bytes.size() - at >= signature.size();
       at *= 2) {
    if (at + signature.size() <= seen) continue;
    ZT_RETURN_IF_ERROR(bytes.ReadAt(at, signature));
    if (LooksLikeHdf5(signature)) return true;
  }
  return false;
}

}  // namespace
}  // namespace hdf5::internal

bool ReadsHdf5() { return true; }

StatusOr<std::unique_ptr<TensorSource>> hdf5::internal::OpenSent(std::string_view sent,
                                                                 std::shared_ptr<ByteSource> bytes,
                                                                 std::uint64_t memory_limit) {
  ZT_ASSIGN_OR_RETURN(Index index, Decode(sent));
  auto source = std::make_unique<Hdf5Source>(std::move(bytes), memory_limit);
  ZT_RETURN_IF_ERROR(source->Declare(std::move(index)));
  return source;
}

StatusOr<std::unique_ptr<TensorSource>> OpenHdf5(std::shared_ptr<ByteSource> bytes,
                                                 const InputOptions& options) {
  ZT_RETURN_IF_ERROR(KnownSize(*bytes, "an HDF5 file").status());
  ZT_ASSIGN_OR_RETURN(const std::vector<std::byte> head, Peek(*bytes, kHdf5HeadBytes));
  hdf5::internal::KerasModel model;
  if (LooksLikeZip(head)) {
    ZT_ASSIGN_OR_RETURN(model, hdf5::internal::OpenKeras(std::move(bytes), options.memory_limit));
    bytes = model.weights;
  } else {
    ZT_ASSIGN_OR_RETURN(const bool far, hdf5::internal::BeginsBehind(*bytes, head.size()));
    if (!far && !LooksLikeHdf5(head)) return InvalidData("it is not an HDF5 file");
  }
  auto source =
      std::make_unique<hdf5::internal::Hdf5Source>(std::move(bytes), options.memory_limit);
  ZT_RETURN_IF_ERROR(source->Init());
  source->AddModel(model);
  return source;
}

}  // namespace zt
