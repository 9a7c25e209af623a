// zt.convert.shards — checks that an index and its shards agree, and that numbered
// files are complete sets.
module;

#include "core/status_macros.h"

module zt.convert.shards;

import zt.std;
import zt.convert.parts;
import zt.core;
import zt.pipeline;
import zt.source;

namespace zt {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostNamed = 20;  // shards or gaps per message
constexpr unsigned kOpenedAtOnce = 8;   // a server is asked about so many shards at a time

// The pattern of a set, "shard-*-model-*-of-00002" for "shard-00003-model-*-of-00002": ranks write
// only those files of a set of which they have tensors.
std::string OfAllRanks(std::string set) {
  constexpr std::string_view kRank = "shard-";
  const std::size_t end = set.find_first_not_of("0123456789", kRank.size());
  if (set.starts_with(kRank) && end != set.npos && end > kRank.size() && set[end] == '-')
    set.replace(kRank.size(), end - kRank.size(), "*");
  return set;
}

}  // namespace

std::string MissingParts(const std::set<std::uint64_t>& parts, std::uint64_t first,
                         std::uint64_t last, int width) {
  std::string out;
  std::size_t gaps = 0;
  const auto number = [&](std::uint64_t part) {
    std::string digits = std::to_string(part);
    if (digits.size() < static_cast<std::size_t>(width)) {
      digits.insert(0, static_cast<std::size_t>(width) - digits.size(), '0');
    }
    return digits;
  };
  const auto gap = [&](std::uint64_t begin, std::uint64_t end) {  // [begin, end)
    if (begin >= end || ++gaps > kMostNamed) return;
    if (!out.empty()) out += ", ";
    out += number(begin);
    if (end - begin > 1) out += (end - begin > 2 ? " to " : ", ") + number(end - 1);
  };
  std::uint64_t next = first;
  for (const std::uint64_t part : parts) {
    gap(next, part);
    next = part + 1;
  }
  gap(next, last + 1);
  if (gaps > kMostNamed) out += " and others";
  return out;
}

Status CheckSets(std::span<const std::string> files, std::string_view suffix,
                 std::string_view what) {
  struct Set {
    std::set<std::uint64_t> parts;
    std::uint64_t count = 0;
    int width = 0;
  };
  std::map<std::string, Set> sets;
  for (const std::string& file : files) {
    auto name = ParseShardName(file, suffix);
    if (!name) continue;
    Set& set = sets[OfAllRanks(std::move(name->set))];
    set.parts.insert(name->part);
    set.count = name->count;
    set.width = name->width;
  }
  for (const auto& [name, set] : sets) {
    const bool from_zero = set.parts.contains(0);
    const std::string gaps =
        MissingParts(set.parts, from_zero ? 0 : 1, set.count - (from_zero ? 1 : 0), set.width);
    if (gaps.empty()) continue;
    return InvalidData(std::string(what) + " " + gaps + " of " + Quote(name) +
                       "; the checkpoint is not whole");
  }
  return OkStatus();
}

