// zt.sink — descriptors, memory, and the sink that forgets.
module;

#include <sys/uio.h>

#include "sink/write_all.h"

module zt.sink;

import zt.std;

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
      return ::writev(fd_, v, count);
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

}  // namespace zt
