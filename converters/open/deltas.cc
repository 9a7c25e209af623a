// zt.open:deltas — looks for bases: among those that are given, and beside the delta.
module;

#include "core/status_macros.h"

module zt.open;

import zt.std;
import :deltas;
import :options;
import zt.convert.delta;
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
  const std::size_t slash = file.rfind('/');
  return slash == file.npos ? name : file.substr(0, slash + 1) + name;
}

// The deltas on the way to the base at the end, and what is still to be used.
class Chain {
 public:
  Chain(const SourceOptions& options, const Opener& open)
      : options_(options), open_(open), unused_(options.base) {}

  StatusOr<std::unique_ptr<TensorSource>> Resolve(std::unique_ptr<TensorSource> source,
                                                  const std::string& path) {
    if (source->format() != "zt") return source;
    ZT_ASSIGN_OR_RETURN(const auto origin, WithFile(FindDelta(source->attributes()), path));
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
      return WithFile(InvalidArgument("more than " + std::to_string(kMostDeltas) +
                                      " deltas stand on each other; convert one of them to a whole "
                                      "file"),
                      path);
    seen_.push_back(here);
    ZT_ASSIGN_OR_RETURN(const std::string base, WithFile(Find(*origin, path), path));
    std::erase(unused_, base);
    if (options_.used_bases != nullptr) options_.used_bases->push_back(base);
    ZT_ASSIGN_OR_RETURN(auto opened, OpenBase(base));
    ZT_ASSIGN_OR_RETURN(opened, Resolve(std::move(opened), base));
    return WithFile(
        OpenDelta(std::move(source), *origin, std::move(opened), base, !options_.as_stored), path);
  }

 private:
  StatusOr<std::unique_ptr<TensorSource>> OpenBase(const std::string& path) const {
    SourceOptions options = options_;
    options.as_stored = true;
    options.format.clear();
    options.left_out = nullptr;
    return WithFile(open_(path, options), path);
  }

  // By name or id among those that are given; else beside the delta; else any that is given.
  StatusOr<std::string> Find(const DeltaOrigin& origin, const std::string& path) const {
    std::vector<std::string> named;
    for (const std::string& base : unused_) {
      if (BaseName(base) == origin.base_name) named.push_back(base);
    }
    if (named.size() == 1) return named.front();
    if (unused_.size() > 1 && !origin.base_id.empty()) {
      for (const std::string& base : named.empty() ? unused_ : named) {
        const auto opened = OpenBase(base);
        if (opened.ok() && IdOf(**opened) == origin.base_id) return base;
      }
    }
    if (!named.empty()) return named.front();
    std::vector<std::string> looked(unused_);
    const auto fits = [](char c) { return c != '/' && static_cast<unsigned char>(c) >= 0x20; };
    const bool plain = !origin.base_name.empty() && origin.base_name != "." &&
                       origin.base_name != ".." && std::ranges::all_of(origin.base_name, fits);
    if (plain && !path.empty()) {
      const std::string beside = Beside(path, origin.base_name);
      const bool is_above = std::ranges::find(seen_, Canonical(beside)) != seen_.end();
      if (options_.store->Exists(beside) && (unused_.empty() || !is_above)) return beside;
      looked.push_back(beside);
    }
    if (!unused_.empty()) return unused_.front();
    return InvalidArgument(
        "it is " + (path.empty() ? "a delta" : Described(BaseName(path), origin.id)) +
        ", a delta of " + Described(origin.base_name, origin.base_id) +
        ", which is its base and was not found" +
        (looked.empty() ? "" : ": there is no " + Joined(looked, "and")) + "; name the base");
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
