// zt.convert.npy — planning an .npy file, or an .npz archive of arrays or of one
// scipy sparse matrix.
module;

#include "core/little_endian.h"
#include "core/status_macros.h"

module zt.convert.npy;

import zt.std;
import :header;
import zt.convert.layout;
import zt.convert.zip;
import zt.core;
import zt.source;

namespace zt {
namespace {

// numpy's type string for an element type, such as "<f4". Types unknown to numpy become void types
// of their width: "|V2".
struct DescrText {
  std::string text;
  bool named = true;
};
DescrText DescrOf(const ElementType& element) {
  const std::size_t width = ByteWidth(element.dtype);
  if (element.type == "complex64") return {"<c8"};
  if (element.type == "complex128") return {"<c16"};
  if (!element.type.empty() || element.dtype == DType::kBF16)
    return {"|V" + std::to_string(width), false};
  const char kind = element.dtype == DType::kBool ? 'b'
                    : IsFloat(element.dtype)      ? 'f'
                    : IsSignedInt(element.dtype)  ? 'i'
                                                  : 'u';
  return {std::string(width == 1 ? "|" : "<") + kind + std::to_string(width)};
}

// The header of an array in C order, as numpy.save writes it. Its size is a multiple of 64.
std::vector<std::byte> EncodeHeader(std::string_view descr, std::span<const std::uint64_t> shape) {
  constexpr std::size_t kPrefix = 10, kAlignment = 64;
  // numpy reserves room for the first dimension to grow.
  constexpr std::size_t kGrowth = 21;
  std::string text = "{'descr': '" + std::string(descr) + "', 'fortran_order': False, 'shape': (";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ' ';
    text += std::to_string(shape[i]);
    if (i + 1 < shape.size() || shape.size() == 1) text += ',';
  }
  text += "), }";
  if (!shape.empty()) text.append(kGrowth - std::to_string(shape[0]).size(), ' ');
  const std::size_t unpadded = kPrefix + text.size() + 1;
  text.append((unpadded + kAlignment - 1) / kAlignment * kAlignment - unpadded, ' ');
  text += '\n';
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(text.size() & 255);
  out += static_cast<char>(text.size() >> 8);
  out += text;
  const auto bytes = std::as_bytes(std::span(out));
  return {bytes.begin(), bytes.end()};
}

// OK if the object is a single array that an .npy header can describe.
Status CheckDense(const Object& object) {
  if (object.format != "dense" || object.components.size() != 1) {
    const bool sparse = object.format.starts_with("sparse");
    const Status why = Unsupported("format " + Quote(object.format) + " is not an array" +
                                   (sparse ? "; a sparse matrix is an .npz of its own" : ""));
    return object.format.starts_with("gguf.") ? WithAdvice(why, Advice::kDequantize) : why;
  }
  const Component& data = object.components.front();
  if (data.bytes == kUnknownSize) return Unsupported("its size is not known in advance");
  if (!data.element.type.empty() && FindLogicalType(data.element.type) == nullptr) {
    return Unsupported("type " + Quote(data.element.type) +
                       " is not known, so numpy could not read its bytes");
  }
  // The data must have the size that shape and element type imply.
  const auto bytes = DenseBytes(object.shape, data.element);
  if (!bytes || *bytes != data.bytes) {
    return InvalidData("shape " + ToString(object.shape) + " of " +
                       std::string(Name(data.element)) + " does not fit its " +
                       std::to_string(data.bytes) + " bytes");
  }
  return OkStatus();
}

// The name of scipy's format, three letters, if the object is the array 'data' of a sparse archive
// kept as plain arrays.
const std::string* ScipyFormatOf(const Object& object) {
  const Value* value = FindMember(object.attributes, kScipyFormat);
  const std::string* format = value == nullptr ? nullptr : value->AsString();
  return object.name == "data" && format != nullptr && format->size() == 3 ? format : nullptr;
}

// ---- zip archives -------------------------------------------------------------------------------

constexpr std::uint64_t kMax32 = 0xffffffff;
// A directory record has at most 65535 bytes.
constexpr std::size_t kMaxEntryName = 65000;
// 1 January 1980, zip's first day.
constexpr std::uint16_t kDate = (0 << 9) | (1 << 5) | 1;
constexpr std::uint16_t kDescriptor = 1 << 3, kUtf8 = 1 << 11;
constexpr std::uint16_t kVersion = 20, kVersion64 = 45;
constexpr std::uint64_t kMaxI64 = std::numeric_limits<std::int64_t>::max();

using Bytes = std::vector<std::byte>;

void Put(std::uint64_t value, std::size_t width, Bytes& out) {
  out.resize(out.size() + width);
  zt::internal::StoreLittle(value, width, &out[out.size() - width]);
}
void Put(std::string_view text, Bytes& out) {
  const auto bytes = std::as_bytes(std::span(text));
  out.insert(out.end(), bytes.begin(), bytes.end());
}
struct PlannedEntry {
  std::string name;
  std::uint64_t size = 0;
  std::uint64_t local = 0;  // offset of its local header
  std::uint32_t crc = 0;    // of the bytes known so far: the header, then all
  std::uint64_t data = 0;   // size of the array's data, which is streamed
  bool streamed = false;    // the CRC follows the data
  std::string comment = {};
  inline bool large() const { return size >= kMax32; }
  inline std::uint16_t flags() const {
    const bool ascii =
        std::all_of(name.begin(), name.end(), [](char c) { return (c & 0x80) == 0; });
    return static_cast<std::uint16_t>((streamed ? kDescriptor : 0) | (ascii ? 0 : kUtf8));
  }
};

// The local header has the sizes although the CRC follows the data: readers that go from header
// to header need them.
void PutLocalHeader(const PlannedEntry& entry, Bytes& out) {
  Put(0x04034b50, 4, out);
  Put(entry.large() ? kVersion64 : kVersion, 2, out);
  Put(entry.flags(), 2, out);
  Put(0, 2, out);  // method: stored
  Put(0, 2, out);  // time: midnight
  Put(kDate, 2, out);
  Put(entry.streamed ? 0 : entry.crc, 4, out);
  for (int i = 0; i < 2; ++i) Put(entry.large() ? kMax32 : entry.size, 4, out);
  Put(entry.name.size(), 2, out);
  Put(entry.large() ? 20 : 0, 2, out);
  Put(entry.name, out);
  if (!entry.large()) return;
  Put(1, 2, out);
  Put(16, 2, out);
  for (int i = 0; i < 2; ++i) Put(entry.size, 8, out);
}

std::uint64_t DescriptorBytes(const PlannedEntry& entry) { return entry.large() ? 24 : 16; }

void PutDescriptor(const PlannedEntry& entry, Bytes& out) {
  Put(0x08074b50, 4, out);
  Put(entry.crc, 4, out);
  for (int i = 0; i < 2; ++i) Put(entry.size, entry.large() ? 8 : 4, out);
}

void PutDirectoryRecord(const PlannedEntry& entry, Bytes& out) {
  const bool far = entry.local >= kMax32;
  const std::uint64_t extra = (entry.large() ? 16 : 0) + (far ? 8 : 0);
  const std::uint16_t version = extra > 0 ? kVersion64 : kVersion;
  Put(0x02014b50, 4, out);
  Put(version | 3 << 8, 2, out);  // made on Unix
  Put(version, 2, out);
  Put(entry.flags(), 2, out);
  Put(0, 2, out);
  Put(0, 2, out);
  Put(kDate, 2, out);
  Put(entry.crc, 4, out);
  for (int i = 0; i < 2; ++i) Put(entry.large() ? kMax32 : entry.size, 4, out);
  Put(entry.name.size(), 2, out);
  Put(extra > 0 ? extra + 4 : 0, 2, out);
  Put(entry.comment.size(), 2, out);
  Put(0, 2, out);  // disk
  Put(0, 2, out);
  Put(std::uint64_t{0600} << 16, 4, out);
  Put(far ? kMax32 : entry.local, 4, out);
  Put(entry.name, out);
  if (extra > 0) {
    Put(1, 2, out);
    Put(extra, 2, out);
  }
  if (entry.large()) {
    for (int i = 0; i < 2; ++i) Put(entry.size, 8, out);
  }
  if (far) Put(entry.local, 8, out);
  Put(entry.comment, out);
}

class Directory final : public LayoutTrailer {
 public:
  std::vector<PlannedEntry> entries;
  std::vector<std::size_t> streamed;  // the entry of each streamed piece
  std::uint64_t begin = 0;            // offset of the directory

