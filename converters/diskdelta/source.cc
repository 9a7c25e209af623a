// zt.convert.diskdelta — a folder of the form and its base as one source.
module;

#include <libdeflate.h>
#include <xxhash.h>

#include "core/little_endian.h"
#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.diskdelta;

import zt.std;
import zt.compress;
import zt.convert.shards;
import zt.core;
import zt.source;

namespace zt {
namespace diskdelta::internal {

Checksum::Checksum(bool xxh3) {
  if (!xxh3) return;
  XXH3_state_t* const state = XXH3_createState();
  if (state == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state);
  state_ = state;
}

Checksum::~Checksum() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }

void Checksum::Update(std::span<const std::byte> bytes) {
  if (state_ == nullptr) {
    adler_ = ::libdeflate_adler32(adler_, bytes.data(), bytes.size());
  } else {
    XXH3_128bits_update(static_cast<XXH3_state_t*>(state_), bytes.data(), bytes.size());
  }
}

std::string Checksum::Text() const {
  char text[33];
  if (state_ == nullptr) {
    std::snprintf(text, sizeof text, "%08x", static_cast<unsigned>(adler_));
  } else {
    const XXH128_hash_t sum = XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state_));
    std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(sum.high64),
                  static_cast<unsigned long long>(sum.low64));
  }
  return text;
}

Status TooLongForPositions(std::uint64_t bytes) {
  return Unsupported("positions of 32 bits do not reach all of its " + std::to_string(bytes) +
                     " bytes; have it written as xor");
}

}  // namespace diskdelta::internal

using namespace diskdelta::internal;

namespace {

// Tensors that are read when a folder is opened have at most so many bytes together.
constexpr std::uint64_t kMostSample = std::uint64_t{64} << 20;

// A member of the metadata that is one of two words; true if it is the second.
StatusOr<bool> Choice(const Value::Map& metadata, std::string_view key, std::string_view first,
                      std::string_view second) {
  const Value* const value = FindMember(metadata, key);
  const std::string* const text = value == nullptr ? nullptr : value->AsString();
  if (text == nullptr) return InvalidData("its index does not say " + std::string(key));
  if (*text == first || *text == second) return *text == second;
  return Unsupported("its " + std::string(key) + " is " + Quote(*text) + "; " + std::string(first) +
                     " and " + std::string(second) + " are read");
}

// What the entry of a tensor decodes to, in order.
class Differences {
 public:
  Differences(TensorSource& delta, ComponentId id, bool zstd)
      : read_([&delta, id](std::uint64_t offset, std::span<std::byte> out) {
          return delta.Read(id, offset, out);
        }),
        stored_(delta.objects()[id.object].components[0].bytes) {
    if (zstd) decoder_ = FindCodec(Encoding::kZstd)->OpenStream({}, read_, stored_, kUnknownSize);
  }

  Status Read(std::span<std::byte> out) {
    ZT_ASSIGN_OR_RETURN(const std::size_t got, ReadSome(out));
    if (got == out.size()) return OkStatus();
    return InvalidData("its differences end after " + std::to_string(at_) + " bytes");
  }
  Status Skip(std::uint64_t bytes) {
    std::vector<std::byte> skipped(std::min<std::uint64_t>(bytes, 64 << 10));
    for (std::uint64_t left = bytes; left > 0;) {
      const auto step = std::span(skipped).first(std::min<std::uint64_t>(left, skipped.size()));
      ZT_RETURN_IF_ERROR(Read(step));
      left -= step.size();
    }
    return OkStatus();
  }
  Status CheckEnd() {
    std::byte more;
    ZT_ASSIGN_OR_RETURN(const std::size_t got, ReadSome({&more, 1}));
    if (got == 0) return OkStatus();
    return InvalidData("its differences go on after the last, at byte " + std::to_string(at_ - 1));
  }

 private:
  StatusOr<std::size_t> ReadSome(std::span<std::byte> out) {
    std::size_t got = std::min<std::uint64_t>(out.size(), stored_ - std::min(at_, stored_));
    if (decoder_ == nullptr) {
      ZT_RETURN_IF_ERROR(read_(at_, out.first(got)));
    } else {
      ZT_ASSIGN_OR_RETURN(got, decoder_->ReadSome(out));
    }
    at_ += got;
    return got;
  }

