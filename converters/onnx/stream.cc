// zt.convert.onnx:model — decodes typed data and indices front to back, in bounded memory.
module;

#include "core/little_endian.h"
#include "core/status_macros.h"

module zt.convert.onnx;

import zt.std;
import :model;
import :wire;
import zt.core;
import zt.source;

namespace zt::onnx::internal {
namespace {

class RangeStream final : public Stream {
 public:
  RangeStream(ByteSource& bytes, std::uint64_t offset) : bytes_(bytes), offset_(offset) {}
  Status Read(std::uint64_t offset, std::span<std::byte> out) override {
    return bytes_.ReadAt(offset_ + offset, out);
  }

 private:
  ByteSource& bytes_;
  const std::uint64_t offset_;
};

class NumberStream final : public Stream {
 public:
  NumberStream(ByteSource& bytes, const Numbers& numbers, std::uint64_t size, std::uint64_t width,
               bool to_bool)
      : bytes_(bytes), numbers_(numbers), size_(size), width_(width), to_bool_(to_bool) {
    Restart();
  }

  Status Read(std::uint64_t offset, std::span<std::byte> out) override {
    if (offset < done_) Restart();
    const Status status = ReadOn(offset, out);
    if (!status.ok()) Restart();  // where it ended is not known
    return status;
  }

 private:
  Status ReadOn(std::uint64_t offset, std::span<std::byte> out) {
    Cursor cursor(bytes_);
    cursor.SkipTo(at_);
    std::array<std::byte, 4096> skipped;
    while (done_ < offset) {
      const auto some = std::min<std::uint64_t>(skipped.size(), offset - done_);
      ZT_RETURN_IF_ERROR(Fill(cursor, std::span(skipped).first(some)));
    }
    ZT_RETURN_IF_ERROR(Fill(cursor, out));
    if (done_ == size_) {
      ZT_ASSIGN_OR_RETURN(const bool more, FindField(cursor));
      if (more) return InvalidData("it has more than " + Elements() + " elements");
    }
    at_ = cursor.at();
    return OkStatus();
  }
  void Restart() {
    done_ = 0;
    at_ = end_ = numbers_.message.offset;
  }
  std::string Elements() const { return std::to_string(size_ / width_); }

  // Makes the cursor stand before the next number of a field; false if there are no more.
  StatusOr<bool> FindField(Cursor& cursor) {
    while (cursor.at() == end_) {
      if (end_ == numbers_.message.end()) return false;
      ZT_ASSIGN_OR_RETURN(const Field field, cursor.Next(numbers_.message.end()));
      end_ = cursor.at();
      if (numbers_.Has(field)) cursor.SkipTo(field.range.offset);
    }
    return true;
  }

  Status Fill(Cursor& cursor, std::span<std::byte> out) {
    while (!out.empty()) {
      const std::uint64_t within = numbers_.varints ? done_ % width_ : 0;
      std::uint64_t take = std::min(out.size(), width_ - within);
      if (within == 0) {
        ZT_ASSIGN_OR_RETURN(const bool more, FindField(cursor));
        if (!more) {
          return InvalidData("it has " + std::to_string(done_ / width_) +
                             " elements, its shape needs " + Elements());
        }
      }
      if (!numbers_.varints) {
        take = std::min<std::uint64_t>(out.size(), end_ - cursor.at());
        ZT_RETURN_IF_ERROR(cursor.Bytes(out.first(take)));
      } else {
        if (within == 0) {
          ZT_ASSIGN_OR_RETURN(std::uint64_t number, cursor.Varint(end_));
          if (to_bool_) number = (number & 0xff) != 0;  // as the onnx package reads it
          zt::internal::StoreLittle(number, 8, element_.data());
        }
        std::copy_n(element_.begin() + static_cast<std::ptrdiff_t>(within), take, out.begin());
      }
      done_ += take;
      out = out.subspan(take);
    }
    return OkStatus();
  }

  ByteSource& bytes_;
  const Numbers numbers_;
  const std::uint64_t size_, width_;
  const bool to_bool_;
  std::uint64_t done_ = 0;            // bytes served
  std::uint64_t at_ = 0, end_ = 0;    // in the file: the next number, and the end of its field
  std::array<std::byte, 8> element_;  // the last number
};

class CoordStream final : public Stream {
 public:
  CoordStream(std::unique_ptr<Stream> indices, Shape shape, std::uint64_t values, bool linear)
      : indices_(std::move(indices)),
        shape_(std::move(shape)),
        cells_(*ElementCount(shape_)),
        values_(values),
        linear_(linear) {}

  Status Read(std::uint64_t offset, std::span<std::byte> out) override {
    return ReadUnits(offset, out, kWidth, [this](std::uint64_t at, std::span<std::byte> units) {
      return ReadCoords(at / kWidth, units);
    });
  }

 private:
  static constexpr std::uint64_t kWidth = 8, kBuffered = 4096;

  Status ReadCoords(std::uint64_t first, std::span<std::byte> out) {
    const std::uint64_t rank = linear_ ? 1 : shape_.size();
    std::vector<std::byte> rows;
    while (!out.empty()) {
      const std::uint64_t axis = first / values_, value = first % values_;
      const std::uint64_t count = std::min({out.size() / kWidth, values_ - value, kBuffered});
      rows.resize(count * rank * kWidth);
      ZT_RETURN_IF_ERROR(indices_->Read(value * rank * kWidth, rows));
      // The cells of one index along the axis that lie side by side.
      const std::uint64_t below =
          *ElementCount(std::span<const std::uint64_t>(shape_).subspan(axis + 1));
      for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t column = linear_ ? 0 : axis;
        std::uint64_t index =
            zt::internal::LoadLittle(rows.data() + (i * rank + column) * kWidth, kWidth);
        if (linear_) {
          if (index >= cells_) {
            return InvalidData("the index " + std::to_string(static_cast<std::int64_t>(index)) +
                               " is not one of a cell");
          }
          index = index / below % shape_[axis];
        }
        zt::internal::StoreLittle(index, kWidth, out.data() + i * kWidth);
      }
      out = out.subspan(count * kWidth);
      first += count;
    }
    return OkStatus();
  }

  const std::unique_ptr<Stream> indices_;
  const Shape shape_;  // without a dimension of 0
  const std::uint64_t cells_, values_;
  const bool linear_;
};

}  // namespace

std::unique_ptr<Stream> MakeNumberStream(ByteSource& bytes, const Numbers& numbers,
                                         std::uint64_t size, std::uint64_t width, bool to_bool) {
  return std::make_unique<NumberStream>(bytes, numbers, size, width, to_bool);
}
std::unique_ptr<Stream> MakeCoordStream(std::unique_ptr<Stream> indices, Shape shape,
                                        std::uint64_t values, bool linear) {
  return std::make_unique<CoordStream>(std::move(indices), std::move(shape), values, linear);
}
std::unique_ptr<Stream> MakeRangeStream(ByteSource& bytes, std::uint64_t offset) {
  return std::make_unique<RangeStream>(bytes, offset);
}

}  // namespace zt::onnx::internal
