// zt.cli:listing — sums, the table and the tree.
module;

#include "core/name_table.h"

module zt.cli;

import zt.std;
import :listing;
import :output;
import zt;

namespace zt::cli::internal {
namespace {

const ListedComponent* Elements(const ListedObject& object) {
  for (const ListedComponent& each : object.components) {
    if (each.role == "data" || each.role == "values") return &each;
  }
  return nullptr;
}

// What a component is an array of, if its bytes are known: a tensor's own shape for its one array, else a length.
std::string ShapeText(const ListedObject& object, const ListedComponent& component) {
  if (object.components.size() == 1) return ToString(object.shape);
  if (component.decoded == kUnknownSize) return "";
  const LogicalType* logical = FindLogicalType(component.element.type);
  const std::uint64_t unit =
      ByteWidth(component.element.dtype) * (logical == nullptr ? 1 : logical->ratio);
  return "[" + std::to_string(component.decoded / unit) + "]";
}

// Cut in the middle to `columns`: the end of a tensor's name tells most, then its beginning.
std::string Shortened(const std::string& text, std::size_t columns) {
  if (columns < 5 || Columns(text) <= columns) return text;
  const auto skip = [&](std::size_t characters) {  // bytes of the first so many
    std::size_t at = 0;
    while (at < text.size() && characters > 0) {
      ++at;
      while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) ++at;
      --characters;
    }
    return at;
  };
  const std::size_t head = (columns - 3) / 3, tail = columns - 3 - head;
  return text.substr(0, skip(head)) + "..." + text.substr(skip(Columns(text) - tail));
}

using Rows = std::vector<std::vector<std::string>>;

// Cuts the first cells to `columns`, or to as little more as keeps those apart that are not the same.
void Shorten(Rows& lines, std::size_t columns) {
  std::vector<std::string> shown(lines.size());
  std::vector<std::size_t> left;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].size() > 1) left.push_back(i);
  }
  std::unordered_map<std::string_view, std::size_t, zt::internal::NameHash>
      used;                                      // what is shown, and in which line
  constexpr std::size_t kStep = 10, kSteps = 6;  // then a name is left whole
  for (std::size_t step = 0; !left.empty(); ++step) {
    const auto cut = [&](std::size_t i) {
      const std::string& whole = lines[i][0];
      return step < kSteps ? Shortened(whole, columns + step * kStep) : whole;
    };
    std::unordered_map<std::string, std::size_t, zt::internal::NameHash> first;
    std::unordered_set<std::string, zt::internal::NameHash> alike;
    for (const std::size_t i : left) {
      std::string text = cut(i);
      const auto same = [&](std::size_t other) { return lines[other][0] == lines[i][0]; };
      const auto before = used.find(text);
      const auto [here, fresh] = first.emplace(text, i);
      if ((before != used.end() && !same(before->second)) || (!fresh && !same(here->second)))
        alike.insert(std::move(text));
    }
    std::vector<std::size_t> again;
    for (const std::size_t i : left) {
      shown[i] = cut(i);
      if (step < kSteps && alike.contains(shown[i])) {
        again.push_back(i);
      } else {
        used.emplace(shown[i], i);
      }
    }
    left = std::move(again);
  }
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].size() > 1) lines[i][0] = std::move(shown[i]);
  }
}

