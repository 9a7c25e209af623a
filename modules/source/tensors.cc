// zt.source — reading ranges, tensors in memory, wrapped and merged sources.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.source;

import zt.std;
import zt.compress;

namespace zt {
namespace {

constexpr std::size_t kMostNamed = 20;  // limit on warnings about single attributes of a file

class MergedSource final : public WrappedSource {
 public:
  MergedSource(std::vector<std::unique_ptr<TensorSource>> sources, std::vector<std::string> names)
      : WrappedSource(Pointers(sources)), sources_(std::move(sources)), names_(std::move(names)) {}

  Status Init() {
    std::size_t total = 0;
    for (const auto& source : sources_) total += source->objects().size();
    // The index of each attribute in attributes_.
    std::unordered_map<std::string_view, std::size_t, zt::internal::NameHash> kept;
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
        const auto [found, fresh] = kept.emplace(key, attributes_.size());
        if (fresh) {
          attributes_.emplace_back(key, value);
        } else if (!(attributes_[found->second].second == value)) {
          if (++differing > kMostNamed) continue;
          warnings_.push_back(names_[s] + ": attribute " + Quote(key) +
                              " differs from the one in an earlier file, which is kept");
        }
      }
      if (differing > kMostNamed) {
        warnings_.push_back(names_[s] + ": " + std::to_string(differing - kMostNamed) +
                            " more attributes differ from those in earlier files, which are kept");
      }
      AddNotesOf(source);
    }
    return CheckNames();
  }

 private:
  struct ObjectOrigin {
    std::uint32_t source, object;
  };
  static std::vector<TensorSource*> Pointers(
      std::span<const std::unique_ptr<TensorSource>> sources) {
    std::vector<TensorSource*> pointers;
    for (const auto& source : sources) pointers.push_back(source.get());
    return pointers;
  }
  Status CheckNames() const {
    const auto twice = zt::internal::FindTwice(
        objects_.size(), [this](std::size_t i) -> std::string_view { return objects_[i].name; });
    if (!twice) return OkStatus();
    return WithTensor(InvalidData("it is in both " + names_[origin_[twice->first].source] +
                                  " and " + names_[origin_[twice->again].source]),
                      objects_[twice->again].name);
  }
  std::pair<TensorSource&, ComponentId> Origin(ComponentId id) const override {
    const auto [source, object] = origin_[id.object];
    return {*sources_[source], {object, id.component}};
  }

  std::vector<std::unique_ptr<TensorSource>> sources_;
  std::vector<std::string> names_;
  std::vector<ObjectOrigin> origin_;
};

// True if the bytes could be read. Errors and exceptions are dropped: reading the ranges one by one
// reports them.
bool TryRead(ByteSource& source, std::uint64_t offset, std::span<std::byte> out) {
  try {
    return source.ReadAt(offset, out).ok();
  } catch (...) {
    return false;
  }
}

}  // namespace

std::size_t HashName::operator()(std::string_view name) const { return internal::HashOfName(name); }

NameIndex ByName(const std::vector<Object>& objects) {
  NameIndex index;
  index.reserve(objects.size());
  for (std::uint32_t i = 0; i < objects.size(); ++i) index.emplace(objects[i].name, i);
  return index;
}

std::vector<std::string> FilesOf(const TensorSource& source) {
  std::vector<std::string> files;
  std::unordered_set<std::string_view, internal::NameHash> seen;
  for (std::uint32_t o = 0; o < source.objects().size(); ++o) {
    const auto count = static_cast<std::uint32_t>(source.objects()[o].components.size());
    for (std::uint32_t c = 0; c < count; ++c) {
      const std::string& file = source.file({o, c});
      if (seen.insert(file).second) files.push_back(file);
    }
  }
  return files;
}

Status AtTensor(const TensorSource& source, ComponentId id, const Status& status) {
  if (status.ok()) return status;
  return WithFile(WithTensor(status, source.objects()[id.object].name), source.file(id));
}

Status ReadThrough(
    ByteSource& source, std::uint64_t begin, std::uint64_t end,
    const std::function<bool(std::uint64_t offset, std::span<const std::byte> piece)>& look) {
  constexpr std::uint64_t kPiece = std::uint64_t{1} << 20;
  std::vector<std::byte> piece(std::min(kPiece, end - std::min(begin, end)));
  for (std::uint64_t at = begin; at < end; at += piece.size()) {
    piece.resize(std::min(kPiece, end - at));
    ZT_RETURN_IF_ERROR(source.ReadAt(at, piece));
    if (!look(at, piece)) break;
  }
  return OkStatus();
}

Status ReadRanges(std::span<const RangeToRead> ranges,
                  const std::function<Status(std::size_t i)>& read) {
  for (std::size_t first = 0, end = 0; first < ranges.size(); first = end) {
    const RangeToRead& begin = ranges[first];
    std::size_t bytes = begin.bytes.size();
    for (end = first + 1; end < ranges.size() && begin.from != nullptr; ++end) {
      const RangeToRead& next = ranges[end];
      if (next.from != begin.from || next.offset != begin.offset + bytes ||
          next.bytes.data() != begin.bytes.data() + bytes) {
        break;
      }
      bytes += next.bytes.size();
    }
    if (end - first > 1 && TryRead(*begin.from, begin.offset, {begin.bytes.data(), bytes}))
      continue;
    for (std::size_t i = first; i < end; ++i) {
      if (!ranges[i].bytes.empty()) ZT_RETURN_IF_ERROR(read(i));
    }
  }
  return OkStatus();
}

