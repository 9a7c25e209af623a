// zt.remote:upload — sends parts, and publishes or aborts an upload.
module;

#include "core/status_macros.h"
#include "core/thread_annotations.h"

module zt.remote;

import zt.std;
import :http;
import :s3;
import :upload;
import zt.core;
import zt.digest;
import zt.pipeline;
import zt.sink;

namespace zt::remote::internal {

namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kLeastPart = 16 * kMiB, kMostPart = 5120 * kMiB;
constexpr std::uint64_t kLeastGiven = 5 * kMiB;  // S3 takes no smaller part but the last
constexpr std::uint64_t kPlannedParts = 9'000;
constexpr std::size_t kInFlight = 4;
constexpr std::uint64_t kReadBack = kMiB;

std::string RandomText() {
  std::random_device device;
  std::array<std::byte, 16> bytes;
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(device() & 0xff);
  return Hex(bytes);
}

bool SendsChecksums(S3Client& client) {
  const std::string wanted = Lower(Environment("AWS_REQUEST_CHECKSUM_CALCULATION"));
  if (wanted == "when_required") return false;
  return wanted == "when_supported" || client.is_aws();
}

// What S3 says of a part or a small object that it has stored: an ETag, and no page.
bool IsStored(const HttpAnswer& answer) {
  return answer.status.ok() && answer.head.status == 200 && !answer.head.Find("etag").empty() &&
         XmlRoot(answer.text).empty();
}

// A part that is sent.
struct Part final : Task {
  std::span<const std::byte> bytes() const { return data.bytes().first(size); }

  std::uint64_t number = 0;
  Buffer data;
  std::uint64_t size = 0;
  std::string checksum;  // CRC-32C in base64, if the store accepts it
};

class Upload final : public Sink {
  using State = Progress::State;

 public:
  Upload(std::shared_ptr<S3Client> client, std::string url, S3Name name,
         const FileSinkOptions& options, std::function<void()> forget)
      : progress_(new Progress{std::move(client), std::move(name)}),
        url_(std::move(url)),
        overwrite_(options.overwrite),
        forget_(std::move(forget)) {
    Uploads().Add(progress_);
  }
  ~Upload() override { Upload::Abort(); }

  const std::string& name() const override { return url_; }

  void Expect(std::uint64_t bytes) override {
    if (position_ > 0 || filled_ > 0) return;
    // All of one size, and not too many.
    const std::uint64_t part = std::max((bytes / kPlannedParts + kMiB) / kMiB * kMiB, kLeastPart);
    expected_ = part;
    const std::string may = "it may have " + std::to_string(bytes) + " bytes, more than ";
    if (given_ != 0 && bytes > given_ * kMostParts) {
      failure_ =
          WithAdvice(InvalidArgument(may + std::to_string(kMostParts) +
                                     " parts of the size that was given; it takes " +
                                     std::to_string(bytes / kMostParts / kMiB + 1) + "MiB or more"),
                     Advice::kPartSize);
    } else if (part > kMostPart) {
      failure_ = WithAdvice(InvalidArgument(may + "an object of S3 can"), Advice::kShards);
    } else if (part > kLeastPart && given_ == 0) {
      Warn(url_ + ": it is sent in parts of " + std::to_string(part / kMiB) + " MiB, which take " +
           std::to_string(part * (kInFlight + 1) / kMiB) +
           " MiB of memory; several smaller files take less");
    }
  }

  Status Append(Pieces pieces) override {
    ZT_RETURN_IF_ERROR(failure_);
    for (std::span<const std::byte> piece : pieces) {
      while (!piece.empty()) {
        if (current_.empty()) ZT_RETURN_IF_ERROR(Kept(BeginPart()));
        const std::span<std::byte> room = current_.bytes().subspan(filled_);
        const std::size_t take = std::min(piece.size(), room.size());
        std::memcpy(room.data(), piece.data(), take);
        filled_ += take;
        piece = piece.subspan(take);
        if (take == room.size()) ZT_RETURN_IF_ERROR(Kept(SendPart()));
      }
    }
    return OkStatus();
  }

  Status Finish(std::uint64_t total) override {
    if (finished_) return FailedPrecondition("the upload was finished or aborted already");
    Status status = failure_;
    if (status.ok()) status = Publish(total);
    if (!status.ok() && !unknown_) End(status.code() == StatusCode::kAlreadyExists);
    finished_ = true;
    current_ = {};
    return status;
  }

  void Abort() override { End(false); }

