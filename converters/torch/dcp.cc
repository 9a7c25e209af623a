// zt.convert.torch — checkpoints of torch.distributed.checkpoint: tensors assembled from chunks.
module;

#include "core/little_endian.h"
#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.torch;

import zt.std;
import :contents;
import :pickle;
import :source;
import zt.convert.parts;
import zt.convert.shards;
import zt.convert.strided;
import zt.core;
import zt.source;

namespace zt {
namespace torch::internal {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMetadata = ".metadata";

// Bytes [begin, begin + size) of a file as a ByteSource.
class SubSource final : public ByteSource {
 public:
  SubSource(std::shared_ptr<ByteSource> bytes, std::uint64_t begin, std::uint64_t size)
      : bytes_(std::move(bytes)), begin_(begin), size_(size) {}
  const std::string& name() const override { return bytes_->name(); }
  std::optional<std::uint64_t> size() const override { return size_; }
  bool sequential() const override { return false; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    if (offset > size_ || out.size() > size_ - offset) {
      return InvalidData("it ends at byte " + std::to_string(size_) + " of its part of the file");
    }
    return bytes_->ReadAt(begin_ + offset, out);
  }
  Status CheckUnchanged() override { return bytes_->CheckUnchanged(); }

 private:
  std::shared_ptr<ByteSource> bytes_;
  const std::uint64_t begin_, size_;
};

// The tensors, made of chunks, each of which was saved as a checkpoint.
class DcpSource final : public BoxSource {
 public:
  DcpSource() : BoxSource("torch") {}
  // Adds a tensor, and keeps the sources of its chunks.
  Status Add(std::string name, Shape shape, ElementType element, std::vector<Box> boxes,
             std::vector<std::unique_ptr<TensorSource>> chunks) {
    ZT_ASSIGN_OR_RETURN(Object object,
                        DenseObject(std::move(name), std::move(shape), std::move(element)));
    AddLogicalShape(object);
    ZT_RETURN_IF_ERROR(BoxSource::Add(std::move(object), std::move(boxes)));
    chunks_.push_back(std::move(chunks));
    return OkStatus();
  }
  void AddUnreadable(std::string name, const Status& problem) {
    BoxSource::AddUnreadable(Unreadable(std::move(name), "tensor"), problem);
    chunks_.emplace_back();
  }
  Status Finish() override {
    for (std::size_t i = 0; i < chunks_.size(); ++i) {
      for (const auto& chunk : chunks_[i])
        ZT_RETURN_IF_ERROR(WithTensor(chunk->Finish(), objects_[i].name));
    }
    return OkStatus();
  }

 private:
  std::vector<std::vector<std::unique_ptr<TensorSource>>> chunks_;  // by object
};

// Reads .metadata: the tensors, and the location of each chunk.
class Metadata {
 public:
  Metadata(const Graph& graph, fs::path folder, const InputOptions& options, SourceMemory memory)
      : graph_(graph),
        folder_(std::move(folder)),
        options_(options),
        sizes_(graph, none_, storages_),
        texts_(graph),
        memory_(std::move(memory)) {
    memory_.bands = std::make_shared<StridedBands>(options.memory_limit / 4);
    memory_.left_out = &left_out_.left_out;
  }

  StatusOr<std::unique_ptr<TensorSource>> Open() {
    const NodeId root = graph_.root();
    if (!graph_.IsCallOf(root, "torch.distributed.checkpoint.metadata.Metadata")) {
      return Unsupported("it is not metadata of torch.distributed.checkpoint");
    }
    ZT_RETURN_IF_ERROR(ReadPlaces(graph_.Member(root, "storage_data")));
    auto source = std::make_unique<DcpSource>();
    source->SetFile(folder_.string());
    std::unordered_set<std::uint32_t> names;
    const NodeId tensors = graph_.Member(root, "state_dict_metadata");
    if (tensors == Graph::kNoNode || !graph_.Is(tensors, NodeKind::kDict)) {
      return InvalidData("it does not list the tensors");
    }
    const auto items = graph_.Items(tensors);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      if (!graph_.Is(items[i], NodeKind::kText)) return InvalidData("a tensor's name is not text");
      const std::string_view name = graph_.Text(items[i]);
      if (!names.insert(texts_.Number(items[i])).second)
        return WithTensor(InvalidData("it occurs twice"), name);
      const bool tensor = graph_.IsCallOf(
          items[i + 1], "torch.distributed.checkpoint.metadata.TensorStorageMetadata");
      const Status status =
          tensor ? ReadTensor(items[i], items[i + 1], *source) : ReadValue(items[i], *source);
      // What is damaged or missing is the problem of the tensors that lie there.
      if (status.code() == StatusCode::kUnimplemented || status.code() == StatusCode::kDataLoss) {
        source->AddUnreadable(std::string(name), status);
      } else {
        ZT_RETURN_IF_ERROR(WithTensor(status, name));
      }
    }
    AddLeftOut(left_out_, *source);
    source->AddOtherFile((folder_ / kMetadata).string());
    for (const auto& [path, file] : files_)
      if (file.bytes != nullptr) source->AddPartFile(file.bytes->name());
    TensorNames taken;
    for (const Object& object : source->objects()) taken.Take(object.name);
    std::vector<std::string> files = {folder_.string()};
    std::vector<std::unique_ptr<TensorSource>> sources;
    sources.push_back(std::move(source));
    for (auto& value : values_) {
      value->NameApart(taken);
      files.push_back(value->file({}));
      sources.push_back(std::move(value));
    }
    return MergeSources(std::move(sources), std::move(files));
  }