namespace {

// An error that names every shard missing from the folder.
Status CheckPresent(const fs::path& folder, const std::set<std::string>& shards, Store& store) {
  NameList names;
  std::size_t missing = 0;
  for (const std::string& shard : shards) {
    const std::string file = (folder / shard).string();
    ZT_ASSIGN_OR_RETURN(const bool there, WithFile(store.HasName(file), file));
    if (there) continue;
    names.Add(shard);
    ++missing;
  }
  if (missing == 0) return OkStatus();
  return InvalidData(missing == 1 ? "shard " + names.ToString() + " is missing"
                                  : "shards " + names.ToString() + " are missing");
}

// An error names the shard as the file.
StatusOr<std::unique_ptr<TensorSource>> OpenShard(const fs::path& folder, const std::string& file,
                                                  const ShardFormat& format,
                                                  const ShardIndex& index,
                                                  const InputOptions& options) {
  const std::string path = (folder / file).string();
  ZT_RETURN_IF_ERROR(WithFile(CheckStaysInside(folder.string(), file, options), path));
  auto bytes = options.store->Open(path);
  if (!bytes.ok()) return WithFile(bytes.status(), path);
  const auto listed = index.files.find(file);
  const std::optional<std::uint64_t> size = (*bytes)->size();  // unknown of a pipe
  if (size && listed != index.files.end() && *size != listed->second.bytes) {
    return WithFile(
        InvalidData("it has " + std::to_string(*size) + " bytes, the index was made of one with " +
                    std::to_string(listed->second.bytes)),
        path);
  }
  StatusOr<std::unique_ptr<TensorSource>> source = std::unique_ptr<TensorSource>();
  if (format.other) source = format.other(*bytes, path);
  if (source.ok() && *source == nullptr) source = format.open(*std::move(bytes), file, index);
  if (!source.ok()) return WithFile(source.status(), path);
  if ((*source)->file({}).empty()) (*source)->SetFile(path);
  if ((*source)->objects().empty()) (*source)->AddOtherFile(path);
  return source;
}

// Opens the files, several at a time. The error is that of the first file that has one.
StatusOr<std::vector<std::unique_ptr<TensorSource>>> OpenEach(const fs::path& folder,
                                                              std::span<const std::string> files,
                                                              const ShardFormat& format,
                                                              const ShardIndex& index,
                                                              const InputOptions& options) {
  struct Opening final : Task {
    std::size_t number = 0;
  };
  std::vector<std::unique_ptr<TensorSource>> sources(files.size());
  const auto open = [&](Opening& one) -> Status {
    ZT_ASSIGN_OR_RETURN(sources[one.number],
                        OpenShard(folder, files[one.number], format, index, options));
    return OkStatus();
  };
  Pipeline pipeline({StageOf<Opening>{StageOrder::kParallel, open}.ForTasks()},
                    {.threads = std::min<unsigned>(kOpenedAtOnce, files.size())});
  for (std::size_t i = 0; i < files.size(); ++i) {
    auto one = std::make_unique<Opening>();
    one->number = i;
    if (!pipeline.Submit(std::move(one)).ok()) break;
  }
  ZT_RETURN_IF_ERROR(pipeline.Drain());
  return sources;
}

// True for names that are typical of checkpoints: such a file is taken for a shard,
// whatever its content.
bool IsNamedLikeOne(std::string_view file) {
  return std::ranges::any_of(
      std::initializer_list<std::string_view>{"model", "weights", "checkpoint"},
      [&](std::string_view word) { return file.find(word) != file.npos; });
}

// Removes from `files` the files that have the format's suffix but not its content, and returns
// them. Files that are empty or are named like a checkpoint stay, so that OpenShard reports what is
// wrong with them.
StatusOr<std::vector<std::string>> TakeForeign(const fs::path& folder, const ShardFormat& format,
                                               const InputOptions& options,
                                               std::vector<std::string>& files) {
  std::vector<std::string> foreign, shards;
  if (format.recognise == nullptr) return foreign;
  const auto is_shard = [&](const std::string& file) -> StatusOr<bool> {
    if (ParseShardName(file, format.suffix) || IsNamedLikeOne(file)) return true;
    if (!CheckStaysInside(folder.string(), file, options).ok()) return true;
    const std::string path = (folder / file).string();
    const auto bytes = options.store->Open(path);
    const auto head = bytes.ok() ? Peek(**bytes, 512) : bytes.status();
    ZT_RETURN_IF_UNAVAILABLE(WithFile(head.status(), path));
    if (!head.ok() || head->empty() || format.recognise(*head)) return true;
    const auto other = format.other ? format.other(*bytes, path) : nullptr;
    ZT_RETURN_IF_UNAVAILABLE(WithFile(other.status(), path));
    return other.ok() && *other != nullptr;
  };
  for (const std::string& file : files) {
    ZT_ASSIGN_OR_RETURN(const bool shard, is_shard(file));
    (shard ? shards : foreign).push_back(file);
  }
  if (shards.empty()) return std::vector<std::string>();
  files = std::move(shards);
  return foreign;
}

// The dot before the variant in a stem, at `from` or behind it: before a letter, for "llama-3.1" is
// no variant of "llama-3".
std::size_t VariantDot(std::string_view stem, std::size_t from = 1) {
  for (std::size_t dot = stem.find('.', from); dot != stem.npos; dot = stem.find('.', dot + 1)) {
    const char next = dot + 1 < stem.size() ? stem[dot + 1] : '\0';
    if ((next >= 'a' && next <= 'z') || (next >= 'A' && next <= 'Z')) return dot;
  }
  return stem.npos;
}

// The stem of "model.fp16" or "model.fp16.ema" without the variant, if a name of `plain` is one; else
// empty.
std::string BaseOf(std::string_view stem, const std::set<std::string>& plain) {
  for (std::size_t dot = VariantDot(stem); dot != stem.npos; dot = VariantDot(stem, dot + 1)) {
    std::string base(stem.substr(0, dot));
    if (plain.contains(base)) return base;
  }
  return "";
}

// The name of a file without the number of a shard and the suffix.
std::string StemOf(const std::string& file, std::string_view suffix) {
  const auto name = ParseShardName(file, suffix);
  std::string stem = name ? name->stem + name->tail : file;
  stem.erase(stem.size() - suffix.size());
  return stem;
}

std::string StemOf(const IndexName& name) {
  return name.variant.empty() ? name.stem : name.stem + "." + name.variant;
}

// The stems of the files without the number of a shard.
std::set<std::string> PlainStems(std::span<const std::string> files, std::string_view suffix) {
  std::set<std::string> stems;
  for (const std::string& file : files) {
    if (!ParseShardName(file, suffix)) stems.insert(StemOf(file, suffix));
  }
  return stems;
}

// The stem of a file of weights, a shard or an index; empty for other files.
std::string StemOfAny(const std::string& file, std::string_view suffix) {
  const auto index = ParseIndexName(file);
  if (index) return index->suffix == suffix ? StemOf(*index) : "";
  return file.ends_with(suffix) ? StemOf(file, suffix) : "";
}

// An error for files of which one variant has to be chosen; `fact` if there are no variants.
Status ChooseVariant(std::span<const std::string> files, std::string_view suffix,
                     const std::string& fact) {
  NameList names;
  for (const std::string& variant : VariantsOf(files, suffix)) names.Add(Quote(variant));
  if (names.empty()) return InvalidArgument(fact);
  return WithAdvice(InvalidArgument(fact + "; of the variants " + names.ToString()),
                    Advice::kVariant);
}

// Removes from both what is not of the variant, and returns it. An error if nothing is left.
StatusOr<std::vector<std::string>> KeepVariant(const std::string& variant, std::string_view suffix,
                                               std::vector<std::string>& files,
                                               std::vector<std::string>& indices) {
  std::vector<std::string> all = files, others;
  all.insert(all.end(), indices.begin(), indices.end());
  std::set<std::string> stems;
  for (const std::string& file : all) {
    if (IsOfVariant(file, suffix, variant)) stems.insert(StemOfAny(file, suffix));
  }
  // "model.non_ema.fp16" is another variant of "model" than "model.fp16".
  const auto is_other = [&](const std::string& file) {
    const std::string stem = StemOfAny(file, suffix);
    if (!stems.contains(stem)) return true;
    const std::string_view base(stem.data(), stem.size() - variant.size() - 1);
    for (std::size_t dot = VariantDot(base); dot != base.npos; dot = VariantDot(base, dot + 1)) {
      if (stems.contains(std::string(base.substr(0, dot)) + "." + variant)) return true;
    }
    return false;
  };
  for (const std::string& file : files) {
    if (is_other(file)) others.push_back(file);
  }
  std::erase_if(files, is_other);
  std::erase_if(indices, is_other);
  if (!files.empty() || !indices.empty()) return others;
  return NoVariant(variant, VariantsOf(all, suffix));
}

// Warns of files of weights that are not read.
void WarnOfVariants(const std::vector<std::string>& files, TensorSource& source) {
  NameList names;
  for (const std::string& file : files) names.Add(file);
  if (!names.empty())
    source.AddWarning("other variants of the weights are not read: " + names.ToString(),
                      Advice::kVariant);
}

// The patterns of the numbered sets to which the files belong.
std::set<std::string> SetsOf(const auto& files, std::string_view suffix) {
  std::set<std::string> sets;
  for (const std::string& file : files) {
    if (auto name = ParseShardName(file, suffix); name && name->count > 1)
      sets.insert(OfAllRanks(std::move(name->set)));
  }
  return sets;
}

// kInvalidArgument if the files are of several numbered sets: two models, or one twice.
Status CheckOneSet(std::span<const std::string> files, std::string_view suffix) {
  const std::set<std::string> sets = SetsOf(files, suffix);
  if (sets.size() < 2) return OkStatus();
  return ChooseVariant(files, suffix,
                       "the folder has no index, and several sets of shards, " +
                           Quote(*sets.begin()) + " and " + Quote(*std::next(sets.begin())) +
                           " among them; name the files of one");
}

// Removes the indices of variants if there is one without, or the file in whose place they are.
void RemoveVariants(std::span<const std::string> files, std::string_view suffix,
                    std::vector<std::string>& indices) {
  std::set<std::string> plain = PlainStems(files, suffix);
  bool any_plain = false;
  for (const std::string& index : indices) {
    const auto name = ParseIndexName(index);
    plain.insert(StemOf(*name));
    any_plain = any_plain || name->variant.empty();
  }
  std::erase_if(indices, [&](const std::string& index) {
    const auto name = ParseIndexName(index);
    return (any_plain && !name->variant.empty()) || !BaseOf(StemOf(*name), plain).empty();
  });
}

// Removes from `files` the variants of others, "model.fp16.safetensors" beside "model.safetensors",
// that hold tensors of the same names, no parts of them, and returns them. Files that are malformed
// stay, so that OpenShard reports what is wrong with them.
StatusOr<std::vector<std::string>> TakeVariants(const fs::path& folder, const ShardFormat& format,
                                                const InputOptions& options,
                                                std::vector<std::string>& files) {
  const std::set<std::string> plain = PlainStems(files, format.suffix);
  std::map<std::string, std::set<std::string>> names;  // of tensors, by file
  const auto names_of = [&](const std::string& file) -> StatusOr<const std::set<std::string>*> {
    const auto [found, fresh] = names.try_emplace(file);
    if (!fresh) return &found->second;
    const auto source = OpenShard(folder, file, format, {}, options);
    ZT_RETURN_IF_UNAVAILABLE(source.status());
    if (!source.ok() || HoldsParts(**source)) return &found->second;
    for (const Object& object : (*source)->objects()) found->second.insert(object.name);
    return &found->second;
  };
  std::set<std::string> stems;
  for (const std::string& file : files) {
    const std::string stem = StemOf(file, format.suffix), base = BaseOf(stem, plain);
    if (base.empty() || stems.contains(stem)) continue;
    ZT_ASSIGN_OR_RETURN(const auto* const known, names_of(base + std::string(format.suffix)));
    ZT_ASSIGN_OR_RETURN(const auto* const own, names_of(file));
    const auto is_known = [&](const std::string& name) { return known->contains(name); };
    if (std::ranges::any_of(*own, is_known)) stems.insert(stem);
  }
  std::vector<std::string> variants;
  std::erase_if(files, [&](const std::string& file) {
    const bool variant = stems.contains(StemOf(file, format.suffix));
    if (variant) variants.push_back(file);
    return variant;
  });
  return variants;
}

// What the index of a "disk delta" says, as a source without tensors.
class IndexOfDelta final : public TensorSource {
 public:
  explicit IndexOfDelta(Value::Map texts) {
    attributes_.emplace_back(std::string(kDiskDelta), std::move(texts));
  }
  std::string_view format() const override { return "safetensors"; }
  Status Read(ComponentId, std::uint64_t, std::span<std::byte>) override {
    return Unsupported("an index has no tensors");
  }
};

// Opens the shards of an index, sorted by name. Every (tensor, shard) pair of the index must exist,
// and the shards must have no others.
StatusOr<std::unique_ptr<TensorSource>> OpenIndexed(
    const fs::path& folder, const std::string& index, const std::vector<std::string>& present,
    const ShardFormat& format, const InputOptions& options, std::vector<std::string>& others) {
  const auto contents = ReadShardIndex((folder / index).string(), *options.store);
  if (!contents.ok()) return Annotate(contents.status(), index);
  const auto& map = contents->weight_map;
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : map) shards.insert(shard);
  for (const auto& [shard, file] : contents->files) shards.insert(shard);
  std::vector<std::string> listed(shards.begin(), shards.end());
  // A shard without tensors needs no place in the index.
  const std::set<std::string> sets = SetsOf(listed, format.suffix);
  std::set<std::string> empty;
  for (const std::string& file : present) {
    const auto name = ParseShardName(file, format.suffix);
    if (shards.contains(file) || !name || !sets.contains(OfAllRanks(name->set))) continue;
    ZT_ASSIGN_OR_RETURN(const auto source, OpenShard(folder, file, format, *contents, options));
    if (source->objects().empty()) empty.insert(file);
  }
  listed.insert(listed.end(), empty.begin(), empty.end());
  ZT_RETURN_IF_ERROR(Annotate(CheckSets(listed, format.suffix, "it leaves out shards"), index));
  ZT_RETURN_IF_ERROR(CheckPresent(folder, shards, *options.store));
  std::vector<std::string> names(shards.begin(), shards.end());
  ZT_ASSIGN_OR_RETURN(auto sources, OpenEach(folder, names, format, *contents, options));
  std::set<std::string> seen;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::string& shard = names[i];
    for (const Object& object : sources[i]->objects()) {
      const auto entry = map.find(object.name);
      if (entry == map.end()) {
        return WithTensor(InvalidData("it is in " + shard + " but not in " + index), object.name);
      }
      if (entry->second != shard) {
        return WithTensor(
            InvalidData("it is in " + shard + ", " + index + " says it is in " + entry->second),
            object.name);
      }
      seen.insert(object.name);
    }
  }
  for (const auto& [tensor, shard] : map) {
    if (!seen.contains(tensor)) {
      return WithTensor(InvalidData("it is not in " + shard + ", where " + index + " puts it"),
                        tensor);
    }
  }
  if (!contents->disk_delta.empty()) {  // which may change nothing
    sources.insert(sources.begin(), std::make_unique<IndexOfDelta>(contents->disk_delta));
    names.insert(names.begin(), index);
  }
  if (sources.empty()) return InvalidData(index + " names no tensor");
  ZT_ASSIGN_OR_RETURN(std::unique_ptr<TensorSource> merged,
                      MergeSources(std::move(sources), std::move(names)));
  merged->AddOtherFile((folder / index).string());
  const auto index_name = ParseIndexName(index);
  std::erase_if(others, [&](const std::string& file) { return shards.contains(file); });
  std::set<std::string> stems;
  for (const std::string& file : listed) stems.insert(StemOf(file, format.suffix));
  for (const std::string& file : present) {
    if (shards.contains(file) || empty.contains(file)) continue;
    if (!format.refuse_unlisted) {
      if (!BaseOf(StemOf(file, format.suffix), stems).empty()) {
        others.push_back(file);
        continue;
      }
      merged->AddWarning(file + " is not in " + index + ", so its tensors are not read");
      continue;
    }
    const auto name = ParseShardName(file, format.suffix);
    if (name && index_name && name->stem == index_name->stem)
      return InvalidData(file + " is not in " + index + "; it is of another conversion");
  }
  return merged;
}

}  // namespace

