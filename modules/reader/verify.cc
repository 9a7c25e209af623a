// zt.reader — verification: reads and decodes every blob once, in parallel, and lists problems by
// component.
module;

#include "core/status_macros.h"

module zt.reader;

import zt.std;
import :checks;
import :sparse_0_1;
import zt.compress;
import zt.core;
import zt.digest;
import zt.format;
import zt.pipeline;
import zt.source;

namespace zt {
namespace {

constexpr std::uint64_t kRange = 4 << 20;   // stored bytes per range of a raw blob
constexpr std::uint64_t kStep = 1 << 20;    // stream content decoded at once
constexpr std::uint64_t kRangeCost = 1024;  // weight of a range besides its bytes

// A component being verified.
struct Member {
  ComponentId id;
  std::optional<DataRule> rule = {};
  std::shared_ptr<const Object> declared = {};  // with every size known, if there is a rule
};

// A blob being verified, shared by all components with the same bytes and the same decoding.
struct VerifyBlob {
  StoredComponent stored;       // of the first component
  std::vector<Member> members;  // in the order of the manifest
  bool crc = false;             // compute a CRC-32C of the stored bytes
  bool decoded = false;         // the blob is encoded and digests cover the decoded bytes
  ContentCheck check;
  bool judged = false;  // `check` has rules, and the blob can be decoded

  // Used by Hash: all digests but the CRC-32C of stored bytes.
  std::map<DigestKind, std::unique_ptr<Hasher>> hashers;
  // The members below are used by SumStage.
  std::uint64_t stored_done = 0;
  std::uint32_t crc_so_far = 0;
  std::optional<std::string> problem;  // the first decoding error
};

// A range of stored bytes read at once: part of a raw blob, a frame, the bytes after the last
// frame, or a whole stream.
struct StoredRange {
  std::uint64_t offset = 0, bytes = 0;
  std::optional<Frame> frame = {};
  bool whole_stream = false, last = false;
  std::uint64_t at_once() const { return whole_stream ? 0 : bytes; }
};

// A range of a blob in flight.
struct VerifyRange {
  std::shared_ptr<VerifyBlob> blob;
  StoredRange at;
  std::span<std::byte> stored = {};        // in the batch's buffer; empty for whole streams
  Buffer content = {};                     // of a frame, if digests cover it
  std::span<const std::byte> hashed = {};  // the bytes that digests cover
  std::uint32_t crc = 0;
  ContentCheck::Found found = {};
  std::optional<std::string> problem = {};
  std::map<DigestKind, std::string> digests = {};  // of a whole stream
};

using Batch = BatchOf<VerifyRange>;

const std::string& NameOf(const Reader& reader, ComponentId id) {
  return reader.manifest().objects[id.object].name;
}

class FetchStage {
 public:
  FetchStage(const Reader& reader, BufferPool& pool) : reader_(reader), pool_(pool) {}

  Status operator()(Batch& batch) const {
    ZT_RETURN_IF_ERROR(Read(batch));
    for (VerifyRange& range : batch.ranges) {
      ZT_RETURN_IF_ERROR(Named(range, range.at.whole_stream ? StreamWhole(range) : Decode(range)));
    }
    return OkStatus();
  }

 private:
  Status Named(const VerifyRange& range, const Status& status) const {
    return WithTensor(status, NameOf(reader_, range.blob->members.front().id));
  }

  // Reads the stored bytes of the batch, except whole streams.
  Status Read(Batch& batch) const {
    std::uint64_t total = 0;
    for (const VerifyRange& range : batch.ranges) total += range.at.at_once();
    batch.input = pool_.Take(total);
    std::span<std::byte> free = batch.input.bytes();
    std::vector<RangeToRead> ranges;
    for (VerifyRange& range : batch.ranges) {
      range.stored = free.first(range.at.at_once());
      free = free.subspan(range.stored.size());
      ranges.push_back(
          {&reader_.bytes(), range.blob->stored.offset + range.at.offset, range.stored});
    }
    return ReadRanges(ranges, [&](std::size_t i) {
      return Named(batch.ranges[i], reader_.bytes().ReadAt(ranges[i].offset, ranges[i].bytes));
    });
  }

