// Whether a sparse tensor names each cell once, told from its indices as they pass: numbers alone.
#ifndef ZTSTREAM_WRITER_CELLS_H_
#define ZTSTREAM_WRITER_CELLS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/little_endian.h"

namespace zt::writer::internal {

// Whether the columns of each row of a matrix ascend. Where an index is not above the one before it, a row must begin. Whichever of the two components comes
// first is remembered: eight bytes for each row at most.
class Rows {
 public:
  // Of so many rows.
  explicit Rows(std::uint64_t rows) : rows_(rows) {}

  // Whole elements of `width` bytes, in order.
  void AddIndices(std::span<const std::byte> bytes, std::size_t width) {
    for (std::size_t at = 0; at + width <= bytes.size() && !bad_; at += width) {
      const std::uint64_t index = zt::internal::LoadLittle(bytes.data() + at, width);
      if (count_ > 0 && index <= last_) Descend();
      last_ = index;
      ++count_;
    }
  }
  void AddPointers(std::span<const std::byte> bytes, std::size_t width) {
    for (std::size_t at = 0; at + width <= bytes.size() && !bad_; at += width) {
      const std::uint64_t pointer = zt::internal::LoadLittle(bytes.data() + at, width);
      if (count_ == 0) {
        pointers_.push_back(pointer);
      } else {
        Pass(pointer);
      }
    }
  }
  // Once all has passed: the number of the first index that is not above the one before it in its row.
  std::optional<std::uint64_t> bad() const {
    if (bad_ || descents_.empty() || next_ == descents_.size()) return bad_;
    return descents_[next_];
  }

 private:
  void Descend() {
    if (pointers_.empty()) {
      descents_.push_back(count_);
      // There are more than rows: two are in one.
      if (descents_.size() > rows_) bad_ = count_;
      return;
    }
    while (next_ < pointers_.size() && pointers_[next_] < count_) ++next_;
    if (next_ == pointers_.size() || pointers_[next_] != count_) bad_ = count_;
  }
  void Pass(std::uint64_t pointer) {
    if (next_ == descents_.size() || pointer < descents_[next_]) return;
    if (pointer > descents_[next_]) {
      bad_ = descents_[next_];
    } else {
      ++next_;
    }
  }

  std::uint64_t rows_, count_ = 0, last_ = 0;
  std::vector<std::uint64_t> descents_, pointers_;  // one of them is empty
  std::size_t next_ = 0;                            // of the one that is not
  std::optional<std::uint64_t> bad_;
};

// Whether the coordinates of a tensor's elements differ: those of all in dimension 0, then of all in 1, and so on. The place
// of each element's cell in C order takes eight bytes.
class Cells {
 public:
  // `shape` has no product beyond 64 bits.
  Cells(std::span<const std::uint64_t> shape, std::uint64_t elements)
      : shape_(shape.begin(), shape.end()), cells_(elements) {}

  // Whole elements of `width` bytes, in order.
  void Add(std::span<const std::byte> bytes, std::size_t width) {
    for (std::size_t at = 0; at + width <= bytes.size() && dimension_ < shape_.size();
         at += width) {
      std::uint64_t& cell = cells_[next_];
      cell = cell * shape_[dimension_] + zt::internal::LoadLittle(bytes.data() + at, width);
      if (++next_ == cells_.size()) {
        next_ = 0;
        ++dimension_;
      }
    }
  }
  // Once all has passed.
  bool differ() {
    if (!std::is_sorted(cells_.begin(), cells_.end())) std::sort(cells_.begin(), cells_.end());
    return std::adjacent_find(cells_.begin(), cells_.end()) == cells_.end();
  }

 private:
  std::vector<std::uint64_t> shape_, cells_;
  std::size_t dimension_ = 0, next_ = 0;
};

}  // namespace zt::writer::internal

#endif  // ZTSTREAM_WRITER_CELLS_H_