  std::uint64_t BytesAfter(std::size_t index) const override {
    return DescriptorBytes(entries[streamed[index]]);
  }
  Bytes AfterPiece(std::size_t index, std::uint32_t crc) override {
    PlannedEntry& entry = entries[streamed[index]];
    entry.crc = CombineCrc32(entry.crc, crc, entry.data);
    Bytes out;
    PutDescriptor(entry, out);
    return out;
  }

  Bytes End() override {
    Bytes out;
    for (const PlannedEntry& entry : entries) PutDirectoryRecord(entry, out);
    const std::uint64_t size = out.size(), count = entries.size();
    if (begin >= kMax32 || size >= kMax32 || count >= 0xffff) {
      Put(0x06064b50, 4, out);
      Put(44, 8, out);
      Put(kVersion64 | 3 << 8, 2, out);
      Put(kVersion64, 2, out);
      Put(0, 4, out);
      Put(0, 4, out);
      for (int i = 0; i < 2; ++i) Put(count, 8, out);
      Put(size, 8, out);
      Put(begin, 8, out);
      Put(0x07064b50, 4, out);
      Put(0, 4, out);
      Put(begin + size, 8, out);
      Put(1, 4, out);
    }
    Put(0x06054b50, 4, out);
    Put(0, 4, out);
    for (int i = 0; i < 2; ++i) Put(std::min<std::uint64_t>(count, 0xffff), 2, out);
    Put(std::min(size, kMax32), 4, out);
    Put(std::min(begin, kMax32), 4, out);
    Put(0, 2, out);
    return out;
  }
};

class ArchivePlan {
 public:
  ArchivePlan() : directory_(std::make_shared<Directory>()) {}

