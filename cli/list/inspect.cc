// zt.cli — inspect: the listing of any file it reads, from headers alone, and with --stats the
// figures of its numbers.
module;

#include <unistd.h>

#include "cli/list/page.h"
#include "core/name_table.h"
#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :listing;
import :numbers;
import :options;
import :rules;
import :shards;
import :paths;
import :signals;
import zt.convert.delta;

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

// JSON in which integers beyond 2^53, which a page would round, are texts.
std::string WithExactIntegers(std::string_view json) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 53;
  std::string out;
  for (std::size_t i = 0, end; i < json.size(); i = end) {
    end = i + 1;
    if (json[i] == '"') {
      while (json[end] != '"') end += json[end] == '\\' ? 2 : 1;
      ++end;
    } else if (json[i] == '-' || (json[i] >= '0' && json[i] <= '9')) {
      end = std::min(json.find_first_not_of("+-.0123456789Ee", i), json.size());
      const std::size_t sign = json[i] == '-' ? 1 : 0;
      const auto number = ParseNumber(json.substr(i + sign, end - i - sign));
      if (number && *number > kMost) {
        out.append("\"").append(json, i, end - i).append("\"");
        continue;
      }
    }
    out.append(json, i, end - i);
  }
  return out;
}

void AddAttributes(std::string& opened, const Value::Map& attributes, bool page) {
  if (attributes.empty()) return;
  std::string json;
  AppendJson(attributes, json);
  opened += ",\"attributes\":" + (page ? WithExactIntegers(json) : json);
}

