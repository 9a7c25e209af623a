// zt.convert.diskdelta — writes the files of a folder: a zstd frame for each tensor that changed.
module;

#include <assert.h>
#include <zstd.h>

#include "core/little_endian.h"
#include "core/status_macros.h"

module zt.convert.diskdelta;

import zt.std;
import zt.convert.safetensors;
import zt.core;
import zt.sink;
import zt.source;
import zt.text;

namespace zt {

using namespace diskdelta::internal;

namespace {

// As others write it.
constexpr int kLevel = 1;

std::string Json(std::string_view text) {
  std::string json;
  AppendJson(Value(text), json);
  return json;
}

// Appends a member to an object of JSON, which begins with '{'.
void AddMember(std::string& object, std::string_view key, std::string_view value) {
  if (!object.ends_with('{')) object += ',';
  object += Json(key) + ":" + std::string(value);
}

// Encodes one frame, which says the size of its content, to a place in a sink.
class FrameWriter {
 public:
  FrameWriter(Sink& sink, std::uint64_t place, std::uint64_t content)
      : sink_(sink), place_(place), context_(ZSTD_createCCtx(), &ZSTD_freeCCtx) {
    buffer_.resize(ZSTD_CStreamOutSize());
    ok_ = context_ != nullptr &&
          !ZSTD_isError(ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_compressionLevel, kLevel)) &&
          !ZSTD_isError(ZSTD_CCtx_setPledgedSrcSize(context_.get(), content));
  }

  Status Write(std::span<const std::byte> bytes) { return Run(bytes, ZSTD_e_continue); }
  Status WriteZeros(std::uint64_t count) {
    static constexpr std::array<std::byte, 64 << 10> zeros = {};
    for (; count > 0; count -= std::min<std::uint64_t>(count, zeros.size()))
      ZT_RETURN_IF_ERROR(
          Write(std::span(zeros).first(std::min<std::uint64_t>(count, zeros.size()))));
    return OkStatus();
  }
  Status End() { return Run({}, ZSTD_e_end); }
  // Where the frame ends.
  std::uint64_t place() const { return place_; }

 private:
  Status Run(std::span<const std::byte> bytes, ZSTD_EndDirective how) {
    if (!ok_) return IoError("cannot make a zstd context: out of memory");
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    for (std::size_t left = 1; left > 0;) {
      ZSTD_outBuffer out{buffer_.data(), buffer_.size(), 0};
      left = ZSTD_compressStream2(context_.get(), &out, &in, how);
      if (ZSTD_isError(left)) return IoError(std::string("zstd: ") + ZSTD_getErrorName(left));
      if (how == ZSTD_e_continue) left = in.size - in.pos;
      const std::span<const std::byte> piece = std::span(buffer_).first(out.pos);
      if (out.pos > 0)
        ZT_RETURN_IF_ERROR(WithFile(sink_.WriteAt(place_, std::span(&piece, 1)), sink_.name()));
      place_ += out.pos;
    }
    return OkStatus();
  }

  Sink& sink_;
  std::uint64_t place_;
  std::unique_ptr<ZSTD_CCtx, std::size_t (*)(ZSTD_CCtx*)> context_;
  std::vector<std::byte> buffer_;
  bool ok_ = false;
};

// Both sides of a tensor, read in order, once or several times.
class Sides {
 public:
  Sides(TensorSource& source, TensorSource& base, const DiskPair& pair)
      : fresh_{source, pair.fresh},
        old_{base, pair.old},
        bytes_(source.objects()[pair.fresh.object].components[0].bytes),
        step_(StepOf(source, pair.fresh, StepOf(base, pair.old, kStep))) {}

  std::uint64_t bytes() const { return bytes_; }
  // Calls `look` with each piece of both.
  Status Each(const std::function<Status(std::uint64_t, std::span<std::byte>,
                                         std::span<std::byte>)>& look) {
    std::vector<std::byte> fresh(std::min(bytes_, step_)), old(fresh.size());
    for (std::uint64_t at = 0; at < bytes_; at += fresh.size()) {
      fresh.resize(std::min<std::uint64_t>(fresh.size(), bytes_ - at));
      old.resize(fresh.size());
      ZT_RETURN_IF_ERROR(fresh_.Read(at, fresh));
      ZT_RETURN_IF_ERROR(old_.Read(at, old));
      ZT_RETURN_IF_ERROR(look(at, fresh, old));
    }
    return OkStatus();
  }

 private:
  struct Side {
    TensorSource& source;
    ComponentId id;

    Status Read(std::uint64_t at, std::span<std::byte> out) const {
      return AtTensor(source, id, source.Read(id, at, out));
    }
  };
  static std::uint64_t StepOf(const TensorSource& source, ComponentId id, std::uint64_t least) {
    const std::uint64_t unit = std::max<std::uint64_t>(source.preferred_read(id), 1);
    return (least + unit - 1) / unit * unit;
  }

