// zt.convert.torch — the legacy container: five pickles, then the storages one after the other.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.torch;

import zt.std;
import :contents;
import :open;
import :pickle;
import :source;
import :tensors;
import zt.core;
import zt.source;

namespace zt {
namespace torch::internal {
namespace {

// 0x1950a86a20f9469cfc6c, as LONG1 holds it.
constexpr std::string_view kMagic("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10);
constexpr std::int64_t kProtocol = 1001;
constexpr std::uint64_t kCountSize = 8;  // before each storage: how many elements it has

std::uint64_t LoadCount(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = kCountSize; i-- > 0;) {
    value = value << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  }
  return value;
}

Status CheckCount(std::string_view key, std::uint64_t has, std::uint64_t said) {
  if (has == said) return OkStatus();
  return InvalidData("storage " + Quote(key) + " has " + std::to_string(has) +
                     " elements, the pickle says " + std::to_string(said));
}

// A pipe from which storages are read; each one's count is checked on the way to its bytes.
class CountedPipe final : public ByteSource {
 public:
  CountedPipe(std::shared_ptr<ByteSource> pipe, std::string key, std::uint64_t data,
              std::uint64_t count)
      : pipe_(std::move(pipe)), key_(std::move(key)), data_(data), count_(count) {}
  const std::string& name() const override { return pipe_->name(); }
  std::optional<std::uint64_t> size() const override { return std::nullopt; }
  bool sequential() const override { return true; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    if (!checked_) {
      std::array<std::byte, kCountSize> count;
      ZT_RETURN_IF_ERROR(pipe_->ReadAt(data_ - kCountSize, count));
      ZT_RETURN_IF_ERROR(CheckCount(key_, LoadCount(count), count_));
      checked_ = true;
    }
    return pipe_->ReadAt(offset, out);
  }

 private:
  std::shared_ptr<ByteSource> pipe_;
  const std::string key_;
  const std::uint64_t data_, count_;
  bool checked_ = false;
};

class StreamSource final : public StorageSource {
 public:
  StreamSource(std::shared_ptr<ByteSource> bytes, std::uint64_t end)
      : bytes_(std::move(bytes)), end_(end) {}

  const std::string& file(ComponentId) const override { return bytes_->name(); }
  Status Finish() override {
    ZT_RETURN_IF_ERROR(WithFile(bytes_->CheckUnchanged(), bytes_->name()));
    ZT_ASSIGN_OR_RETURN(const bool at_end, WithFile(bytes_->AtEnd(end_), bytes_->name()));
    return at_end ? OkStatus() : WithFile(Trailing(end_), bytes_->name());
  }
  static Status Trailing(std::uint64_t end) {
    return InvalidData("bytes follow the last storage, which ends at byte " + std::to_string(end));
  }

 private:
  std::shared_ptr<ByteSource> bytes_;
  std::uint64_t end_;
};

// Reads pickles one after the other.
class Pickles {
 public:
  explicit Pickles(ByteSource& bytes) : bytes_(bytes) {}
  StatusOr<Graph> Next(std::string_view what) {
    auto graph = Graph::Read(bytes_, position_);
    if (!graph.ok()) return Annotate(graph.status(), what);
    position_ += graph->size();
    return graph;
  }
  std::uint64_t position() const { return position_; }

