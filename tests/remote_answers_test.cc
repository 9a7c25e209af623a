// zt.remote: what servers say, taken apart, and which names are URLs.
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

import zt.core;
import zt.remote;
import zt.sink;
import zt.source;

namespace zt {
namespace {

using remote::internal::HttpHead;
using remote::internal::JsonStrings;
using remote::internal::JsonTree;
using remote::internal::NextPage;
using remote::internal::ParseContentRange;
using remote::internal::ParseListPage;
using remote::internal::ParseTime;
using remote::internal::ParseXml;
using remote::internal::PercentDecoded;
using remote::internal::RetrySeconds;
using remote::internal::TakeHeadLine;
using remote::internal::XmlDecoded;
using remote::internal::XmlRoot;
using remote::internal::XmlText;
using ::testing::ElementsAre;
using ::testing::Pair;

TEST(Answers, ContentRanges) {
  const auto range = ParseContentRange("bytes 10-19/100");
  ASSERT_TRUE(range.has_value());
  EXPECT_EQ(range->first, 10U);
  EXPECT_EQ(range->last, 19U);
  EXPECT_EQ(range->total, 100U);
  EXPECT_TRUE(ParseContentRange("Bytes 0-0/1").has_value());
  for (const std::string_view text :
       {"", "bytes", "bytes ", "bytes */100", "bytes 10-19/*", "bytes 10-19", "bytes 19-10/100",
        "bytes 0-100/100", "bytes 0-9/100x", "bytes -1-9/100", "bytes 0-9/99999999999999999999",
        "items 0-9/100", "bytes 0--9/100", "bytes=0-9/100"}) {
    EXPECT_FALSE(ParseContentRange(text).has_value()) << text;
  }
}

TEST(Answers, Xml) {
  const auto document = ParseXml(
      "<?xml version=\"1.0\"?>\n<!-- c > --><a:R x='1'><b>1 &lt; 2 &amp;&#65;&#x42;</b>\n"
      "<e><f>1</f><g><h>2</h></g></e><c/><e><f>3</f></e>4<d></d></a:R>");
  EXPECT_TRUE(document.whole);
  EXPECT_EQ(document.root, "R");
  EXPECT_THAT(document.members, ElementsAre(Pair("b", "1 < 2 &AB"), Pair("c", ""), Pair("d", "")));
  EXPECT_THAT(document.rows, ElementsAre(Pair("e", ElementsAre(Pair("f", "1"), Pair("h", "2"))),
                                         Pair("e", ElementsAre(Pair("f", "3")))));
  const auto part = ParseXml("<R><a>1</a><e><f>2</f></e><e><f>3</f>");
  EXPECT_FALSE(part.whole);
  EXPECT_THAT(part.members, ElementsAre(Pair("a", "1")));
  EXPECT_THAT(part.rows, ElementsAre(Pair("e", ElementsAre(Pair("f", "2")))));
  for (const std::string_view bad :
       {"<a>", "<a></b>", "</a>", "<a", "<a><b></a></b>", "<>", "<!-- "})
    EXPECT_FALSE(ParseXml(bad).whole) << bad;
  EXPECT_EQ(XmlRoot("  <?xml?>\n <Error><Code>X</Code></Error>"), "Error");
  EXPECT_EQ(XmlRoot("no"), "");
  EXPECT_EQ(XmlText("<E><Code>X</Code><Code>Y</Code></E>", "Code"), "X");
  EXPECT_EQ(XmlText("<R><Error><Code>X</Code></Error></R>", "Code"), "X");
  EXPECT_EQ(XmlText("<html><body>Bad Gateway", "Code"), "");
  EXPECT_EQ(XmlDecoded("&unknown;&;& &#xD800;&#0;&#x110000;"),
            "& \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(Answers, Links) {
  const auto next = [](std::initializer_list<std::string> links) {
    HttpHead head;
    for (const std::string& link : links) head.fields.emplace_back("link", link);
    return NextPage(head);
  };
  EXPECT_EQ(next({"<https://h/x?c=1>; rel=\"next\""}), "https://h/x?c=1");
  EXPECT_EQ(next({"<https://h/0>; rel=\"prev\", <https://h/2>; rel=\"next\""}), "https://h/2");
  EXPECT_EQ(next({"<https://h/0>; rel=\"prev\"", "<https://h/2>; REL=Next; x=1"}), "https://h/2");
  EXPECT_EQ(next({"<https://h/2>; title=\"a\"; rel=\"last next\""}), "https://h/2");
  for (const std::string link :
       {"<https://h/0>; rel=\"prev\"", "https://h/0", "<https://h/0", "<",
        "<https://h/0>; rel=nextpage", "<https://h/0>", "<https://h/0>;rel="})
    EXPECT_EQ(next({link}), "") << link;
  EXPECT_EQ(next({}), "");
}

TEST(Answers, Heads) {
  HttpHead head;
  for (const std::string_view line :
       {"HTTP/1.1 100 Continue\r\n", "X: 1\r\n", "HTTP/1.1 429 Slow down\r\n",
        "RETRY-After:  7 \r\n", "no field\r\n", "\r\n"}) {
    TakeHeadLine(line, head);
  }
  EXPECT_EQ(head.status, 429);
  EXPECT_EQ(head.Find("x"), "");
  EXPECT_EQ(head.Find("retry-after"), "7");
  EXPECT_EQ(RetrySeconds(head), 7U);
  TakeHeadLine("RateLimit: \"api\";r=0;t=55", head);
  EXPECT_EQ(RetrySeconds(head), 56U);
  head = {};
  TakeHeadLine("Retry-After: Wed, 21 Oct 2026 07:28:00 GMT", head);
  EXPECT_GT(RetrySeconds(head).value_or(0) + 1, 0U);
  TakeHeadLine("Date: Wed, 21 Oct 2026 07:27:30 GMT", head);
  EXPECT_EQ(RetrySeconds(head), 30U);
  head = {};
  TakeHeadLine("Retry-After: soon", head);
  EXPECT_EQ(RetrySeconds(head), std::nullopt);
  TakeHeadLine("RateLimit: \"api\";r=7;t=55", head);
  EXPECT_EQ(RetrySeconds(head), std::nullopt);
}

std::string Page(const std::string& inside) {
  return "<ListBucketResult>" + inside + "</ListBucketResult>";
}

TEST(Answers, Listings) {
  const std::string some =
      "<Prefix>a/</Prefix><Contents><Key>a/b+c%2Bd</Key><Size>7</Size></Contents><Contents><Key>"
      "a/f</Key></Contents><Contents><Size>-1</Size><Key>a/<![CDATA[<g>]]>&amp;</Key></Contents>"
      "<Contents><Key>a/<!-- > -->h</Key><Size>99999999999999999999</Size></Contents>"
      "<CommonPrefixes><Prefix>a/%65/</Prefix></CommonPrefixes>";
  const auto page =
      ParseListPage(Page("<IsTruncated>true</IsTruncated><NextContinuationToken>x+%2B"
                         "</NextContinuationToken>" +
                         some + "<EncodingType>url</EncodingType>"));
  ASSERT_TRUE(page.ok()) << page.status();
  using Key = remote::internal::ListPage::Key;
  EXPECT_THAT(page->keys, ElementsAre(Key{"a/b c+d", 7}, Key{"a/f", std::nullopt},
                                      Key{"a/<g>&", std::nullopt}, Key{"a/h", std::nullopt}));
  EXPECT_THAT(page->prefixes, ElementsAre("a/e/"));
  EXPECT_EQ(page->next, "x+%2B");
  EXPECT_FALSE(page->after_key);
  const auto literal = ParseListPage(Page(some + "<IsTruncated>false</IsTruncated>"));
  EXPECT_EQ(literal->keys[0].key, "a/b+c%2Bd");
  EXPECT_THAT(literal->prefixes, ElementsAre("a/%65/"));
}

// What a page says of its end: where the next one begins, or why nothing is known of it.
TEST(Answers, EndsOfListings) {
  const std::string token = "<NextContinuationToken>x</NextContinuationToken>";
  const std::string yes = "<IsTruncated> True </IsTruncated>",
                    no = "<IsTruncated>false</IsTruncated>";
  const std::string key = "<Contents><Key>k</Key></Contents><Contents><Key>j</Key></Contents>";
  const std::string marker = "<NextMarker>m</NextMarker>";
  const std::string prefix = "<CommonPrefixes><Prefix>l/</Prefix></CommonPrefixes>";
  struct Case {
    std::string inside, next;
    bool after_key;
  };
  for (const auto& [inside, next, after_key] : {Case{no, "", false},
                                                {no + token, "", false},
                                                {yes + token, "x", false},
                                                {token, "x", false},
                                                {yes + key, "k", true},
                                                {yes + key + prefix, "l/", true},
                                                {yes + key + marker, "m", true}}) {
    const auto page = ParseListPage(Page(inside));
    ASSERT_TRUE(page.ok()) << inside << page.status();
    EXPECT_EQ(page->next, next) << inside;
    EXPECT_EQ(page->after_key, after_key) << inside;
  }
  for (const std::string& bad :
       {Page(""), Page(key), Page(yes),
        Page("<IsTruncated>1</IsTruncated>" + key + token.substr(1)),
        Page(no + "<Contents><Size>1</Size></Contents>"), Page(no + "<Contents><Key/></Contents>"),
        std::string("<Error><Code>X</Code></Error>"), std::string("<ListBucketResult>")})
    EXPECT_EQ(ParseListPage(bad).status().code(), StatusCode::kDataLoss) << bad;
}

TEST(Answers, Times) {
  EXPECT_EQ(ParseTime("1970-01-02T00:00:01Z"), 86'401);
  for (const char* same :
       {"1970-01-02T00:00:01.5Z", "1970-01-02 00:00:01", "1970-01-02T02:00:01+02:00",
        "1970-01-01T17:00:01.123-0700", "1970-01-02T05:30:01+0530", "1970-01-02T00:00:01+00:00",
        "1970-01-02t00:00:01z"})
    EXPECT_EQ(ParseTime(same), 86'401) << same;
  for (const char* bad : {"", "tomorrow", "12", "1970-01-02", "1970-01-02T00:00:01+",
                          "1970-01-02T00:00:01 CET", "1970-01-02T00:00:01+02:00x"})
    EXPECT_EQ(ParseTime(bad), std::nullopt) << bad;
}

TEST(Answers, Escapes) {
  EXPECT_EQ(PercentDecoded("a%20b%2Fc%e4"), "a b/c\xe4");
  EXPECT_EQ(PercentDecoded("100%"), "100%");
  EXPECT_EQ(PercentDecoded("%zz%2"), "%zz%2");
}

TEST(Answers, Json) {
  EXPECT_THAT(JsonStrings(R"({"b": "2", "a": [1], "c": {}})", {"a", "b"}), ElementsAre("", "2"));
  EXPECT_THAT(JsonStrings(R"({"a": {"b": 1700000000000, "c": "x"}})", {"a/b", "a/c"}),
              ElementsAre("1700000000000", "x"));
  EXPECT_THAT(JsonStrings("[]", {"a"}), ElementsAre());
  EXPECT_THAT(JsonStrings("{", {"a"}), ElementsAre());
  std::vector<std::pair<std::string, std::uint64_t>> files;
  EXPECT_TRUE(JsonTree(
      R"([{"type": "directory", "path": "d"}, {"type": "file", "path": "d/f", "size": 7}])",
      files));
  EXPECT_THAT(files, ElementsAre(Pair("d/f", 7U)));
  EXPECT_FALSE(JsonTree(R"([{"type": "file", "path": "f", "size": -1}])", files));
  EXPECT_FALSE(JsonTree("{}", files));
}

TEST(Names, WhichAreUrls) {
  for (const std::string_view url : {"https://h/x", "s3://b", "hf://o/n", "a+b-c.1://x"})
    EXPECT_TRUE(IsUrl(url)) << url;
  for (const std::string_view path :
       {"", "://x", "x", "/s3://x", "1://x", "a b://x", "c:\\x", "https:/x"})
    EXPECT_FALSE(IsUrl(path)) << path;
}

// Names that no server is asked for, by the store of this machine and then by that of servers.
TEST(Names, WhoTakesUrls) {
  const std::shared_ptr<Store>& local = LocalStore();
  EXPECT_EQ(local->Open("https://h/x").status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(local->Create("s3://b/x", {}).status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(local->List("s3://b/").status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(local->IsFolder("s3://b/").status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(local->Exists("s3://b/x").status().code(), StatusCode::kUnimplemented);
  const std::shared_ptr<Store> store = MakeRemoteStore();
  EXPECT_EQ(store->Open("ftp://h/x").status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(store->Open("https://h").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store->Open("https://name:secret@h/x").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store->Open("s3://").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store->Create("https://h/x", {}).status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(store->Create("s3://b/", {}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(*store->IsFolder("s3://b/"));
  EXPECT_FALSE(*store->IsFolder("https://h/x"));
  EXPECT_TRUE(*store->IsFolder(ZT_TEST_DATA));
  EXPECT_EQ(store->IsFolder("ftp://h/x").status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(store->HasName("ftp://h/x").status().code(), StatusCode::kUnimplemented);
}

TEST(Names, HiddenQueries) {
  std::map<std::string, std::string> queries;
  EXPECT_EQ(*HideQuery("plain/path?x", queries), "plain/path?x");
  EXPECT_EQ(*HideQuery("https://H/a?x=1", queries), "https://h/a");
  EXPECT_EQ(*HideQuery("https://h/a?x=1", queries), "https://h/a");
  EXPECT_EQ(*HideQuery("HTTPS://h/a?x=1", queries), "https://h/a");
  EXPECT_EQ(*HideQuery("HTTPS", queries), "HTTPS");
  EXPECT_EQ(HideQuery("https://h/a?x=2", queries).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(*HideQuery("s3://b/a?x=1", queries), "s3://b/a?x=1");
  EXPECT_THAT(queries, ElementsAre(Pair("https://h/a", "x=1")));
}

}  // namespace
}  // namespace zt