 private:
  struct OpenedFile {
    std::shared_ptr<ByteSource> bytes;
    std::uint64_t taken = 0;  // total length of the chunks in it
  };
  static constexpr std::uint64_t kMostTaken = 4;
  struct Location {
    NodeId path = Graph::kNoNode;
    std::uint64_t offset = 0, length = 0;
    bool transformed = false;
  };

  StatusOr<std::uint64_t> NumberOf(NodeId object, std::string_view name) const {
    const NodeId field = graph_.Member(object, name);
    if (field == Graph::kNoNode || !graph_.Is(field, NodeKind::kInt) || graph_.Int(field) < 0) {
      return InvalidData("its " + std::string(name) + " is not a whole number from 0 up");
    }
    return static_cast<std::uint64_t>(graph_.Int(field));
  }
  StatusOr<Shape> SizesOf(NodeId object, std::string_view name) const {
    const NodeId field = graph_.Member(object, name);
    if (field == Graph::kNoNode) return InvalidData("it has no " + std::string(name));
    return sizes_.ReadSizes(field);
  }

  Status ReadPlaces(NodeId dict) {
    if (dict == Graph::kNoNode || !graph_.Is(dict, NodeKind::kDict)) {
      return InvalidData("it does not say where its tensors lie");
    }
    const auto items = graph_.Items(dict);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      const NodeId name = graph_.Member(items[i], "fqn"), info = items[i + 1];
      if (name == Graph::kNoNode || !graph_.Is(name, NodeKind::kText)) {
        return InvalidData("a place has no tensor's name");
      }
      // A value that is no tensor has none.
      const NodeId offset = graph_.Member(items[i], "offset");
      const bool value = offset == Graph::kNoNode || graph_.Is(offset, NodeKind::kNone);
      Shape offsets;
      if (!value) {
        ZT_ASSIGN_OR_RETURN(offsets, sizes_.ReadSizes(offset));
      }
      const NodeId descriptors = graph_.Member(info, "transform_descriptors");
      Location location;
      location.transformed = descriptors != Graph::kNoNode &&
                             !graph_.Is(descriptors, NodeKind::kNone) &&
                             !graph_.Items(descriptors).empty();
      location.path = graph_.Member(info, "relative_path");
      if (location.path == Graph::kNoNode || !graph_.Is(location.path, NodeKind::kText)) {
        return WithTensor(InvalidData("its file has no name"), graph_.Text(name));
      }
      ZT_ASSIGN_OR_RETURN(location.offset, NumberOf(info, "offset"));
      ZT_ASSIGN_OR_RETURN(location.length, NumberOf(info, "length"));
      if (value) {
        value_places_.emplace(texts_.Number(name), location);
      } else {
        places_.emplace(std::pair(texts_.Number(name), std::move(offsets)), location);
      }
    }
    return OkStatus();
  }

  StatusOr<ElementType> ElementOf(NodeId tensor) const {
    const NodeId properties = graph_.Member(tensor, "properties");
    NodeId dtype =
        properties == Graph::kNoNode ? Graph::kNoNode : graph_.Member(properties, "dtype");
    if (dtype == Graph::kNoNode && properties != Graph::kNoNode &&
        graph_.Is(properties, NodeKind::kCall) && graph_.state(properties) != Graph::kNoNode) {
      const auto parts = graph_.Items(graph_.state(properties));
      if (graph_.Is(graph_.state(properties), NodeKind::kTuple) && !parts.empty()) dtype = parts[0];
    }
    return ReadDtype(graph_, dtype);
  }