  StreamReader read_;
  std::uint64_t stored_;
  std::unique_ptr<StreamDecoder> decoder_;
  std::uint64_t at_ = 0;
};

// What is changed at once, so that it stays in the cache.
constexpr std::size_t kCached = 64 << 10;

// What an entry changes of a tensor, in order.
class Changes {
 public:
  virtual ~Changes() = default;
  // Changes the bytes of the tensor from `at`, at most kCached; all before have been changed.
  virtual Status Apply(std::uint64_t at, std::span<std::byte> out) = 0;
  virtual Status CheckEnd() = 0;
};

class Exclusive final : public Changes {
 public:
  explicit Exclusive(Differences differences) : differences_(std::move(differences)) {}

  Status Apply(std::uint64_t, std::span<std::byte> out) override {
    const auto read = std::span(read_).first(out.size());
    ZT_RETURN_IF_ERROR(differences_.Read(read));
    for (std::size_t i = 0; i < out.size(); ++i) out[i] ^= read[i];
    return OkStatus();
  }
  Status CheckEnd() override { return differences_.CheckEnd(); }

 private:
  Differences differences_;
  std::array<std::byte, kCached> read_;
};

class Overwriting final : public Changes {
 public:
  // The entry is read twice at once. The tensor has `bytes`.
  Overwriting(Differences positions, Differences values, std::uint64_t bytes)
      : positions_(std::move(positions)), values_(std::move(values)), bytes_(bytes) {}

  Status Apply(std::uint64_t at, std::span<std::byte> out) override {
    if (!begun_) ZT_RETURN_IF_ERROR(Begin());
    for (; next_ < places_.size() || unread_ > 0; ++next_) {
      if (next_ == places_.size()) ZT_RETURN_IF_ERROR(Refill());
      const std::uint64_t place = places_[next_];
      if (place >= at + out.size()) break;
      out[place - at] = fresh_[next_];
    }
    return OkStatus();
  }
  Status CheckEnd() override { return values_.CheckEnd(); }

 private:
  Status Begin() {
    std::byte count[4];
    ZT_RETURN_IF_ERROR(positions_.Read(count));
    unread_ = zt::internal::LoadLittle(count, 4);
    if (unread_ > bytes_)
      return InvalidData("it has " + std::to_string(unread_) + " differences, and " +
                         std::to_string(bytes_) + " bytes");
    begun_ = true;
    return values_.Skip(4 + 4 * unread_);
  }

  Status Refill() {
    constexpr std::size_t kMost = 16 << 10;
    const std::size_t count = std::min<std::uint64_t>(unread_, kMost);
    std::vector<std::byte> raw(4 * count);
    ZT_RETURN_IF_ERROR(positions_.Read(raw));
    fresh_.resize(count);
    ZT_RETURN_IF_ERROR(values_.Read(fresh_));
    std::uint64_t least = places_.empty() ? 0 : std::uint64_t{places_.back()} + 1;
    places_.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t place = zt::internal::LoadLittle(&raw[4 * i], 4);
      if (place < least)
        return InvalidData("position " + std::to_string(place) +
                           " of its differences is not above that before");
      if (place >= bytes_)
        return InvalidData("position " + std::to_string(place) +
                           " of its differences is beyond its " + std::to_string(bytes_) +
                           " bytes");
      places_[i] = static_cast<std::uint32_t>(place);
      least = place + 1;
    }
    unread_ -= count;
    next_ = 0;
    return OkStatus();
  }

  Differences positions_, values_;
  const std::uint64_t bytes_;
  bool begun_ = false;
  std::uint64_t unread_ = 0;           // changes
  std::vector<std::uint32_t> places_;  // of those that were read last
  std::vector<std::byte> fresh_;       // their bytes
  std::size_t next_ = 0;
};

// A tensor that changed.
struct Changed {
  ComponentId stored;
  std::string checksum;  // of the result
};

// A changed tensor that is being read.
struct Flow {
  std::unique_ptr<Changes> changes;
  Checksum sum;  // of the result
  std::uint64_t at = 0;
};

