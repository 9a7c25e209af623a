// zt.sink — sinks over other sinks: the same bytes to several, and a digest of what passes.
module;

#include "core/status_macros.h"

module zt.sink;

import zt.std;
import zt.core;
import zt.digest;

namespace zt {
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
  // Calls for one after the other until one fails, and says which.
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
  std::size_t finished_ = 0;  // so many from the first on
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
