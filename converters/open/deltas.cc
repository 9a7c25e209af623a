// zt.open:deltas — looks for bases: among those that are given, and beside the delta.
module;

#include "core/status_macros.h"

module zt.open;

import zt.std;
import :deltas;
import :options;
import zt.convert.composite;
import zt.convert.delta;
import zt.convert.diskdelta;
import zt.convert.shards;
import zt.core;
import zt.format;
import zt.source;
import zt.text;

namespace zt::open::internal {
namespace {

namespace fs = std::filesystem;

// One spelling for each file.
std::string Canonical(const std::string& path) {
  std::error_code error;
  if (IsUrl(path)) return path;
  const fs::path canonical = fs::weakly_canonical(path, error);
  return error ? path : canonical.string();
}

// The path of `name` in the folder of `path`.
std::string Beside(const std::string& path, const std::string& name) {
  std::string file = path;
  while (file.size() > 1 && file.ends_with('/')) file.pop_back();
  const std::size_t at = file.rfind('/') + 1;  // 0 if there is none
  const std::string last = file.substr(at);
  return last == "." || last == ".." ? file + "/../" + name : file.substr(0, at) + name;
}

// True if a file may have this name: one that a delta states leads nowhere else.
bool IsFileName(std::string_view name) {
  const auto fits = [](char c) { return c != '/' && static_cast<unsigned char>(c) >= 0x20; };
  return !name.empty() && name != "." && name != ".." && std::ranges::all_of(name, fits);
}

// The deltas on the way to the base at the end, and what is still to be used.
class Chain {
 public:
  Chain(const SourceOptions& options, const Opener& open)
      : options_(options), open_(open), unused_(options.base) {}

  StatusOr<std::unique_ptr<TensorSource>> Resolve(std::unique_ptr<TensorSource> source,
                                                  const std::string& given) {
    ZT_ASSIGN_OR_RETURN(const auto disk, WithFile(FormOf(*source), given));
    const std::string path = disk ? FolderOf(given) : given;
    if (!disk && source->format() != "zt") return source;
    std::optional<DeltaOrigin> origin;
    if (disk) {
      ZT_ASSIGN_OR_RETURN(std::string base, WithFile(BaseOf(*disk, path), path));
      origin = DeltaOrigin{"", std::move(base), ""};
    } else {
      ZT_ASSIGN_OR_RETURN(origin, WithFile(FindDelta(source->attributes()), path));
    }
    if (!origin) {
      for (const Object& object : source->objects()) {
        if (object.format != kDeltaFormat) continue;
        return WithFile(WithTensor(InvalidData("it is what differs from a base, and the file does "
                                               "not say which"),
                                   object.name),
                        path);
      }
      return source;
    }
    const std::string here = Canonical(path);
    const std::string described = Described(origin->base_name, origin->base_id);
    if (!path.empty() && std::ranges::find(seen_, here) != seen_.end())
      return WithFile(
          InvalidArgument("it is in the chain of its own bases: it is " +
                          Described(BaseName(path), origin->id) + ", a delta of " + described),
          path);
    if (seen_.size() == kMostDeltas)
      return WithFile(
          InvalidArgument("more than " + std::to_string(kMostDeltas) +
                          " deltas stand on each other; write one of them as a whole model, "
                          "and give that as the base"),
          path);
    seen_.push_back(here);
    if (options_.base_in_memory && !disk)
      return WithFile(OpenDelta(std::move(source), *origin, nullptr, ""), path);
    ZT_ASSIGN_OR_RETURN(const std::string base,
                        WithFile(Find(*origin, path, disk ? source.get() : nullptr), path));
    std::erase(unused_, base);
    if (options_.used_bases != nullptr) options_.used_bases->push_back(base);
    // All of the base of a folder is used, by its own digests.
    ZT_ASSIGN_OR_RETURN(auto opened, OpenBase(base, !disk));
    ZT_ASSIGN_OR_RETURN(const auto below, WithFile(FormOf(*opened), base));
    ZT_ASSIGN_OR_RETURN(opened, Resolve(std::move(opened), base));
    if (disk) {
      const std::string known = below ? below->version : KnownVersion(base, origin->base_name);
      return WithFile(OpenDiskDelta(std::move(source), std::move(opened), base, known), path);
    }
    return WithFile(OpenDelta(std::move(source), *origin, std::move(opened), base), path);
  }

