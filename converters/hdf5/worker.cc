// zt.convert.hdf5:worker — a forked process answers requests over a socket, and returns
// blocks in shared memory.
module;

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/retry.h"
#include "core/status_macros.h"

module zt.convert.hdf5;

import zt.std;
import :confine;
import :index;
import :library;
import :worker;
import zt.core;
import zt.source;

namespace zt::hdf5::internal {
namespace {

using zt::internal::Retry;

// ---- limits, requests and answers ---------------------------------------------------------------

constexpr std::size_t kMaxDimensions = 32;  // HDF5's own limit
// Limits on the memory of the process: kFreeMemory for libhdf5's caches, kBlocksOfMemory blocks for
// a chunk in several stages of decoding, and kMemoryPerByte for each byte of the file, up to
// kMostIndexMemory, for the index.
constexpr std::uint64_t kFreeMemory = std::uint64_t{512} << 20;
constexpr std::uint64_t kBlocksOfMemory = 8;
constexpr std::uint64_t kMemoryPerByte = 4;
constexpr std::uint64_t kMostIndexMemory = std::uint64_t{2} << 30;
// Limit on the processor time of an answer: kSeconds, plus time by the size of the file for the
// index, or of the block.
constexpr std::uint64_t kSeconds = 10;
constexpr std::uint64_t kFilePerSecond = std::uint64_t{4} << 20;
constexpr std::uint64_t kBlockPerSecond = std::uint64_t{1} << 20;
constexpr std::uint64_t kMostSeconds = 600;
// Limit on the bytes of an encoded index; Walk has a lower limit of its own.
constexpr std::uint64_t kFreeAnswer = std::uint64_t{64} << 20;
constexpr std::uint64_t kAnswerPerByte = 32;

constexpr int kOutOfMemory = 1;  // exit status of the process

// A request for a block; for the index if `bytes` is 0.
struct Request {
  std::uint64_t address = 0, bytes = 0, rank = 0;
  std::array<std::uint64_t, kMaxDimensions> start{}, count{};
};

// Precedes the text of an answer, which is an error message if `code` is not OK.
struct Header {
  std::uint64_t code = 0, size = 0;
  std::uint64_t name = 0;  // the last `name` bytes of an error message name the tensor
};

// By number, as the filter knows them: what libc's functions call differs between architectures.
// False if the other end is closed.
bool Send(int socket, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto sent = Retry([&] {
      return ::syscall(SYS_sendto, socket, bytes.data(), bytes.size(), MSG_NOSIGNAL, nullptr, 0);
    });
    if (sent <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
  return true;
}

bool Receive(int socket, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const auto got = Retry([&] {
      return ::syscall(SYS_recvfrom, socket, bytes.data(), bytes.size(), 0, nullptr, nullptr);
    });
    if (got <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

// ---- bytes that the process cannot read itself --------------------------------------------------

// The process has no threads and opens no connections: it requests bytes of a remote
// file from the parent.
struct Wanted {
  std::uint64_t offset = 0, size = 0;
};
constexpr std::uint64_t kMostWanted = std::uint64_t{1} << 20;

class AskedBytes final : public ByteSource {
 public:
  AskedBytes(int socket, const ByteSource& of)
      : socket_(socket), name_(of.name()), size_(of.size()) {}
  const std::string& name() const override { return name_; }
  std::optional<std::uint64_t> size() const override { return size_; }
  bool sequential() const override { return false; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    while (!out.empty()) {
      const Wanted wanted{offset, std::min<std::uint64_t>(out.size(), kMostWanted)};
      std::uint64_t there = 0;
      const auto piece = out.first(wanted.size);
      if (!Send(socket_, std::as_bytes(std::span(&wanted, 1))) ||
          !Receive(socket_, std::as_writable_bytes(std::span(&there, 1))) || there == 0 ||
          !Receive(socket_, piece)) {
        return IoError("the bytes cannot be read");
      }
      out = out.subspan(wanted.size);
      offset += wanted.size;
    }
    return OkStatus();
  }

 private:
  const int socket_;
  const std::string name_;
  const std::optional<std::uint64_t> size_;
};

// The parent's side: answers until the other end is closed or a read fails.
Status Give(int socket, ByteSource& bytes) {
  std::vector<std::byte> buffer(kMostWanted);
  Wanted wanted;
  while (Receive(socket, std::as_writable_bytes(std::span(&wanted, 1))) &&
         wanted.size <= kMostWanted) {
    const auto piece = std::span(buffer).first(wanted.size);
    const Status status = bytes.ReadAt(wanted.offset, piece);
    if (!status.ok()) return status;
    const std::uint64_t there = 1;
    if (!Send(socket, std::as_bytes(std::span(&there, 1))) || !Send(socket, piece)) break;
  }
  return OkStatus();
}

// ---- the process --------------------------------------------------------------------------------

// The answer to one request. The content of a block is in `shared`.
StatusOr<std::string> Respond(Library& library, const Request& request, std::uint64_t file_size,
                              std::span<std::byte> shared, bool limited) {
  const std::uint64_t more =
      request.bytes == 0 ? file_size / kFilePerSecond : request.bytes / kBlockPerSecond;
  LimitTime(kSeconds + std::min(more, kMostSeconds));
  if (request.bytes == 0) {
    ZT_ASSIGN_OR_RETURN(Index index, library.ReadIndex());
    if (!limited) {
      index.warnings.emplace_back(
          "this system sets no limit on the memory of the process that runs libhdf5");
    }
    return Encode(index);
  }
  ZT_RETURN_IF_ERROR(
      library.ReadBlock(request.address, std::span(request.start).first(request.rank),
                        std::span(request.count).first(request.rank), shared.first(request.bytes)));
  return std::string();
}

// Answers requests until the other end is closed. `limited`: there is a limit on memory.
void Serve(int socket, ByteSource& bytes, std::span<std::byte> shared, bool limited) {
  const std::uint64_t file_size = bytes.size().value_or(0);
  LimitTime(kSeconds);
  auto library = Library::Open(bytes, shared.size());
  Request request;
  while (Receive(socket, std::as_writable_bytes(std::span(&request, 1)))) {
    auto answer = library.ok() ? Respond(**library, request, file_size, shared, limited)
                               : StatusOr<std::string>(library.status());
    const std::string name = TensorOf(answer.status()).value_or("");
    const auto code = static_cast<std::uint64_t>(answer.status().code());
    const std::string text = answer.ok() ? *std::move(answer) : Fact(answer.status()) + name;
    const Header header{code, text.size(), name.size()};
    if (!Send(socket, std::as_bytes(std::span(&header, 1))) ||
        !Send(socket, std::as_bytes(std::span(text)))) {
      break;
    }
  }
}

}  // namespace

// ---- the parent's side --------------------------------------------------------------------------

StatusOr<std::unique_ptr<Worker>> Worker::Start(ByteSource& bytes, std::uint64_t block) {
  // One at a time: a worker that another thread forks between the socketpair and the close below
  // would inherit this worker's end of the socket and hold it open, and Receive would wait for ever
  // once this worker has died.
  static std::mutex* const one = new std::mutex;
  const std::lock_guard lock(*one);
  std::unique_ptr<Worker> worker(new Worker);
  worker->file_size_ = bytes.size().value_or(0);
  void* const memory =
      ::mmap(nullptr, block, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return IoError(errno, "cannot map memory");
  worker->shared_ = {static_cast<std::byte*>(memory), block};
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return IoError(errno, "cannot make a socket");
  worker->socket_ = ends[0];
  const bool asks = IsUrl(bytes.name());
  std::array<int, 2> asked{-1, -1};
  if (asks && ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, asked.data()) != 0)
    return IoError(errno, "cannot make a socket");
  worker->asked_ = asked[0];
  // The child must not run signal handlers of this process (a sanitizer's, an interpreter's),
  // because their locks may be held by threads that do not exist in the child. Signals are blocked
  // until Retire has reset the handlers.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t parent = ::getpid();
  worker->process_ = ::fork();
  if (worker->process_ == 0) {
    ::close(ends[0]);
    if (asks) ::close(asked[0]);
    const bool limited =
        LimitMemory(kFreeMemory + kBlocksOfMemory * block +
                    std::min(kMostIndexMemory, kMemoryPerByte * worker->file_size_));
    Retire(parent);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    try {
      AskedBytes from_there(asked[1], bytes);
      Serve(ends[1], asks ? from_there : bytes, worker->shared_, limited);
      // Out of memory, or a ByteSource that throws.
    } catch (...) {
      ::_exit(kOutOfMemory);
    }
    ::_exit(0);
  }
  const int error = errno;
  if (worker->process_ > 0)
    worker->descriptor_ = static_cast<int>(::syscall(SYS_pidfd_open, worker->process_, 0));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::close(ends[1]);
  if (asks) ::close(asked[1]);
  if (worker->process_ < 0) return IoError(error, "cannot start a process for libhdf5");
  if (asks) {
    try {
      worker->giver_ = std::thread([&bytes, to = worker.get()] { to->GiveBytes(bytes); });
    } catch (const std::system_error& failure) {
      return IoError(failure.code().value(), "cannot start a thread for libhdf5");
    }
  }
  return worker;
}

Worker::~Worker() {
  if (socket_ >= 0) ::close(socket_);
  if (process_ > 0) {
    if (descriptor_ < 0) {
      ::kill(process_, SIGKILL);
    } else {
      ::syscall(SYS_pidfd_send_signal, descriptor_, SIGKILL, nullptr, 0);
    }
    Wait();
  }
  if (descriptor_ >= 0) ::close(descriptor_);
  if (giver_.joinable()) {
    ::shutdown(asked_, SHUT_RDWR);
    giver_.join();
  }
  if (asked_ >= 0) ::close(asked_);
  if (!shared_.empty()) ::munmap(shared_.data(), shared_.size());
}

void Worker::GiveBytes(ByteSource& bytes) {
  const Status status = Give(asked_, bytes);
  {
    const std::lock_guard lock(failed_mutex_);
    failed_ = status;
  }
  ::shutdown(asked_, SHUT_RDWR);
}

Status Worker::Why(const Status& status) {
  const std::lock_guard lock(failed_mutex_);
  return failed_.ok() ? status : failed_;
}

std::optional<Worker::End> Worker::Wait() {
  siginfo_t info{};
  const int waited = Retry([&] {
    return descriptor_ < 0 ? ::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED)
                           : ::waitid(P_PIDFD, static_cast<id_t>(descriptor_), &info, WEXITED);
  });
  process_ = -1;
  if (waited != 0) return std::nullopt;
  return End{info.si_code != CLD_EXITED, info.si_status};
}

// The error when no answer has come.
Status Worker::Ended() {
  if (process_ < 0) return InvalidData("libhdf5 failed on it before");
  const End end = Wait().value_or(End{});
  if (end.killed && end.status == SIGXCPU) {
    return InvalidData(
        "libhdf5 took more processor time than a file of this size needs; the file is damaged");
  }
  if (!end.killed && end.status == kOutOfMemory)
    return InvalidData(
        "libhdf5 needs more memory than a file of this size should; the file is damaged");
  if (end.killed && end.status == SIGKILL)
    return IoError("the process that runs libhdf5 was killed");
  return InvalidData("libhdf5 failed on it; the file is damaged");
}

StatusOr<std::string> Worker::Answer(std::uint64_t most) {
  Header header;
  if (!Receive(socket_, std::as_writable_bytes(std::span(&header, 1)))) return Ended();
  if (header.size > most) return InvalidData("libhdf5 failed on it; the file is damaged");
  std::string text;
  while (text.size() < header.size) {  // grows with the bytes received
    const std::size_t have = text.size();
    text.resize(have + std::min<std::uint64_t>(header.size - have, std::uint64_t{1} << 20));
    if (!Receive(socket_, std::as_writable_bytes(std::span(text)).subspan(have))) return Ended();
  }
  if (header.code == 0) return text;
  const auto code = static_cast<StatusCode>(header.code);
  const bool known = code == StatusCode::kUnimplemented || code == StatusCode::kUnavailable;
  const std::size_t fact = text.size() - std::min(header.name, text.size());
  const Status status =
      MakeStatus(known ? code : StatusCode::kDataLoss, std::string_view(text).substr(0, fact));
  return Why(header.name == 0 ? status : WithTensor(status, std::string_view(text).substr(fact)));
}

StatusOr<Index> Worker::ReadIndex() {
  const Request request;
  if (!Send(socket_, std::as_bytes(std::span(&request, 1)))) return Ended();
  const auto most = CheckedMul(file_size_, kAnswerPerByte).value_or(~std::uint64_t{0} / 2);
  ZT_ASSIGN_OR_RETURN(const std::string text, Answer(kFreeAnswer + std::min(most, ~kFreeAnswer)));
  return Decode(text);
}

StatusOr<std::span<std::byte>> Worker::ReadBlock(std::uint64_t address,
                                                 std::span<const std::uint64_t> start,
                                                 std::span<const std::uint64_t> count,
                                                 std::uint64_t size) {
  Request request{address, size, start.size(), {}, {}};
  if (start.size() > kMaxDimensions || size == 0 || size > shared_.size())
    return InvalidArgument("a block of " + std::to_string(size) + " bytes");
  std::copy(start.begin(), start.end(), request.start.begin());
  std::copy(count.begin(), count.end(), request.count.begin());
  if (process_ < 0 || !Send(socket_, std::as_bytes(std::span(&request, 1)))) return Ended();
  ZT_RETURN_IF_ERROR(Answer(kFreeAnswer).status());
  return shared_.first(size);
}

}  // namespace zt::hdf5::internal
