// zt.format:data — judges the bytes of components, and the indices of a sparse object together.
module;

#include <assert.h>

#include "core/little_endian.h"
#include "core/varint.h"

module zt.format;

import zt.std;
import :data;
import :model;
import :v2;
import zt.core;

namespace zt {
namespace {

using internal::LoadLittle;

// Reads the numbers of one component from ranges that may end inside an element.
class Numbers {
 public:
  template <class Each>
  void Add(std::span<const std::byte> bytes, std::size_t width, Each each) {
    if (held_ > 0) {
      const std::size_t rest = std::min(width - held_, bytes.size());
      std::copy_n(bytes.begin(), rest, &part_[held_]);
      bytes = bytes.subspan(rest);
      held_ += rest;
      if (held_ < width) return;
      each(LoadLittle(part_.data(), width));
    }
    std::size_t at = 0;
    for (; at + width <= bytes.size(); at += width) each(LoadLittle(&bytes[at], width));
    held_ = bytes.size() - at;
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), held_, part_.begin());
  }

 private:
  std::array<std::byte, 8> part_{};  // the first bytes of an incomplete element
  std::size_t held_ = 0;
};

// A queue of numbers. Stores each as its difference to the previous one: a byte or two if they
// ascend by small steps.
class Queue {
 public:
  void Push(std::uint64_t number) {
    internal::PutVarint(bytes_, number - std::exchange(pushed_, number));
  }
  bool empty() const { return bytes_.empty(); }
  std::uint64_t Pop() {
    popped_ += internal::TakeVarint([this] {
      const std::byte first = bytes_.front();
      bytes_.pop_front();
      return first;
    });
    return popped_;
  }
  std::uint64_t bytes() const { return bytes_.size(); }

  // Goes over the numbers without taking them.
  class Walk {
   public:
    explicit Walk(const Queue& queue) : bytes_(queue.bytes_) {}
    bool ended() const { return at_ == bytes_.size(); }
    std::uint64_t Next() {
      number_ += internal::TakeVarint([this] { return bytes_[at_++]; });
      return number_;
    }

   private:
    const std::deque<std::byte>& bytes_;
    std::size_t at_ = 0;
    std::uint64_t number_ = 0;
  };

 private:
  std::deque<std::byte> bytes_;
  std::uint64_t pushed_ = 0, popped_ = 0;  // the last number
};

// Finds a cell that two elements name. Coordinates come one dimension after the other: dimension 0
// of all elements, then dimension 1. Keeps each element's position in C order, eight bytes. If that
// exceeds the memory limit, keeps runs of elements with equal positions in all dimensions but the
// last, which suffices while positions ascend, the usual order.
class UniqueCells {
 public:
  // The product of `shape` must fit 64 bits.
  UniqueCells(const Shape& shape, std::uint64_t elements, std::uint64_t most_bytes)
      : shape_(shape), elements_(elements), most_bytes_(most_bytes) {
    keeps_all_ = elements <= most_bytes / sizeof(std::uint64_t);
  }

  void Add(std::uint64_t index) {
    if (dimension_ == shape_.size() || elements_ == 0 || twice_ || unknown_) return;
    if (!keeps_all_) {
      Compare(Before() * shape_[dimension_] + index);
    } else if (dimension_ == 0) {
      if (next_ == 0) places_.reserve(elements_);
      places_.push_back(index);
    } else {
      places_[next_] = places_[next_] * shape_[dimension_] + index;
    }
    if (++next_ == elements_) EndDimension();
  }
  std::uint64_t elements() const { return elements_; }
  // True if there are more elements than fit the memory limit, and they are not in C order.
  bool unknown() const { return unknown_; }
  // The coordinates of a cell that two elements name.
  std::optional<Shape> FindTwice() {
    if (!std::is_sorted(places_.begin(), places_.end())) std::sort(places_.begin(), places_.end());
    const auto same = std::adjacent_find(places_.begin(), places_.end());
    if (same != places_.end()) twice_ = *same;
    if (!twice_) return std::nullopt;
    Shape coordinates = shape_;
    for (std::size_t d = shape_.size(); d-- > 0;) {
      // A dimension may be 0 here: coordinates are compared with the shape later.
      const std::uint64_t size = std::max<std::uint64_t>(shape_[d], 1);
      coordinates[d] = *twice_ % size;
      *twice_ /= size;
    }
    return coordinates;
  }

 private:
  // Positions, and the number of consecutive elements at each.
  struct Runs {
    Queue places, counts;
    std::uint64_t bytes() const { return places.bytes() + counts.bytes(); }
  };