  // Adds an array whose data is a range of a component.
  Status AddArray(std::string_view name, std::string_view descr,
                  std::span<const std::uint64_t> shape, LayoutPiece piece,
                  std::string comment = "") {
    const Bytes header = EncodeHeader(descr, shape);
    const auto size = CheckedAdd(header.size(), piece.bytes);
    PlannedEntry entry = {.name = std::string(name) + ".npy",
                          .size = size.value_or(0),
                          .local = at_ + before_.size(),
                          .crc = Crc32(0, header),
                          .data = piece.bytes,
                          .streamed = true,
                          .comment = std::move(comment)};
    if (!size || *size > kMaxI64 - entry.local - 4 * kMaxEntryName) {
      return InvalidData("the sizes overflow 63 bits");
    }
    ZT_RETURN_IF_ERROR(CheckName(entry.name));
    PutLocalHeader(entry, before_);
    before_.insert(before_.end(), header.begin(), header.end());
    at_ += before_.size() + piece.bytes;
    at_ += DescriptorBytes(entry);
    piece.before = std::exchange(before_, {});
    layout_.pieces.push_back(std::move(piece));
    directory_->streamed.push_back(directory_->entries.size());
    directory_->entries.push_back(std::move(entry));
    return OkStatus();
  }

  // Adds an array whose data is in memory.
  void AddSmall(std::string_view name, std::string_view descr, std::span<const std::uint64_t> shape,
                std::span<const std::byte> data) {
    Bytes content = EncodeHeader(descr, shape);
    content.insert(content.end(), data.begin(), data.end());
    const PlannedEntry entry = {.name = std::string(name) + ".npy",
                                .size = content.size(),
                                .local = at_ + before_.size(),
                                .crc = Crc32(0, content)};
    PutLocalHeader(entry, before_);
    before_.insert(before_.end(), content.begin(), content.end());
    directory_->entries.push_back(entry);
  }