// Lines of cells under one another. Where a line would be wider than `columns`, the `optional` columns are left out, one
// after the other, rather than that names are cut to less than kReadable; then the first column is cut.
std::string Aligned(Rows& lines, std::size_t columns,
                    std::initializer_list<std::size_t> optional = {}) {
  for (auto& line : lines) {
    for (std::string& cell : line)
      cell = Printable(cell);  // names, types, formats: any text of the file's
  }
  constexpr std::size_t kWidest = 80;  // a cell wider than this pushes the others of its line alone
  std::vector<std::size_t> widths;
  for (const auto& line : lines) {
    if (line.size() == 1) continue;  // a note, not a row of cells
    widths.resize(std::max(widths.size(), line.size()));
    for (std::size_t c = 0; c < line.size(); ++c)
      widths[c] = std::max(widths[c], std::min(Columns(line[c]), kWidest));
  }
  if (columns > 0 && !widths.empty()) {
    constexpr std::size_t kNarrowest = 20, kReadable = 40;
    std::size_t others = 0;
    const auto width = [&](std::size_t c) { return widths[c] == 0 ? 0 : widths[c] + 2; };
    for (std::size_t c = 1; c < widths.size(); ++c) others += width(c);
    for (const std::size_t c : optional) {
      if (others + std::min(widths[0], kReadable) <= columns) break;
      others -= width(c);
      widths[c] = 0;
    }
    const std::size_t room = columns > others + kNarrowest ? columns - others : kNarrowest;
    widths[0] = std::min(widths[0], room);
    Shorten(lines, room);
  }
  std::string out;
  for (const auto& line : lines) {
    std::string text = line.size() == 1 ? line[0] : "";
    for (std::size_t c = 0; line.size() > 1 && c < line.size(); ++c) {
      if (widths[c] == 0) continue;
      text += line[c];  // a column without width is empty, or left out
      const std::size_t used = Columns(line[c]);
      text.append((used < widths[c] ? widths[c] - used : 0) + 2, ' ');
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  }
  return out;
}

std::string AttributesText(const Value::Map& attributes) {
  std::string out;
  for (const auto& [key, value] : attributes)
    out += "  " + Printable(key) + ": " + ValueText(value) + "\n";
  return out;
}

struct Sum {
  std::uint64_t tensors = 0, parameters = 0, stored = 0, decoded = 0;
  std::uint64_t tied = 0;  // parameters whose bytes are another tensor's
  void Add(const ListedObject& object) {
    ++tensors;
    (object.tied() ? tied : parameters) += object.parameters();
    stored += object.stored();
    decoded += object.decoded();
  }
};

std::string ParametersText(const Sum& sum) {
  std::string out = Grouped(sum.parameters) + (sum.parameters == 1 ? " parameter" : " parameters");
  if (sum.tied > 0) out += " (" + Grouped(sum.parameters + sum.tied) + " with tied ones)";
  return out;
}

std::string SizeText(const Sum& sum) {
  std::string out = HumanBytes(sum.stored);
  if (sum.decoded != sum.stored && sum.decoded > 0) {
    char ratio[32];
    std::snprintf(ratio, sizeof ratio, "%.1f%%",
                  100 * static_cast<double>(sum.stored) / static_cast<double>(sum.decoded));
    out += " of " + HumanBytes(sum.decoded) + " (" + ratio + ")";
  }
  return out;
}

}  // namespace

std::string HeadingText(const Listing& listing) {
  Sum all;
  std::map<std::string, Sum> types;
  for (const ListedObject& object : listing.objects) {
    all.Add(object);
    types[object.type()].Add(object);
  }
  std::string out = Printable(listing.file) + ": ";
  out += listing.format == "zt" ? "zTensor " + Printable(listing.version) : listing.format;
  if (!listing.shards.empty()) out += " in " + Counted(listing.shards.size(), "shard");
  out += ", " + Counted(all.tensors, "tensor") + ", " + ParametersText(all) + ", " + SizeText(all) +
         "\n";
  out += AttributesText(listing.attributes);
  if (types.size() < 2) return out;
  Rows lines;
  for (const auto& [type, sum] : types) {
    lines.push_back(
        {"  " + type, Counted(sum.tensors, "tensor"), ParametersText(sum), SizeText(sum)});
  }
  return out + Aligned(lines, 0) + "\n";
}

namespace {

std::string EncodingText(const ListedComponent& c) {
  std::string out;
  if (c.encoding) {
    const bool planes = c.encoding == Encoding::kPlanes;
    out = planes ? "byte planes" : std::string(Name(*c.encoding));
    if (c.encoding != Encoding::kRaw && c.decoded != kUnknownSize) {
      out += " of " + HumanBytes(c.decoded);
      if (planes && c.decoded > c.stored) {
        const double share = static_cast<double>(c.stored) / static_cast<double>(c.decoded);
        out += " (-" + std::to_string(static_cast<int>((1 - share) * 100 + 0.5)) + " %)";
      }
    }
  }
  if (c.big_endian) out += ", big-endian";
  return out;
}

}  // namespace

std::string ListedObject::type() const {
  const ListedComponent* const elements = Elements(*this);
  if (format == "dense" && elements != nullptr) return std::string(Name(elements->element));
  std::string_view name = format;
  if (name.starts_with("gguf.")) name.remove_prefix(5);
  return std::string(name.substr(0, name.find('/')));
}