  // The next element's position in the dimensions before this one.
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
    const bool last_dimension = dimension_ + 1 == shape_.size();
    if (run_ > 0 && place < place_) {
      unknown_ = true;
    } else if (run_ > 0 && place == place_) {
      ++run_;
      if (last_dimension) twice_ = place;
    } else {
      if (run_ > 0 && !last_dimension) EndRun();
      place_ = place;
      run_ = 1;
    }
  }
  void EndRun() {
    made_.places.Push(place_);
    made_.counts.Push(run_);
    if (runs_.bytes() + made_.bytes() > most_bytes_) unknown_ = true;
  }
  void EndDimension() {
    if (!keeps_all_) {
      EndRun();
      runs_ = std::exchange(made_, Runs());
      run_ = 0;
    }
    next_ = 0;
    ++dimension_;
  }

  const Shape shape_;
  const std::uint64_t elements_, most_bytes_;
  bool keeps_all_ = false, unknown_ = false;
  std::size_t dimension_ = 0, next_ = 0;
  std::vector<std::uint64_t> places_;
  Runs runs_, made_;                     // of the previous dimensions; with this one
  std::uint64_t before_ = 0, left_ = 0;  // of the run last taken
  std::uint64_t place_ = 0, run_ = 0;    // of the current run
  std::optional<std::uint64_t> twice_;
};

// What the rule of rows asks of one component: that columns ascend in each row means that a row
// begins wherever an index is not above the previous one. So the positions of such indices are
// kept, and of the row pointers those that differ from the previous one. Of as many positions as
// there are row pointers, one is no beginning of a row: more are not kept.
struct Rows {
  void Add(std::uint64_t number) {
    if (pointers) {
      if (count == 0 || number != last) Keep(number);
    } else if (count > 0 && number <= last && descents < most_descents) {
      ++descents;
      Keep(count);
    }
    last = number;
    ++count;
  }
  void Keep(std::uint64_t number) {
    if (!complete) return;
    kept.Push(number);
    complete = kept.bytes() <= most_bytes;
    if (!complete) kept = {};
  }

  bool pointers = false;
  std::uint64_t most_bytes = 0;
  bool complete = true;  // false: nothing is kept, it would take more than `most_bytes`
  Queue kept = {};
  std::uint64_t count = 0, last = 0;
  // For all objects that have the indices: the largest number of row pointers.
  std::uint64_t most_descents = 0, descents = 0;
};

// The position of the first index that is not above the previous one in its row.
std::optional<std::uint64_t> FindBad(const Queue& descents, const Queue& pointers) {
  std::uint64_t begin = 0;  // of a row
  Queue::Walk rows(pointers);
  for (Queue::Walk walk(descents); !walk.ended();) {
    const std::uint64_t descent = walk.Next();
    while (begin < descent && !rows.ended()) begin = rows.Next();
    if (begin != descent) return descent;
  }
  return std::nullopt;
}

bool IsOpen(const DataRule& rule) {
  return rule.kind == DataRule::Kind::kIndices && !rule.csr && rule.each == kUnknownSize;
}

// The number of row pointers, where their size is declared.
std::uint64_t CountPointers(const Object& object) {
  for (const Component& each : object.components) {
    if (each.role == "indptr" && each.bytes != kUnknownSize)
      return each.bytes / ByteWidth(each.element.dtype);
  }
  return kUnknownSize;
}

}  // namespace

struct ContentCheck::Slot {
  explicit Slot(const DataRule& of) : rule(of), all(of) {}

  void AddNumbers(std::span<const std::byte> bytes) {
    const std::size_t width = ByteWidth(rule.dtype);
    if (cells) numbers.Add(bytes, width, [this](std::uint64_t each) { cells->Add(each); });
    if (rows) numbers.Add(bytes, width, [this](std::uint64_t each) { rows->Add(each); });
  }

  // Coordinates whose number is known now.
  DataRule Closed() const {
    DataRule closed = rule;
    closed.each = held.size() / ByteWidth(rule.dtype) / rule.dimensions;
    return closed;
  }

  const DataRule rule;
  DataValidator all;  // of the bytes so far
  Numbers numbers;
  std::optional<UniqueCells> cells;  // of coordinates, until they are judged
  std::shared_ptr<Rows> rows;        // of a sparse_csr object
  // Coordinates whose number is not declared, until it is known.
  std::vector<std::byte> held;
  bool too_many = false;  // to be held
  // What judging the coordinates said: a cell that two elements name, or the number of elements
  // that could not be compared.
  std::optional<Shape> twice;
  std::uint64_t unknown = 0;
  // By row pointers: the position of an index that is not above the previous one in its row.
  std::map<std::weak_ptr<Rows>, std::optional<std::uint64_t>, std::owner_less<>> bad;
};

namespace {

Status TooMuch(const std::string& what, std::uint64_t most_bytes) {
  return Unsupported(what + " takes more than " + std::to_string(most_bytes) +
                     " bytes of memory; allow more");
}

}  // namespace

ContentCheck::ContentCheck() : unique_(false), memory_bytes_(0) {}
ContentCheck::ContentCheck(SpecVersion version, std::uint64_t memory_bytes)
    : unique_(Traits(version).unique_indices), memory_bytes_(memory_bytes) {}
ContentCheck::~ContentCheck() = default;

