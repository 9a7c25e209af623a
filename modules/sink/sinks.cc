// zt.sink — sinks for descriptors, memory and nothing, and sinks over others: tee and hashing.
module;

#include <poll.h>
#include <sys/uio.h>

#include "core/retry.h"
#include "core/status_macros.h"
#include "sink/write_all.h"

module zt.sink;

import zt.std;
import zt.core;
import zt.digest;

namespace zt {

Status Sink::WriteAt(std::uint64_t, Pieces) {
  return FailedPrecondition("this sink takes bytes in order only");
}

Status Sink::Reserve(std::uint64_t) { return OkStatus(); }

namespace {

class FdSink final : public Sink {
 public:
  FdSink(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}
  const std::string& name() const override { return name_; }
  Status Append(Pieces pieces) override {
    const int error = sink_io::WriteAll(pieces, 0, [&](const iovec* v, int count, std::uint64_t) {
      return internal::RetryWaiting(fd_, POLLOUT, [&] { return ::writev(fd_, v, count); });
    });
    return error == 0 ? OkStatus() : IoError(error, "cannot write");
  }
  Status Finish(std::uint64_t) override { return OkStatus(); }
  void Abort() override {}

 private:
  int fd_;
  std::string name_;
};

class VectorSink final : public Sink {
 public:
  explicit VectorSink(std::vector<std::byte>& out) : out_(out) {}
  const std::string& name() const override { return name_; }
  Status Append(Pieces pieces) override {
    for (const auto piece : pieces) out_.insert(out_.end(), piece.begin(), piece.end());
    return OkStatus();
  }
  Status Finish(std::uint64_t) override { return OkStatus(); }
  void Abort() override { out_.clear(); }

 private:
  std::vector<std::byte>& out_;
  std::string name_ = "memory";
};

class NullSink final : public Sink {
 public:
  const std::string& name() const override { return name_; }
  bool can_place() const override { return true; }
  Status Append(Pieces) override { return OkStatus(); }
  Status WriteAt(std::uint64_t, Pieces) override { return OkStatus(); }
  Status Finish(std::uint64_t) override { return OkStatus(); }
  void Abort() override {}

 private:
  std::string name_ = "nowhere";
};

}  // namespace

std::unique_ptr<Sink> DescriptorSink(int fd, std::string name) {
  return std::make_unique<FdSink>(fd, std::move(name));
}
std::unique_ptr<Sink> MemorySink(std::vector<std::byte>& out) {
  return std::make_unique<VectorSink>(out);
}
std::unique_ptr<Sink> DiscardSink() { return std::make_unique<NullSink>(); }

namespace {

using Sinks = std::vector<std::unique_ptr<Sink>>;

class Tee final : public Sink {
 public:
  explicit Tee(Sinks sinks) : sinks_(std::move(sinks)) {
    for (const auto& sink : sinks_) {
      name_ += (name_.empty() ? "" : " and ") + sink->name();
      can_place_ = can_place_ && sink->can_place();
    }
  }
  ~Tee() override { Tee::Abort(); }
  Tee(const Tee&) = delete;
  Tee& operator=(const Tee&) = delete;

  const std::string& name() const override { return name_; }
  bool can_place() const override { return can_place_; }
  Status Append(Pieces pieces) override {
    return Each([&](Sink& sink) { return sink.Append(pieces); });
  }
  Status WriteAt(std::uint64_t offset, Pieces pieces) override {
    return Each([&](Sink& sink) { return sink.WriteAt(offset, pieces); });
  }
  Status Reserve(std::uint64_t bytes) override {
    return Each([&](Sink& sink) { return sink.Reserve(bytes); });
  }
  void Expect(std::uint64_t bytes) override {
    for (const auto& sink : sinks_) sink->Expect(bytes);
  }
  Status Finish(std::uint64_t total) override {
    return Each([&](Sink& sink) {
      const Status status = sink.Finish(total);
      finished_ += status.ok() ? 1 : 0;
      return status;
    });
  }
  void Abort() override {
    for (std::size_t i = finished_; i < sinks_.size(); ++i) sinks_[i]->Abort();
  }

 private:
  // Calls `call` for one sink after another until one fails, and names that sink.
  template <class Call>
  Status Each(const Call& call) {
    for (const auto& sink : sinks_) {
      const Status status = call(*sink);
      if (!status.ok()) return WithFile(status, sink->name());
    }
    return OkStatus();
  }

  Sinks sinks_;
  std::string name_;
  bool can_place_ = true;
  std::size_t finished_ = 0;  // number of sinks finished
};

class Hashing final : public Sink {
 public:
  Hashing(std::unique_ptr<Sink> to, std::unique_ptr<Hasher> hasher, std::string& digest)
      : to_(std::move(to)), hasher_(std::move(hasher)), digest_(digest) {}

  const std::string& name() const override { return to_->name(); }
  Status Append(Pieces pieces) override {
    for (const auto piece : pieces) hasher_->Update(piece);
    return to_->Append(pieces);
  }
  Status Reserve(std::uint64_t bytes) override { return to_->Reserve(bytes); }
  void Expect(std::uint64_t bytes) override { to_->Expect(bytes); }
  Status Finish(std::uint64_t total) override {
    ZT_RETURN_IF_ERROR(to_->Finish(total));
    digest_ = hasher_->Finish();
    return OkStatus();
  }
  void Abort() override { to_->Abort(); }

 private:
  std::unique_ptr<Sink> to_;
  std::unique_ptr<Hasher> hasher_;
  std::string& digest_;
};

}  // namespace

std::unique_ptr<Sink> TeeSink(std::vector<std::unique_ptr<Sink>> sinks) {
  if (std::find(sinks.begin(), sinks.end(), nullptr) != sinks.end()) return nullptr;
  return std::make_unique<Tee>(std::move(sinks));
}

std::unique_ptr<Sink> HashingSink(std::unique_ptr<Sink> to, DigestKind kind, std::string& digest) {
  auto hasher = MakeHasher(kind);
  if (to == nullptr || hasher == nullptr) return nullptr;
  return std::make_unique<Hashing>(std::move(to), std::move(hasher), digest);
}

}  // namespace zt
