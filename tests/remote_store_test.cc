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

// An answer says that a file is not there, or refuses to tell; an error of the server is none.
TEST(Stores, WhatAnswersMean) {
  const char* const endpoint = std::getenv("ZT_STORE");
  if (endpoint == nullptr) GTEST_SKIP() << "store_test.py runs the server";
  using std::filesystem::file_type;
  std::vector<std::string> warnings;
  const auto warn = [&](const std::string& line) { warnings.push_back(line); };
  const auto store = MakeRemoteStore({.retry_seconds = 0, .endpoint_url = endpoint, .warn = warn});
  for (const auto& [status, type] :
       std::map<int, std::optional<file_type>>{{200, file_type::regular},
                                               {404, file_type::not_found},
                                               {410, file_type::not_found},
                                               {400, file_type::unknown},
                                               {401, file_type::unknown},
                                               {403, file_type::unknown},
                                               {409, file_type::unknown},
                                               {501, file_type::unknown},
                                               {302, std::nullopt},
                                               {408, std::nullopt},
                                               {429, std::nullopt},
                                               {500, std::nullopt},
                                               {503, std::nullopt}}) {
    for (const std::string begin : {"s3:/", endpoint}) {
      const std::string url = begin + "/status/" + std::to_string(status) + "/x";
      warnings.clear();
      const auto found = store->TypeOf(url);
      EXPECT_EQ(found.ok() ? std::optional(*found) : std::nullopt, type) << url;
      EXPECT_TRUE(found.ok() || found.status().code() == StatusCode::kUnavailable) << url;
      EXPECT_EQ(warnings.size(), 0U) << url;
      EXPECT_EQ(store->Exists(url).ok(), found.ok()) << url;
      EXPECT_EQ(store->Exists(url).value_or(false), status == 200) << url;
      EXPECT_EQ(warnings.size(), type == file_type::unknown ? 1U : 0U) << url;
      EXPECT_EQ(store->HasName(url).value_or(false), found.ok() && *type != file_type::not_found)
          << url;
      const auto opened = store->Open(url);
      EXPECT_EQ(opened.status().code(), status == 200 ? StatusCode::kOk : StatusCode::kUnavailable)
          << url;
    }
    const auto folder = store->IsFolder("s3://status/" + std::to_string(status) + "/folder");
    EXPECT_EQ(folder.ok(), type.has_value()) << status;
    EXPECT_FALSE(folder.value_or(false)) << status;
  }
}

}  // namespace
}  // namespace zt
