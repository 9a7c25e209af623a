// Where blobs begin, and how components are cut into chunks: numbers alone.
#ifndef ZTSTREAM_WRITER_PLACEMENT_H_
#define ZTSTREAM_WRITER_PLACEMENT_H_

#include <algorithm>
#include <cstdint>
#include <optional>

namespace zt::writer::internal {

// Lays blobs one after the other. The cutter asks one to foresee where chunks will lie, the place stage asks one to
// decide it: the rule is the same.
class Placer {
 public:
  Placer(std::uint64_t end, std::uint64_t alignment) : end_(end), alignment_(alignment) {}

  struct Gap {
    std::uint64_t begin = 0;    // of the blob
    std::uint64_t padding = 0;  // bytes before it
  };
  // Begins the next blob.
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
  std::uint64_t input_offset = 0;  // of the range of the source's component
  std::uint64_t input_bytes = 0;   // of that range
  std::uint64_t offset = 0;        // of what it becomes
  std::uint64_t bytes = 0;         // of what it becomes
  bool first = false, last = false;
};

// What the cutter has to know of a component.
struct CutRule {
  bool raw = false;                    // it is certain to be stored as it is
  std::optional<std::uint64_t> bytes;  // of the component as it will be stored, if known
  std::uint64_t content = 0;   // bytes of a chunk: whole elements, and units of the transform
  bool whole = false;          // every chunk is to begin at a multiple of `content`
  std::uint64_t in_unit = 1;   // so many bytes of the source ...
  std::uint64_t out_unit = 1;  // ... become so many
};

// The chunks of a component of known size, one after the other; there is at least one.
class Cuts {
 public:
  Cuts(const CutRule& rule, std::uint64_t first_content, std::uint64_t input_bytes)
      : rule_(rule), step_(first_content / rule.out_unit * rule.in_unit), total_(input_bytes) {}
  bool done() const { return begun_ && at_ == total_; }
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

// Cuts components in the order of the output. As long as all of them are raw and of known size it foresees where they
// will lie, and makes the first chunk so short that the others begin at multiples of their size in the output: a file
// system handles such writes in whole pages (measured on ext4: 8 % less time).
class Cutter {
 public:
  explicit Cutter(const Placer& placer) : ahead_(placer) {}

  Cuts Begin(const CutRule& rule, std::uint64_t input_bytes) {
    return {rule, FirstContent(rule), input_bytes};
  }
  // Something comes next whose size is not known.
  void Forget() { ahead_.reset(); }

 private:
  std::uint64_t FirstContent(const CutRule& rule) {
    if (!ahead_ || !rule.raw || !rule.bytes) {
      Forget();
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
