// zt.convert.npy — .npz archives: directories, methods, CRCs, damage; scipy's sparse matrices.
#include "npy_files.h"

import zt.convert.npy;
import zt.core;
import zt.source;

namespace zt {
namespace {

using ::testing::AnyOf;

using Source = StatusOr<std::unique_ptr<TensorSource>>;

Source OpenText(std::string_view archive, InputOptions options = {}) {
  return OpenNpz(MemoryBytes(BytesOf(archive), "f.npz"), "stem", options);
}

StatusOr<std::string> ReadAll(TensorSource& source, ComponentId id,
                              std::size_t piece = ~std::size_t{0}) {
  const std::uint64_t size = source.objects()[id.object].components[id.component].bytes;
  std::string out(size, '\xcc');
  for (std::uint64_t at = 0; at < size;) {
    const auto step = std::min<std::uint64_t>(piece, size - at);
    auto part = std::as_writable_bytes(std::span(out)).subspan(at, step);
    if (Status status = source.Read(id, at, part); !status.ok()) return status;
    at += step;
  }
  return out;
}

#define EXPECT_FAILS(archive, expected_code, expected_message)                 \
  do {                                                                         \
    const std::string held = (archive);                                        \
    const auto source = OpenText(held);                                        \
    EXPECT_EQ(source.status().code(), StatusCode::expected_code);              \
    EXPECT_EQ(Why(source), std::string_view(expected_message)) << held.size(); \
  } while (false)

// Opens and lists tensor 'a', and says why it cannot be read.
#define EXPECT_LISTED(archive, expected_format, expected_message)                         \
  do {                                                                                    \
    const std::string held = (archive);                                                   \
    const auto source = OpenText(held);                                                   \
    ASSERT_OK(source);                                                                    \
    ASSERT_EQ((*source)->objects().size(), 1u);                                           \
    EXPECT_EQ((*source)->objects()[0].name, "a");                                         \
    EXPECT_EQ((*source)->objects()[0].format, expected_format);                           \
    EXPECT_EQ((*source)->file({}), "f.npz");                                              \
    std::byte one;                                                                        \
    for (const Status& why :                                                              \
         {(*source)->CheckReadable(0), (*source)->Read({0, 0}, 0, std::span(&one, 1))}) { \
      EXPECT_EQ(why.code(), StatusCode::kUnimplemented);                                  \
      EXPECT_EQ(Why(why), std::string_view(expected_message));                            \
    }                                                                                     \
    EXPECT_OK((*source)->Finish());                                                       \
  } while (false)

const std::string kFour = Npy("<f4", "(2,)", "abcdefgh");

TEST(Npz, Zip64WhereverItCanBe) {
  for (const bool deflate : {false, true}) {
    const std::string archive =
        Zip({{.name = "a.npy", .content = kFour, .deflate = deflate, .zip64 = true},
             {.name = "b.npy", .content = Npy("<i2", "(1,)", "xy"), .zip64 = true}},
            {.zip64_end = true, .comment = "PK\x05\x06 a comment that looks like an end record"});
    auto source = Must(OpenText(archive));
    EXPECT_EQ(*ReadAll(*source, {0, 0}), "abcdefgh");
    EXPECT_EQ(*ReadAll(*source, {1, 0}), "xy");
    EXPECT_OK(source->Finish());
  }
}

TEST(Npz, NamesAreKeptWhateverTheySay) {
  const std::vector<std::string> names = {"../../etc/x", "/abs", "a/b\\c", "ünï", "C:\\x", "a.npy"};
  std::vector<Entry> entries;
  for (const std::string& name : names) {
    entries.push_back({.name = name + ".npy", .content = kFour});
  }
  entries.push_back({.name = "no suffix", .content = kFour});
  const std::string archive = Zip(entries);
  auto source = Must(OpenText(archive));
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(source->objects()[i].name, names[i]);
  }
  EXPECT_EQ(source->objects().back().name, "no suffix");
}

TEST(Npz, NamesThatCannotBe) {
  EXPECT_FAILS(Zip({{.name = std::string("a\0b.npy", 7), .content = kFour}}), kDataLoss,
               "tensor 'a\\x00b': the name holds a NUL");
  EXPECT_FAILS(Zip({{.name = "\xff.npy", .content = kFour}}), kDataLoss,
               "tensor '\xff': the name is not valid UTF-8");
  EXPECT_FAILS(Zip({{.name = "a.npy", .content = kFour}, {.name = "a.npy", .content = kFour}}),
               kDataLoss, "tensor 'a' is in the archive twice");
  EXPECT_FAILS(Zip({{.name = "a.npy", .content = kFour}, {.name = "a", .content = kFour}}),
               kDataLoss, "tensor 'a' is in the archive twice");
}

TEST(Npz, EntriesThatAreNoArraysAreNamed) {
  const std::string archive = Zip({{.name = "README", .content = "hello"},
                                   {.name = "folder/", .content = ""},
                                   {.name = "a.npy", .content = kFour},
                                   {.name = "secret", .content = kFour, .flags = 1},
                                   {.name = "other.txt", .content = kFour, .method = 12}});
  auto source = Must(OpenText(archive));
  ASSERT_EQ(source->objects().size(), 1u);
  EXPECT_THAT(source->warnings(),
              ElementsAre("entries that are not arrays left out: 'README', 'secret', 'other.txt'"));
  EXPECT_EQ(*ReadAll(*source, {0, 0}), "abcdefgh");
  const std::string empty = Zip({});
  source = Must(OpenText(empty));
  EXPECT_THAT(source->objects(), IsEmpty());
  EXPECT_EQ(source->file({}), "");
  EXPECT_FAILS(Zip({{.name = "data.pkl", .content = "x"}, {.name = "version", .content = "3"}}),
               kUnimplemented, "the zip archive holds no .npy array, but 'data.pkl', 'version'");
}

TEST(Npz, KindsOfEntriesRefusedByName) {
  EXPECT_LISTED(Zip({{.name = "a.npy", .content = kFour, .flags = 1}}), "npy.unknown",
                "the entry is encrypted");
  for (const auto& [method, name] : std::vector<std::pair<int, std::string>>{{9, "deflate64"},
                                                                             {12, "bzip2"},
                                                                             {14, "lzma"},
                                                                             {93, "zstd"},
                                                                             {95, "xz"},
                                                                             {77, "method 77"}}) {
    EXPECT_LISTED(
        Zip({{.name = "a.npy", .content = kFour, .method = method}}), "npy.unknown",
        "the entry is compressed with " + name + "; stored and deflated entries are supported");
  }
  EXPECT_FAILS(Zip({{.name = "a.npy", .content = "not an array"}}), kDataLoss,
               "tensor 'a': it is not an npy array: the magic is missing");
  EXPECT_LISTED(Zip({{.name = "a.npy", .content = Npy("<U1", "(1,)", "abcd")}}), "npy.U1",
                "string arrays (dtype '<U1') are not supported");
  EXPECT_FAILS(ReadFile(DataPath("npy-reject/object.npy")), kDataLoss,
               "the zip archive is damaged: its end record is missing; the file is truncated");
}

TEST(Npz, SizesMustAgree) {
  for (const bool deflate : {false, true}) {
    EXPECT_FAILS(Zip({{.name = "a.npy", .content = kFour + "x", .deflate = deflate}}), kDataLoss,
                 "tensor 'a': its header declares 136 bytes, its entry has 137");
    EXPECT_FAILS(Zip({{.name = "a.npy", .content = kFour.substr(0, 135), .deflate = deflate}}),
                 kDataLoss, "tensor 'a': its header declares 136 bytes, its entry has 135");
  }
  EXPECT_FAILS(Zip({{.name = "a.npy", .content = kFour, .declared = 200}}), kDataLoss,
               "entry 'a.npy': the zip archive is damaged: it is stored, but its two sizes differ");
  EXPECT_FAILS(Zip({{.name = "a.npy", .content = Npy("<f8", "(1152921504606846976,)", "")}}),
               kDataLoss,
               "tensor 'a': its header declares 9223372036854775936 bytes, its entry has 128");
  EXPECT_FAILS(Zip({{.name = "a.npy", .content = Npy("<f8", "(2305843009213693951,)", "")}}),
               kDataLoss, "tensor 'a': shape [2305843009213693951] overflows 64 bits");
}

// Opens well, fails with this message when the last byte is read.
void ExpectReadFails(const std::vector<Entry>& entries, std::string_view message) {
  const std::string archive = Zip(entries);
  for (const std::size_t piece : {3u, 1u << 20}) {
    auto source = Must(OpenText(archive));
    EXPECT_THAT(ReadAll(*source, {0, 0}, piece), Fails(StatusCode::kDataLoss, message));
  }
}

TEST(Npz, BombsAndDamage) {
  const std::string zeros = Npy("|u1", "(100000,)", std::string(100000, '\0'));
  const auto declared = static_cast<long long>(zeros.size());
  const std::string more = zeros + std::string(1 << 20, '\0'), less = zeros.substr(0, 90000);
  ExpectReadFails({{.name = "a.npy", .content = more, .deflate = true, .declared = declared}},
                  "the deflated data holds more than the 100128 bytes declared");
  ExpectReadFails({{.name = "a.npy", .content = less, .deflate = true, .declared = declared}},
                  "the deflated data ends at byte 90000 of the 100128 declared");
  ExpectReadFails({{.name = "a.npy", .content = zeros, .deflate = true, .tail = "junk"}},
                  "4 bytes follow the deflated data");
  for (const bool deflate : {false, true}) {
    ExpectReadFails({{.name = "a.npy", .content = zeros, .deflate = deflate, .bad_crc = true}},
                    "the entry's CRC-32 does not match: its bytes are damaged");
  }
  // A directory that promises what no deflated data can hold.
  const std::string huge = Npy("|u1", "(1000000000,)", "");
  EXPECT_FAILS(
      Zip({{.name = "a.npy", .content = huge, .deflate = true, .declared = 1000000000 + 128}}),
      kDataLoss,
      "entry 'a.npy': the zip archive is damaged: it declares 1000000128 bytes, more than " +
          std::to_string(Deflate(huge).size()) + " deflated ones can hold");
  // An array without bytes is checked when it is opened.
  for (const bool deflate : {false, true}) {
    EXPECT_FAILS(
        Zip({{.name = "a.npy",
              .content = Npy("|u1", "(0,)", ""),
              .deflate = deflate,
              .bad_crc = true}}),
        kDataLoss,
        "tensor 'a': npy header: the entry's CRC-32 does not match: its bytes are damaged");
  }
}

TEST(Npz, DamagedDeflateNeverPasses) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += Le(i * 7919, 4);
  const Entry entry{.name = "a.npy", .content = Npy("<u4", "(500,)", text), .deflate = true};
  const std::string archive = Zip({entry});
  const std::size_t data = 30 + 5, size = Deflate(entry.content).size();
  int passed = 0;
  for (std::size_t i = 0; i < size; ++i) {
    std::string damaged = archive;
    damaged[data + i] = static_cast<char>(damaged[data + i] ^ 0x10);
    auto source = OpenText(damaged);
    if (!source.ok()) continue;  // the header is what was hit
    const auto content = ReadAll(**source, {0, 0});
    EXPECT_TRUE(!content.ok() || *content == text) << i;  // the last byte has spare bits
    passed += content.ok();
  }
  EXPECT_LE(passed, 1);
}

