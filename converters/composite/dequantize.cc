// zt.convert.composite — the numbers of quantized tensors, as a source over the source.
module;

#include "core/little_endian.h"
#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.composite;

import zt.std;
import :finder;
import :numbers;
import :scheme;
import :weights;
import zt.compress;
import zt.convert.files;
import zt.convert.shards;
import zt.core;
import zt.format;
import zt.pipeline;
import zt.source;
import zt.transform;

namespace zt {

namespace {

using composite::internal::Configuration;
using composite::internal::FindWeights;
using composite::internal::FoundWeights;
using composite::internal::kMostConfigBytes;
using composite::internal::MethodOf;
using composite::internal::Numbers;
using composite::internal::Tensors;
using composite::internal::Unquantized;
using composite::internal::Weight;

constexpr std::uint64_t kWord = sizeof(float);
constexpr std::uint64_t kPiece = std::uint64_t{256} << 10;   // numbers that are rounded at once
constexpr std::uint64_t kMostRows = std::uint64_t{1} << 20;  // bytes of numbers
// The largest read that a compressed input may ask for.
constexpr std::uint64_t kMostPreferred = std::uint64_t{16} << 20;

// A source with the numbers of quantized tensors in place of these, and files that say so.
class DequantizedSource final : public RegroupedSource {
 public:
  // `rounded`: from f32 to `type`; null: numbers are f32.
  DequantizedSource(std::unique_ptr<TensorSource> inner, DType type,
                    std::shared_ptr<const Transform> rounded, OnOverflow on_overflow,
                    std::uint64_t memory)
      : RegroupedSource(std::move(inner)),
        make_(composite::internal::MakeNumbers(this->inner(), memory)),
        type_(type),
        rounded_(std::move(rounded)),
        on_overflow_(on_overflow) {}

  void Keep(std::uint32_t index) {
    RegroupedSource::Keep(index);
    made_.emplace_back();
  }
  // Takes the name of the weight, too.
  Status Add(std::unique_ptr<Weight> weight) {
    ZT_ASSIGN_OR_RETURN(Object object,
                        DenseObject(std::move(weight->name), weight->shape, {type_}));
    ZT_RETURN_IF_ERROR(ValidateObject(object));
    RegroupedSource::Keep(weight->codes.object, std::move(object));
    made_.push_back({std::move(weight)});
    return OkStatus();
  }
  // A file with another text.
  void AddText(const FileEntry& file, std::string text) {
    Object object = FileObject(file.path, text.size(), file.executable);
    object.name = inner().objects()[file.object].name;
    RegroupedSource::Keep(file.object, std::move(object));
    made_.push_back({nullptr, nullptr, std::make_unique<std::string>(std::move(text))});
  }