  // kAlreadyExists if the object exists, as far as the credentials allow to ask.
  Status CheckAbsent() {
    if (overwrite_) return OkStatus();
    ZT_ASSIGN_OR_RETURN(const HttpAnswer answer, Head());
    if (answer.ok()) return Exists();
    if (answer.head.status == 404 || answer.head.status == 403) return OkStatus();
    return client_.Explain(s3_, answer);
  }

 private:
  // Ends an upload that failed, if because the object `exists`, or keeps its parts for another run.
  void End(bool exists) {
    if (std::exchange(finished_, true)) return;
    StopParts();
    current_ = {};
    const std::string id = Id();
    if (id.empty()) return;
    const std::string left = client_.settings()->resume ? KeptParts(*progress_, id, exists)
                                                        : EndUpload(*progress_, id, 3);
    if (!left.empty()) Warn(left);
    Set(State::kWritten, "");
  }

  // The id of the upload, as long as it must be ended.
  std::string Id() const {
    const MutexLock lock(progress_->mutex);
    return progress_->upload;
  }
  void Set(State state, std::string id) {
    const MutexLock lock(progress_->mutex);
    progress_->state = state;
    progress_->upload = std::move(id);
  }
  // Enters a state, but not after a signal.
  Status Enter(State state) {
    const MutexLock lock(progress_->mutex);
    if (Progress::abandoned) return Cancelled("interrupted");
    progress_->state = state;
    return OkStatus();
  }

  // What an answer says in place of what S3 says to a request.
  Status Refused(const HttpAnswer& answer, std::string_view asked,
                 std::string_view wanted = "an ETag and no page") {
    ZT_RETURN_IF_ERROR(answer.status);
    if (answer.ok() && XmlRoot(answer.text) != "Error") {
      return InvalidData("the server answered " + std::to_string(answer.head.status) + " to " +
                         std::string(asked) + " where S3 answers 200 with " + std::string(wanted) +
                         "; perhaps a proxy answered");
    }
    if (XmlText(answer.text, "Code") == "NoSuchUpload") {
      const MutexLock lock(progress_->mutex);
      progress_->upload.clear();
    }
    return client_.Explain(s3_, answer);
  }

  Status Kept(Status status) {
    if (failure_.ok()) failure_ = status;
    return status;
  }

  // Allocates the next part: of the chosen size or, if the size of the object is unknown, of a
  // growing size.
  Status BeginPart() {
    if (number_ >= kMostParts) {
      return WithAdvice(
          WithAdvice(
              InvalidArgument("it has more than the 10000 parts that an object of S3 can have"),
              Advice::kPartSize),
          Advice::kShards);
    }
    const std::uint64_t growing = kLeastPart + number_ * kMiB / 10;
    const std::uint64_t bytes =
        std::min(given_ != 0 ? given_ : expected_.value_or(growing), kMostPart);
    // All that is in flight may stay for the next parts if they have one size.
    if (!pool_) pool_.emplace(expected_ || given_ != 0 ? bytes * (kInFlight + 1) : kLeastPart);
    current_ = pool_->Take(bytes);
    return OkStatus();
  }

  Status SendPart() {
    ZT_RETURN_IF_ERROR(BeginUpload());
    auto part = std::make_unique<Part>();
    part->weight = 1;
    part->number = ++number_;
    part->data = std::exchange(current_, {});
    part->size = filled_;
    if (checksums_) {
      part->checksum = Crc32cField(part->bytes());
    } else {
      const auto tail = part->bytes().last(std::min(filled_, kReadBack));
      tail_.assign(tail.begin(), tail.end());
    }
    position_ += filled_;
    filled_ = 0;
    if (IsThere(*part)) return OkStatus();
    if (!sender_) {
      std::vector<StageOf<Task>> stages;
      stages.push_back(StageOf<Part>{.run = [this](Part& sent) { return Send(sent); }}.ForTasks());
      sender_.emplace(std::move(stages),
                      PipelineOptions{.threads = kInFlight, .window_bytes = kInFlight});
    }
    return sender_->Submit(std::move(part));
  }

  // True if an earlier run has sent the part. From the first that differs on, all are sent.
  bool IsThere(const Part& part) {
    const auto stored = earlier_.find(part.number);
    if (stored == earlier_.end()) return false;
    if (!HasBytes(stored->second, part.bytes())) {
      earlier_.clear();
      return false;
    }
    stored->second.checksum = part.checksum;  // which not every store lists
    const MutexLock lock(progress_->mutex);
    parts_.insert(earlier_.extract(stored));
    return true;
  }

