// zt.cli — show: the values of a tensor, or of a slice of it; only what is printed is read.
module;

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :output;
import :numbers;
import :options;
import :rules;
import :shards;
import :signals;

namespace zt::cli::internal {
namespace {

constexpr std::uint64_t kGap = 4096;         // largest gap that is read along
constexpr std::uint64_t kAhead = 256 << 10;  // read-ahead for short rows
constexpr std::uint64_t kMost = 1 << 20;     // limit on numbers that are decoded at once

std::optional<std::uint32_t> Find(const TensorSource& source, std::string_view name) {
  const auto& objects = source.objects();
  const auto found = std::ranges::find_if(
      objects, [&](const Object& each) { return each.name == name && !IsFile(each); });
  if (found == objects.end()) return std::nullopt;
  return static_cast<std::uint32_t>(found - objects.begin());
}

// Of a tensor of which a part is shown, the most bytes of which the rest is read for its checksum.
constexpr std::uint64_t kMostToCheck = 1 << 20;

// The only tensor; null if there are several, or none.
const Object* OnlyOf(const TensorSource& source) {
  const auto is_tensor = [](const Object& each) { return !IsFile(each); };
  if (std::ranges::count_if(source.objects(), is_tensor) != 1) return nullptr;
  return &*std::ranges::find_if(source.objects(), is_tensor);
}

bool HasFile(const TensorSource& source, const std::string& path) {
  const std::string name = std::string(kFileNamePrefix) + path;
  return std::ranges::find(source.objects(), name, &Object::name) != source.objects().end();
}

// A .zt file as it is stored: no digest is computed on the way to a range. Shards are checked.
StatusOr<std::unique_ptr<TensorSource>> Open(const Args& args) {
  SourceOptions options = args.source_options();
  ZT_ASSIGN_OR_RETURN(options.as_stored, IsOneFile(args.file(), TheStore()));
  ZT_ASSIGN_OR_RETURN(auto source, OpenInputs({args.file()}, options));
  // One blob of several arrays (0.1.0), which is taken apart for a conversion.
  const auto is_mixed = [](const Object& each) {
    return each.format.starts_with("sparse") && each.components.size() == 1;
  };
  if (source->format() == "zt" && std::ranges::any_of(source->objects(), is_mixed)) {
    ZT_ASSIGN_OR_RETURN(source, OpenInputs({args.file()}, args.source_options()));
  }
  WarnAll(args, WordedWarnings(args, *source));
  return source;
}

// A component to print, or a slice of it.
struct Wanted {
  std::string name;  // of the tensor, or NAME/ROLE
  ComponentId id;
  std::string slice;
  std::string quantized = {};  // the scheme of the quantized tensor that it is part of
};

// The component for `name`, a tensor or TENSOR/ROLE; nullopt if there is no such tensor.
StatusOr<std::optional<Wanted>> FindComponent(const TensorSource& source, const std::string& name) {
  if (const auto found = Find(source, name)) {
    const Object& object = source.objects()[*found];
    if (object.components.size() == 1) return Wanted{name, {*found, 0}, ""};
    constexpr std::size_t kMostNamed = 20;
    std::vector<std::string> names;
    for (const Component& each : object.components) {
      if (names.size() == kMostNamed) break;
      names.push_back(Repeated(name) + "/" + Repeated(each.role));
    }
    if (const std::size_t more = object.components.size() - names.size(); more > 0)
      names.push_back("one of " + std::to_string(more) + " more");
    return Unsupported("it is " + object.format +
                       ", several arrays; name one: " + Joined(names, "or"));
  }
  const std::size_t slash = name.rfind('/');
  if (slash == name.npos) return std::nullopt;
  const auto found = Find(source, name.substr(0, slash));
  if (!found) return std::nullopt;
  const Object& object = source.objects()[*found];
  for (std::uint32_t c = 0; c < object.components.size(); ++c) {
    if (object.components[c].role == name.substr(slash + 1)) return Wanted{name, {*found, c}, ""};
  }
  return std::nullopt;
}

Status IsFileOfModel(const std::string& name) {
  return InvalidArgument(Quote(name) +
                         " is a file of the model; ztstream extract FILE NAME -o OUT writes it");
}

// NAME[SLICE] without [SLICE].
std::string WithoutSlice(const std::string& word) {
  if (!word.ends_with(']')) return word;
  int depth = 0;
  for (std::size_t at = word.size(); at-- > 0;) {
    depth += word[at] == ']' ? 1 : word[at] == '[' ? -1 : 0;
    if (depth == 0) return word.substr(0, at);
  }
  return word;
}

// A name may hold brackets itself: it is looked for whole first. A tensor precedes a file of the
// same name.
StatusOr<Wanted> Locate(const TensorSource& source, const std::string& word) {
  auto found = FindComponent(source, word);
  if (!found.ok()) return WithTensor(found.status(), word);
  if (*found) return **std::move(found);
  if (HasFile(source, word)) return IsFileOfModel(word);
  for (auto at = word.rfind('['); at != word.npos && at > 0; at = word.rfind('[', at - 1)) {
    const std::string name = word.substr(0, at);
    found = FindComponent(source, name);
    if (!found.ok()) return WithTensor(found.status(), name);
    if (!*found && HasFile(source, name)) return IsFileOfModel(name);
    if (!*found) continue;
    Wanted wanted = **std::move(found);
    wanted.slice = word.substr(at + 1);
    if (!wanted.slice.ends_with(']'))
      return WithTensor(
          InvalidArgument("the slice " + Quote(word.substr(at)) + " does not end with ']'"), name);
    wanted.slice.pop_back();
    return wanted;
  }
  const std::string name = WithoutSlice(word);
  return InvalidArgument("there is no tensor " + Quote(name) +
                         MeantOrListed(name, NamesOf(source)));
}

// NAME as it was given; if the input has only one tensor, that one, or a slice of it.
StatusOr<std::string> NameIn(const TensorSource& source, const Args& args) {
  const std::string word = args.names.empty() ? "" : args.names.front();
  const bool slice = word.starts_with('[') && !Locate(source, word).ok();
  if (!word.empty() && !slice) return word;
  if (!args.names.empty() && Find(source, word)) return word;
  if (const Object* const only = OnlyOf(source)) return only->name + word;
  return InvalidArgument(
      "NAME is missing, and there is not just one tensor; ztstream inspect lists them");
}

// The bytes of a component. Keeps the range that was read last, so that bytes close by are not read
// again.
class BufferedRange {
 public:
  using Read = std::function<Status(std::uint64_t, std::span<std::byte>)>;
  // `frame`: what is decoded as a whole, or 0.
  BufferedRange(Read read, std::uint64_t frame, std::uint64_t size)
      : read_(std::move(read)), frame_(frame), size_(size) {}