  Status Decode(VerifyRange& range) const {
    const VerifyBlob& blob = *range.blob;
    if (blob.crc) range.crc = Crc32c(range.stored);
    if (!blob.decoded) range.hashed = range.stored;
    if (range.at.frame) {
      Buffer content = pool_.Take(range.at.frame->content_bytes);
      Status status = CheckFrameBytes(Traits(reader_.manifest().version), range.stored);
      if (status.ok()) {
        status = FindCodec(blob.stored.encoding)
                     ->DecodeFrame(blob.stored.parameters, range.stored, content.bytes());
      }
      if (!status.ok()) {
        range.problem = Fact(status);
      } else {
        Look(range, content.bytes(), range.at.frame->content_offset);
      }
      if (blob.decoded) {
        range.hashed = content.bytes();
        range.content = std::move(content);
      }
    } else if (!blob.decoded && blob.stored.encoding == Encoding::kRaw) {
      Look(range, range.stored, range.at.offset);
    }
    return OkStatus();
  }

  static void Look(VerifyRange& range, std::span<const std::byte> content, std::uint64_t offset) {
    if (range.blob->judged) range.found = range.blob->check.Look(offset, content);
  }

  // Decodes a stream whose frames cannot be decoded separately: in order, with bounded memory, on
  // this worker.
  Status StreamWhole(VerifyRange& range) const {
    const StoredComponent& c = range.blob->stored;
    Status io;
    std::uint64_t hashed = 0;
    std::map<DigestKind, std::unique_ptr<Hasher>> hashers;
    if (range.blob->crc) hashers[DigestKind::kCrc32c] = MakeHasher(DigestKind::kCrc32c);
    for (const auto& [kind, unused] : range.blob->hashers) hashers[kind] = MakeHasher(kind);
    const bool decoded = range.blob->decoded;
    const auto read = [&](std::uint64_t offset, std::span<std::byte> out) {
      io = reader_.bytes().ReadAt(c.offset + offset, out);
      if (!io.ok() || decoded || offset != hashed) return io;
      for (const auto& [kind, hasher] : hashers) hasher->Update(out);
      hashed += out.size();
      return io;
    };
    const Status status = Stream(range, read, [&](std::span<const std::byte> content) {
      for (const auto& [kind, hasher] : hashers) {
        if (decoded) hasher->Update(content);
      }
    });
    ZT_RETURN_IF_ERROR(io);
    if (!status.ok()) range.problem = Fact(status);
    if (hashers.empty()) return OkStatus();
    // Hash the stored bytes that the decoder has not read.
    Buffer rest = pool_.Take(std::min(kStep, c.length - hashed));
    while (!decoded && hashed < c.length) {
      const auto part = std::min<std::uint64_t>(rest.bytes().size(), c.length - hashed);
      ZT_RETURN_IF_ERROR(read(hashed, rest.bytes().first(part)));
    }
    for (const auto& [kind, hasher] : hashers) range.digests[kind] = hasher->Finish();
    return OkStatus();
  }

  template <typename Seen>
  Status Stream(VerifyRange& range, const StreamReader& read, Seen seen) const {
    const StoredComponent& c = range.blob->stored;
    const auto stream =
        FindCodec(c.encoding)->OpenStream(c.parameters, read, c.length, c.decoded_bytes);
    Buffer content = pool_.Take(std::clamp<std::uint64_t>(c.decoded_bytes, 1, kStep));
    for (std::uint64_t at = 0; at < c.decoded_bytes;) {
      const auto part = content.bytes().first(
          std::min<std::uint64_t>(content.bytes().size(), c.decoded_bytes - at));
      ZT_RETURN_IF_ERROR(stream->Read(part));
      Look(range, part, at);
      range.blob->check.Add(std::exchange(range.found, {}), {});
      seen(part);
      at += part.size();
    }
    return stream->Finish();
  }

