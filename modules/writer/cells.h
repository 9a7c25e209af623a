// Whether a sparse tensor names each cell once, told from its indices as they pass: numbers alone, in bounded memory.
#ifndef ZTSTREAM_WRITER_CELLS_H_
#define ZTSTREAM_WRITER_CELLS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/little_endian.h"
#include "writer/varint.h"

namespace zt::writer::internal {

// Numbers that wait in the order they came, each kept as its difference to the one before: of those that ascend by little
// a byte or two.
class Waiting {
 public:
  void Push(std::uint64_t number) { PutVarint(bytes_, number - std::exchange(pushed_, number)); }
  bool empty() const { return !front_ && bytes_.empty(); }
  // The first of those that wait; there must be one.
  std::uint64_t Front() {
    if (front_) return *front_;
    popped_ += TakeVarint([this] {
      const std::byte first = bytes_.front();
      bytes_.pop_front();
      return first;
    });
    front_ = popped_;
    return popped_;
  }
  std::uint64_t Pop() {
    const std::uint64_t front = Front();
    front_.reset();
    return front;
  }
  std::uint64_t bytes() const { return bytes_.size(); }

 private:
  std::deque<std::byte> bytes_;            // of varints
  std::uint64_t pushed_ = 0, popped_ = 0;  // the last that was
  std::optional<std::uint64_t> front_;
};

// Whether the columns of each row of a matrix ascend. Where an index is not above the one before it, a row must begin.
// Whichever of the two components comes first is remembered: of the pointers those that differ from the one before, of the
// indices where they do not ascend.
class Rows {
 public:
  // Of so many rows; what is remembered takes `most_bytes` at most.
  Rows(std::uint64_t rows, std::uint64_t most_bytes) : rows_(rows), most_bytes_(most_bytes) {}

  // Whole elements of `width` bytes, in order.
  void AddIndices(std::span<const std::byte> bytes, std::size_t width) {
    for (std::size_t at = 0; at + width <= bytes.size() && !bad_ && !too_many(); at += width) {
      const std::uint64_t index = zt::internal::LoadLittle(bytes.data() + at, width);
      if (count_ > 0 && index <= last_) Descend();
      last_ = index;
      ++count_;
    }
  }
  void AddPointers(std::span<const std::byte> bytes, std::size_t width) {
    if (count_ == 0) pointers_first_ = true;
    for (std::size_t at = 0; at + width <= bytes.size() && !bad_ && !too_many(); at += width) {
      const std::uint64_t pointer = zt::internal::LoadLittle(bytes.data() + at, width);
      if (!pointers_first_) {
        Pass(pointer);
      } else if (pointers_.empty() || pointer != pointer_) {
        pointers_.Push(pointer);
        pointer_ = pointer;
      }
    }
  }
  // There was more to remember than is allowed. What follows is not looked at.
  bool too_many() const { return std::max(pointers_.bytes(), descents_.bytes()) > most_bytes_; }
  // Once all has passed: the number of the first index that is not above the one before it in its row.
  std::optional<std::uint64_t> bad() {
    if (bad_ || descents_.empty()) return bad_;
    return descents_.Front();
  }

 private:
  void Descend() {
    if (!pointers_first_) {
      descents_.Push(count_);
      // There are more than rows: two are in one.
      if (++descended_ > rows_) bad_ = count_;
      return;
    }
    while (!pointers_.empty() && pointers_.Front() < count_) pointers_.Pop();
    if (pointers_.empty() || pointers_.Front() != count_) bad_ = count_;
  }
  void Pass(std::uint64_t pointer) {
    if (descents_.empty() || pointer < descents_.Front()) return;
    if (pointer > descents_.Front()) {
      bad_ = descents_.Front();
    } else {
      descents_.Pop();
    }
  }