  // The bytes from `begin` to `end`; up to `ahead` may be read with them.
  StatusOr<std::span<const std::byte>> Get(std::uint64_t begin, std::uint64_t end,
                                           std::uint64_t ahead) {
    if (begin < begin_ || end > begin_ + bytes_.size()) {
      const std::uint64_t from = frame_ == 0 ? begin : begin / frame_ * frame_;
      std::uint64_t to = std::max(end, ahead);
      if (frame_ != 0) to = (end + frame_ - 1) / frame_ * frame_;
      bytes_.clear();
      bytes_.resize(std::min(to, size_) - from);
      ZT_RETURN_IF_ERROR(read_(from, bytes_));
      begin_ = from;
    }
    return std::span<const std::byte>(bytes_).subspan(begin - begin_, end - begin);
  }

 private:
  Read read_;
  std::uint64_t frame_, size_;
  std::uint64_t begin_ = 0;
  std::vector<std::byte> bytes_;
};

using Positions = std::vector<std::uint64_t>;  // ascending, of a dimension

// Reads numbers at positions of a component.
class Taker {
 public:
  Taker(const NumberForm& form, BufferedRange range)
      : form_(form),
        range_(std::move(range)),
        width_(form.decode != nullptr ? form.decode->output_unit() / form.unit_numbers
                                      : form.unit_bytes) {}