  Status CheckReadable(std::uint32_t object) const override {
    if (const Weight* const weight = made_[object].weight.get()) {
      for (const std::uint32_t member : weight->members)
        ZT_RETURN_IF_ERROR(inner().CheckReadable(member));
    }
    return WrappedSource::CheckReadable(object);
  }
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override {
    if (passes(id)) return WrappedSource::Read(id, offset, out);
    Made& made = made_[id.object];
    ZT_RETURN_IF_ERROR(CheckRange(id, offset, out.size()));
    if (made.text != nullptr) {
      std::memcpy(out.data(), made.text->data() + offset, out.size());
      return OkStatus();
    }
    ZT_RETURN_IF_ERROR(Open(made));
    if (rounded_ == nullptr && offset % kWord == 0 && out.size() % kWord == 0 &&
        reinterpret_cast<std::uintptr_t>(out.data()) % alignof(float) == 0) {
      ZT_RETURN_IF_ERROR(Compute(made, offset / kWord,
                                 {reinterpret_cast<float*>(out.data()), out.size() / kWord}));
      LittleEndian(out, kWord);
      return OkStatus();
    }
    // Elements in part, or rounded, by pieces.
    const std::size_t width = ByteWidth(type_);
    Buffer floats = pool_.Take(kPiece * kWord), elements = pool_.Take(kPiece * width);
    while (!out.empty()) {
      const std::uint64_t first = offset / width, skip = offset % width;
      const auto count = std::min<std::uint64_t>((skip + out.size() + width - 1) / width, kPiece);
      const std::span<std::byte> words = floats.bytes().first(count * kWord);
      ZT_RETURN_IF_ERROR(Compute(made, first, {reinterpret_cast<float*>(words.data()), count}));
      LittleEndian(words, kWord);
      std::span<const std::byte> whole = words;
      if (rounded_ != nullptr) {
        NumericCounts counts;
        rounded_->Apply(words, elements.bytes().first(count * width), counts);
        ZT_RETURN_IF_ERROR(CheckFits(counts.overflow));
        whole = elements.bytes().first(count * width);
      }
      const std::size_t some = std::min<std::size_t>(out.size(), whole.size() - skip);
      std::memcpy(out.data(), whole.data() + skip, some);
      out = out.subspan(some);
      offset += some;
    }
    return OkStatus();
  }
  std::uint64_t preferred_read(ComponentId id) const override {
    const Weight* const weight = made_[id.object].weight.get();
    if (weight == nullptr) return WrappedSource::preferred_read(id);
    if (!weight->codes.axes.empty()) {  // transposed by bands: rows that are read once
      // Whole blocks where some fit, whose scales are then read once.
      const std::uint64_t row = weight->columns * ByteWidth(type_);
      const std::uint64_t block = weight->blocks.block_rows * row;
      const std::uint64_t rows = block <= kMostRows ? block : weight->rows_per_codes * row;
      return rows > kMostRows ? 0 : kMostRows / rows * rows;
    }
    const std::uint64_t preferred = inner().preferred_read(Origin(id).second);
    return std::min(preferred / weight->bits * 8, kMostPreferred / kWord) * ByteWidth(type_);
  }
  // Of numbers, the bytes of their codes, scales and the like.
  std::optional<StoredForm> stored(ComponentId id) const override {
    const Weight* const weight = made_[id.object].weight.get();
    if (weight == nullptr) return WrappedSource::stored(id);
    StoredForm form;
    for (const std::uint32_t member : weight->members)
      form.length += inner().objects()[member].components[0].bytes;
    return form;
  }
  std::uint64_t TakeOverflow(ComponentId id) override {
    if (passes(id)) return WrappedSource::TakeOverflow(id);
    const std::lock_guard lock(mutex_);
    return std::exchange(made_[id.object].overflow, 0);
  }
  void WillRead(std::span<const ComponentId> components) override {
    inner().WillRead(Needed(components));
  }
  Status CheckRead(std::span<const ComponentId> components) override {
    return inner().CheckRead(Needed(components));
  }

 private:
  // The components of which these are made.
  std::vector<ComponentId> Needed(std::span<const ComponentId> components) const {
    std::vector<ComponentId> needed;
    for (const ComponentId id : components) {
      if (passes(id)) needed.push_back(Origin(id).second);
      const Weight* const weight = made_[id.object].weight.get();
      if (weight == nullptr) continue;
      for (const std::uint32_t member : weight->members) needed.push_back({member, 0});
    }
    return needed;
  }
  struct Made {
    std::unique_ptr<const Weight> weight = nullptr;
    std::unique_ptr<Numbers> numbers = nullptr;  // of it, once it was read
    std::unique_ptr<std::string> text = nullptr;
    std::uint64_t overflow = 0;  // numbers beyond f32, under mutex_
  };
  Status Open(Made& made) {
    const std::lock_guard lock(mutex_);
    if (made.numbers != nullptr) return OkStatus();
    ZT_ASSIGN_OR_RETURN(made.numbers, make_(*made.weight));
    return OkStatus();
  }
  Status Compute(Made& made, std::uint64_t first, std::span<float> out) {
    std::uint64_t overflow = 0;
    ZT_RETURN_IF_ERROR(
        made.numbers->Compute(first, out, on_overflow_ == OnOverflow::kSaturate, overflow, pool_));
    if (overflow == 0) return OkStatus();
    const std::lock_guard lock(mutex_);
    made.overflow += overflow;
    return CheckFits(overflow);
  }
  Status CheckFits(std::uint64_t overflow) const {
    if (overflow == 0 || on_overflow_ != OnOverflow::kError) return OkStatus();
    return WithAdvice(NumericError("the product of a code and its scale does not fit " +
                                   std::string(Name(type_))),
                      Advice::kOnOverflow);
  }
  bool passes(ComponentId id) const override {
    return made_[id.object].weight == nullptr && made_[id.object].text == nullptr;
  }