TEST(Npz, TruncatedAtEveryByte) {
  const std::string archive =
      Zip({{.name = "a.npy", .content = kFour, .zip64 = true}, {.name = "b.npy", .content = kFour}},
          {.zip64_end = true});
  ASSERT_OK(OpenText(archive));
  for (std::size_t size = 0; size < archive.size(); ++size) {
    EXPECT_THAT(OpenText(std::string_view(archive).substr(0, size)),
                Fails(StatusCode::kDataLoss, HasSubstr("the zip archive is damaged")))
        << size;
  }
}

TEST(Npz, AnyByteChangedNeverCrashes) {
  int opened = 0;
  const std::string archive =
      Zip({{.name = "a.npy", .content = kFour, .deflate = true, .zip64 = true},
           {.name = "b.npy", .content = kFour}},
          {.zip64_end = true});
  for (std::size_t i = 0; i < archive.size(); ++i) {
    for (const int change : {0x01, 0x80, 0xff}) {
      std::string damaged = archive;
      damaged[i] = static_cast<char>(damaged[i] ^ change);
      auto source = OpenText(damaged);
      opened += source.ok();
      if (!source.ok()) continue;
      std::vector<StatusOr<std::string>> contents;
      for (std::uint32_t o = 0; o < (*source)->objects().size(); ++o) {
        const Object& object = (*source)->objects()[o];
        if (object.components[0].bytes > 1 << 20) continue;
        contents.push_back(ReadAll(**source, {o, 0}));
      }
      // No damage passes as other values.
      if (!(*source)->Finish().ok()) continue;
      for (const auto& content : contents) {
        if (content.ok()) EXPECT_EQ(*content, "abcdefgh") << i;
      }
    }
  }
  EXPECT_GT(opened, 0);
}

