// zt.cli:compare — matching by name, reading both sides in parallel, counting what differs.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :compare;
import :rules;
import :signals;
import zt.convert.files;

namespace zt::cli::internal {
namespace {

constexpr std::string_view kExecutable = "executable";    // of a file of the model
constexpr std::uint64_t kRange = std::uint64_t{2} << 20;  // of the longer side

// Two components whose values are compared.
struct Pair {
  ComponentId first, second;
  const Object* object = nullptr;  // of the first
  const Component* component = nullptr;
  ValueComparer comparer;
  // The difference that has been found already: of format or dtype.
  std::optional<std::size_t> found = std::nullopt;
  // An earlier pair with the same bytes on both sides: it is read for both.
  std::optional<std::size_t> same_as = std::nullopt;
  ValueCounts counts = {};  // gathered in order
};

// Memory that a part takes beside its bytes, roughly: many small components must not fill it.
constexpr std::uint64_t kRangeWeight = 512;

// The place of an element, or its number if the shape does not count elements.
Shape PlaceOf(std::uint64_t element, const Shape& shape, std::uint64_t elements) {
  if (ElementCount(shape) != elements) return {element};
  Shape place(shape.size(), std::uint64_t{0});
  for (std::size_t i = shape.size(); i-- > 0; element /= shape[i]) place[i] = element % shape[i];
  return place;
}

// Formats of one component whose elements stand for one number each, in C order.
bool IsDenseOrBlocks(const Object& object) {
  return object.components.size() == 1 &&
         (object.format == "dense" || FindGgmlBlockOfFormat(object.format) != nullptr);
}

// A range of a pair, of both sides.
struct ComparedRange {
  std::uint32_t pair = 0;
  std::uint64_t at = 0;  // in elements
  ComponentRange first, second;
  ValueCounts counts = {};
};

using Batch = BatchOf<ComparedRange>;

class Comparer {
 public:
  Comparer(TensorSource& first, TensorSource& second, const CompareOptions& options)
      : first_(first),
        second_(second),
        options_(options),
        pool_(MemoryFor(options.memory_bytes, options.threads) / 2) {}

  StatusOr<Comparison> Run() {
    if (!first_.seekable() && !second_.seekable()) {
      return Unsupported("two pipes cannot be compared; name a file for one of them");
    }
    CompareFileAttributes();
    ZT_RETURN_IF_ERROR(Match());
    if (!second_.seekable()) {
      std::sort(pairs_.begin(), pairs_.end(), [](const Pair& a, const Pair& b) {
        return std::pair(a.second.object, a.second.component) <
               std::pair(b.second.object, b.second.component);
      });
    }
    FindSame();
    ZT_RETURN_IF_ERROR(CompareValues());
    ZT_RETURN_IF_ERROR(first_.Finish());  // it names the file
    ZT_RETURN_IF_ERROR(second_.Finish());
    Report();
    return std::move(result_);
  }

 private:
  const std::string& NameOf(std::uint32_t first) const {
    return options_.names.empty() ? first_.objects()[first].name : options_.names[first];
  }

  bool Compared(const Object& object, std::string_view name) const {
    return IsFile(object) || options_.selector == nullptr || options_.selector->Selects(name);
  }