class DiskDelta final : public WrappedSource {
 public:
  DiskDelta(std::shared_ptr<TensorSource> delta, DiskForm form, std::shared_ptr<TensorSource> base,
            std::string base_path)
      : WrappedSource({base.get(), delta.get()}),
        delta_(std::move(delta)),
        base_(std::move(base)),
        form_(std::move(form)),
        base_path_(std::move(base_path)) {}
  // True if a tensor was compared with its checksum.
  bool sampled() const { return sampled_; }

  Status Init(bool several) {
    objects_ = base_->objects();
    attributes_ = base_->attributes();
    file_ = delta_->file({});
    AddOtherFile(base_path_);
    AddNotesOf(*base_);
    AddNotesOf(*delta_);
    changed_.resize(objects_.size());
    flows_.resize(objects_.size());
    const NameIndex places = ByName(objects_);
    std::unordered_map<std::string_view, const Value*, zt::internal::NameHash> checksums;
    for (const auto& [key, value] : delta_->attributes()) checksums.emplace(key, &value);
    std::set<std::string> files;
    for (std::uint32_t i = 0; i < delta_->objects().size(); ++i) {
      const Object& object = delta_->objects()[i];
      if (object.format != "dense") continue;  // a file of the folder
      const std::string& file = delta_->file({i, 0});
      if (files.insert(file).second) AddOtherFile(file);
      const auto found = places.find(object.name);
      const auto checksum = checksums.find(object.name);
      const Status status =
          AddChanged(i, found == places.end() ? std::nullopt : std::optional(found->second),
                     checksum == checksums.end() ? nullptr : checksum->second->AsString());
      ZT_RETURN_IF_ERROR(WithFile(WithTensor(status, object.name), file));
    }
    return Sample(several);
  }

  std::string_view format() const override { return kDiskDelta; }

  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override {
    if (!changed_[id.object]) return WrappedSource::Read(id, offset, out);
    ZT_RETURN_IF_ERROR(CheckRange(id, offset, out.size()));
    if (out.empty()) return OkStatus();
    std::unique_ptr<Flow>& flow = flows_[id.object];
    if (flow == nullptr || offset < flow->at) flow = Start(id);
    ZT_RETURN_IF_ERROR(Pass(id, flow, offset));
    return Advance(id, flow, out);
  }

  bool sequential(ComponentId id) const override {
    return !passes(id) || WrappedSource::sequential(id);
  }
  std::uint64_t preferred_read(ComponentId id) const override { return base_->preferred_read(id); }

  // What was read in part has a checksum, too.
  Status Finish() override {
    for (std::uint32_t i = 0; i < flows_.size(); ++i) {
      if (flows_[i] == nullptr) continue;
      const ComponentId id{i, 0};
      ZT_RETURN_IF_ERROR(AtTensor(*this, id, Pass(id, flows_[i], objects_[i].components[0].bytes)));
    }
    return WrappedSource::Finish();
  }
  // A component may be made of two sources.
  Status CheckRead(std::span<const ComponentId>) override { return WrappedSource::Finish(); }

  void WillRead(std::span<const ComponentId> components) override {
    std::vector<ComponentId> of_delta;
    for (const ComponentId id : components) {
      if (const auto& changed = changed_[id.object]) of_delta.push_back(changed->stored);
    }
    base_->WillRead(components);
    delta_->WillRead(of_delta);
  }

 private:
  bool passes(ComponentId id) const override { return !changed_[id.object]; }
  std::pair<TensorSource&, ComponentId> Origin(ComponentId id) const override {
    return {*base_, id};
  }

  Status AddChanged(std::uint32_t index, std::optional<std::uint32_t> place,
                    const std::string* checksum) {
    const Object& entry = delta_->objects()[index];
    if (entry.components.size() != 1 || entry.shape.size() != 1 ||
        entry.components[0].element != ElementType{DType::kU8, ""})
      return InvalidData("its differences are no U8 of one dimension");
    if (!place) return InvalidArgument("the base, " + Quote(base_path_) + ", has no such tensor");
    const Object& object = objects_[*place];
    if (object.format != "dense" || object.components.size() != 1)
      return InvalidArgument("it is no plain tensor in the base, " + Quote(base_path_));
    const std::uint64_t bytes = object.components[0].bytes;
    if (checksum == nullptr) return InvalidData("its checksum is missing");
    if (bytes == 0) return InvalidData("it has no bytes that could change");
    if (form_.overwrite && bytes > kMostPositions) return TooLongForPositions(bytes);
    changed_[*place] = Changed{{index, 0}, *checksum};
    return OkStatus();
  }

