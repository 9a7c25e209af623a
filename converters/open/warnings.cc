// zt.open:files — warnings of inputs that are less than they seem.
module zt.open;

import zt.std;
import :files;
import zt.convert.parts;
import zt.convert.shards;
import zt.core;
import zt.source;
import zt.text;

namespace zt::open::internal {
namespace {

namespace fs = std::filesystem;

// The names of all that lies in a folder; none if it cannot be listed.
std::vector<std::string> SiblingsIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  return names;
}

}  // namespace

void WarnOfRank(const std::string& path, TensorSource& source) {
  const bool says = HoldsParts(source) || !source.part_files().empty();
  if (source.format() != "torch" || says || IsUrl(path) || IsStandardInput(path)) return;
  std::error_code error;
  fs::path above;
  for (const fs::path& each : fs::absolute(path, error)) {
    const auto own = ParseRankName(each.string());
    std::set<std::uint64_t> ranks;
    for (const std::string& name : own ? SiblingsIn(above) : std::vector<std::string>()) {
      const auto other = ParseRankName(name);
      if (other && other->set == own->set) ranks.insert(other->rank);
    }
    if (ranks.size() > 1 && ranks.contains(0)) {
      source.AddWarning(each.string() + " is one of " + std::to_string(ranks.size()) +
                        " that ranks wrote (" + own->set +
                        "): its tensors may be parts, and nothing in it says of what");
      return;
    }
    above /= each;
  }
}

void WarnOfNothing(TensorSource& source) {
  const auto empty = std::ranges::count_if(source.objects(), [](const Object& object) {
    return object.format == "dense" && object.shape == Shape{0} &&
           IsFloat(object.components.front().element.dtype);
  });
  const auto count = static_cast<std::size_t>(empty);
  if (count < 2 || 2 * count < source.objects().size() ||
      (source.format() != "torch" && source.format() != "safetensors"))
    return;
  source.AddWarning(std::to_string(count) + " of " + Counted(source.objects().size(), "tensor") +
                    " have no elements, as models that are saved under DeepSpeed's ZeRO-3: the "
                    "weights are in files of its ranks, which its zero_to_fp32.py puts together");
}

}  // namespace zt::open::internal
