// zt.core — the keyed hash of names: XXH3 with a random secret.
#include "core/name_table.h"

#include <xxhash.h>

#include <array>
#include <cstdint>
#include <random>
#include <string_view>

namespace zt::internal {
namespace {

using Secret = std::array<std::uint64_t, 32>;
static_assert(sizeof(Secret) >= XXH3_SECRET_SIZE_MIN);

Secret MakeSecret() {
  std::random_device random;
  Secret secret;
  for (std::uint64_t& word : secret) word = std::uint64_t{random()} << 32 | random();
  return secret;
}

}  // namespace

std::uint64_t HashOfName(std::string_view name) {
  static const Secret secret = MakeSecret();
  return XXH3_64bits_withSecret(name.data(), name.size(), secret.data(), sizeof(secret));
}

}  // namespace zt::internal