  Status Match() {
    const auto& theirs = second_.objects();
    const NameIndex by_name = ByName(theirs);
    std::vector<bool> taken(theirs.size(), false);
    for (std::uint32_t i = 0; i < first_.objects().size(); ++i) {
      const std::string& name = NameOf(i);
      const auto found = by_name.find(name);
      if (!Compared(first_.objects()[i], name)) {
        if (found != by_name.end()) taken[found->second] = true;  // the same name: not asked again
        continue;
      }
      if (found == by_name.end()) {
        found_.push_back({i, {.kind = DifferenceKind::kOnlyFirst, .tensor = name}});
        result_.only_first.Add(IsFile(first_.objects()[i]));
        continue;
      }
      taken[found->second] = true;
      result_.both.Add(IsFile(first_.objects()[i]));
      // An object that is listed but cannot be read has no bytes to compare.
      ZT_RETURN_IF_ERROR(AtTensor(first_, {i, 0}, first_.CheckReadable(i)));
      ZT_RETURN_IF_ERROR(
          AtTensor(second_, {found->second, 0}, second_.CheckReadable(found->second)));
      MatchObjects(i, found->second);
    }
    for (std::uint32_t i = 0; i < theirs.size(); ++i) {
      if (taken[i] || !Compared(theirs[i], theirs[i].name)) continue;
      found_.push_back({kLast, {.kind = DifferenceKind::kOnlySecond, .tensor = theirs[i].name}});
      NameFile(theirs[i], found_.back().difference);
      result_.only_second.Add(IsFile(theirs[i]));
    }
    return OkStatus();
  }

  // Adds a difference of the first input's object i. Its tensor has the second's name.
  void Add(std::uint32_t i, Difference difference) { found_.push_back({i, std::move(difference)}); }

  // A file of the model is known by its path, not by the name of its object.
  static void NameFile(const Object& object, Difference& difference) {
    difference.file = IsFile(object);
    if (difference.file) difference.tensor = Repeated(FileEntryOf(object, 0).path);
  }

  void MatchObjects(std::uint32_t i, std::uint32_t j) {
    const Object& a = first_.objects()[i];
    const Object& b = second_.objects()[j];
    const auto add = [&](DifferenceKind kind, std::string first, std::string second) {
      Add(i,
          {.kind = kind, .tensor = b.name, .first = std::move(first), .second = std::move(second)});
    };
    const bool files = IsFile(a) && IsFile(b);  // dense or not
    if (a.format != b.format && !files) {
      add(DifferenceKind::kFormat, a.format, b.format);
      if (IsDenseOrBlocks(a) && IsDenseOrBlocks(b) && a.shape == b.shape)
        AddPair(i, j, 0, 0, found_.size() - 1);
      return;
    }
    const bool like = a.shape == b.shape && ShapeOf(a) == ShapeOf(b);
    if (ShapeOf(a) != ShapeOf(b)) {
      add(DifferenceKind::kShape, ToString(ShapeOf(a)), ToString(ShapeOf(b)));
    } else if (!like) {
      add(DifferenceKind::kShape, ToString(a.shape), ToString(b.shape));
    }
    // Values are compared whatever the attributes are.
    if (options_.attributes != AttributeChoice::kNone)
      MatchAttributes(DifferenceKind::kAttribute, i, b.name, AttributesOf(a), AttributesOf(b),
                      files && TellsExecutable(first_, i) && TellsExecutable(second_, j));
    std::unordered_map<std::string_view, std::uint32_t, zt::internal::NameHash> roles;
    for (std::uint32_t c = 0; c < b.components.size(); ++c) roles.emplace(b.components[c].role, c);
    for (const Component& component : a.components) {
      if (roles.contains(component.role) && a.components.size() == b.components.size()) continue;
      return add(DifferenceKind::kComponents, Roles(a), Roles(b));
    }
    if (MatchComponents(i, j, roles) && like) {
      for (const auto& [c, d, found] : matched_) AddPair(i, j, c, d, found);
    }
  }

  // Compares types and sizes of components, and adds the components to matched_. False if sizes
  // differ.
  bool MatchComponents(
      std::uint32_t i, std::uint32_t j,
      const std::unordered_map<std::string_view, std::uint32_t, zt::internal::NameHash>& roles) {
    const Object& a = first_.objects()[i];
    const Object& b = second_.objects()[j];
    matched_.clear();
    bool sizes = true;
    for (std::uint32_t c = 0; c < a.components.size(); ++c) {
      const Component& mine = a.components[c];
      const std::uint32_t d = roles.at(mine.role);
      const Component& other = b.components[d];
      Difference difference = {.tensor = Repeated(b.name), .component = std::string(mine.role)};
      if (!(mine.element == other.element)) {
        difference.kind = DifferenceKind::kDType;
        difference.first = Name(mine.element);
        difference.second = Name(other.element);
      } else if (mine.bytes != other.bytes && a.shape == b.shape) {
        difference.kind = DifferenceKind::kComponents;
        difference.first = std::to_string(mine.bytes) + " bytes";
        difference.second = std::to_string(other.bytes) + " bytes";
        sizes = false;
      }
      const bool differs = difference.kind != DifferenceKind::kValues;
      if (differs) Add(i, std::move(difference));
      matched_.push_back({c, d, differs ? std::optional(found_.size() - 1) : std::nullopt});
    }
    return sizes;
  }

