// Builds .npy files byte by byte, for the tests of zt.convert.npy.
#pragma once

#include "testing.h"
#include "zip_maker.h"

namespace zt_test {

template <typename T>
std::string Raw(const std::vector<T>& native) {
  const std::vector<T> values = zt::Little(native);
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// An .npy file of this header text, taken as it is.
inline std::string NpyRaw(std::string_view header, std::string_view data, int major = 1) {
  std::string out = "\x93NUMPY";
  out += static_cast<char>(major);
  out += '\0';
  return out + Le(header.size(), major == 1 ? 2 : 4) + std::string(header) + std::string(data);
}

inline std::string Npy(std::string_view descr, std::string_view shape, std::string_view data,
                       bool fortran = false) {
  std::string header = "{'descr': '" + std::string(descr) +
                       "', 'fortran_order': " + (fortran ? "True" : "False") +
                       ", 'shape': " + std::string(shape) + ", }";
  while ((10 + header.size() + 1) % 64 != 0) header += ' ';
  return NpyRaw(header + "\n", data);
}

// All of the first component of a source, of `bytes`, in pieces taken in turn by four threads, and
// how many pieces failed.
template <typename Source>
std::pair<std::string, int> ReadByThreads(Source& source, std::uint64_t bytes,
                                          std::uint64_t piece) {
  std::string out(bytes, '\0');
  std::atomic<std::uint64_t> next = 0;
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (std::uint64_t at; (at = next.fetch_add(piece)) < bytes;) {
        const auto part =
            std::as_writable_bytes(std::span(out)).subspan(at, std::min(piece, bytes - at));
        if (!source.Read({}, at, part).ok()) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return {std::move(out), failures.load()};
}

}  // namespace zt_test