  // The numbers at every combination of positions, in C order.
  StatusOr<std::vector<std::byte>> Take(std::span<const Positions> positions) {
    out_.clear();
    for (const Positions& each : positions) {
      if (each.empty()) return out_;
    }
    std::uint64_t last = 0;
    for (std::size_t axis = 0; axis < positions.size(); ++axis)
      last = last * form_.shape[axis] + positions[axis].back();
    end_ = last / form_.unit_numbers * form_.unit_bytes + form_.unit_bytes;
    ZT_RETURN_IF_ERROR(Descend(positions, 0));
    return std::exchange(out_, {});
  }

 private:
  // `base` counts the numbers before the first with the positions taken so far.
  Status Descend(std::span<const Positions> positions, std::uint64_t base) {
    if (positions.empty()) return TakeRun(std::array<std::uint64_t, 1>{}, base);
    const std::uint64_t size = form_.shape[form_.shape.size() - positions.size()];
    if (positions.size() == 1) return TakeRow(positions[0], base * size);
    for (const std::uint64_t each : positions[0])
      ZT_RETURN_IF_ERROR(Descend(positions.subspan(1), base * size + each));
    return OkStatus();
  }

  // Positions that lie close to one another are read at once.
  Status TakeRow(const Positions& positions, std::uint64_t base) {
    const std::uint64_t gap = kGap / form_.unit_bytes * form_.unit_numbers + 1;
    for (std::size_t begin = 0, end; begin < positions.size(); begin = end) {
      for (end = begin + 1; end < positions.size(); ++end) {
        if (positions[end] - positions[end - 1] > gap) break;
      }
      ZT_RETURN_IF_ERROR(TakeRun(std::span(positions).subspan(begin, end - begin), base));
    }
    return OkStatus();
  }

  Status TakeRun(std::span<const std::uint64_t> run, std::uint64_t base) {
    const std::uint64_t first = (base + run.front()) / form_.unit_numbers;
    const std::uint64_t end = (base + run.back()) / form_.unit_numbers + 1;
    // Reads following short rows along, up to the last wanted.
    const std::uint64_t row = form_.shape.empty() ? 0 : form_.shape.back() / form_.unit_numbers;
    const std::uint64_t ahead =
        row * form_.unit_bytes > kGap ? 0 : std::min(first * form_.unit_bytes + kAhead, end_);
    ZT_ASSIGN_OR_RETURN(const auto units,
                        range_.Get(first * form_.unit_bytes, end * form_.unit_bytes, ahead));
    const std::vector<std::byte> numbers = form_.Decoded(units);
    for (const std::uint64_t each : run) {
      const auto at =
          static_cast<std::ptrdiff_t>((base + each - first * form_.unit_numbers) * width_);
      out_.insert(out_.end(), numbers.begin() + at,
                  numbers.begin() + at + static_cast<std::ptrdiff_t>(width_));
    }
    return OkStatus();
  }