  FileLayout Finish(std::vector<std::string> warnings) {
    at_ += before_.size();
    layout_.end = std::move(before_);
    directory_->begin = at_;
    layout_.bytes = at_ + directory_->End().size();
    layout_.trailer = std::move(directory_);
    layout_.warnings = std::move(warnings);
    return std::move(layout_);
  }

 private:
  // True if the path is absolute or a part of it is "..", on any system.
  static bool LeadsOut(std::string_view name) {
    const bool drive =
        name.size() > 1 && name[1] == ':' && std::isalpha(static_cast<unsigned char>(name[0])) != 0;
    if (drive || name.starts_with('/') || name.starts_with('\\')) return true;
    for (std::size_t at = 0; at < name.size();) {
      const std::size_t end = std::min(name.find_first_of("/\\", at), name.size());
      if (name.substr(at, end - at) == "..") return true;
      at = end + 1;
    }
    return false;
  }
  Status CheckName(const std::string& name) {
    if (name.find('\0') != std::string::npos) {
      return Unsupported("a zip archive's names cannot hold a NUL");
    }
    if (name.size() > kMaxEntryName) return Unsupported("its name is too long for a zip archive");
    if (LeadsOut(name)) {
      return WithAdvice(
          Unsupported("a zip archive with this name would be unpacked outside its folder"),
          Advice::kRename);
    }
    return OkStatus();
  }

