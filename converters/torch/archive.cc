// zt.convert.torch — the containers: a zip archive of data.pkl and one entry per storage, and the
// legacy stream of five pickles followed by the storages.
module;

#include "core/little_endian.h"
#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.torch;

import zt.std;
import :contents;
import :pickle;
import :source;
import zt.convert.zip;
import zt.core;
import zt.source;

namespace zt {
namespace torch::internal {
namespace {

constexpr std::string_view kPickle = "data.pkl";

// True if the last component of the path is `name`.
bool IsNamed(std::string_view path, std::string_view name) {
  return path.ends_with(name) &&
         (path.size() == name.size() || path[path.size() - name.size() - 1] == '/');
}

class ArchiveSource final : public StorageSource {
 public:
  ArchiveSource(std::shared_ptr<ZipArchive> archive, std::vector<std::size_t> entries)
      : archive_(std::move(archive)), entries_(std::move(entries)) {}

  const std::string& file(ComponentId) const override { return archive_->name(); }
  Status Finish() override {
    ZT_RETURN_IF_ERROR(WithFile(archive_->CheckUnchanged(), archive_->name()));
    for (const std::size_t entry : entries_) ZT_RETURN_IF_ERROR(Verify(entry));
    return OkStatus();
  }
  Status CheckRead(std::span<const ComponentId> components) override {
    ZT_RETURN_IF_ERROR(WithFile(archive_->CheckUnchanged(), archive_->name()));
    for (const std::uint32_t storage : StoragesOf(components))
      ZT_RETURN_IF_ERROR(Verify(entries_[1 + storage]));
    return OkStatus();
  }

 private:
  Status Verify(std::size_t entry) {
    return WithFile(
        Annotate(archive_->Verify(entry, 0), "entry " + Quote(archive_->entries()[entry].name)),
        archive_->name());
  }