  Status BeginUpload() {
    if (!id_.empty()) return OkStatus();
    if (client_.settings()->resume) {
      ZT_ASSIGN_OR_RETURN(EarlierUpload found, FindUpload(client_, s3_));
      ZT_RETURN_IF_ERROR(Enter(State::kWritten));
      id_ = std::move(found.id);
      checksums_ = found.checksums;
      earlier_ = std::move(found.parts);
      resumed_ = !id_.empty();
      Set(State::kWritten, id_);
      if (resumed_) return OkStatus();
    }
    checksums_ = SendsChecksums(client_);
    S3Request request{.name = s3_,
                      .query = {{"uploads", ""}},
                      .http = {.method = "POST", .fields = Meta()},
                      .creates = true};
    if (checksums_) {
      request.http.fields.emplace_back("x-amz-checksum-algorithm: CRC32C");
      request.http.fields.emplace_back("x-amz-checksum-type: COMPOSITE");
    }
    ZT_RETURN_IF_ERROR(Enter(State::kBeginning));
    const auto answer = client_.Ask(request);
    if (answer.ok() && answer->head.status == 200 &&
        XmlRoot(answer->text) == "InitiateMultipartUploadResult")
      id_ = XmlText(answer->text, "UploadId");
    Set(State::kWritten, id_);
    ZT_RETURN_IF_ERROR(answer.status());
    return id_.empty() ? InvalidData("the store began an upload and gave no UploadId") : OkStatus();
  }

  std::vector<std::string> Meta() const {
    return {"x-amz-meta-ztstream-upload: " + mark_, "content-type: application/octet-stream"};
  }

  // Sends a part until the store has it, on a thread of the sender.
  Status Send(const Part& part) {
    S3Request request{.name = s3_,
                      .query = {{"partNumber", std::to_string(part.number)}, {"uploadId", id_}},
                      .http = {.method = "PUT",
                               .body = part.bytes(),
                               .begun = [&](const auto& exchange) { Watch(exchange); }}};
    if (checksums_) request.http.fields.push_back("x-amz-checksum-crc32c: " + part.checksum);
    for (int tries = 1;; ++tries) {
      ZT_RETURN_IF_ERROR(Enter(State::kWritten));
      ZT_ASSIGN_OR_RETURN(const HttpAnswer answer, client_.Send(request));
      if (IsStored(answer)) {
        const MutexLock lock(progress_->mutex);
        parts_[part.number] = {part.size, std::string(answer.head.Find("etag")), part.checksum};
        return OkStatus();
      }
      if (!answer.ok() || tries > kMostRefreshed) return Refused(answer, "a part");
    }
  }

  // Notes the request of a part, or cancels it where they have been stopped.
  void Watch(const std::shared_ptr<Exchange>& exchange) {
    const MutexLock lock(progress_->mutex);
    if (stopped_) exchange->Cancel();
    std::erase_if(under_way_, [](const auto& each) { return each.expired(); });
    under_way_.push_back(exchange);
  }

  void StopParts() {
    {
      const MutexLock lock(progress_->mutex);
      stopped_ = true;
      for (const auto& each : under_way_) {
        if (const auto exchange = each.lock()) exchange->Cancel();
      }
    }
    sender_.reset();
  }

  Status Publish(std::uint64_t total) {
    if (position_ + filled_ != total)
      return FailedPrecondition("the upload has other bytes than were announced");
    const Status status = id_.empty() ? PutWhole(total) : CompleteParts(total);
    forget_();
    Set(status.ok() ? State::kPublished
        : unknown_  ? State::kUnknown
                    : State::kWritten,
        status.ok() ? "" : Id());
    if (status.ok() && id_.empty() && client_.settings()->resume) {
      const auto earlier = FindUpload(client_, s3_);
      if (earlier.ok() && !earlier->id.empty())
        Warn(url_ + ": parts of an earlier upload of it are left, which cost money; " +
             RemoveThem(*progress_, earlier->id));
    }
    // Only now: after a signal no line is printed while AbandonUploads waits for the request.
    if (unconditional_ && (status.ok() || unknown_))
      Warn(url_ +
           ": the store does not know If-None-Match; an object that another run writes at the same "
           "moment would be replaced");
    if (status.ok() && !unchecked_.empty())
      Warn(url_ + ": it was stored, and could not be read back to check it: " + unchecked_);
    return status;
  }