  FileLayout layout_;
  std::shared_ptr<Directory> directory_;
  Bytes before_;          // bytes to write before the next piece
  std::uint64_t at_ = 0;  // offset of `before_` in the file
};

// ---- sparse -------------------------------------------------------------------------------------

// scipy requires signed indices; unsigned ones below 2^63 have the same bytes.
StatusOr<std::string> IndexDescr(const ElementType& element, std::uint64_t bound) {
  std::string descr = DescrOf(element).text;
  if (!IsUnsignedInt(element.dtype)) return descr;
  const std::size_t bits = 8 * ByteWidth(element.dtype);
  if (bound == 0 || (bound - 1) >> (bits - 1) == 0) {
    descr[1] = 'i';
  } else if (bits == 64) {
    return Unsupported("scipy's indices are below 2^63");
  }
  return descr;
}

// The component with this role.
StatusOr<std::uint32_t> Find(const Object& object, std::string_view role) {
  for (std::uint32_t i = 0; i < object.components.size(); ++i) {
    if (object.components[i].role == role) return i;
  }
  return InvalidData("it has no component " + Quote(role));
}

// Adds the index component `id` of a sparse object with `count` values.
Status AddIndices(const Object& object, ComponentId id, std::uint64_t count, ArchivePlan& plan) {
  const Component& component = object.components[id.component];
  const std::size_t rank = object.shape.size();
  const LayoutPiece whole = {.source = id, .bytes = component.bytes};
  if (object.format == "sparse_csr") {
    const std::uint64_t length = component.bytes / ByteWidth(component.element.dtype);
    const std::uint64_t bound = component.role == "indptr" ? count + 1 : object.shape[1];
    ZT_ASSIGN_OR_RETURN(const std::string descr, IndexDescr(component.element, bound));
    return plan.AddArray(component.role, descr, std::array<std::uint64_t, 1>{length}, whole);
  }
  if (rank != 2) {
    const std::uint64_t bound =
        rank == 0 ? 0 : *std::max_element(object.shape.begin(), object.shape.end());
    ZT_ASSIGN_OR_RETURN(const std::string descr, IndexDescr(component.element, bound));
    return plan.AddArray("coords", descr, std::array<std::uint64_t, 2>{rank, count}, whole);
  }
  for (std::size_t k = 0; k < 2; ++k) {
    ZT_ASSIGN_OR_RETURN(const std::string descr, IndexDescr(component.element, object.shape[k]));
    LayoutPiece half = whole;
    half.bytes = component.bytes / 2;
    half.offset = k * half.bytes;
    ZT_RETURN_IF_ERROR(plan.AddArray(k == 0 ? "row" : "col", descr,
                                     std::array<std::uint64_t, 1>{count}, std::move(half)));
  }
  return OkStatus();
}

Status AddSparse(const TensorSource& source, std::uint32_t index, ArchivePlan& plan) {
  const Object& object = source.objects()[index];
  ZT_RETURN_IF_ERROR(ValidateObject(object));
  const std::size_t rank = object.shape.size();
  Bytes dims;
  for (const std::uint64_t dim : object.shape) {
    if (dim > kMaxI64) return Unsupported("scipy's dimensions are below 2^63");
    Put(dim, 8, dims);
  }
  const std::string_view kind = object.format == "sparse_csr" ? "csr" : "coo";
  plan.AddSmall("format", "|S3", {}, std::as_bytes(std::span(kind)));
  plan.AddSmall("shape", "<i8", std::array<std::uint64_t, 1>{rank}, dims);
  // scipy's matrices have two dimensions, its arrays any number of them.
  static constexpr std::array<std::byte, 1> kTrue = {std::byte{1}};
  const Value* const flag = FindMember(object.attributes, kScipyIsArray);
  if (rank != 2 || (flag != nullptr && *flag == Value(true)))
    plan.AddSmall("_is_array", "|b1", {}, kTrue);

  ZT_ASSIGN_OR_RETURN(const std::uint32_t values_at, Find(object, "values"));
  const Component& values = object.components[values_at];
  const DescrText value_type = DescrOf(values.element);
  if (!value_type.named) {
    return WithAdvice(Unsupported("scipy has no matrices of " + std::string(Name(values.element))),
                      Advice::kDtype);
  }
  const std::uint64_t count = values.bytes / ElementBytes(values.element);
  for (std::uint32_t c = 0; c < object.components.size(); ++c) {
    if (c == values_at) {
      ZT_RETURN_IF_ERROR(plan.AddArray("data", value_type.text, std::array<std::uint64_t, 1>{count},
                                       {.source = {index, c}, .bytes = values.bytes}));
    } else {
      ZT_RETURN_IF_ERROR(AddIndices(object, {index, c}, count, plan));
    }
  }
  return OkStatus();
}

// True if `names` include all other entries that scipy writes for this format. (For coo, a matrix
// and an array differ.)
bool HasEntriesOf(std::string_view format, const std::set<std::string_view>& names) {
  const auto has = [&](std::initializer_list<std::string_view> parts) {
    return std::ranges::all_of(parts, [&](std::string_view part) { return names.contains(part); });
  };
  if (format == "coo") return has({"shape", "row", "col"}) || has({"shape", "coords"});
  if (format == "dia") return has({"shape", "offsets"});
  return has({"shape", "indices", "indptr"});
}

// Restores the entry "format" of a sparse archive that was kept as plain arrays:
// scipy.sparse.load_npz requires it, and as a string it was not kept as a tensor. If some of the
// arrays were left out, the archive remains one of plain arrays.
void AddScipyFormat(const TensorSource& source, std::span<const std::uint32_t> objects,
                    ArchivePlan& plan) {
  const std::string* format = nullptr;
  std::set<std::string_view> names;
  for (const std::uint32_t index : objects) {
    const Object& object = source.objects()[index];
    names.insert(object.name);
    if (const std::string* found = ScipyFormatOf(object)) format = found;
  }
  if (format == nullptr || names.contains("format") || !HasEntriesOf(*format, names)) return;
  plan.AddSmall("format", "|S3", {}, std::as_bytes(std::span(*format)));
}

}  // namespace