  std::shared_ptr<ZipArchive> archive_;
  std::vector<std::size_t> entries_;  // the pickle's, then for each storage that which holds it
};

// Refuses other kinds of zip archives that torch writes.
Status CheckKind(const ZipArchive& archive) {
  for (const ZipEntry& entry : archive.entries()) {
    if (IsNamed(entry.name, "archive_format") ||
        IsNamed(entry.name, "serialized_exported_program.json")) {
      return Unsupported(
          "it is an exported program (torch.export); load it and save its state_dict");
    }
  }
  return OkStatus();
}

// Entries by their names relative to the folder of data.pkl.
class Entries {
 public:
  static StatusOr<Entries> Find(const ZipArchive& archive) {
    Entries entries;
    const std::string* root = nullptr;
    for (const ZipEntry& entry : archive.entries()) {
      if (!IsNamed(entry.name, kPickle)) continue;
      if (root != nullptr) return InvalidData("the archive has data.pkl twice");
      root = &entry.name;
    }
    if (root == nullptr) return InvalidData("the archive has no data.pkl");
    const std::string_view prefix =
        std::string_view(*root).substr(0, root->size() - kPickle.size());
    for (std::size_t i = 0; i < archive.entries().size(); ++i) {
      const std::string_view name = archive.entries()[i].name;
      if (!name.starts_with(prefix)) continue;
      if (!entries.by_name_.emplace(name.substr(prefix.size()), i).second) {
        return InvalidData("entry " + Quote(name) + " is in the archive twice");
      }
    }
    return entries;
  }
  std::optional<std::size_t> Get(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  std::unordered_map<std::string_view, std::size_t, zt::internal::NameHash> by_name_;
};

StatusOr<bool> IsBigEndian(ZipArchive& archive, const Entries& entries) {
  const std::optional<std::size_t> index = entries.Get("byteorder");
  // Files older than this entry are little-endian.
  if (!index) return false;
  ZT_ASSIGN_OR_RETURN(const auto bytes, archive.OpenEntry(*index));
  std::string text(std::min<std::uint64_t>(*bytes->size(), 16), '\0');
  ZT_RETURN_IF_ERROR(bytes->ReadAt(0, std::as_writable_bytes(std::span(text))));
  if (text == "little") return false;
  if (text == "big") return true;
  return Unsupported("its byte order is " + Quote(text) + ", neither little nor big");
}

StatusOr<Contents> ReadPickle(ZipArchive& archive, std::size_t index, PickleSource from,
                              Allowance& allowance) {
  const auto opened = archive.OpenEntry(index);
  if (!opened.ok()) {
    return Annotate(opened.status(), "entry " + Quote(archive.entries()[index].name));
  }
  const std::shared_ptr<ByteSource>& pickle = *opened;
  ZT_ASSIGN_OR_RETURN(const Graph graph, Graph::Read(*pickle, 0, allowance));
  if (graph.size() != *pickle->size()) return InvalidData("bytes follow the pickle in data.pkl");
  if (!pickle->sequential()) from.file = pickle;
  return ReadContents(graph, from, allowance);
}

}  // namespace

StatusOr<std::unique_ptr<StorageSource>> OpenArchive(std::shared_ptr<ByteSource> bytes,
                                                     const std::string& stem,
                                                     std::uint64_t memory_limit,
                                                     const SourceMemory& memory, Root root) {
  Allowance allowance(bytes->size().value_or(0), memory.shared);
  ZT_ASSIGN_OR_RETURN(std::shared_ptr<ZipArchive> archive, ZipArchive::Open(std::move(bytes)));
  ZT_RETURN_IF_ERROR(CheckKind(*archive));
  const std::size_t unchecked = archive->SkipAbsentCrcs();
  ZT_ASSIGN_OR_RETURN(const Entries entries, Entries::Find(*archive));
  ZT_ASSIGN_OR_RETURN(const bool big_endian, IsBigEndian(*archive, entries));
  const std::size_t pickle = *entries.Get(std::string(kPickle));
  PickleSource from{.stem = stem, .root = root, .room = memory_limit / 2};
  if (memory.left_out != nullptr) from.left_out = *memory.left_out;
  ZT_ASSIGN_OR_RETURN(Contents contents, ReadPickle(*archive, pickle, from, allowance));
  const bool script = entries.Get("constants.pkl") || entries.Get("bytecode.pkl");
  if (script && contents.tensors.empty()) {
    return Unsupported(
        "it is a TorchScript archive that holds no tensor but in its code: of a module without "
        "weights, or a frozen one; save it unfrozen, or its state_dict()");
  }
  // The pickle is among them: if it holds arrays, it was not read as a whole.
  std::vector<std::size_t> used = {pickle};
  std::vector<StorageLocation> places;
  for (const Storage& storage : contents.storages) {
    if (storage.bytes != nullptr) {
      places.push_back(
          {storage.bytes, storage.offset, storage.count, 0, storage.big_endian, false});
      used.push_back(pickle);
      continue;
    }
    const std::optional<std::size_t> index = entries.Get("data/" + storage.key);
    if (!index) return InvalidData("storage " + Quote(storage.key) + " is not in the archive");
    const std::string context = "entry " + Quote(archive->entries()[*index].name);
    auto entry = archive->OpenEntry(*index);
    if (!entry.ok()) return Annotate(entry.status(), context);
    const std::uint64_t size = *(*entry)->size();
    if (size != storage.width * storage.count) {
      return Annotate(InvalidData("it has " + std::to_string(size) + " bytes, the pickle says " +
                                  std::to_string(storage.width * storage.count)),
                      context);
    }
    places.push_back({*std::move(entry), 0, size, *index, big_endian, false});
    used.push_back(*index);
  }
  auto source = std::make_unique<ArchiveSource>(std::move(archive), std::move(used));
  if (memory.left_out != nullptr) {
    *memory.left_out = std::exchange(contents.left_out, {});
  }
  AddLeftOut(contents, *source);
  if (unchecked > 0) {
    source->AddWarning("the archive has no CRCs for " + std::to_string(unchecked) +
                       " of its entries: damage in them goes unnoticed");
  }
  ZT_RETURN_IF_ERROR(
      source->Init(std::move(contents), std::move(places), false, memory_limit, memory));
  return source;
}

}  // namespace torch::internal

bool HoldsTorch(const ZipArchive& archive) {
  return std::any_of(archive.entries().begin(), archive.entries().end(), [](const ZipEntry& entry) {
    return torch::internal::IsNamed(entry.name, "data.pkl") ||
           torch::internal::IsNamed(entry.name, "constants.pkl") ||
           torch::internal::IsNamed(entry.name, "serialized_exported_program.json") ||
           torch::internal::IsNamed(entry.name, "archive_format");
  });
}

namespace torch::internal {
namespace {

// 0x1950a86a20f9469cfc6c, as encoded by LONG1.
constexpr std::string_view kMagic("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10);
constexpr std::int64_t kProtocol = 1001;
// Each storage is preceded by its number of elements.
constexpr std::uint64_t kCountSize = 8;

// Checks the element count before the storage at `data`.
Status CheckCount(ByteSource& bytes, std::uint64_t data, std::string_view key, std::uint64_t said) {
  std::array<std::byte, kCountSize> count;
  ZT_RETURN_IF_ERROR(bytes.ReadAt(data - kCountSize, count));
  const std::uint64_t has = zt::internal::LoadLittle(count.data(), kCountSize);
  if (has == said) return OkStatus();
  return InvalidData("storage " + Quote(key) + " has " + std::to_string(has) +
                     " elements, the pickle says " + std::to_string(said));
}

// A pipe from which a storage is read; the first read checks the storage's element count.
class CountedPipe final : public ByteSource {
 public:
  CountedPipe(std::shared_ptr<ByteSource> pipe, std::string key, std::uint64_t data,
              std::uint64_t count)
      : pipe_(std::move(pipe)), key_(std::move(key)), data_(data), count_(count) {}
  const std::string& name() const override { return pipe_->name(); }
  std::optional<std::uint64_t> size() const override { return std::nullopt; }
  bool sequential() const override { return true; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    if (!checked_) ZT_RETURN_IF_ERROR(CheckCount(*pipe_, data_, key_, count_));
    checked_ = true;
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

// Reads consecutive pickles.
class Pickles {
 public:
  Pickles(ByteSource& bytes, Allowance& allowance) : bytes_(bytes), allowance_(allowance) {}
  StatusOr<Graph> Next(std::string_view what) {
    auto graph = Graph::Read(bytes_, position_, allowance_);
    if (!graph.ok()) return Annotate(graph.status(), what);
    position_ += graph->size();
    return graph;
  }
  std::uint64_t position() const { return position_; }

 private:
  ByteSource& bytes_;
  Allowance& allowance_;
  std::uint64_t position_ = 0;
};

bool IsMagic(const Graph& graph) {
  return graph.Is(graph.root(), NodeKind::kBigInt) && graph.Text(graph.root()) == kMagic;
}

// Reads what follows the magic number.
Status CheckHead(Pickles& pickles) {
  ZT_ASSIGN_OR_RETURN(const Graph protocol, pickles.Next("the protocol number"));
  if (!protocol.Is(protocol.root(), NodeKind::kInt) || protocol.Int(protocol.root()) != kProtocol) {
    return Unsupported("its container's protocol is not 1001; save it again with a newer torch");
  }
  // Its byte order is that of the writing machine; storages are little-endian in any case.
  return pickles.Next("the system's description").status();
}

// All storages that the pickle mentions, by key. Storages of values that were left out
// are in the file too.
std::unordered_map<std::string, Storage, zt::internal::NameHash> AllStorages(const Graph& graph) {
  std::vector<Storage> storages;
  const std::vector<bool> none;
  TensorReader reader(graph, none, storages);
  for (NodeId id = 0; id < graph.node_count(); ++id) {
    if (!graph.Is(id, NodeKind::kPersistent)) continue;
    (void)reader.ReadStorage(id).ok();  // a malformed storage is reported when its key is looked up
  }
  std::unordered_map<std::string, Storage, zt::internal::NameHash> by_key;
  for (Storage& storage : storages) by_key.emplace(storage.key, storage);
  return by_key;
}

struct Located {
  std::uint64_t data = 0;
  std::uint64_t order = 0;
};

// The location of each storage. `keys` is the graph of the list of keys, in the
// order of the storages.
StatusOr<std::unordered_map<std::string, Located, zt::internal::NameHash>> Locate(
    ByteSource& bytes, const Graph& keys,
    const std::unordered_map<std::string, Storage, zt::internal::NameHash>& storages,
    std::uint64_t& position) {
  if (!keys.Is(keys.root(), NodeKind::kList))
    return InvalidData("the storages' keys are not a list");
  std::unordered_map<std::string, Located, zt::internal::NameHash> located;
  for (const NodeId item : keys.Items(keys.root())) {
    if (!keys.Is(item, NodeKind::kText)) return InvalidData("a storage's key is not text");
    const std::string key(keys.Text(item));
    const auto found = storages.find(key);
    if (found == storages.end()) {
      return InvalidData("storage " + Quote(key) +
                         " is listed, but the pickle does not describe it");
    }
    const Storage& storage = found->second;
    const auto data = CheckedAdd(position, kCountSize);
    const auto end = data ? CheckedAdd(*data, storage.width * storage.count) : std::nullopt;
    if (!end) return InvalidData("storage " + Quote(key) + " ends beyond 64 bits");
    if (!bytes.sequential()) ZT_RETURN_IF_ERROR(CheckCount(bytes, *data, key, storage.count));
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
  Allowance allowance(bytes->size().value_or(0), memory.shared);
  Pickles pickles(*bytes, allowance);
  Contents contents;
  std::unordered_map<std::string, Storage, zt::internal::NameHash> storages;
  bool plain = false;  // one pickle, whose arrays are in it: of numpy
  {
    ZT_ASSIGN_OR_RETURN(Graph graph, pickles.Next("the first pickle"));
    plain = !IsMagic(graph);
    if (!plain) {
      ZT_RETURN_IF_ERROR(CheckHead(pickles));
      ZT_ASSIGN_OR_RETURN(graph, pickles.Next("the checkpoint's pickle"));
    }
    PickleSource from{.stem = stem, .room = memory_limit / 2};
    if (!bytes->sequential()) from.file = bytes;
    ZT_ASSIGN_OR_RETURN(contents, ReadContents(graph, from, allowance));
    storages = AllStorages(graph);
  }
  if (plain && contents.tensors.empty()) {
    return Unsupported(
        "it is a Python pickle without arrays of numpy, and not a checkpoint of torch.save; save "
        "the arrays as npz or safetensors");
  }
  std::uint64_t end = pickles.position();
  std::unordered_map<std::string, Located, zt::internal::NameHash> located;
  if (!plain) {
    ZT_ASSIGN_OR_RETURN(const Graph keys, pickles.Next("the list of storages"));
    end = pickles.position();
    ZT_ASSIGN_OR_RETURN(located, Locate(*bytes, keys, storages, end));
  }
  if (const auto size = bytes->size()) {
    if (*size < end) {
      return InvalidData("its storages end at byte " + std::to_string(end) + ", the file at byte " +
                         std::to_string(*size) + "; it is truncated");
    }
    if (*size > end) return StreamSource::Trailing(end);
  }
  std::vector<StorageLocation> places;
  for (const Storage& storage : contents.storages) {
    if (storage.bytes != nullptr) {
      places.push_back({storage.bytes, storage.offset, storage.count, 0, storage.big_endian,
                        storage.bytes == bytes});
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
  // OpenTorch refuses it with advice
  if (text.starts_with(torch::internal::kOldMagic)) return true;
  return text.size() > 2 && text[0] == '\x80' && text[1] >= 2 && text[1] <= 5;
}

namespace torch::internal {

namespace {

// Checkpoints of torch before 0.2 are tar archives.
bool IsTar(std::string_view head) { return head.size() > 262 && head.substr(257, 5) == "ustar"; }

}  // namespace

bool LooksLikeTorch(std::span<const std::byte> head) {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  return LooksLikeZip(head) || text.starts_with(kOldMagic) || IsTar(text) ||
         (LooksLikeTorchStream(head) && text.substr(0, 32).find(kMagic) != text.npos);
}

Object Unreadable(std::string name, std::string_view what) {
  return {std::move(name), "torch." + std::string(what), {0}, {}, {{"data", {DType::kU8, ""}, 0}}};
}

void AddLeftOut(const Contents& contents, TensorSource& source) {
  for (const std::string& warning : contents.warnings) source.AddWarning(warning);
  if (contents.left_out.empty()) return;
  source.AddWarning("values that are neither tensors nor fit for attributes are left out: " +
                    contents.left_out.ToString());
}

StatusOr<std::unique_ptr<TensorSource>> OpenOneOf(std::shared_ptr<ByteSource> bytes,
                                                  const std::string& stem,
                                                  std::uint64_t memory_limit,
                                                  const SourceMemory& memory) {
  ZT_ASSIGN_OR_RETURN(const std::vector<std::byte> head, Peek(*bytes, 512));
  if (LooksLikeZip(head)) return OpenArchive(std::move(bytes), stem, memory_limit, memory);
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (IsTar(text)) {
    return Unsupported(
        "it is a tar file, as torch before 0.2 wrote them; load it with torch.load and save it "
        "again");
  }
  if (text.starts_with(kOldMagic)) {
    return Unsupported(
        "it is a checkpoint in a pickle of protocol 0 or 1, 2 to 5 are read; load it and save it "
        "again with torch.save");
  }
  return OpenStream(std::move(bytes), stem, memory_limit, memory);
}

}  // namespace torch::internal

StatusOr<std::unique_ptr<TensorSource>> OpenTorch(std::shared_ptr<ByteSource> bytes,
                                                  const std::string& stem,
                                                  const InputOptions& options) {
  return torch::internal::OpenOneOf(std::move(bytes), stem, options.memory_limit,
                                    torch::internal::SharedMemory(options.memory_limit));
}

}  // namespace zt
