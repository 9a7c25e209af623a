// zt.cli:listing — sums, the table and the tree.
module zt.cli;

import zt.std;
import :listing;
import zt.convert.files;

namespace zt::cli::internal {
namespace {

// The shape of a component if its size is known: the tensor's own if it has one component, else a
// length.
std::string ShapeText(const ListedObject& object, const ListedComponent& component) {
  if (object.components.size() == 1) return ToString(object.shape);
  if (component.decoded_bytes == kUnknownSize) return "";
  return "[" + std::to_string(component.decoded_bytes / ElementBytes(component.element)) + "]";
}

using Rows = std::vector<std::vector<std::string>>;

// Formats rows as a table; a row of one cell is a note. Leaves out `optional` columns while a row is
// wider than `columns`, unless that is 0. A cell wider than kWidest shifts the rest of its row only.
std::string Aligned(Rows& lines, std::size_t columns,
                    std::initializer_list<std::size_t> optional = {}) {
  constexpr std::size_t kWidest = 80, kGap = 2;
  std::vector<std::size_t> widths;
  for (auto& line : lines) {
    for (std::string& cell : line)
      cell = Printable(cell);  // names, types, formats: any text of the file's
    if (line.size() == 1) continue;
    widths.resize(std::max(widths.size(), line.size()));
    for (std::size_t c = 0; c < line.size(); ++c)
      widths[c] = std::max(widths[c], std::min(Columns(line[c]), kWidest));
  }
  for (const std::size_t c : optional) {
    std::size_t row = 0;
    for (const std::size_t width : widths) row += width == 0 ? 0 : width + kGap;
    if (columns == 0 || row <= columns + kGap) break;
    widths[c] = 0;
  }
  std::string out;
  for (const auto& line : lines) {
    std::string text = line.size() == 1 ? line[0] : "";
    for (std::size_t c = 0; line.size() > 1 && c < line.size(); ++c) {
      if (widths[c] == 0) continue;  // it is empty, or left out
      const std::size_t used = Columns(line[c]);
      text += line[c] + std::string((used < widths[c] ? widths[c] - used : 0) + kGap, ' ');
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  }
  return out;
}

// The metadata of GGUF, a line for each key; empty if it is not the record of a GGUF file.
std::string GgufKeysText(const Value& record) {
  constexpr std::size_t kMost = 80;
  const Value::Map* const map = record.AsMap();
  const Value* const kv = map == nullptr ? nullptr : FindMember(*map, "kv");
  if (kv == nullptr || kv->AsArray() == nullptr) return {};
  std::string out = "  gguf: " + Counted(kv->AsArray()->size(), "key") + "\n";
  for (const Value& entry : *kv->AsArray()) {  // [key, type, ..., value]
    const Value::Array* const parts = entry.AsArray();
    const std::string* const key =
        parts == nullptr || parts->size() < 3 ? nullptr : parts->front().AsString();
    if (key == nullptr) return {};
    out += "    " + Printable(*key) + ": " + ValueText(parts->back(), kMost) + "\n";
  }
  return out;
}

std::string AttributesText(const Value::Map& attributes) {
  std::string out;
  for (const auto& [key, value] : attributes) {
    if (key == kFolderAttribute) continue;  // headers, which are for programs
    std::string text = key == "gguf" ? GgufKeysText(value) : "";
    if (text.empty()) text = "  " + Printable(key) + ": " + ValueText(value) + "\n";
    out += text;
  }
  return out;
}

void AddSaturated(std::uint64_t& sum, std::uint64_t more) {
  sum = more > ~sum ? ~std::uint64_t{0} : sum + more;
}

// What headers say, true or not: a sum that 64 bits cannot hold is their largest.
struct Sum {
  std::uint64_t tensors = 0, parameters = 0, stored = 0, decoded = 0;
  std::uint64_t tied = 0;  // parameters whose bytes are another tensor's
  void Add(const ListedObject& object) {
    ++tensors;
    AddSaturated(object.tied() ? tied : parameters, object.parameters());
    AddSaturated(stored, object.stored());
    AddSaturated(decoded, object.decoded());
  }
  void Add(const Sum& other) {
    tensors += other.tensors;
    AddSaturated(tied, other.tied);
    AddSaturated(parameters, other.parameters);
    AddSaturated(stored, other.stored);
    AddSaturated(decoded, other.decoded);
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
  for (const ListedObject& object : TensorsOf(listing)) {
    all.Add(object);
    types[object.type()].Add(object);
  }
  std::string out = Printable(listing.file) + ": ";
  out += listing.format == "zt" ? "zTensor " + Printable(listing.version) : listing.format;
  if (!listing.shards.empty()) out += " in " + Counted(listing.shards.size(), "shard");
  out += ", ";
  if (all.tensors < listing.tensors) out += std::to_string(all.tensors) + " of ";
  out += Counted(std::max(all.tensors, listing.tensors), "tensor") + ", " + ParametersText(all) +
         ", " + SizeText(all);
  if (listing.files > 0) {
    std::uint64_t bytes = 0;
    for (const ListedObject& file : FilesOf(listing)) bytes += file.decoded();
    out += ", " + Counted(listing.files, "file") + " of " + HumanBytes(bytes);
  }
  out += "\n";
  out += AttributesText(listing.attributes);
  for (const auto& [scheme, tensors] : listing.quantized)
    out += "  quantized: " + scheme + ": " + Counted(tensors, "tensor") + "\n";
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
  if (c.encoded) {
    const bool planes = c.encoding == Encoding::kPlanes;
    out = planes ? "byte planes" : std::string(Name(c.encoding));
    if (c.encoding != Encoding::kRaw && c.decoded_bytes != kUnknownSize) {
      out += " of " + HumanBytes(c.decoded_bytes);
      if (planes && c.decoded_bytes > c.length) {
        const double share = static_cast<double>(c.length) / static_cast<double>(c.decoded_bytes);
        out += " (-" + std::to_string(static_cast<int>((1 - share) * 100 + 0.5)) + " %)";
      }
    }
  }
  if (c.big_endian) out += ", big-endian";
  return out;
}

}  // namespace

std::string ListedObject::type() const {
  const ListedComponent* const elements = ElementsOf(*this);
  if (format == "dense" && elements != nullptr) return std::string(Name(elements->element));
  std::string_view name = format;
  if (name.starts_with("gguf.")) name.remove_prefix(5);
  return std::string(name.substr(0, name.find('/')));
}

std::uint64_t ListedObject::parameters() const {
  if (IsSparse(format)) {
    const ListedComponent* const values = ElementsOf(*this);
    if (values == nullptr || values->decoded_bytes == kUnknownSize) return 0;
    return values->decoded_bytes / ElementBytes(values->element);
  }
  return ElementCount(LogicalShape(attributes).value_or(shape)).value_or(kUnknownSize);
}

bool ListedObject::tied() const {
  return !components.empty() && std::ranges::all_of(components, [](const ListedComponent& each) {
    return each.shares.has_value();
  });
}

std::uint64_t ListedObject::stored() const {
  std::uint64_t bytes = 0;
  for (const ListedComponent& each : components) bytes += each.shares ? 0 : each.length;
  return bytes;
}

std::uint64_t ListedObject::decoded() const {
  std::uint64_t bytes = 0;
  for (const ListedComponent& each : components)
    bytes += each.shares                          ? 0
             : each.decoded_bytes == kUnknownSize ? each.length
                                                  : each.decoded_bytes;
  return bytes;
}

void Sort(Listing& listing, const std::string& order) {  // equal ones stay as they are
  const auto offset = [](const ListedObject& object) {   // in the first of its files
    std::pair<std::string_view, std::uint64_t> first("", kUnknownSize);
    for (const ListedComponent& each : object.components) {
      if (!each.located) continue;
      const std::pair<std::string_view, std::uint64_t> place(each.file, each.offset);
      if (first.second == kUnknownSize || place < first) first = place;
    }
    return first;
  };
  const auto sort = [&](auto less, auto key) {  // those of a file mostly lie in order
    if (!std::ranges::is_sorted(listing.objects, less, key))
      std::ranges::stable_sort(listing.objects, less, key);
  };
  if (order == "name") {
    sort(std::less(), &ListedObject::name);
  } else if (order == "size") {
    sort(std::greater(), &ListedObject::decoded);
  } else if (order == "offset" || !listing.version.empty()) {  // a manifest has an order of its own
    sort(std::less(), offset);
  }
  const auto files = std::stable_partition(listing.objects.begin(), listing.objects.end(),
                                           [](const auto& each) { return each.path.empty(); });
  listing.files = static_cast<std::size_t>(listing.objects.end() - files);
}

std::span<const ListedObject> TensorsOf(const Listing& listing) {
  return std::span(listing.objects).first(listing.objects.size() - listing.files);
}

std::span<const ListedObject> FilesOf(const Listing& listing) {
  return std::span(listing.objects).last(listing.files);
}

std::string FilesText(const Listing& listing) {
  if (listing.files == 0) return {};
  Rows lines;
  for (const ListedObject& file : FilesOf(listing)) {
    const ListedComponent& data = file.components.front();
    lines.push_back({"  " + file.path, HumanBytes(data.length), EncodingText(data),
                     data.digest.substr(0, data.digest.find(':'))});
  }
  return "files:\n" + Aligned(lines, 0);
}

std::string TableText(const Listing& listing, const TextOptions& options) {
  Rows lines;
  for (const ListedObject& object : TensorsOf(listing)) {
    const bool one = object.components.size() == 1;
    const std::string name = one ? object.name : Repeated(object.name) + "/";
    const std::string format =
        one ? object.format : Repeated(object.format + " " + ToString(object.shape));
    for (const ListedComponent& c : object.components) {
      lines.push_back({one ? name : name + c.role, std::string(Name(c.element)),
                       ShapeText(object, c), format, HumanBytes(c.length), EncodingText(c),
                       c.shares ? "= " + *c.shares : object.quantized,
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
  return HeadingText(listing) + Aligned(lines, options.columns, {kDigest, kEncoding, kShared}) +
         FilesText(listing);
}

std::string StatsTableText(const Listing& listing, const TextOptions& options) {
  Rows lines = {
      {"tensor", "type", "shape", "min", "max", "mean", "std", "zeros", "nan", "inf", "exponents"}};
  for (const ListedObject& object : TensorsOf(listing)) {
    std::vector<std::string> line = {object.name, object.type(), ToString(object.shape)};
    const TensorStats& stats = *object.stats;
    const NumberStats& numbers = stats.numbers;
    if (!stats.skipped.empty()) {
      lines.push_back(std::move(line));
      lines.push_back({"    no figures: " + stats.skipped});
      continue;
    }
    const bool any = numbers.finite > 0;
    for (const std::string& cell :
         {any ? NumberText(*numbers.min) : "-", any ? NumberText(*numbers.max) : "-",
          any ? NumberText(numbers.mean()) : "-", any ? NumberText(numbers.deviation()) : "-",
          Grouped(numbers.zeros), Grouped(numbers.nan), Grouped(numbers.inf),
          ExponentsText(numbers)})
      line.push_back(cell);
    lines.push_back(std::move(line));
    if (stats.stored) {
      const std::uint64_t count = numbers.finite + numbers.nan + numbers.inf;
      lines.push_back({"    of the " + Counted(count, "stored value") + " alone"});
    }
  }
  if (lines.size() == 1) lines.clear();
  constexpr std::size_t kShape = 2, kExponents = 10;
  return HeadingText(listing) + Aligned(lines, options.columns, {kExponents, kShape}) +
         FilesText(listing);
}

// ---- the tree: names folded by their dots and slashes -------------------------------------------

namespace {

constexpr std::size_t kMostRanges = 6;  // of numbers in a name
constexpr std::size_t kDeepest = 16;    // what has more parts stays together: names come from files

struct Node {
  std::string_view part;                 // of the name; its parents' come before
  std::string_view joint;                // "." or "/", which joins it to its parent's
  const ListedObject* object = nullptr;  // a tensor, if it ends here
  std::vector<std::unique_ptr<Node>> children;
  std::map<std::string_view, Node*> by_part;  // and joint
  Sum sum = {};                               // of all tensors below, this one included
  std::size_t likeness = 0;  // equal for nodes whose tensors have equal names, types and shapes

  // `joined`: the part with the `joint` characters before it.
  Node& Child(std::string_view joined, std::size_t joint) {
    Node*& child = by_part[joined];
    if (child != nullptr) return *child;
    child = children.emplace_back(std::make_unique<Node>()).get();
    child->joint = joined.substr(0, joint);
    child->part = joined.substr(joint);
    return *child;
  }
};

void Insert(Node& root, const ListedObject& object) {
  Node* node = &root;
  std::string_view rest = object.name;  // from the joint on, after the first part
  for (std::size_t depth = 0;; ++depth) {
    const std::size_t joint = depth == 0 ? 0 : 1;
    const std::size_t end = depth < kDeepest ? rest.find_first_of("./", joint) : rest.npos;
    node = &node->Child(rest.substr(0, end), joint);
    if (end == rest.npos) break;
    rest.remove_prefix(end);
  }
  node->object = &object;
}

std::size_t Mix(std::size_t seed, std::size_t value) {
  return seed ^ (value + 0x9e3779b97f4a7c15u + (seed << 6) + (seed >> 2));
}

bool IsNumber(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// Numbered children come first, in the order of their numbers, which may be of any length.
bool IsBefore(const std::unique_ptr<Node>& a, const std::unique_ptr<Node>& b) {
  if (!IsNumber(a->part) || !IsNumber(b->part)) return IsNumber(a->part) && !IsNumber(b->part);
  const auto value = [](std::string_view text) {
    return text.substr(std::min(text.find_first_not_of('0'), text.size()));
  };
  const std::string_view x = value(a->part), y = value(b->part);
  return std::tuple(x.size(), x, a->part) < std::tuple(y.size(), y, b->part);
}

void AddUp(Node& node, bool largest_first) {
  if (node.object != nullptr) {
    node.sum.Add(*node.object);
    node.likeness = std::hash<std::string>()(node.object->type() + ToString(node.object->shape));
  }
  for (const auto& child : node.children) {
    AddUp(*child, largest_first);
    node.sum.Add(child->sum);
    // A sum: layers are alike whatever the order of their tensors.
    node.likeness += Mix(std::hash<std::string_view>()(child->part), child->likeness);
  }
  std::ranges::stable_sort(node.children, IsBefore);
  const auto bytes = [](const auto& child) { return child->sum.decoded; };
  if (largest_first) std::ranges::stable_sort(node.children, std::greater(), bytes);
}

// Children that share a line: numbered, alike and not tensors themselves; or one of any kind.
using Group = std::vector<const Node*>;

std::vector<Group> GroupsOf(const Node& node) {
  std::vector<Group> groups;
  std::map<std::tuple<std::size_t, std::uint64_t, std::uint64_t, std::uint64_t>, std::size_t> known;
  for (const auto& child : node.children) {
    if (ParseNumber(child->part) && child->object == nullptr) {
      const auto [group, added] = known.emplace(
          std::tuple(child->likeness, child->sum.tensors, child->sum.tied, child->sum.parameters),
          groups.size());
      if (!added) {
        groups[group->second].push_back(child.get());
        continue;
      }
    }
    groups.push_back({child.get()});
  }
  return groups;
}

void Draw(const Node& node, std::size_t depth, Rows& out) {
  for (const Group& group : GroupsOf(node)) {
    const Node* child = group.front();
    std::vector<std::uint64_t> numbers;
    for (const Node* const each : group) numbers.push_back(ParseNumber(each->part).value_or(0));
    std::string name(child->part);
    if (group.size() > 1) name = RangesText(numbers, ", ", kMostRanges);
    const bool chain = name.find(", ") == name.npos;  // then what follows belongs to all of it
    while (chain && child->object == nullptr &&
           child->children.size() == 1) {  // no line for each of a chain
      child = child->children.front().get();
      name += std::string(child->joint) + std::string(child->part);
    }
    std::string right;
    if (child->object != nullptr && child->children.empty() && group.size() == 1) {
      right = child->object->type() + " " + ToString(child->object->shape) + "  ";
      right += child->object->tied() ? "tied: " + *child->object->components[0].shares
                                     : HumanBytes(child->sum.stored);
    } else {
      if (group.size() > 1) right = std::to_string(group.size()) + " alike, each ";
      right += Counted(child->sum.tensors, "tensor") + ", " + ParametersText(child->sum) + ", " +
               HumanBytes(child->sum.stored);
    }
    out.push_back({std::string(2 * depth, ' ') + name, right});
    Draw(*child, depth + 1, out);
  }
}

}  // namespace

std::string TreeText(const Listing& listing, const TextOptions& options) {
  Node root;
  for (const ListedObject& object : TensorsOf(listing)) Insert(root, object);
  AddUp(root, options.largest_first);
  Rows lines;
  Draw(root, 0, lines);
  return HeadingText(listing) + Aligned(lines, 0) + FilesText(listing);
}

}  // namespace zt::cli::internal
