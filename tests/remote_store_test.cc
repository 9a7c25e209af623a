// Two stores of one process, against a server that store_test.py runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing.h"

import zt.std;
import zt.core;
import zt.remote;
import zt.source;

namespace zt {
namespace {

using ::testing::HasSubstr;

std::string ReadBy(Store& store, const std::string& url) {
  const auto bytes = store.Open(url);
  if (!bytes.ok()) return std::string(Message(bytes.status()));
  return ReadAll(**bytes, 1 << 20).value_or("");
}

// One bucket takes signed requests alone, the other unsigned ones alone, at the same time.
TEST(Stores, OneSignsAndAnotherDoesNot) {
  const char* const endpoint = std::getenv("ZT_STORE");
  if (endpoint == nullptr) GTEST_SKIP() << "store_test.py runs the server";
  const auto signs = MakeRemoteStore({.endpoint_url = endpoint});
  const auto plain = MakeRemoteStore({.no_sign_request = true, .endpoint_url = endpoint});
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, signed_one = i % 2 == 0, key = "/m" + std::to_string(i / 2)] {
      Store& mine = signed_one ? *signs : *plain;
      EXPECT_EQ(ReadBy(mine, (signed_one ? "s3://closed" : "s3://open") + key), "content" + key);
      EXPECT_THAT(ReadBy(mine, (signed_one ? "s3://open" : "s3://closed") + key),
                  HasSubstr("AccessDenied"));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The options of a store come before the environment, and are no other store's.
TEST(Stores, AskByTheirProfile) {
  const char* const endpoint = std::getenv("ZT_STORE");
  if (endpoint == nullptr) GTEST_SKIP() << "store_test.py runs the server";
  const auto works = MakeRemoteStore({.profile = "good", .endpoint_url = endpoint});
  const auto wrong = MakeRemoteStore({.profile = "bad", .endpoint_url = endpoint});
  const auto none = MakeRemoteStore({.profile = "none", .endpoint_url = endpoint});
  EXPECT_THAT(ReadBy(*wrong, "s3://closed/m0"), HasSubstr("InvalidAccessKeyId"));
  EXPECT_EQ(ReadBy(*works, "s3://closed/m0"), "content/m0");
  EXPECT_THAT(ReadBy(*none, "s3://closed/m0"), HasSubstr("there is no profile 'none' in ~/.aws"));
}

// What a store has read of an object stays so; another one asks anew.
TEST(Stores, EachPinsItsOwnObjects) {
  const char* const endpoint = std::getenv("ZT_STORE");
  if (endpoint == nullptr) GTEST_SKIP() << "store_test.py runs the server";
  const auto first = MakeRemoteStore({.endpoint_url = endpoint});
  const std::string before = ReadBy(*first, "s3://closed/counts");
  EXPECT_EQ(ReadBy(*first, "s3://closed/counts"), before);
  const auto second = MakeRemoteStore({.endpoint_url = endpoint});
  EXPECT_NE(ReadBy(*second, "s3://closed/counts"), before);
}

// One URL with two queries, each in its store.
TEST(Stores, EachHasItsQueries) {
  const char* const endpoint = std::getenv("ZT_STORE");
  if (endpoint == nullptr) GTEST_SKIP() << "store_test.py runs the server";
  const std::string url = std::string(endpoint) + "/echo/x";
  const auto first = MakeRemoteStore({.queries = {{url, "a=1"}}});
  const auto second = MakeRemoteStore({.queries = {{url, "b=2"}}});
  EXPECT_EQ(ReadBy(*first, url), "a=1");
  EXPECT_EQ(ReadBy(*second, url), "b=2");
}

}  // namespace
}  // namespace zt
