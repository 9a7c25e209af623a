// zt.remote:object — opens an object, and checks what answers say of it.
module;

#include "core/status_macros.h"
#include "core/thread_annotations.h"

module zt.remote;

import zt.std;
import :files;
import :http;
import zt.core;
import zt.source;

namespace zt::remote::internal {

namespace {

// The first request; most headers fit into it. Of a small object for which there is no room, as
// much as the headers of arrays take.
constexpr std::uint64_t kHead = std::uint64_t{256} << 10, kLittleHead = std::uint64_t{16} << 10;

// The bytes of a small object.
std::shared_ptr<ByteSource> SmallBytes(const RemoteObject& object, std::string content) {
  using Held = std::pair<std::string, std::shared_ptr<ByteSource>>;
  const auto held = std::make_shared<Held>(std::move(content), nullptr);
  held->second = MemoryBytes(std::as_bytes(std::span(held->first)), object.name);
  return {held, held->second.get()};
}

// A strong ETag, or nothing.
std::string StrongEtag(std::string_view etag) {
  const bool strong = etag.size() >= 2 && etag.starts_with('"') && etag.ends_with('"');
  return std::string(strong ? etag : "");
}

// ---- without ranges: one answer, read in order ---------------------------------------------------

constexpr std::size_t kMostAhead = 8 << 20;

// The pieces that the transport appends and the source removes.
struct Flow {
  Mutex mutex;
  CondVar changed;
  std::deque<std::vector<std::byte>> pieces ZT_GUARDED_BY(mutex);
  std::size_t ahead ZT_GUARDED_BY(mutex) = 0;  // bytes in them
  bool paused ZT_GUARDED_BY(mutex) = false, ended ZT_GUARDED_BY(mutex) = false;
  HttpAnswer answer ZT_GUARDED_BY(mutex);
};

class StreamedBytes final : public PipedBytes {
 public:
  StreamedBytes(SharedObject object, SharedPin pin)
      : object_(std::move(object)), pin_(std::move(pin)) {}
  ~StreamedBytes() override {
    if (exchange_ != nullptr) exchange_->Cancel();
  }
  StreamedBytes(const StreamedBytes&) = delete;
  StreamedBytes& operator=(const StreamedBytes&) = delete;

  const std::string& name() const override { return object_->name; }

 private:
  Status Begin() {
    if (exchange_ != nullptr) return OkStatus();
    ZT_ASSIGN_OR_RETURN(HttpRequest request, object_->get());
    request.accept = [pin = pin_](const HttpHead& head, std::uint64_t) {
      return pin->Check(head, std::nullopt);
    };
    request.consume = [flow = flow_](std::span<const std::byte> piece) {
      const MutexLock lock(flow->mutex);
      flow->paused = flow->ahead >= kMostAhead;
      if (flow->paused) return false;
      flow->pieces.emplace_back(piece.begin(), piece.end());
      flow->ahead += piece.size();
      flow->changed.NotifyAll();
      return true;
    };
    request.done = [flow = flow_](HttpAnswer answer) {
      const MutexLock lock(flow->mutex);
      flow->answer = std::move(answer);
      flow->ended = true;
      flow->changed.NotifyAll();
    };
    exchange_ = Start(std::move(request));
    return OkStatus();
  }

  StatusOr<std::size_t> ReadSome(std::span<std::byte> out) override {
    ZT_RETURN_IF_ERROR(Begin());
    std::size_t done = 0;
    Flow& flow = *flow_;
    const MutexLock lock(flow.mutex);
    while (done < out.size()) {
      while (flow.pieces.empty() && !flow.ended) flow.changed.Wait(flow.mutex);
      if (flow.pieces.empty()) {
        ZT_RETURN_IF_ERROR(flow.answer.status);
        if (!flow.answer.ok()) return object_->explain(flow.answer);
        ZT_RETURN_IF_ERROR(pin_->Check(flow.answer.head, received_ + done));  // as it was listed
        break;
      }
      const auto piece = std::span(flow.pieces.front()).subspan(at_);
      const std::size_t take = std::min(piece.size(), out.size() - done);
      std::memcpy(out.data() + done, piece.data(), take);
      done += take;
      at_ += take;
      flow.ahead -= take;
      if (take == piece.size()) flow.pieces.pop_front();
      if (take == piece.size()) at_ = 0;
      if (flow.ahead < kMostAhead / 2 && std::exchange(flow.paused, false)) exchange_->Resume();
    }
    received_ += done;
    return done;
  }