  Status ReadTensor(NodeId name, NodeId tensor, DcpSource& source) {
    ZT_ASSIGN_OR_RETURN(Shape shape, SizesOf(tensor, "size"));
    ZT_ASSIGN_OR_RETURN(ElementType element, ElementOf(tensor));
    const NodeId list = graph_.Member(tensor, "chunks");
    if (list == Graph::kNoNode || !graph_.Is(list, NodeKind::kList))
      return InvalidData("it has no chunks");
    std::vector<Box> boxes;
    std::vector<std::unique_ptr<TensorSource>> chunks;
    for (const NodeId item : graph_.Items(list)) {
      ZT_ASSIGN_OR_RETURN(Shape offsets, SizesOf(item, "offsets"));
      ZT_ASSIGN_OR_RETURN(const Shape sizes, SizesOf(item, "sizes"));
      if (offsets.size() != shape.size() || sizes.size() != shape.size()) {
        return InvalidData("a chunk has another rank than shape " + ToString(shape));
      }
      const auto place = places_.find(std::pair(texts_.Number(name), offsets));
      if (place == places_.end()) {
        return InvalidData("nothing says where its chunk at " + ToString(offsets) + " lies");
      }
      const std::string file(graph_.Text(place->second.path));
      ZT_ASSIGN_OR_RETURN(auto chunk, OpenChunk(place->second, "chunk", Root::kCheckpoint));
      if (chunk->objects().size() != 1)
        return InvalidData("a chunk in " + file + " is not one tensor");
      const Object& object = chunk->objects()[0];
      ZT_RETURN_IF_ERROR(chunk->CheckReadable(0));
      if (object.format != "dense" || object.shape != sizes ||
          object.components[0].element != element) {
        return InvalidData("its chunk in " + file + " is " +
                           std::string(Name(object.components[0].element)) + " of shape " +
                           ToString(object.shape) + ", " + std::string(Name(element)) +
                           " of shape " + ToString(sizes) + " was expected");
      }
      boxes.push_back({std::move(offsets), chunk.get(), 0});
      chunks.push_back(std::move(chunk));
    }
    return source.Add(std::string(graph_.Text(name)), std::move(shape), std::move(element),
                      std::move(boxes), std::move(chunks));
  }

  // Adds a value that is not one tensor: numbers, texts, and trees that may hold tensors.
  Status ReadValue(NodeId name, DcpSource& source) {
    const auto place = value_places_.find(texts_.Number(name));
    if (place == value_places_.end()) {
      left_out_.left_out.Add(Quote(graph_.Text(name)) + " (nothing says where it lies)");
      return OkStatus();
    }
    ZT_ASSIGN_OR_RETURN(auto value,
                        OpenChunk(place->second, std::string(graph_.Text(name)), Root::kMember));
    if (!value->objects().empty()) {
      values_.push_back(std::move(value));
      return OkStatus();
    }
    // It is not read again, so its digests are compared here.
    ZT_RETURN_IF_ERROR(value->Finish());
    for (const Value::Member& attribute : value->attributes()) {
      if (keys_.insert(attribute.first).second) {
        source.AddAttribute(attribute);
      } else {
        left_out_.left_out.Add(Quote(attribute.first) + " (a second value has the same path)");
      }
    }
    return OkStatus();
  }

