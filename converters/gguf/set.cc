// zt.convert.gguf — opening: one file, or the shards of a split set.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.gguf;

import zt.std;
import zt.core;
import zt.source;
import :model;

namespace zt {
using namespace gguf::internal;
namespace {

namespace fs = std::filesystem;

std::string_view BaseName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// A shard's name: PREFIX-%05d-of-%05d.gguf, numbers from 1.
struct ShardName {
  std::string prefix;  // with the folder
  std::uint64_t number, count;

  std::string Path(std::uint64_t index) const {
    const unsigned long long number = index + 1, of = count;
    char tail[64];
    std::snprintf(tail, sizeof tail, "-%05llu-of-%05llu.gguf", number, of);
    return prefix + tail;
  }
};

// The number at the end of `text`, of at least five digits; removes it.
std::optional<std::uint64_t> TakeNumber(std::string_view& text) {
  std::size_t digits = 0;
  while (digits < text.size() && text[text.size() - 1 - digits] >= '0' &&
         text[text.size() - 1 - digits] <= '9') {
    ++digits;
  }
  if (digits < 5 || digits > 9) return std::nullopt;
  std::uint64_t value = 0;
  for (const char c : text.substr(text.size() - digits)) {
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  text.remove_suffix(digits);
  return value;
}

bool TakeSuffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

std::optional<ShardName> ParseShardName(std::string_view path) {
  if (!TakeSuffix(path, ".gguf")) return std::nullopt;
  const auto count = TakeNumber(path);
  if (!count || !TakeSuffix(path, "-of-")) return std::nullopt;
  const auto number = TakeNumber(path);
  if (!number || !TakeSuffix(path, "-") || *number < 1 || *number > *count) return std::nullopt;
  return ShardName{std::string(path), *number, *count};
}

bool IsShard(const GgufHeader& header) { return header.split_count.value_or(0) > 1; }

// A single file with the split keys of a set it no longer belongs to has all the tensors they count.
bool IsWhole(const GgufHeader& header) {
  return header.split_tensors && *header.split_tensors == header.tensors.size();
}

std::string Describe(const GgufHeader& header) {
  const std::string number =
      header.split_no ? std::to_string(*header.split_no + 1) : std::string("one");
  return "it is shard " + number + " of " + std::to_string(*header.split_count);
}

StatusOr<File> OpenFileHeader(const std::string& path) {
  ZT_ASSIGN_OR_RETURN(auto bytes, OpenFile(path));
  ZT_ASSIGN_OR_RETURN(GgufHeader header, ReadHeader(*bytes));
  return File{std::move(bytes), std::move(header)};
}

StatusOr<std::unique_ptr<TensorSource>> Single(File file, InputOptions options) {
  std::vector<std::string> warnings;
  const GgufHeader& header = file.header;
  if (IsShard(header)) {
    if (IsWhole(header)) {
      warnings.push_back("its metadata says that " + Describe(header) +
                         ", but every tensor is in this file");
    } else if (!options.allow_single_shard) {
      return InvalidData(Describe(header) + " of a split set, which holds only " +
                         std::to_string(header.tensors.size()) +
                         " of its tensors; give the path of a shard named "
                         "NAME-00001-of-0000N.gguf with the others beside it");
    }
  }
  std::vector<File> files;
  files.push_back(std::move(file));
  return MakeSource(std::move(files), std::move(warnings));
}

// The shard `header` must be number `index` of a set like the first shard's.
Status CheckShard(const GgufHeader& header, std::uint64_t index, std::uint64_t count,
                  std::optional<std::uint64_t> total) {
  if (!header.split_count || *header.split_count != count) {
    return InvalidData("split.count is " +
                       (header.split_count ? std::to_string(*header.split_count) : "missing") +
                       ", the set has " + std::to_string(count) + " shards");
  }
  if (!header.split_no || *header.split_no != index) {
    return InvalidData("split.no is " +
                       (header.split_no ? std::to_string(*header.split_no) : "missing") +
                       ", its name asks for " + std::to_string(index));
  }
  if (header.split_tensors && total && *header.split_tensors != *total) {
    return InvalidData("split.tensors.count is " + std::to_string(*header.split_tensors) +
                       ", an earlier shard says " + std::to_string(*total));
  }
  return OkStatus();
}

// A part of the set that `given` names, which itself may lie anywhere.
StatusOr<File> OpenPart(const std::string& path, const std::string& given,
                        const InputOptions& options) {
  const fs::path part(path);
  const std::string folder = part.has_parent_path() ? part.parent_path().string() : ".";
  if (path != given)
    ZT_RETURN_IF_ERROR(CheckStaysInside(folder, part.filename().string(), options));
  std::error_code error;
  if (IsUrl(path) ? !Exists(path)
                  : fs::symlink_status(part, error).type() == fs::file_type::not_found)
    return InvalidData("it is missing");
  return OpenFileHeader(path);
}

StatusOr<std::unique_ptr<TensorSource>> OpenShards(const ShardName& name, const std::string& given,
                                                   const InputOptions& options) {
  std::vector<File> files;
  std::vector<std::string> warnings;
  std::optional<std::uint64_t> total;
  std::uint64_t tensors = 0;
  for (std::uint64_t i = 0; i < name.count; ++i) {
    const std::string path = name.Path(i);
    const std::string label(BaseName(path));
    auto file = OpenPart(path, given, options);
    if (!file.ok()) {
      return Annotate(file.status(), "shard " + std::to_string(i + 1) + " of " +
                                         std::to_string(name.count) + ", " + label);
    }
    ZT_RETURN_IF_ERROR(Annotate(CheckShard(file->header, i, name.count, total), label));
    if (file->header.split_tensors) total = file->header.split_tensors;
    tensors += file->header.tensors.size();
    std::uint64_t dropped = 0;
    auto& kv = file->header.kv;
    dropped = static_cast<std::uint64_t>(
        std::count_if(kv.begin(), kv.end(), [](const Value& entry) { return !IsSplitKey(entry); }));
    std::erase_if(kv, IsSplitKey);
    if (i > 0) {
      if (dropped > 0) {
        warnings.push_back(label + ": " + std::to_string(dropped) +
                           " metadata pairs are not kept; the first shard's are");
      }
      kv = {};
    }
    files.push_back(*std::move(file));
  }
  if (total && *total != tensors) {
    return InvalidData("split.tensors.count is " + std::to_string(*total) + ", the " +
                       std::to_string(name.count) + " shards have " + std::to_string(tensors) +
                       " tensors");
  }
  std::unordered_map<std::string_view, std::size_t, zt::internal::NameHash> owner;
  for (std::size_t i = 0; i < files.size(); ++i) {
    for (const GgufTensor& tensor : files[i].header.tensors) {
      const auto [held, fresh] = owner.emplace(tensor.name, i);
      if (!fresh) {
        return InvalidData(TensorContext(tensor.name) + " is in both " +
                           std::string(BaseName(files[held->second].bytes->name())) + " and " +
                           std::string(BaseName(files[i].bytes->name())));
      }
    }
  }
  return MakeSource(std::move(files), std::move(warnings));
}

}  // namespace

StatusOr<std::unique_ptr<TensorSource>> OpenGguf(std::shared_ptr<ByteSource> bytes,
                                                 InputOptions options) {
  ZT_ASSIGN_OR_RETURN(GgufHeader header, ReadHeader(*bytes));
  return Single(File{std::move(bytes), std::move(header)}, options);
}

std::string GgufSetOf(const std::string& path) {
  const auto name = ParseShardName(path);
  if (!name) return "";
  const auto file = OpenFileHeader(path);
  if (!file.ok() || !IsShard(file->header) || IsWhole(file->header)) return "";
  return name->Path(0);
}

StatusOr<std::unique_ptr<TensorSource>> OpenGgufSet(const std::string& path, InputOptions options) {
  ZT_ASSIGN_OR_RETURN(File file, OpenFileHeader(path));
  if (!IsShard(file.header) || IsWhole(file.header) || options.allow_single_shard) {
    return Single(std::move(file), options);
  }
  const auto name = ParseShardName(path);
  if (!name) {
    return InvalidData(Describe(file.header) +
                       " of a split set, but its name is not NAME-00001-of-0000N.gguf, so the "
                       "others cannot be found");
  }
  if (name->count != *file.header.split_count) {
    return InvalidData(Describe(file.header) + " by its metadata, of " +
                       std::to_string(name->count) + " by its name");
  }
  return OpenShards(*name, path, options);
}

}  // namespace zt
