// zt.cli:listing — the tree: names folded by their dots.
module;

#include "core/name_table.h"

module zt.cli;

import zt.std;
import :listing;
import :output;
import zt;

namespace zt::cli::internal {
namespace {

constexpr std::size_t kDeepest = 32;  // what has more dots stays together: names come from files

struct Node {
  std::string_view part;                 // of the name; its parents' come before, joined by dots
  const ListedObject* object = nullptr;  // a tensor, if it ends here
  std::vector<std::unique_ptr<Node>> children;
  std::unordered_map<std::string_view, Node*, zt::internal::NameHash> by_part;
  // Of all tensors below, this one included. What is tied counts among the tensors alone.
  std::uint64_t tensors = 0, tied = 0, parameters = 0, bytes = 0;
  std::size_t likeness = 0;  // equal for nodes whose tensors have equal names, types and shapes

  Node& Child(std::string_view name) {
    Node*& found = by_part[name];
    if (found == nullptr) {
      children.push_back(std::make_unique<Node>());
      found = children.back().get();
      found->part = name;
    }
    return *found;
  }
};

void Insert(Node& root, const ListedObject& object) {
  Node* node = &root;
  std::string_view rest = object.name;
  for (std::size_t depth = 0;; ++depth) {
    const std::size_t dot = depth < kDeepest ? rest.find('.') : rest.npos;
    node = &node->Child(rest.substr(0, dot));
    if (dot == rest.npos) break;
    rest.remove_prefix(dot + 1);
  }
  node->object = &object;
}

std::size_t Mix(std::size_t seed, std::size_t value) {
  return seed ^ (value + 0x9e3779b97f4a7c15u + (seed << 6) + (seed >> 2));
}

bool IsNumber(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// Numbers of any length, by their value.
bool IsLess(std::string_view a, std::string_view b) {
  const auto value = [](std::string_view text) {
    return text.substr(std::min(text.find_first_not_of('0'), text.size()));
  };
  const std::string_view x = value(a), y = value(b);
  return std::tuple(x.size(), x, a) < std::tuple(y.size(), y, b);
}

// Puts the numbered children into the order of their numbers, in the places that they have.
void SortNumbered(Node& node) {
  std::vector<std::size_t> places;
  std::vector<std::unique_ptr<Node>> numbered;
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    if (!IsNumber(node.children[i]->part)) continue;
    places.push_back(i);
    numbered.push_back(std::move(node.children[i]));
  }
  std::ranges::sort(numbered, IsLess, [](const auto& child) { return child->part; });
  for (std::size_t i = 0; i < places.size(); ++i) node.children[places[i]] = std::move(numbered[i]);
}

void Sum(Node& node) {
  if (node.object != nullptr) {
    node.tensors = 1;
    node.tied = node.object->tied() ? 1 : 0;
    node.parameters = node.tied > 0 ? 0 : node.object->parameters();
    node.bytes = node.object->stored();
    node.likeness = std::hash<std::string>()(node.object->type() + ToString(node.object->shape));
  }
  SortNumbered(node);
  for (const auto& child : node.children) {
    Sum(*child);
    node.tensors += child->tensors;
    node.tied += child->tied;
    node.parameters += child->parameters;
    node.bytes += child->bytes;
    // A sum: layers are alike whatever the order of their tensors.
    node.likeness += Mix(std::hash<std::string_view>()(child->part), child->likeness);
  }
}

// Children that share a line: numbered, alike and not tensors themselves; or one of any kind.
using Group = std::vector<const Node*>;

std::vector<Group> GroupsOf(const Node& node) {
  std::vector<Group> groups;
  std::map<std::tuple<std::size_t, std::uint64_t, std::uint64_t, std::uint64_t>, std::size_t> known;
  for (const auto& child : node.children) {
    if (IsNumber(child->part) && child->object == nullptr) {
      const auto [group, added] =
          known.emplace(std::tuple(child->likeness, child->tensors, child->tied, child->parameters),
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

// "0-5", "1, 2, 4, 5", "0-3, 7": numbers in their order; of many ranges the first ones.
std::string NumbersText(const Group& group) {
  constexpr std::size_t kMost = 6;  // ranges
  const auto number = [&](std::size_t i) {
    std::uint64_t value = 0;
    const std::string_view text = group[i]->part;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() ? std::optional(value) : std::nullopt;
  };
  std::string out;
  std::size_t ranges = 0;
  for (std::size_t begin = 0, end; begin < group.size(); begin = end) {
    for (end = begin + 1; end < group.size(); ++end) {
      const auto last = number(end - 1), next = number(end);
      if (!last || !next || *next != *last + 1) break;
    }
    if (end - begin == 2) end = begin + 1;  // two are named both
    if (++ranges > kMost) return out + ", ... " + std::string(group.back()->part);
    out += (out.empty() ? "" : ", ") + std::string(group[begin]->part);
    if (end - begin > 1) out += "-" + std::string(group[end - 1]->part);
  }
  return out;
}

std::string SumText(const Node& node) {
  std::string out = Counted(node.tensors, "tensor");
  if (node.tied > 0) out += " (" + std::to_string(node.tied) + " tied)";
  return out + ", " + Grouped(node.parameters) +
         (node.parameters == 1 ? " parameter, " : " parameters, ") + HumanBytes(node.bytes);
}

void Draw(const Node& node, std::size_t depth, const Listing& listing,
          std::vector<std::pair<std::string, std::string>>& out) {
  for (const Group& group : GroupsOf(node)) {
    const Node* child = group.front();
    std::string name = NumbersText(group);
    if (group.size() == 1) name = child->part;
    const bool chain = name.find(", ") == name.npos;  // then what follows belongs to all of it
    while (chain && child->object == nullptr &&
           child->children.size() == 1) {  // no line for each of a chain
      child = child->children.front().get();
      name += "." + std::string(child->part);
    }
    std::string right;
    if (child->object != nullptr && child->children.empty() && group.size() == 1) {
      right = child->object->type() + " " + ToString(child->object->shape) + "  ";
      right += child->tied == 0
                   ? HumanBytes(child->bytes)
                   : "tied: " + listing.objects[*child->object->components[0].shares].name;
    } else {
      if (group.size() > 1) right = std::to_string(group.size()) + " alike, each ";
      right += SumText(*child);
    }
    out.emplace_back(std::string(2 * depth, ' ') + Printable(name), Printable(right));
    Draw(*child, depth + 1, listing, out);
  }
}

}  // namespace

std::string TreeText(const Listing& listing, const TextOptions&) {
  Node root;
  for (const ListedObject& object : listing.objects) Insert(root, object);
  Sum(root);
  std::vector<std::pair<std::string, std::string>> lines;
  Draw(root, 0, listing, lines);
  std::string out = HeadingText(listing);
  std::size_t width = 0;
  for (const auto& [left, right] : lines)
    width = std::max(width, std::min<std::size_t>(Columns(left), 60));
  for (const auto& [left, right] : lines) {
    const std::size_t used = Columns(left);
    out += left + std::string((used < width ? width - used : 0) + 2, ' ') + right + "\n";
  }
  return out;
}

}  // namespace zt::cli::internal