std::uint64_t ListedObject::parameters() const {
  if (IsSparse(format)) {
    const ListedComponent* const values = Elements(*this);
    if (values == nullptr || values->decoded == kUnknownSize) return 0;
    return values->decoded / ByteWidth(values->element.dtype);
  }
  const Shape* dims = &shape;
  Shape logical;
  for (const auto& [key, value] : attributes) {  // packed elements: `shape` counts bytes
    if (key != "logical_shape" || value.AsArray() == nullptr) continue;
    for (const Value& each : *value.AsArray())
      logical.push_back(each.AsUint() ? *each.AsUint() : 0);
    dims = &logical;
  }
  std::uint64_t count = 1;
  for (const std::uint64_t dim : *dims) count = CheckedMul(count, dim).value_or(kUnknownSize);
  return count;
}

bool ListedObject::tied() const {
  return !components.empty() && std::ranges::all_of(components, [](const ListedComponent& each) {
    return each.shares.has_value();
  });
}

std::uint64_t ListedObject::stored() const {
  std::uint64_t bytes = 0;
  for (const ListedComponent& each : components) bytes += each.shares ? 0 : each.stored;
  return bytes;
}

std::uint64_t ListedObject::decoded() const {
  std::uint64_t bytes = 0;
  for (const ListedComponent& each : components)
    bytes += each.shares ? 0 : each.decoded == kUnknownSize ? each.stored : each.decoded;
  return bytes;
}

void Sort(Listing& listing, const std::string& order) {
  std::vector<std::uint32_t> places(listing.objects.size());
  for (std::uint32_t i = 0; i < places.size(); ++i) places[i] = i;
  const auto offset = [&](std::uint32_t i) {  // in the first of its files
    std::pair<std::string_view, std::uint64_t> first("", kUnknownSize);
    for (const ListedComponent& each : listing.objects[i].components) {
      if (!each.offset) continue;
      const std::pair<std::string_view, std::uint64_t> place(each.shard, *each.offset);
      if (first.second == kUnknownSize || place < first) first = place;
    }
    return first;
  };
  const auto by = [&](auto key) {  // equal ones stay as they are
    std::ranges::sort(places, {}, [&](std::uint32_t i) { return std::pair(key(i), i); });
  };
  if (order == "name") {
    by([&](std::uint32_t i) { return std::string_view(listing.objects[i].name); });
  } else if (order == "size") {
    by([&](std::uint32_t i) { return ~listing.objects[i].decoded(); });
  } else if (order == "offset" || !listing.version.empty()) {  // a manifest has an order of its own
    by(offset);
  }
  std::vector<std::uint32_t> now(places.size());
  for (std::uint32_t i = 0; i < places.size(); ++i) now[places[i]] = i;
  std::vector<ListedObject> sorted;
  sorted.reserve(places.size());
  for (const std::uint32_t place : places) {
    sorted.push_back(std::move(listing.objects[place]));
    for (ListedComponent& each : sorted.back().components) {
      if (each.shares) each.shares = now[*each.shares];
    }
  }
  listing.objects = std::move(sorted);
}

std::string TableText(const Listing& listing, const TextOptions& options) {
  Rows lines;
  for (const ListedObject& object : listing.objects) {
    const bool one = object.components.size() == 1;
    for (const ListedComponent& c : object.components) {
      const std::string format = object.format + (one ? "" : " " + ToString(object.shape));
      lines.push_back({one ? object.name : object.name + "/" + c.role, std::string(Name(c.element)),
                       ShapeText(object, c), format, HumanBytes(c.stored), EncodingText(c),
                       c.shares ? "= " + listing.objects[*c.shares].name : "",
                       options.verbose ? c.digest : c.digest.substr(0, c.digest.find(':'))});
    }
    const auto bad = std::ranges::find_if(object.components,
                                          [](const auto& c) { return !c.undecodable.empty(); });
    if (bad != object.components.end())
      lines.push_back({"    cannot be read: " + bad->undecodable});
    if (!options.verbose) continue;
    std::string attributes;
    for (const auto& [key, value] : object.attributes)
      attributes += (attributes.empty() ? "    " : ", ") + key + ": " + ValueText(value);
    if (!attributes.empty()) lines.push_back({attributes});
  }
  constexpr std::size_t kEncoding = 5, kShared = 6, kDigest = 7;
  return HeadingText(listing) + Aligned(lines, options.columns, {kDigest, kEncoding, kShared});
}

}  // namespace zt::cli::internal
