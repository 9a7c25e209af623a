// zt.convert.hdf5:worker — the process that runs libhdf5. Internal.
module;

#include <sys/types.h>

module zt.convert.hdf5:worker;

import zt.std;
import :index;
import zt.core;
import zt.source;

namespace zt::hdf5::internal {

// A child process with limits on memory (beyond what it has at the fork) and on processor time per
// answer, so that no file makes libhdf5 exhaust the machine. If a damaged file kills the process,
// that is an error here. The thread that starts it must outlive it: the process ends with the
// thread.
class Worker {
 public:
  // Forks the process, which reads `bytes`; they must outlive the worker. `block`: limit on
  // the bytes of a block.
  static StatusOr<std::unique_ptr<Worker>> Start(ByteSource& bytes, std::uint64_t block);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // The contents of the file. Call it once, before ReadBlock.
  StatusOr<Index> ReadIndex();
  // See Library::ReadBlock. Returns the block's `size` bytes, which the caller may modify; valid
  // until the next call.
  StatusOr<std::span<std::byte>> ReadBlock(std::uint64_t address,
                                           std::span<const std::uint64_t> start,
                                           std::span<const std::uint64_t> count,
                                           std::uint64_t size);

 private:
  Worker() = default;
  StatusOr<std::string> Answer(std::uint64_t most);
  Status Ended();
  // How a process ended: by a signal, or with a status.
  struct End {
    bool killed = false;
    int status = 0;
  };
  // Waits for the end of the process; nullopt if the system does not tell how it ended.
  std::optional<End> Wait();
  // Runs in a thread of its own: answers the process's requests for bytes that it
  // cannot read itself.
  void GiveBytes(ByteSource& bytes);
  // The error of reading the bytes, if there is one; else `status`, which comes from libhdf5.
  Status Why(const Status& status);

  pid_t process_ = -1;
  // Descriptor of the process, whose number may be reused; -1 if the kernel has no such
  // descriptors.
  int descriptor_ = -1;
  int socket_ = -1;
  std::span<std::byte> shared_;  // memory shared with the process, for blocks
  std::uint64_t file_size_ = 0;
  // The socket on which the process requests bytes, the thread that answers, and its first error.
  int asked_ = -1;
  std::thread giver_;
  std::mutex failed_mutex_;
  Status failed_;
};

}  // namespace zt::hdf5::internal