Status NoVariant(std::string_view variant, std::span<const std::string> variants) {
  NameList names;
  for (const std::string& each : std::set<std::string>(variants.begin(), variants.end()))
    names.Add(Quote(each));
  return InvalidArgument("no weights of the folder are of the variant " + Quote(variant) +
                         (names.empty() ? "; it has no variants" : "; it has " + names.ToString()));
}

bool IsOfVariant(std::string_view file, std::string_view suffix, std::string_view variant) {
  const std::string whole = StemOfAny(std::string(file), suffix);
  std::string_view stem = whole;
  if (!stem.ends_with(variant)) return false;
  stem.remove_suffix(variant.size());
  return stem.ends_with('.') || stem.ends_with('-');
}

std::vector<std::string> VariantsOf(std::span<const std::string> files, std::string_view suffix) {
  std::set<std::string> variants;
  for (const std::string& file : files) {
    const std::string stem = StemOfAny(file, suffix);
    const std::size_t dot = VariantDot(stem);
    if (dot != stem.npos) variants.insert(stem.substr(dot + 1));
  }
  return {variants.begin(), variants.end()};
}

StatusOr<std::unique_ptr<TensorSource>> OpenShards(const std::string& path,
                                                   const ShardFormat& format,
                                                   const InputOptions& options) {
  fs::path folder = path;
  std::vector<std::string> indices, files;
  ZT_ASSIGN_OR_RETURN(const bool is_folder, options.store->IsFolder(path));
  if (!is_folder) {
    indices.push_back(folder.filename().string());
    folder = folder.has_parent_path() ? folder.parent_path() : fs::path(".");
  }
  const auto listed = options.store->List(folder.string());
  // If a server does not list folders, only the files that the index names are known.
  const bool unlisted = indices.size() == 1 && listed.status().code() == StatusCode::kUnimplemented;
  if (!listed.ok() && !unlisted) return listed.status();
  for (const std::string& name : listed.ok() ? *listed : std::vector<std::string>()) {
    if (name.ends_with(format.suffix)) files.push_back(name);
    if (IsIndexOf(name, format.suffix) && folder == fs::path(path)) indices.push_back(name);
  }
  std::sort(files.begin(), files.end());
  std::sort(indices.begin(), indices.end());
  std::vector<std::string> others;  // variants that are not read
  const bool chooses = folder == fs::path(path) && !format.refuse_unlisted;
  if (chooses && !options.variant.empty()) {
    ZT_ASSIGN_OR_RETURN(others, KeepVariant(options.variant, format.suffix, files, indices));
  } else if (chooses) {  // what has no variant is meant, as other programs take it
    RemoveVariants(files, format.suffix, indices);
  }
  if (indices.size() > 1) {
    return ChooseVariant(indices, format.suffix,
                         "the folder has several indices, " + indices[0] + " and " + indices[1] +
                             " among them; name one");
  }
  if (indices.size() == 1) {
    ZT_ASSIGN_OR_RETURN(auto source,
                        OpenIndexed(folder, indices[0], files, format, options, others));
    WarnOfVariants(others, *source);
    return source;
  }
  if (files.empty())
    return InvalidArgument("the folder has neither an index nor *" + std::string(format.suffix) +
                           " files");
  ZT_ASSIGN_OR_RETURN(const auto variants, TakeVariants(folder, format, options, files));
  others.insert(others.end(), variants.begin(), variants.end());
  ZT_RETURN_IF_ERROR(
      CheckSets(files, format.suffix, "there is no index, and the folder lacks shards"));
  ZT_RETURN_IF_ERROR(CheckOneSet(files, format.suffix));
  ZT_ASSIGN_OR_RETURN(const auto foreign, TakeForeign(folder, format, options, files));
  ZT_ASSIGN_OR_RETURN(auto sources, OpenEach(folder, files, format, {}, options));
  const std::vector<std::string> names = files;
  auto together = PutTogether(std::move(sources), std::move(files));
  if (!together.ok() && VariantsOf(names, format.suffix).size() > 1) {
    return WithTensor(ChooseVariant(names, format.suffix, Fact(together.status())),
                      TensorOf(together.status()).value_or(""));
  }
  ZT_ASSIGN_OR_RETURN(std::unique_ptr<TensorSource> merged, std::move(together));
  for (const std::string& file : foreign)
    merged->AddWarning(file + " is not a checkpoint, so no tensors are read from it");
  WarnOfVariants(others, *merged);
  return merged;
}

}  // namespace zt