TEST(Npz, DirectoriesThatLie) {
  const std::vector<Entry> two = {{.name = "a.npy", .content = kFour},
                                  {.name = "b.npy", .content = kFour}};
  EXPECT_FAILS(Zip(two, {.announced = 3}), kDataLoss,
               "the zip archive is damaged: its directory has 2 entries, 3 are announced");
  EXPECT_FAILS(Zip({{.name = "a.npy", .content = kFour, .local_name = "c.npy"}}), kDataLoss,
               "entry 'a.npy': the zip archive is damaged: the directory and the local header name "
               "it differently");
  // Both entries point to the first one's bytes.
  std::string overlap = Zip({two[0], two[0]});
  const std::size_t second = overlap.rfind("PK\x01\x02");
  overlap.replace(second + 42, 4, Le(0, 4));
  EXPECT_FAILS(overlap, kDataLoss,
               "the zip archive is damaged: entry 'a.npy' overlaps entry 'a.npy'");
  std::string outside = Zip(two);
  outside.replace(outside.rfind("PK\x01\x02") + 42, 4, Le(0xfffffff0, 4));
  EXPECT_FAILS(outside, kDataLoss,
               "entry 'b.npy': the zip archive is damaged: it begins outside the archive");
}

TEST(Npz, StoredEntriesServeAnyRangeToAnyThread) {
  std::string data(1 << 20, '\0');
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 31 + i / 256);
  for (const bool bad_crc : {false, true}) {
    const std::string archive =
        Zip({{.name = "a.npy", .content = Npy("|u1", "(1048576,)", data), .bad_crc = bad_crc}});
    auto source = Must(OpenText(archive));
    // The thread that reads the last piece reports the bad CRC.
    EXPECT_THAT(ReadByThreads(*source, data.size(), 10007), ::testing::Pair(data, bad_crc ? 1 : 0));
  }
}