  const Reader& reader_;
  BufferPool& pool_;
};

// Computes digests that need the bytes in order: ranges of one blob in order, several blobs in
// parallel.
Status Hash(Batch& batch) {
  for (VerifyRange& range : batch.ranges) {
    for (const auto& [kind, hasher] : range.blob->hashers) {
      if (!range.at.whole_stream) hasher->Update(range.hashed);
    }
    range.content = Buffer();
  }
  batch.input = Buffer();
  return OkStatus();
}

// Collects the problems found.
class Findings {
 public:
  void Add(ComponentId id, std::string_view object, std::string role, std::string message) {
    found_.emplace(id, VerifyProblem{Repeated(object), std::move(role), std::move(message)});
  }
  void Append(Findings other) { found_.merge(other.found_); }
  // The objects with problems.
  std::set<std::uint32_t> Objects() const {
    std::set<std::uint32_t> objects;
    for (const auto& [id, problem] : found_) {
      if (!problem.object.empty()) objects.insert(id.object);
    }
    return objects;
  }
  // All problems in manifest order, those of the file first.
  std::vector<VerifyProblem> Take() {
    std::vector<VerifyProblem> problems;
    for (auto& [id, problem] : found_) problems.push_back(std::move(problem));
    return problems;
  }

 private:
  std::multimap<ComponentId, VerifyProblem> found_;  // problems of one component in the order found
};

// Combines the results of the ranges, in order.
class SumStage {
 public:
  SumStage(const Reader& reader, VerifyReport& report, Findings& findings)
      : reader_(reader), report_(report), findings_(findings) {}

  Status operator()(Batch& batch) {
    for (VerifyRange& range : batch.ranges) {
      VerifyBlob& blob = *range.blob;
      blob.crc_so_far = blob.stored_done == 0
                            ? range.crc
                            : Crc32cCombine(blob.crc_so_far, range.crc, range.at.bytes);
      blob.stored_done += range.at.bytes;
      if (!blob.problem) blob.problem = std::move(range.problem);
      if (!blob.problem) blob.check.Add(std::move(range.found), {});
      if (range.at.last) Complete(blob, range);
    }
    report_.stored_bytes += batch.bytes;
    return OkStatus();
  }

 private:
  void Complete(VerifyBlob& blob, VerifyRange& range) {
    std::map<DigestKind, std::string> digests = std::move(range.digests);
    if (!range.at.whole_stream) {
      if (blob.crc) digests[DigestKind::kCrc32c] = Crc32cText(blob.crc_so_far);
      for (const auto& [kind, hasher] : blob.hashers) digests[kind] = hasher->Finish();
    }
    report_.decoded_bytes += blob.stored.decoded_bytes;
    for (const Member& member : blob.members) Judge(blob, member, digests);
  }

  void Judge(const VerifyBlob& blob, const Member& member,
             const std::map<DigestKind, std::string>& digests) {
    const StoredComponent& stored = reader_.component(member.id);
    const auto add = [&](std::string message) {
      findings_.Add(member.id, NameOf(reader_, member.id), stored.role, std::move(message));
    };
    const DigestText expected = DigestOrUnknown(stored.digest);
    // After a decoding error the decoded bytes are incomplete: no digest of them is compared.
    const bool hashed = !blob.decoded || !blob.problem;
    if (const auto found = hashed ? digests.find(expected.kind) : digests.end();
        found != digests.end()) {
      ++report_.digests;
      if (found->second != expected.canonical) {
        add("the digest is " + found->second + ", the manifest says " + stored.digest);
      }
    }
    if (blob.problem) {
      add(*blob.problem);
    } else if (member.rule) {
      const Status status =
          blob.check.Check(*member.rule, *member.declared, CountIndices(*member.declared));
      if (!status.ok()) add(Fact(status));
    }
  }

  const Reader& reader_;
  VerifyReport& report_;
  Findings& findings_;
};

class Verifier {
 public:
  Verifier(const Reader& reader, const VerifyOptions& options)
      : reader_(reader), options_(options), pool_(window_) {}

