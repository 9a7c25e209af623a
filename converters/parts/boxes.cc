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
// Boxes whose lines are in the buffer together, and lines that each of them places in turn.
constexpr std::size_t kMostLoaded = 1024;
constexpr std::uint64_t kLinesInTurn = 16;
// Boxes that place short lines together: neighbours share lines of memory.
constexpr std::size_t kTogether = 8;
// Boxes whose declarations are loaded ahead of their turn.
constexpr std::ptrdiff_t kAhead = 8;
// Bytes that a Read should take of each of the boxes that lie beside one another, and of all.
constexpr std::uint64_t kOfEach = std::uint64_t{64} << 10;
constexpr std::uint64_t kOfAll = std::uint64_t{4} << 20;
// Boxes that begin in the same rows are compared in pairs: as many for each box.
constexpr std::uint64_t kMostOpen = 4096;

// The part of a box that lies in bytes [begin, begin + out.size()) of the tensor, line by line. A
// line is the longest run that is contiguous in both box and tensor: the trailing dimensions that
// the box covers, and its range of the dimension before them.
class BoxCopy {
 public:
  BoxCopy(const Shape& shape, const Box& box, std::uint64_t width, std::uint64_t begin,
          std::span<std::byte> out)
      : shape_(&shape), box_(&box), begin_(begin), out_(out) {
    const Shape& sizes = box.sizes();
    line_ = width;
    rank_ = shape.size();
    while (rank_ > 0 && sizes[rank_ - 1] == shape[rank_ - 1]) line_ *= shape[--rank_];
    if (rank_ > 0) {
      start_ = line_ * box.offsets[rank_ - 1];
      pitch_ = line_ * shape[rank_ - 1];
      line_ *= sizes[--rank_];
    } else {
      pitch_ = line_;
    }
    for (std::size_t k = 0; k < rank_; ++k) lines_ *= sizes[k];
    next_ = FirstLine(begin);
    end_ = FirstLine(begin + out.size(), false);
  }

  // The lines that are left, and their bytes.
  inline std::uint64_t left() const { return next_ < end_ ? end_ - next_ : 0; }
  inline std::uint64_t Bytes() const { return left() * line_; }

  // Reads the next lines: a single one to its place, several into `buffer`, at most its size, for
  // Place. The number of bytes read.
  StatusOr<std::uint64_t> Load(std::span<std::byte> buffer) {
    first_ = next_;
    count_ = std::clamp<std::uint64_t>(buffer.size() / line_, 1, left());
    // The range may begin within the first line and end within the last.
    const std::uint64_t end = begin_ + out_.size();
    const std::uint64_t low = LineStart(first_), high = LineStart(first_ + count_ - 1);
    skip_ = begin_ > low ? begin_ - low : 0;
    cut_ = high + line_ > end ? high + line_ - end : 0;
    const std::uint64_t size = count_ * line_ - skip_ - cut_;
    next_ += count_;
    in_ = buffer.data();
    placed_ = row_left_ = 0;
    ZT_RETURN_IF_ERROR(
        ReadBox(first_ * line_ + skip_,
                count_ == 1 ? out_.subspan(low + skip_ - begin_, size) : buffer.first(size)));
    if (count_ == 1) count_ = 0;
    return size;
  }
  // The number of lines to place.
  inline std::uint64_t count() const { return count_; }

  // Copies the next `some` loaded lines to their places.
  void Place(std::uint64_t some) {
    for (const std::uint64_t end = std::min(placed_ + some, count_); placed_ < end;) {
      if (row_left_ == 0) FindRow();
      const bool first_cut = placed_ == 0 && skip_ > 0;
      const bool last_cut = placed_ + 1 == count_ && cut_ > 0;
      const std::uint64_t from = first_cut ? skip_ : 0, size = line_ - from - (last_cut ? cut_ : 0);
      // The lines before the end of the row, and before one that is cut.
      const std::uint64_t whole = std::min(end, count_ - (cut_ > 0 ? 1 : 0)) - placed_;
      const std::uint64_t lines = first_cut || last_cut ? 1 : std::min(whole, row_left_);
      CopyLines(in_ + (placed_ == 0 ? 0 : placed_ * line_ - skip_), out_.data() + (place_ + from),
                size, lines);
      Advance(lines);
    }
  }