  // Reads some of the tensors that changed: the smallest, or as many as are small together.
  Status Sample(bool several) {
    std::vector<std::pair<std::uint64_t, std::uint32_t>> small;  // bytes and object
    for (std::uint32_t i = 0; base_->seekable() && i < objects_.size(); ++i) {
      if (changed_[i]) small.emplace_back(objects_[i].components[0].bytes, i);
    }
    std::ranges::sort(small);
    std::uint64_t all = 0;
    for (const auto& each : small) {
      all += each.first;
      if (sampled_ && (all > kMostSample || !several)) break;
      const ComponentId id{each.second, 0};
      std::unique_ptr<Flow> flow = Start(id);
      ZT_RETURN_IF_ERROR(AtTensor(*this, id, Pass(id, flow, each.first)));
      sampled_ = true;
    }
    return OkStatus();
  }

  std::unique_ptr<Flow> Start(ComponentId id) const {
    const ComponentId stored = changed_[id.object]->stored;
    std::unique_ptr<Changes> changes;
    if (form_.overwrite) {
      changes = std::make_unique<Overwriting>(Differences(*delta_, stored, form_.zstd),
                                              Differences(*delta_, stored, form_.zstd),
                                              objects_[id.object].components[0].bytes);
    } else {
      changes = std::make_unique<Exclusive>(Differences(*delta_, stored, form_.zstd));
    }
    return std::make_unique<Flow>(std::move(changes), Checksum(form_.xxh3));
  }

  // Makes what lies before `offset`.
  Status Pass(ComponentId id, std::unique_ptr<Flow>& flow, std::uint64_t offset) const {
    if (flow == nullptr || flow->at >= offset) return OkStatus();
    std::vector<std::byte> passed(std::min<std::uint64_t>(offset - flow->at, kStep));
    while (flow != nullptr && flow->at < offset) {
      const std::uint64_t left = offset - flow->at;
      const auto step = std::span(passed).first(std::min<std::uint64_t>(left, passed.size()));
      ZT_RETURN_IF_ERROR(Advance(id, flow, step));
    }
    return OkStatus();
  }

  // Makes the next bytes; at the end compares the checksum. Keeps a flow that is to go on: none that
  // failed, which would go on elsewhere.
  Status Advance(ComponentId id, std::unique_ptr<Flow>& kept, std::span<std::byte> out) const {
    auto flow = std::exchange(kept, nullptr);
    ZT_RETURN_IF_ERROR(AtTensor(*base_, id, base_->Read(id, flow->at, out)));
    while (!out.empty()) {
      const auto step = out.first(std::min(out.size(), kCached));
      ZT_RETURN_IF_ERROR(OfDelta(id, flow->changes->Apply(flow->at, step)));
      flow->sum.Update(step);
      flow->at += step.size();
      out = out.subspan(step.size());
    }
    if (flow->at < objects_[id.object].components[0].bytes) {
      kept = std::move(flow);
      return OkStatus();
    }
    ZT_RETURN_IF_ERROR(OfDelta(id, flow->changes->CheckEnd()));
    const std::string is = flow->sum.Text();
    return is == changed_[id.object]->checksum ? OkStatus() : OfDelta(id, Mismatch(id, is));
  }

  // Why the checksum of a tensor is another.
  Status Mismatch(ComponentId id, const std::string& is) const {
    const Changed& changed = *changed_[id.object];
    Checksum sum(form_.xxh3);
    const std::uint64_t bytes = objects_[id.object].components[0].bytes;
    std::vector<std::byte> old(std::min<std::uint64_t>(bytes, kStep));
    bool again = base_->seekable();
    for (std::uint64_t at = 0; again && at < bytes;) {
      const auto step = std::span(old).first(std::min<std::uint64_t>(bytes - at, old.size()));
      again = base_->Read(id, at, step).ok();
      sum.Update(step);
      at += step.size();
    }
    if (again && sum.Text() == changed.checksum)
      return InvalidArgument("the base, " + Quote(base_path_) + ", has its values of version " +
                             Quote(form_.version) +
                             " already, and xor applied again would undo them");
    return InvalidData("with the base, " + Quote(base_path_) + ", its checksum is " + is +
                       " and should be " + Quote(changed.checksum) + ": that is not version " +
                       Quote(form_.base) + ", or one of both is damaged");
  }