  StatusOr<VerifyReport> Run() {
    std::vector<std::string> wrong;
    if (!options_.object) ZT_RETURN_IF_ERROR(reader::internal::CheckGaps(reader_, report_, wrong));
    ZT_RETURN_IF_ERROR(
        reader::internal::CheckShards(reader_, options_.object, report_, wrong, missing_));
    for (std::string& each : wrong) findings_.Add({}, "", "", std::move(each));
    ZT_RETURN_IF_ERROR(Gather());
    RangeOptions options = {.threads = options_.threads, .memory_bytes = options_.memory_bytes};
    options.cancelled = options_.cancelled;
    if (options_.progress) {
      options.progress = [this](std::uint64_t done) { options_.progress(done, total_); };
    }
    RangePipeline<Batch> pipeline({{StageOrder::kParallel, FetchStage(reader_, pool_)},
                                   {StageOrder::kInChain, Hash},
                                   {StageOrder::kInOrder, SumStage(reader_, report_, in_order_)}},
                                  options);
    Status added;
    for (std::size_t i = 0; i < groups_.size() && added.ok(); ++i)
      added = Add(pipeline, groups_[i]);
    ZT_RETURN_IF_ERROR(pipeline.Drain(added));
    findings_.Append(std::move(in_order_));
    ZT_RETURN_IF_ERROR(reader::internal::CheckSparse(
        reader_, options_.object, findings_.Objects(), missing_, 2 * window_, report_,
        [this](std::uint32_t o, VerifyProblem what) {
          findings_.Add({o, 0}, what.object, std::move(what.component), std::move(what.message));
        }));
    report_.problems = findings_.Take();
    if (options_.canonical) {
      ZT_RETURN_IF_ERROR(
          reader::internal::CheckCanonical(reader_, report_.unreferenced_bytes, report_.problems));
    }
    ZT_RETURN_IF_ERROR(reader_.bytes().CheckUnchanged());
    return std::move(report_);
  }

 private:
  // A component, with the fields that two components must share to have the same bytes.
  struct KeyedComponent {
    std::uint64_t offset, length;
    Encoding encoding;
    CodecParameters parameters;
    ComponentId id;
    auto Key() const { return std::tie(offset, length, encoding, parameters, id); }
    bool SharesWith(const KeyedComponent& other) const {
      return offset == other.offset && length == other.length && encoding == other.encoding &&
             parameters == other.parameters;
    }
  };
  // Components with the same bytes, as a range of keyed_.
  struct Group {
    std::size_t begin, end;
  };

  // Collects all components and groups those with the same bytes; groups are in the manifest order
  // of their first component.
  Status Gather() {
    const auto& objects = reader_.manifest().objects;
    for (std::uint32_t o = 0; o < objects.size(); ++o) {
      if (o != options_.object.value_or(o)) continue;
      ++report_.objects;
      report_.components += objects[o].components.size();
      ZT_ASSIGN_OR_RETURN(const bool sized, Size(o));
      if (!sized) continue;
      for (std::uint32_t c = 0; c < objects[o].components.size(); ++c) {
        const StoredComponent& stored = objects[o].components[c];
        if (const std::string& why = stored.undecodable; !why.empty()) {
          // Of several in turn with one reason, the object is named.
          if (c > 0 && objects[o].components[c - 1].undecodable == why) {
            report_.undecodable.back().component.clear();
          } else {
            report_.undecodable.push_back({Repeated(objects[o].name), stored.role, why});
          }
        }
        const bool hashed = stored.unknown_encoding.empty() &&
                            DigestOrUnknown(stored.digest).kind != DigestKind::kNone;
        report_.unhashed += stored.length > 0 && !hashed ? 1 : 0;
        if (!stored.unknown_encoding.empty() || missing_.contains(stored.shard)) continue;
        const std::uint64_t offset = stored.length == 0 ? 0 : stored.offset;
        keyed_.push_back({offset, stored.length, stored.encoding, stored.parameters, {o, c}});
      }
    }
    std::sort(keyed_.begin(), keyed_.end(),
              [](const KeyedComponent& a, const KeyedComponent& b) { return a.Key() < b.Key(); });
    for (std::size_t i = 0; i < keyed_.size(); ++i) {
      if (i > 0 && keyed_[i].SharesWith(keyed_[i - 1])) {
        groups_.back().end = i + 1;
      } else {
        groups_.push_back({i, i + 1});
        total_ += keyed_[i].length;
      }
    }
    std::sort(groups_.begin(), groups_.end(), [this](const Group& a, const Group& b) {
      return keyed_[a.begin].id < keyed_[b.begin].id;
    });
    return OkStatus();
  }