TEST(Npz, PiecesThatDoNotAddUpAreReadAgain) {
  for (const bool deflate : {false, true}) {
    for (const bool bad_crc : {false, true}) {
      const std::string archive =
          Zip({{.name = "a.npy", .content = kFour, .deflate = deflate, .bad_crc = bad_crc}});
      auto source = Must(OpenText(archive));
      EXPECT_OK(source->Finish());  // nothing was served, so nothing is checked
      std::string part(5, '\0');
      ASSERT_OK(source->Read({}, 0, std::as_writable_bytes(std::span(part))));
      EXPECT_EQ(part, "abcde");
      ASSERT_OK(source->Read({}, 2, std::as_writable_bytes(std::span(part))));
      EXPECT_EQ(part, "cdefg");
      const Status status = source->Finish();
      EXPECT_EQ(status.ok(), !bad_crc);
      if (bad_crc) {
        EXPECT_EQ(Why(status),
                  "f.npz: tensor 'a': the entry's CRC-32 does not match: its bytes are damaged");
      }
    }
  }
}

TEST(Npz, DeflatedEntriesAreReadSideBySide) {
  std::vector<Entry> entries;
  std::string data(300000, '\0');
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * i >> 7);
  for (int i = 0; i < 4; ++i) {
    entries.push_back(
        {.name = std::to_string(i), .content = Npy("|u1", "(300000,)", data), .deflate = true});
  }
  const std::string archive = Zip(entries);
  auto source = Must(OpenText(archive));
  std::vector<std::string> out(4);
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] { out[i] = *ReadAll(*source, {i, 0}, 5000 + i); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& one : out) EXPECT_EQ(one, data);
}

