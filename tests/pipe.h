// pipe — a pipe that a thread feeds, for what is read from standard input.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include "testing.h"

namespace zt_test {

class Pipe {
 public:
  // Fed in pieces of changing size below `piece` bytes; now and then with a pause, where `pauses`.
  explicit Pipe(std::string content, std::size_t piece = 1 << 20, bool pauses = false)
      : content_(std::move(content)) {
    EXPECT_EQ(::pipe2(ends_, O_CLOEXEC), 0);
    writer_ = std::thread([this, piece, pauses] {
      std::mt19937 random(3);
      for (std::size_t at = 0; at < content_.size();) {
        const std::size_t take = std::min<std::size_t>(1 + random() % piece, content_.size() - at);
        const ssize_t wrote = ::write(ends_[1], content_.data() + at, take);
        if (wrote < 0) break;
        at += static_cast<std::size_t>(wrote);
        if (pauses && random() % 4 == 0)
          std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      ::close(ends_[1]);
    });
  }
  ~Pipe() {
    char rest[4096];
    while (::read(ends_[0], rest, sizeof rest) > 0) {
    }
    writer_.join();
    ::close(ends_[0]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int descriptor() const { return ends_[0]; }

 private:
  const std::string content_;
  int ends_[2] = {};
  std::thread writer_;
};

}  // namespace zt_test
