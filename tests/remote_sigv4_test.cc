// zt.remote: signatures of AWS, version 4: the examples of its documentation, and cases of a file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

import zt.remote;

namespace zt {
namespace {

using remote::internal::Credentials;
using remote::internal::PercentEncoded;
using remote::internal::QueryText;
using remote::internal::Sha256Hex;
using remote::internal::Sign;
using remote::internal::ToSign;
using ::testing::EndsWith;

// The examples of "Signature Calculations for the Authorization Header" of S3.
TEST(Signatures, OfTheDocumentation) {
  const Credentials by{.id = "AKIAIOSFODNN7EXAMPLE",
                       .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                       .token = {},
                       .expires = {}};
  const std::string nothing = Sha256Hex("");
  EXPECT_EQ(nothing, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  const auto signature = [&](ToSign request, std::vector<std::string> fields) {
    request.host = "examplebucket.s3.amazonaws.com";
    request.region = "us-east-1";
    Sign(request, by, 1'369'353'600, fields);
    return fields.back();
  };
  EXPECT_EQ(
      signature({.method = "GET", .path = "/test.txt", .payload = nothing}, {"Range: bytes=0-9"}),
      "Authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/"
      "aws4_request, SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, Signature="
      "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  EXPECT_THAT(
      signature({.method = "PUT",
                 .path = "/" + PercentEncoded("test$file.text", "/"),
                 .payload = Sha256Hex("Welcome to Amazon S3.")},
                {"Date: Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class: REDUCED_REDUNDANCY"}),
      EndsWith("98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"));
  EXPECT_THAT(
      signature({.method = "GET", .path = "/", .query = {{"lifecycle", ""}}, .payload = nothing},
                {}),
      EndsWith("fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"));
  EXPECT_THAT(signature({.method = "GET",
                         .path = "/",
                         .query = {{"prefix", "J"}, {"max-keys", "2"}},
                         .payload = nothing},
                        {}),
              EndsWith("34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"));
}

TEST(Signatures, Queries) {
  EXPECT_EQ(QueryText({}), "");
  EXPECT_EQ(QueryText({{"uploads", ""}, {"a b", "+/=%~\xff"}}), "a%20b=%2B%2F%3D%25~%FF&uploads=");
}

// The cases of the file ZT_SIGNATURES, which another implementation has signed (sigv4_test.py): a
// line each, of words in hexadecimal.
TEST(Signatures, OfAnotherImplementation) {
  const char* const path = std::getenv("ZT_SIGNATURES");
  if (path == nullptr) GTEST_SKIP() << "sigv4_test.py makes the cases";
  const auto bytes = [](const std::string& digits) {
    std::string out;
    for (std::size_t i = 2; i + 1 < digits.size(); i += 2)
      out += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
    return out;
  };
  std::ifstream file(path);
  std::string line;
  std::size_t count = 0;
  for (; std::getline(file, line); ++count) {
    std::istringstream words(line);
    std::vector<std::string> word;
    for (std::string each; words >> each;) word.push_back(bytes(each));
    ASSERT_GE(word.size(), 13U);
    ToSign request{.method = word[0],
                   .host = word[1],
                   .path = "/" + PercentEncoded(word[2], "/"),
                   .query = {},
                   .payload = word[3],
                   .region = word[4],
                   .service = word[5]};
    const Credentials by{.id = word[6], .secret = word[7], .token = word[8], .expires = {}};
    std::vector<std::string> fields;
    std::size_t at = 13;
    for (int left = std::stoi(word[10]); left > 0; --left, at += 2)
      request.query.emplace_back(word[at], word[at + 1]);
    for (; at < word.size(); ++at) fields.push_back(word[at]);
    Sign(request, by, std::stoll(word[9]), fields);
    ASSERT_EQ(fields.back(), "Authorization: " + word[11]) << line;
    ASSERT_EQ(request.path + "?" + QueryText(request.query), word[12]) << line;
  }
  EXPECT_EQ(count, 10'000U);
}

}  // namespace
}  // namespace zt