  const NumberForm& form_;
  BufferedRange range_;
  std::size_t width_;  // bytes of a number
  std::uint64_t end_ = 0;
  std::vector<std::byte> out_;
};

std::uint64_t Product(std::span<const Axis> axes) {
  std::uint64_t count = 1;
  for (const Axis& axis : axes) count *= axis.count;
  return count;
}

bool IsPart(std::span<const Axis> axes, const Shape& shape) {
  return Product(axes) < ElementCount(shape).value_or(0);
}

// The positions of an axis, ascending; of one that is cut, those at its ends.
Positions PositionsOf(const Axis& axis, bool cut) {
  Positions positions;
  for (std::uint64_t i = 0; i < axis.count; ++i) {
    if (cut && i == kEdge) i = axis.count - kEdge;
    positions.push_back(axis.first + i * axis.step);
  }
  return positions;
}

// The numbers that axes take, all or those at the ends of long dimensions, as an array of the
// dimensions that stay.
StatusOr<ArrayValues> TakeArray(Taker& taker, const NumberForm& form, std::span<const Axis> axes,
                                bool edges) {
  ArrayValues values{.element = form.element};
  std::vector<Positions> positions;
  for (const Axis& axis : axes) {
    const bool cut = edges && axis.count > 2 * kEdge;
    positions.push_back(PositionsOf(axis, cut));
    if (!axis.kept) continue;
    values.shape.push_back(positions.back().size());
    values.reversed.push_back(axis.reversed);
    values.cut.push_back(cut);
  }
  ZT_ASSIGN_OR_RETURN(values.bytes, taker.Take(positions));
  return values;
}

// A part of one axis: `count` shown positions from shown position `at`.
Axis PartOf(Axis axis, std::uint64_t at, std::uint64_t count) {
  axis.first += (axis.reversed ? axis.count - at - count : at) * axis.step;
  axis.count = count;
  return axis;
}

// Prints nested lists as JSON, kMost numbers at a time. What is printed is complete but for the
// lists that are open.
class ListPrinter {
 public:
  ListPrinter(Taker& taker, const NumberForm& form) : taker_(taker), form_(form) {}

  // `before` comes first. Of the dimensions before `at` one position each is left.
  Status Print(std::vector<Axis> axes, std::size_t at = 0, std::string before = "") {
    if (Product(std::span(axes).subspan(at)) <= kMost) return PrintPart(axes, before, false);
    const Axis whole = axes[at];
    if (!whole.kept) return Print(axes, at + 1, before);
    const std::uint64_t rest = Product(std::span(axes).subspan(at + 1));
    const std::uint64_t step = std::max<std::uint64_t>(kMost / rest, 1);
    ZT_RETURN_IF_ERROR(internal::Print(before + "[", ++open_));
    for (std::uint64_t i = 0; i < whole.count; i += step) {
      const std::string comma = i > 0 ? "," : "";
      axes[at] = PartOf(whole, i, std::min(step, whole.count - i));
      if (rest <= kMost) {
        ZT_RETURN_IF_ERROR(PrintPart(axes, comma, true));
      } else {
        axes[at].kept = false;
        ZT_RETURN_IF_ERROR(Print(axes, at + 1, comma));
      }
    }
    return internal::Print("]", --open_);
  }

 private:
  Status PrintPart(std::span<const Axis> axes, const std::string& before, bool bare) {
    ZT_ASSIGN_OR_RETURN(const ArrayValues values, TakeArray(taker_, form_, axes, false));
    const std::string text = ArrayText(values, true);
    return internal::Print(before + (bare ? text.substr(1, text.size() - 2) : text), open_);
  }