  std::uint64_t rows_, most_bytes_, count_ = 0, last_ = 0, pointer_ = 0, descended_ = 0;
  bool pointers_first_ = false;
  Waiting descents_, pointers_;  // one of them is empty
  std::optional<std::uint64_t> bad_;
};

// Whether the coordinates of a tensor's elements differ: those of all in dimension 0, then of all in 1, and so on. What is
// kept is the place of each element's cell in C order, eight bytes; or, of more elements than that allows, runs of equal
// places in all dimensions but the last. The latter tells of ascending cells alone, the usual order.
class Cells {
 public:
  enum class Answer { kDiffer, kSame, kUnknown };

  // `shape` has no product beyond 64 bits. What is kept takes `most_bytes` at most.
  Cells(std::span<const std::uint64_t> shape, std::uint64_t elements, std::uint64_t most_bytes)
      : shape_(shape.begin(), shape.end()), elements_(elements), most_bytes_(most_bytes) {
    keeps_all_ = elements <= most_bytes / sizeof(std::uint64_t);
    if (keeps_all_) cells_.reserve(elements);
  }

  // Whole elements of `width` bytes, in order.
  void Add(std::span<const std::byte> bytes, std::size_t width) {
    for (std::size_t at = 0; at + width <= bytes.size() && dimension_ < shape_.size() && !bad_;
         at += width) {
      const std::uint64_t index = zt::internal::LoadLittle(bytes.data() + at, width);
      if (keeps_all_) {
        if (dimension_ == 0) cells_.push_back(0);
        cells_[next_] = cells_[next_] * shape_[dimension_] + index;
      } else {
        Compare(Before() * shape_[dimension_] + index);
      }
      if (++next_ == elements_) EndDimension();
    }
  }
  // What is known already: kDiffer until something else is.
  Answer so_far() const { return bad_.value_or(Answer::kDiffer); }
  // Once all has passed.
  Answer Finish() {
    if (!keeps_all_) return so_far();
    if (!std::is_sorted(cells_.begin(), cells_.end())) std::sort(cells_.begin(), cells_.end());
    const bool same = std::adjacent_find(cells_.begin(), cells_.end()) != cells_.end();
    return same ? Answer::kSame : Answer::kDiffer;
  }

 private:
  // A place and how many elements have it.
  struct Runs {
    Waiting places, counts;
    std::uint64_t bytes() const { return places.bytes() + counts.bytes(); }
  };

  // Of the element that comes next: its place in the dimensions before this one.
  std::uint64_t Before() {
    if (dimension_ == 0) return 0;
    if (left_ == 0) {
      before_ = runs_.places.Pop();
      left_ = runs_.counts.Pop();
    }
    --left_;
    return before_;
  }
  void Compare(std::uint64_t place) {
    const bool first = next_ == 0, last_dimension = dimension_ + 1 == shape_.size();
    if (!first && place < place_) {
      bad_ = Answer::kUnknown;
    } else if (!first && place == place_) {
      ++run_;
      if (last_dimension) bad_ = Answer::kSame;
    } else {
      if (!first && !last_dimension) EndRun();
      place_ = place;
      run_ = 1;
    }
  }
  void EndRun() {
    made_.places.Push(place_);
    made_.counts.Push(run_);
    if (runs_.bytes() + made_.bytes() > most_bytes_) bad_ = Answer::kUnknown;
  }
  void EndDimension() {
    if (!keeps_all_) {
      EndRun();
      runs_ = std::exchange(made_, Runs());
    }
    next_ = 0;
    ++dimension_;
  }

  std::vector<std::uint64_t> shape_, cells_;
  std::uint64_t elements_, most_bytes_;
  bool keeps_all_ = false;
  std::size_t dimension_ = 0, next_ = 0;
  Runs runs_, made_;                     // of the dimensions before this one, and with it
  std::uint64_t before_ = 0, left_ = 0;  // of the run that was taken last
  std::uint64_t place_ = 0, run_ = 0;    // of the run that comes to be
  std::optional<Answer> bad_;
};

}  // namespace zt::writer::internal

#endif  // ZTSTREAM_WRITER_CELLS_H_
