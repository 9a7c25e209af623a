// zt.remote:object — an object of a server without ranges: one answer, read in order.
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

using zt::internal::CondVar;
using zt::internal::Mutex;
using zt::internal::MutexLock;

namespace {

constexpr std::size_t kMostAhead = 8 << 20;
// The first bytes are kept: they are read to detect the format, and again.
constexpr std::size_t kKept = 64 << 10;

// The pieces that the transport appends and the source removes.
struct Flow {
  Mutex mutex;
  CondVar changed;
  std::deque<std::vector<std::byte>> pieces ZT_GUARDED_BY(mutex);
  std::size_t ahead ZT_GUARDED_BY(mutex) = 0;  // bytes in them
  bool paused ZT_GUARDED_BY(mutex) = false, ended ZT_GUARDED_BY(mutex) = false;
  HttpAnswer answer ZT_GUARDED_BY(mutex);
};

class StreamedBytes final : public ByteSource {
 public:
  StreamedBytes(SharedObject object, SharedPin pin)
      : object_(std::move(object)), pin_(std::move(pin)) {}
  ~StreamedBytes() override {
    if (exchange_ != nullptr) transport_->Cancel(exchange_);
  }
  StreamedBytes(const StreamedBytes&) = delete;
  StreamedBytes& operator=(const StreamedBytes&) = delete;

  const std::string& name() const override { return object_->name; }
  std::optional<std::uint64_t> size() const override { return std::nullopt; }
  bool sequential() const override { return true; }

  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    ZT_RETURN_IF_ERROR(Begin());
    if (offset < kept_.size() && position_ == kept_.size()) {
      const std::size_t take = std::min<std::uint64_t>(out.size(), kept_.size() - offset);
      std::memcpy(out.data(), kept_.data() + offset, take);
      out = out.subspan(take);
      offset += take;
    }
    if (out.empty()) return OkStatus();
    if (offset < position_) return CannotGoBack(position_, offset);
    while (!out.empty()) {
      ZT_ASSIGN_OR_RETURN(const bool more, Fill());
      if (!more) return EndsEarly(offset, out.size(), position_);
      const std::span<const std::byte> piece = std::span(piece_).subspan(at_);
      if (position_ < offset) {
        Pass(std::min<std::uint64_t>(piece.size(), offset - position_));
        continue;
      }
      const std::size_t take = std::min(piece.size(), out.size());
      std::memcpy(out.data(), piece.data(), take);
      Pass(take);
      out = out.subspan(take);
      offset += take;
    }
    return OkStatus();
  }

  StatusOr<bool> AtEnd(std::uint64_t offset) override {
    ZT_RETURN_IF_ERROR(Begin());
    if (offset < position_) return false;
    while (true) {
      ZT_ASSIGN_OR_RETURN(const bool more, Fill());
      if (!more) return true;
      if (position_ == offset) return false;
      Pass(std::min<std::uint64_t>(piece_.size() - at_, offset - position_));
    }
  }

 private:
  Status Begin() {
    if (exchange_ != nullptr) return OkStatus();
    ZT_ASSIGN_OR_RETURN(transport_, Transport::Get());
    ZT_ASSIGN_OR_RETURN(HttpRequest request, object_->get());
    request.accept = [pin = pin_](const HttpHead& head, std::uint64_t) {
      const Status status = CheckEncoding(head);
      return status.ok() ? pin->Check(head, std::nullopt) : status;
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
    exchange_ = transport_->Start(std::move(request));
    return OkStatus();
  }

  // Makes piece_ contain the byte at position_. Returns false at the end.
  StatusOr<bool> Fill() {
    if (at_ < piece_.size()) return true;
    bool resume = false;
    {
      const MutexLock lock(flow_->mutex);
      while (flow_->pieces.empty() && !flow_->ended) flow_->changed.Wait(flow_->mutex);
      if (flow_->pieces.empty()) {
        ZT_RETURN_IF_ERROR(flow_->answer.status);
        if (!flow_->answer.ok()) return object_->explain(flow_->answer);
        return false;
      }
      piece_ = std::move(flow_->pieces.front());
      flow_->pieces.pop_front();
      flow_->ahead -= piece_.size();
      resume = flow_->paused && flow_->ahead < kMostAhead / 2;
      if (resume) flow_->paused = false;
    }
    at_ = 0;
    if (resume) transport_->Resume(exchange_);
    return true;
  }

  void Pass(std::size_t bytes) {
    if (position_ == kept_.size() && kept_.size() < kKept) {
      const auto passed = std::span(piece_).subspan(at_, std::min(bytes, kKept - kept_.size()));
      kept_.insert(kept_.end(), passed.begin(), passed.end());
    }
    at_ += bytes;
    position_ += bytes;
  }

  const SharedObject object_;
  const SharedPin pin_;
  const std::shared_ptr<Flow> flow_ = std::make_shared<Flow>();
  Transport* transport_ = nullptr;
  std::shared_ptr<Exchange> exchange_;
  std::vector<std::byte> piece_;  // the current piece, read up to at_
  std::size_t at_ = 0;
  std::uint64_t position_ = 0;
  std::vector<std::byte> kept_;
};

}  // namespace

std::shared_ptr<ByteSource> StreamObject(SharedObject object, SharedPin pin) {
  object->settings->Warn(
      object->name +
      ": its server does not support ranges, so it is read as a pipe, from its first byte on");
  return std::make_shared<StreamedBytes>(std::move(object), std::move(pin));
}

}  // namespace zt::remote::internal