  // Adds a pair of components to compare, if their values are comparable. `found` is the index of
  // the difference that is already known.
  void AddPair(std::uint32_t i, std::uint32_t j, std::uint32_t c, std::uint32_t d,
               std::optional<std::size_t> found) {
    const Object& a = first_.objects()[i];
    const Object& b = second_.objects()[j];
    auto comparer = ValueComparer::Make(a, a.components[c], b, b.components[d], options_.tolerance);
    if (!comparer) return;
    result_.bytes += a.components[c].bytes;
    pairs_.push_back({{i, c}, {j, d}, &a, &a.components[c], *std::move(comparer), found});
  }

  // Servers do not know which files of a folder are executable.
  static bool TellsExecutable(const TensorSource& source, std::uint32_t file) {
    return source.format() == "zt" || !IsUrl(source.file({file, 0}));
  }

  using Attributes = std::map<std::string_view, const Value*>;
  static Attributes ByKey(const Value::Map& map) {
    Attributes attributes;
    for (const auto& [key, value] : map) attributes.emplace(key, &value);
    return attributes;
  }

  // The attributes to compare: without those that only say how a file is declared.
  static Attributes AttributesOf(const Object& object) {
    Attributes attributes = ByKey(object.attributes);
    if (!IsFile(object)) return attributes;
    attributes.erase(kDenseFileAttribute);
    if (!FileEntryOf(object, 0).executable) attributes.erase(kExecutable);  // false is the default
    return attributes;
  }

  void CompareFileAttributes() {
    if (options_.attributes < AttributeChoice::kConverted) return;
    Attributes sides[] = {ByKey(first_.attributes()), ByKey(second_.attributes())};
    if (options_.attributes == AttributeChoice::kConverted) {
      for (auto& side : sides) side.erase(kFolderAttribute);
    }
    for (const auto& [key, value] : sides[0]) result_.attributes += sides[1].contains(key) ? 1 : 0;
    MatchAttributes(DifferenceKind::kFileAttribute, kFileItself, "", sides[0], sides[1]);
  }

  // Compares the CBOR encodings: the order of keys does not count, and NaN equals NaN. Skips a
  // logical_shape that is a shape: it has been compared as one. `executable`: a file of the model,
  // and both sides tell whether it is.
  void MatchAttributes(DifferenceKind kind, std::uint64_t i, const std::string& tensor,
                       const Attributes& a, const Attributes& b, bool executable = false) {
    std::map<std::string_view, std::pair<const Value*, const Value*>> keys;
    for (const auto& [key, value] : a) keys[key].first = value;
    for (const auto& [key, value] : b) keys[key].second = value;
    // Formats other than zTensor have no attributes of a tensor, or those of their own alone, and
    // only folders have kFolderAttribute. Files of the model are the same in any.
    const bool both = first_.format() == "zt" && second_.format() == "zt";
    const auto bytes = [](const Value* value) {
      return value == nullptr ? std::vector<std::byte>()
                              : EncodeCbor(*value).value_or(std::vector<std::byte>());
    };
    for (const auto& [key, values] : keys) {
      const auto [first, second] = values;
      if (kind == DifferenceKind::kAttribute && key == kLogicalShape &&
          (first == nullptr || ToShape(*first)) && (second == nullptr || ToShape(*second))) {
        continue;
      }
      const bool own = kind == DifferenceKind::kAttribute || key == kFolderAttribute;
      const bool alone = first == nullptr || second == nullptr;
      if (alone && own && !both && !(executable && key == kExecutable)) continue;
      if (bytes(first) == bytes(second)) continue;
      found_.push_back({i,
                        {.kind = kind,
                         .tensor = Repeated(tensor),
                         .attribute = std::string(key),
                         .first = first == nullptr ? "" : ValueText(*first),
                         .second = second == nullptr ? "" : ValueText(*second)}});
    }
  }