 private:
  // Of a "disk delta", which may be named by its index.
  static std::string FolderOf(const std::string& path) {
    if (!zt::IsIndexOf(path, ".safetensors")) return path;
    const std::string folder = path.substr(0, path.size() - BaseName(path).size());
    return folder.empty() ? "." : folder;
  }
  static StatusOr<std::optional<DiskForm>> FormOf(const TensorSource& source) {
    if (source.format() == "zt") return std::nullopt;
    return FindDiskDelta(source.attributes());
  }

  // The name that the base of a "disk delta" has beside it: that of the delta, with its version. The
  // base of "v10" may be "v9" or "v09".
  StatusOr<std::string> BaseOf(const DiskForm& form, const std::string& path) const {
    const std::string name = BaseName(path);
    const auto below = VersionNumber(form.base), own = VersionNumber(name);
    if (!below || !own || own != VersionNumber(form.version)) return form.base;
    const std::string stem(VersionStem(name)), plain = stem + std::to_string(*below);
    std::string padded = plain;
    if (plain.size() < name.size()) padded.insert(stem.size(), name.size() - plain.size(), '0');
    const auto is_known = [&](const std::string& each) -> StatusOr<bool> {
      if (std::ranges::find(unused_, each, BaseName) != unused_.end()) return true;
      return IsThere(Beside(path, each));
    };
    if (padded == plain || name[stem.size()] == '0') return padded;
    ZT_ASSIGN_OR_RETURN(const bool has_padded, is_known(padded));
    if (has_padded) return padded;
    ZT_ASSIGN_OR_RETURN(const bool has_plain, is_known(plain));
    return has_plain ? plain : padded;
  }

  // The version of a base, by what sglang keeps in a folder that it changes, or by a name as
  // `wanted`; empty if neither tells.
  std::string KnownVersion(const std::string& base, const std::string& wanted) const {
    constexpr std::uint64_t kMostState = 4096;
    const fs::path state = fs::path(base) / ".weight_sync" / "state.json";
    if (!IsUrl(base)) {
      const auto bytes = options_.store->Open(state.string());
      const auto text = bytes.ok() ? ReadAll(**bytes, kMostState) : bytes.status();
      const auto json = text.ok() ? ParseJsonObject(*text) : text.status();
      const Value* const version = json.ok() ? FindMember(*json, "version") : nullptr;
      if (version != nullptr && version->AsString() != nullptr) return *version->AsString();
    }
    const std::string name = BaseName(base);
    const std::string_view stem = VersionStem(wanted);
    return !stem.empty() && VersionStem(name) == stem ? name.substr(stem.size()) : "";
  }

  StatusOr<std::unique_ptr<TensorSource>> OpenBase(const std::string& path,
                                                   bool as_stored = true) const {
    SourceOptions options = options_;
    options.as_stored = as_stored;
    options.format.clear();
    options.left_out = nullptr;
    return WithFile(open_(path, options), path);
  }

  // The first of those that are given whose tensors fit a "disk delta"; else the one beside it.
  StatusOr<std::string> FindFitting(TensorSource& disk, const std::string& beside) const {
    for (const std::string& base : unused_) {
      const auto opened = OpenBase(base, false);
      ZT_RETURN_IF_UNAVAILABLE(opened.status());
      if (!opened.ok() || (*opened)->format() == "zt") continue;
      ZT_ASSIGN_OR_RETURN(const bool fits, WithFile(IsDiskBase(disk, **opened), base));
      if (fits) return base;
    }
    return beside;
  }

  // The one beside the delta. If that is none itself, the first of those that are given of which the
  // delta makes a model comes first.
  StatusOr<std::string> FindMade(const DeltaOrigin& origin, const std::string& path,
                                 const std::string& beside) const {
    if (unused_.empty()) return beside;
    ZT_ASSIGN_OR_RETURN(const auto found, OpenBase(beside));
    ZT_ASSIGN_OR_RETURN(const auto below, WithFile(FindDelta(found->attributes()), beside));
    if (below) return beside;
    for (const std::string& base : unused_) {
      ZT_ASSIGN_OR_RETURN(const bool makes, Makes(origin, path, base));
      if (makes) return base;
    }
    return beside;
  }

