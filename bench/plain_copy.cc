// plain_copy — what the kernel alone allows: threads that take turns at pieces of a file, and do
// nothing with each but pread, CRC-32C and pwrite. No order, no plan, no container, nothing bounded
// but the buffers. bench/compare.py puts it beside `cp` and the conversion.
//
//   plain_copy THREADS BYTES_PER_WRITE IN OUT
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <thread>
#include <vector>

import zt.digest;

namespace {

constexpr std::size_t kPiece = 256 << 10;

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::exit(1);
}

struct Copy {
  int in = -1, out = -1;
  std::uint64_t bytes = 0;
  std::size_t per_write = 1;
  std::atomic<std::uint64_t> next = 0;
  std::atomic<std::uint32_t> crc = 0;

  void Work() {
    std::vector<std::byte> buffer(kPiece);
    for (std::uint64_t at; (at = next.fetch_add(kPiece)) < bytes;) {
      const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(kPiece, bytes - at));
      const std::span piece(buffer.data(), size);
      if (::pread(in, piece.data(), size, static_cast<off_t>(at)) != static_cast<ssize_t>(size))
        Die("read");
      crc ^= zt::Crc32c(piece);
      for (std::size_t done = 0; done < size;) {
        const ssize_t wrote = ::pwrite(out, piece.data() + done, std::min(per_write, size - done),
                                       static_cast<off_t>(at + done));
        if (wrote <= 0) Die("write");
        done += static_cast<std::size_t>(wrote);
      }
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fputs("plain_copy THREADS BYTES_PER_WRITE IN OUT\n", stderr);
    return 2;
  }
  Copy copy{.in = ::open(argv[3], O_RDONLY | O_CLOEXEC),
            .out = ::open(argv[4], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)};
  struct stat info;
  if (copy.in < 0 || copy.out < 0 || ::fstat(copy.in, &info) != 0) Die("open");
  copy.bytes = static_cast<std::uint64_t>(info.st_size);
  copy.per_write = std::max<std::size_t>(1, std::strtoull(argv[2], nullptr, 10));
  std::vector<std::jthread> threads;
  for (int i = std::atoi(argv[1]); i > 1; --i) threads.emplace_back([&] { copy.Work(); });
  copy.Work();
  threads.clear();
  std::printf("%08x\n", copy.crc.load());
  return 0;
}