  // Of pairs of the same content one is read, the others get its result.
  void FindSame() {
    std::map<std::pair<Content, Content>, std::size_t> known;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      Pair& pair = pairs_[i];
      const auto first = ContentOf(first_, pair.first), second = ContentOf(second_, pair.second);
      if (first && second) {
        const auto [where, added] = known.emplace(std::pair(*first, *second), i);
        if (!added) pair.same_as = where->second;
      }
      if (!pair.same_as) total_ += pair.component->bytes;
    }
  }

  static Shape ShapeOf(const Object& object) {
    return LogicalShape(object.attributes).value_or(object.shape);
  }

  // The roles of an object that lacks one of the other's.
  static std::string Roles(const Object& object) {
    NameList names;
    for (const Component& component : object.components) names.Add(component.role);
    return names.ToString();
  }

  Status CompareValues();
  Status ReadPair(RangePipeline<Batch>& pipeline, std::uint32_t index) const;

  void ReportValues(const Pair& pair) {
    const ValueCounts& counts = (pair.same_as ? pairs_[*pair.same_as] : pair).counts;
    const std::string& name = second_.objects()[pair.second.object].name;
    const auto widen = [&](Comparison::Error& error, const std::optional<double>& value) {
      if (value && (!error.value || *value > *error.value)) error = {value, name};
    };
    if (!IsFile(*pair.object)) {
      widen(result_.largest, counts.largest);
      widen(result_.relative, counts.relative);
    }
    if (counts.differing == 0) {
      if (pair.found) found_[*pair.found].difference.equal_values = true;
      return;
    }
    const std::uint64_t elements = pair.comparer.elements();
    const Shape shape = IsDenseOrBlocks(*pair.object) ? pair.object->shape : Shape{elements};
    Add(pair.first.object, {.kind = DifferenceKind::kValues,
                            .tensor = Repeated(name),
                            .component = std::string(pair.component->role),
                            .elements = elements,
                            .at = PlaceOf(*counts.first, shape, elements),
                            .counts = counts});
  }

  void Report() {
    for (const Pair& each : pairs_) ReportValues(each);
    std::ranges::stable_sort(found_, {}, &Found::object);
    std::uint64_t last = kLast;
    for (Found& found : found_) {
      if (found.object < kFileItself) {
        const Object& object = first_.objects()[found.object];
        NameFile(object, found.difference);
        if (found.object != last && found.difference.kind != DifferenceKind::kOnlyFirst)
          result_.differing.Add(IsFile(object));
      }
      last = found.object;
      result_.differences.push_back(std::move(found.difference));
    }
  }

  // Sort keys after all objects of the first input: attributes of the file, then tensors that only
  // the second has.
  static constexpr std::uint64_t kLast = ~std::uint64_t{0}, kFileItself = kLast - 1;
  struct Found {
    std::uint64_t object;  // sort key: the object's index in the first input
    Difference difference;
  };
  // Two components to compare, and the difference already found between them.
  struct Matched {
    std::uint32_t first, second;
    std::optional<std::size_t> found;
  };