  // True if some chunks of the delta, made of this base, have their digests.
  StatusOr<bool> Makes(const DeltaOrigin& origin, const std::string& path,
                       const std::string& base) const {
    constexpr std::size_t kTried = 16;
    const auto fails = [](const Status& status) -> StatusOr<bool> {
      ZT_RETURN_IF_UNAVAILABLE(status);
      return false;
    };
    auto opened = OpenBase(base);
    if (!opened.ok()) return fails(opened.status());
    ZT_ASSIGN_OR_RETURN(auto delta, OpenBase(path));
    const auto model = OpenDelta(std::move(delta), origin, *std::move(opened), base);
    if (!model.ok()) return fails(model.status());
    const std::vector<Object>& objects = (*model)->objects();
    for (std::size_t i = 0; i < objects.size(); i += objects.size() / kTried + 1) {
      std::byte first;
      if (objects[i].components.front().bytes == 0) continue;
      const Status read = (*model)->Read({static_cast<std::uint32_t>(i), 0}, 0, {&first, 1});
      if (!read.ok()) return fails(read);
    }
    return true;
  }

  // By name or id among those that are given; else beside the delta; else any that is given. `disk`
  // is the delta, if it is one of folders, which do not say their base's id.
  StatusOr<std::string> Find(const DeltaOrigin& origin, const std::string& path,
                             TensorSource* disk) const {
    std::vector<std::string> named;
    for (const std::string& base : unused_) {
      if (BaseName(base) == origin.base_name) named.push_back(base);
    }
    if (named.size() == 1) return named.front();
    std::vector<std::string> looked(unused_);
    std::string beside;  // empty if there is none
    if (IsFileName(origin.base_name) && !path.empty()) {
      beside = Beside(path, origin.base_name);
      ZT_ASSIGN_OR_RETURN(const bool is_there, WithFile(IsThere(beside), beside));
      if (!is_there) looked.push_back(std::exchange(beside, ""));
    }
    const bool choose = unused_.size() > 1 || !beside.empty();
    if (choose && !origin.base_id.empty()) {
      for (const std::string& base : named.empty() ? unused_ : named) {
        const auto opened = OpenBase(base);
        ZT_RETURN_IF_UNAVAILABLE(opened.status());
        if (opened.ok() && IdOf(**opened) == origin.base_id) return base;
      }
    }
    if (!named.empty()) return named.front();
    const bool is_above = std::ranges::find(seen_, Canonical(beside)) != seen_.end();
    if (!beside.empty() && (unused_.empty() || !is_above))
      return disk == nullptr ? FindMade(origin, path, beside) : FindFitting(*disk, beside);
    if (!unused_.empty()) return unused_.front();
    const auto described = [&](const std::string& name, const std::string& id) {
      return disk == nullptr ? Described(name, id) : Quote(name);
    };
    return WithAdvice(
        InvalidArgument("it is " +
                        (path.empty() ? "" : described(BaseName(path), origin.id) + ", ") +
                        "a delta of " + described(origin.base_name, origin.base_id) +
                        ", which is its base and was not found" +
                        (looked.empty() ? "" : ": there is no " + Joined(looked, "and"))),
        Advice::kBase);
  }

  // What a server does not tell is there if no other base is given: opening it tells why.
  StatusOr<bool> IsThere(const std::string& beside) const {
    Store& store = *options_.store;
    ZT_ASSIGN_OR_RETURN(const bool file,
                        unused_.empty() ? store.HasName(beside) : store.Exists(beside));
    if (file) return true;
    return store.IsFolder(beside);
  }

  // Of a delta, its own.
  static std::string IdOf(const TensorSource& source) {
    const auto origin = FindDelta(source.attributes());
    return origin.ok() && *origin ? (*origin)->id : KnownId(source);
  }

  const SourceOptions& options_;
  const Opener& open_;
  std::vector<std::string> unused_, seen_;
};

}  // namespace

StatusOr<std::unique_ptr<TensorSource>> ResolveDelta(std::unique_ptr<TensorSource> source,
                                                     const std::string& path,
                                                     const SourceOptions& options,
                                                     const Opener& open) {
  if (options.deltas_as_stored) return source;
  return Chain(options, open).Resolve(std::move(source), path);
}

}  // namespace zt::open::internal