StatusOr<FileLayout> PlanNpz(const TensorSource& source, std::span<const std::uint32_t> objects) {
  ArchivePlan plan;
  AddScipyFormat(source, objects, plan);
  for (const std::uint32_t index : objects) {
    const Object& object = source.objects()[index];
    const auto add = [&]() -> Status {
      if (IsSparse(object.format)) {
        if (objects.size() > 1) {
          return Unsupported(
              "an .npz holds one sparse matrix and nothing else; name it alone, or write to a "
              "folder");
        }
        return AddSparse(source, index, plan);
      }
      ZT_RETURN_IF_ERROR(CheckDense(object));
      const Component& data = object.components.front();
      const DescrText descr = DescrOf(data.element);
      return plan.AddArray(object.name, descr.text, object.shape,
                           {.source = {index, 0}, .bytes = data.bytes},
                           descr.named ? "" : npy::internal::TypeComment(data.element));
    };
    ZT_RETURN_IF_ERROR(WithTensor(add(), object.name));
  }
  return plan.Finish(NpyLosses(source, objects));
}

std::vector<std::string> NpyLosses(const TensorSource& source,
                                   std::span<const std::uint32_t> objects) {
  std::vector<std::string> types;  // distinct type names
  std::uint64_t unnamed = 0, coo_of_f16 = 0;
  for (const std::uint32_t index : objects) {
    const Object& object = source.objects()[index];
    if (object.format == "sparse_coo") {
      coo_of_f16 += std::ranges::any_of(object.components, [](const Component& component) {
        return Name(component.element) == "f16";
      });
    }
    if (object.components.size() != 1) continue;  // types of sparse matrices are known to numpy
    const ElementType& element = object.components.front().element;
    if (DescrOf(element).named) continue;
    ++unnamed;
    if (std::ranges::find(types, Name(element)) == types.end()) types.emplace_back(Name(element));
  }
  std::vector<std::string> lines;
  if (unnamed > 0) {
    std::string list;
    for (const std::string& type : types) list += (list.empty() ? "" : ", ") + type;
    const bool numbers = std::ranges::any_of(types, [](std::string_view type) {
      return type == "bf16" || (type.starts_with("f8_") && type != "f8_e8m0");
    });
    const bool wide = std::ranges::find(types, "bf16") != types.end();
    const bool narrow = types.size() > (wide ? 1u : 0u);
    lines.push_back("numpy has no name for " + list + ": " + std::to_string(unnamed) +
                    (unnamed == 1 ? " array is" : " arrays are") + " written as '|V'" +
                    (numbers ? "; as f32 they are numbers" : "") +
                    "; in numpy: " + (wide ? ".view('<u2')" : "") + (wide && narrow ? " or " : "") +
                    (narrow ? ".view('u1')" : "") + " is the bits");
  }
  if (coo_of_f16 > 0) {
    lines.push_back("scipy does not load coo matrices of f16, but does of f32");
  }
  static constexpr std::string_view kKept[] = {kScipyFormat, kScipyIsArray};
  std::string lost = LostAttributes(source, objects, kKept, "numpy's files do not keep");
  if (!lost.empty()) lines.push_back(std::move(lost));
  return lines;
}

StatusOr<FileLayout> PlanNpy(const TensorSource& source, std::uint32_t index) {
  const Object& object = source.objects()[index];
  ZT_RETURN_IF_ERROR(WithTensor(CheckDense(object), object.name));
  const Component& data = object.components.front();
  FileLayout layout;
  layout.pieces.push_back({.before = EncodeHeader(DescrOf(data.element).text, object.shape),
                           .source = {index, 0},
                           .bytes = data.bytes});
  layout.bytes = layout.pieces.front().before.size() + data.bytes;
  layout.warnings = NpyLosses(source, std::span(&index, 1));
  return layout;
}

}  // namespace zt
