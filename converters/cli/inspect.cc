// zt.cli — inspect: the listing of any file it reads, from headers alone.
module;

#include <unistd.h>

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :formats;
import :listing;
import :shards;
import :options;
import :support;
import zt.convert.shards;

namespace zt::cli::internal {
namespace {

// The text of an object that is not empty, without its end, for members that follow.
std::string Opened(const Json& json) {
  std::string text = Dump(json);
  text.resize(text.rfind('}'));
  return text;
}

void AddMember(std::string& opened, std::string_view key, const Json& json) {
  opened += ",\"" + std::string(key) + "\":" + Dump(json);
  opened.pop_back();  // the newline
}

void AddAttributes(std::string& opened, const Value::Map& attributes) {
  if (attributes.empty()) return;
  opened += ",\"attributes\":";
  AppendJson(attributes, opened);
}

std::string ObjectText(const ListedObject& object) {
  Json components = Json::array();
  for (const ListedComponent& c : object.components) {
    Json row = {{"role", c.role}, {"dtype", Name(c.element.dtype)}};
    if (!c.element.type.empty()) row["type"] = c.element.type;
    if (c.located) row["offset"] = c.offset;
    row["length"] = c.length;
    if (!c.file.empty()) row["shard"] = c.file;
    if (!c.unknown_encoding.empty()) {
      row["encoding"] = c.unknown_encoding;
      row["uncompressed_length"] = c.decoded_bytes;
    } else if (c.encoded) {
      row["encoding"] = Name(c.encoding);
    }
    if (!c.undecodable.empty()) row["undecodable"] = c.undecodable;
    if (c.encoding != Encoding::kRaw && c.decoded_bytes != kUnknownSize)
      row["uncompressed_length"] = c.decoded_bytes;
    if (c.encoding == Encoding::kPlanes) {
      row["planes"] = {{"rotate", c.parameters.rotate},
                       {"group", c.parameters.group},
                       {"chunk", c.parameters.frame_content}};
    }
    if (!c.digest.empty()) row["digest"] = c.digest;
    if (c.shares) row["shares"] = *c.shares;
    components.push_back(std::move(row));
  }
  std::string out =
      Opened({{"name", object.name}, {"shape", object.shape}, {"format", object.format}});
  AddAttributes(out, object.attributes);
  AddMember(out, "components", components);
  return out + "}";
}

// Object by object: the tree of 100,000 would take longer to build and to free than all the rest.
std::string ListingJson(const Listing& listing, const Common& common) {
  Json json = Envelope(common, true);
  json["file"] = listing.file;
  if (!listing.warnings.empty()) json["warnings"] = listing.warnings;
  json["format"] = listing.format;
  if (!listing.version.empty()) json["version"] = listing.version;
  std::string out = Opened(json);
  AddAttributes(out, listing.attributes);
  Json shards = Json::array();
  for (const StoredShard& shard : listing.shards)
    shards.push_back({{"name", shard.name}, {"size", shard.bytes}, {"digest", shard.digest}});
  if (!shards.empty()) AddMember(out, "shards", shards);
  const auto add = [&](std::string_view key, std::span<const ListedObject> objects) {
    out += ",\"" + std::string(key) + "\":[";
    for (const ListedObject& object : objects) {
      if (&object != objects.data()) out += ',';
      out += ObjectText(object);
    }
    out += ']';
  };
  add("objects", TensorsOf(listing));
  if (listing.files > 0) add("files", FilesOf(listing));
  return out + "}\n";
}

// Adds what a .zt file holds. `file` is its name among the shards of an index, or empty.
void AddObjects(const Manifest& manifest, const std::string& file, Listing& listing) {
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t> blobs;
  for (const StoredObject& object : manifest.objects) {
    ListedObject& listed = listing.objects.emplace_back(
        ListedObject{object.name, object.format, object.shape, object.attributes, {}});
    if (IsFile(object)) listed.path = FileEntryOf(Declare(object), 0).path;
    for (const StoredComponent& c : object.components) {
      ListedComponent row = {c};
      row.file = file;
      if (c.shard > 0) {
        const StoredShard& shard = manifest.shards[c.shard - 1];
        row.file = shard.name;
        row.offset -= shard.begin;
      }
      const auto index = static_cast<std::uint32_t>(listing.objects.size() - 1);
      const auto [blob, added] = blobs.emplace(std::pair(c.offset, c.length), index);
      if (!added && c.length > 0) row.shares = listing.objects[blob->second].name;
      listed.components.push_back(std::move(row));
    }
  }
}

std::string VersionOf(const Manifest& manifest) {
  return manifest.version_text.empty() ? std::string(Traits(manifest.version).text)
                                       : manifest.version_text;
}

// Warns of the shards in which tensors lie and that are not there, as reading them would say it. The root says all that is
// listed without them.
void WarnOfMissing(const Manifest& manifest, const std::string& path, const InputOptions& options,
                   Listing& listing) {
  std::set<std::uint32_t> used;
  for (const StoredObject& object : manifest.objects) {
    for (const StoredComponent& c : object.components) used.insert(c.shard);
  }
  const ShardFinder find = ShardsBeside(path, options);
  for (const std::uint32_t shard : used) {
    if (shard == 0) continue;
    const StoredShard& wanted = manifest.shards[shard - 1];
    const auto found = find(wanted);
    if (found.ok()) continue;
    const Status missing = Annotate(found.status(), "shard " + Quote(wanted.name));
    listing.warnings.emplace_back(Message(WithFile(missing, path)));
  }
}

StatusOr<Listing> ListZt(std::shared_ptr<ByteSource> bytes, const std::string& path,
                         const InputOptions& options) {
  ZT_ASSIGN_OR_RETURN(const auto reader, WithFile(Reader::Open(std::move(bytes)), path));
  const Manifest& manifest = reader->manifest();
  Listing listing;
  listing.format = "zt";
  listing.version = VersionOf(manifest);
  listing.attributes = manifest.attributes;
  listing.shards = manifest.shards;
  listing.warnings = manifest.warnings;
  AddObjects(manifest, "", listing);
  WarnOfMissing(manifest, path, options, listing);
  return listing;
}

// Shards as their index makes them one; opening the source has compared it with them both ways.
StatusOr<Listing> ListIndex(const std::string& path, const TensorSource& source) {
  ZT_ASSIGN_OR_RETURN(const ShardIndex index, ReadShardIndex(path));
  std::map<std::string, ShardIndex::File> shards = index.files;
  for (const auto& [tensor, shard] : index.weight_map) shards.try_emplace(shard);
  Listing listing;
  listing.format = "zt";
  listing.attributes = source.attributes();
  listing.warnings = source.warnings();
  for (const auto& [name, file] : shards) {
    const auto reader = OpenReader((std::filesystem::path(path).parent_path() / name).string());
    if (!reader.ok()) return Annotate(reader.status(), name);
    const Manifest& manifest = (*reader)->manifest();
    if (listing.version.empty()) listing.version = VersionOf(manifest);
    listing.shards.push_back(
        {.name = name, .bytes = *(*reader)->bytes().size(), .digest = file.digest});
    AddObjects(manifest, name, listing);
  }
  return listing;
}

Listing ListSource(const TensorSource& source) {
  Listing listing;
  listing.format = source.format();
  listing.attributes = source.attributes();
  listing.warnings = source.warnings();
  std::map<Identity, std::uint32_t> known;
  for (std::uint32_t o = 0; o < source.objects().size(); ++o) {
    const Object& object = source.objects()[o];
    ListedObject& listed = listing.objects.emplace_back(
        ListedObject{object.name, object.format, object.shape, object.attributes, {}});
    if (IsFile(object)) listed.path = FileEntryOf(object, o).path;
    const Status readable = source.CheckReadable(o);
    for (std::uint32_t i = 0; i < object.components.size(); ++i) {
      const Component& c = object.components[i];
      const auto extent = source.extent({o, i});
      ListedComponent row;
      row.role = c.role;
      row.element = c.element;
      row.length = row.decoded_bytes = c.bytes;
      row.undecodable = Fact(readable);
      row.encoded = false;
      row.located = extent && extent->bytes != nullptr;
      if (row.located) row.offset = extent->offset;
      if (const auto identity = source.identity({o, i}); identity && c.bytes > 0) {
        const auto [first, added] = known.emplace(*identity, o);
        if (!added) row.shares = listing.objects[first->second].name;
      }
      listed.components.push_back(std::move(row));
    }
  }
  return listing;
}

// .zt files by their manifests, which say how things are stored; all else as a source.
StatusOr<Listing> List(const Args& args) {
  std::string path = args.file();
  if (args.file() != "-" && (args.from.empty() || args.from == "zt")) {
    if (IsFolder(path)) {
      ZT_ASSIGN_OR_RETURN(const auto found, WithFile(FindZtIn(path, args), path));
      if (found) path = *found;
    }
    const auto bytes = OpenFile(path);
    // A server that refuses is not asked again.
    if (!bytes.ok() && IsUrl(path) && !IsFolder(path)) return WithFile(bytes.status(), path);
    if (bytes.ok() && !IsIndexPath(path)) {
      const auto head = Peek(**bytes, kHeadBytes);
      const bool zt = head.ok() && FindFormat("zt")->recognise(*head);
      if (zt || !args.from.empty()) return ListZt(*bytes, path, args);
    }
  }
  ZT_ASSIGN_OR_RETURN(const auto source, OpenInputs({path}, args));
  if (!IsIndexPath(path)) return ListSource(*source);
  return WithFile(ListIndex(path, *source), path);
}

// The listing as a page in a file of its own.
Status WritePage(const Listing& listing, const Args& args) {
  const std::string page = PageText(ListingJson(listing, args));
  ZT_RETURN_IF_ERROR(
      WriteText(args.output, page, {.overwrite = args.force, .sync = !args.no_sync}));
  if (args.json) {
    Json json = Envelope(args, true);
    json["file"] = listing.file;
    json["output"] = {{"path", args.output}, {"bytes", page.size()}};
    return PrintJson(args, json);
  }
  if (!args.quiet) {
    Note(args.output + ": " + Counted(TensorsOf(listing).size(), "tensor") + ", " +
         HumanBytes(page.size()));
  }
  return OkStatus();
}

Status Inspect(const Args& args) {
  if (!args.output.empty()) ZT_RETURN_IF_ERROR(CheckOutput(args.output, args.force));
  ZT_ASSIGN_OR_RETURN(Listing listing, List(args));
  listing.file = args.file();
  WarnAll(args, listing.warnings);
  Sort(listing, args.sort);
  if (!args.output.empty()) return WritePage(listing, args);
  if (args.json) return Print(ListingJson(listing, args));
  TextOptions options = {.verbose = args.verbose};
  if (::isatty(STDOUT_FILENO) != 0) options.columns = TerminalColumns(STDOUT_FILENO, 80);
  return Print(args.tree ? TreeText(listing, options) : TableText(listing, options));
}

}  // namespace

int RunInspect(const Args& args) { return Done(args, Inspect(args)); }

}  // namespace zt::cli::internal