TEST(Npz, FortranOrderInDeflatedEntries) {
  const std::string file = Npy("|u1", "(2, 3)", "adbecf", true);
  const std::string archive =
      Zip({{.name = "a", .content = file, .deflate = true}, {.name = "b", .content = file}});
  auto source = Must(OpenText(archive, {.memory_limit = 12}));
  EXPECT_EQ(*ReadAll(*source, {0, 0}, 4), "abcdef");
  EXPECT_EQ(*ReadAll(*source, {1, 0}, 4), "abcdef");
  EXPECT_OK(source->Finish());
  source = Must(OpenText(archive, {.memory_limit = 11}));
  EXPECT_THAT(Why(source->CheckReadable(0)), HasSubstr("it is in Fortran order"));
}

// ---- scipy ----

std::string U64s(const std::vector<std::uint64_t>& values) { return Raw(values); }

std::string Vector(std::string_view descr, std::size_t count, std::string_view data) {
  return Npy(descr, "(" + std::to_string(count) + ",)", data);
}
std::string Indices(const std::vector<std::int32_t>& values) {
  return Vector("<i4", values.size(), Raw(values));
}
Entry Named(std::string name, std::string content, bool deflate = true) {
  return {.name = std::move(name) + ".npy", .content = std::move(content), .deflate = deflate};
}
std::vector<Entry> Compressed(std::string_view format, const std::vector<std::int32_t>& shape,
                              const std::vector<std::int32_t>& indptr,
                              const std::vector<std::int32_t>& indices, std::string_view values,
                              bool deflate = true) {
  return {Named("indices", Indices(indices), deflate), Named("indptr", Indices(indptr), deflate),
          Named("format", Npy("|S3", "()", format), deflate),
          Named("shape", Indices(shape), deflate),
          Named("data", Vector("|u1", values.size(), values), deflate)};
}

TEST(Scipy, UnsortedRowsAreSortedAndDuplicatesStay) {
  for (const bool deflate : {false, true}) {
    const std::string archive = Zip(
        Compressed("csr", {4, 5}, {0, 3, 3, 7, 8}, {4, 0, 2, 3, 1, 3, 1, 0}, "cabxuyvz", deflate));
    for (const std::uint64_t limit : {800, 1 << 20}) {
      auto source = Must(OpenText(archive, {.memory_limit = limit}));
      EXPECT_EQ(source->sequential({0, 0}), deflate);
      for (const std::size_t piece : {1u, 5u, 1000u}) {
        EXPECT_EQ(*ReadAll(*source, {0, 0}, piece), "abcuvxyz");
        EXPECT_EQ(*ReadAll(*source, {0, 1}, piece), U64s({0, 2, 4, 1, 1, 3, 3, 0}));
        EXPECT_EQ(*ReadAll(*source, {0, 2}, piece), U64s({0, 3, 3, 7, 8}));
      }
      EXPECT_OK(source->Finish());
    }
  }
}