  const Side fresh_, old_;
  const std::uint64_t bytes_, step_;
};

// Where frames begin in a file: behind the longest header that these tensors can have.
std::uint64_t RoomFor(const TensorSource& source, std::span<const DiskPair> pairs) {
  constexpr std::uint64_t kNumbers = 192;  // of an entry, and its checksum
  std::uint64_t bytes = 256;
  for (const DiskPair& pair : pairs)
    bytes += 2 * Json(source.objects()[pair.fresh.object].name).size() + kNumbers;
  return (bytes + 7) / 8 * 8;
}

// One file: frames, then the header before them.
class FileWriter {
 public:
  FileWriter(const DiskDeltaOptions& options, std::uint64_t begin, Sink& sink)
      : options_(options), sink_(sink), begin_(begin), place_(begin) {}

  Status Add(const std::string& name, Sides sides,
             const std::function<Status(std::uint64_t)>& progress) {
    Checksum sum(options_.xxh3);
    const auto report = [&](std::span<const std::byte> piece) {
      sum.Update(piece);
      return progress(piece.size());
    };
    std::optional<FrameWriter> frame;
    ZT_RETURN_IF_ERROR(options_.overwrite ? Overwrite(sides, report, frame)
                                          : Exclude(sides, report, frame));
    if (!frame) return OkStatus();
    ZT_RETURN_IF_ERROR(frame->End());
    const std::uint64_t end = frame->place();
    AddMember(header_, name,
              R"({"dtype":"U8","shape":[)" + std::to_string(end - place_) +
                  R"(],"data_offsets":[)" + std::to_string(place_ - begin_) + "," +
                  std::to_string(end - begin_) + "]}");
    AddMember(checksums_, name, Json(sum.Text()));
    names_.push_back(name);
    place_ = end;
    return OkStatus();
  }

  StatusOr<std::vector<std::string>> Finish() {
    if (names_.empty()) return names_;
    AddMember(header_, "__metadata__", checksums_ + "}");
    header_ += "}";
    assert(header_.size() <= begin_);
    header_.resize(begin_, ' ');
    zt::internal::StoreLittle(begin_ - 8, 8, reinterpret_cast<std::byte*>(header_.data()));
    const std::span<const std::byte> piece = std::as_bytes(std::span(header_));
    ZT_RETURN_IF_ERROR(WithFile(sink_.WriteAt(0, std::span(&piece, 1)), sink_.name()));
    ZT_RETURN_IF_ERROR(WithFile(sink_.Finish(place_), sink_.name()));
    return std::move(names_);
  }

 private:
  using Report = std::function<Status(std::span<const std::byte>)>;

  // Leaves `frame` empty if nothing differs: what is equal is encoded once something is not.
  Status Exclude(Sides& sides, const Report& report, std::optional<FrameWriter>& frame) {
    std::uint64_t equal = 0;
    ZT_RETURN_IF_ERROR(sides.Each(
        [&](std::uint64_t, std::span<std::byte> fresh, std::span<std::byte> old) -> Status {
          ZT_RETURN_IF_ERROR(report(fresh));
          if (std::memcmp(fresh.data(), old.data(), fresh.size()) == 0) {
            equal += fresh.size();
            return OkStatus();
          }
          if (!frame) frame.emplace(sink_, place_, sides.bytes());
          ZT_RETURN_IF_ERROR(frame->WriteZeros(std::exchange(equal, 0)));
          for (std::size_t i = 0; i < old.size(); ++i) old[i] ^= fresh[i];
          return frame->Write(old);
        }));
    return frame ? frame->WriteZeros(equal) : OkStatus();
  }

  // The number of changed bytes, their positions, and the bytes: each needs all of the tensor.
  Status Overwrite(Sides& sides, const Report& report, std::optional<FrameWriter>& frame) {
    std::uint64_t count = 0;
    ZT_RETURN_IF_ERROR(sides.Each(
        [&](std::uint64_t, std::span<std::byte> fresh, std::span<std::byte> old) -> Status {
          for (std::size_t i = 0; i < fresh.size(); ++i) count += fresh[i] != old[i] ? 1 : 0;
          return report(fresh);
        }));
    if (count == 0) return OkStatus();
    if (count >= kMostPositions)
      return Unsupported("all of its 2^32 bytes differ; write disk-delta");
    frame.emplace(sink_, place_, 4 + 5 * count);
    std::vector<std::byte> out(4);
    zt::internal::StoreLittle(count, 4, out.data());
    ZT_RETURN_IF_ERROR(frame->Write(out));
    for (const bool positions : {true, false}) {
      ZT_RETURN_IF_ERROR(sides.Each(
          [&](std::uint64_t at, std::span<std::byte> fresh, std::span<std::byte> old) -> Status {
            out.clear();
            for (std::size_t i = 0; i < fresh.size(); ++i) {
              if (fresh[i] == old[i]) continue;
              if (!positions) {
                out.push_back(fresh[i]);
                continue;
              }
              out.resize(out.size() + 4);
              zt::internal::StoreLittle(at + i, 4, &out[out.size() - 4]);
            }
            return frame->Write(out);
          }));
    }
    return OkStatus();
  }

