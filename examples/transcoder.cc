// Transcodes llama2.c's model.bin (a format the library does not know), and files and folders of
// every format that it does know, through a stage of its own.
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ztstream/status_macros.h"

import zt;
import zt.open;

// llama2.c's format: seven i32 (dim, hidden_dim, layers, heads, kv_heads, vocabulary, context; a
// negative vocabulary means an output matrix of its own), then f32 arrays, little-endian, one
// after the other.
class Llama2cSource final : public zt::TensorSource {
 public:
  static zt::StatusOr<std::unique_ptr<zt::TensorSource>> Open(
      std::shared_ptr<zt::ByteSource> bytes) {
    auto source = std::make_unique<Llama2cSource>();
    source->bytes_ = std::move(bytes);
    ZT_RETURN_IF_ERROR(source->ReadHeader());
    return std::unique_ptr<zt::TensorSource>(std::move(source));
  }

  std::string_view format() const override { return "llama2c"; }
  zt::Status Read(zt::ComponentId id, std::uint64_t offset, std::span<std::byte> out) override {
    return bytes_->ReadAt(offsets_[id.object] + offset, out);
  }
  // Where the bytes lie: neighbours are read with one call, and equal extents are tied weights.
  std::optional<zt::Extent> extent(zt::ComponentId id) const override {
    return zt::Extent{bytes_.get(), offsets_[id.object], objects_[id.object].components[0].bytes};
  }

 private:
  zt::Status ReadHeader() {
    std::array<std::int32_t, 7> header;
    ZT_RETURN_IF_ERROR(bytes_->ReadAt(0, std::as_writable_bytes(std::span(header))));
    const bool tied = header[5] > 0;
    header[5] = tied ? header[5] : -header[5];
    for (std::int32_t field : header) {
      if (field < 1 || field > 1 << 24)
        return zt::InvalidData("no llama2.c header: a size is out of range");
    }
    const auto [dim, hidden, layers, heads, kv_heads, vocabulary, context] =
        std::bit_cast<std::array<std::uint32_t, 7>>(header);
    if (dim % heads != 0) return zt::InvalidData("dim is no multiple of heads");
    const std::uint64_t head = dim / heads, kv = head * kv_heads;
    attributes_ = {{"heads", heads}, {"kv_heads", kv_heads}, {"context", context}};

    const std::vector<std::pair<std::string, zt::Shape>> arrays = {
        {"token_embedding", {vocabulary, dim}},
        {"rms_att", {layers, dim}},
        {"wq", {layers, dim, dim}},
        {"wk", {layers, kv, dim}},
        {"wv", {layers, kv, dim}},
        {"wo", {layers, dim, dim}},
        {"rms_ffn", {layers, dim}},
        {"w1", {layers, hidden, dim}},
        {"w2", {layers, dim, hidden}},
        {"w3", {layers, hidden, dim}},
        {"rms_final", {dim}},
        {"freq_cos", {context, head / 2}},
        {"freq_sin", {context, head / 2}},
        {"wcls", {vocabulary, dim}}};
    std::uint64_t offset = sizeof(header);
    for (const auto& [name, shape] : arrays) {
      auto object = zt::DenseObject(name, shape, {zt::DType::kF32});
      if (!object.ok()) return zt::WithTensor(object.status(), name);
      const bool shared = tied && name == "wcls";
      const std::uint64_t at = shared ? offsets_[0] : offset;
      if (!shared) {
        const auto end = zt::CheckedAdd(offset, object->components[0].bytes);
        if (!end) return zt::InvalidData("the sizes in the header exceed 64 bits");
        offset = *end;
      }
      offsets_.push_back(at);
      objects_.push_back(*std::move(object));
    }
    if (bytes_->size() != offset) {
      return zt::InvalidData("the header asks for " + std::to_string(offset) +
                             " bytes, the file has " + std::to_string(bytes_->size().value_or(0)));
    }
    return zt::OkStatus();
  }

  std::shared_ptr<zt::ByteSource> bytes_;
  std::vector<std::uint64_t> offsets_;
};

// Rounds f32 values to 11 significant bits: the rest becomes zeros, which compress. Called by
// several threads.
class RoundStage final : public zt::Stage {
 public:
  zt::Status Process(zt::Chunk& chunk) override {
    const zt::ElementType& element = chunk.object->components[chunk.component].element;
    if (element.dtype != zt::DType::kF32) return zt::OkStatus();
    zt::Buffer rounded = chunk.pool->Take(chunk.bytes().size());
    for (std::size_t at = 0; at < chunk.bytes().size(); at += 4) {
      std::uint32_t bits;
      std::memcpy(&bits, &chunk.bytes()[at], 4);
      if ((bits & 0x7f800000) == 0x7f800000) return zt::InvalidData("a value is NaN or infinite");
      bits = (bits + 0xfff + (bits >> 13 & 1)) & ~std::uint32_t{0x1fff};
      std::memcpy(&rounded.bytes()[at], &bits, 4);
    }
    chunk.Replace(std::move(rounded));
    return zt::OkStatus();
  }
};

// Files of llama2.c have no magic number: what is no known format is taken for one, and its sizes
// must agree.
zt::StatusOr<std::unique_ptr<zt::TensorSource>> OpenAny(const std::string& path) {
  ZT_ASSIGN_OR_RETURN(const bool folder, zt::LocalStore()->IsFolder(path));
  if (folder) return zt::Open(path);
  ZT_ASSIGN_OR_RETURN(const auto bytes, zt::OpenFile(path));
  ZT_ASSIGN_OR_RETURN(const auto head, zt::Peek(*bytes, zt::kHeadBytes));
  if (zt::Recognise(head).ok()) return zt::Open(path);
  ZT_ASSIGN_OR_RETURN(auto source, Llama2cSource::Open(bytes));
  source->SetFile(path);
  return source;
}

zt::Status Transcode(const std::string& input, const std::string& output) {
  auto source = OpenAny(input);
  if (!source.ok()) return zt::WithFile(source.status(), input);
  const zt::Storage storage = {zt::Compression::kIfGain, zt::DigestKind::kSha256};
  ZT_ASSIGN_OR_RETURN(const zt::Plan plan, zt::MakePlan(**source, {.storage = storage}));
  ZT_ASSIGN_OR_RETURN(auto sink, zt::CreateFileSink(output, {.overwrite = true}));
  ZT_ASSIGN_OR_RETURN(
      auto writer,
      zt::Writer::Create(std::move(sink), {.stages = {std::make_shared<RoundStage>()}}));
  ZT_RETURN_IF_ERROR(writer->AddSource(**source, plan));
  return writer->Finish();
}

int main(int argc, char** argv) {
  if (argc != 3) return std::cerr << "usage: transcoder INPUT FILE.zt\n", 2;
  const zt::Status status = Transcode(argv[1], argv[2]);
  if (!status.ok()) std::cerr << zt::Message(status) << '\n';
  return zt::ExitStatus(status);
}
