// zt.convert.parts — boxes of tensors: checks that they cover a tensor, and copies their lines.
module;

#include "core/status_macros.h"

module zt.convert.parts;

import zt.std;
import zt.core;
import zt.source;

namespace zt {
namespace {

constexpr std::uint64_t kBuffer = std::uint64_t{1} << 20;
// Bytes that a Read should take of each of the boxes that lie beside one another, and of all.
constexpr std::uint64_t kOfEach = std::uint64_t{64} << 10;
constexpr std::uint64_t kOfAll = std::uint64_t{4} << 20;
// Boxes that begin in the same rows are compared in pairs: as many for each box.
constexpr std::uint64_t kMostOpen = 4096;

// Copies the part of a box that lies in bytes [begin, begin + out.size()) of the tensor, line by
// line. A line is the longest run that is contiguous in both box and tensor: the trailing dimensions
// that the box covers, and its range of the dimension before them.
class BoxCopy {
 public:
  BoxCopy(const Shape& shape, const Box& box, std::uint64_t width)
      : shape_(shape), box_(box), sizes_(box.sizes()) {
    line_ = width;
    rank_ = shape.size();
    while (rank_ > 0 && sizes_[rank_ - 1] == shape[rank_ - 1]) line_ *= shape[--rank_];
    if (rank_ > 0) {
      start_ = line_ * box.offsets[rank_ - 1];
      pitch_ = line_ * shape[rank_ - 1];
      line_ *= sizes_[--rank_];
    } else {
      pitch_ = line_;
    }
    for (std::size_t k = 0; k < rank_; ++k) lines_ *= sizes_[k];
  }

  // The number of bytes copied.
  StatusOr<std::uint64_t> Copy(std::uint64_t begin, std::span<std::byte> out,
                               std::vector<std::byte>& buffer) const {
    const std::uint64_t end = begin + out.size();
    std::uint64_t first = FirstLine(begin), copied = 0;
    const std::uint64_t batch = std::max<std::uint64_t>(1, kBuffer / line_);
    while (first < lines_ && LineStart(first) < end) {
      // Lines that begin before `end`: by rows of the last dimension before the line.
      const std::uint64_t count =
          std::min(batch, std::max<std::uint64_t>(FirstLine(end, false) - first, 1));
      // The range may begin within the first line and end within the last.
      const std::uint64_t low = LineStart(first), high = LineStart(first + count - 1);
      const std::uint64_t skip = begin > low ? begin - low : 0;
      const std::uint64_t cut = high + line_ > end ? high + line_ - end : 0;
      const std::uint64_t size = count * line_ - skip - cut;
      if (count == 1) {
        ZT_RETURN_IF_ERROR(ReadBox(first * line_ + skip, out.subspan(low + skip - begin, size)));
      } else {
        if (buffer.size() < size) buffer.resize(std::max(kBuffer, size));
        ZT_RETURN_IF_ERROR(ReadBox(first * line_ + skip, std::span(buffer).first(size)));
        Scatter(first, count, skip, cut, begin, buffer.data(), out.data());
      }
      copied += size;
      first += count;
    }
    return copied;
  }

 private:
  // Copies lines from `in`, the first without its `skip` bytes, the last without its `cut`.
  void Scatter(std::uint64_t first, std::uint64_t count, std::uint64_t skip, std::uint64_t cut,
               std::uint64_t begin, const std::byte* in, std::byte* out) const {
    const std::uint64_t row = rank_ == 0 ? 1 : sizes_[rank_ - 1];  // lines at equal distances
    for (std::uint64_t i = 0; i < count;) {
      std::byte* const to = out + (LineStart(first + i) - begin);
      const bool first_cut = i == 0 && skip > 0, last_cut = i + 1 == count && cut > 0;
      const std::uint64_t from = first_cut ? skip : 0, size = line_ - from - (last_cut ? cut : 0);
      // The lines before the end of the row, and before one that is cut.
      const std::uint64_t whole = count - (cut > 0 ? 1 : 0) - i;
      const std::uint64_t some =
          first_cut || last_cut ? 1 : std::min(whole, row - (first + i) % row);
      CopyLines(in, to + from, size, some);
      in += size * some;
      i += some;
    }
  }

