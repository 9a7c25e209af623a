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

// Of a text or a map.
std::string Json(const auto& value) {
  std::string json;
  AppendJson(value, json);
  return json;
}

// Both sides of a tensor, read in order, once or several times.
struct Sides {
  TensorSource& source;
  TensorSource& base;
  const DiskPair& pair;

  const Object& object() const { return source.objects()[pair.fresh.object]; }
  std::uint64_t bytes() const { return object().components[0].bytes; }
  // Calls `look` with each piece of both.
  Status Each(const std::function<Status(std::uint64_t at, std::span<std::byte> fresh,
                                         std::span<std::byte> old)>& look) const {
    const auto whole = [](std::uint64_t step, std::uint64_t unit) {
      return unit == 0 ? step : (step + unit - 1) / unit * unit;
    };
    const std::uint64_t step =
        whole(whole(kStep, base.preferred_read(pair.old)), source.preferred_read(pair.fresh));
    std::vector<std::byte> fresh, old;
    for (std::uint64_t at = 0; at < bytes(); at += fresh.size()) {
      fresh.resize(std::min(step, bytes() - at));
      old.resize(fresh.size());
      ZT_RETURN_IF_ERROR(AtTensor(source, pair.fresh, source.Read(pair.fresh, at, fresh)));
      ZT_RETURN_IF_ERROR(AtTensor(base, pair.old, base.Read(pair.old, at, old)));
      ZT_RETURN_IF_ERROR(look(at, fresh, old));
    }
    return OkStatus();
  }
};

// Where frames begin in a file: behind the longest header that these tensors can have.
std::uint64_t RoomFor(const TensorSource& source, std::span<const DiskPair> pairs) {
  constexpr std::uint64_t kNumbers = 192;  // of an entry, and its checksum
  std::uint64_t bytes = 256;
  for (const DiskPair& pair : pairs)
    bytes += 2 * Json(source.objects()[pair.fresh.object].name).size() + kNumbers;
  return (bytes + 7) / 8 * 8;
}

// One file: frames, each of which says the size of its content, then the header before them.
class FileWriter {
 public:
  FileWriter(const DiskForm& form, std::uint64_t begin, Sink& sink)
      : form_(form), sink_(sink), begin_(begin), place_(begin) {}

  Status Add(const Sides& sides, const std::function<Status(std::uint64_t)>& progress) {
    Checksum sum(form_.xxh3);
    const auto report = [&](std::span<const std::byte> piece) {
      sum.Update(piece);
      return progress(piece.size());
    };
    const std::uint64_t begin = place_;
    ZT_RETURN_IF_ERROR(form_.overwrite ? Overwrite(sides, report) : Exclude(sides, report));
    if (!begun_) return OkStatus();
    ZT_RETURN_IF_ERROR(Write({}, ZSTD_e_end));
    begun_ = false;
    header_.emplace_back(
        sides.object().name,
        Value::Map{{"dtype", "U8"},
                   {"shape", Value::Array{place_ - begin}},
                   {"data_offsets", Value::Array{begin - begin_, place_ - begin_}}});
    checksums_.emplace_back(sides.object().name, sum.Text());
    return OkStatus();
  }

  // The names of what was added.
  StatusOr<std::vector<std::string>> Finish() {
    std::vector<std::string> names;
    for (const Value::Member& each : checksums_) names.push_back(each.first);
    if (names.empty()) return names;
    std::string header(8, '\0');
    AppendJson(header_, header);
    header.back() = ',';
    header += R"("__metadata__":)" + Json(checksums_) + "}";
    assert(header.size() <= begin_);
    header.resize(begin_, ' ');
    zt::internal::StoreLittle(begin_ - 8, 8, reinterpret_cast<std::byte*>(header.data()));
    const std::span<const std::byte> piece = std::as_bytes(std::span(header));
    ZT_RETURN_IF_ERROR(WithFile(sink_.WriteAt(0, std::span(&piece, 1)), sink_.name()));
    ZT_RETURN_IF_ERROR(WithFile(sink_.Finish(place_), sink_.name()));
    return names;
  }

 private:
  using Report = std::function<Status(std::span<const std::byte>)>;

  // Begins no frame if nothing differs: what is equal is encoded once something is not.
  Status Exclude(const Sides& sides, const Report& report) {
    std::uint64_t equal = 0;
    ZT_RETURN_IF_ERROR(sides.Each(
        [&](std::uint64_t, std::span<std::byte> fresh, std::span<std::byte> old) -> Status {
          ZT_RETURN_IF_ERROR(report(fresh));
          if (std::memcmp(fresh.data(), old.data(), fresh.size()) == 0) {
            equal += fresh.size();
            return OkStatus();
          }
          if (!begun_) ZT_RETURN_IF_ERROR(Begin(sides.bytes()));
          ZT_RETURN_IF_ERROR(WriteZeros(std::exchange(equal, 0)));
          for (std::size_t i = 0; i < old.size(); ++i) old[i] ^= fresh[i];
          return Write(old);
        }));
    return begun_ ? WriteZeros(equal) : OkStatus();
  }