TEST(Scipy, WhatIsSortedFitsTheMemoryLimit) {
  const auto refused = [](const std::vector<Entry>& entries, std::uint64_t limit,
                          std::string what) {
    const std::string archive = Zip(entries);
    EXPECT_TRUE(OpenText(archive, {.memory_limit = limit}).ok());
    EXPECT_THAT(OpenText(archive, {.memory_limit = limit - 1}),
                Fails(StatusCode::kUnimplemented, "tensor 'stem': its " + what +
                                                      " bytes each, more than the memory limit; "
                                                      "save it with tocsr() and sort_indices()"));
  };
  refused(Compressed("csr", {2, 3}, {0, 3, 6}, {2, 1, 0, 0, 1, 2}, "abcdef"), 102,
          "6 entries are unsorted, and to sort them in memory takes 17");
  refused(
      Compressed("csc", {3, 2}, {0, 6, 12}, {2, 1, 0, 0, 1, 2, 2, 1, 0, 0, 1, 2}, "abcdefghijkl"),
      108, "12 entries lie by columns, and to sort them in memory takes 9");
}

TEST(Scipy, ColumnsBecomeRows) {
  for (const bool deflate : {false, true}) {
    // 3 x 4; rows within a column unsorted, (2, 1) given twice.
    const std::string archive =
        Zip(Compressed("csc", {3, 4}, {0, 2, 5, 5, 6}, {2, 0, 2, 1, 2, 0}, "abcdef", deflate));
    for (const std::uint64_t limit : {200, 1 << 20}) {
      auto source = Must(OpenText(archive, {.memory_limit = limit}));
      EXPECT_EQ(*ReadAll(*source, {0, 0}, 3), "bfdace");
      EXPECT_EQ(*ReadAll(*source, {0, 1}, 9), U64s({0, 3, 1, 0, 1, 1}));
      EXPECT_EQ(*ReadAll(*source, {0, 2}), U64s({0, 2, 3, 6}));
    }
  }
}