  Taker& taker_;
  const NumberForm& form_;
  std::size_t open_ = 0;  // lists
};

// Checks that what was read is what the file holds; `part`: of which not all was read.
using Check = std::function<Status(bool part)>;

Status PrintText(Taker& taker, const NumberForm& form, std::span<const Axis> axes,
                 const Check& unchanged) {
  const bool edges = Product(axes) > kWholeArray;
  std::uint64_t shown = 1;
  for (const Axis& axis : axes) shown *= edges ? std::min(axis.count, 2 * kEdge) : axis.count;
  if (shown > kMost)
    return Unsupported(Grouped(shown) + " values would be printed; take a slice, or --json");
  ZT_ASSIGN_OR_RETURN(const ArrayValues values, TakeArray(taker, form, axes, edges));
  ZT_RETURN_IF_ERROR(unchanged(IsPart(axes, form.shape) || edges));
  return Print(ArrayText(values) + "\n");
}

Status PrintValues(const Args& args, const Wanted& wanted, const Object& object,
                   BufferedRange range, const Check& unchanged) {
  ZT_ASSIGN_OR_RETURN(const NumberForm form, FormOf(object, wanted.id.component));
  ZT_ASSIGN_OR_RETURN(const std::vector<Axis> axes, ParseSlice(wanted.slice, form.shape));
  Taker taker(form, std::move(range));
  if (!args.json) return PrintText(taker, form, axes, unchanged);
  std::vector<std::uint64_t> shape;
  for (const Axis& axis : axes) {
    if (axis.kept) shape.push_back(axis.count);
  }
  // Only the end tells whether all could be read.
  Json json = Envelope(args, true);
  json.erase("ok");
  json["file"] = args.file();
  json["name"] = wanted.name;
  json["dtype"] = form.stored;
  json["shape"] = shape;
  if (!wanted.quantized.empty()) json["scheme"] = wanted.quantized;
  std::string text = Dump(json);
  text.resize(text.rfind('}'));
  text += ",\"values\":";
  ZT_RETURN_IF_ERROR(ListPrinter(taker, form).Print(axes, 0, std::move(text)));
  ZT_RETURN_IF_ERROR(unchanged(IsPart(axes, form.shape)));
  return Print(",\"ok\":true}\n");
}

Status ShowIn(const Args& args, TensorSource& source, const Wanted& wanted) {
  const ComponentId id = wanted.id;
  Object object = source.objects()[id.object];
  ZT_RETURN_IF_ERROR(source.CheckReadable(id.object));
  // A second opening of the file, which notices changes from here on.
  const std::string& path = source.file(id);
  std::error_code error;
  const bool local = !IsUrl(path) && std::filesystem::is_regular_file(path, error);
  std::shared_ptr<ByteSource> file;
  if (local) {
    ZT_ASSIGN_OR_RETURN(file, TheStore().Open(path));
  }
  std::uint64_t& bytes = object.components[id.component].bytes;
  ZT_ASSIGN_OR_RETURN(bytes, source.Size(id));
  const auto read = [&](std::uint64_t offset, std::span<std::byte> out) {
    return source.Read(id, offset, out);
  };
  return PrintValues(
      args, wanted, object, BufferedRange(read, source.preferred_read(id), bytes), [&](bool part) {
        // What came through a pipe cannot have changed; its rest is not waited for.
        if (!source.seekable()) return OkStatus();
        // The end of a source reads what a checksum lacks, which may be gigabytes.
        if (part && bytes > kMostToCheck && (file != nullptr || IsUrl(path))) {
          // A URL's ranges are of one version.
          if (!args.quiet && (source.format() == "npz" || source.format() == "pytorch"))
            Warn(path + ": only a part was read, and the checksum was not compared");
          if (file != nullptr) ZT_RETURN_IF_ERROR(file->CheckUnchanged());
          return OkStatus();
        }
        const ComponentId read_ones[] = {id};
        return part ? source.CheckRead(read_ones) : source.Finish();
      });
}

Status Show(const Args& args) {
  const auto opened = Open(args);
  if (!opened.ok()) return WithFile(opened.status(), args.file());
  TensorSource& source = **opened;
  ZT_ASSIGN_OR_RETURN(const std::string name, WithFile(NameIn(source, args), args.file()));
  ZT_ASSIGN_OR_RETURN(Wanted wanted, WithFile(Locate(source, name), args.file()));
  ZT_ASSIGN_OR_RETURN(const auto quantized, QuantizedIn(args, source));
  for (const QuantizedTensor& each : quantized) {
    if (std::ranges::find(each.members, wanted.id.object) == each.members.end()) continue;
    wanted.quantized = each.scheme;
    if (!args.quiet && !args.json)
      Warn(TensorContext(wanted.name) + " is part of a quantized tensor, " + Quote(each.name) +
           " (" + each.scheme + "), and is shown as it is stored; convert --dequantize makes " +
           "numbers of it");
  }
  const Status status = ShowIn(args, source, wanted);
  if (status.ok()) Completed();
  const std::string& file = source.file(wanted.id);
  return WithFile(WithTensor(status, wanted.name), file.empty() ? args.file() : file);
}

}  // namespace

int RunShow(const Args& args) { return Done(args, Show(args)); }

}  // namespace zt::cli::internal