  std::vector<Made> made_;  // of each object; neither if it is kept
  std::mutex mutex_;
  const composite::internal::NumbersMaker make_;
  const DType type_;
  const std::shared_ptr<const Transform> rounded_;
  const OnOverflow on_overflow_;
  BufferPool pool_{std::uint64_t{16} << 20};
};

StatusOr<std::string> TextOf(TensorSource& source, const FileEntry& file) {
  if (file.bytes > kMostConfigBytes) {
    return InvalidData("it has " + std::to_string(file.bytes) +
                       " bytes; a configuration has at most " + std::to_string(kMostConfigBytes));
  }
  std::string text(file.bytes, '\0');
  ZT_RETURN_IF_ERROR(source.Read({file.object, 0}, 0, std::as_writable_bytes(std::span(text))));
  return text;
}

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

// "a/" of "a/b/c", the part of a pipeline; else empty.
std::string_view FolderOf(std::string_view path) { return path.substr(0, path.find('/') + 1); }

// The configurations to compare with: the one given, else the one that a source has within itself, as
// an attribute or in files of the model; it has no prefix and is the first. And those of parts of a
// pipeline, in files of their folders.
StatusOr<std::vector<Configuration>> ConfigsFor(TensorSource& source, const QuantConfig& given) {
  std::vector<Configuration> out(1);
  if (const Value* kept = FindMember(source.attributes(), kQuantConfigAttribute);
      kept != nullptr && kept->AsMap() != nullptr) {
    const auto file = composite::internal::FindString(*kept->AsMap(), "file");
    const Value* content = FindMember(*kept->AsMap(), "content");
    if (file && content != nullptr && content->AsMap() != nullptr)
      out[0] = {*file, *content->AsMap(), {}, *file};
  }
  if (!given.file.empty())
    out[0] = {given.file, given.content, {}, given.path.empty() ? given.file : given.path};
  std::unordered_map<std::string_view, std::size_t, zt::internal::NameHash> at;  // -> of `out`
  for (const Object& object : source.objects()) {
    if (!IsFile(object)) at.emplace(FolderOf(object.name), kNone);
  }
  at[""] = given.file.empty() ? 0 : kNone;
  ZT_ASSIGN_OR_RETURN(const std::vector<FileEntry> files, ListFiles(source.objects()));
  for (const std::string_view name : kQuantConfigFiles) {
    for (const FileEntry& file : files) {
      if (!file.path.ends_with(name)) continue;
      const std::string_view prefix = FolderOf(file.path);
      const auto place = at.find(prefix);
      if (file.path.size() != prefix.size() + name.size() || place == at.end()) continue;
      if (prefix.empty() && !given.file.empty()) continue;
      const auto named = [&](const Status& status) { return WithFile(status, file.path); };
      const auto text = TextOf(source, file);
      if (!text.ok()) return named(text.status());
      auto content = composite::internal::QuantConfigIn(name, *text);
      if (!content.ok()) return named(content.status());
      if (!*content) continue;
      if (place->second == kNone) {
        place->second = out.size();
        out.push_back({"", {}, std::string(prefix)});
      }
      Configuration& found = out[place->second];
      if (found.file.empty()) {
        found = {file.path, **std::move(content), std::string(prefix), file.path};
        continue;
      }
      ZT_RETURN_IF_ERROR(named(
          composite::internal::CheckAgree({found.file, found.content}, {file.path, **content})));
    }
  }
  return out;
}

// As torch names a type; empty if it has none.
std::string_view TorchName(const ElementType& type) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"f32", "float32"}, {"f16", "float16"},         {"bf16", "bfloat16"},
      {"f64", "float64"}, {"f8_e5m2", "float8_e5m2"}, {"f8_e4m3fn", "float8_e4m3fn"}};
  const auto found =
      std::ranges::find(kNames, Name(type), [](const auto& each) { return each.first; });
  return found == std::end(kNames) ? "" : found->second;
}

std::string Describe(const Weight& weight) {
  const auto& blocks = weight.blocks;
  std::string out = std::string(weight.scheme) + ", " + std::to_string(weight.bits) + " bits, ";
  if (blocks.block_rows == 1 && blocks.block_columns == weight.columns)
    return out + "a scale a row";
  if (blocks.block_rows >= blocks.rows && blocks.scale_rows == 1 && blocks.scale_columns == 1)
    return out + "one scale";
  if (blocks.block_columns == 1 || blocks.block_rows == 1)
    return out + "groups of " + std::to_string(std::max(blocks.block_rows, blocks.block_columns));
  return out + "blocks of " + std::to_string(blocks.block_rows) + "x" +
         std::to_string(blocks.block_columns);
}

}  // namespace

bool NamesQuantizedPart(std::string_view name) {
  return std::ranges::any_of(composite::internal::Finder::Parts(),
                             [&](const auto& part) { return name.ends_with(part.suffix); });
}

StatusOr<std::vector<QuantizedTensor>> FindQuantized(TensorSource& source,
                                                     const QuantConfig& given) {
  ZT_ASSIGN_OR_RETURN(const std::vector<Configuration> configs, ConfigsFor(source, given));
  ZT_ASSIGN_OR_RETURN(FoundWeights weights, FindWeights(Tensors(source), configs));
  std::vector<QuantizedTensor> out;
  for (const auto& weight : weights)
    out.push_back({std::move(weight->name), Describe(*weight), std::move(weight->members)});
  return out;
}

