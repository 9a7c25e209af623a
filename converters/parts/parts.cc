// zt.convert.parts — finds the parts of each tensor in the files of several ranks.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.parts;

import zt.std;
import zt.core;
import zt.source;

namespace zt {
namespace {

// Copies of a tensor that no file calls copies are compared up to this size.
constexpr std::uint64_t kMostCompared = std::uint64_t{1} << 20;
// Of copies that ranks have of a part the first bytes are compared, of so many for each file: this
// finds files of other steps or models, and takes few reads of what may be far away.
constexpr std::uint64_t kSampledBytes = 4096;
constexpr std::uint64_t kMostSampled = 64;

constexpr const char* kOffsets = "offsets";
constexpr const char* kShape = "shape";
constexpr const char* kCopies = "copies";
constexpr const char* kNameAll = "name the files of all ranks, or their folder";

std::string NameOf(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

Value::Array ToArray(const Shape& shape) { return {shape.begin(), shape.end()}; }

bool IsPart(const Object& object) { return FindMember(object.attributes, kPart) != nullptr; }

void Unmark(Object& object) {
  std::erase_if(object.attributes, [](const Value::Member& each) { return each.first == kPart; });
}

// Puts the files of one checkpoint together.
class Assembly {
 public:
  Assembly(std::vector<std::unique_ptr<TensorSource>> sources, std::vector<std::string> names)
      : sources_(std::move(sources)), names_(std::move(names)) {}

  StatusOr<std::unique_ptr<TensorSource>> Run() {
    FindNames();
    auto whole = std::make_unique<BoxSource>(std::string(sources_.front()->format()));
    std::vector<std::vector<std::uint32_t>> kept(sources_.size());
    for (const Entry& entry : entries_) {
      if (!entry.part && entry.places.size() == 1) {
        kept[entry.places[0].source].push_back(entry.places[0].object);
      } else if (entry.part) {
        Assemble(entry, *whole);
      } else if (const Status same = Compare(entry); same.ok()) {
        kept[entry.places[0].source].push_back(entry.places[0].object);
      } else {
        whole->AddUnreadable(ObjectAt(entry.places[0]), same, PathOf(entry.places[0]));
      }
    }
    if (unstated_ > 0) {
      whole->AddWarning("no file says the shapes of " + std::to_string(unstated_) +
                        (unstated_ == 1 ? " tensor, " : " tensors, ") + Quote(first_unstated_) +
                        (unstated_ == 1 ? "" : " the first") +
                        ": they reach as far as the parts in " + std::to_string(sources_.size()) +
                        (sources_.size() == 1 ? " file" : " files") +
                        ", and end too early if the file of a last rank is missing");
    }
    for (const std::string& file : files_) whole->AddPartFile(file);
    std::vector<Value::Map> attributes = FirstAttributes(*whole);
    std::vector<std::unique_ptr<TensorSource>> all;
    for (std::size_t s = 0; s < sources_.size(); ++s) {
      std::ranges::sort(kept[s]);
      auto some = std::make_unique<RegroupedSource>(std::move(sources_[s]));
      for (const std::uint32_t index : kept[s]) some->Keep(index);
      some->root() = std::move(attributes[s]);
      all.push_back(std::move(some));
    }
    if (whole->objects().empty()) return MergeSources(std::move(all), std::move(names_));
    whole->SetFile(names_.front());
    all.push_back(std::move(whole));
    names_.push_back(names_.front());
    return MergeSources(std::move(all), std::move(names_));
  }

 private:
  struct Place {
    std::uint32_t source, object;
  };
  // The objects of one name.
  struct Entry {
    bool part = false;  // one of them is a part
    InlinedVector<Place, 1> places;
  };

  const Object& ObjectAt(const Place& place) const {
    return sources_[place.source]->objects()[place.object];
  }
  const std::string& PathOf(const Place& place) const {
    return sources_[place.source]->file({place.object, 0});
  }
  std::string FileOf(const Place& place) const { return NameOf(PathOf(place)); }

  void FindNames() {
    std::unordered_map<std::string_view, std::size_t, zt::internal::NameHash> by_name;
    std::string last;
    for (std::uint32_t s = 0; s < sources_.size(); ++s) {
      for (std::uint32_t i = 0; i < sources_[s]->objects().size(); ++i) {
        const Object& object = sources_[s]->objects()[i];
        const auto [known, fresh] = by_name.emplace(object.name, entries_.size());
        if (fresh) entries_.emplace_back();
        Entry& entry = entries_[known->second];
        entry.places.push_back({s, i});
        if (!IsPart(object)) continue;
        entry.part = true;
        const std::string& file = sources_[s]->file({i, 0});
        if (file != last) files_.insert(file);
        last = file;
      }
    }
  }

  // The attributes of each source that no source before has. One warning lists those that differ:
  // each rank may have its own.
  std::vector<Value::Map> FirstAttributes(TensorSource& whole) const {
    std::vector<Value::Map> all(sources_.size());
    std::unordered_map<std::string_view, const Value*, zt::internal::NameHash> known;
    std::set<std::string_view> differing;
    for (std::size_t s = 0; s < sources_.size(); ++s) {
      for (const Value::Member& each : sources_[s]->attributes()) {
        const auto [first, fresh] = known.emplace(each.first, &each.second);
        if (fresh) all[s].push_back(each);
        if (!fresh && *first->second != each.second) differing.insert(each.first);
      }
    }
    NameList names;
    for (const std::string_view name : differing) names.Add(Quote(name));
    if (!names.empty()) {
      whole.AddWarning("attributes differ between the files of ranks, and the first is kept: " +
                       names.ToString());
    }
    return all;
  }

  // Adds the tensor that the parts of one name make up.
  void Assemble(const Entry& entry, BoxSource& whole) {
    const Object& first = ObjectAt(entry.places[0]);
    Object object = first;
    Unmark(object);
    auto boxes = Gather(entry, object);
    Status status = boxes.status();
    if (status.ok()) status = whole.Add(object, *std::move(boxes));
    if (!status.ok()) {
      if (status.code() == StatusCode::kDataLoss && entry.places.size() < sources_.size()) {
        status = WithFact(status, std::string(status.message()) + ", in " +
                                      std::to_string(entry.places.size()) + " of " +
                                      std::to_string(sources_.size()) + " files");
      }
      whole.AddUnreadable(std::move(object), status, PathOf(entry.places[0]));
    }
  }

  // The boxes of a tensor; sets its shape.
  StatusOr<std::vector<Box>> Gather(const Entry& entry, Object& object) {
    const Place& first = entry.places[0];
    std::vector<Box> boxes;
    std::optional<Shape> stated;
    Shape reached(object.shape.size(), 0);
    // By the offsets of parts of which there are copies: the first, and their number.
    std::map<Shape, std::pair<Place, std::uint64_t>> copied;
    for (const Place& place : entry.places) {
      const Object& each = ObjectAt(place);
      ZT_ASSIGN_OR_RETURN(const std::optional<Part> part, FindPart(each));
      // A rank without elements may have no more than the shape.
      if (!part || ElementCount(each.shape) != 0)
        ZT_RETURN_IF_ERROR(sources_[place.source]->CheckReadable(place.object));
      const auto differ = [&](const std::string& how) {
        return InvalidData(FileOf(first) + " and " + FileOf(place) + " differ: " + how);
      };
      if (!part) {
        return InvalidData("it is a part in other files, and whole in " + FileOf(place));
      }
      if (each.format != "dense" || FindMember(each.attributes, kLogicalShape) != nullptr) {
        return Unsupported("its parts are not dense tensors of whole bytes");
      }
      const ElementType& element = each.components[0].element;
      if (element != ObjectAt(first).components[0].element ||
          each.shape.size() != object.shape.size()) {
        const Object& other = ObjectAt(first);
        return differ("a part is " + std::string(Name(other.components[0].element)) + " of shape " +
                      ToString(other.shape) + ", another " + std::string(Name(element)) +
                      " of shape " + ToString(each.shape));
      }
      if (part->shape && stated && *part->shape != *stated) {
        return differ("the tensor has shape " + ToString(*stated) + " or " +
                      ToString(*part->shape));
      }
      if (part->shape) stated = part->shape;
      for (std::size_t k = 0; k < reached.size(); ++k) {
        const auto end = CheckedAdd(part->offsets[k], each.shape[k]);
        if (!end) return InvalidData("a part ends beyond 64 bits");
        reached[k] = std::max(reached[k], *end);
      }
      if (ElementCount(each.shape) == 0) continue;  // a rank beyond the last with elements
      if (part->copies > 1) {
        auto& [original, copies] = copied.try_emplace(part->offsets, place, 0).first->second;
        if (++copies > part->copies) {
          return InvalidData("its part at " + ToString(part->offsets) + " is there more than " +
                             std::to_string(part->copies) + " times");
        }
        if (copies > 1) {
          ZT_ASSIGN_OR_RETURN(const bool same, IsCopy(original, place));
          if (same) continue;
          return InvalidData("its copies at " + ToString(part->offsets) + " in " +
                             FileOf(original) + " and " + FileOf(place) +
                             " differ; the files may be of different steps");
        }
      }
      boxes.push_back({part->offsets, sources_[place.source].get(), place.object});
    }
    if (!stated && unstated_++ == 0) first_unstated_ = object.name;
    ZT_ASSIGN_OR_RETURN(Object whole, DenseObject(object.name, stated.value_or(reached),
                                                  object.components[0].element));
    whole.attributes = std::move(object.attributes);
    object = std::move(whole);
    return boxes;
  }

  // The first bytes of a component.
  StatusOr<std::vector<std::byte>> Head(const Place& place, std::uint32_t component,
                                        std::uint64_t most) {
    TensorSource& source = *sources_[place.source];
    ZT_RETURN_IF_ERROR(source.CheckReadable(place.object));
    std::vector<std::byte> bytes(
        std::min(most, source.objects()[place.object].components[component].bytes));
    if (!bytes.empty()) ZT_RETURN_IF_ERROR(source.Read({place.object, component}, 0, bytes));
    return bytes;
  }

  // False if a part that is called a copy of another cannot be one.
  StatusOr<bool> IsCopy(const Place& original, const Place& copy) {
    if (ObjectAt(original).shape != ObjectAt(copy).shape) return false;
    if (sampled_[copy.source]++ >= kMostSampled) return true;
    ZT_ASSIGN_OR_RETURN(const auto first, Head(original, 0, kSampledBytes));
    ZT_ASSIGN_OR_RETURN(const auto second, Head(copy, 0, kSampledBytes));
    return first == second;
  }

  // OK if tensors that no file calls parts are the same.
  Status Compare(const Entry& entry) {
    const Object& first = ObjectAt(entry.places[0]);
    for (std::size_t i = 1; i < entry.places.size(); ++i) {
      const Object& other = ObjectAt(entry.places[i]);
      const auto both = [&](const std::string& why) {
        return InvalidData("it is in both " + FileOf(entry.places[0]) + " and " +
                           FileOf(entry.places[i]) + ", which do not call it a part, and " + why +
                           "; load it in Python and save one");
      };
      const bool alike = first.format == other.format && first.shape == other.shape &&
                         std::ranges::equal(
                             first.components, other.components, {},
                             [](const Component& c) { return std::tie(c.element, c.bytes); },
                             [](const Component& c) { return std::tie(c.element, c.bytes); });
      if (!alike) return both("it has another type or shape there");
      for (std::uint32_t c = 0; c < first.components.size(); ++c) {
        if (first.components[c].bytes > kMostCompared) return both("it is too large to compare");
        ZT_ASSIGN_OR_RETURN(const auto one, Head(entry.places[0], c, kMostCompared));
        ZT_ASSIGN_OR_RETURN(const auto another, Head(entry.places[i], c, kMostCompared));
        if (one != another) return both("it differs");
      }
    }
    return OkStatus();
  }

  std::vector<std::unique_ptr<TensorSource>> sources_;
  std::vector<std::string> names_;
  std::vector<std::uint64_t> sampled_ = std::vector<std::uint64_t>(sources_.size());
  std::vector<Entry> entries_;   // in the order of the files
  std::set<std::string> files_;  // that hold parts
  std::size_t unstated_ = 0;     // tensors whose shape no file says
  std::string first_unstated_;
};

// An error for a tensor that cannot be read and is in the first two files, as a part is that is not
// understood: that it is there twice would say less.
Status CheckTwins(const std::vector<std::unique_ptr<TensorSource>>& sources) {
  if (sources.size() < 2) return OkStatus();
  std::unordered_map<std::string_view, Status, zt::internal::NameHash> problems;
  for (std::uint32_t i = 0; i < sources[0]->objects().size(); ++i) {
    Status status = sources[0]->CheckReadable(i);
    if (!status.ok()) problems.emplace(sources[0]->objects()[i].name, std::move(status));
  }
  for (const Object& object : sources[1]->objects()) {
    const auto found = problems.find(object.name);
    if (found != problems.end()) return WithTensor(found->second, object.name);
  }
  return OkStatus();
}

}  // namespace

Value ToValue(const Part& part) {
  Value::Map map{{kOffsets, ToArray(part.offsets)}};
  if (part.shape) map.emplace_back(kShape, ToArray(*part.shape));
  if (part.copies > 1) map.emplace_back(kCopies, part.copies);
  return map;
}

StatusOr<std::optional<Part>> FindPart(const Object& object) {
  const Value* const value = FindMember(object.attributes, kPart);
  if (value == nullptr) return std::optional<Part>();
  const auto wrong = [] {
    return InvalidData("its attribute " + Quote(kPart) + " says no place in a tensor");
  };
  const Value::Map* const map = value->AsMap();
  if (map == nullptr) return wrong();
  Part part;
  bool placed = false;
  for (const auto& [key, member] : *map) {
    const auto shape = ToShape(member);
    if (key == kOffsets && shape) {
      part.offsets = *shape;
      placed = true;
    } else if (key == kShape && shape) {
      part.shape = *shape;
    } else if (key == kCopies && member.AsUint() != nullptr) {
      part.copies = *member.AsUint();
    } else {
      return wrong();
    }
  }
  if (!placed || part.offsets.size() != object.shape.size() ||
      (part.shape && part.shape->size() != object.shape.size())) {
    return wrong();
  }
  return std::optional(std::move(part));
}

namespace {

// An error if the object is a part of a tensor of which other files hold more.
Status CheckWhole(const Object& object) {
  ZT_ASSIGN_OR_RETURN(const std::optional<Part> part, FindPart(object));
  if (!part || part->shape == object.shape) return OkStatus();
  const std::string at = ToString(part->offsets);
  if (part->shape) {
    return InvalidData("it is one rank's part, at " + at + ", of a tensor of shape " +
                       ToString(*part->shape) + "; " + kNameAll);
  }
  if (std::ranges::any_of(part->offsets, [](auto each) { return each != 0; }))
    return InvalidData("it is one rank's part of a tensor, at " + at + "; " + kNameAll);
  return InvalidData(
      "it may be the first part of a tensor, of which other ranks' files hold more; " +
      std::string(kNameAll));
}

}  // namespace

bool HoldsParts(const TensorSource& source) {
  return std::ranges::any_of(source.objects(), IsPart);
}

StatusOr<std::unique_ptr<TensorSource>> PutTogether(
    std::vector<std::unique_ptr<TensorSource>> sources, std::vector<std::string> names) {
  const bool parts =
      std::ranges::any_of(sources, [](const auto& source) { return HoldsParts(*source); });
  if (!parts) {
    ZT_RETURN_IF_ERROR(CheckTwins(sources));
    return MergeSources(std::move(sources), std::move(names));
  }
  for (std::size_t s = 0; s < sources.size(); ++s) {
    if (sources[s]->file({}).empty()) sources[s]->SetFile(names[s]);
  }
  return Assembly(std::move(sources), std::move(names)).Run();
}

std::optional<RankName> ParseRankName(std::string_view name) {
  std::optional<RankName> parsed;
  std::string set;
  for (std::size_t at = 0; at < name.size();) {
    std::size_t digits = at;
    for (const std::string_view word : {"rank", "consolidated."}) {
      if (!name.substr(at).starts_with(word)) continue;
      if (at > 0 && std::isalpha(static_cast<unsigned char>(name[at - 1])) != 0)
        continue;  // rerank
      digits = at + word.size();
      if (digits < name.size() && (name[digits] == '_' || name[digits] == '-')) ++digits;
    }
    std::size_t end = digits;
    while (end < name.size() && end - digits < 9 && name[end] >= '0' && name[end] <= '9') ++end;
    if (digits == at || end == digits) {
      set += name[at++];
      continue;
    }
    if (!parsed) {
      parsed.emplace();
      for (const char digit : name.substr(digits, end - digits))
        parsed->rank = parsed->rank * 10 + static_cast<std::uint64_t>(digit - '0');
    }
    set += name.substr(at, digits - at);
    set += '*';
    at = end;
  }
  if (parsed) parsed->set = std::move(set);
  return parsed;
}

std::unique_ptr<TensorSource> RefuseParts(std::unique_ptr<TensorSource> source) {
  if (!HoldsParts(*source)) return source;
  auto refusing = std::make_unique<RegroupedSource>(std::move(source));
  const std::vector<Object>& objects = refusing->inner().objects();
  for (std::uint32_t i = 0; i < objects.size(); ++i) {
    Object object = objects[i];
    Status whole = CheckWhole(object);
    if (whole.ok()) Unmark(object);
    refusing->Keep(i, std::move(object));
    if (!whole.ok()) refusing->Refuse(std::move(whole));
  }
  return refusing;
}

}  // namespace zt