  // The number of changed bytes, their positions, and the bytes: each needs all of the tensor.
  Status Overwrite(const Sides& sides, const Report& report) {
    std::uint64_t count = 0;
    ZT_RETURN_IF_ERROR(sides.Each(
        [&](std::uint64_t, std::span<std::byte> fresh, std::span<std::byte> old) -> Status {
          for (std::size_t i = 0; i < fresh.size(); ++i) count += fresh[i] != old[i] ? 1 : 0;
          return report(fresh);
        }));
    if (count == 0) return OkStatus();
    if (count >= kMostPositions)
      return Unsupported("all of its 2^32 bytes differ; write disk-delta");
    ZT_RETURN_IF_ERROR(Begin(4 + 5 * count));
    std::vector<std::byte> out(4);
    zt::internal::StoreLittle(count, 4, out.data());
    ZT_RETURN_IF_ERROR(Write(out));
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
            return Write(out);
          }));
    }
    return OkStatus();
  }

  // A frame.
  Status Begin(std::uint64_t content) {
    if (context_ == nullptr ||
        ZSTD_isError(ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_compressionLevel, kLevel)) ||
        ZSTD_isError(ZSTD_CCtx_setPledgedSrcSize(context_.get(), content)))
      return IoError("cannot make a zstd context: out of memory");
    begun_ = true;
    return OkStatus();
  }
  Status Write(std::span<const std::byte> bytes, ZSTD_EndDirective how = ZSTD_e_continue) {
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
  Status WriteZeros(std::uint64_t count) {
    static constexpr std::array<std::byte, 64 << 10> zeros = {};
    for (; count > 0; count -= std::min<std::uint64_t>(count, zeros.size()))
      ZT_RETURN_IF_ERROR(
          Write(std::span(zeros).first(std::min<std::uint64_t>(count, zeros.size()))));
    return OkStatus();
  }

  const DiskForm& form_;
  Sink& sink_;
  const std::uint64_t begin_;
  std::uint64_t place_;
  Value::Map header_, checksums_;
  const std::unique_ptr<ZSTD_CCtx, std::size_t (*)(ZSTD_CCtx*)> context_{ZSTD_createCCtx(),
                                                                         &ZSTD_freeCCtx};
  std::vector<std::byte> buffer_ = std::vector<std::byte>(ZSTD_CStreamOutSize());
  bool begun_ = false;  // a frame
};

Status CheckPair(const Object& fresh, const Object* old, const DiskForm& form) {
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
  return form.overwrite && is.bytes > kMostPositions ? TooLongForPositions(is.bytes) : OkStatus();
}

}  // namespace

StatusOr<std::vector<DiskPair>> PairTensors(const TensorSource& source,
                                            std::span<const std::uint32_t> objects,
                                            const TensorSource& base, const DiskForm& form) {
  const NameIndex places = ByName(base.objects());
  std::vector<DiskPair> pairs;
  for (const std::uint32_t index : objects) {
    const Object& object = source.objects()[index];
    const auto found = places.find(object.name);
    Status status =
        CheckPair(object, found == places.end() ? nullptr : &base.objects()[found->second], form);
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
    TensorSource& source, TensorSource& base, std::span<const DiskPair> pairs, const DiskForm& form,
    Sink& sink, const std::function<Status(std::uint64_t bytes)>& progress) {
  FileWriter writer(form, RoomFor(source, pairs), sink);
  for (const DiskPair& pair : pairs) {
    const Sides sides{source, base, pair};
    ZT_RETURN_IF_ERROR(WithTensor(writer.Add(sides, progress), sides.object().name));
  }
  return writer.Finish();
}

std::string DiskDeltaIndex(const DiskForm& form,
                           const std::map<std::string, std::vector<std::string>>& files) {
  Value::Map map;
  for (const auto& [file, names] : files) {
    for (const std::string& name : names) map.emplace_back(name, file);
  }
  const Value::Map metadata = {{"version", form.version},
                               {"base_version", form.base},
                               {"delta_encoding", form.overwrite ? kOverwrite : kXor},
                               {"compression_format", kZstd},
                               {"checksum_format", form.xxh3 ? kXxh3 : kAdler32}};
  return R"({"metadata":)" + Json(metadata) + R"(,"weight_map":)" + Json(map) + "}";
}

}  // namespace zt