StatusOr<Dequantized> Dequantize(std::unique_ptr<TensorSource> source, const QuantConfig& given,
                                 const DequantizeOptions& options) {
  ZT_ASSIGN_OR_RETURN(const std::vector<Configuration> configs, ConfigsFor(*source, given));
  ZT_ASSIGN_OR_RETURN(source, Ungroup(std::move(source)));
  TensorSource& inner = *source;
  Dequantized out;
  FoundWeights weights;
  std::vector<std::int64_t> weight_of(inner.objects().size(), -1);  // by codes; -2: left out
  {
    const Tensors tensors(inner);
    ZT_ASSIGN_OR_RETURN(weights, FindWeights(tensors, configs));
  }
  if (weights.empty()) {
    const bool blocks = std::ranges::any_of(
        inner.objects(), [](const Object& each) { return each.format.starts_with("gguf."); });
    for (const Configuration& config : configs) {
      if (config.content.empty() || blocks) continue;
      const std::string method = MethodOf(config.content);
      return WithFile(InvalidArgument(method.empty() ? "its quantization names no method, and no "
                                                       "tensor is stored in a form that is read"
                                                     : "its quantization is " + Quote(method) +
                                                           ", and no tensor is stored so"),
                      config.path);
    }
    out.source = std::move(source);
    return out;
  }
  if (!inner.seekable()) {
    return Unsupported(
        "codes and scales lie apart, and a pipe can only be read in order; name a file");
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    for (const std::uint32_t member : weights[i]->members) weight_of[member] = -2;
  }
  for (std::size_t i = 0; i < weights.size(); ++i)
    weight_of[weights[i]->codes.object] = static_cast<std::int64_t>(i);
  ZT_ASSIGN_OR_RETURN(const std::vector<FileEntry> files, ListFiles(inner.objects()));
  const std::string_view to = TorchName(options.torch_type);
  std::shared_ptr<const Transform> rounded;
  if (options.numbers != DType::kF32) {
    ZT_ASSIGN_OR_RETURN(rounded,
                        MakeConversion({DType::kF32}, {options.numbers}, options.on_overflow));
  }
  auto made = std::make_unique<DequantizedSource>(
      std::move(source), options.numbers, std::move(rounded), options.on_overflow, options.memory);
  // The files of the model change, or of those parts of a pipeline that have quantized tensors.
  const auto part_of = [&](std::string_view path) {
    const std::string_view folder = FolderOf(path);
    const bool own = std::ranges::find(configs, folder, &Configuration::prefix) != configs.end();
    return own ? folder : std::string_view();
  };
  std::set<std::string, std::less<>> parts;
  for (const auto& weight : weights) parts.emplace(part_of(weight->name));
  std::set<std::string> scales;  // the files with what else is needed
  auto file = files.begin();
  for (std::uint32_t i = 0; i < inner.objects().size(); ++i) {
    if (file != files.end() && file->object == i) {
      const FileEntry& entry = *file++;
      const std::string_view part = FolderOf(entry.path);
      const std::string_view name = std::string_view(entry.path).substr(part.size());
      if (!parts.contains(part)) {
        made->Keep(i);
      } else if (name == "config.json") {
        ZT_ASSIGN_OR_RETURN(const std::string text, WithFile(TextOf(inner, entry), entry.path));
        ZT_RETURN_IF_ERROR(WithFile(CheckJsonObject(text), entry.path));
        made->AddText(entry, Unquantized(text, to));
      } else if (std::ranges::find(kQuantConfigFiles, name) == kQuantConfigFiles.end() &&
                 !ParseIndexName(name)) {  // extract writes a new index
        made->Keep(i);
      }
    } else if (weight_of[i] == -1) {
      made->Keep(i);
    } else if (weight_of[i] >= 0) {
      auto& weight = weights[static_cast<std::size_t>(weight_of[i])];
      out.names.push_back(weight->name);
      const Status added = made->Add(std::move(weight));
      if (!added.ok()) return AtTensor(inner, {i, 0}, added);
    } else {
      scales.insert(inner.file({i, 0}));
    }
  }
  for (const std::string& name : scales) made->AddOtherFile(name);
  // The headers of the files of weights are those of other tensors.
  if (const Value* folder = FindMember(made->attributes(), kFolderAttribute);
      folder != nullptr && folder->AsArray() != nullptr) {
    Value::Array without;
    for (const Value& each : *folder->AsArray()) {
      Value::Map map = each.AsMap() == nullptr ? Value::Map() : *each.AsMap();
      std::erase_if(map, [](const Value::Member& member) { return member.first == "header"; });
      without.emplace_back(std::move(map));
    }
    SetMember(made->root(), kFolderAttribute, std::move(without));
  }
  out.source = std::move(made);
  return out;
}

}  // namespace zt
