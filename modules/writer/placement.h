// Computes where blobs begin and how components are cut into chunks. Pure arithmetic.
#ifndef ZTSTREAM_WRITER_PLACEMENT_H_
#define ZTSTREAM_WRITER_PLACEMENT_H_

#include <algorithm>
#include <cstdint>
#include <optional>

namespace zt::writer::internal {

// Places blobs one after the other. The cutter has one to predict where chunks will lie, the place
// stage has one to decide it; both follow the same rule.
class Placer {
 public:
  Placer(std::uint64_t end, std::uint64_t alignment) : end_(end), alignment_(alignment) {}

  struct Gap {
    std::uint64_t begin = 0;    // offset of the blob after the gap
    std::uint64_t padding = 0;  // size of the gap
  };
  // Begins the next blob, at an aligned offset.
  Gap Open() {
    const std::uint64_t begin = (end_ + alignment_ - 1) / alignment_ * alignment_;
    const Gap gap = {begin, begin - end_};
    end_ = begin;
    return gap;
  }
  // Adds bytes to the blob.
  void Add(std::uint64_t bytes) { end_ += bytes; }
  // The end of what has been placed.
  std::uint64_t end() const { return end_; }
  std::uint64_t alignment() const { return alignment_; }

 private:
  std::uint64_t end_;
  std::uint64_t alignment_;
};

// One chunk of a component.
struct Cut {
  std::uint64_t input_offset = 0;  // of the range to read, in the source's component
  std::uint64_t input_bytes = 0;   // of that range
  std::uint64_t offset = 0;        // after the transform
  std::uint64_t bytes = 0;         // after the transform
  bool first = false, last = false;
};

// The properties of a component that determine its cuts.
struct CutRule {
  bool raw = false;                    // certain to be stored raw
  std::optional<std::uint64_t> bytes;  // stored size before compression, if known
  std::uint64_t content = 0;   // bytes of a chunk: whole elements, whole units of the transform
  bool whole = false;          // every chunk must begin at a multiple of `content`
  std::uint64_t in_unit = 1;   // this many bytes of the source ...
  std::uint64_t out_unit = 1;  // ... become this many
};

// The chunks of a component of known size, in order; at least one.
class Cuts {
 public:
  Cuts(const CutRule& rule, std::uint64_t first_content, std::uint64_t input_bytes)
      : rule_(rule), step_(first_content / rule.out_unit * rule.in_unit), total_(input_bytes) {}
  bool done() const { return begun_ && at_ == total_; }
  // The offset in the input at which the next chunk begins.
  std::uint64_t at() const { return at_; }
  // The next chunk has this many bytes of the input, if there are so many.
  void Take(std::uint64_t bytes) { step_ = bytes; }
  Cut Next() {
    Cut cut;
    cut.input_offset = at_;
    cut.input_bytes = std::min(step_, total_ - at_);
    cut.offset = at_ / rule_.in_unit * rule_.out_unit;
    cut.bytes = cut.input_bytes / rule_.in_unit * rule_.out_unit;
    cut.first = !begun_;
    begun_ = true;
    at_ += cut.input_bytes;
    step_ = rule_.content / rule_.out_unit * rule_.in_unit;
    cut.last = at_ == total_;
    return cut;
  }

 private:
  CutRule rule_;
  std::uint64_t step_;
  std::uint64_t total_;
  std::uint64_t at_ = 0;
  bool begun_ = false;
};

// Cuts components in the order of the output. While all of them are raw and of known size, it
// predicts where they will lie, and shortens the first chunk so that the others begin at multiples
// of their size in the output: a file system then writes whole pages (measured on ext4: 8 % less
// time).
class Cutter {
 public:
  explicit Cutter(const Placer& placer) : ahead_(placer) {}

  Cuts Begin(const CutRule& rule, std::uint64_t input_bytes) {
    return {rule, FirstContent(rule), input_bytes};
  }
  // Stops predicting: the size of the next component is unknown.
  void StopPredicting() { ahead_.reset(); }

 private:
  std::uint64_t FirstContent(const CutRule& rule) {
    if (!ahead_ || !rule.raw || !rule.bytes) {
      StopPredicting();
      return rule.content;
    }
    const std::uint64_t begin = ahead_->Open().begin;
    ahead_->Add(*rule.bytes);
    if (rule.whole) return rule.content;
    const std::uint64_t first =
        (rule.content - begin % rule.content) / rule.out_unit * rule.out_unit;
    return first == 0 ? rule.content : first;
  }

  std::optional<Placer> ahead_;
};

}  // namespace zt::writer::internal

#endif  // ZTSTREAM_WRITER_PLACEMENT_H_
