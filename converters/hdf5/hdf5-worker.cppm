// zt.convert.hdf5:worker — the process that runs libhdf5 for us. Internal.
module;

#include <sys/types.h>

module zt.convert.hdf5:worker;

import zt.std;
import :index;
import zt.core;
import zt.source;

namespace zt::hdf5::internal {

// Limits of the process, so that no file makes libhdf5 take the machine: memory beyond what the process has at first, and
// processor time for each answer. A damaged file ends the process, and is an error here.
class Worker {
 public:
  // Forks the process, which reads `bytes`: these outlive the worker. Blocks have at most `block` bytes.
  static StatusOr<std::unique_ptr<Worker>> Start(ByteSource& bytes, std::uint64_t block);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // What is in the file. Once, and first.
  StatusOr<Index> ReadIndex();
  // See Library::ReadBlock. The block's `size` bytes, valid and the caller's to change until the next call.
  StatusOr<std::span<std::byte>> ReadBlock(std::uint64_t address,
                                           std::span<const std::uint64_t> start,
                                           std::span<const std::uint64_t> count,
                                           std::uint64_t size);

 private:
  Worker() = default;
  StatusOr<std::string> Answer(std::uint64_t most);
  Status Ended();
  // In a thread of its own: gives the process the bytes that it cannot read itself.
  void GiveBytes(ByteSource& bytes);
  // What is wrong with them where something is; else what libhdf5 says.
  Status Why(const Status& status);

  pid_t process_ = -1;
  int socket_ = -1;
  std::span<std::byte> shared_;  // the blocks' place, which both processes see
  std::uint64_t file_size_ = 0;
  // Where the process asks for bytes, who gives them, and why there are none.
  int asked_ = -1;
  std::thread giver_;
  std::mutex failed_mutex_;
  Status failed_;
};

}  // namespace zt::hdf5::internal
