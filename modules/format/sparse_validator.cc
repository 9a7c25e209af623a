// zt.format:data — validates the indices of a sparse object together, as their bytes pass.
module;

#include "core/little_endian.h"
#include "core/status_macros.h"
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

}  // namespace

// What the rule of rows asks of one component: that columns ascend in each row means that a row
// begins wherever an index is not above the previous one. So the positions of such indices are
// kept, and of the row pointers those that differ from the previous one. Of as many positions as
// there are row pointers, one is no beginning of a row: more are not kept.
struct SparseValidator::Part {
  Part(bool are_pointers, std::uint64_t most) : pointers(are_pointers), most_bytes(most) {}

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

  const bool pointers;
  const std::uint64_t most_bytes;
  bool complete = true;  // false: nothing is kept, it would take more than `most_bytes`
  Queue kept = {};
  std::uint64_t count = 0, last = 0;
  // For all objects that share the part: the largest number of row pointers.
  std::uint64_t most_descents = 0, descents = 0;
};

namespace {

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

}  // namespace

struct SparseValidator::State {
  std::uint64_t most_bytes = 0;
  bool unique = false;  // the version requires it
  bool csr = false;
  // Each component's width and kind. Components that are not indices have width 0.
  struct Index {
    std::size_t width = 0;
    Numbers numbers = {};
    std::shared_ptr<Part> part = {};  // of sparse_csr, until the check
    bool shared = false;              // another validator fills the part
  };
  std::vector<Index> indices;
  std::optional<UniqueCells> cells;  // of sparse_coo, once the number of elements is known
  std::vector<std::byte> held;       // coordinates, until the number of elements is known
  bool too_many = false, done = false;
  std::uint64_t unknown = 0;  // the number of elements that could not be compared
  // Position of an index that is not above the previous one in its row.
  std::optional<std::uint64_t> bad;
  // A cell that two elements name.
  std::optional<Shape> twice;

  Status TooMuch(const std::string& what) const {
    return Unsupported(what + " takes more than " + std::to_string(most_bytes) +
                       " bytes of memory; allow more");
  }

  void CheckRows() {
    too_many = too_many || std::ranges::any_of(indices, [](const Index& each) {
                 return each.part != nullptr && !each.part->complete;
               });
    const Queue none;
    const Queue *descents = &none, *pointers = &none;
    for (const Index& each : indices) {
      if (each.part != nullptr) (each.part->pointers ? pointers : descents) = &each.part->kept;
    }
    if (!too_many) bad = FindBad(*descents, *pointers);
    for (Index& each : indices) each.part.reset();
  }

  // Validates and feeds the held coordinates, now that their size is known.
  Status Release(const Object& object, std::size_t component) {
    const std::vector<std::byte> bytes = std::exchange(held, {});
    const auto rule = RuleOf(object, component, bytes.size());
    if (!rule) return OkStatus();
    DataValidator validator(*rule);
    validator.Add(bytes);
    ZT_RETURN_IF_ERROR(validator.Check(object, std::nullopt));
    if (!unique) return OkStatus();
    cells.emplace(object.shape, rule->each, most_bytes);
    indices[component].numbers.Add(bytes, indices[component].width,
                                   [this](std::uint64_t index) { cells->Add(index); });
    return OkStatus();
  }
};

std::shared_ptr<SparseValidator> SparseValidator::Make(const Object& object, SpecVersion version,
                                                       std::uint64_t memory_bytes) {
  const bool unique = Traits(version).unique_indices;
  auto state = std::make_unique<State>();
  state->most_bytes = memory_bytes;
  state->unique = unique;
  state->csr = object.format == "sparse_csr";
  state->indices.resize(object.components.size());
  bool open = false, any = false;
  std::uint64_t pointers = kUnknownSize;  // their number, where it is declared
  for (std::size_t c = 0; c < object.components.size(); ++c) {
    const Component& component = object.components[c];
    if (!IsIndexRole(object.format, component.role)) continue;
    if (object.shape.empty()) return nullptr;
    const DType dtype = component.element.dtype;
    if (!IsSignedInt(dtype) && !IsUnsignedInt(dtype)) return nullptr;
    state->indices[c].width = ByteWidth(dtype);
    if (state->csr) {
      state->indices[c].part = std::make_shared<Part>(component.role == "indptr", memory_bytes);
      if (component.role == "indptr" && component.bytes != kUnknownSize)
        pointers = component.bytes / ByteWidth(dtype);
    }
    any = true;
    if (component.role != "coords") continue;
    open = component.bytes == kUnknownSize;
    if (!open) {
      state->cells.emplace(object.shape, component.bytes / ByteWidth(dtype) / object.shape.size(),
                           memory_bytes);
    }
  }
  if (!any || (!unique && !open)) return nullptr;
  for (State::Index& each : state->indices) {
    if (each.part != nullptr) each.part->most_descents = pointers;
  }
  return std::shared_ptr<SparseValidator>(new SparseValidator(std::move(state)));
}