  TensorSource& first_;
  TensorSource& second_;
  const CompareOptions& options_;
  BufferPool pool_;
  std::vector<Pair> pairs_;
  std::vector<Matched> matched_;
  std::vector<Found> found_;
  std::uint64_t total_ = 0;
  Comparison result_;
};

Status Comparer::CompareValues() {
  RangeOptions options = {.threads = options_.threads,
                          .memory_bytes = options_.memory_bytes,
                          .cancelled = options_.cancelled};
  if (options_.progress) {
    options.progress = [this](std::uint64_t done) { options_.progress(done, total_); };
  }
  const auto read = [this](Batch& batch) {
    std::vector<ComponentRange*> ranges;
    for (ComparedRange& range : batch.ranges) ranges.push_back(&range.first);
    for (ComparedRange& range : batch.ranges) ranges.push_back(&range.second);
    return ReadComponents(ranges, pool_, batch.input);
  };
  const auto compare = [this](Batch& batch) {
    for (ComparedRange& range : batch.ranges) {
      range.counts =
          pairs_[range.pair].comparer.Compare(range.at, range.first.bytes, range.second.bytes);
    }
    return OkStatus();
  };
  const auto add = [this](const Batch& batch) {
    for (const ComparedRange& range : batch.ranges) pairs_[range.pair].counts.Add(range.counts);
    return OkStatus();
  };
  RangePipeline<Batch> pipeline({{StageOrder::kIfOrdered, read},
                                 {StageOrder::kParallel, compare},
                                 {StageOrder::kInOrder, add}},
                                options);
  Status added;
  for (std::uint32_t i = 0; i < pairs_.size() && added.ok(); ++i) added = ReadPair(pipeline, i);
  return pipeline.Drain(added);
}

Status Comparer::ReadPair(RangePipeline<Batch>& pipeline, std::uint32_t index) const {
  const Pair& pair = pairs_[index];
  if (pair.same_as) return OkStatus();
  const ValueComparer& comparer = pair.comparer;
  const bool ordered = first_.sequential(pair.first) || second_.sequential(pair.second);
  // Whole frames of a compressed side, if they hold whole elements.
  const std::uint64_t frame = std::max(comparer.ElementsIn(0, first_.preferred_read(pair.first)),
                                       comparer.ElementsIn(1, second_.preferred_read(pair.second)));
  std::uint64_t range = std::min(comparer.ElementsIn(0, kRange), comparer.ElementsIn(1, kRange)) /
                        ValueComparer::kElements * ValueComparer::kElements;
  if (frame != 0 && frame % ValueComparer::kElements == 0)
    range = std::max<std::uint64_t>(range / frame, 1) * frame;
  for (std::uint64_t at = 0; at < comparer.elements();) {
    const std::uint64_t count = std::min(range, comparer.elements() - at);
    const auto side = [&](int which, TensorSource& source, ComponentId id) -> ComponentRange {
      return {.source = &source,
              .id = id,
              .offset = comparer.BytesOf(which, at),
              .count = comparer.BytesOf(which, count)};
    };
    ComparedRange compared = {.pair = index,
                              .at = at,
                              .first = side(0, first_, pair.first),
                              .second = side(1, second_, pair.second)};
    const std::uint64_t bytes = compared.first.count, other = compared.second.count;
    ZT_RETURN_IF_ERROR(
        pipeline.Add(std::move(compared),
                     {.bytes = bytes, .weight = bytes + other + kRangeWeight, .ordered = ordered}));
    at += count;
  }
  return OkStatus();
}

}  // namespace

StatusOr<Comparison> Compare(TensorSource& first, TensorSource& second,
                             const CompareOptions& options) {
  return Comparer(first, second, options).Run();
}

StatusOr<Comparison> CompareSources(TensorSource& first, TensorSource& second, const Common& common,
                                    std::string_view verb, CompareOptions options) {
  WarnAll(common, WordedWarnings(common, first));
  WarnAll(common, WordedWarnings(common, second));
  ProgressBar bar(common, verb);
  options.threads = common.threads;
  options.memory_bytes = common.memory;
  options.cancelled = &Interrupted();
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    bar.Update(done, total, 0, 0);
  };
  const std::size_t told[] = {first.warnings().size(), second.warnings().size()};
  auto compared = Compare(first, second, options);
  if (compared.ok()) {
    WarnAll(common, WordedWarnings(common, first, told[0]));
    WarnAll(common, WordedWarnings(common, second, told[1]));
  }
  return compared;
}

}  // namespace zt::cli::internal