void ContentCheck::Expect(const DataRule& rule, const Object& object) {
  auto found = std::ranges::find(slots_, rule, [](const auto& slot) { return slot->rule; });
  if (found == slots_.end()) {
    slots_.push_back(std::make_unique<Slot>(rule));
    found = slots_.end() - 1;
    Slot& slot = **found;
    const bool pointers = rule.kind == DataRule::Kind::kPointers;
    if (unique_ && (pointers || rule.csr)) {
      slot.rows = std::make_shared<Rows>(Rows{.pointers = pointers, .most_bytes = memory_bytes_});
    } else if (unique_ && rule.kind == DataRule::Kind::kIndices && !IsOpen(rule)) {
      slot.cells.emplace(object.shape, rule.each, memory_bytes_);
    }
  }
  if (rule.csr) AllowRows(CountPointers(object));
}

void ContentCheck::AllowRows(std::uint64_t pointers) {
  for (const auto& slot : slots_) {
    if (slot->rows != nullptr)
      slot->rows->most_descents = std::max(slot->rows->most_descents, pointers);
  }
}

ContentCheck::Found ContentCheck::Look(std::uint64_t offset,
                                       std::span<const std::byte> bytes) const {
  Found found;
  for (const auto& slot : slots_) {
    found.emplace_back(slot->rule, offset);
    if (!IsOpen(slot->rule)) found.back().Add(bytes);
  }
  return found;
}

void ContentCheck::Add(Found found, std::span<const std::byte> bytes) {
  for (std::size_t i = 0; i < slots_.size() && i < found.size(); ++i) {
    Slot& slot = *slots_[i];
    if (!IsOpen(slot.rule)) {
      if (slot.all.end() == 0) {
        slot.all = std::move(found[i]);
      } else {
        slot.all.Merge(found[i]);
      }
      slot.AddNumbers(bytes);
    } else if (bytes.size() > memory_bytes_ - slot.held.size()) {
      slot.too_many = true;
    } else if (!slot.too_many) {
      slot.held.insert(slot.held.end(), bytes.begin(), bytes.end());
    }
  }
}

ContentCheck::Slot& ContentCheck::SlotOf(const DataRule& rule) const {
  const auto found = std::ranges::find(slots_, rule, [](const auto& slot) { return slot->rule; });
  assert(found != slots_.end());
  return **found;
}

Status ContentCheck::Check(const DataRule& rule, const Object& object,
                           std::optional<std::uint64_t> indices) const {
  const Slot& slot = SlotOf(rule);
  if (!IsOpen(rule)) return slot.all.Check(object, indices);
  if (slot.too_many)
    return TooMuch("checking coordinates whose number is not declared", memory_bytes_);
  DataValidator validator(slot.Closed());
  validator.Add(slot.held);
  return validator.Check(object, indices);
}

Status ContentCheck::CheckTogether(const Object& object, std::span<const Part> parts) {
  const ContentCheck* indices = nullptr;
  Slot *columns = nullptr, *pointers = nullptr;
  for (const auto& [check, rule] : parts) {
    if (!check->unique_ || !IsSparse(object.format)) continue;
    if (rule.kind == DataRule::Kind::kPointers) pointers = &check->SlotOf(rule);
    if (rule.kind != DataRule::Kind::kIndices) continue;
    indices = check.get();
    columns = &check->SlotOf(rule);
  }
  if (columns == nullptr) return OkStatus();
  Slot& slot = *columns;
  if (slot.rule.csr) {
    if (pointers == nullptr) return OkStatus();
    if (!slot.rows->complete || !pointers->rows->complete) {
      return TooMuch("finding whether the indices of each row ascend", indices->memory_bytes_);
    }
    const auto [bad, fresh] = slot.bad.try_emplace(pointers->rows);
    if (fresh) bad->second = FindBad(slot.rows->kept, pointers->rows->kept);
    if (!bad->second) return OkStatus();
    return format::internal::BrokenV2(
        "5.2, zt.sparse_csr/1",
        "index " + std::to_string(*bad->second) + " is not more than the one before in its row");
  }
  if (!slot.held.empty()) {
    slot.cells.emplace(object.shape, slot.Closed().each, indices->memory_bytes_);
    slot.AddNumbers(std::exchange(slot.held, {}));
  }
  if (slot.cells) {
    slot.twice = slot.cells->FindTwice();
    if (slot.cells->unknown()) slot.unknown = slot.cells->elements();
    slot.cells.reset();
  }
  if (slot.unknown > 0) {
    return TooMuch("its " + std::to_string(slot.unknown) +
                       " elements are not in C order: finding whether two name the same cell",
                   indices->memory_bytes_);
  }
  if (!slot.twice) return OkStatus();
  std::uint64_t place = 0;
  for (std::size_t d = 0; d < object.shape.size(); ++d) {
    place = place * object.shape[d] + (*slot.twice)[d];
  }
  return format::internal::BrokenV2(
      "5.2, zt.sparse_coo/1", "two elements name cell " + std::to_string(place) + " in C order");
}

std::uint64_t ContentCheck::kept_bytes() const {
  std::uint64_t bytes = sizeof(ContentCheck);
  for (const auto& slot : slots_) {
    bytes += sizeof(Slot) + (slot->rows == nullptr ? 0 : slot->rows->kept.bytes());
  }
  return bytes;
}

}  // namespace zt