SparseValidator::SparseValidator(std::unique_ptr<State> state) : state_(std::move(state)) {}
SparseValidator::~SparseValidator() = default;

void SparseValidator::Add(std::size_t component, std::span<const std::byte> bytes) {
  State& s = *state_;
  State::Index& index = s.indices[component];
  if (index.width == 0 || index.shared || s.too_many) return;
  if (s.cells) {
    index.numbers.Add(bytes, index.width, [&s](std::uint64_t value) { s.cells->Add(value); });
  } else if (s.csr) {
    index.numbers.Add(bytes, index.width, [&](std::uint64_t value) { index.part->Add(value); });
  } else if (bytes.size() > s.most_bytes - s.held.size()) {
    s.too_many = true;
  } else {
    s.held.insert(s.held.end(), bytes.begin(), bytes.end());
  }
}

std::shared_ptr<SparseValidator::Part> SparseValidator::part(std::size_t component) const {
  return state_->indices[component].part;
}

bool SparseValidator::SetPart(std::size_t component, const std::shared_ptr<Part>& part) {
  State::Index& index = state_->indices[component];
  if (part == nullptr || index.part == nullptr || part->pointers != index.part->pointers)
    return false;
  part->most_descents = std::max(part->most_descents, index.part->most_descents);
  index.part = part;
  index.shared = true;
  return true;
}

std::uint64_t SparseValidator::kept_bytes(std::size_t component) const {
  const std::shared_ptr<Part>& part = state_->indices[component].part;
  return part == nullptr ? 0 : part->kept.bytes();
}

void SparseValidator::AllowRows(std::size_t component, std::uint64_t pointers) {
  const std::shared_ptr<Part>& part = state_->indices[component].part;
  if (part != nullptr) part->most_descents = std::max(part->most_descents, pointers);
}

Status SparseValidator::Check(const Object& object) {
  State& s = *state_;
  if (!s.done && s.csr) s.CheckRows();
  if (s.too_many) {
    s.done = true;
    s.held = {};
    return s.TooMuch(s.csr ? "finding whether the indices of each row ascend"
                           : "checking coordinates whose number is not declared");
  }
  if (!s.done) {
    s.done = true;
    for (std::size_t c = 0; c < s.indices.size() && !s.held.empty(); ++c) {
      if (s.indices[c].width == 0) continue;
      ZT_RETURN_IF_ERROR(WithComponent(s.Release(object, c), object.components[c].role));
    }
    if (s.cells) s.twice = s.cells->FindTwice();
    if (s.cells && s.cells->unknown()) s.unknown = s.cells->elements();
    s.cells.reset();
  }
  if (s.bad) {
    return format::internal::BrokenV2(
        "5.2, zt.sparse_csr/1",
        "index " + std::to_string(*s.bad) + " is not more than the one before in its row");
  }
  if (s.unknown > 0) {
    return s.TooMuch("its " + std::to_string(s.unknown) +
                     " elements are not in C order: finding whether two name the same cell");
  }
  if (!s.twice) return OkStatus();
  std::uint64_t place = 0;
  for (std::size_t d = 0; d < object.shape.size(); ++d) {
    place = place * object.shape[d] + (*s.twice)[d];
  }
  return format::internal::BrokenV2(
      "5.2, zt.sparse_coo/1", "two elements name cell " + std::to_string(place) + " in C order");
}

}  // namespace zt
