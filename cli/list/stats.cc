// zt.cli:numbers — measuring: every tensor's numbers in one pass, by ranges, in parallel; figures as
// text and as JSON.
module;

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :output;
import :numbers;
import :signals;

namespace zt::cli::internal {
namespace {

// Stored bytes of a range, unless a frame is larger. A range that the file stores unchanged is
// longer, as it is read in pieces that stay in cache until they are scanned.
constexpr std::uint64_t kRange = 2 << 20, kLongRange = 4 << 20, kPiece = 256 << 10;
// Memory that a range takes beside its bytes, roughly: its figures, its table of counts.
constexpr std::uint64_t kRangeWeight = 4 << 10, kLongWeight = kPiece + (256 << 10);

// A component that is read.
struct Tensor {
  ComponentId id;
  NumberForm form;
  std::uint64_t bytes = 0;  // stored
  std::shared_ptr<const NumberScan> scan;
  bool decoded = false;  // what is scanned are decoded numbers, else stored elements
  std::shared_ptr<TensorStats> stats;
};

struct Range {
  std::uint32_t tensor = 0;
  ComponentRange from;
  bool in_pieces = false;  // read by the scan stage
  NumberStats stats = {};
};
using Batch = BatchOf<Range>;

// True for a format of one array of numbers.
bool IsArray(const Object& object) {
  return object.format == "dense" || IsSparse(object.format) || object.format.starts_with("gguf.");
}

class Measurer {
 public:
  Measurer(TensorSource& source, const Common& common)
      : source_(source), common_(common), pool_(MemoryFor(common.memory, common.threads) / 2) {}

  StatusOr<std::vector<std::shared_ptr<const TensorStats>>> Run(
      std::span<const std::uint32_t> objects) {
    std::vector<std::shared_ptr<const TensorStats>> all;
    for (const std::uint32_t object : objects) {
      auto stats = Take(object);
      if (!stats.ok()) return AtTensor(source_, {object, 0}, stats.status());
      all.push_back(*std::move(stats));
    }
    ZT_RETURN_IF_ERROR(ReadAll());
    ZT_RETURN_IF_ERROR(source_.Finish());  // it names the file
    return all;
  }

 private:
  StatusOr<std::shared_ptr<const TensorStats>> Take(std::uint32_t index);
  Status ReadAll();
  Status Read(Batch& batch);
  Status Scan(Range& range);
  Status ReadPieces(const Tensor& tensor, Range& range);
  static void Decode(const Tensor& tensor, Range& range);
  Status AddRanges(RangePipeline<Batch>& pipeline, std::uint32_t index) const;

  // The scan of a type; null if it has none.
  std::shared_ptr<const NumberScan> ScanOf(const ElementType& element) {
    const auto [found, added] = scans_.try_emplace(std::string(Name(element)));
    if (added) found->second = MakeNumberScan(element).value_or(nullptr);
    return found->second;
  }

