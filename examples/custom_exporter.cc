// An exporter of one's own: a sparse, a quantized and a streamed tensor, written to a pipe.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

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

auto Bytes(const auto& vector) { return std::as_bytes(std::span(vector)); }

zt::Status Export(const Tensors& t, zt::Writer& writer) {
  const zt::Storage raw, zstd = {zt::Compression::kAlways, zt::DigestKind::kSha256};
  zt::Object graph = {.name = "graph", .format = "sparse_csr", .shape = {2, 3}};
  graph.components = {{"values", {kF32}}, {"indices", {kU64}}, {"indptr", {kU64}}};
  zt::Status status =
      writer.Add(graph, {Bytes(t.values), Bytes(t.columns), Bytes(t.rows)}, {raw, zstd, zstd});
  if (!status.ok()) return status;

  zt::Object layer = {.name = "layer", .format = "quantized_group", .shape = {2, 8}};
  layer.attributes = {{"bits", 4}, {"group_size", 8}, {"packing", "8_per_u32_lsb_first"}};
  layer.components = {{"packed_weight", {kU32}}, {"scales", {kF32}}, {"zeros", {kF32}}};
  status = writer.Add(layer, {Bytes(t.codes), Bytes(t.scales), Bytes(t.zeros)});
  if (!status.ok()) return status;

  // A tensor made row by row, compressed as it comes: nobody knows how small it will be.
  zt::Object stream = {.name = "stream", .shape = {1000, 1024}, .components = {{"data", {kF32}}}};
  auto object = writer.Begin(stream, {zstd});
  if (!object.ok()) return object.status();
  for (int row = 0; row < 1000; ++row) {
    status = (*object)->Append(Bytes(std::vector<float>(1024, static_cast<float>(row))));
    if (!status.ok()) return status;
  }
  status = (*object)->Finish();
  return status.ok() ? writer.Finish() : status;
}

int main() {
  const Tensors tensors;
  auto writer = zt::Writer::Create(zt::DescriptorSink(STDOUT_FILENO, "standard output"));
  const zt::Status status = writer.ok() ? Export(tensors, **writer) : writer.status();
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(zt::Message(status)).c_str());
  return zt::ExitStatus(status);
}