  Status PutWhole(std::uint64_t total) {
    ZT_RETURN_IF_ERROR(Enter(State::kPublishing));
    const std::span<const std::byte> body = current_.bytes().first(filled_);
    S3Request request{.name = s3_,
                      .http = {.method = "PUT", .fields = Meta(), .body = body, .fresh = true},
                      .creates = true};
    if (SendsChecksums(client_))
      request.http.fields.push_back("x-amz-checksum-crc32c: " + Crc32cField(body));
    return Settle(request, total);
  }

  Status CompleteParts(std::uint64_t total) {
    if (filled_ > 0) ZT_RETURN_IF_ERROR(SendPart());
    if (sender_) ZT_RETURN_IF_ERROR(sender_->Drain());
    ZT_RETURN_IF_ERROR(Enter(State::kPublishing));
    std::string xml = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
    for (const auto& [number, part] : parts_) {
      xml += "<Part><PartNumber>" + std::to_string(number) + "</PartNumber><ETag>" + part.etag +
             "</ETag>";
      if (checksums_) xml += "<ChecksumCRC32C>" + part.checksum + "</ChecksumCRC32C>";
      xml += "</Part>";
    }
    xml += "</CompleteMultipartUpload>";
    S3Request request{.name = s3_,
                      .query = {{"uploadId", id_}},
                      .http = {.method = "POST",
                               .fields = {"content-type: application/xml"},
                               .body = std::as_bytes(std::span(xml)),
                               .repeatable = false,
                               .fresh = true,
                               // A store that joins parts sends blanks for minutes.
                               .patience = 900}};
    if (checksums_) request.http.fields.push_back("x-amz-mp-object-size: " + std::to_string(total));
    ZT_RETURN_IF_ERROR(Settle(request, total));
    return checksums_ ? OkStatus() : ReadBack(total);
  }

  // True if an answer says that the object is published. S3 answers 200 before it joins the parts;
  // the body says whether that succeeded.
  bool IsPublished(const HttpAnswer& answer) const {
    if (id_.empty()) return IsStored(answer);
    return answer.status.ok() && answer.head.status == 200 &&
           XmlRoot(answer.text) == "CompleteMultipartUploadResult";
  }

  // Sends the request that publishes the object, until its outcome is certain or cannot be known.
  Status Settle(const S3Request& request, std::uint64_t total) {
    // A store that ignores If-None-Match would replace an object that another run has written
    // meanwhile.
    if (!client_.is_aws()) ZT_RETURN_IF_ERROR(CheckAbsent());
    constexpr int kMostTries = 5;
    constexpr std::chrono::milliseconds kPause(100);
    bool doubt = false;  // a try may have published it
    for (int tries = 1;; ++tries) {
      S3Request sent = request;
      const bool condition = !overwrite_ && !unconditional_;
      if (condition) sent.http.fields.emplace_back("if-none-match: *");
      ZT_ASSIGN_OR_RETURN(const HttpAnswer answer, client_.Send(sent));
      if (IsPublished(answer)) return OkStatus();
      const int status = answer.head.status;
      const std::string code = XmlText(answer.text, "Code");
      const bool silent = answer.ok() && XmlRoot(answer.text) != "Error";
      doubt = doubt || answer.ok() || answer.lost || answer.resent;
      const There there = Look(request, total);
      if (there == There::kOurs) return OkStatus();
      const bool known = there != There::kUnknown;
      if (answer.status.ok() && status == 412 && (known || !doubt)) return Exists();
      if (status == 501 && condition) {
        unconditional_ = true;
        ZT_RETURN_IF_ERROR(CheckAbsent());
        continue;
      }
      const bool again = !answer.status.ok() || answer.ok() || status == 409;
      const bool gone = code == "NoSuchUpload" || code == "ConditionalRequestConflict";
      if (again && !(gone && !id_.empty()) && tries < kMostTries && known) {
        std::this_thread::sleep_for(kPause * (1 << tries));  // as a 200 with an error inside wants
        continue;
      }
      const bool ended = doubt && code == "NoSuchUpload" && there == There::kOther;
      unknown_ = known ? answer.lost || ended || (silent && !id_.empty()) : doubt;
      const Status why = id_.empty()
                             ? Refused(answer, "PUT")
                             : Refused(answer, "the completion", "a CompleteMultipartUploadResult");
      if (unknown_) {
        return WithAdvice(IoError("whether it was published is not known: " + Message(why) +
                                  LookAtIt(*progress_, Id())),
                          why);
      }
      if (status == 409)
        return IoError("another run wrote the object at the same moment; run it again");
      return why;
    }
  }

  static Status Exists() {
    return WithAdvice(AlreadyExists("the output exists already"), Advice::kReplace);
  }

