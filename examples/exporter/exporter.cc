// Exports .fvecs files (rows of an i32, the dimension, and that many f32) with the
// installed library.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ztstream/status_macros.h"

import zt;

// A source of its own: the vectors lie between dimensions that must not reach the output.
class FvecsSource final : public zt::TensorSource {
 public:
  static zt::StatusOr<std::unique_ptr<FvecsSource>> Open(const std::string& path) {
    auto source = std::make_unique<FvecsSource>();
    source->SetFile(path);
    ZT_ASSIGN_OR_RETURN(source->bytes_, zt::OpenFile(path));
    std::int32_t dimension = 0;
    ZT_RETURN_IF_ERROR(source->bytes_->ReadAt(0, std::as_writable_bytes(std::span(&dimension, 1))));
    if (dimension < 1) return zt::InvalidData("a dimension below 1");
    source->row_ = 4 * static_cast<std::uint64_t>(dimension);
    const std::uint64_t size = source->bytes_->size().value_or(0);
    if (size % (4 + source->row_) != 0) return zt::InvalidData("no whole number of rows");
    ZT_ASSIGN_OR_RETURN(zt::Object vectors,
                        zt::DenseObject("vectors", {size / (4 + source->row_), source->row_ / 4},
                                        {zt::DType::kF32}));
    source->objects_.push_back(std::move(vectors));
    return source;
  }

  std::string_view format() const override { return "fvecs"; }

  // Called by several threads, with ranges that begin and end anywhere.
  zt::Status Read(zt::ComponentId, std::uint64_t offset, std::span<std::byte> out) override {
    while (!out.empty()) {
      const std::uint64_t row = offset / row_, begin = offset % row_;
      const std::span<std::byte> part =
          out.first(std::min<std::uint64_t>(out.size(), row_ - begin));
      std::int32_t dimension = 0;
      ZT_RETURN_IF_ERROR(
          bytes_->ReadAt(row * (4 + row_), std::as_writable_bytes(std::span(&dimension, 1))));
      if (dimension * std::uint64_t{4} != row_) {
        return zt::InvalidData("row " + std::to_string(row) + " has another dimension");
      }
      ZT_RETURN_IF_ERROR(bytes_->ReadAt(row * (4 + row_) + 4 + begin, part));
      offset += part.size();
      out = out.subspan(part.size());
    }
    return zt::OkStatus();
  }

 private:
  std::shared_ptr<zt::ByteSource> bytes_;
  std::uint64_t row_ = 0;  // bytes of a vector
};

// A stage of its own: subnormal numbers become zero.
class FlushStage final : public zt::Stage {
 public:
  zt::Status Process(zt::Chunk& chunk) override {
    const zt::ElementType& element = chunk.object->components[chunk.component].element;
    if (element.dtype != zt::DType::kF32) return zt::OkStatus();
    zt::Buffer flushed = chunk.pool->Take(chunk.bytes().size());
    for (std::size_t at = 0; at < chunk.bytes().size(); at += 4) {
      float value;
      std::memcpy(&value, &chunk.bytes()[at], 4);
      if (std::isnan(value)) return zt::InvalidData("a value is NaN");
      if (std::fpclassify(value) == FP_SUBNORMAL) value = 0, ++flushed_;
      std::memcpy(&flushed.bytes()[at], &value, 4);
    }
    chunk.Replace(std::move(flushed));
    return zt::OkStatus();
  }
  std::uint64_t flushed() const { return flushed_; }

 private:
  std::atomic<std::uint64_t> flushed_ = 0;
};

// The rows whose length is not 1 within a thousandth. How many there are, only the last row tells.
zt::Status AppendOutliers(FvecsSource& source, zt::ObjectWriter& writer) {
  const zt::Shape& shape = source.objects()[0].shape;
  std::vector<float> values(shape[1]);
  const std::uint64_t bytes = values.size() * sizeof(float);
  for (std::uint64_t row = 0; row < shape[0]; ++row) {
    ZT_RETURN_IF_ERROR(source.Read({}, row * bytes, std::as_writable_bytes(std::span(values))));
    double square = 0;
    for (const float value : values) square += static_cast<double>(value) * value;
    if (std::abs(std::sqrt(square) - 1) <= 1e-3) continue;
    ZT_RETURN_IF_ERROR(writer.Append(std::span(&row, 1)));
  }
  return writer.Finish();
}

zt::Status Export(const std::string& input, const std::string& output) {
  const auto source = FvecsSource::Open(input);
  if (!source.ok()) return zt::WithFile(source.status(), input);
  ZT_ASSIGN_OR_RETURN(const zt::Plan plan, zt::MakePlan(**source, {}));
  const auto stage = std::make_shared<FlushStage>();
  ZT_ASSIGN_OR_RETURN(auto sink, zt::CreateFileSink(output, {.overwrite = true}));
  ZT_ASSIGN_OR_RETURN(auto writer, zt::Writer::Create(std::move(sink), {.stages = {stage}}));
  ZT_RETURN_IF_ERROR(writer->AddSource(**source, plan));
  ZT_RETURN_IF_ERROR(writer->Flush());  // the stage has seen every vector now
  writer->SetAttribute("flushed", stage->flushed());

  zt::Object outliers = {.name = "outliers", .format = "example.rows/1"};
  outliers.components = {{"rows", {zt::DType::kU64}}};
  ZT_ASSIGN_OR_RETURN(auto object, writer->Begin(outliers));
  ZT_RETURN_IF_ERROR(AppendOutliers(**source, *object));
  return writer->Finish();
}

int main(int argc, char** argv) {
  if (argc != 3) return std::cerr << "usage: exporter INPUT.fvecs OUTPUT.zt\n", 2;
  const zt::Status status = Export(argv[1], argv[2]);
  if (!status.ok()) std::cerr << zt::Message(status) << '\n';
  return zt::ExitStatus(status);
}
