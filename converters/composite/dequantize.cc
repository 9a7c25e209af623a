// zt.convert.composite — the numbers of quantized tensors, as a source over the source.
module;

#include "core/little_endian.h"
#include "core/status_macros.h"

module zt.convert.composite;

import zt.std;
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

using composite::internal::FindWeights;
using composite::internal::kMostConfigBytes;
using composite::internal::MethodOf;
using composite::internal::Numbers;
using composite::internal::Tensors;
using composite::internal::Unquantized;
using composite::internal::Weight;

constexpr std::uint64_t kWord = sizeof(float);
// The largest read that a compressed input may ask for.
constexpr std::uint64_t kMostPreferred = std::uint64_t{16} << 20;

// A source with the numbers of quantized tensors in place of these, and files that say so.
class DequantizedSource final : public RegroupedSource {
 public:
  using RegroupedSource::RegroupedSource;

  void Keep(std::uint32_t index) {
    RegroupedSource::Keep(index);
    made_.emplace_back();
  }
  Status Add(std::unique_ptr<Numbers> numbers) {
    const Weight& weight = numbers->weight();
    ZT_ASSIGN_OR_RETURN(Object object, DenseObject(weight.name, weight.shape, {DType::kF32}));
    ZT_RETURN_IF_ERROR(ValidateObject(object));
    RegroupedSource::Keep(weight.codes.object, std::move(object));
    made_.push_back({std::move(numbers), nullptr});
    return OkStatus();
  }
  // A file with another text.
  void AddText(const FileEntry& file, std::string text) {
    Object object = FileObject(file.path, text.size(), file.executable);
    object.name = inner().objects()[file.object].name;
    RegroupedSource::Keep(file.object, std::move(object));
    made_.push_back({nullptr, std::make_unique<std::string>(std::move(text))});
  }

  Status CheckReadable(std::uint32_t object) const override {
    if (const Numbers* const numbers = made_[object].numbers.get()) {
      for (const std::uint32_t member : numbers->weight().members)
        ZT_RETURN_IF_ERROR(inner().CheckReadable(member));
    }
    return WrappedSource::CheckReadable(object);
  }
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override {
    if (passes(id)) return WrappedSource::Read(id, offset, out);
    const Made& made = made_[id.object];
    ZT_RETURN_IF_ERROR(CheckRange(id, offset, out.size()));
    if (made.text != nullptr) {
      std::memcpy(out.data(), made.text->data() + offset, out.size());
      return OkStatus();
    }
    if (offset % kWord == 0 && out.size() % kWord == 0 &&
        reinterpret_cast<std::uintptr_t>(out.data()) % alignof(float) == 0) {
      ZT_RETURN_IF_ERROR(made.numbers->Compute(
          offset / kWord, {reinterpret_cast<float*>(out.data()), out.size() / kWord}, pool_));
      LittleEndian(out, kWord);
      return OkStatus();
    }
    const std::uint64_t first = offset / kWord;
    const std::uint64_t count = (offset + out.size() + kWord - 1) / kWord - first;
    Buffer whole = pool_.Take(count * kWord);
    ZT_RETURN_IF_ERROR(made.numbers->Compute(
        first, {reinterpret_cast<float*>(whole.bytes().data()), count}, pool_));
    LittleEndian(whole.bytes(), kWord);
    std::memcpy(out.data(), whole.bytes().data() + (offset - first * kWord), out.size());
    return OkStatus();
  }
  std::uint64_t preferred_read(ComponentId id) const override {
    const Numbers* const numbers = made_[id.object].numbers.get();
    if (numbers == nullptr) return WrappedSource::preferred_read(id);
    if (numbers->moved()) return 0;
    const std::uint64_t preferred = inner().preferred_read(Origin(id).second);
    return std::min(preferred / numbers->weight().bits * 8, kMostPreferred / kWord) * kWord;
  }
  void WillRead(std::span<const ComponentId> components) override {
    std::vector<ComponentId> inner_ids;
    for (const ComponentId id : components) {
      if (passes(id)) inner_ids.push_back(Origin(id).second);
      const Numbers* const numbers = made_[id.object].numbers.get();
      if (numbers == nullptr) continue;
      for (const std::uint32_t member : numbers->weight().members) inner_ids.push_back({member, 0});
    }
    inner().WillRead(inner_ids);
  }

 private:
  struct Made {
    std::unique_ptr<Numbers> numbers;
    std::unique_ptr<std::string> text;
  };
  bool passes(ComponentId id) const override {
    return made_[id.object].numbers == nullptr && made_[id.object].text == nullptr;
  }