  StatusOr<HttpAnswer> Head() {
    ZT_ASSIGN_OR_RETURN(HttpAnswer answer, client_.Send({.name = s3_, .http = {.method = "HEAD"}}));
    ZT_RETURN_IF_ERROR(answer.status);
    if (answer.ok() && !IsStored(answer)) return Refused(answer, "HEAD");
    return answer;
  }

  // What is there under the name of the object: that of this upload, another, or nothing.
  enum class There : std::uint8_t { kOurs, kOther, kNothing, kUnknown };
  There Look(const S3Request& request, std::uint64_t total) {
    const auto answer = Head();
    if (answer.ok() && answer->head.status == 404) return There::kNothing;
    if (!answer.ok() || !answer->ok()) return There::kUnknown;
    const auto size = NumberOf(answer->head.Find("content-length"));  // not every store says it
    if (size && *size != total) return There::kOther;
    const std::string_view mark = answer->head.Find("x-amz-meta-ztstream-upload");
    if (mark == mark_) return There::kOurs;
    // What an earlier run began has its mark, and not every store keeps marks.
    if (!resumed_ && !mark.empty()) return There::kOther;
    const std::string etag(answer->head.Find("etag"));
    const bool same =
        id_.empty() ? HasBytes({total, etag}, request.http.body) : etag == JoinedEtag(parts_);
    return same ? There::kOurs : resumed_ || !overwrite_ ? There::kUnknown : There::kOther;
  }

  // For a store that received no checksums: checks the size of the object and its last bytes.
  Status ReadBack(std::uint64_t total) {
    std::vector<std::byte> back(tail_.size());
    ZT_ASSIGN_OR_RETURN(
        const HttpAnswer answer,
        client_.Send(
            {.name = s3_, .http = {.range = ByteRange{total - back.size(), total}, .into = back}}));
    const int status = answer.head.status;
    if (!answer.status.ok() || (!answer.ok() && status != 404 && status != 416)) {
      unchecked_ = Message(client_.Explain(s3_, answer));
      return OkStatus();
    }
    const auto range = ParseContentRange(answer.head.Find("content-range"));
    if (answer.ok() && range && range->total == total && back == tail_) return OkStatus();
    return InvalidData("the store has other bytes than were sent; write it again");
  }

  void Warn(const std::string& line) const { client_.settings()->Warn(line); }

  const std::shared_ptr<Progress> progress_;
  S3Client& client_ = *progress_->client;
  const S3Name& s3_ = progress_->name;
  const std::string url_;
  const bool overwrite_;
  const std::uint64_t given_ = client_.settings()->part_bytes;  // the size of parts, or 0
  const std::function<void()> forget_;
  // Identifies the object of this upload.
  const std::string mark_ = RandomText();
  std::string id_;
  bool checksums_ = false, finished_ = false;
  bool unconditional_ = false;  // the store does not know If-None-Match
  bool unknown_ = false;        // it is not known whether it was published
  std::string unchecked_;       // why it could not be read back
  Status failure_;
  std::optional<std::uint64_t> expected_;  // bytes of a part
  std::uint64_t filled_ = 0, position_ = 0, number_ = 0;
  std::optional<BufferPool> pool_;  // made with the first part
  Buffer current_;
  // For the request that completes the upload. Guarded by the mutex while parts are sent.
  StoredParts parts_;
  StoredParts earlier_;          // those of an earlier run that may be kept
  bool resumed_ = false;         // an earlier run began the upload
  std::vector<std::byte> tail_;  // the end of the last part, if there are no checksums
  // The requests of parts, and whether they are cancelled.
  std::vector<std::weak_ptr<Exchange>> under_way_ ZT_GUARDED_BY(progress_->mutex);
  bool stopped_ ZT_GUARDED_BY(progress_->mutex) = false;
  std::optional<Pipeline> sender_;  // made with the first part that is sent
};

}  // namespace

StatusOr<std::unique_ptr<Sink>> CreateUpload(std::shared_ptr<S3Client> client,
                                             const std::string& url, S3Name name,
                                             const FileSinkOptions& options,
                                             std::function<void()> forget) {
  const std::uint64_t given = client->settings()->part_bytes;
  if (given != 0 && (given < kLeastGiven || given > kMostPart))
    return WithAdvice(InvalidArgument("a part of an upload has from 5MiB to 5GiB"),
                      Advice::kPartSize);
  auto upload =
      std::make_unique<Upload>(std::move(client), url, std::move(name), options, std::move(forget));
  ZT_RETURN_IF_ERROR(upload->CheckAbsent());
  return upload;
}

}  // namespace zt::remote::internal