  TensorSource& source_;
  const Common& common_;
  BufferPool pool_;
  std::map<std::string, std::shared_ptr<const NumberScan>> scans_;  // by type
  std::vector<Tensor> tensors_;
  std::map<Content, std::shared_ptr<const TensorStats>> known_;
  std::uint64_t total_ = 0;
};

// The figures of an object, to be filled; those of an earlier object if its bytes are the same.
StatusOr<std::shared_ptr<const TensorStats>> Measurer::Take(std::uint32_t index) {
  const Object& object = source_.objects()[index];
  const auto skip = [](std::string why) {
    return std::make_shared<const TensorStats>(TensorStats{.skipped = std::move(why)});
  };
  const Component* const elements = IsArray(object) ? ElementsOf(object) : nullptr;
  if (elements == nullptr) return skip(object.format + " is not one array of numbers");
  const Status readable = source_.CheckReadable(index);
  if (readable.code() == StatusCode::kUnimplemented) return skip(Fact(readable));
  ZT_RETURN_IF_ERROR(readable);
  const auto component = static_cast<std::uint32_t>(elements - object.components.data());
  auto form = FormOf(object, component);
  if (!form.ok()) return skip(Fact(form.status()));
  if (form->element.type.starts_with("complex")) return skip("complex numbers have no order");
  const Component& stored = *elements;
  const ComponentId id{index, component};
  auto stats = std::make_shared<TensorStats>(TensorStats{.stored = IsSparse(object.format)});
  if (const auto content = ContentOf(source_, id)) {
    const auto [found, added] = known_.emplace(*content, stats);
    if (!added) return found->second;
  }
  auto scan = form->unit_numbers == 1 ? ScanOf(stored.element) : nullptr;
  const bool decoded = scan == nullptr;
  if (decoded) scan = ScanOf(form->element);
  total_ += stored.bytes;
  tensors_.push_back({id, *std::move(form), stored.bytes, std::move(scan), decoded, stats});
  return stats;
}

Status Measurer::Read(Batch& batch) {
  if (batch.ranges.front().in_pieces) return OkStatus();
  std::vector<ComponentRange*> ranges;
  for (Range& range : batch.ranges) ranges.push_back(&range.from);
  return ReadComponents(ranges, pool_, batch.input);
}

Status Measurer::Scan(Range& range) {
  const Tensor& tensor = tensors_[range.tensor];
  if (range.in_pieces) return ReadPieces(tensor, range);
  if (tensor.decoded) {
    Decode(tensor, range);
  } else {
    tensor.scan->Add(range.from.bytes, range.stats);
  }
  return OkStatus();
}

Status Measurer::ReadPieces(const Tensor& tensor, Range& range) {
  const auto run = tensor.scan->Begin(range.from.count);
  ComponentRange piece = range.from;
  ComponentRange* const only[] = {&piece};
  Buffer buffer;
  for (std::uint64_t at = 0; at < range.from.count; at += kPiece) {
    piece.offset = range.from.offset + at;
    piece.count = std::min(kPiece, range.from.count - at);
    ZT_RETURN_IF_ERROR(ReadComponents(only, pool_, buffer));
    run->Add(piece.bytes);
  }
  run->End(range.stats);
  return OkStatus();
}

// Decodes in pieces that stay in cache. If the last unit has more numbers than the tensor, the rest
// is padding.
void Measurer::Decode(const Tensor& tensor, Range& range) {
  constexpr std::size_t kNumbers = 64 << 10;  // bytes of numbers
  const NumberForm& form = tensor.form;
  const std::size_t width = ByteWidth(form.element.dtype);
  const std::size_t units = std::max<std::size_t>(kNumbers / (form.unit_numbers * width), 1);
  const std::span<const std::byte> bytes = range.from.bytes;
  std::uint64_t left = form.numbers - range.from.offset / form.unit_bytes * form.unit_numbers;
  for (std::size_t at = 0; at < bytes.size(); at += units * form.unit_bytes) {
    const auto piece = bytes.subspan(at, std::min(units * form.unit_bytes, bytes.size() - at));
    const std::vector<std::byte> numbers = form.Decoded(piece);
    const std::uint64_t count = std::min<std::uint64_t>(numbers.size() / width, left);
    tensor.scan->Add(std::span(numbers).first(count * width), range.stats);
    left -= count;
  }
}

// Ranges are cut by the source alone, so that figures are the same for any number of threads: whole
// frames of what is compressed, if they hold whole units.
Status Measurer::AddRanges(RangePipeline<Batch>& pipeline, std::uint32_t index) const {
  const Tensor& tensor = tensors_[index];
  const std::uint64_t unit = tensor.form.unit_bytes, frame = source_.preferred_read(tensor.id);
  const std::uint64_t step = frame == 0 || frame % unit != 0 ? unit : frame;
  const bool ordered = source_.sequential(tensor.id);
  const bool in_place = !ordered && !tensor.decoded && source_.extent(tensor.id).has_value();
  const std::uint64_t most = in_place ? kLongRange : kRange;
  const std::uint64_t range = std::max<std::uint64_t>(most / step, 1) * step;
  for (std::uint64_t at = 0; at < tensor.bytes;) {
    const std::uint64_t count = std::min(range, tensor.bytes - at);
    const bool in_pieces = in_place && count > kPiece;  // more than a batch: it is alone in its own
    const std::uint64_t weight = (in_pieces ? kLongWeight : count) + kRangeWeight;
    ZT_RETURN_IF_ERROR(
        pipeline.Add({.tensor = index,
                      .from = {.source = &source_, .id = tensor.id, .offset = at, .count = count},
                      .in_pieces = in_pieces},
                     {.bytes = count, .weight = weight, .ordered = ordered}));
    at += count;
  }
  return OkStatus();
}

Status Measurer::ReadAll() {
  ProgressBar bar(common_, "stats");
  RangeOptions options = {.threads = common_.threads,
                          .memory_bytes = common_.memory,
                          .cancelled = &Interrupted(),
                          .progress = [&](std::uint64_t done) { bar.Update(done, total_, 0, 0); }};
  std::vector<ComponentId> ids;
  for (const Tensor& tensor : tensors_) ids.push_back(tensor.id);
  source_.WillRead(ids);
  const auto scan = [this](Batch& batch) {
    for (Range& range : batch.ranges) ZT_RETURN_IF_ERROR(Scan(range));
    return OkStatus();
  };
  const auto merge = [this](const Batch& batch) {
    for (const Range& range : batch.ranges)
      tensors_[range.tensor].stats->numbers.Merge(range.stats);
    return OkStatus();
  };
  RangePipeline<Batch> pipeline(
      {{StageOrder::kIfOrdered, [this](Batch& batch) { return Read(batch); }},
       {StageOrder::kParallel, scan},
       {StageOrder::kInOrder, merge}},
      options);
  Status added;
  for (std::uint32_t i = 0; i < tensors_.size() && added.ok(); ++i) added = AddRanges(pipeline, i);
  return pipeline.Drain(added);
}

}  // namespace

StatusOr<std::vector<std::shared_ptr<const TensorStats>>> Measure(
    TensorSource& source, std::span<const std::uint32_t> objects, const Common& common) {
  return Measurer(source, common).Run(objects);
}

namespace {

Json ToJson(const std::optional<Number>& number) {
  if (!number) return nullptr;
  return std::visit([](const auto& each) { return Json(each); }, *number);
}

}  // namespace

Json ToJson(const TensorStats& stats) {
  if (!stats.skipped.empty()) return {{"skipped", stats.skipped}};
  const NumberStats& numbers = stats.numbers;
  const bool any = numbers.finite > 0;
  return {{"count", numbers.finite + numbers.nan + numbers.inf},
          {"min", ToJson(numbers.min)},
          {"max", ToJson(numbers.max)},
          {"mean", any ? NumberJson(numbers.mean()) : Json()},
          {"std", any ? NumberJson(numbers.deviation()) : Json()},
          {"zeros", numbers.zeros},
          {"nan", numbers.nan},
          {"inf", numbers.inf}};
}

std::string NumberText(const Number& number, int digits) {
  if (const double* const real = std::get_if<double>(&number)) {
    char text[32];
    std::snprintf(text, sizeof text, "%.*g", digits, *real);
    return text;
  }
  return std::visit([](const auto& each) { return std::to_string(each); }, number);
}

std::string ExponentsText(const NumberStats& stats) {
  constexpr std::array<std::string_view, 9> kBlocks = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::size_t kMostColumns = 48;
  const auto& counts = stats.exponents;
  const auto is_there = [](std::uint64_t count) { return count > 0; };
  const auto first = std::ranges::find_if(counts, is_there);
  if (first == counts.end()) return "";
  auto last = counts.end();
  while (!is_there(*--last)) continue;
  const auto begin = static_cast<std::size_t>(first - counts.begin());
  const auto end = static_cast<std::size_t>(last - counts.begin()) + 1;
  const std::size_t each = (end - begin + kMostColumns - 1) / kMostColumns;  // exponents a column
  std::vector<std::uint64_t> columns;
  for (std::size_t at = begin; at < end; ++at) {
    if ((at - begin) % each == 0) columns.push_back(0);
    columns.back() += counts[at];
  }
  const std::uint64_t most = std::ranges::max(columns);
  const auto power = [&](std::size_t place) {  // what lies beyond is counted at the ends
    return std::string(place == 0                   ? "≤"
                       : place + 1 == counts.size() ? "≥"
                                                    : "") +
           "2^" + std::to_string(NumberStats::kLeastExponent + static_cast<int>(place));
  };
  std::string bars;
  for (const std::uint64_t count : columns) {
    const double share = static_cast<double>(count) / static_cast<double>(most);
    bars += kBlocks[count == 0 ? 0 : 1 + static_cast<std::size_t>(share * 7)];
  }
  return power(begin) + " " + bars + " " + power(end - 1);
}

}  // namespace zt::cli::internal
