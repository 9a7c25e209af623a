// zt.cli:listing — the tree: names folded by their dots.
module;

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

module zt.cli;

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
  std::unordered_map<std::string_view, Node*> by_part;
  // Of all tensors below, this one included.
  std::uint64_t tensors = 0, parameters = 0, bytes = 0;
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

void Sum(Node& node) {
  if (node.object != nullptr) {
    node.tensors = 1;
    node.parameters = node.object->parameters();
    node.bytes = node.object->stored();
    node.likeness = std::hash<std::string>()(node.object->type() + ToString(node.object->shape));
  }
  for (const auto& child : node.children) {
    Sum(*child);
    node.tensors += child->tensors;
    node.parameters += child->parameters;
    node.bytes += child->bytes;
    node.likeness =
        Mix(Mix(node.likeness, std::hash<std::string_view>()(child->part)), child->likeness);
  }
}

bool IsNumber(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// How many children from `first` on are numbered, alike and not tensors themselves.
std::size_t Alike(const Node& node, std::size_t first) {
  const Node& like = *node.children[first];
  if (!IsNumber(like.part) || like.object != nullptr) return 1;
  std::size_t count = 1;
  while (first + count < node.children.size()) {
    const Node& next = *node.children[first + count];
    if (!IsNumber(next.part) || next.object != nullptr || next.likeness != like.likeness ||
        next.tensors != like.tensors || next.parameters != like.parameters) {
      break;
    }
    ++count;
  }
  return count;
}

void Draw(const Node& node, std::size_t depth,
          std::vector<std::pair<std::string, std::string>>& out) {
  for (std::size_t i = 0; i < node.children.size();) {
    const std::size_t count = Alike(node, i);
    const Node* child = node.children[i].get();
    std::string name(child->part);
    if (count > 1) name += "-" + std::string(node.children[i + count - 1]->part);
    while (child->object == nullptr &&
           child->children.size() == 1) {  // no line for each of a chain
      child = child->children.front().get();
      name += "." + std::string(child->part);
    }
    std::string right;
    if (child->object != nullptr && child->children.empty() && count == 1) {
      right = child->object->type() + " " + ToString(child->object->shape) + "  " +
              HumanBytes(child->bytes);
    } else {
      if (count > 1) right = std::to_string(count) + " alike, each ";
      right += Counted(child->tensors, "tensor") + ", " + std::to_string(child->parameters) +
               " parameters, " + HumanBytes(child->bytes);
    }
    out.emplace_back(std::string(2 * depth, ' ') + Printable(name), Printable(right));
    Draw(*child, depth + 1, out);
    i += count;
  }
}

}  // namespace

std::string TreeText(const Listing& listing, const TextOptions&) {
  Node root;
  for (const ListedObject& object : listing.objects) Insert(root, object);
  Sum(root);
  std::vector<std::pair<std::string, std::string>> lines;
  Draw(root, 0, lines);
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
