// fixtures — the files of tests/data that say what is right: JSON and SHA-256.
#pragma once

#include <openssl/sha.h>

#include <nlohmann/json.hpp>

#include "testing.h"

namespace zt_test {

// A JSON file below tests/data.
inline nlohmann::json ReadJson(std::string_view name) {
  return nlohmann::json::parse(ReadFile(DataPath(name)));
}

inline std::string Sha256(std::span<const std::byte> bytes) {
  Bytes digest(SHA256_DIGEST_LENGTH);
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return ToHex(digest);
}
inline std::string Sha256(std::string_view bytes) { return Sha256(BytesOf(bytes)); }

}  // namespace zt_test