RangeToRead TensorSource::RangeAt(ComponentId id, std::uint64_t offset,
                                  std::span<std::byte> bytes) const {
  const auto at = extent(id);
  if (!at || at->bytes == nullptr || at->bytes->sequential()) return {.bytes = bytes};
  return {at->bytes, at->offset + offset, bytes};
}

void TensorSource::WillRead(std::span<const ComponentId> components) {
  std::unordered_map<ByteSource*, std::vector<ByteRange>> ranges;
  for (const ComponentId id : components) {
    const auto at = extent(id);
    // A partial list would mislead the byte source about the order: give no hint.
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

void TensorSource::AddWarning(std::string line, std::optional<Advice> advice) {
  if (advice) warning_advice_.emplace(warnings_.size(), *advice);
  warnings_.push_back(std::move(line));
}

void TensorSource::PlaceWarnings(std::string_view place) {
  for (std::string& line : warnings_) line = std::string(place) + ": " + line;
}

void TensorSource::AddNotesOf(const TensorSource& other) {
  for (std::size_t i = 0; i < other.warnings().size(); ++i) {
    const auto advice = other.warning_advice().find(i);
    AddWarning(other.warnings()[i], advice == other.warning_advice().end()
                                        ? std::nullopt
                                        : std::optional(advice->second));
  }
  for (const std::string& file : other.other_files()) AddOtherFile(file);
  for (const std::string& file : other.part_files()) AddPartFile(file);
  for (const ShardFile& shard : other.shards()) AddShard(shard);
}

Status TensorSource::CheckReadable(std::uint32_t object) const {
  const auto found = problems_.find(object);
  return found == problems_.end() ? OkStatus() : WithAdvice(found->second, Advice::kExclude);
}

Status TensorSource::CheckRange(ComponentId id, std::uint64_t offset, std::uint64_t size) const {
  ZT_RETURN_IF_ERROR(CheckReadable(id.object));
  const std::uint64_t bytes = objects_[id.object].components[id.component].bytes;
  if (offset <= bytes && size <= bytes - offset) return OkStatus();
  return InvalidArgument("a range beyond the component's " + std::to_string(bytes) + " bytes");
}

WrappedSource::WrappedSource(TensorSource& inner) : wrapped_{&inner} {
  attributes_ = inner.attributes();
  AddNotesOf(inner);
  file_ = inner.file({});
}

std::string_view WrappedSource::format() const {
  return wrapped_.empty() ? std::string_view("none") : wrapped_.front()->format();
}

std::string_view WrappedSource::version() const {
  return wrapped_.empty() ? std::string_view() : wrapped_.front()->version();
}

bool WrappedSource::seekable() const {
  return std::ranges::all_of(wrapped_, [](const TensorSource* each) { return each->seekable(); });
}

Status WrappedSource::Finish() {
  for (TensorSource* const source : wrapped_) {
    const std::size_t told = source->warnings().size();
    ZT_RETURN_IF_ERROR(source->Finish());
    for (std::size_t i = told; i < source->warnings().size(); ++i)
      AddWarning(source->warnings()[i]);
  }
  return OkStatus();
}

// The components in each of the wrapped sources, which they are.
std::vector<std::vector<ComponentId>> WrappedSource::Origins(
    std::span<const ComponentId> components) const {
  std::unordered_map<const TensorSource*, std::vector<ComponentId>> ids;
  for (const ComponentId id : components) {
    const auto [source, inner] = Origin(id);
    ids[&source].push_back(inner);
  }
  std::vector<std::vector<ComponentId>> origins;
  for (const TensorSource* const source : wrapped_)
    origins.push_back(std::exchange(ids[source], {}));
  return origins;
}

void WrappedSource::WillRead(std::span<const ComponentId> components) {
  const auto origins = Origins(components);
  for (std::size_t i = 0; i < wrapped_.size(); ++i) wrapped_[i]->WillRead(origins[i]);
}

Status WrappedSource::CheckRead(std::span<const ComponentId> components) {
  const auto origins = Origins(components);
  for (std::size_t i = 0; i < wrapped_.size(); ++i) {
    if (!origins[i].empty()) ZT_RETURN_IF_ERROR(wrapped_[i]->CheckRead(origins[i]));
  }
  return OkStatus();
}

const std::string& WrappedSource::file(ComponentId id) const {
  if (id.object >= objects_.size()) return file_;
  const auto [source, inner] = Origin(id);
  return source.file(inner);
}

Status WrappedSource::CheckReadable(std::uint32_t object) const {
  ZT_RETURN_IF_ERROR(TensorSource::CheckReadable(object));
  for (std::uint32_t c = 0; c < objects_[object].components.size(); ++c) {
    const auto [source, inner] = Origin({object, c});
    ZT_RETURN_IF_ERROR(source.CheckReadable(inner.object));
  }
  return OkStatus();
}

Status WrappedSource::Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) {
  ZT_RETURN_IF_ERROR(TensorSource::CheckReadable(id.object));
  const auto [source, inner] = Origin(id);
  return source.Read(inner, offset, out);
}

bool WrappedSource::sequential(ComponentId id) const {
  if (!passes(id)) return TensorSource::sequential(id);
  const auto [source, inner] = Origin(id);
  return source.sequential(inner);
}

std::shared_ptr<UnorderedReader> WrappedSource::unordered_reader(ComponentId id) {
  if (!passes(id)) return TensorSource::unordered_reader(id);
  const auto [source, inner] = Origin(id);
  return source.unordered_reader(inner);
}

std::uint64_t WrappedSource::preferred_read(ComponentId id) const {
  if (!passes(id)) return TensorSource::preferred_read(id);
  const auto [source, inner] = Origin(id);
  return source.preferred_read(inner);
}

std::optional<Extent> WrappedSource::extent(ComponentId id) const {
  if (!passes(id)) return TensorSource::extent(id);
  const auto [source, inner] = Origin(id);
  return source.extent(inner);
}

std::optional<StoredForm> WrappedSource::stored(ComponentId id) const {
  if (!passes(id)) return TensorSource::stored(id);
  const auto [source, inner] = Origin(id);
  return source.stored(inner);
}

StatusOr<std::uint64_t> WrappedSource::Size(ComponentId id) const {
  if (!passes(id)) return TensorSource::Size(id);
  const auto [source, inner] = Origin(id);
  return source.Size(inner);
}

std::optional<Identity> WrappedSource::identity(ComponentId id) const {
  if (!passes(id)) return TensorSource::identity(id);
  const auto [source, inner] = Origin(id);
  return source.identity(inner);
}

std::optional<std::span<const std::byte>> WrappedSource::View(ComponentId id) const {
  if (!passes(id)) return TensorSource::View(id);
  const auto [source, inner] = Origin(id);
  return source.View(inner);
}

std::optional<EncodedStream> WrappedSource::encoded(ComponentId id) const {
  if (!passes(id)) return TensorSource::encoded(id);
  const auto [source, inner] = Origin(id);
  return source.encoded(inner);
}

StatusOr<std::vector<Frame>> WrappedSource::Frames(ComponentId id) const {
  if (!passes(id)) return TensorSource::Frames(id);
  const auto [source, inner] = Origin(id);
  return source.Frames(inner);
}

std::uint64_t WrappedSource::TakeOverflow(ComponentId id) {
  if (!passes(id)) return TensorSource::TakeOverflow(id);
  const auto [source, inner] = Origin(id);
  return source.TakeOverflow(inner);
}

void RegroupedSource::Add(Object object, InlinedVector<ComponentId, 1> components) {
  objects_.push_back(std::move(object));
  origin_.push_back(std::move(components));
}

void RegroupedSource::Keep(std::uint32_t index, Object object) {
  InlinedVector<ComponentId, 1> components;
  for (std::uint32_t c = 0; c < object.components.size(); ++c) components.push_back({index, c});
  Add(std::move(object), std::move(components));
}

void RegroupedSource::Refuse(Status reason) {
  problems_.emplace(static_cast<std::uint32_t>(objects_.size() - 1), std::move(reason));
}

std::pair<TensorSource&, ComponentId> RegroupedSource::Origin(ComponentId id) const {
  return {*inner_, origin_[id.object][id.component]};
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
  ZT_RETURN_IF_ERROR(WithTensor(AsInvalidArgument(ValidateObject(object)), object.name));
  objects_.push_back(std::move(object));
  bytes_.push_back(std::move(components));
  return OkStatus();
}

void MemorySource::SetAttributes(Value::Map attributes) { attributes_ = std::move(attributes); }

Status MemorySource::Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) {
  ZT_RETURN_IF_ERROR(CheckRange(id, offset, out.size()));
  const std::span<const std::byte> from = bytes_[id.object][id.component];
  if (!out.empty()) std::memcpy(out.data(), from.data() + offset, out.size());
  return OkStatus();
}

// The address is the identity: equal spans are tied weights. There is no ByteSource.
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

std::string LostAttributes(const TensorSource& source, std::span<const std::uint32_t> objects,
                           std::span<const std::string_view> kept, std::string_view verb) {
  std::uint64_t count = 0;
  const std::string* first = nullptr;
  for (const std::uint32_t index : objects) {
    const Object& object = source.objects()[index];
    const bool lost = std::ranges::any_of(object.attributes, [&](const Value::Member& member) {
      return std::ranges::find(kept, member.first) == kept.end();
    });
    if (lost && ++count == 1) first = &object.name;
  }
  if (count == 0) return {};
  return std::string(verb) + " the attributes of " + std::to_string(count) + " tensors, " +
         Quote(*first) + " the first";
}

}  // namespace zt