  // An error of an entry, with its file.
  Status OfDelta(ComponentId id, const Status& status) const {
    if (status.ok()) return status;
    return AtTensor(*delta_, changed_[id.object]->stored, status);
  }

  const std::shared_ptr<TensorSource> delta_, base_;
  const DiskForm form_;
  bool sampled_ = false;
  const std::string base_path_;
  std::vector<std::optional<Changed>> changed_;  // by object
  std::vector<std::unique_ptr<Flow>> flows_;     // likewise; each is of one thread at a time
};

}  // namespace

std::string_view VersionStem(std::string_view text) {
  return text.substr(0, text.find_last_not_of("0123456789") + 1);
}

std::optional<std::uint64_t> VersionNumber(std::string_view text) {
  const std::string_view digits = text.substr(VersionStem(text).size());
  std::uint64_t number = 0;
  if (digits.empty() || digits.size() > 18) return std::nullopt;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

StatusOr<std::optional<DiskForm>> FindDiskDelta(const Value::Map& attributes) {
  const Value* const attribute = FindMember(attributes, kDiskDelta);
  if (attribute == nullptr || attribute->AsMap() == nullptr) return std::nullopt;
  const Value::Map& metadata = *attribute->AsMap();
  DiskForm form;
  ZT_ASSIGN_OR_RETURN(form.overwrite, Choice(metadata, "delta_encoding", kXor, kOverwrite));
  ZT_ASSIGN_OR_RETURN(form.zstd, Choice(metadata, "compression_format", kNone, kZstd));
  ZT_ASSIGN_OR_RETURN(form.xxh3, Choice(metadata, "checksum_format", kAdler32, kXxh3));
  for (const auto& [key, text] :
       {std::make_pair("version", &form.version), std::make_pair("base_version", &form.base)}) {
    const Value* const value = FindMember(metadata, key);
    if (value == nullptr || value->AsString() == nullptr || value->AsString()->empty())
      return InvalidData("its index does not say " + std::string(key));
    *text = *value->AsString();
  }
  const auto version = VersionNumber(form.version);
  const auto base = VersionNumber(form.base);
  if (form.version == form.base || (version && base && *version <= *base))
    return InvalidData("its version " + Quote(form.version) +
                       " does not follow that of its base, " + Quote(form.base));
  return form;
}

StatusOr<std::unique_ptr<TensorSource>> OpenDiskDelta(std::unique_ptr<TensorSource> delta,
                                                      std::unique_ptr<TensorSource> base,
                                                      const std::string& base_path,
                                                      const std::string& known) {
  ZT_ASSIGN_OR_RETURN(const auto form, FindDiskDelta(delta->attributes()));
  const auto number = VersionNumber(known), wanted = VersionNumber(form->base);
  if (!known.empty() && (number && wanted ? *number != *wanted : known != form->base))
    return InvalidArgument("it is what version " + Quote(form->version) + " changes of version " +
                           Quote(form->base) + ", and the base, " + Quote(base_path) +
                           ", is version " + Quote(known));
  auto source = std::make_unique<DiskDelta>(std::move(delta), *form, std::move(base), base_path);
  ZT_RETURN_IF_ERROR(source->Init(false));
  return source;
}

StatusOr<bool> IsDiskBase(TensorSource& delta, TensorSource& base) {
  const auto form = FindDiskDelta(delta.attributes());
  if (!form.ok() || !*form) return false;
  const auto borrowed = [](TensorSource& of) {
    return std::shared_ptr<TensorSource>(std::shared_ptr<void>(), &of);
  };
  DiskDelta source(borrowed(delta), **form, borrowed(base), "");
  const Status fits = source.Init(true);
  ZT_RETURN_IF_UNAVAILABLE(fits);
  return fits.ok() && source.sampled();
}

}  // namespace zt