  // The same for a turn of several boxes. False, and nothing is copied, if their lines are not short
  // and alike.
  static bool PlaceTogether(std::span<BoxCopy, kTogether> boxes) {
    const std::uint64_t size = boxes[0].line_;
    for (BoxCopy& box : boxes) {
      if (box.line_ != size || box.pitch_ != boxes[0].pitch_ || !box.HasWholeTurn()) return false;
    }
    switch (size) {
      case 2:
        return CopyTogether<2>(boxes);
      case 4:
        return CopyTogether<4>(boxes);
      case 8:
        return CopyTogether<8>(boxes);
      case 16:
        return CopyTogether<16>(boxes);
      case 32:
        return CopyTogether<32>(boxes);
      default:
        return false;
    }
  }

 private:
  void FindRow() {
    const std::uint64_t row = rank_ == 0 ? 1 : box_->sizes()[rank_ - 1];
    row_left_ = row - (first_ + placed_) % row;
    place_ = LineStart(first_ + placed_) - begin_;
  }
  void Advance(std::uint64_t lines) {
    placed_ += lines;
    row_left_ -= lines;
    place_ += lines * pitch_;
  }
  // True if the next turn's lines are whole, and at equal distances.
  bool HasWholeTurn() {
    if (placed_ + kLinesInTurn > count_ - (cut_ > 0 ? 1 : 0) || (placed_ == 0 && skip_ > 0))
      return false;
    if (row_left_ == 0) FindRow();
    return row_left_ >= kLinesInTurn;
  }
  template <std::size_t kSize>
  static bool CopyTogether(std::span<BoxCopy, kTogether> boxes) {
    std::array<const std::byte*, kTogether> in;
    std::array<std::byte*, kTogether> out;
    for (std::size_t b = 0; b < kTogether; ++b) {
      BoxCopy& box = boxes[b];
      in[b] = box.in_ + (box.placed_ * kSize - box.skip_);
      out[b] = box.out_.data() + box.place_;
      box.Advance(kLinesInTurn);
    }
    const std::uint64_t pitch = boxes[0].pitch_;
    for (std::uint64_t i = 0; i < kLinesInTurn; ++i) {
      for (std::size_t b = 0; b < kTogether; ++b)
        std::memcpy(out[b] + i * pitch, in[b] + i * kSize, kSize);
    }
    return true;
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
      at += (box_->offsets[k] + line % box_->sizes()[k]) * pitch;
      line /= box_->sizes()[k];
      pitch *= (*shape_)[k];
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
    const Status status = box_->source->Read({box_->object, 0}, offset, out);
    return status.ok() ? status : Annotate(status, "the part in " + FileOf(*box_));
  }

  static std::string FileOf(const Box& box) {
    return std::filesystem::path(box.source->file({box.object, 0})).filename().string();
  }

  const Shape* shape_;
  const Box* box_;
  std::uint64_t begin_;
  std::span<std::byte> out_;
  std::size_t rank_ = 0;  // leading dimensions, whose indices number the lines
  std::uint64_t line_ = 1, lines_ = 1, start_ = 0, pitch_ = 0;
  std::uint64_t next_ = 0, end_ = 0;  // lines to load
  // The loaded lines, the first without its `skip_` bytes, the last without its `cut_`.
  std::uint64_t first_ = 0, count_ = 0, skip_ = 0, cut_ = 0;
  const std::byte* in_ = nullptr;
  // Of them the next to place, the lines left of its row, and where it begins in the output: before
  // it, modulo 2^64, if the output begins within the line.
  std::uint64_t placed_ = 0, row_left_ = 0, place_ = 0;
};