  // Finds sizes that the manifest leaves open, by decoding. False, with a finding, if that fails or
  // the sizes contradict the shape or the type.
  StatusOr<bool> Size(std::uint32_t index) {
    const StoredObject& object = reader_.manifest().objects[index];
    Object declared;
    // Opening compares no size of an entry of 0.1 with another layout than "dense".
    const bool unchecked = Traits(reader_.manifest().version).mixed_sparse &&
                           object.format != "dense" &&
                           !reader::internal::IsSparse01Layout(object.format);
    for (std::uint32_t c = 0; c < object.components.size(); ++c) {
      if (object.components[c].decoded_bytes != kUnknownSize && !unchecked) continue;
      const auto size = reader_.DecodedBytes({index, c});
      if (!size.ok()) {
        if (size.status().code() != StatusCode::kDataLoss) return size.status();
        findings_.Add({index, c}, object.name, object.components[c].role, Fact(size.status()));
        return false;
      }
      if (declared.components.empty()) declared = Declare(object);
      declared.components[c].bytes = *size;
    }
    if (declared.components.empty()) return true;
    const Status status = ValidateObject(declared);
    if (!status.ok()) findings_.Add({index, 0}, object.name, "", Fact(status));
    if (status.ok()) sized_.emplace(index, std::make_shared<const Object>(std::move(declared)));
    return status.ok();
  }

  // The declaration of an object with every size known, shared by its components. Blobs come in
  // any order, so those of several components are kept, without the attributes, which no rule of
  // theirs asks for.
  std::shared_ptr<const Object> Declared(std::uint32_t index) {
    if (const auto found = sized_.find(index); found != sized_.end()) return found->second;
    const StoredObject& stored = reader_.manifest().objects[index];
    if (stored.components.size() == 1) return std::make_shared<const Object>(Declare(stored));
    const auto [place, fresh] = declared_.try_emplace(index);
    if (fresh) place->second = std::make_shared<const Object>(DeclareWithoutAttributes(stored));
    return place->second;
  }

  std::uint64_t SizeOf(ComponentId id) const {
    const auto found = sized_.find(id.object);
    return found == sized_.end() ? reader_.component(id).decoded_bytes
                                 : found->second->components[id.component].bytes;
  }

  // Makes the blob of a group, with the checks that its members need.
  std::shared_ptr<VerifyBlob> MakeBlob(const Group& group) {
    auto blob = std::make_shared<VerifyBlob>();
    const ComponentId first = keyed_[group.begin].id;
    blob->stored = reader_.component(first);
    blob->stored.decoded_bytes = SizeOf(first);
    blob->decoded = Traits(reader_.manifest().version).digests_decoded &&
                    blob->stored.encoding != Encoding::kRaw;
    for (std::size_t i = group.begin; i < group.end; ++i) {
      Member member{keyed_[i].id};
      const StoredComponent& stored = reader_.component(member.id);
      if (!Agrees(*blob, member.id)) continue;
      if (!stored.digest.empty()) Expect(*blob, member.id);
      if (MayHaveRule(member.id)) {
        auto declared = Declared(member.id.object);
        member.rule = RuleOf(*declared, member.id.component, blob->stored.decoded_bytes);
        if (member.rule) {
          blob->check.Expect(*member.rule, *declared);
          blob->judged = true;
          member.declared = std::move(declared);
        }
      }
      blob->members.push_back(std::move(member));
    }
    return blob;
  }

  bool MayHaveRule(ComponentId id) const {
    if (reader::internal::IsSparse01(reader_, id.object))
      return false;  // CheckSparse checks its parts
    const ElementType& element = reader_.component(id).element;
    if (element.dtype == DType::kBool) return !Traits(reader_.manifest().version).loose_bools;
    return element.type == "f4_e2m1" ||
           reader_.manifest().objects[id.object].format.starts_with("sparse_");
  }

  // Checks that components with the same bytes have the same decoded size.
  bool Agrees(const VerifyBlob& blob, ComponentId id) {
    const std::uint64_t size = SizeOf(id);
    if (size == blob.stored.decoded_bytes) return true;
    findings_.Add(id, NameOf(reader_, id), reader_.component(id).role,
                  "its decoded size is " + std::to_string(size) + ", that of " +
                      TensorContext(NameOf(reader_, blob.members.front().id)) +
                      ", which has the same stored bytes, is " +
                      std::to_string(blob.stored.decoded_bytes));
    return false;
  }

