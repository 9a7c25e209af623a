// zt.cli — inspect: the listing of any file it reads, from headers alone.
module;

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/status_macros.h"

module zt.cli;

import :support;
import zt;

namespace zt::cli {

using namespace internal;

namespace {

// One line of the listing.
struct Row {
  std::string name, element, shape, format, stored, encoding, digest;
};

std::string Table(const std::vector<Row>& rows) {
  static constexpr std::string Row::* kColumns[] = {&Row::name,   &Row::element, &Row::shape,
                                                    &Row::format, &Row::stored,  &Row::encoding,
                                                    &Row::digest};
  std::vector<std::size_t> widths;
  for (const auto column : kColumns) {
    std::size_t width = 0;
    for (const Row& row : rows) width = std::max(width, (row.*column).size());
    widths.push_back(std::min<std::size_t>(width, 80));
  }
  std::string out;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < widths.size(); ++c) {
      if (widths[c] == 0) continue;
      line += row.*kColumns[c];
      if ((row.*kColumns[c]).size() < widths[c])
        line.append(widths[c] - (row.*kColumns[c]).size(), ' ');
      line += "  ";
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    out += line + "\n";
  }
  return out;
}

std::string AttributesText(const Value::Map& attributes) {
  std::string out;
  for (const auto& [key, value] : attributes) {
    std::string text = ToJson(value).dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text.size() > 200) text = text.substr(0, 197) + "...";
    out += "  " + key + ": " + text + "\n";
  }
  return out;
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// "raw", "zstd of 4.0 MiB", "byte planes of 4.0 MiB (-34 %)".
std::string EncodingText(const StoredComponent& c) {
  if (c.encoding == Encoding::kRaw) return "raw";
  const bool planes = c.encoding == Encoding::kPlanes;
  std::string text = planes ? "byte planes" : std::string(Name(c.encoding));
  if (c.decoded_bytes == kUnknownSize) return text;
  text += " of " + HumanBytes(c.decoded_bytes);
  if (planes && c.decoded_bytes > c.length) {
    const double share = static_cast<double>(c.length) / static_cast<double>(c.decoded_bytes);
    text += " (-" + std::to_string(static_cast<int>((1 - share) * 100 + 0.5)) + " %)";
  }
  return text;
}

Json ObjectJson(const StoredObject& object) {
  Json components = Json::array();
  for (const StoredComponent& c : object.components) {
    Json row = {{"role", c.role}, {"dtype", Name(c.element.dtype)}};
    if (!c.element.type.empty()) row["type"] = c.element.type;
    row["offset"] = c.offset;
    row["length"] = c.length;
    row["encoding"] = Name(c.encoding);
    if (c.encoding != Encoding::kRaw && c.decoded_bytes != kUnknownSize) {
      row["uncompressed_length"] = c.decoded_bytes;
    }
    if (c.encoding == Encoding::kPlanes) {
      row["planes"] = {{"rotate", c.parameters.rotate},
                       {"group", c.parameters.group},
                       {"chunk", c.parameters.chunk}};
    }
    if (!c.digest.empty()) row["digest"] = c.digest;
    components.push_back(std::move(row));
  }
  Json out = {{"name", object.name}, {"shape", object.shape}, {"format", object.format}};
  if (!object.attributes.empty()) out["attributes"] = ToJson(object.attributes);
  out["components"] = std::move(components);
  return out;
}

Status InspectZt(const InspectArgs& args) {
  auto opened = Reader::Open(args.file);
  if (!opened.ok()) return Annotate(opened.status(), args.file);
  const Manifest& manifest = (*opened)->manifest();
  const std::string version = manifest.version_text.empty()
                                  ? std::string(Traits(manifest.version).text)
                                  : manifest.version_text;
  if (args.common.json) {
    Json json = {{"file", args.file}, {"format", "zt"}, {"version", version}};
    if (!manifest.attributes.empty()) json["attributes"] = ToJson(manifest.attributes);
    // Object by object: the tree of 100,000 would take longer to build and to free than all the rest.
    std::string out = Dump(json);
    out.resize(out.rfind('}'));
    out += ",\"objects\":[";
    for (const StoredObject& object : manifest.objects) {
      if (&object != manifest.objects.data()) out += ',';
      out += Dump(ObjectJson(object));
      out.pop_back();  // the newline
    }
    return Print(out + "]}\n");
  }
  std::uint64_t stored = 0, decoded = 0, components = 0;
  std::vector<Row> rows;
  for (const StoredObject& object : manifest.objects) {
    for (const StoredComponent& c : object.components) {
      ++components;
      stored += c.length;
      const bool sized = c.decoded_bytes != kUnknownSize;
      decoded += sized ? c.decoded_bytes : c.length;
      Row row;
      row.name = object.components.size() == 1 ? object.name : object.name + "/" + c.role;
      row.element = Name(c.element);
      row.shape = ToString(object.shape);
      row.format = object.format;
      row.stored = HumanBytes(c.length);
      row.encoding = EncodingText(c);
      if (c.big_endian) row.encoding += ", big-endian";
      row.digest = args.common.verbose ? c.digest : c.digest.substr(0, c.digest.find(':'));
      rows.push_back(std::move(row));
    }
  }
  std::string out = args.file + ": zTensor " + version + ", " +
                    std::to_string(manifest.objects.size()) + " objects, " +
                    std::to_string(components) + " components, " + HumanBytes(stored) + " stored";
  if (decoded != stored) out += ", " + HumanBytes(decoded) + " decoded";
  return Print(out + "\n" + AttributesText(manifest.attributes) + Table(rows));
}

Status InspectOther(const InspectArgs& args) {
  ZT_ASSIGN_OR_RETURN(const auto source, OpenInputs({args.file}, args.input));
  if (!args.common.quiet) {
    for (const std::string& warning : source->warnings()) Warn(warning);
  }
  if (args.common.json) {
    Json objects = Json::array();
    for (std::uint32_t o = 0; o < source->objects().size(); ++o) {
      const Object& object = source->objects()[o];
      Json components = Json::array();
      for (std::uint32_t i = 0; i < object.components.size(); ++i) {
        const Component& c = object.components[i];
        Json row = {{"role", c.role}, {"dtype", Name(c.element.dtype)}};
        if (!c.element.type.empty()) row["type"] = c.element.type;
        if (const auto extent = source->extent({o, i}); extent && extent->bytes != nullptr) {
          row["offset"] = extent->offset;
        }
        row["length"] = c.bytes;
        components.push_back(std::move(row));
      }
      Json entry = {{"name", object.name}, {"shape", object.shape}, {"format", object.format}};
      if (!object.attributes.empty()) entry["attributes"] = ToJson(object.attributes);
      entry["components"] = std::move(components);
      objects.push_back(std::move(entry));
    }
    Json json = {{"file", args.file}, {"format", source->format()}};
    if (!source->attributes().empty()) json["attributes"] = ToJson(source->attributes());
    json["objects"] = std::move(objects);
    return Print(Dump(json));
  }
  std::uint64_t bytes = 0;
  std::vector<Row> rows;
  for (const Object& object : source->objects()) {
    for (const Component& c : object.components) {
      bytes += c.bytes;
      Row row;
      row.name = object.components.size() == 1 ? object.name : object.name + "/" + c.role;
      row.element = Name(c.element);
      row.shape = ToString(object.shape);
      row.format = object.format;
      row.stored = HumanBytes(c.bytes);
      rows.push_back(std::move(row));
    }
  }
  return Print(args.file + ": " + std::string(source->format()) + ", " +
               std::to_string(source->objects().size()) + " tensors, " + HumanBytes(bytes) + "\n" +
               AttributesText(source->attributes()) + Table(rows));
}

Status Inspect(const InspectArgs& args) {
  std::error_code error;
  if (args.file != "-" && args.input.from.empty() &&
      !std::filesystem::is_directory(args.file, error)) {
    ZT_ASSIGN_OR_RETURN(const bool zt, IsZt(args.file));
    if (zt) return InspectZt(args);
  }
  if (args.input.from == "zt") return InspectZt(args);
  return InspectOther(args);
}

}  // namespace

int RunInspect(const InspectArgs& args) {
  const Status status = Inspect(args);
  return status.ok() ? 0 : Fail(status);
}

}  // namespace zt::cli