 private:
  ByteSource& bytes_;
  std::uint64_t position_ = 0;
};

Status CheckHead(Pickles& pickles) {
  ZT_ASSIGN_OR_RETURN(const Graph magic, pickles.Next("the magic number"));
  if (!magic.Is(magic.root(), NodeKind::kBigInt) || magic.Text(magic.root()) != kMagic) {
    return Unsupported(
        "it is a pickle, but no checkpoint that torch.save wrote; load it and save it with "
        "torch.save");
  }
  ZT_ASSIGN_OR_RETURN(const Graph protocol, pickles.Next("the protocol number"));
  if (!protocol.Is(protocol.root(), NodeKind::kInt) || protocol.Int(protocol.root()) != kProtocol) {
    return Unsupported("its container's protocol is not 1001; save it again with a newer torch");
  }
  // The byte order in it is that of the machine's numbers; storages are little-endian whatever it says.
  return pickles.Next("the system's description").status();
}

// Every storage the pickle mentions, by key: those of values that were dropped lie in the file too.
std::unordered_map<std::string, Storage, zt::internal::NameHash> AllStorages(const Graph& graph) {
  std::vector<Storage> storages;
  const std::vector<bool> none;
  TensorReader reader(graph, none, storages);
  for (NodeId id = 0; id < graph.node_count(); ++id) {
    if (!graph.Is(id, NodeKind::kPersistent)) continue;
    ElementType element;
    bool typed = false;
    std::uint64_t first = 0, window = 0;
    (void)reader.ReadStorage(id, element, typed, first, window)
        .ok();  // a wrong one is found when it is missed
  }
  std::unordered_map<std::string, Storage, zt::internal::NameHash> by_key;
  for (Storage& storage : storages) by_key.emplace(storage.key, storage);
  return by_key;
}

struct Located {
  std::uint64_t data = 0;
  std::uint64_t order = 0;
};

// Where each storage lies. `keys` is the graph of the list of keys, in the order of the storages.
StatusOr<std::unordered_map<std::string, Located, zt::internal::NameHash>> Locate(
    ByteSource& bytes, const Graph& keys,
    const std::unordered_map<std::string, Storage, zt::internal::NameHash>& storages,
    std::uint64_t& position) {
  if (!keys.Is(keys.root(), NodeKind::kList)) return InvalidData("the storages' keys are no list");
  std::unordered_map<std::string, Located, zt::internal::NameHash> located;
  for (const NodeId item : keys.Items(keys.root())) {
    if (!keys.Is(item, NodeKind::kText)) return InvalidData("a storage's key is no text");
    const std::string key(keys.Text(item));
    const auto found = storages.find(key);
    if (found == storages.end()) {
      return InvalidData("storage " + Quote(key) +
                         " is listed, but nothing in the pickle says what it is");
    }
    const Storage& storage = found->second;
    if (!bytes.sequential()) {
      std::array<std::byte, kCountSize> count;
      ZT_RETURN_IF_ERROR(bytes.ReadAt(position, count));
      ZT_RETURN_IF_ERROR(CheckCount(key, LoadCount(count), storage.count));
    }
    const auto data = CheckedAdd(position, kCountSize);
    const auto end = data ? CheckedAdd(*data, storage.width * storage.count) : std::nullopt;
    if (!end) return InvalidData("storage " + Quote(key) + " ends beyond 64 bits");
    if (!located.emplace(key, Located{*data, located.size()}).second) {
      return InvalidData("storage " + Quote(key) + " is listed twice");
    }
    position = *end;
  }
  return located;
}

}  // namespace

StatusOr<std::unique_ptr<TensorSource>> OpenStream(std::shared_ptr<ByteSource> bytes,
                                                   const std::string& stem,
                                                   std::uint64_t memory_limit,
                                                   const SourceMemory& memory) {
  Pickles pickles(*bytes);
  ZT_RETURN_IF_ERROR(CheckHead(pickles));
  Contents contents;
  std::unordered_map<std::string, Storage, zt::internal::NameHash> storages;
  {
    ZT_ASSIGN_OR_RETURN(const Graph graph, pickles.Next("the checkpoint's pickle"));
    ZT_ASSIGN_OR_RETURN(contents, ReadContents(graph, stem, memory_limit));
    storages = AllStorages(graph);
  }
  ZT_ASSIGN_OR_RETURN(const Graph keys, pickles.Next("the list of storages"));
  std::uint64_t end = pickles.position();
  ZT_ASSIGN_OR_RETURN(const auto located, Locate(*bytes, keys, storages, end));
  if (const auto size = bytes->size()) {
    if (*size < end) {
      return InvalidData("its storages end at byte " + std::to_string(end) + ", the file at byte " +
                         std::to_string(*size) + "; it is truncated");
    }
    if (*size > end) return StreamSource::Trailing(end);
  }
  std::vector<Place> places;
  for (const Storage& storage : contents.storages) {
    if (storage.bytes != nullptr) {
      places.push_back({storage.bytes, 0, storage.count, 0, storage.big_endian, false});
      continue;
    }
    const auto found = located.find(storage.key);
    if (found == located.end())
      return InvalidData("storage " + Quote(storage.key) + " is not in the file");
    const auto& [data, order] = found->second;
    std::shared_ptr<ByteSource> from = bytes;
    if (bytes->sequential()) {
      from = std::make_shared<CountedPipe>(bytes, storage.key, data, storage.count);
    }
    places.push_back(
        {std::move(from), data, storage.width * storage.count, order, false, !bytes->sequential()});
  }
  const bool pipe = bytes->sequential();
  auto source = std::make_unique<StreamSource>(std::move(bytes), end);
  AddLeftOut(contents, *source);
  ZT_RETURN_IF_ERROR(
      source->Init(std::move(contents), std::move(places), pipe, memory_limit, memory));
  return source;
}

}  // namespace torch::internal

bool LooksLikeTorchStream(std::span<const std::byte> head) {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (text.starts_with(torch::internal::kOldMagic)) return true;  // refused with a word
  return text.starts_with('\x80') && text.substr(0, 32).find(torch::internal::kMagic) != text.npos;
}

}  // namespace zt
