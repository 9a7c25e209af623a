// little_endian — numbers as the bytes of tensors have them, whatever machine the tests run on.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

namespace zt {

// `value` with its bytes in little-endian order in memory; its own inverse.
template <typename T>
T Little(T value) {
  if constexpr (std::endian::native == std::endian::big) {
    unsigned char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    std::reverse(bytes, bytes + sizeof(T));
    std::memcpy(&value, bytes, sizeof(T));
  }
  return value;
}
template <typename T>
std::vector<T> Little(std::vector<T> values) {
  for (T& value : values) value = Little(value);
  return values;
}

}  // namespace zt