  void CopyLines(const std::byte* in, std::byte* out, std::uint64_t size,
                 std::uint64_t count) const {
    switch (size) {
      case 2:
        return CopyFixed<2>(in, out, count);
      case 4:
        return CopyFixed<4>(in, out, count);
      case 8:
        return CopyFixed<8>(in, out, count);
      case 16:
        return CopyFixed<16>(in, out, count);
      case 32:
        return CopyFixed<32>(in, out, count);
      case 64:
        return CopyFixed<64>(in, out, count);
      default:
        for (std::uint64_t i = 0; i < count; ++i)
          std::memcpy(out + i * pitch_, in + i * size, size);
    }
  }
  template <std::size_t kSize>
  void CopyFixed(const std::byte* in, std::byte* out, std::uint64_t count) const {
    for (std::uint64_t i = 0; i < count; ++i) std::memcpy(out + i * pitch_, in + i * kSize, kSize);
  }

  // Offset in the tensor of the first byte of a line.
  std::uint64_t LineStart(std::uint64_t line) const {
    std::uint64_t at = start_, pitch = pitch_;
    for (std::size_t k = rank_; k-- > 0;) {
      at += (box_.offsets[k] + line % sizes_[k]) * pitch;
      line /= sizes_[k];
      pitch *= shape_[k];
    }
    return at;
  }
  // The first line that ends after byte `at` of the tensor, or begins there or after it.
  std::uint64_t FirstLine(std::uint64_t at, bool ends = true) const {
    std::uint64_t low = 0, high = lines_;
    while (low < high) {
      const std::uint64_t middle = low + (high - low) / 2, start = LineStart(middle);
      if (ends ? start + line_ > at : start >= at) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  Status ReadBox(std::uint64_t offset, std::span<std::byte> out) const {
    const Status status = box_.source->Read({box_.object, 0}, offset, out);
    return status.ok() ? status : Annotate(status, "the part in " + FileOf(box_));
  }

  static std::string FileOf(const Box& box) {
    return std::filesystem::path(box.source->file({box.object, 0})).filename().string();
  }

  const Shape& shape_;
  const Box& box_;
  const Shape& sizes_;
  std::size_t rank_ = 0;  // leading dimensions, whose indices number the lines
  std::uint64_t line_ = 1, lines_ = 1, start_ = 0, pitch_ = 0;
};

}  // namespace

Status BoxSource::Add(Object object, std::vector<Box> boxes) {
  ZT_RETURN_IF_ERROR(ValidateObject(object));
  ZT_RETURN_IF_ERROR(CheckBoxes(object, boxes));
  objects_.push_back(std::move(object));
  boxes_.push_back(std::move(boxes));
  return OkStatus();
}

void BoxSource::AddUnreadable(Object object, const Status& problem) {
  problems_.emplace(static_cast<std::uint32_t>(objects_.size()), problem);
  objects_.push_back(std::move(object));
  boxes_.emplace_back();
  tallest_.push_back(0);
}

// The entry of an archive may be deflated.
bool BoxSource::sequential(ComponentId id) const {
  return std::ranges::any_of(
      boxes_[id.object], [](const Box& box) { return box.source->sequential({box.object, 0}); });
}

std::uint64_t BoxSource::preferred_read(ComponentId id) const {
  const Object& object = objects_[id.object];
  const std::vector<Box>& boxes = boxes_[id.object];
  if (boxes.size() < 2 || object.shape.empty()) return 0;
  const std::uint64_t row = object.components[0].bytes / object.shape[0];
  const double beside = static_cast<double>(boxes.size()) *
                        static_cast<double>(tallest_[id.object]) /
                        static_cast<double>(object.shape[0]);
  if (beside < 2 || row > kOfAll) return 0;
  const double wanted =
      std::min(beside * static_cast<double>(kOfEach), static_cast<double>(kOfAll));
  return std::max(row, static_cast<std::uint64_t>(wanted) / row * row);
}

const std::string& BoxSource::file(ComponentId id) const {
  if (boxes_.empty() || boxes_[id.object].empty()) return file_;
  const Box& first = boxes_[id.object][0];
  return first.source->file({first.object, 0});
}

Status BoxSource::Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) {
  const Object& object = objects_[id.object];
  const std::uint64_t size = object.components[0].bytes;
  ZT_RETURN_IF_ERROR(CheckRange(id, offset, out.size()));
  if (out.empty()) return OkStatus();
  // Boxes are sorted by their first offset, which bounds the bytes they cover.
  const std::uint64_t row = object.shape.empty() ? size : size / object.shape[0];
  const std::vector<Box>& boxes = boxes_[id.object];
  std::vector<std::byte> buffer;
  std::uint64_t copied = 0;
  const auto past = std::partition_point(boxes.begin(), boxes.end(), [&](const Box& box) {
    return (box.offsets.empty() ? 0 : box.offsets[0]) * row < offset + out.size();
  });
  for (auto box = past; box != boxes.begin();) {
    --box;
    const std::uint64_t end =
        box->offsets.empty() ? size : (box->offsets[0] + box->sizes()[0]) * row;
    if (end <= offset) {
      if (box->offsets[0] + tallest_[id.object] <= offset / row) break;
      continue;
    }
    ZT_ASSIGN_OR_RETURN(const std::uint64_t some,
                        BoxCopy(object.shape, *box, ElementBytes(object.components[0].element))
                            .Copy(offset, out, buffer));
    copied += some;
  }
  return copied == out.size() ? OkStatus() : InvalidData("its parts do not cover it");
}

// Checks that the boxes lie within the tensor, do not overlap, and together have its size.
Status BoxSource::CheckBoxes(const Object& object, std::vector<Box>& boxes) {
  const auto overlap = [](const Box& a, const Box& b) {
    const std::string &first = a.source->file({a.object, 0}),
                      &second = b.source->file({b.object, 0});
    const auto name = [](const std::string& path) {
      return std::filesystem::path(path).filename().string();
    };
    return InvalidData("its parts at " + ToString(a.offsets) + " in " + name(first) + " and at " +
                       ToString(b.offsets) + " in " + name(second) + " overlap");
  };
  const std::uint64_t total = *ElementCount(object.shape);
  std::uint64_t sum = 0, tallest = 0;
  std::erase_if(boxes, [](const Box& box) { return ElementCount(box.sizes()) == 0; });
  for (const Box& box : boxes) {
    const Shape& sizes = box.sizes();
    for (std::size_t k = 0; k < object.shape.size(); ++k) {
      if (box.offsets[k] > object.shape[k] || sizes[k] > object.shape[k] - box.offsets[k]) {
        return InvalidData("a part of shape " + ToString(sizes) + " at " + ToString(box.offsets) +
                           " lies outside shape " + ToString(object.shape));
      }
    }
    if (!sizes.empty()) tallest = std::max(tallest, sizes[0]);
    sum = CheckedAdd(sum, *ElementCount(sizes)).value_or(~std::uint64_t{0});
  }
  std::sort(boxes.begin(), boxes.end(),
            [](const Box& a, const Box& b) { return a.offsets < b.offsets; });
  std::vector<const Box*> open;  // boxes that reach the next one's first row
  for (const Box& box : boxes) {
    if (box.offsets.empty()) {
      if (&box != &boxes[0]) return overlap(boxes[0], box);
      continue;
    }
    std::erase_if(open, [&](const Box* other) {
      return other->offsets[0] + other->sizes()[0] <= box.offsets[0];
    });
    compared_ += open.size();
    allowed_ += kMostOpen;
    if (compared_ > allowed_) return Unsupported("it has too many parts beside one another");
    for (const Box* other : open) {
      bool apart = false;
      for (std::size_t k = 0; k < box.offsets.size(); ++k) {
        apart |= other->offsets[k] >= box.offsets[k] + box.sizes()[k] ||
                 box.offsets[k] >= other->offsets[k] + other->sizes()[k];
      }
      if (!apart) return overlap(*other, box);
    }
    open.push_back(&box);
  }
  if (sum != total) {
    return InvalidData("its parts hold " + std::to_string(sum) + " of " + std::to_string(total) +
                       " elements");
  }
  tallest_.push_back(tallest);
  return OkStatus();
}

}  // namespace zt