  std::vector<Made> made_;  // of each object; neither if it is kept
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

// The configuration that a source has within itself: as an attribute, or as a file of the model.
StatusOr<QuantConfig> ConfigWithin(TensorSource& source) {
  if (const Value* kept = FindMember(source.attributes(), kQuantConfigAttribute);
      kept != nullptr && kept->AsMap() != nullptr) {
    const auto file = composite::internal::FindString(*kept->AsMap(), "file");
    const Value* content = FindMember(*kept->AsMap(), "content");
    if (file && content != nullptr && content->AsMap() != nullptr)
      return QuantConfig{*file, *content->AsMap()};
  }
  ZT_ASSIGN_OR_RETURN(const std::vector<FileEntry> files, ListFiles(source.objects()));
  for (const std::string_view name : kQuantConfigFiles) {
    for (const FileEntry& file : files) {
      if (file.path != name) continue;
      const auto named = [&](const Status& status) { return WithFile(status, file.path); };
      const auto text = TextOf(source, file);
      if (!text.ok()) return named(text.status());
      auto content = composite::internal::QuantConfigIn(name, *text);
      if (!content.ok()) return named(content.status());
      if (*content) return QuantConfig{file.path, **std::move(content)};
    }
  }
  return QuantConfig{};
}

std::string_view TorchName(DType dtype) {
  return dtype == DType::kF32 ? "float32" : dtype == DType::kF16 ? "float16" : "bfloat16";
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

// The configuration to compare with: the one given, else the one within.
StatusOr<QuantConfig> ConfigFor(TensorSource& source, const QuantConfig& given) {
  if (!given.file.empty()) return given;
  return ConfigWithin(source);
}

}  // namespace

StatusOr<std::vector<QuantizedTensor>> FindQuantized(TensorSource& source,
                                                     const QuantConfig& given) {
  ZT_ASSIGN_OR_RETURN(const QuantConfig config, ConfigFor(source, given));
  ZT_ASSIGN_OR_RETURN(std::vector<Weight> weights,
                      FindWeights(Tensors(source), {config.file, config.content}));
  std::vector<QuantizedTensor> out;
  for (Weight& weight : weights)
    out.push_back({std::move(weight.name), Describe(weight), std::move(weight.members)});
  return out;
}

StatusOr<Dequantized> Dequantize(std::unique_ptr<TensorSource> source, const QuantConfig& given,
                                 DType to, std::uint64_t memory) {
  ZT_ASSIGN_OR_RETURN(const QuantConfig config, ConfigFor(*source, given));
  ZT_ASSIGN_OR_RETURN(source, Ungroup(std::move(source)));
  TensorSource& inner = *source;
  Dequantized out;
  std::vector<Weight> weights;
  std::vector<std::int64_t> weight_of(inner.objects().size(), -1);  // by codes; -2: left out
  {
    const Tensors tensors(inner);
    ZT_ASSIGN_OR_RETURN(weights, FindWeights(tensors, {config.file, config.content}));
  }
  if (weights.empty()) {
    const bool blocks = std::ranges::any_of(
        inner.objects(), [](const Object& each) { return each.format.starts_with("gguf."); });
    if (const std::string method = MethodOf(config.content); !method.empty() && !blocks) {
      return WithFile(
          InvalidArgument("its quantization is " + Quote(method) + ", and no tensor is stored so"),
          config.path.empty() ? config.file : config.path);
    }
    out.source = std::move(source);
    return out;
  }
  if (!inner.seekable()) {
    return Unsupported(
        "codes and scales lie apart, and a pipe can only be read in order; name a file");
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    for (const std::uint32_t member : weights[i].members) weight_of[member] = -2;
  }
  for (std::size_t i = 0; i < weights.size(); ++i)
    weight_of[weights[i].codes.object] = static_cast<std::int64_t>(i);
  ZT_ASSIGN_OR_RETURN(const std::vector<FileEntry> files, ListFiles(inner.objects()));
  auto made = std::make_unique<DequantizedSource>(std::move(source));
  const auto make = composite::internal::MakeNumbers(inner, memory);
  auto file = files.begin();
  for (std::uint32_t i = 0; i < inner.objects().size(); ++i) {
    if (file != files.end() && file->object == i) {
      const FileEntry& entry = *file++;
      const bool config_file =
          std::ranges::find(kQuantConfigFiles, entry.path) != kQuantConfigFiles.end();
      if (entry.path == "config.json") {
        ZT_ASSIGN_OR_RETURN(const std::string text, WithFile(TextOf(inner, entry), entry.path));
        ZT_RETURN_IF_ERROR(WithFile(ParseJsonObject(text).status(), entry.path));
        made->AddText(entry, Unquantized(text, TorchName(to)));
      } else if (!config_file && !ParseIndexName(entry.path)) {  // extract writes a new index
        made->Keep(i);
      }
    } else if (weight_of[i] == -1) {
      made->Keep(i);
    } else if (weight_of[i] >= 0) {
      Weight& weight = weights[static_cast<std::size_t>(weight_of[i])];
      out.names.push_back(weight.name);
      auto numbers = make(std::move(weight));
      if (!numbers.ok()) return AtTensor(inner, {i, 0}, numbers.status());
      const Status added = made->Add(*std::move(numbers));
      if (!added.ok()) return AtTensor(inner, {i, 0}, added);
    }
  }
  // The headers of the files of weights are those of other tensors.
  if (const Value* folder = FindMember(made->attributes(), kFolderAttribute)) {
    auto weight_files = FindWeightFiles({{std::string(kFolderAttribute), *folder}}, {});
    if (weight_files.ok()) {
      for (WeightFile& each : *weight_files) each.header.clear();
      SetMember(made->root(), kFolderAttribute, ToValue(*weight_files));
    }
  }
  out.source = std::move(made);
  return out;
}

}  // namespace zt