  const DiskDeltaOptions& options_;
  Sink& sink_;
  const std::uint64_t begin_;
  std::uint64_t place_;
  std::string header_ = std::string(8, '\0') + "{", checksums_ = "{";
  std::vector<std::string> names_;
};

Status CheckPair(const Object& fresh, const Object* old, const DiskDeltaOptions& options) {
  if (old == nullptr)
    return Unsupported("the base has no such tensor, and disk-delta has no place for new ones");
  if (fresh.format != "dense" || fresh.components.size() != 1 || old->format != "dense")
    return Unsupported("disk-delta is of plain tensors, and it is " + Quote(fresh.format));
  if (fresh.name == "__metadata__") return Unsupported("safetensors reserves this name");
  if (!IsUtf8(fresh.name)) return Unsupported("safetensors' names are UTF-8");
  const Component& is = fresh.components[0];
  const Component& was = old->components[0];
  if (is.element != was.element || fresh.shape != old->shape || is.bytes != was.bytes)
    return Unsupported("it is " + std::string(Name(is.element)) + " " + ToString(fresh.shape) +
                       ", in the base " + std::string(Name(was.element)) + " " +
                       ToString(old->shape) + ", and disk-delta keeps types and shapes");
  return options.overwrite && is.bytes > kMostPositions ? TooLongForPositions(is.bytes)
                                                        : OkStatus();
}

}  // namespace

StatusOr<std::vector<DiskPair>> PairTensors(const TensorSource& source,
                                            std::span<const std::uint32_t> objects,
                                            const TensorSource& base,
                                            const DiskDeltaOptions& options) {
  const NameIndex places = ByName(base.objects());
  std::vector<DiskPair> pairs;
  for (const std::uint32_t index : objects) {
    const Object& object = source.objects()[index];
    const auto found = places.find(object.name);
    Status status = CheckPair(
        object, found == places.end() ? nullptr : &base.objects()[found->second], options);
    if (status.ok()) status = source.CheckReadable(index);
    if (status.ok()) status = base.CheckReadable(found->second);
    ZT_RETURN_IF_ERROR(WithFile(WithTensor(status, object.name), source.file({index, 0})));
    if (object.components[0].bytes > 0) pairs.push_back({{index, 0}, {found->second, 0}});
  }
  if (const std::uint64_t room = RoomFor(source, pairs); room > kMaxSafetensorsHeader)
    return WithAdvice(
        Unsupported("a header of " + std::to_string(pairs.size()) + " tensors may have " +
                    std::to_string(room) + " bytes, and safetensors' limit is " +
                    std::to_string(kMaxSafetensorsHeader)),
        Advice::kShards);
  return pairs;
}

StatusOr<std::vector<std::string>> WriteDiskDelta(
    TensorSource& source, TensorSource& base, std::span<const DiskPair> pairs,
    const DiskDeltaOptions& options, Sink& sink,
    const std::function<Status(std::uint64_t bytes)>& progress) {
  FileWriter writer(options, RoomFor(source, pairs), sink);
  for (const DiskPair& pair : pairs) {
    const std::string& name = source.objects()[pair.fresh.object].name;
    ZT_RETURN_IF_ERROR(WithTensor(writer.Add(name, Sides(source, base, pair), progress), name));
  }
  return writer.Finish();
}

std::string DiskDeltaIndex(const DiskDeltaOptions& options,
                           const std::map<std::string, std::vector<std::string>>& files) {
  std::string metadata = "{", map = "{", text = "{";
  AddMember(metadata, "version", Json(options.versions.version));
  AddMember(metadata, "base_version", Json(options.versions.base));
  AddMember(metadata, "delta_encoding", Json(options.overwrite ? kOverwrite : kXor));
  AddMember(metadata, "compression_format", Json(kZstd));
  AddMember(metadata, "checksum_format", Json(options.xxh3 ? kXxh3 : kAdler32));
  for (const auto& [file, names] : files) {
    for (const std::string& name : names) AddMember(map, name, Json(file));
  }
  AddMember(text, "metadata", metadata + "}");
  AddMember(text, "weight_map", map + "}");
  text += "}";
  return text;
}

}  // namespace zt