TEST(Scipy, ColumnsThatChangeWhileTheyAreReadAreAnError) {
  // Opened, row 2 has three entries; then all six are in row 2.
  const auto archive = [](const std::vector<std::int32_t>& rows) {
    return Zip(Compressed("csc", {3, 4}, {0, 2, 5, 5, 6}, rows, "abcdef", false));
  };
  const std::string path = ::testing::TempDir() + "/npz_changes.npz";
  WriteFile(path, archive({2, 0, 2, 1, 2, 0}));
  auto source = Must(OpenNpz(*OpenFile(path), "matrix"));
  WriteFile(path, archive({2, 2, 2, 2, 2, 2}));
  const auto values = ReadAll(*source, {0, 0});
  EXPECT_EQ(values.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(Why(values), HasSubstr("it has changed while it was read: a row has more entries"));
}

TEST(Scipy, CooKeepsItsOrderAndMayHaveAnyRank) {
  const std::string archive =
      Zip({Named("coords", Npy("<i8", "(3, 2)", U64s({1, 0, 2, 1, 0, 3}))),
           Named("format", Npy("<U3", "()", std::string("c\0\0\0o\0\0\0o\0\0\0", 12))),
           Named("shape", Indices({2, 3, 4})), Named("data", Vector(">f2", 2, "badc")),
           Named("_is_array", Npy("|b1", "()", "\x01")), Named("extra", kFour)});
  auto source = Must(OpenText(archive));
  const Object& object = source->objects()[0];
  EXPECT_EQ(object.format, "sparse_coo");
  EXPECT_EQ(object.shape, (Shape{2, 3, 4}));
  EXPECT_EQ(*ReadAll(*source, {0, 0}), "abcd");
  EXPECT_EQ(*ReadAll(*source, {0, 1}, 5), U64s({1, 0, 2, 1, 0, 3}));
  EXPECT_THAT(source->warnings(),
              ElementsAre("entries that are not part of the sparse matrix left out: 'extra'"));
}

TEST(Scipy, ARowOfOneDimensionBecomesCoordinates) {
  const std::string archive = Zip(Compressed("csr", {5}, {0, 3}, {4, 0, 2, 99}, "abcd"));
  auto source = Must(OpenText(archive));
  const Object& object = source->objects()[0];
  EXPECT_EQ(object.format, "sparse_coo");
  EXPECT_EQ(object.shape, (Shape{5}));
  EXPECT_EQ(*ReadAll(*source, {0, 0}), "abc");
  EXPECT_EQ(*ReadAll(*source, {0, 1}), U64s({4, 0, 2}));
  EXPECT_EQ(source->warnings().size(), 1u);
  EXPECT_OK(source->Finish());
}

TEST(Scipy, ArraysAndMatricesAreToldApart) {
  for (const auto& [flag, is_array] : std::vector<std::pair<std::string, bool>>{
           {Npy("|b1", "()", std::string(1, '\1')), true},
           {Npy("|b1", "()", std::string(1, '\0')), false},
           {Npy("|U1", "()", "abcd"), false},
           {Npy("|b1", "(1,)", std::string(1, '\1')), false}}) {
    auto entries = Compressed("csr", {2, 3}, {0, 1, 2}, {0, 1}, "ab");
    entries.push_back(Named("_is_array", flag));
    const std::string archive = Zip(entries);
    auto source = Must(OpenText(archive));
    const Object& object = source->objects()[0];
    const Value* const said = FindMember(object.attributes, kScipyIsArray);
    EXPECT_EQ(said != nullptr && *said == Value(true), is_array);
    EXPECT_EQ(object.attributes.size(), is_array ? 1u : 0u);
  }
}

TEST(Scipy, EmptyMatrices) {
  const std::string csr = Zip(Compressed("csr", {2, 3}, {0, 0, 0}, {}, ""));
  auto source = Must(OpenText(csr));
  EXPECT_EQ(*ReadAll(*source, {0, 2}), U64s({0, 0, 0}));
  const std::string csc = Zip(Compressed("csc", {0, 3}, {0, 0, 0, 0}, {}, ""));
  source = Must(OpenText(csc));
  EXPECT_EQ(*ReadAll(*source, {0, 2}), U64s({0}));
}

TEST(Scipy, WhatIsWrongIsAnError) {
  const auto fails = [](const std::vector<Entry>& entries, StatusCode code, std::string_view what) {
    const std::string archive = Zip(entries);
    EXPECT_THAT(OpenText(archive), Fails(code, "tensor 'stem': " + std::string(what)));
  };
  const auto bad = StatusCode::kDataLoss;
  fails(Compressed("csr", {2, 3}, {0, 1, 2}, {0, 3}, "ab"), bad,
        "entry 'indices': index 3 is not below the dimension, 3");
  fails(Compressed("csr", {2, 3}, {0, 1, 2}, {0, -1}, "ab"), bad,
        "entry 'indices': index 1 is negative: -1");
  fails(Compressed("csr", {2, 3}, {0, 2, 1}, {0, 1}, "ab"), bad, "entry 'indptr' falls");
  fails(Compressed("csr", {2, 3}, {1, 1, 2}, {0, 1}, "ab"), bad,
        "entry 'indptr' does not begin with 0");
  fails(Compressed("csr", {2, 3}, {0, 1, 3}, {0, 1}, "ab"), bad,
        "entry 'indptr' ends with 3, there are 2 entries");
  fails(Compressed("csr", {2, 3}, {0, 2}, {0, 1}, "ab"), bad,
        "entry 'indptr' has 2 elements, the shape needs one more than 2");
  fails(Compressed("csr", {2, 3}, {0, 1, 2}, {0, 1}, "abc"), bad,
        "entries 'indices' and 'data' differ in their number of elements");
  fails(Compressed("csr", {2, -3}, {0, 1, 2}, {0, 1}, "ab"), bad,
        "entry 'shape': index 1 is negative: -3");
  fails(Compressed("csc", {2}, {0, 1, 2}, {0, 1}, "ab"), StatusCode::kUnimplemented,
        "a sparse matrix of shape [2] is not supported, two dimensions are needed");
  fails(Compressed("csr", {2}, {0, 1, 2}, {0, 1}, "ab"), bad,
        "entry 'indptr' has 3 elements, the shape needs one more than 1");
  fails(Compressed("csc", {2147483647, 1}, {0, 1}, {0}, "a"), StatusCode::kUnimplemented,
        "the row pointers of shape [2147483647, 1] take more than half the memory limit");
  std::vector<Entry> floats = Compressed("csr", {2, 3}, {0, 1, 2}, {0, 1}, "ab");
  floats[1] = Named("indptr", Vector("<f4", 3, "abcdefghijkl"));
  fails(floats, bad, "entry 'indptr' holds f32, integers were expected");
}

// Other arrays, named as those of a matrix.
TEST(Scipy, NoMatrix) {
  const std::string stay = "; the arrays of the archive stay as they are";
  std::vector<Entry> entries = Compressed("csr", {2, 3}, {0, 1, 2}, {0, 1}, "ab");
  const auto warning = [&] {
    auto source = Must(OpenText(Zip(entries)));
    EXPECT_EQ(source->objects().size(), entries.size() - 1);  // "format" is an attribute
    return source->warnings().at(0);
  };
  entries[1] = Named("indptr", Npy("<i4", "(1, 3)", std::string(12, '\0')));
  EXPECT_EQ(warning(), "entry 'indptr': shape [1, 3], 1 dimensions were expected" + stay);
  entries.erase(entries.begin() + 1);
  EXPECT_EQ(warning(), "the sparse matrix lacks entry 'indptr'" + stay);
  for (const std::string format : {"bsr", "dia"}) {
    entries = Compressed(format, {2, 3}, {0, 1, 2}, {0, 1}, "ab");
    EXPECT_EQ(warning(), "scipy's sparse format '" + format +
                             "' is not supported (csr, csc and coo are)" + stay);
  }
}

TEST(Scipy, SpareElementsBeyondTheLastRow) {
  const std::string archive = Zip(Compressed("csr", {2, 3}, {0, 1, 2}, {0, 1, 99}, "abc"));
  auto source = Must(OpenText(archive));
  EXPECT_EQ(*ReadAll(*source, {0, 0}), "ab");
  EXPECT_EQ(*ReadAll(*source, {0, 1}), U64s({0, 1}));
  EXPECT_THAT(
      source->warnings(),
      ElementsAre("1 elements of 'indices' and 'data' lie beyond the last row and are left out"));
  EXPECT_OK(source->Finish());
}

TEST(Scipy, KeptAsArrays) {
  for (const std::string format : {"csr", "bsr"}) {
    const std::string archive = Zip(Compressed(format, {2, 3}, {0, 1, 2}, {0, 1}, "ab"));
    auto source = Must(OpenText(archive, {.keep_sparse = true}));
    std::vector<std::string> names;
    for (const Object& object : source->objects()) names.push_back(object.name);
    EXPECT_THAT(names, ElementsAre("indices", "indptr", "shape", "data"));
    EXPECT_EQ(*FindMember(source->objects()[3].attributes, "scipy_format")->AsString(), format);
    EXPECT_EQ(*ReadAll(*source, {3, 0}), "ab");
  }
}

}  // namespace
}  // namespace zt