  const SharedObject object_;
  const SharedPin pin_;
  const std::shared_ptr<Flow> flow_ = std::make_shared<Flow>();
  std::shared_ptr<Exchange> exchange_;
  std::size_t at_ = 0;  // in the first piece
  std::uint64_t received_ = 0;
};

}  // namespace

std::optional<ContentRange> ParseContentRange(std::string_view text) {
  if (Lower(text.substr(0, 6)) != "bytes ") return std::nullopt;
  text = Trimmed(text.substr(6));
  const std::size_t dash = text.find('-'), slash = text.find('/');
  if (slash == text.npos || dash > slash) return std::nullopt;
  const auto first = NumberOf(text.substr(0, dash)),
             last = NumberOf(text.substr(dash + 1, slash - dash - 1)),
             total = NumberOf(text.substr(slash + 1));
  if (!first || !last || !total || *first > *last || *last >= *total) return std::nullopt;
  return ContentRange{*first, *last, *total};
}

Status Changed() { return InvalidData("it was changed while it was read"); }

Pin::Pin(std::optional<std::uint64_t> size, std::string etag) : known_{size, StrongEtag(etag)} {}

Status Pin::Check(const HttpHead& head, std::optional<std::uint64_t> size) {
  const std::string_view encoding = head.Find("content-encoding");
  if (!encoding.empty() && encoding != "identity")
    return InvalidData("the server sent it compressed, which was not asked for");
  if (Lower(head.Find("content-type")).starts_with("multipart/"))
    return InvalidData("the server sent it in several parts, which was not asked for");
  Known is{.size = size, .etag = StrongEtag(head.Find("etag"))};
  if (is.etag.empty()) is.modified = head.Find("last-modified");
  const MutexLock lock(mutex_);
  Known& was = known_;
  if (is.size && was.size && is.size != was.size) {
    const std::string before = std::to_string(*was.size), now = std::to_string(*is.size);
    if (!answered_)
      return InvalidData("its server listed it with " + before + " bytes, and it has " + now);
    return InvalidData("it was changed while it was read: it had " + before + " bytes and has " +
                       now);
  }
  if (answered_ ? is.etag != was.etag || is.modified != was.modified
                : !is.etag.empty() && !was.etag.empty() && is.etag != was.etag) {
    return InvalidData(answered_ ? "it was changed while it was read: its ETag is another"
                                 : "it was changed after it was listed: its ETag is another");
  }
  answered_ = true;
  if (!is.size) is.size = was.size;
  was = std::move(is);
  return OkStatus();
}

Pin::Known Pin::known() const {
  const MutexLock lock(mutex_);
  return known_;
}

SharedPin Pins::Of(const std::string& name, std::optional<std::uint64_t> size,
                   const std::string& etag) {
  const MutexLock lock(mutex_);
  SharedPin& pin = pins_[name];
  if (pin == nullptr) pin = std::make_shared<Pin>(size, etag);
  return pin;
}

void Pins::Forget(const std::string& name) {
  const MutexLock lock(mutex_);
  pins_.erase(name);
}

Status CheckRangeHead(const HttpHead& head, ByteRange asked, Pin& pin) {
  if (head.status != 206) {
    return InvalidData("the server answered " + std::to_string(head.status) +
                       " with all of it where bytes " + std::to_string(asked.begin) + " to " +
                       std::to_string(asked.end - 1) + " were asked for");
  }
  const std::string_view field = head.Find("content-range");
  const auto range = ParseContentRange(field);
  ZT_RETURN_IF_ERROR(pin.Check(head, range ? std::optional(range->total) : std::nullopt));
  if (!range)
    return InvalidData("the server sent no Content-Range that can be read: " + Quote(field));
  asked.end = std::min(asked.end, range->total);
  if (range->first != asked.begin || range->last + 1 != asked.end) {
    return InvalidData("the server sent bytes " + std::to_string(range->first) + " to " +
                       std::to_string(range->last) + " where " + std::to_string(asked.begin) +
                       " to " + std::to_string(asked.end - 1) + " were asked for");
  }
  return OkStatus();
}

std::string Said(const HttpAnswer& answer, std::string_view message) {
  std::string line = "the server answered " + std::to_string(answer.head.status) + answer.tried;
  std::string words(Trimmed(message.substr(0, 300)));
  for (char& c : words) c = c == '\n' || c == '\r' || c == '\t' ? ' ' : c;
  return words.empty() ? line : line + ": " + words;
}

StatusOr<HttpRequest> RemoteObject::GetRange(ByteRange range, const Pin& pin) const {
  ZT_ASSIGN_OR_RETURN(HttpRequest request, get());
  request.range = range;
  const std::string etag = pins ? pin.known().etag : "";
  if (!etag.empty()) request.fields.push_back("If-Match: " + etag);
  return request;
}

Status WithAnswer(const Status& status, const HttpAnswer& answer) {
  const int code = answer.head.status;
  if (!answer.status.ok() || status.code() != StatusCode::kUnavailable) return status;
  if (code == 404 || code == 410) return WithCode(status, StatusCode::kNotFound);
  const bool busy = code == 408 || code == 425 || code == 429;
  const bool refuses = (code >= 400 && code < 500 && !busy) || code == 501;
  return refuses ? WithCode(status, StatusCode::kPermissionDenied) : status;
}

StatusOr<std::shared_ptr<ByteSource>> OpenObject(RemoteObject opened, Pins& pins) {
  const auto object = std::make_shared<const RemoteObject>(std::move(opened));
  const SharedPin pin = pins.Of(object->name);
  // It was open before.
  if (pin->ranged) return RangedObject(object, pin, "");
  const std::uint64_t listed = pin->known().size.value_or(kHead);
  const std::uint64_t most = listed < kHead && !HasRoomForHead(listed) ? kLittleHead : kHead;
  HttpAnswer answer;
  for (int refreshed = 0;; ++refreshed) {
    ZT_ASSIGN_OR_RETURN(HttpRequest request, object->GetRange({0, most}, *pin));
    request.most_text = kHead;
    // The complete body of a large object is not awaited: it is requested again as a stream.
    request.accept = [](const HttpHead& head, std::uint64_t) {
      const bool much = NumberOf(head.Find("content-length")).value_or(0) > kHead;
      return much && head.status != 206 ? Cancelled("") : OkStatus();
    };
    answer = Perform(std::move(request));
    if (answer.ok() || refreshed == kMostRefreshed || !answer.status.ok() ||
        !object->refresh(answer))
      break;
  }
  if (answer.head.ok() && answer.head.status != 206) {
    auto length = NumberOf(answer.head.Find("content-length"));
    const bool complete = answer.ok() && length.value_or(answer.text.size()) == answer.text.size();
    if (complete) length = answer.text.size();
    ZT_RETURN_IF_ERROR(pin->Check(answer.head, length));
    if (complete) return SmallBytes(*object, std::move(answer.text));
    object->settings->Warn(
        object->name +
        ": its server does not support ranges, so it is read as a pipe, from its first byte on");
    return std::make_shared<StreamedBytes>(object, pin);
  }
  ZT_RETURN_IF_ERROR(answer.status);
  if (answer.head.status == 416 && answer.head.Find("content-range").ends_with("/0")) {
    ZT_RETURN_IF_ERROR(pin->Check(answer.head, 0));
    return SmallBytes(*object, "");
  }
  if (answer.head.status == 412) return Changed();
  if (!answer.ok()) return WithAnswer(object->explain(answer), answer);
  ZT_RETURN_IF_ERROR(CheckRangeHead(answer.head, {0, most}, *pin));
  const Pin::Known known = pin->known();
  const std::uint64_t size = known.size.value_or(0);
  if (answer.text.size() != std::min(size, most))
    return InvalidData("the server sent another number of bytes than were asked for");
  pin->ranged = true;
  if (known.etag.empty() && known.modified.empty() && size > most) {
    object->settings->Warn(
        object->name +
        ": its server gives neither an ETag nor a date, so a change while it is read is found "
        "only if its size changes");
  }
  return RangedObject(object, pin, std::move(answer.text));
}

}  // namespace zt::remote::internal