  StatusOr<std::unique_ptr<StorageSource>> OpenChunk(const Location& location,
                                                     const std::string& stem, Root root) {
    if (location.transformed) {
      return Unsupported(
          "its chunks are transformed (compressed); save the checkpoint without extensions");
    }
    const std::string name(graph_.Text(location.path));
    ZT_ASSIGN_OR_RETURN(OpenedFile* const file, FileOf(location.path, name));
    ZT_ASSIGN_OR_RETURN(const std::uint64_t size, KnownSize(*file->bytes, name));
    if (location.offset > size || location.length > size - location.offset) {
      return InvalidData("a chunk ends outside " + name + "; it is truncated");
    }
    // Each chunk's archive is read: an archive of many entries must not be the
    // location of many chunks.
    file->taken = CheckedAdd(file->taken, location.length).value_or(~std::uint64_t{0});
    if (file->taken / kMostTaken > size) {
      return InvalidData("chunks share the bytes of " + name + ", more than " +
                         std::to_string(kMostTaken) + " times as many as it has");
    }
    const auto bytes = std::make_shared<SubSource>(file->bytes, location.offset, location.length);
    auto chunk = OpenArchive(bytes, stem, options_.memory_limit, memory_, root);
    if (chunk.status().code() == StatusCode::kDataLoss) {
      ZT_RETURN_IF_ERROR(CheckForm(*file->bytes, location.offset));
    }
    // Do not use the error's own context, which names the chunk's tensor.
    if (chunk.ok()) return chunk;
    return WithAdvice(MakeStatus(chunk.status().code(), name + ": " + Message(chunk.status())),
                      chunk.status());
  }
  // OK unless there is the head of a safetensors file: of a writer whose SerializationFormat is
  // SAFETENSORS, all tensors of a file are one.
  Status CheckForm(ByteSource& file, std::uint64_t offset) const {
    constexpr std::uint64_t kMostHeader = 100'000'000;
    std::array<std::byte, 9> head{};
    if (*file.size() - offset < head.size()) return OkStatus();
    ZT_RETURN_IF_ERROR(file.ReadAt(offset, head));
    if (zt::internal::LoadLittle(head.data(), 8) > kMostHeader || head[8] != std::byte{'{'}) {
      return OkStatus();
    }
    return Unsupported(
        "its chunks are in safetensors' format (SerializationFormat.SAFETENSORS), and torch.save's "
        "is read; name its files instead, each is a safetensors file of whole tensors or parts");
  }
  StatusOr<OpenedFile*> FileOf(NodeId path, const std::string& name) {
    OpenedFile& file = files_[texts_.Number(path)];
    if (file.bytes != nullptr) return &file;
    constexpr std::size_t kMostOfName = 255;
    if (name.empty() || name == "." || name == ".." || name.size() > kMostOfName ||
        name.find_first_of(std::string_view("/\\\0", 3)) != name.npos) {
      return InvalidData("it names the file " + Quote(name.substr(0, kMostOfName)) +
                         "; only files of the folder itself are read");
    }
    ZT_RETURN_IF_ERROR(Annotate(CheckStaysInside(folder_.string(), name, options_), name));
    const std::string file_path = (folder_ / name).string();
    const auto type = options_.store->TypeOf(file_path);
    if (!type.ok()) return Annotate(type.status(), name);
    if (*type == fs::file_type::not_found || *type == fs::file_type::symlink)
      return InvalidData("its file " + Quote(name) + " is missing; get it");
    auto opened = options_.store->Open(file_path);
    if (!opened.ok()) return Annotate(opened.status(), name);
    file.bytes = *std::move(opened);
    return &file;
  }

  const Graph& graph_;
  const fs::path folder_;
  const InputOptions& options_;
  const std::vector<bool> none_;
  std::vector<Storage> storages_;
  TensorReader sizes_;
  Texts texts_;
  SourceMemory memory_;                                           // shared by all chunks
  std::map<std::pair<std::uint32_t, Shape>, Location> places_;    // by name and offsets
  std::unordered_map<std::uint32_t, Location> value_places_;      // by name
  Contents left_out_;                                             // values that are left out
  std::vector<std::unique_ptr<StorageSource>> values_;            // those that hold tensors
  std::unordered_set<std::string, zt::internal::NameHash> keys_;  // of the attributes
  std::map<std::uint32_t, OpenedFile> files_;                     // by path
};

}  // namespace
}  // namespace torch::internal

StatusOr<bool> LooksLikeDcpFolder(const std::string& path, Store& store) {
  using namespace torch::internal;
  return store.IsFile((fs::path(path) / kMetadata).string());
}

StatusOr<std::unique_ptr<TensorSource>> OpenTorchFolder(const std::string& path,
                                                        const InputOptions& options,
                                                        OpenOther other) {
  using namespace torch::internal;
  ZT_ASSIGN_OR_RETURN(const bool distributed, LooksLikeDcpFolder(path, *options.store));
  if (!distributed) {
    const auto memory = SharedMemory(options.memory_limit);
    const auto open = [&](std::shared_ptr<ByteSource> bytes, const std::string& file,
                          const ShardIndex&) {
      return OpenOneOf(std::move(bytes), fs::path(file).stem().string(), options.memory_limit,
                       memory);
    };
    return OpenShards(path, {".bin", open, false, LooksLikeTorch, std::move(other)}, options);
  }
  ZT_RETURN_IF_ERROR(Annotate(CheckStaysInside(path, kMetadata, options), kMetadata));
  const std::string file = (fs::path(path) / kMetadata).string();
  ZT_ASSIGN_OR_RETURN(const std::shared_ptr<ByteSource> bytes, options.store->Open(file));
  const auto memory = SharedMemory(options.memory_limit);
  ZT_ASSIGN_OR_RETURN(const std::uint64_t size, KnownSize(*bytes, kMetadata));
  Allowance allowance(size, memory.shared);
  auto graph = Graph::Read(*bytes, 0, allowance);
  if (!graph.ok()) return Annotate(graph.status(), kMetadata);
  if (graph->size() != size) return Annotate(InvalidData("bytes follow the pickle"), kMetadata);
  return Metadata(*graph, path, options, memory).Open();
}

}  // namespace zt