std::string ObjectText(const ListedObject& object, bool page) {
  Json components = Json::array();
  for (const ListedComponent& c : object.components) {
    Json row = {{"role", c.role}, {"dtype", Name(c.element.dtype)}};
    if (!c.element.type.empty()) row["type"] = c.element.type;
    if (c.located) row["offset"] = c.offset;
    row["length"] = c.length;
    if (!c.file.empty()) row["file"] = c.file;
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
  std::string out = Opened({{"name", object.name},
                            {"shape", object.shape},
                            {"format", object.format},
                            {"kind", object.type()},
                            {"parameters", object.parameters()}});
  if (!object.path.empty()) AddMember(out, "path", object.path);
  AddAttributes(out, object.attributes, page);
  if (!object.quantized.empty()) AddMember(out, "quantized", object.quantized);
  AddMember(out, "components", components);
  if (object.stats == nullptr) return out + "}";
  std::string stats;
  AddMember(stats, "stats", ToJson(*object.stats));
  return out + (page ? WithExactIntegers(stats) : stats) + "}";
}

// The members of a file, from its brace on, for a page or for programs. Object by object: the tree
// of 100,000 would take longer to build and to free than all the rest.
std::string ListingMembers(const Listing& listing, bool page) {
  Json json = {{"file", listing.file}};
  if (!listing.warnings.empty()) json["warnings"] = listing.warnings;
  json["format"] = listing.format;
  if (!listing.version.empty()) json["version"] = listing.version;
  std::string out = Opened(json);
  AddAttributes(out, listing.attributes, page);
  Json shards = Json::array();
  for (const ShardFile& shard : listing.shards)
    shards.push_back({{"path", shard.name}, {"bytes", shard.bytes}, {"digest", shard.digest}});
  if (!shards.empty()) AddMember(out, "shard_files", shards);
  if (!listing.quantized.empty()) AddMember(out, "quantized", listing.quantized);
  const auto add = [&](std::string_view key, std::span<const ListedObject> objects) {
    out += ",\"" + std::string(key) + "\":[";
    for (const ListedObject& object : objects) {
      if (&object != objects.data()) out += ',';
      out += ObjectText(object, page);
    }
    out += ']';
  };
  add("objects", TensorsOf(listing));
  if (listing.files > 0) add("files", FilesOf(listing));
  return out;
}

// The members of one file's listing; for several files, an array of them.
std::string ListingJson(std::span<const Listing> listings, const Common& common,
                        bool page = false) {
  std::string out = Opened(Envelope(common, true)) + ",";
  if (listings.size() == 1) return out + ListingMembers(listings[0], page).substr(1) + "}\n";
  out += "\"listings\":[";
  for (const Listing& listing : listings) {
    if (&listing != listings.data()) out += ',';
    out += ListingMembers(listing, page) + "}";
  }
  return out + "]}\n";
}

// Warns of missing shards that hold tensors, with the error that reading them would give. The root
// alone is enough for the listing.
void WarnOfMissing(const TensorSource& source, const InputOptions& options, Listing& listing) {
  std::set<std::string_view> used;
  for (const ListedObject& object : listing.objects) {
    for (const ListedComponent& each : object.components) used.insert(each.file);
  }
  const std::string& path = source.file({});
  const ShardFinder find = ShardsBeside(path, options);
  for (const ShardFile& shard : source.shards()) {
    if (!used.contains(Repeated(shard.name))) continue;
    const auto found = find({.name = shard.name, .bytes = shard.bytes, .digest = shard.digest});
    if (found.ok()) continue;
    const Status missing = Annotate(found.status(), "shard " + Quote(shard.name));
    listing.warnings.emplace_back(Message(WithFile(missing, path)));
  }
}

ListedComponent ListComponent(const TensorSource& source, ComponentId id) {
  const Component& c = source.objects()[id.object].components[id.component];
  ListedComponent row;
  row.role = c.role;
  row.element = c.element;
  row.decoded_bytes = c.bytes;
  if (const auto stored = source.stored(id)) {
    row.encoding = stored->encoding;
    row.parameters = stored->parameters;
    row.unknown_encoding = stored->unknown_encoding;
    row.undecodable = stored->undecodable;
    row.digest = stored->digest;
    row.big_endian = stored->big_endian;
    row.offset = stored->offset;
    row.length = stored->length;
    row.file = Repeated(stored->shard);
    return row;
  }
  const auto extent = source.extent(id);
  row.length = c.bytes;
  row.undecodable = Fact(source.CheckReadable(id.object));
  row.encoded = false;
  row.located = extent && extent->bytes != nullptr;
  if (row.located) row.offset = extent->offset;
  return row;
}

Listing List(const Common& common, const TensorSource& source, bool indexed) {
  Listing listing;
  listing.format = source.format();
  listing.version = source.version();
  listing.attributes = source.attributes();
  listing.warnings = WordedWarnings(common, source);
  listing.shards = source.shards();
  std::map<Identity, std::uint32_t> known;
  for (std::uint32_t o = 0; o < source.objects().size(); ++o) {
    const Object& object = source.objects()[o];
    ListedObject& listed = listing.objects.emplace_back(
        ListedObject{object.name, object.format, object.shape, object.attributes, {}});
    listed.path = IsFile(object) ? FileEntryOf(object, o).path : DeltaFilePath(object);
    for (std::uint32_t i = 0; i < object.components.size(); ++i) {
      ListedComponent row = ListComponent(source, {o, i});
      if (indexed) row.file = std::filesystem::path(source.file({o, i})).filename().string();
      if (const auto identity = source.identity({o, i}); identity && row.length > 0) {
        const auto [first, added] = known.emplace(*identity, o);
        if (!added) row.shares = Repeated(listing.objects[first->second].name);
      }
      listed.components.push_back(std::move(row));
    }
  }
  return listing;
}

// The listing, and the source that it is made of.
StatusOr<Listing> List(const Args& args, std::unique_ptr<TensorSource>& opened) {
  SourceOptions options = args.source_options();
  options.as_stored = true;
  options.deltas_as_stored = args.base.empty() && !args.stats;
  ZT_ASSIGN_OR_RETURN(opened, OpenInputs({args.file()}, options));
  const Reader* const root = ReaderOf(*opened);
  const bool is_root = root != nullptr && !root->manifest().shards.empty();
  Listing listing = List(args, *opened, !is_root && !opened->shards().empty());
  if (is_root) WarnOfMissing(*opened, options, listing);
  return listing;
}

// Adds what is known of quantized tensors.
Status AddQuantized(const Args& args, TensorSource& opened, Listing& listing) {
  ZT_ASSIGN_OR_RETURN(const auto quantized, QuantizedIn(args, opened));
  for (const QuantizedTensor& each : quantized) {
    ++listing.quantized[each.scheme];
    ListedObject& codes = listing.objects[each.members.front()];  // in the order of the source
    if (codes.name == opened.objects()[each.members.front()].name) codes.quantized = each.scheme;
  }
  return OkStatus();
}

// The operands. The first is a file, and each other one that exists; the rest are words that mean
// tensors.
struct Operands {
  std::vector<std::string> files, words;
};

StatusOr<Operands> Divide(const Args& args) {
  Operands operands;
  for (const std::string& each : args.inputs) {
    bool file = operands.files.empty() || IsStandardInput(each) || IsUrl(each);
    if (!file) {
      ZT_ASSIGN_OR_RETURN(file, WithFile(TheStore().Exists(each), each));
    }
    (file ? operands.files : operands.words).push_back(each);
  }
  return operands;
}

// A file as it is listed, and its source if the figures come from it.
struct Listed {
  Listing listing;
  std::unique_ptr<TensorSource> source = nullptr;
};

// Leaves the tensors that the words, --include and --exclude select; the words leave no files.
Status Select(const Args& args, const Operands& operands, std::vector<Listed>& opened) {
  Selector selector(args);
  Patterns words("", operands.words);
  if (words.empty() && !selector.active()) return OkStatus();
  std::vector<std::string> names;  // the listings' own move as others are left out
  for (const auto& [listing, source] : opened) {
    for (const ListedObject& each : listing.objects) {
      if (each.path.empty()) names.push_back(each.name);
    }
  }
  std::vector<std::string_view> sorted(names.begin(), names.end());
  std::ranges::sort(sorted);
  const std::string& file = operands.files.front();
  ZT_RETURN_IF_ERROR(WithFile(words.Resolve(sorted), file));
  ZT_RETURN_IF_ERROR(WithFile(selector.Resolve(sorted), file));
  std::size_t left = 0;
  for (auto& [listing, source] : opened) {
    listing.tensors = static_cast<std::uint64_t>(
        std::ranges::count(listing.objects, std::string(), &ListedObject::path));
    std::erase_if(listing.objects, [&](const ListedObject& each) {
      if (!each.path.empty()) return !words.empty();
      const bool meant = words.empty() || words.Match(each.name);
      return !selector.Selects(each.name) || !meant;
    });
    left += static_cast<std::size_t>(
        std::ranges::count(listing.objects, std::string(), &ListedObject::path));
  }
  for (std::size_t i = 0; i < operands.words.size(); ++i) {
    const Pattern& pattern = words.uses()[i].pattern;
    if (words.uses()[i].tensors > 0) continue;
    const bool one = opened.size() == 1;
    const Status none = InvalidArgument("there is no file " + pattern.text() + ", nor a tensor " +
                                        (one ? "" : "in these files ") + "that it matches" +
                                        MeantOrListed(operands.words[i], sorted));
    return one ? WithFile(none, file) : none;
  }
  WarnAll(args, selector.Warnings());
  return left > 0 ? OkStatus() : selector.CheckAnyLeft(file);
}

// Adds the figures of the listed tensors. `source` is null if they have to be opened again.
Status AddStats(const Args& args, std::unique_ptr<TensorSource> source, Listing& listing) {
  if (source == nullptr) {
    ZT_ASSIGN_OR_RETURN(source, OpenInputs({args.file()}, args.source_options()));
  }
  std::unordered_map<std::string_view, ListedObject*, zt::internal::NameHash> listed;
  const auto none = std::make_shared<const TensorStats>(TensorStats{.skipped = "it is not served"});
  for (ListedObject& each : listing.objects) {
    each.stats = each.path.empty() ? none : nullptr;
    if (each.path.empty()) listed.emplace(each.name, &each);
  }
  std::vector<std::uint32_t> objects;
  for (std::uint32_t i = 0; i < source->objects().size(); ++i) {
    if (listed.contains(source->objects()[i].name)) objects.push_back(i);
  }
  const std::size_t told = source->warnings().size();
  ZT_ASSIGN_OR_RETURN(const auto stats, Measure(*source, objects, args));
  const std::vector<std::string> lines = WordedWarnings(args, *source, told);
  WarnAll(args, lines);
  listing.warnings.insert(listing.warnings.end(), lines.begin(), lines.end());
  for (std::size_t i = 0; i < objects.size(); ++i)
    listed.at(source->objects()[objects[i]].name)->stats = stats[i];
  return OkStatus();
}

StatusOr<std::vector<Listing>> ListAll(const Args& args) {
  ZT_ASSIGN_OR_RETURN(const Operands operands, Divide(args));
  Args one = args;  // copied once: there may be thousands of operands
  const auto of = [&](const std::string& file) -> const Args& {
    one.inputs = {file};
    return one;
  };
  std::vector<Listed> opened;
  for (const std::string& file : operands.files) {
    Listed& each = opened.emplace_back();
    ZT_ASSIGN_OR_RETURN(each.listing, List(of(file), each.source));
    each.listing.file = file;
    ZT_RETURN_IF_ERROR(WithFile(AddQuantized(of(file), *each.source, each.listing), file));
    // Not all at once; what a pipe gives cannot be opened again. As it is stored, nothing is checked.
    const bool several = operands.files.size() > 1 && !IsPipe(file);
    if (!args.stats || several || each.source->format() == "zt") each.source.reset();
    WarnAll(args, each.listing.warnings);
  }
  ZT_RETURN_IF_ERROR(Select(args, operands, opened));
  std::vector<Listing> listings;
  for (auto& [listing, source] : opened) {
    if (args.stats) ZT_RETURN_IF_ERROR(AddStats(of(listing.file), std::move(source), listing));
    Sort(listing, args.sort);
    listings.push_back(std::move(listing));
  }
  return listings;
}

// A self-contained HTML page that shows a listing, given as JSON (cli/list/page).
std::string PageText(std::string_view json) {
  constexpr std::string_view kData = "type=\"application/json\">";
  constexpr std::string_view kText = kPage;
  static_assert(kText.find(kData) != kText.npos);
  constexpr std::size_t kBegin = kText.find(kData) + kData.size();
  std::string out(kText.substr(0, kBegin));
  out.reserve(kText.size() + json.size() + json.size() / 64);
  for (const char c : json) {  // only strings contain '<': no name can end the script element
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out.append(kText.substr(kBegin));
}

// The listing as a page in a file of its own.
Status WritePage(const Listing& listing, const Args& args) {
  if (MayReplace(args) && !IsPipe(listing.file)) {
    const auto source = OpenInputs({listing.file}, args.source_options());
    ZT_RETURN_IF_UNAVAILABLE(source.status());
    ZT_RETURN_IF_ERROR(CheckIsNoInput(args, source.ok() ? source->get() : nullptr));
  }
  const std::string page = PageText(ListingJson(std::span(&listing, 1), args, true));
  ZT_RETURN_IF_ERROR(
      WriteText(args.output, page, {.overwrite = args.force, .sync = !args.no_sync}));
  Completed();
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

// The names of the tensors, as they are if it is for no terminal.
std::string NamesText(const Listing& listing, const TextOptions& options) {
  std::string out;
  for (const ListedObject& object : TensorsOf(listing)) {
    out += options.columns > 0 ? Printable(object.name) : object.name;
    out += options.null ? '\0' : '\n';
  }
  return out;
}

Status Inspect(const Args& args) {
  const bool page = !args.output.empty();
  if (page) ZT_RETURN_IF_ERROR(CheckOutput(args.output, args.force));
  ZT_ASSIGN_OR_RETURN(const std::vector<Listing> listings, ListAll(args));
  if (page && listings.size() > 1) return InvalidArgument("--html takes one file");
  if (page) return WritePage(listings[0], args);
  if (args.json) return Print(ListingJson(listings, args));
  TextOptions options = {
      .verbose = args.verbose, .null = args.null, .largest_first = args.sort == "size"};
  if (::isatty(STDOUT_FILENO) != 0) options.columns = TerminalColumns(STDOUT_FILENO, 80);
  const auto text = args.names_alone ? NamesText
                    : args.stats     ? StatsTableText
                    : args.tree      ? TreeText
                                     : TableText;
  std::string out;
  for (const Listing& listing : listings)
    out += (out.empty() || args.names_alone ? "" : "\n") + text(listing, options);
  return Print(out);
}

}  // namespace

int RunInspect(const Args& args) { return Done(args, Inspect(args)); }

}  // namespace zt::cli::internal