  void Expect(VerifyBlob& blob, ComponentId id) {
    const StoredComponent& stored = reader_.component(id);
    const DigestText digest = DigestOrUnknown(stored.digest);
    if (digest.kind == DigestKind::kNone) {
      report_.unverified.push_back({Repeated(NameOf(reader_, id)), stored.role, digest.algorithm});
    } else if (digest.kind == DigestKind::kCrc32c && !blob.decoded) {
      blob.crc = true;
    } else {
      blob.hashers.try_emplace(digest.kind, MakeHasher(digest.kind));
    }
  }

  Status Add(RangePipeline<Batch>& pipeline, const Group& group) {
    const std::shared_ptr<VerifyBlob> blob = MakeBlob(group);
    const StoredComponent& c = blob->stored;
    if (c.encoding == Encoding::kRaw) return SendStored(pipeline, blob);
    const Codec& codec = *FindCodec(c.encoding);
    auto frames = codec.ReadFrames(
        [&](std::uint64_t offset, std::span<std::byte> out) {
          return reader_.bytes().ReadAt(c.offset + offset, out);
        },
        c.length, c.decoded_bytes);
    if (frames.ok()) {
      const Status kept = CheckFrames(c, Traits(reader_.manifest().version), *frames);
      if (!kept.ok()) frames = kept;
    }
    if (!frames.ok()) {
      if (frames.status().code() != StatusCode::kDataLoss) {
        return WithTensor(frames.status(), NameOf(reader_, blob->members[0].id));
      }
      // Digests of the stored bytes are still checked.
      blob->problem = Fact(frames.status());
      blob->judged = false;
      return SendStored(pipeline, blob);
    }
    if (!*frames || !reader::internal::CanReadByFrame(codec, **frames)) {
      return Send(pipeline, blob, {.bytes = c.length, .whole_stream = true, .last = true});
    }
    std::uint64_t end = 0;
    for (const Frame& frame : **frames) {
      ZT_RETURN_IF_ERROR(
          Send(pipeline, blob, {.offset = frame.offset, .bytes = frame.bytes, .frame = frame}));
      end = frame.offset + frame.bytes;
    }
    return Send(pipeline, blob, {.offset = end, .bytes = c.length - end, .last = true});
  }

  // Sends the stored bytes in ranges, without decoding.
  Status SendStored(RangePipeline<Batch>& pipeline, const std::shared_ptr<VerifyBlob>& blob) {
    StoredRange range;
    do {
      range.bytes = std::min(kRange, blob->stored.length - range.offset);
      range.last = range.offset + range.bytes == blob->stored.length;
      ZT_RETURN_IF_ERROR(Send(pipeline, blob, range));
      range.offset += range.bytes;
    } while (!range.last);
    return OkStatus();
  }

  Status Send(RangePipeline<Batch>& pipeline, const std::shared_ptr<VerifyBlob>& blob,
              const StoredRange& range) {
    const std::uint64_t content = range.frame ? range.frame->content_bytes : 0;
    return pipeline.Add(
        {.blob = blob, .at = range},
        {.bytes = range.bytes,
         .weight = kRangeCost + (range.whole_stream ? 2 * kStep : range.bytes + content),
         .continues = !blob->hashers.empty() && range.offset != 0,
         .continued = !blob->hashers.empty() && !range.last});
  }

  const Reader& reader_;
  const VerifyOptions& options_;
  const std::uint64_t window_ = MemoryFor(options_.memory_bytes, options_.threads) / 2;
  BufferPool pool_;
  std::vector<KeyedComponent> keyed_;
  std::vector<Group> groups_;
  std::uint64_t total_ = 0;
  std::set<std::uint32_t> missing_;  // shards that cannot be read
  // Objects whose sizes the manifest leaves open.
  std::map<std::uint32_t, std::shared_ptr<const Object>> sized_;
  std::unordered_map<std::uint32_t, std::shared_ptr<const Object>> declared_;
  VerifyReport report_;
  Findings findings_;  // by the submitting thread
  Findings in_order_;  // by the pipeline
};

}  // namespace

StatusOr<VerifyReport> Verify(const Reader& reader, const VerifyOptions& options) {
  if (options.threads > kMaxThreads) {
    return InvalidArgument("threads is " + std::to_string(options.threads) + ", more than " +
                           std::to_string(kMaxThreads));
  }
  return WithFile(Verifier(reader, options).Run(), reader.path());
}

}  // namespace zt
