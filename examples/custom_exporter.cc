// An exporter with its own destination: a sparse, a quantized and a streamed tensor, to a C stream.
#include <errno.h>

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ztstream/status_macros.h"

import zt;

constexpr zt::DType kF32 = zt::DType::kF32, kU32 = zt::DType::kU32, kU64 = zt::DType::kU64;

// The vectors must stay until Flush or Finish, here in main.
struct Tensors {
  // [[0, 7, 0], [0, 0, 9]] as compressed sparse rows.
  std::vector<float> values = {7, 9};
  std::vector<std::uint64_t> columns = {1, 2}, rows = {0, 1, 2};
  // Two rows of eight 4-bit codes, with a scale and a zero point for each row.
  std::vector<std::uint32_t> codes = {0x76543210, 0xfedcba98};
  std::vector<float> scales = {0.5, 0.25}, zeros = {8, 8};
};

// A destination that takes bytes in order. An output that failed is not taken back here.
class StreamSink final : public zt::Sink {
 public:
  StreamSink(std::FILE* stream, std::string name) : stream_(stream), name_(std::move(name)) {}
  const std::string& name() const override { return name_; }
  zt::Status Append(zt::Pieces pieces) override {
    for (std::span<const std::byte> piece : pieces) {
      if (std::fwrite(piece.data(), 1, piece.size(), stream_) != piece.size())
        return zt::IoError(errno, "cannot write");
    }
    return zt::OkStatus();
  }
  zt::Status Finish(std::uint64_t /*total*/) override {
    return std::fflush(stream_) == 0 ? zt::OkStatus() : zt::IoError(errno, "cannot write");
  }
  void Abort() override {}

 private:
  std::FILE* stream_;
  std::string name_;
};

auto Bytes(const auto& vector) { return std::as_bytes(std::span(vector)); }

zt::Status Export(const Tensors& t, zt::Writer& writer) {
  const zt::Storage raw, zstd = {zt::Compression::kAlways, zt::DigestKind::kSha256};
  zt::Object graph = {.name = "graph", .format = "sparse_csr", .shape = {2, 3}};
  graph.components = {{"values", {kF32}}, {"indices", {kU64}}, {"indptr", {kU64}}};
  ZT_RETURN_IF_ERROR(
      writer.Add(graph, {Bytes(t.values), Bytes(t.columns), Bytes(t.rows)}, {raw, zstd, zstd}));

  zt::Object layer = {.name = "layer", .format = "quantized_group", .shape = {2, 8}};
  layer.attributes = {{"bits", 4}, {"group_size", 8}, {"packing", "8_per_u32_lsb_first"}};
  layer.components = {{"packed_weight", {kU32}}, {"scales", {kF32}}, {"zeros", {kF32}}};
  ZT_RETURN_IF_ERROR(writer.Add(layer, {Bytes(t.codes), Bytes(t.scales), Bytes(t.zeros)}));

  // A tensor made row by row, compressed as it comes: nobody knows how small it will be.
  zt::Object stream = {.name = "stream", .shape = {1000, 1024}, .components = {{"data", {kF32}}}};
  ZT_ASSIGN_OR_RETURN(auto object, writer.Begin(stream, {zstd}));
  for (int row = 0; row < 1000; ++row) {
    const std::vector<float> values(1024, static_cast<float>(row));
    ZT_RETURN_IF_ERROR(object->Append(Bytes(values)));
  }
  ZT_RETURN_IF_ERROR(object->Finish());
  return writer.Finish();
}

int main() {
  const Tensors tensors;
  auto writer = zt::Writer::Create(std::make_unique<StreamSink>(stdout, "standard output"));
  const zt::Status status = writer.ok() ? Export(tensors, **writer) : writer.status();
  if (!status.ok()) std::cerr << zt::Message(status) << '\n';
  return zt::ExitStatus(status);
}