// Places what boxes beside one another have loaded: some lines of each in turn, so that the lines
// of memory they share are written once.
void Place(std::span<BoxCopy> loaded) {
  std::uint64_t most = 0;
  for (const BoxCopy& box : loaded) most = std::max(most, box.count());
  for (std::uint64_t i = 0; i < most; i += kLinesInTurn) {
    for (std::span<BoxCopy> rest = loaded; !rest.empty();) {
      if (rest.size() >= kTogether && BoxCopy::PlaceTogether(rest.first<kTogether>())) {
        rest = rest.subspan(kTogether);
      } else {
        rest.front().Place(kLinesInTurn);
        rest = rest.subspan(1);
      }
    }
  }
}

}  // namespace

Status BoxSource::Add(Object object, std::vector<Box> boxes) {
  ZT_RETURN_IF_ERROR(ValidateObject(object));
  ZT_RETURN_IF_ERROR(CheckBoxes(object, boxes));
  objects_.push_back(std::move(object));
  boxes_.push_back(std::move(boxes));
  return OkStatus();
}

void BoxSource::AddUnreadable(Object object, const Status& problem, std::string file) {
  const auto index = static_cast<std::uint32_t>(objects_.size());
  problems_.emplace(index, problem);
  if (!file.empty()) unreadable_.emplace(index, std::move(file));
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
  if (boxes_.empty() || boxes_[id.object].empty()) {
    const auto found = unreadable_.find(id.object);
    return found == unreadable_.end() ? file_ : found->second;
  }
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
  const std::uint64_t width = ElementBytes(object.components[0].element);
  std::unique_ptr<std::byte[]> buffer;
  std::vector<BoxCopy> loaded;
  std::uint64_t copied = 0, used = 0;
  const auto past = std::partition_point(boxes.begin(), boxes.end(), [&](const Box& box) {
    return (box.offsets.empty() ? 0 : box.offsets[0]) * row < offset + out.size();
  });
  for (auto box = past; box != boxes.begin();) {
    --box;
    if (box - boxes.begin() >= kAhead) {
      const Box& ahead = *(box - kAhead);
      __builtin_prefetch(&ahead.source->objects()[ahead.object].shape);
    }
    const std::uint64_t end =
        box->offsets.empty() ? size : (box->offsets[0] + box->sizes()[0]) * row;
    if (end <= offset) {
      if (box->offsets[0] + tallest_[id.object] <= offset / row) break;
      continue;
    }
    for (BoxCopy copy(object.shape, *box, width, offset, out); copy.left() > 0;) {
      std::span<std::byte> room;
      if (copy.left() > 1) {
        if (buffer == nullptr) buffer = std::make_unique_for_overwrite<std::byte[]>(kBuffer);
        if (copy.Bytes() > kBuffer - used || loaded.size() == kMostLoaded) {
          Place(loaded);
          loaded.clear();
          used = 0;
        }
        room = {buffer.get() + used, kBuffer - used};
      }
      ZT_ASSIGN_OR_RETURN(const std::uint64_t some, copy.Load(room));
      copied += some;
      if (copy.count() == 0) continue;
      used += some;
      loaded.push_back(copy);
    }
  }
  Place(loaded);
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
  // The first dimension of which not all have the same range: by it boxes are apart or beside one
  // another.
  std::size_t by = 0;
  const auto level = [&](const Box& box) {
    return box.offsets[by] == boxes[0].offsets[by] && box.sizes()[by] == boxes[0].sizes()[by];
  };
  while (by + 1 < object.shape.size() && std::ranges::all_of(boxes, level)) ++by;
  std::vector<const Box*> open;  // boxes that reach the next one's first index of it
  for (const Box& box : boxes) {
    if (box.offsets.empty()) {
      if (&box != &boxes[0]) return overlap(boxes[0], box);
      continue;
    }
    std::erase_if(open, [&](const Box* other) {
      return other->offsets[by] + other->sizes()[by] <= box.offsets[by];
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
